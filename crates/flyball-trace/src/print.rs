//! Prints a record as a line of trace text, in the kernel's format.

use std::fmt;

use crate::{
    clock::{Clock, Stamp},
    events::Event,
    record::Record,
};

/// A record as `trace` prints it; see [`Record::line`].
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    record: &'a Record,
    clock: Clock,
}

impl Record {
    /// The record as a line of the kernel's `trace` file, without the newline. Passed-through
    /// events have no fields here, because their fields are in the record's bytes.
    pub fn line(&self, clock: Clock) -> Line<'_> {
        Line { record: self, clock }
    }
}

impl Line<'_> {
    /// Returns the text before the event's name: task, CPU, flags and time.
    pub fn start(&self) -> String {
        let record = self.record;
        let [a, b, c, d, e] = flags(record.flags, record.preempt);
        let time = Stamp { time: record.time, clock: self.clock };
        // `%16s-%-7d ` and `[%03d] ` of trace_print_context() in kernel/trace/trace_output.c.
        format!("{:>16}-{:<7} [{:03}] {a}{b}{c}{d}{e} {time}: ", record.comm, record.pid, record.cpu)
    }
}

/// The five characters of option irq-info (trace_print_lat_fmt() in kernel/trace/trace_output.c);
/// the bits are TRACE_FLAG_* in include/linux/trace_events.h.
fn flags(flags: u8, preempt: u8) -> [char; 5] {
    let has = |bit: u8| flags & bit != 0;
    let irqs = match (has(0x01), has(0x80)) {
        (true, true) => 'D',
        (true, false) => 'd',
        (false, true) => 'b',
        (false, false) => '.',
    };
    // 0x04 need-resched, 0x20 preempt resched, 0x02 lazy (6.13 and later; never set before).
    let resched = match (has(0x04), has(0x20), has(0x02)) {
        (true, true, true) => 'B',
        (true, true, false) => 'N',
        (true, false, true) => 'b',
        (true, false, false) => 'n',
        (false, true, true) => 'L',
        (false, true, false) => 'p',
        (false, false, true) => 'l',
        (false, false, false) => '.',
    };
    // NMI takes precedence over hard and soft interrupts, which it may have interrupted.
    let (nmi, hard, soft) = (has(0x40), has(0x08), has(0x10));
    let context = match (nmi, hard, soft) {
        (true, true, _) => 'Z',
        (true, false, _) => 'z',
        (false, true, true) => 'H',
        (false, true, false) => 'h',
        (false, false, true) => 's',
        (false, false, false) => '.',
    };
    let digit =
        |value: u8| if value == 0 { '.' } else { char::from_digit(u32::from(value), 16).unwrap_or('.') };
    // Low nibble: depth of preempt_disable(); high nibble: of migrate_disable().
    [irqs, resched, context, digit(preempt & 0xf), digit(preempt >> 4)]
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.record;
        if let Event::Lost(count) = record.event {
            return match count {
                Some(count) => write!(f, "CPU:{} [LOST {count} EVENTS]", record.cpu),
                None => write!(f, "CPU:{} [LOST EVENTS]", record.cpu),
            };
        }
        let [a, b, c, d, e] = flags(record.flags, record.preempt);
        let time = Stamp { time: record.time, clock: self.clock };
        write!(
            f,
            "{:>16}-{:<7} [{:03}] {a}{b}{c}{d}{e} {time}: {}",
            record.comm, record.pid, record.cpu, record.event
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::text::{LineParser, TextBatch};

    #[test]
    fn lines_read_back_as_they_were_written() {
        let text = "         job[12]-4711    [003] d..2.   849.000009: amd_pstate_perf: amd_min_perf=15 amd_des_perf=112 amd_max_perf=166 freq=2473320 mperf=8832012 aperf=6619514 tsc=17826780 cpu_id=3 changed=true fast_switch=false
          <idle>-0       [1015] d..2.   849.000016: pstate_sample: core_busy=97 scaled=8 from=9 to=10 mperf=1 aperf=2 tsc=3 freq=2900000 io_boost=4
          <idle>-0       [015] d..2.   849.000016: cpu_idle: state=4294967295 cpu_id=15
          <idle>-0       [015] d..2.   849.000016: amd_pstate_epp_perf: cpu12: [15<->196]/255, epp=128, boost=1, changed=0
          <idle>-0       [015] d..2.   849.000016: cpu_frequency_limits: min=1 max=2 cpu_id=3
CPU:15 [LOST 17 EVENTS]
";
        let mut batch = TextBatch::default();
        LineParser::new(Arc::default()).parse(text.as_bytes(), 0, &mut batch);
        let lines: Vec<String> =
            batch.records.iter().map(|record| format!("{}\n", record.line(Clock::Local))).collect();
        assert_eq!(lines.concat(), text);
    }

    #[test]
    fn flags_are_the_kernels_letters() {
        assert_eq!(flags(0, 0).iter().collect::<String>(), ".....");
        assert_eq!(flags(0x81 | 0x24 | 0x18, 0x1f).iter().collect::<String>(), "DNHf1");
        assert_eq!(flags(0x48, 0).iter().collect::<String>(), "..Z..");
    }
}
