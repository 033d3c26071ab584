//! Tests every diagnosis with a pair of traces: one that has the problem, and a similar one that
//! does not.

use std::collections::BTreeSet;

use super::{Diagnoser, Finding, FindingKind, Limits, Severity};
use crate::{
    Clock,
    comm::Comm,
    events::{
        AmdPerf, Cooling, Event, FrequencyLimits, Idle, IntelSample, Pressure, Switch, Temperature, Trip,
    },
    record::Record,
};

/// The behavior of a CPU in one sample.
#[derive(Debug, Clone, Copy)]
struct Now {
    des: u32,
    min: u32,
    max: u32,
    ghz: f64,
    load: f64,
}

const BUSY: Now = Now { des: 200, min: 15, max: 200, ghz: 4.0, load: 0.95 };
const CALM: Now = Now { des: 50, min: 15, max: 200, ghz: 1.0, load: 0.3 };

fn record(time_ms: u64, cpu: u32, event: Event) -> Record {
    Record {
        time: 1_000_000_000 + time_ms * 1_000_000,
        cpu,
        pid: 1,
        comm: Comm::default(),
        flags: 0,
        preempt: 0,
        event,
    }
}

fn request(ms: u64, cpu: u32, now: Now) -> Record {
    let tsc = 15_000_000u64;
    let mperf = (tsc as f64 * now.load) as u64;
    let event = AmdPerf {
        min: now.min,
        des: now.des,
        max: now.max,
        cpu,
        khz: (now.ghz * 1e6) as u64,
        mperf,
        aperf: (mperf as f64 * now.ghz / 3.0) as u64,
        tsc,
        changed: None,
        fast_switch: true,
    };
    record(ms, cpu, Event::AmdPerf(event))
}

fn sample(ms: u64, cpu: u32, to: u32, ghz: f64, load: f64, passed_ms: u64) -> Record {
    let tsc = passed_ms * 3_000_000;
    let mperf = (tsc as f64 * load) as u64;
    let event = IntelSample {
        core_busy: 90,
        scaled_busy: 5,
        from: to,
        to,
        mperf,
        aperf: (mperf as f64 * ghz / 3.0) as u64,
        tsc,
        khz: (ghz * 1e6) as u32,
        io_boost: 0,
    };
    record(ms, cpu, Event::Intel(event))
}

/// Requests of CPU 0 every 5 ms for six seconds.
fn requests(at: impl Fn(u64) -> Now) -> Vec<Record> {
    (0..6_000).step_by(5).map(|ms| request(ms, 0, at(ms))).collect()
}

fn usual(ms: u64) -> Now {
    if (ms / 700).is_multiple_of(2) { BUSY } else { CALM }
}

fn findings(mut records: Vec<Record>) -> Vec<Finding> {
    records.sort_by_key(|record| record.time);
    let mut diagnoser = Diagnoser::new(Limits::default(), vec![(0, 1)]);
    for record in &records {
        diagnoser.add(record);
    }
    diagnoser.findings(Clock::Mono)
}

#[track_caller]
fn pair(kind: FindingKind, shows: Vec<Record>, does_not: Vec<Record>) {
    let kinds = |found: &[Finding]| found.iter().map(|finding| finding.kind).collect::<BTreeSet<_>>();
    let (with, without) = (findings(shows), findings(does_not));
    assert!(kinds(&with).contains(&kind), "not found: {with:#?}");
    assert_eq!(kinds(&without), BTreeSet::new(), "found where there is nothing: {without:#?}");
}

#[test]
fn stuck_at_the_lowest_frequency() {
    let low = |load: f64| move |ms: u64| if ms < 2_000 { usual(ms) } else { Now { load, ..CALM } };
    pair(FindingKind::StuckLow, requests(low(0.95)), requests(low(0.5)));
}

#[test]
fn stuck_at_the_highest_request() {
    let high = |load: f64| move |ms: u64| if ms < 2_000 { usual(ms) } else { Now { load, ghz: 4.0, ..BUSY } };
    pair(FindingKind::StuckHigh, requests(high(0.02)), requests(high(0.4)));
    // A minimum that equals the maximum leaves no choice: a setting, not a decision.
    let pinned = requests(|_| Now { min: 200, load: 0.02, ..BUSY });
    assert!(findings(pinned).is_empty());
}

#[test]
fn requests_that_are_ignored() {
    let got =
        |ghz: f64| move |ms: u64| if (3_000..4_000).contains(&ms) { Now { ghz, ..BUSY } } else { usual(ms) };
    pair(FindingKind::Ignored, requests(got(2.2)), requests(got(3.6)));
}

#[test]
fn limits_that_clip() {
    let cut = |max: u32| {
        move |ms: u64| {
            let ghz = f64::from(max) / 50.0;
            if ms < 3_000 { usual(ms) } else { Now { des: max, max, ghz, load: 0.95, ..BUSY } }
        }
    };
    pair(FindingKind::Clipped, requests(cut(120)), requests(cut(195)));
    let limits =
        |ms, max_khz| record(ms, 0, Event::Limits(FrequencyLimits { cpu: 0, min_khz: 400_000, max_khz }));
    let with = |second: Record| [requests(usual), vec![limits(0, 4_000_000), second]].concat();
    pair(FindingKind::Clipped, with(limits(2_000, 2_000_000)), with(limits(2_000, 3_900_000)));
    // The limit is restored too soon to matter.
    let short = [with(limits(2_000, 2_000_000)), vec![limits(2_200, 4_000_000)]].concat();
    assert!(findings(short).is_empty());
}

#[test]
fn heat_and_power_limits() {
    let with = |event| [requests(usual), vec![record(2_000, 0, event)]].concat();
    let cooling = |target| with(Event::Cooling(Cooling { device: Comm::new(b"Processor"), target }));
    pair(FindingKind::Throttled, cooling(3), cooling(0));
    let pressure = |lost| with(Event::Pressure(Pressure { cpu: 0, lost }));
    pair(FindingKind::Throttled, pressure(300), pressure(0));
    let trip = with(Event::Trip(Trip { trip: 1, ..Trip::default() }));
    let zone = Temperature { temperature: 71_000, ..Temperature::default() };
    pair(FindingKind::Throttled, trip, with(Event::Temperature(zone)));
}

/// A thermal zone's governor reports a trip point at each poll; a minute of that must not use up
/// the space for findings.
#[test]
fn heat_that_lasts_is_one_finding() {
    let trip = |ms| record(ms, 0, Event::Trip(Trip { trip: 1, ..Trip::default() }));
    let device = Comm::new(b"Processor");
    let cooling = |ms| record(ms, 0, Event::Cooling(Cooling { device, target: 3 }));
    let polls = (1_000..5_000).step_by(2).flat_map(|ms| [trip(ms), cooling(ms + 1)]);
    // Much later: a separate occurrence.
    let found = findings(polls.chain([trip(9_000)]).collect());
    let times = |what: &str| -> Vec<(f64, f64)> {
        let of = found.iter().filter(|one| one.kind == FindingKind::Throttled && one.what.contains(what));
        of.map(|finding| (finding.from, finding.to)).collect()
    };
    assert_eq!(times("trip point").len(), 2, "{found:#?}");
    assert_eq!(times("cooling device").len(), 1, "{found:#?}");
    assert!(times("trip point").iter().any(|(from, to)| to - from > 3.9), "{found:#?}");
}

#[test]
fn a_governor_that_hunts() {
    let turns = |every: u64| {
        move |ms: u64| {
            let up = (ms / every).is_multiple_of(2);
            let (des, ghz) = if up { (60, 1.2) } else { (180, 3.6) };
            Now { des, ghz, load: 0.5, ..BUSY }
        }
    };
    pair(FindingKind::Hunting, requests(turns(5)), requests(turns(150)));
}

#[test]
fn boost_that_is_never_reached() {
    let at = |ghz: f64| move |_| Now { ghz, ..BUSY };
    // Nominal is 3 GHz.
    pair(FindingKind::NoBoost, requests(at(3.0)), requests(at(3.3)));
}

#[test]
fn a_cpu_whose_decisions_stop() {
    let with = |until: u64| {
        let other = (0..until).step_by(5).map(|ms| request(ms, 1, usual(ms)));
        [requests(usual), other.collect()].concat()
    };
    pair(FindingKind::Stopped, with(3_000), with(5_600));
    // A CPU that is known to sleep has nothing to decide.
    let asleep = Event::Idle(Idle { cpu: 1, state: 2 });
    assert!(findings([with(3_000), vec![record(3_001, 1, asleep)]].concat()).is_empty());
}

#[test]
fn siblings_that_disagree() {
    let with = |other: Now| {
        let second = (0..6_000).step_by(5).map(|ms| request(ms, 1, other));
        [requests(|_| BUSY), second.collect()].concat()
    };
    let slow = Now { des: 60, ghz: 4.0, load: 0.5, ..BUSY };
    let found = findings(with(slow));
    assert!(
        found
            .iter()
            .any(|finding| finding.kind == FindingKind::SiblingsDisagree && finding.other_cpu == Some(1)),
        "{found:#?}"
    );
    // A sleeping CPU makes no requests.
    let idle = findings(with(Now { load: 0.05, ..slow }));
    assert!(!idle.iter().any(|finding| finding.kind == FindingKind::SiblingsDisagree), "{idle:#?}");
}

#[test]
fn lost_records() {
    let lost = record(2_000, 0, Event::Lost(Some(9)));
    pair(FindingKind::Lost, [requests(usual), vec![lost]].concat(), requests(usual));
}

/// intel_pstate in active mode without HWP decides in a callback of the scheduler. On a nohz_full
/// CPU, a task that never leaves user space prevents ticks and thus the callback: the CPU stays at
/// its current P-state, usually the lowest.
fn nohz_full(end_ms: u64, load: f64) -> Vec<Record> {
    let mut records: Vec<Record> = (0..6_000).step_by(10).map(|ms| sample(ms, 0, 35, 3.5, 0.9, 10)).collect();
    records.extend((0..1_000).step_by(10).map(|ms| sample(ms, 4, 8, 0.8, 0.1, 10)));
    records.push(sample(end_ms, 4, 8, 0.8, load, end_ms - 990));
    records
}

#[test]
fn the_callback_that_never_ran_on_a_nohz_full_cpu() {
    let found = findings(nohz_full(5_500, 0.999));
    let fault = found.iter().find(|finding| finding.kind == FindingKind::NoDecisions).expect("it is found");
    assert_eq!((fault.severity, fault.cpu), (Severity::Fault, Some(4)));
    assert!((fault.from - 1.99).abs() < 0.01 && (fault.to - 6.5).abs() < 0.01, "{fault:?}");
    for words in ["no decision for 4.51 s at 100 % load", "0.80 GHz"] {
        assert!(fault.what.contains(words), "{fault:?}");
    }
    assert!(fault.remedy.contains("nohz_full"), "{fault:?}");
    // Equal silence on a sleeping CPU is normal.
    let calm = findings(nohz_full(5_500, 0.01));
    assert!(!calm.iter().any(|finding| finding.kind == FindingKind::NoDecisions), "{calm:#?}");
    // If the trace ends before the next sample, the task switch shows it.
    let mut cut = nohz_full(5_500, 0.999);
    cut.retain(|record| record.cpu != 4 || record.time < 6_000_000_000);
    let spinner = Switch { next_pid: 4711, ..Switch::default() };
    let known = [cut.clone(), vec![record(995, 4, Event::Switch(spinner))]].concat();
    let found = findings(known);
    let fault = found.iter().find(|finding| finding.kind == FindingKind::NoDecisions).expect("it is found");
    assert!(fault.what.contains("while task 4711 ran"), "{fault:?}");
    // Without the task switch, the only finding is that decisions stopped.
    assert!(
        findings(cut).iter().any(|finding| finding.kind == FindingKind::Stopped && finding.cpu == Some(4))
    );
}

fn with_isolation(records: &[Record], command_line: &str) -> Vec<Finding> {
    let isolation =
        crate::Isolation::parse(command_line, flyball_host::isolation::LastCpu { cpu: 7, is_exact: true });
    let mut sorted = records.to_vec();
    sorted.sort_by_key(|record| record.time);
    let mut diagnoser = Diagnoser::new(Limits::default(), Vec::new()).with_isolation(isolation);
    for record in &sorted {
        diagnoser.add(record);
    }
    diagnoser.findings(Clock::Mono)
}

#[test]
fn the_kernels_command_line_is_evidence() {
    let silence = nohz_full(5_500, 0.999);
    let fault = |command_line: &str| {
        let found = with_isolation(&silence, command_line);
        let fault = found.iter().find(|finding| finding.kind == FindingKind::NoDecisions);
        fault.expect("it is found").clone()
    };
    let known = fault("ro isolcpus=4 nohz_full=4");
    assert!(known.evidence[0].contains("without a tick (isolcpus=4 nohz_full=4)"), "{known:?}");
    assert!(known.remedy.contains("nohz_full"), "{known:?}");
    // If the kernel ticks there, equal silence has another cause.
    let other = fault("ro nohz_full=2");
    assert!(other.evidence[0].contains("the kernel ticks on CPU 4"), "{other:?}");
    assert!(!other.remedy.contains("nohz_full"), "{other:?}");
    let bare = fault("ro quiet");
    assert!(bare.evidence[0].contains("(no nohz_full)"), "{bare:?}");
}

#[test]
fn a_tickless_cpu_without_any_decision() {
    let others = requests(usual);
    let kinds = |records: &[Record]| -> Vec<(FindingKind, Severity)> {
        let found = with_isolation(records, "nohz_full=3");
        found.iter().map(|finding| (finding.kind, finding.severity)).collect()
    };
    // Nothing is known about it: worth a look, but no fault.
    assert_eq!(kinds(&others), [(FindingKind::Unexplained, Severity::Note)]);
    let switch = |ms, next_pid| record(ms, 3, Event::Switch(Switch { next_pid, ..Switch::default() }));
    let spins = [others.clone(), vec![switch(1_000, 4711)]].concat();
    assert_eq!(kinds(&spins), [(FindingKind::NoDecisions, Severity::Fault)]);
    let sleeps = [others.clone(), vec![switch(1_000, 4711), switch(1_100, 0)]].concat();
    assert_eq!(kinds(&sleeps), []);
    let decides = [others, (0..6_000).step_by(5).map(|ms| request(ms, 3, usual(ms))).collect()].concat();
    assert_eq!(kinds(&decides), []);
    // A driver that never decides in a callback gives no finding.
    assert_eq!(kinds(&[switch(1_000, 4711), switch(5_000, 4711)]), []);
}

#[test]
fn thermal_interrupts_are_known_by_name() {
    let names = std::sync::Arc::new(crate::Names::default());
    let [interrupt, limit, other] =
        ["thermal_apic_entry", "thermal_power_cpu_limit", "local_timer_entry"].map(|name| names.intern(name));
    let mut diagnoser = Diagnoser::new(Limits::default(), Vec::new()).with_names(names);
    for ms in 0..100 {
        diagnoser.add(&record(ms, 1, Event::Other(other)));
        if ms % 10 == 0 {
            diagnoser.add(&record(ms, 3, Event::Other(interrupt)));
        }
    }
    // Events more than a second apart, or on another CPU, are separate.
    diagnoser.add(&record(5_000, 3, Event::Other(interrupt)));
    diagnoser.add(&record(5_000, 4, Event::Other(limit)));
    let found: Vec<(Option<u32>, String, f64)> = diagnoser
        .findings(Clock::Mono)
        .into_iter()
        .map(|found| {
            assert_eq!((found.kind, found.severity), (FindingKind::Throttled, Severity::Warning));
            (found.cpu, found.what, ((found.to - found.from) * 1e3).round())
        })
        .collect();
    let fired = "its thermal interrupt fired: a limit of heat or power was reached or left";
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.contains(&(Some(3), format!("{fired} (10 times)"), 90.0)), "{found:?}");
    assert!(found.contains(&(Some(3), fired.to_owned(), 0.0)), "{found:?}");
    assert!(
        found.iter().any(|(cpu, what, _)| cpu.is_none() && what.contains("thermal governor")),
        "{found:?}"
    );
}

#[test]
fn levels_that_no_driver_asks_for_are_no_overflow() {
    let mut diagnoser = Diagnoser::new(Limits::default(), Vec::new());
    for (ms, des) in [(0, 1), (5, u32::MAX), (10, 0), (15, u32::MAX)] {
        let event = crate::AmdPerf { des, cpu: 0, tsc: 2, mperf: 1, khz: 1, ..crate::AmdPerf::default() };
        diagnoser.add(&record(ms, 0, Event::AmdPerf(event)));
    }
    let _ = diagnoser.findings(Clock::Mono);
}
