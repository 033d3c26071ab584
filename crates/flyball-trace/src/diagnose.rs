//! Problems in a trace, described in words, with time ranges as evidence.
//!
//! One pass collects a trace into windows of some milliseconds per CPU (wider for longer traces, so
//! that memory is bounded). Judging waits until the end, when the frequencies and levels of the
//! whole trace are known. [`Limits`] holds every threshold with the reason for its value.

mod explain;
mod findings;
mod judge;
#[cfg(test)]
mod tests;
mod windows;

use std::{collections::HashMap, sync::Arc};

use flyball_host::isolation::Isolation;

use crate::{
    clock::Clock,
    event_names::{NameId, Names},
    events::{BY_NAME, Event, NamedRow},
    record::Record,
};

use windows::Windows;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, schemars::JsonSchema, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Costs performance or energy.
    Warning,
    /// Something does not work.
    Fault,
}

/// The kind of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, schemars::JsonSchema, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// Lowest frequency at high load.
    StuckLow,
    /// Highest request without load.
    StuckHigh,
    /// Busy for long without a decision: the driver's callback did not run.
    NoDecisions,
    /// Decisions stopped before the trace did.
    Stopped,
    /// The frequency does not follow the request.
    Ignored,
    /// A limit below the highest one cuts the request.
    Clipped,
    /// A thermal or power event during the trace.
    Throttled,
    /// The request goes up and down all the time.
    Hunting,
    /// Never above nominal frequency, although the maximum was requested.
    NoBoost,
    /// Two CPUs of one core request different performance.
    SiblingsDisagree,
    /// Records were lost: things may have happened that the trace does not show.
    Lost,
    /// A CPU without a tick made no decision, and the trace does not show whether it slept.
    Unexplained,
}

#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
#[schemars(rename = "TraceFinding")]
pub struct Finding {
    pub kind: FindingKind,
    pub severity: Severity,
    /// The CPU; absent for the whole machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// The other CPU, if two disagree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_cpu: Option<u32>,
    /// Start, in seconds on the trace's clock.
    pub from: f64,
    /// End, in seconds on the trace's clock.
    pub to: f64,
    /// A sentence with the numbers.
    pub what: String,
    /// Evidence from outside the trace: the kernel's command line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// Advice: what to look at or do.
    pub remedy: &'static str,
    /// True if records of this CPU were lost in this time, so that the conclusion may be wrong.
    pub uncertain: bool,
}

/// Thresholds of the findings.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Load above which a CPU counts as busy. Governors have their threshold at 80 % or let the
    /// load rise further.
    pub busy: f64,
    /// Load below which a CPU counts as idle.
    pub idle: f64,
    /// Shortest time that counts, seconds: longer than any ramp of a governor.
    pub least: f64,
    /// A request counts as ignored if the frequency is below this share of its usual frequency.
    pub follows: f64,
    /// Number of reversals of the request per second that counts as hunting.
    pub hunting: f64,
    /// Longest time without a decision on a busy CPU, seconds: drivers decide every 1 to 10 ms.
    pub silence: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { busy: 0.8, idle: 0.1, least: 0.5, follows: 0.7, hunting: 20.0, silence: 0.5 }
    }
}

/// A time in which a busy CPU made no decision.
#[derive(Debug, Clone, Copy)]
struct DecisionGap {
    from: u64,
    to: u64,
    load: f64,
    ghz: f64,
}

/// An event that limits a CPU or the machine, or several of one kind in close succession.
#[derive(Debug, Clone)]
struct LimitEvent {
    time: u64,
    end: u64,
    count: u64,
    cpu: Option<u32>,
    what: String,
}

/// Between events that are at most this far apart, the limit is assumed to hold, nanoseconds.
const STILL_HOT: u64 = 1_000_000_000;

/// State of one CPU outside its windows.
#[derive(Debug, Clone, Default)]
struct CpuState {
    last: Option<u64>,
    samples: u64,
    first: u64,
    decision_gaps: Vec<DecisionGap>,
    losses: Vec<u64>,
    lost: u64,
    /// Current limit and its start. `highest_limit` is the highest limit that was set.
    limit: Option<(u32, u64)>,
    highest_limit: u32,
    limits: Vec<(u64, u64, u32)>,
    /// The running task according to task switches: its number (0 for the idle task), and its
    /// start.
    running: Option<(i32, u64)>,
    /// Whether the CPU is idle according to idle events, and since when.
    idle: Option<(bool, u64)>,
}

/// Collects records and judges them.
#[derive(Debug)]
pub struct Diagnoser {
    limits: Limits,
    windows: Windows,
    cpus: Vec<CpuState>,
    first: Option<u64>,
    last: u64,
    limited: Vec<LimitEvent>,
    /// Names of passed-through events. `hot` has the rows of events that report heat.
    names: Arc<Names>,
    hot: HashMap<NameId, Option<&'static NamedRow>>,
    /// Index in `limited` of the last event with this CPU and meaning.
    limited_places: HashMap<(Option<u32>, String), usize>,
    siblings: Vec<(u32, u32)>,
    isolation: Option<Isolation>,
}

/// Maximum number of events, losses and decision gaps of one kind per CPU; a trace can contain any
/// number.
const KEPT: usize = 1000;

impl Diagnoser {
    /// Creates an empty diagnoser. `siblings` are pairs of CPUs that share a core, if known.
    pub fn new(limits: Limits, siblings: Vec<(u32, u32)>) -> Diagnoser {
        Diagnoser {
            limits,
            windows: Windows::default(),
            cpus: Vec::new(),
            first: None,
            last: 0,
            limited: Vec::new(),
            names: Arc::default(),
            hot: HashMap::new(),
            limited_places: HashMap::new(),
            siblings,
            isolation: None,
        }
    }

    /// Adds the names of the trace's passed-through events, because some of them report heat
    /// limits.
    #[must_use]
    pub fn with_names(mut self, names: Arc<Names>) -> Diagnoser {
        self.names = names;
        self
    }

    /// Replaces the known pairs of CPUs that share a core.
    #[must_use]
    pub fn with_siblings(mut self, siblings: Vec<(u32, u32)>) -> Diagnoser {
        self.siblings = siblings;
        self
    }

    /// Adds the CPUs that the kernel isolates, which can explain missing decisions.
    #[must_use]
    pub fn with_isolation(mut self, isolation: Isolation) -> Diagnoser {
        self.isolation = Some(isolation);
        self
    }

    fn cpu(&mut self, cpu: u32) -> Option<&mut CpuState> {
        if cpu >= crate::record::MAX_CPUS {
            return None;
        }
        let cpu = cpu as usize;
        if self.cpus.len() <= cpu {
            self.cpus.resize_with(cpu + 1, CpuState::default);
        }
        self.cpus.get_mut(cpu)
    }

    /// Adds one record, in chronological order.
    pub fn add(&mut self, record: &Record) {
        let time = record.time;
        // A loss does not extend the trace: its time is that of its page or, in text, of a
        // neighbouring line.
        if let Event::Lost(count) = record.event {
            if let Some(cpu) = self.cpu(record.cpu) {
                cpu.lost = cpu.lost.saturating_add(count.unwrap_or(0));
                if cpu.losses.len() < KEPT {
                    cpu.losses.push(time);
                }
            }
            return;
        }
        self.first.get_or_insert(time);
        self.last = self.last.max(time);
        let start = self.first.unwrap_or(time);
        match &record.event {
            // Use `event.cpu`, not the record's CPU: a governor's thread makes requests for other
            // CPUs.
            Event::AmdPerf(event) => {
                if !self.sample(time, event.cpu, event.mperf, event.tsc, event.khz) {
                    return;
                }
                self.windows.add(start, time, event.cpu, event.des, |window| {
                    window.add(
                        event.des,
                        event.min,
                        event.max,
                        event.khz,
                        event.mperf,
                        event.aperf,
                        event.tsc,
                    );
                });
            }
            // pstate_sample has no CPU field: the counters are read on the CPU that they describe.
            Event::Intel(event) => {
                if !self.sample(time, record.cpu, event.mperf, event.tsc, u64::from(event.khz)) {
                    return;
                }
                self.windows.add(start, time, record.cpu, event.to, |window| {
                    window.add(event.to, 0, 0, u64::from(event.khz), event.mperf, event.aperf, event.tsc);
                });
            }
            Event::Limits(event) => self.policy_limit(time, event.cpu, event.max_khz),
            Event::Switch(event) => {
                if let Some(state) = self.cpu(record.cpu) {
                    state.running = Some((event.next_pid, time));
                }
            }
            Event::Idle(event) => {
                // PWR_EVENT_EXIT (include/trace/events/power.h) is -1: the CPU leaves idle.
                let idle = event.state != u32::MAX;
                if let Some(state) = self.cpu(event.cpu) {
                    state.idle = Some((idle, time));
                }
            }
            Event::Pressure(event) => self.pressure(time, event.cpu, event.lost),
            Event::ThermalPressure(event) => self.pressure(time, event.cpu, event.lost),
            // thermal_zone_trip_update() in gov_step_wise.c reports the trip point at each update
            // above it.
            Event::Trip(event) => {
                self.limit(
                    time,
                    None,
                    format!("thermal zone {} is at or above trip point {}", event.zone, event.trip),
                );
            }
            // __thermal_cdev_update() in drivers/thermal/thermal_helpers.c also reports the state
            // 0: the end of cooling.
            Event::Cooling(event) if event.target > 0 => {
                let what = format!("cooling device {} was set to state {}", event.device, event.target);
                self.limit(time, None, what);
            }
            Event::Throttle(event) => {
                self.limit(
                    time,
                    None,
                    format!("chip {} was throttled to P-state {}", event.chip, event.pmax),
                );
            }
            Event::Other(name) => self.other(time, record.cpu, *name),
            _ => {}
        }
    }

    /// Records a change of a policy's upper limit, kHz: the previous limit ends now.
    fn policy_limit(&mut self, time: u64, cpu: u32, max: u32) {
        let Some(state) = self.cpu(cpu) else { return };
        // The judge adds the limit at the end of the trace, because it knows when that is.
        if let Some((before, since)) = state.limit.replace((max, time))
            && state.limits.len() < KEPT
        {
            state.limits.push((since, time, before));
        }
        state.highest_limit = state.highest_limit.max(max);
    }

    fn pressure(&mut self, time: u64, cpu: u32, lost: u32) {
        if lost > 0 {
            // SCHED_CAPACITY_SCALE: the scheduler counts a CPU's capacity of 1024.
            let share = f64::from(lost) * 100.0 / 1024.0;
            self.limit(time, Some(cpu), format!("heat or power limits took {share:.0} % of its capacity"));
        }
    }

    /// Adds an event that limits a CPU, or all CPUs. An event that keeps repeating becomes one
    /// finding: the governor of a hot thermal zone reports its trip point at each poll, and the
    /// driver of a cooling device may send ten events per second.
    fn limit(&mut self, time: u64, cpu: Option<u32>, what: String) {
        let key = (cpu, what);
        let place = self.limited_places.get(&key).copied();
        if let Some(limited) = place.and_then(|place| self.limited.get_mut(place))
            && time.saturating_sub(limited.end) <= STILL_HOT
        {
            (limited.end, limited.count) = (time.max(limited.end), limited.count + 1);
        } else if self.limited.len() < KEPT {
            self.limited.push(LimitEvent { time, end: time, count: 1, cpu, what: key.1.clone() });
            self.limited_places.insert(key, self.limited.len() - 1);
        }
    }

    /// Adds a passed-through event, by its name.
    fn other(&mut self, time: u64, cpu: u32, name: NameId) {
        let names = &self.names;
        // Cache names without a row too, so that each is looked up once per trace.
        let row = self.hot.entry(name).or_insert_with(|| {
            let name = names.name(name);
            BY_NAME.iter().find(|row| row.name == name)
        });
        let Some(row) = *row else { return };
        self.limit(time, row.about_cpu.then_some(cpu), row.meaning.to_owned());
    }

    /// Adds a decision of a CPU. A record's counters cover the time since the previous record.
    /// Returns `false` for a CPU's first record, which covers time before the trace.
    fn sample(&mut self, time: u64, cpu: u32, mperf: u64, tsc: u64, khz: u64) -> bool {
        let (silence, busy) = ((self.limits.silence * 1e9) as u64, self.limits.busy);
        // The CPU number is damaged, so there is no state.
        let Some(state) = self.cpu(cpu) else { return false };
        state.samples += 1;
        if let Some(last) = state.last.replace(time) {
            let load = if tsc > 0 { mperf as f64 / tsc as f64 } else { 0.0 };
            // A sleeping CPU makes no decisions either; the load in the meantime distinguishes the
            // two.
            if time.saturating_sub(last) >= silence && load >= busy && state.decision_gaps.len() < KEPT {
                state.decision_gaps.push(DecisionGap { from: last, to: time, load, ghz: khz as f64 / 1e6 });
            }
            true
        } else {
            // The counters cover the time since boot or since the driver was loaded, not since the
            // previous record.
            state.first = time;
            false
        }
    }

    /// The findings, most severe first; none if the clock does not count time.
    pub fn findings(&self, clock: Clock) -> Vec<Finding> {
        // Windows are milliseconds, which the counter clock and TSC cycles are not.
        if clock.nanoseconds() { judge::judge(self) } else { Vec::new() }
    }
}
