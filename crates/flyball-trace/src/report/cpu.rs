//! The numbers of one CPU.

use std::collections::BTreeMap;

use crate::{
    clock::Clock,
    events::{AmdEpp, AmdPerf, IntelSample},
};

use super::{
    lag::LagMeter,
    range::{LoadMeter, Range, WholeMeter},
};

/// How long a performance level was asked for.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct LevelTime {
    /// Desired performance, or Intel's P-state.
    pub level: u32,
    /// Records that asked for it.
    pub samples: u64,
    /// Seconds from each of them to the CPU's next record.
    pub seconds: f64,
}

/// From request to frequency: see the module's source for what is counted.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Lag {
    /// Changes of the request whose effect could be seen.
    pub count: u64,
    /// Milliseconds; half of the changes took no longer. Within 3 %.
    pub median_ms: f64,
    /// Milliseconds; 95 % of the changes took no longer. Within 3 %.
    pub p95_ms: f64,
    /// Milliseconds; the longest.
    pub max_ms: f64,
}

/// One idle state of one CPU, from cpu_idle events.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct IdleReport {
    /// The state's number.
    pub state: u32,
    /// How often it was entered.
    pub entries: u64,
    /// Seconds in it, up to the end of the trace; where records were lost in between, none.
    pub seconds: f64,
    /// Share of the time in which the trace shows whether the CPU was idle, percent: from its first idle event on, less
    /// what records were lost in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

/// One CPU. What a trace has no events for is absent.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct CpuReport {
    /// The CPU.
    pub cpu: u32,
    /// Requests (amd_pstate_perf, amd_pstate_epp_perf) or samples (pstate_sample) of it.
    pub samples: u64,
    /// Least performance of its requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_perf: Option<Range>,
    /// Desired performance, or the P-state asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub des_perf: Option<Range>,
    /// Most performance of its requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_perf: Option<Range>,
    /// Energy performance preference of its requests, in active mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epp: Option<Range>,
    /// Frequency while busy, GHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ghz: Option<Range>,
    /// Frequency while busy, weighted by the time that it was held, GHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_ghz: Option<f64>,
    /// What that is weighted with: the sum of all MPERF.
    #[serde(skip)]
    pub running_mperf: f64,
    /// Load, percent: MPERF / TSC of each sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Range>,
    /// Share of time in C0, percent: the sum of all MPERF over the sum of all TSC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub c0: Option<f64>,
    /// Requests that differ from the one before (the kernel's `changed`, where it says so).
    pub decisions: u64,
    /// Decisions a second, from the CPU's first record to its last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decisions_per_second: Option<f64>,
    /// Share of requests that were made in the scheduler's context, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_switch: Option<f64>,
    /// From request to frequency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<Lag>,
    /// Time at each performance level.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelTime>,
    /// Idle states.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<IdleReport>,
    /// cpu_frequency events.
    pub frequency_events: u64,
    /// cpu_frequency_limits events.
    pub limits_events: u64,
    /// Longest time between two of its requests, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_gap_seconds: Option<f64>,
}

/// Requests of active mode. Kernels from 7.0 on report each request of the passive modes twice, with both events:
/// these count only where there is nothing of the other.
#[derive(Debug, Clone, Default)]
struct ActiveMeter {
    samples: u64,
    first: u64,
    last: u64,
    gap: u64,
    min: WholeMeter,
    max: WholeMeter,
    epp: WholeMeter,
    decisions: u64,
    lost: bool,
}

/// Requests of one CPU that are added together. One more finds its CPU's numbers in the core's first-level cache; each
/// on its own, with hundreds of CPUs in turn, would fetch them from memory.
const TOGETHER: usize = 16;

/// A request that waits to be added.
#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    time: u64,
    khz: u64,
    mperf: u64,
    tsc: u64,
    load: f64,
    min: u32,
    des: u32,
    max: u32,
    changed: Option<bool>,
    fast: bool,
}

/// Levels above this are counted as this one: damaged text may name any.
const MOST_LEVEL: u32 = 4095;

/// What is added up of one CPU.
#[derive(Debug, Clone, Default)]
pub(super) struct CpuMeter {
    /// Requests that are not added yet, and how many.
    waiting: [Waiting; TOGETHER],
    wait: usize,
    samples: u64,
    first: u64,
    last: u64,
    gap: u64,
    /// Samples that are requests of amd-pstate.
    requests: u64,
    min: WholeMeter,
    des: WholeMeter,
    max: WholeMeter,
    /// Samples whose counters cover time of the trace.
    counted: u64,
    khz: WholeMeter,
    load: LoadMeter,
    mperf: u128,
    tsc: u128,
    /// Sum of kHz times MPERF.
    mperf_khz: u128,
    decisions: u64,
    fast: Option<u64>,
    asked: Option<(u32, u32, u32)>,
    /// By level: samples, and time until the next sample.
    levels: Vec<(u64, u64)>,
    lag: LagMeter,
    active: ActiveMeter,
    /// By idle state: entries, and time in it.
    idle: BTreeMap<u32, (u64, u64)>,
    idle_now: Option<(u32, u64)>,
    /// Time of the last idle event, and how long it is known whether the CPU was idle.
    idle_last: Option<u64>,
    idle_known: u64,
    /// Records were lost since the last request.
    lost: bool,
    pub(super) frequency_events: u64,
    pub(super) limits_events: u64,
}

impl CpuMeter {
    /// Counts a request for this level.
    #[inline]
    fn count(&mut self, level: u32) {
        let level = level.min(MOST_LEVEL) as usize;
        if self.levels.len() <= level {
            self.levels.resize(level + 1, (0, 0));
        }
        self.levels[level].0 += 1;
    }

    /// Adds the time since the sample before to its level. Returns whether there was one.
    #[inline]
    fn step(&mut self, time: u64) -> bool {
        let known = self.samples > 0;
        if std::mem::take(&mut self.lost) {
            // What was asked for meanwhile is not known.
        } else if known {
            let passed = time.saturating_sub(self.last);
            self.gap = self.gap.max(passed);
            if let Some((_, des, _)) = self.asked
                && let Some(slot) = self.levels.get_mut(des.min(MOST_LEVEL) as usize)
            {
                slot.1 += passed;
            }
        }
        if !known {
            self.first = time;
        }
        self.last = time;
        self.samples += 1;
        known
    }

    #[inline]
    fn decide(&mut self, request: (u32, u32, u32), said: Option<bool>) {
        let differs = self.asked.replace(request).is_some_and(|before| before != request);
        self.decisions += u64::from(said.unwrap_or(differs));
    }

    #[inline]
    fn counters(&mut self, mperf: u64, tsc: u64, khz: u64, load: f64) {
        self.counted += 1;
        self.mperf += u128::from(mperf);
        self.tsc += u128::from(tsc);
        // Wraps only for values that no kernel writes.
        self.mperf_khz = self.mperf_khz.wrapping_add(u128::from(khz) * u128::from(mperf));
        self.load.add(load);
        self.khz.add(khz);
    }

    /// Adds a request with its load. `false` for the CPU's first, whose counters cover time before the trace (since
    /// boot, after a change of driver): the kernel's tracers leave it out too.
    #[inline]
    pub(super) fn amd(&mut self, time: u64, event: &AmdPerf, load: f64) -> bool {
        let known = self.samples > 0 || self.wait > 0;
        let AmdPerf { min, des, max, khz, mperf, tsc, changed, fast_switch: fast, .. } = *event;
        self.waiting[self.wait % TOGETHER] =
            Waiting { time, khz, mperf, tsc, load, min, des, max, changed, fast };
        self.wait += 1;
        if self.wait >= TOGETHER {
            self.settle();
        }
        known
    }

    /// Adds the requests that wait.
    fn settle(&mut self) {
        let waiting = self.waiting;
        let waiting = &waiting[..std::mem::take(&mut self.wait).min(TOGETHER)];
        // By itself, so that the levels of all of them are fetched at the same time.
        for request in waiting {
            self.count(request.des);
        }
        for request in waiting {
            self.request(request);
        }
    }

    #[inline]
    fn request(&mut self, request: &Waiting) {
        let known = self.step(request.time);
        self.requests += 1;
        self.min.add(u64::from(request.min));
        self.des.add(u64::from(request.des));
        self.max.add(u64::from(request.max));
        self.decide((request.min, request.des, request.max), request.changed);
        *self.fast.get_or_insert(0) += u64::from(request.fast);
        if known {
            self.counters(request.mperf, request.tsc, request.khz, request.load);
            self.lag.add(request.time, request.des, request.khz);
        }
    }

    pub(super) fn amd_epp(&mut self, time: u64, event: &AmdEpp) {
        let active = &mut self.active;
        if active.samples == 0 {
            active.first = time;
        }
        if !std::mem::take(&mut active.lost) && active.samples > 0 {
            active.gap = active.gap.max(time.saturating_sub(active.last));
        }
        active.last = time;
        active.samples += 1;
        active.min.add(u64::from(event.min));
        active.max.add(u64::from(event.max));
        active.epp.add(u64::from(event.epp));
        active.decisions += u64::from(event.changed);
    }

    /// Adds a sample with its load; as [`CpuMeter::amd`].
    pub(super) fn intel(&mut self, time: u64, event: &IntelSample, load: f64) -> bool {
        self.settle();
        self.count(event.to);
        let known = self.step(time);
        self.des.add(u64::from(event.to));
        self.decide((0, event.to, 0), Some(event.from != event.to));
        // In passive mode core_busy names the path: 90 is the scheduler's own.
        if event.scaled_busy == 0 && matches!(event.core_busy, 10 | 90) {
            *self.fast.get_or_insert(0) += u64::from(event.core_busy == 90);
        }
        if known {
            self.counters(event.mperf, event.tsc, u64::from(event.khz), load);
            self.lag.add(time, event.to, u64::from(event.khz));
        }
        known
    }

    /// Records of this CPU are missing here: what held before them may have ended in between.
    pub(super) fn lost(&mut self) {
        self.settle();
        (self.lost, self.active.lost) = (true, true);
        (self.idle_now, self.idle_last) = (None, None);
        self.lag.forget();
    }

    pub(super) fn idle(&mut self, time: u64, state: u32) {
        if let Some(last) = self.idle_last.replace(time) {
            self.idle_known += time.saturating_sub(last);
        }
        if let Some((entered, since)) = self.idle_now.take() {
            self.idle.entry(entered).or_default().1 += time.saturating_sub(since);
        }
        // A kernel has at most ten states (CPUIDLE_STATE_MAX); more are damage and must not fill memory.
        if state != u32::MAX && (self.idle.len() < 64 || self.idle.contains_key(&state)) {
            self.idle.entry(state).or_default().0 += 1;
            self.idle_now = Some((state, time));
        }
    }

    /// The numbers of a trace that ends at `end`.
    pub(super) fn report(&self, cpu: u32, clock: Clock, end: u64) -> CpuReport {
        if self.wait > 0 {
            let mut settled = self.clone();
            settled.settle();
            return settled.report(cpu, clock, end);
        }
        let seconds = |time: u64| time as f64 / 1e9;
        let timed = clock.nanoseconds();
        let active = &self.active;
        let only_active = self.samples == 0 && active.samples > 0;
        let (samples, decisions, first, last, gap) = if only_active {
            (active.samples, active.decisions, active.first, active.last, active.gap)
        } else {
            (self.samples, self.decisions, self.first, self.last, self.gap)
        };
        let covered = seconds(last.saturating_sub(first));
        let lags = self.lag.lags();
        let mperf = self.mperf as f64;
        let ms = |time: u64| time as f64 / 1e6;
        let idle_known = self.idle_known + self.idle_last.map_or(0, |last| end.saturating_sub(last));
        let still_idle = |state: u32| match self.idle_now {
            Some((now, since)) if now == state => end.saturating_sub(since),
            _ => 0,
        };
        CpuReport {
            cpu,
            samples,
            min_perf: if only_active {
                active.min.range(samples, 1.0)
            } else {
                self.min.range(self.requests, 1.0)
            },
            des_perf: self.des.range(self.samples, 1.0),
            max_perf: if only_active {
                active.max.range(samples, 1.0)
            } else {
                self.max.range(self.requests, 1.0)
            },
            epp: active.epp.range(active.samples, 1.0),
            ghz: self.khz.range(self.counted, 1e6),
            running_ghz: (self.mperf > 0).then(|| self.mperf_khz as f64 / 1e6 / mperf),
            running_mperf: mperf,
            load: self.load.range(),
            c0: (self.tsc > 0).then(|| mperf * 100.0 / self.tsc as f64),
            decisions,
            decisions_per_second: (timed && covered > 0.0).then(|| decisions as f64 / covered),
            fast_switch: self.fast.map(|fast| fast as f64 * 100.0 / self.samples.max(1) as f64),
            lag: (timed && lags.count() > 0).then(|| Lag {
                count: lags.count(),
                median_ms: ms(lags.quantile(0.5).unwrap_or(0)),
                p95_ms: ms(lags.quantile(0.95).unwrap_or(0)),
                max_ms: ms(lags.max()),
            }),
            levels: self
                .levels
                .iter()
                .enumerate()
                .filter(|(_, (samples, _))| *samples > 0)
                .map(|(level, (samples, time))| LevelTime {
                    level: level as u32,
                    samples: *samples,
                    seconds: if timed { seconds(*time) } else { 0.0 },
                })
                .collect(),
            idle: self
                .idle
                .iter()
                .map(|(state, (entries, time))| {
                    let time = time + still_idle(*state);
                    IdleReport {
                        state: *state,
                        entries: *entries,
                        seconds: if timed { seconds(time) } else { 0.0 },
                        share: (timed && idle_known > 0).then(|| time as f64 * 100.0 / idle_known as f64),
                    }
                })
                .collect(),
            frequency_events: self.frequency_events,
            limits_events: self.limits_events,
            longest_gap_seconds: (timed && samples > 1).then(|| seconds(gap)),
        }
    }
}
