//! Turns records into a report, in one pass and bounded memory.

use std::collections::{BTreeMap, HashMap};

use crate::{
    clock::Clock,
    event_names::{NameId, Names},
    events::{Event, TABLE},
    record::{MAX_CPUS, Record},
};

use super::{
    cpu::CpuReport,
    meter::CpuMeter,
    range::load,
    task::{TaskMeters, TaskReport},
};

/// How often an event occurred.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct EventCount {
    pub name: String,
    pub count: u64,
}

/// Records lost on one CPU, as reported by the trace itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct Loss {
    pub cpu: u32,
    /// Number of lost records, as far as known.
    pub records: u64,
    /// Number of points at which records were lost.
    pub places: u64,
}

/// A trace in numbers.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct Report {
    /// The driver, by its events: `amd-pstate`, `amd-pstate-epp`, `intel_pstate`; absent without
    /// any.
    pub driver: Option<&'static str>,
    /// The clock of the times.
    pub clock: Clock,
    /// Time of the first record, seconds (or ticks).
    pub start: f64,
    /// Time from the first record to the last, seconds (or ticks).
    pub duration: f64,
    /// Number of records, excluding lost ones.
    pub records: u64,
    /// Records by event, the most frequent first.
    pub events: Vec<EventCount>,
    /// Records of known events with unreadable fields: values that no kernel writes, or an unknown
    /// layout. They are in none of the numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<EventCount>,
    /// Where records were lost.
    pub losses: Vec<Loss>,
    /// Number of records with an impossible CPU.
    #[serde(skip_serializing_if = "is_zero")]
    pub impossible_cpus: u64,
    /// The CPUs that have requests, samples, frequency or idle events.
    pub cpus: Vec<CpuReport>,
    /// The tasks that had requests, the one with the most first.
    pub tasks: Vec<TaskReport>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Sums up records.
#[derive(Debug, Default)]
pub struct Analyser {
    first: Option<u64>,
    last: u64,
    records: u64,
    /// How often each event of the table occurred.
    counts: [u64; TABLE.len()],
    others: HashMap<NameId, u64>,
    losses: BTreeMap<u32, (u64, u64)>,
    impossible: u64,
    cpus: Vec<Option<CpuMeter>>,
    tasks: TaskMeters,
    /// True if there were requests of the passive modes.
    passive: bool,
}

impl Analyser {
    /// Creates an empty analyser.
    pub fn new() -> Analyser {
        Analyser::default()
    }

    #[inline]
    fn cpu(&mut self, cpu: u32) -> Option<&mut CpuMeter> {
        if cpu >= MAX_CPUS {
            self.impossible += 1;
            return None;
        }
        let cpu = cpu as usize;
        if self.cpus.len() <= cpu {
            // At most MAX_CPUS entries: a damaged number costs no memory.
            self.cpus.resize_with(cpu + 1, || None);
        }
        Some(self.cpus[cpu].get_or_insert_default())
    }

    /// Adds some records, like several calls of [`Analyser::add`].
    pub fn add_all(&mut self, records: &[Record]) {
        for record in records {
            self.add(record);
        }
    }

    /// Counts a record, and the time that the trace covers.
    #[inline]
    fn passed(&mut self, time: u64) {
        // Not always the first record: with the local clock CPUs differ, and trace_pipe merges only
        // what it has read so far.
        let first = self.first.get_or_insert(time);
        *first = (*first).min(time);
        self.last = self.last.max(time);
        self.records += 1;
    }

    /// Adds one record. A CPU's records must come in chronological order.
    #[inline]
    pub fn add(&mut self, record: &Record) {
        if let Event::Lost(count) = record.event {
            // The number comes from a line of text, which may be damaged.
            if record.cpu < MAX_CPUS {
                let loss = self.losses.entry(record.cpu).or_default();
                loss.0 = loss.0.saturating_add(count.unwrap_or(0));
                loss.1 += 1;
                // Without an earlier record of the CPU, the loss interrupts nothing.
                if let Some(Some(cpu)) = self.cpus.get_mut(record.cpu as usize) {
                    cpu.lost();
                }
            }
            return;
        }
        self.passed(record.time);
        let (time, pid, comm) = (record.time, record.pid, record.comm);
        if let Some(row) = record.event.row() {
            // An array by row instead of a map by name, because this runs for every record.
            self.counts[row] += 1;
        }
        match &record.event {
            Event::AmdPerf(event) => {
                self.passive = true;
                let load = load(event.mperf, event.tsc);
                // By the CPU of the request: any CPU of a shared policy may set it.
                let known = self.cpu(event.cpu).is_some_and(|cpu| cpu.amd(time, event, load));
                self.tasks.add(pid, comm, Some(event.des), known.then_some((event.khz, load)));
            }
            Event::Intel(event) => {
                let load = load(event.mperf, event.tsc);
                let known = self.cpu(record.cpu).is_some_and(|cpu| cpu.intel(time, event, load));
                self.tasks.add(pid, comm, Some(event.to), known.then_some((u64::from(event.khz), load)));
            }
            Event::AmdRequest(event) => {
                self.passive = true;
                if let Some(cpu) = self.cpu(event.cpu) {
                    cpu.amd_request(time, event);
                }
                self.tasks.add(pid, comm, Some(event.des), None);
            }
            Event::AmdEpp(event) => {
                if let Some(cpu) = self.cpu(event.cpu) {
                    cpu.amd_epp(time, event);
                }
                // The passive modes report this request with amd_pstate_perf too.
                if !self.passive {
                    self.tasks.add(pid, comm, None, None);
                }
            }
            Event::Frequency(event) => {
                if let Some(cpu) = self.cpu(event.cpu) {
                    cpu.sums().frequency_events += 1;
                }
            }
            Event::Limits(event) => {
                if let Some(cpu) = self.cpu(event.cpu) {
                    cpu.sums().limits_events += 1;
                }
            }
            Event::Idle(event) => {
                if let Some(cpu) = self.cpu(event.cpu) {
                    cpu.sums().idle(time, event.state);
                }
            }
            Event::Other(name) => *self.others.entry(*name).or_default() += 1,
            // Counted above; no other use is made of them.
            Event::AmdReq2(_)
            | Event::IdleMiss(_)
            | Event::Switch(_)
            | Event::Temperature(_)
            | Event::Trip(_)
            | Event::Cooling(_)
            | Event::Pressure(_)
            | Event::ThermalPressure(_)
            | Event::Throttle(_)
            | Event::Lost(_) => {}
        }
    }

    /// Returns the report. `names` are those of the trace's passed-through events.
    pub fn report(&self, clock: Clock, names: &Names) -> Report {
        let unit = if clock.nanoseconds() { 1e9 } else { 1.0 };
        let first = self.first.unwrap_or(0);
        let (mut unread, others): (Vec<EventCount>, Vec<EventCount>) = self
            .others
            .iter()
            .map(|(id, count)| EventCount { name: names.name(*id), count: *count })
            // A name in the table whose event was passed through lacked fields, or had values that
            // do not fit.
            .partition(|event| TABLE.iter().any(|row| row.name == event.name));
        unread.sort_by(|a, b| a.name.cmp(&b.name));
        let mut events: Vec<EventCount> = TABLE
            .iter()
            .zip(self.counts)
            .map(|(row, count)| EventCount { name: row.name.to_owned(), count })
            .chain(others)
            .filter(|event| event.count > 0)
            .collect();
        events.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        Report {
            // The first row in the table that occurred: passive modes come before the active one
            // (see ActiveMeter).
            driver: TABLE.iter().zip(self.counts).find_map(|(row, count)| row.driver.filter(|_| count > 0)),
            clock,
            start: first as f64 / unit,
            duration: self.last.saturating_sub(first) as f64 / unit,
            records: self.records,
            events,
            unread,
            losses: self
                .losses
                .iter()
                .map(|(cpu, (records, places))| Loss { cpu: *cpu, records: *records, places: *places })
                .collect(),
            impossible_cpus: self.impossible,
            cpus: self
                .cpus
                .iter()
                .enumerate()
                .filter_map(|(cpu, meter)| Some(meter.as_ref()?.report(cpu as u32, clock, self.last)))
                .collect(),
            tasks: self.tasks.report(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        comm::Comm,
        events::{AmdPerf, Frequency, Idle, IntelSample},
        report::Range,
    };

    fn record(time: u64, cpu: u32, event: Event) -> Record {
        Record { time, cpu, pid: 7, comm: Comm::new(b"job[12]"), flags: 0, preempt: 0, event }
    }

    #[test]
    fn one_cpu_in_numbers() {
        let mut analyser = Analyser::new();
        for (time, des, mperf, khz) in
            [(1_000, 100, 50, 2_000_000), (1_001, 200, 100, 3_000_000), (1_004, 100, 0, 1_000_000)]
        {
            let event = AmdPerf {
                min: 15,
                des,
                max: 255,
                cpu: 3,
                khz,
                mperf,
                aperf: 0,
                tsc: 100,
                changed: None,
                fast_switch: des == 200,
            };
            analyser.add(&record(time * 1_000_000, 9, Event::AmdPerf(event)));
        }
        analyser.add(&record(0, 9, Event::Lost(Some(5))));
        analyser.add(&record(0, 9, Event::Lost(None)));
        let report = analyser.report(Clock::Local, &Names::default());
        assert_eq!((report.driver, report.records), (Some("amd-pstate"), 3));
        assert!((report.duration - 0.004).abs() < 1e-12 && (report.start - 1.0).abs() < 1e-12);
        assert_eq!(report.losses, [Loss { cpu: 9, records: 5, places: 2 }]);
        let [cpu] = &report.cpus[..] else { panic!("{report:?}") };
        assert_eq!((cpu.cpu, cpu.samples, cpu.decisions), (3, 3, 2));
        assert_eq!(cpu.load, Some(Range { min: 0.0, mean: 50.0, max: 100.0 }));
        assert_eq!(cpu.c0, Some(50.0));
        assert_eq!(cpu.des_perf.unwrap().max, 200.0);
        assert!((cpu.fast_switch.unwrap() - 100.0 / 3.0).abs() < 1e-9);
        assert!((cpu.decisions_per_second.unwrap() - 500.0).abs() < 1e-6);
        assert_eq!((report.tasks[0].name.to_string().as_str(), report.tasks[0].samples), ("job[12]", 3));
    }

    #[test]
    fn batches_add_up_as_single_records_do() {
        // Some thousand requests of 150 CPUs, then some interleaved with another event, then few.
        let mut number = 7u64;
        let mut chance = |limit: u64| {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            number % limit
        };
        let mut records = Vec::new();
        for at in 0..6_000u64 {
            let event = AmdPerf {
                min: 10,
                des: 10 + chance(200) as u32,
                max: 255,
                cpu: chance(150) as u32,
                khz: 400_000 + chance(4_000_000),
                mperf: chance(1_000),
                aperf: chance(1_000),
                tsc: 1_000,
                changed: None,
                fast_switch: chance(2) == 0,
            };
            let mut request = record(at * 1_000, chance(150) as u32, Event::AmdPerf(event));
            request.pid = chance(20) as i32;
            records.push(request);
            if at == 4_000 {
                records.push(record(at * 1_000, 3, Event::Idle(Idle { cpu: 3, state: 1 })));
            }
            if at == 5_900 {
                let impossible = AmdPerf { cpu: u32::MAX, ..event };
                records.push(record(at * 1_000, 3, Event::AmdPerf(impossible)));
            }
        }
        let (mut single, mut batches) = (Analyser::new(), Analyser::new());
        for record in &records {
            single.add(record);
        }
        for batch in records.chunks(700) {
            batches.add_all(batch);
        }
        let names = Names::default();
        let (one, other) = (single.report(Clock::Mono, &names), batches.report(Clock::Mono, &names));
        assert_eq!(one, other);
        assert_eq!((one.records, one.impossible_cpus, one.cpus.len()), (6_002, 1, 150));
    }

    #[test]
    fn requests_reported_twice_count_once() {
        let mut analyser = Analyser::new();
        for time in 0..10u64 {
            let perf = AmdPerf {
                min: 10,
                des: 50 + time as u32,
                max: 200,
                cpu: 1,
                tsc: 10,
                mperf: 5,
                ..AmdPerf::default()
            };
            let epp = crate::events::AmdEpp {
                cpu: 1,
                highest: 255,
                epp: 128,
                min: 1,
                max: 255,
                boost: true,
                changed: true,
            };
            let active = crate::events::AmdEpp { cpu: 2, changed: time % 2 == 0, ..epp };
            analyser.add(&record(time * 1_000_000, 1, Event::AmdEpp(epp)));
            analyser.add(&record(time * 1_000_000, 1, Event::AmdPerf(perf)));
            analyser.add(&record(time * 1_000_000, 2, Event::AmdEpp(active)));
        }
        let report = analyser.report(Clock::Local, &Names::default());
        assert_eq!(report.driver, Some("amd-pstate"));
        let [one, other] = &report.cpus[..] else { panic!("{report:?}") };
        assert_eq!((one.samples, one.decisions, one.max_perf.unwrap().max), (10, 9, 200.0));
        assert_eq!(one.epp.unwrap().mean, 128.0);
        assert_eq!((other.samples, other.decisions, other.max_perf.unwrap().max), (10, 5, 255.0));
        assert_eq!(other.des_perf, None);
    }

    #[test]
    fn counters_from_before_the_trace_are_left_out() {
        let mut analyser = Analyser::new();
        for (time, mperf, tsc) in [(1, 1 << 50, 1 << 51), (2, 90, 100), (3, 70, 100)] {
            let perf = AmdPerf { des: 50, cpu: 0, khz: 1_000_000, mperf, tsc, ..AmdPerf::default() };
            analyser.add(&record(time, 0, Event::AmdPerf(perf)));
        }
        let report = analyser.report(Clock::Local, &Names::default());
        assert_eq!((report.cpus[0].samples, report.cpus[0].c0), (3, Some(80.0)));
        assert_eq!(report.tasks[0].load.unwrap().min, 70.0);
    }

    #[test]
    fn idle_states_are_timed_between_entry_and_exit() {
        let mut analyser = Analyser::new();
        for (time, state) in [(10, u32::MAX), (20, 1), (50, u32::MAX), (60, 2), (70, u32::MAX), (80, 1)] {
            analyser.add(&record(time * 1_000_000_000, 0, Event::Idle(Idle { cpu: 0, state })));
        }
        let report = analyser.report(Clock::Mono, &Names::default());
        let idle: Vec<(u32, u64, f64)> =
            report.cpus[0].idle.iter().map(|idle| (idle.state, idle.entries, idle.seconds)).collect();
        assert_eq!(idle, [(1, 2, 30.0), (2, 1, 10.0)]);
        assert_eq!(report.driver, None);
    }

    #[test]
    fn what_was_lost_is_neither_idle_nor_at_a_level() {
        let mut analyser = Analyser::new();
        let idle = |state| Event::Idle(Idle { cpu: 0, state });
        let perf = |des| Event::AmdPerf(AmdPerf { des, cpu: 0, tsc: 2, mperf: 1, ..AmdPerf::default() });
        // Ten seconds in state 1, then 80 s with lost records, then ten seconds of work and ten in
        // state 2.
        for (time, event) in [
            (0, idle(1)),
            (10, idle(u32::MAX)),
            (10, perf(50)),
            (11, perf(50)),
            (12, idle(1)),
            (92, Event::Lost(Some(500))),
            (92, idle(u32::MAX)),
            (93, perf(60)),
            (95, perf(50)),
            (102, idle(2)),
            (112, Event::Frequency(Frequency { cpu: 1, khz: 1 })),
        ] {
            analyser.add(&record(time * 1_000_000_000, 0, event));
        }
        let report = analyser.report(Clock::Mono, &Names::default());
        let cpu = &report.cpus[0];
        let shares: Vec<(u32, f64, f64)> =
            cpu.idle.iter().map(|idle| (idle.state, idle.seconds, idle.share.unwrap())).collect();
        assert_eq!(shares, [(1, 10.0, 1000.0 / 32.0), (2, 10.0, 1000.0 / 32.0)]);
        assert_eq!(cpu.longest_gap_seconds, Some(2.0));
    }

    #[test]
    fn impossible_cpus_and_endless_tasks_are_bounded() {
        let mut analyser = Analyser::new();
        analyser.add(&record(1, 0, Event::Frequency(Frequency { cpu: u32::MAX, khz: 1 })));
        for pid in 0..100_000 {
            let mut sample = record(2, 0, Event::Intel(IntelSample { tsc: 1, ..IntelSample::default() }));
            sample.pid = pid;
            analyser.add(&sample);
        }
        let report = analyser.report(Clock::Local, &Names::default());
        assert_eq!(report.impossible_cpus, 1);
        assert!(report.tasks.len() < 40_000);
        assert_eq!(report.tasks.iter().map(|task| task.samples).sum::<u64>(), 100_000);
    }
}
