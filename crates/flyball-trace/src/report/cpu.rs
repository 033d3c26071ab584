//! The numbers of one CPU.

use std::collections::BTreeMap;

use crate::{
    clock::Clock,
    events::{AmdEpp, AmdRequest, IntelSample},
};

use super::{
    lag::LagMeter,
    range::{LoadMeter, Range, WholeMeter},
};

/// From request to frequency: see the module's source for what is counted.
#[derive(Debug, Clone, Copy, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct Lag {
    /// Number of changed requests whose effect was visible.
    pub count: u64,
    /// Milliseconds; half of the changes took no longer. Within 3 %.
    pub median_ms: f64,
    /// Milliseconds; 95 % of the changes took no longer. Within 3 %.
    pub p95_ms: f64,
    /// Milliseconds; the longest.
    pub max_ms: f64,
}

/// One idle state of one CPU, from cpu_idle events.
#[derive(Debug, Clone, Copy, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct IdleReport {
    /// The state's number.
    pub state: u32,
    /// How often it was entered.
    pub entries: u64,
    /// Seconds in the state, up to the end of the trace; times with lost records do not count.
    pub seconds: f64,
    /// Percentage of the time in which the trace shows whether the CPU was idle: from its first
    /// idle event on, except for times with lost records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

/// One CPU. Values for which a trace has no events are absent.
#[derive(Debug, Clone, Default, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct CpuReport {
    pub cpu: u32,
    /// Number of its requests (amd_pstate_perf, amd_pstate_epp_perf) or samples (pstate_sample).
    pub samples: u64,
    /// Minimum performance in its requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_perf: Option<Range>,
    /// Desired performance, or the requested P-state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub des_perf: Option<Range>,
    /// Maximum performance in its requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_perf: Option<Range>,
    /// Energy performance preference of its requests, in active mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epp: Option<Range>,
    /// Frequency while busy, GHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ghz: Option<Range>,
    /// Frequency while busy, weighted by time, GHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_ghz: Option<f64>,
    /// The weight of `running_ghz`: the sum of all MPERF.
    #[serde(skip)]
    pub running_mperf: f64,
    /// Load, percent: MPERF / TSC of each sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Range>,
    /// Share of time in C0, percent: the sum of all MPERF over the sum of all TSC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub c0: Option<f64>,
    /// Number of requests that differ from the previous one (by the kernel's `changed`, if
    /// available).
    pub decisions: u64,
    /// Decisions per second, from the CPU's first record to its last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decisions_per_second: Option<f64>,
    /// Share of requests that were made in the scheduler's context, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_switch: Option<f64>,
    /// Delay from request to frequency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<Lag>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<IdleReport>,
    pub frequency_events: u64,
    /// cpu_frequency_limits events.
    pub limits_events: u64,
    /// Longest time between two requests, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_gap_seconds: Option<f64>,
}

/// Requests of active mode. Kernels from 7.0 on report each request of the passive modes with both
/// events, so these count only if the other event does not occur.
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

/// A request of amd-pstate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) time: u64,
    pub(super) khz: u64,
    pub(super) mperf: u64,
    pub(super) tsc: u64,
    pub(super) load: f64,
    pub(super) min: u32,
    pub(super) des: u32,
    pub(super) max: u32,
    pub(super) changed: Option<bool>,
    pub(super) fast: bool,
}

/// Sums over the records of one CPU.
#[derive(Debug, Clone, Default)]
pub(super) struct CpuSums {
    samples: u64,
    first: u64,
    last: u64,
    gap: u64,
    /// Number of samples that are requests of amd-pstate.
    requests: u64,
    min: WholeMeter,
    des: WholeMeter,
    max: WholeMeter,
    /// Number of samples whose counters cover only time of the trace.
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
    lag: LagMeter,
    active: ActiveMeter,
    /// Entries and time by idle state.
    idle: BTreeMap<u32, (u64, u64)>,
    idle_now: Option<(u32, u64)>,
    /// Time of the last idle event. `idle_known` is the time in which it is known whether the CPU
    /// was idle.
    idle_last: Option<u64>,
    idle_known: u64,
    /// True if records were lost since the last request.
    lost: bool,
    pub(super) frequency_events: u64,
    pub(super) limits_events: u64,
}

impl CpuSums {
    /// Adds the times of samples. Returns whether there was one before.
    #[inline]
    fn times(&mut self, samples: impl Iterator<Item = u64>) -> bool {
        let known = self.samples > 0;
        for time in samples {
            if self.samples == 0 {
                self.lost = false;
                self.first = time;
            } else {
                // How long the gap was while records were lost is not known.
                let is_seen = !std::mem::take(&mut self.lost);
                let passed = if is_seen { time.saturating_sub(self.last) } else { 0 };
                self.gap = self.gap.max(passed);
            }
            self.last = time;
            self.samples += 1;
        }
        known
    }

    #[inline]
    fn decide(&mut self, request: (u32, u32, u32), said: Option<bool>) {
        // Up to 6.12 amd_pstate_perf has `changed`; for later kernels compare the requests.
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

    /// Adds some requests. Handles one value at a time, to keep its sums in registers.
    #[inline]
    pub(super) fn requests(&mut self, requests: impl Iterator<Item = Request> + Clone) {
        let each = || requests.clone();
        // The counters of a CPU's first request include time before the trace.
        let counted = || requests.clone().skip(usize::from(self.samples == 0));
        self.min.add_all(each().map(|request| u64::from(request.min)));
        self.des.add_all(each().map(|request| u64::from(request.des)));
        self.max.add_all(each().map(|request| u64::from(request.max)));
        self.khz.add_all(counted().map(|request| request.khz));
        self.load.add_all(counted().map(|request| request.load));
        let (mut mperf, mut tsc, mut mperf_khz, mut count) = (0u128, 0u128, 0u128, 0);
        for request in counted() {
            count += 1;
            mperf += u128::from(request.mperf);
            tsc += u128::from(request.tsc);
            // Wraps only for values that no kernel writes.
            mperf_khz = mperf_khz.wrapping_add(u128::from(request.khz) * u128::from(request.mperf));
        }
        self.counted += count;
        self.mperf += mperf;
        self.tsc += tsc;
        self.mperf_khz = self.mperf_khz.wrapping_add(mperf_khz);
        let mut known = self.times(each().map(|request| request.time));
        let mut fast = self.fast.unwrap_or(0);
        for request in each() {
            self.decide((request.min, request.des, request.max), request.changed);
            fast += u64::from(request.fast);
            self.requests += 1;
            if std::mem::replace(&mut known, true) {
                self.lag.add(request.time, request.des, request.khz);
            }
        }
        self.fast = Some(fast);
    }

    /// Adds a request without counters, whose effect is unknown.
    pub(super) fn request_alone(&mut self, time: u64, event: &AmdRequest) {
        self.min.add(u64::from(event.min));
        self.des.add(u64::from(event.des));
        self.max.add(u64::from(event.max));
        self.times(std::iter::once(time));
        self.decide((event.min, event.des, event.max), event.changed);
        self.requests += 1;
        *self.fast.get_or_insert(0) += u64::from(event.fast_switch);
    }

    pub(super) fn amd_epp(&mut self, time: u64, event: &AmdEpp) {
        let active = &mut self.active;
        if active.samples == 0 {
            active.first = time;
        }
        // A gap with lost records may contain requests.
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

    /// Adds a sample with its load. Returns `false` for the CPU's first sample, as for a request.
    pub(super) fn intel(&mut self, time: u64, event: &IntelSample, load: f64) -> bool {
        let known = self.times(std::iter::once(time));
        self.des.add(u64::from(event.to));
        self.decide((0, event.to, 0), Some(event.from != event.to));
        // In passive mode core_busy is the path: 90 is the scheduler's fast path.
        // INTEL_PSTATE_TRACE_TARGET and INTEL_PSTATE_TRACE_FAST_SWITCH in
        // drivers/cpufreq/intel_pstate.c.
        if event.scaled_busy == 0 && matches!(event.core_busy, 10 | 90) {
            *self.fast.get_or_insert(0) += u64::from(event.core_busy == 90);
        }
        if known {
            self.counters(event.mperf, event.tsc, u64::from(event.khz), load);
            self.lag.add(time, event.to, u64::from(event.khz));
        }
        known
    }

    /// Handles missing records of this CPU: earlier states may have ended in between.
    pub(super) fn lost(&mut self) {
        // Both, since any kind of event may be lost.
        (self.lost, self.active.lost) = (true, true);
        // The exit from the idle state may be lost, so the time until the next event is unknown.
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
        // A kernel has at most ten states (CPUIDLE_STATE_MAX); more are damage and must not fill
        // memory.
        if state != u32::MAX && (self.idle.len() < 64 || self.idle.contains_key(&state)) {
            self.idle.entry(state).or_default().0 += 1;
            self.idle_now = Some((state, time));
        }
    }

    /// Returns the numbers of a trace that ends at `end`.
    pub(super) fn report(&self, cpu: u32, clock: Clock, end: u64) -> CpuReport {
        let timed = clock.nanoseconds();
        let active = &self.active;
        // Kernels from 7.0 on report passive requests with both events; then ignore those of active
        // mode.
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
            idle: self.idle_reports(timed, end),
            frequency_events: self.frequency_events,
            limits_events: self.limits_events,
            longest_gap_seconds: (timed && samples > 1).then(|| seconds(gap)),
        }
    }
    fn idle_reports(&self, timed: bool, end: u64) -> Vec<IdleReport> {
        let known = self.idle_known + self.idle_last.map_or(0, |last| end.saturating_sub(last));
        let report = |(state, (entries, time)): (&u32, &(u64, u64))| {
            // The current state lasts until the end.
            let now = self.idle_now.filter(|(now, _)| now == state);
            let time = time + now.map_or(0, |(_, since)| end.saturating_sub(since));
            IdleReport {
                state: *state,
                entries: *entries,
                seconds: if timed { seconds(time) } else { 0.0 },
                share: (timed && known > 0).then(|| time as f64 * 100.0 / known as f64),
            }
        };
        self.idle.iter().map(report).collect()
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
