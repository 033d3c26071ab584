//! The clocks of the ring buffer (`trace_clock`), and how the kernel prints their time.

use std::fmt;

/// The clock of a record's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, schemars::JsonSchema, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// Per-CPU nanoseconds; the default.
    #[default]
    Local,
    /// Nanoseconds, the same on all CPUs.
    Global,
    /// A counter of events.
    Counter,
    /// Hundredths of a second since boot: jiffies in units of USER_HZ (`trace_clock_jiffies()`).
    Uptime,
    /// The clock of perf events, nanoseconds.
    Perf,
    /// `CLOCK_MONOTONIC`.
    Mono,
    /// `CLOCK_MONOTONIC_RAW`.
    MonoRaw,
    /// `CLOCK_BOOTTIME`.
    Boot,
    /// `CLOCK_TAI`.
    Tai,
    /// Cycles of the time stamp counter.
    X86Tsc,
    /// A clock that this library does not know. It is treated as nanoseconds, as in trace-cmd.
    Unknown,
    /// Plain numbers in trace text, which does not name its clock.
    Ticks,
}

impl Clock {
    pub fn named(name: &str) -> Clock {
        match name {
            "local" => Clock::Local,
            "global" => Clock::Global,
            "counter" => Clock::Counter,
            "uptime" => Clock::Uptime,
            "perf" => Clock::Perf,
            "mono" => Clock::Mono,
            "mono_raw" => Clock::MonoRaw,
            "boot" => Clock::Boot,
            "tai" => Clock::Tai,
            "x86-tsc" | "tsc" => Clock::X86Tsc,
            // Clocks of other architectures (ARCH_TRACE_CLOCKS), and of future kernels.
            _ => Clock::Unknown,
        }
    }

    /// Returns the chosen clock in a `trace_clock` file, which is the one in brackets. A text
    /// without brackets is a clock's name.
    pub fn chosen(text: &str) -> Clock {
        let name = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name);
        Clock::named(name.unwrap_or(text).trim())
    }

    /// Returns whether the clock counts nanoseconds (`in_ns` of trace_clocks[] in
    /// kernel/trace/trace.c).
    pub fn nanoseconds(self) -> bool {
        // Treat `Unknown` as nanoseconds: of the kernel's clocks, only counter, uptime and x86-tsc
        // differ.
        !matches!(self, Clock::Counter | Clock::Uptime | Clock::X86Tsc | Clock::Ticks)
    }
}

/// Converts nanoseconds to microseconds as in trace text, with rounding (ns2usecs() in
/// kernel/trace/trace.c).
#[inline]
pub const fn microseconds(nanoseconds: u64) -> u64 {
    nanoseconds.saturating_add(500) / 1_000
}

/// A time as trace text prints it: seconds with six decimals, or a plain number.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// Nanoseconds or ticks.
    pub time: u64,
    /// The clock, which decides the unit of `time`.
    pub clock: Clock,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.clock.nanoseconds() {
            // trace_print_time() in kernel/trace/trace_output.c: `%5lu.%06lu`, or `%12llu` for
            // clocks that are not in ns.
            let micros = microseconds(self.time);
            write!(f, "{:5}.{:06}", micros / 1_000_000, micros % 1_000_000)
        } else {
            write!(f, "{:12}", self.time)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_in_brackets_is_the_chosen_one() {
        let text = "local global counter uptime perf [mono] mono_raw boot tai x86-tsc \n";
        assert_eq!(Clock::chosen(text), Clock::Mono);
        assert_eq!(Clock::chosen("[x86-tsc]"), Clock::X86Tsc);
        assert_eq!(Clock::chosen("local"), Clock::Local);
        assert_eq!(Clock::chosen(""), Clock::Unknown);
        assert!(Clock::Mono.nanoseconds() && !Clock::Counter.nanoseconds() && !Clock::Uptime.nanoseconds());
    }

    #[test]
    fn times_are_rounded_to_microseconds() {
        assert_eq!(Stamp { time: 3_552_349_499, clock: Clock::Local }.to_string(), "    3.552349");
        assert_eq!(Stamp { time: 3_999_999_500, clock: Clock::Local }.to_string(), "    4.000000");
        assert_eq!(Stamp { time: 3_552, clock: Clock::Counter }.to_string(), "        3552");
    }
}
