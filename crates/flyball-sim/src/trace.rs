//! Tracing: the records of the kernel's tracepoints in drivers, governors and idle loops, in ring
//! buffers that are read as ftrace text or as pages.
//!
//! `event` knows the tracepoints and their records, `format` the layout that each kernel version
//! gives them, `ring` the buffer of a CPU, and `line` the text; the files are in `tree/tracefs`.
//! Drivers call [`Tracer::emit`] where the kernel's sources have their
//! `trace_...()`; while nothing is enabled, that is one test of a bit mask.

mod event;
pub(crate) mod format;
pub(crate) mod line;
mod ring;

pub(crate) use event::{Event, Kind};
use ring::Ring;
pub(crate) use ring::{PAGE, Record};

use std::collections::BTreeMap;

use flyball_silicon::msr::{APERF, MPERF, TSC};

use crate::{chip::Chip, kernel::Kernel};

/// The task that runs on a CPU when it hits a tracepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    /// A program that wrote to a file.
    Writer,
    /// A kernel worker thread: sampling governors, changes of limits.
    Worker,
    /// schedutil's thread, for drivers that may sleep.
    Sugov,
    /// The scheduler's tick, during whatever runs on that CPU.
    Tick,
    /// The idle loop.
    Idle,
}

// TRACE_FLAG_IRQS_OFF and TRACE_FLAG_HARDIRQ (include/linux/trace_events.h).
const IRQS_OFF: u8 = 0x01;
const HARD_IRQ: u8 = 0x08;

/// Process number of programs that write to files: the machine does not know the real one.
const WRITER: i32 = 900;
/// Kernel threads are numbered from here, two per CPU.
const THREADS: i32 = 1000;
/// Tasks of a workload are numbered from here, one per CPU.
const TASKS: i32 = 20_000;

/// The clock of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TraceClock {
    /// A clock in nanoseconds, by index into [`TraceClock::NAMES`]. All of them show one time here.
    Nanoseconds(u8),
    /// Advances by one with each record.
    Counter,
    /// The kernel's ticks.
    Uptime,
    /// The processor's time stamp counter.
    Tsc,
}

impl TraceClock {
    /// The clocks' names in the order of the file trace_clock.
    pub(crate) const NAMES: [&str; 10] =
        ["local", "global", "counter", "uptime", "perf", "mono", "mono_raw", "boot", "tai", "x86-tsc"];

    pub(crate) fn named(name: &str) -> Option<TraceClock> {
        let index = TraceClock::NAMES.iter().position(|known| *known == name)?;
        Some(match index {
            // By index in NAMES. All other clocks count nanoseconds, and are equal on this machine.
            2 => TraceClock::Counter,
            3 => TraceClock::Uptime,
            9 => TraceClock::Tsc,
            index => TraceClock::Nanoseconds(index as u8),
        })
    }

    pub(crate) fn index(self) -> usize {
        match self {
            TraceClock::Nanoseconds(index) => index as usize,
            TraceClock::Counter => 2,
            TraceClock::Uptime => 3,
            TraceClock::Tsc => 9,
        }
    }

    /// Returns whether the clock's stamps are nanoseconds.
    pub(crate) fn is_time(self) -> bool {
        matches!(self, TraceClock::Nanoseconds(_))
    }
}

/// Options that some program looks for; only `overwrite` and `irq-info` have an effect here.
pub(crate) const OPTIONS: [&str; 12] = [
    "annotate",
    "context-info",
    "event-fork",
    "irq-info",
    "latency-format",
    "markers",
    "overwrite",
    "pause-on-trace",
    "record-cmd",
    "record-tgid",
    "stacktrace",
    "trace_printk",
];
const IRQ_INFO: usize = 3;
const OVERWRITE: usize = 6;
/// Options that are on at boot: annotate, context-info, irq-info, markers, overwrite, record-cmd,
/// trace_printk.
const OPTIONS_AT_BOOT: u32 = 0b1001_0110_1011;

/// A set of buffers with its switches.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) on: bool,
    /// Enabled events as a mask of [`Kind::bit`].
    pub(crate) enabled: u32,
    pub(crate) clock: TraceClock,
    count: u64,
    /// Size of each CPU's buffer in KiB.
    pub(crate) size_kib: u64,
    /// True once the buffers have been used or resized.
    pub(crate) expanded: bool,
    pub(crate) options: u32,
    pub(crate) percent: u32,
    /// CPUs that do not record.
    pub(crate) masked: Vec<bool>,
    pub(crate) rings: Vec<Ring>,
}

/// Size of the trace buffers at boot, KiB per CPU.
const DEFAULT_KIB: u64 = 1408;

impl Instance {
    pub(crate) fn new(name: &str, cpus: usize) -> Instance {
        Instance {
            name: name.to_owned(),
            on: true,
            enabled: 0,
            clock: TraceClock::Nanoseconds(0),
            count: 0,
            size_kib: DEFAULT_KIB,
            // A new instance has full buffers. tracefs itself gets them at its first use
            // (tracing_update_buffers()).
            expanded: !name.is_empty(),
            options: OPTIONS_AT_BOOT,
            percent: 50,
            masked: vec![false; cpus],
            rings: (0..cpus).map(|_| Ring::new(DEFAULT_KIB)).collect(),
        }
    }

    pub(crate) fn option(&self, index: usize) -> bool {
        self.options >> index & 1 == 1
    }

    pub(crate) fn set_option(&mut self, index: usize, on: bool) {
        self.options = self.options & !(1 << index) | u32::from(on) << index;
    }

    /// Enables or disables events.
    pub(crate) fn enable(&mut self, kinds: impl Iterator<Item = Kind>, on: bool) {
        let bits = kinds.fold(0, |bits, kind| bits | kind.bit());
        if on { self.enabled |= bits } else { self.enabled &= !bits }
    }

    /// Converts a time to this instance's clock.
    fn stamp(&mut self, now: u64, tick_us: u64, tsc_khz: u32) -> u64 {
        match self.clock {
            TraceClock::Nanoseconds(_) => now,
            TraceClock::Counter => {
                self.count += 1;
                self.count
            }
            // trace_clock_jiffies().
            TraceClock::Uptime => now / (tick_us.max(1) * 1000),
            // 128 bits: after days, nanoseconds times kHz overflow 64 bits.
            TraceClock::Tsc => (u128::from(now) * u128::from(tsc_khz) / 1_000_000) as u64,
        }
    }

    pub(crate) fn clear(&mut self) {
        for ring in &mut self.rings {
            ring.clear();
        }
    }

    pub(crate) fn resize(&mut self, kib: u64) {
        self.size_kib = kib;
        self.expanded = true;
        for ring in &mut self.rings {
            ring.resize(kib);
        }
    }
}

/// The machine's tracing.
#[derive(Debug)]
pub(crate) struct Tracer {
    pub(crate) kernel: Kernel,
    /// Index 0 is tracefs itself; the others are directories in instances/. A removed instance
    /// leaves a gap.
    pub(crate) instances: Vec<Option<Instance>>,
    /// Events that at least one instance has enabled.
    enabled: u32,
    /// The context that currently hits tracepoints.
    pub(crate) context: Context,
    /// True for CPUs that the workload kept busy in the last step.
    pub(crate) running: Vec<bool>,
    /// Name of the workload's tasks.
    task: String,
    /// Names of processes with records in a buffer.
    pub(crate) names: BTreeMap<i32, String>,
    /// Counters at the last sample: MPERF, APERF, TSC.
    seen: Vec<[u64; 3]>,
    /// Idle state of each CPU at the end of the last step, if it was in its idle loop.
    idling: Vec<Option<u32>>,
    tick_us: u64,
    tsc_khz: u32,
}

/// CPU time of a record, 250 ns (measured on a real kernel). It keeps timestamps distinct.
const RECORD_NS: u64 = 250;

impl Tracer {
    pub(crate) fn new(kernel: Kernel, cpus: u32, tick_us: u64, tsc_khz: u32) -> Tracer {
        let cpus = cpus as usize;
        Tracer {
            kernel,
            instances: vec![Some(Instance::new("", cpus))],
            enabled: 0,
            context: Context::Writer,
            running: vec![false; cpus],
            task: "work".to_owned(),
            names: BTreeMap::new(),
            seen: vec![[0; 3]; cpus],
            idling: vec![None; cpus],
            tick_us,
            tsc_khz,
        }
    }

    /// Returns whether some instance records this event.
    pub(crate) fn is_enabled(&self, kind: Kind) -> bool {
        self.enabled & kind.bit() != 0
    }

    /// Returns whether any event is recorded.
    pub(crate) fn is_any_enabled(&self) -> bool {
        self.enabled != 0
    }

    /// Sets the name of the current workload's tasks.
    pub(crate) fn set_task(&mut self, name: &str) {
        // TASK_COMM_LEN minus the final zero.
        self.task = name.chars().take(15).collect();
    }

    /// Updates the common state after switches of instances have changed.
    pub(crate) fn review(&mut self, chip: &Chip) {
        let before = self.enabled;
        self.enabled = 0;
        for instance in self.instances.iter_mut().flatten() {
            // Enabling an event makes the kernel allocate full buffers (tracing_update_buffers).
            if instance.enabled != 0 {
                instance.expanded = true;
            }
            if instance.on {
                self.enabled |= instance.enabled;
            }
        }
        if self.enabled & !before & Kind::PstateSample.bit() != 0 {
            // intel_pstate samples even without tracing, so start from the current counters.
            for cpu in 0..self.seen.len() {
                self.seen[cpu] = counters(chip, cpu as u32);
            }
        }
        // Nothing watches idle states now: the next reader must not see an exit without its entry.
        if self.enabled & Kind::CpuIdle.bit() == 0 {
            self.idling.fill(None);
        }
    }

    /// Records an event on a CPU, in the instances that have enabled it.
    pub(crate) fn emit(&mut self, now: u64, cpu: u32, event: Event) {
        if self.is_enabled(event.kind()) {
            self.record(now, cpu, self.context, event);
        }
    }

    pub(crate) fn record(&mut self, now: u64, cpu: u32, context: Context, event: Event) {
        let busy = self.running.get(cpu as usize).copied().unwrap_or(false);
        let number = cpu as i32;
        let (pid, flags, preempt) = match context {
            Context::Writer => (WRITER, 0, 0),
            Context::Worker => (THREADS + 2 * number, 0, 0),
            Context::Sugov => (THREADS + 2 * number + 1, 0, 0),
            Context::Tick if busy => (TASKS + number, IRQS_OFF | HARD_IRQ, 1),
            Context::Tick => (0, IRQS_OFF | HARD_IRQ, 1),
            Context::Idle => (0, IRQS_OFF, 1),
        };
        // As in tracing_record_cmdline(): names are looked up by process number when the trace is
        // read.
        if pid != 0 && !self.names.contains_key(&pid) {
            let name = match context {
                Context::Worker => format!("kworker/{cpu}:1"),
                Context::Sugov => format!("sugov:{cpu}"),
                Context::Tick => self.task.clone(),
                Context::Writer | Context::Idle => "sh".to_owned(),
            };
            self.names.insert(pid, name);
        }
        let (kernel, tick_us, tsc_khz) = (self.kernel, self.tick_us, self.tsc_khz);
        let bit = event.kind().bit();
        for instance in self.instances.iter_mut().flatten() {
            let masked = instance.masked.get(cpu as usize).copied().unwrap_or(true);
            // Writes to a marker are not an event that can be disabled.
            if !instance.on || masked || (instance.enabled & bit == 0 && bit != Kind::Print.bit()) {
                continue;
            }
            let stamp = instance.stamp(now, tick_us, tsc_khz);
            let overwrite = instance.option(OVERWRITE);
            // Only clocks in nanoseconds can be shifted by a record's duration.
            let step = if instance.clock.is_time() { RECORD_NS } else { 0 };
            if let Some(ring) = instance.rings.get_mut(cpu as usize) {
                let stamp = ring.after(stamp, step);
                let record = Record { stamp, pid, flags, preempt, event: event.clone() };
                let size = record.event.size(kernel);
                ring.push(record, size, overwrite);
            }
        }
    }

    /// Increments of MPERF, APERF and TSC since the last sample; `None` if MPERF or TSC has not
    /// moved.
    pub(crate) fn sample(&mut self, chip: &Chip, cpu: u32) -> Option<[u64; 3]> {
        let now = counters(chip, cpu);
        let seen = self.seen.get_mut(cpu as usize)?;
        if now[0] == seen[0] || now[2] == seen[2] {
            return None;
        }
        let before = std::mem::replace(seen, now);
        // A program may have written the counters.
        Some([0, 1, 2].map(|n| now[n].wrapping_sub(before[n])))
    }

    /// The frequency of a sample, kHz.
    pub(crate) fn khz(&self, [mperf, aperf, _]: [u64; 3]) -> u64 {
        (u128::from(aperf) * u128::from(self.tsc_khz) / u128::from(mperf.max(1))) as u64
    }

    /// Records the idle loop's entries and exits in a step that ended at `now`: `busy` nanoseconds
    /// of work after `wakes` wakeups from `state`, at equal intervals.
    pub(crate) fn idle_step(&mut self, now: u64, span: u64, cpu: u32, state: u32, busy: u64, wakes: u16) {
        const EXIT: u32 = u32::MAX;
        if !self.is_enabled(Kind::CpuIdle) {
            return;
        }
        let number = cpu as usize;
        let start = now - span;
        let was = self.idling[number];
        let mut go = |at: u64, state: u32| {
            self.record(at, cpu, Context::Idle, Event::CpuIdle { state, cpu });
        };
        self.idling[number] = if busy == 0 {
            // Only a change of state produces an event.
            if was != Some(state) {
                if was.is_some() {
                    go(start, EXIT);
                }
                go(start + RECORD_NS, state);
            }
            Some(state)
        } else if busy >= span {
            if was.is_some() {
                go(start, EXIT);
            }
            None
        } else {
            // Only the total work and the number of wakeups in the step are known, so assume equal
            // turns.
            let turns = u64::from(wakes.max(1));
            let (each, work) = (span / turns, (busy / turns).max(1));
            for turn in 0..turns {
                let at = start + turn * each;
                if turn > 0 || was.is_some() {
                    go(at, EXIT);
                }
                go(at + work.min(each.saturating_sub(1)), state);
            }
            Some(state)
        };
    }
}

fn counters(chip: &Chip, cpu: u32) -> [u64; 3] {
    [MPERF, APERF, TSC].map(|register| chip.read(cpu, register).unwrap_or(0))
}
