//! The numbers of one CPU.

use std::collections::BTreeMap;

use crate::{
    clock::Clock,
    record::{AmdEpp, AmdPerf, IntelSample},
};

use super::lag::LagMeter;

/// Least, mean and most of a value over its samples.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Range {
    /// Least.
    pub min: f64,
    /// Plain mean over the samples, as the kernel's own scripts take it.
    pub mean: f64,
    /// Most.
    pub max: f64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RangeMeter {
    min: f64,
    max: f64,
    sum: f64,
    count: u64,
}

impl Default for RangeMeter {
    fn default() -> RangeMeter {
        RangeMeter { min: f64::INFINITY, max: f64::NEG_INFINITY, sum: 0.0, count: 0 }
    }
}

impl RangeMeter {
    #[inline]
    pub(super) fn add(&mut self, value: f64) {
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += value;
        self.count += 1;
    }

    pub(super) fn range(&self) -> Option<Range> {
        (self.count > 0).then(|| Range { min: self.min, mean: self.sum / self.count as f64, max: self.max })
    }
}

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
    /// Share of the time in which the trace tells whether the CPU was idle, percent: from its first idle event on, less
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

/// Requests of active mode. Kernels from 7.0 on tell of each request of the passive modes twice, with both events:
/// these count only where there is nothing of the other.
#[derive(Debug, Clone, Default)]
struct ActiveMeter {
    samples: u64,
    first: u64,
    last: u64,
    gap: u64,
    min: RangeMeter,
    max: RangeMeter,
    epp: RangeMeter,
    decisions: u64,
    lost: bool,
}

/// Requests of one CPU that are added together. One more finds its CPU's numbers in the core's first-level cache; each
/// on its own, with hundreds of CPUs in turn, would fetch them from afar.
const TOGETHER: usize = 16;

#[derive(Debug, Clone, Default)]
pub(super) struct CpuMeter {
    /// Requests that are not added yet.
    waiting: Vec<(u64, AmdPerf)>,
    samples: u64,
    first: u64,
    last: u64,
    gap: u64,
    min: RangeMeter,
    des: RangeMeter,
    max: RangeMeter,
    ghz: RangeMeter,
    load: RangeMeter,
    mperf: f64,
    tsc: f64,
    mperf_ghz: f64,
    decisions: u64,
    fast: Option<u64>,
    asked: Option<(u32, u32, u32, u32)>,
    levels: Vec<(u64, u64)>,
    lag: LagMeter,
    active: ActiveMeter,
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
    fn count(&mut self, level: u32) {
        let level = level.min(4095) as usize;
        if self.levels.len() <= level {
            self.levels.resize(level + 1, (0, 0));
        }
        self.levels[level].0 += 1;
    }

    /// Books the time since the sample before on its level. Answers whether there was one.
    fn step(&mut self, time: u64) -> bool {
        let known = self.samples > 0;
        if std::mem::take(&mut self.lost) {
            // What was asked for meanwhile is not known.
        } else if known {
            let passed = time.saturating_sub(self.last);
            self.gap = self.gap.max(passed);
            if let Some((_, des, ..)) = self.asked
                && let Some(slot) = self.levels.get_mut(des.min(4095) as usize)
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

    fn decide(&mut self, request: (u32, u32, u32, u32), said: Option<bool>) {
        let differs = self.asked.replace(request).is_some_and(|before| before != request);
        if said.unwrap_or(differs) {
            self.decisions += 1;
        }
    }

    fn counters(&mut self, mperf: u64, tsc: u64, khz: u64) {
        self.mperf += mperf as f64;
        self.tsc += tsc as f64;
        if tsc > 0 {
            self.load.add(mperf as f64 * 100.0 / tsc as f64);
        }
        let ghz = khz as f64 / 1e6;
        self.ghz.add(ghz);
        self.mperf_ghz += ghz * mperf as f64;
    }

    /// Adds a request. `false` for the CPU's first, whose counters cover time before the trace (since boot, after a
    /// change of driver): the kernel's tracers leave it out too.
    #[inline]
    pub(super) fn amd(&mut self, time: u64, event: &AmdPerf) -> bool {
        let known = self.samples > 0 || !self.waiting.is_empty();
        self.waiting.push((time, *event));
        if self.waiting.len() >= TOGETHER {
            self.settle();
        }
        known
    }

    /// Adds the requests that wait.
    fn settle(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        // By itself, so that the levels of all of them are fetched at the same time.
        for (_, event) in &waiting {
            self.count(event.des);
        }
        for (time, event) in &waiting {
            self.request(*time, event);
        }
        waiting.clear();
        self.waiting = waiting;
    }

    fn request(&mut self, time: u64, event: &AmdPerf) {
        let known = self.step(time);
        self.min.add(f64::from(event.min));
        self.des.add(f64::from(event.des));
        self.max.add(f64::from(event.max));
        if known {
            self.counters(event.mperf, event.tsc, event.khz);
        }
        self.decide((event.min, event.des, event.max, 0), event.changed);
        *self.fast.get_or_insert(0) += u64::from(event.fast_switch);
        if known {
            self.lag.add(time, event.des, event.khz);
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
        active.min.add(f64::from(event.min));
        active.max.add(f64::from(event.max));
        active.epp.add(f64::from(event.epp));
        active.decisions += u64::from(event.changed);
    }

    /// Adds a sample; as [`CpuMeter::amd`].
    pub(super) fn intel(&mut self, time: u64, event: &IntelSample) -> bool {
        self.settle();
        self.count(event.to);
        let known = self.step(time);
        self.des.add(f64::from(event.to));
        if known {
            self.counters(event.mperf, event.tsc, u64::from(event.khz));
        }
        self.decide((0, event.to, 0, 0), Some(event.from != event.to));
        // In passive mode core_busy names the path: 90 is the scheduler's own.
        if event.scaled_busy == 0 && matches!(event.core_busy, 10 | 90) {
            *self.fast.get_or_insert(0) += u64::from(event.core_busy == 90);
        }
        if known {
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
        if !self.waiting.is_empty() {
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
        let ms = |time: u64| time as f64 / 1e6;
        let real_levels = self.des.range().is_some();
        let idle_known = self.idle_known + self.idle_last.map_or(0, |last| end.saturating_sub(last));
        let still_idle = |state: u32| match self.idle_now {
            Some((now, since)) if now == state => end.saturating_sub(since),
            _ => 0,
        };
        CpuReport {
            cpu,
            samples,
            min_perf: if only_active { active.min.range() } else { self.min.range() },
            des_perf: self.des.range(),
            max_perf: if only_active { active.max.range() } else { self.max.range() },
            epp: active.epp.range(),
            ghz: self.ghz.range(),
            running_ghz: (self.mperf > 0.0).then(|| self.mperf_ghz / self.mperf),
            running_mperf: self.mperf,
            load: self.load.range(),
            c0: (self.tsc > 0.0).then(|| self.mperf * 100.0 / self.tsc),
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
                .filter(|(_, (samples, _))| real_levels && *samples > 0)
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
