//! A trace thinned out for plots: minimum and maximum of each value for each CPU and interval. No
//! value between two drawn points exceeds what is drawn.
//!
//! All intervals have one length, which doubles whenever the trace outgrows the buckets: any trace
//! fits, and one pass is enough.

use crate::{
    events::Event,
    record::{MAX_CPUS, Record},
};

/// Minimum and maximum of a value in one interval; both NaN without a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    pub min: f32,
    pub max: f32,
}

impl Bucket {
    const EMPTY: Bucket = Bucket { min: f32::NAN, max: f32::NAN };

    /// Returns whether the bucket has no sample.
    pub fn is_empty(&self) -> bool {
        self.min.is_nan()
    }

    fn add(&mut self, value: f32) {
        // min() and max() of f32 return the other value for NaN.
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    fn merge(self, other: Bucket) -> Bucket {
        Bucket { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// A value to draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Metric {
    /// Name of the value's plot in the kernel's tracer: `cpuNNN_NAME`, `all_cpu_ALL`.
    pub name: &'static str,
    /// Name in the tracer's plot of all CPUs.
    pub all: &'static str,
    pub title: &'static str,
    pub unit: &'static str,
    /// Upper end of the tracer's axis; 0 to scale to the values.
    pub high: u32,
}

const fn metric(
    name: &'static str,
    all: &'static str,
    title: &'static str,
    unit: &'static str,
    high: u32,
) -> Metric {
    Metric { name, all, title, unit, high }
}

/// Metrics from amd_pstate_perf.
const AMD: [Metric; 5] = [
    metric("frequency", "frequencies", "frequency", "GHz", 0),
    metric("des_perf", "des_perf", "desired performance", "", 255),
    metric("load", "load", "load", "%", 100),
    metric("min_perf", "min_perf", "minimum performance", "", 255),
    metric("max_perf", "max_perf", "maximum performance", "", 255),
];

/// Metrics from pstate_sample.
const INTEL: [Metric; 8] = [
    metric("frequency", "frequencies", "frequency", "GHz", 0),
    metric("pstates", "pstates", "P-state", "", 0),
    metric("loads", "loads", "load", "%", 100),
    metric("performance", "performance", "performance", "%", 200),
    metric("scaled", "scaled", "scaled busy", "%", 0),
    metric("boost", "boost", "IO boost", "%", 100),
    metric("durations", "durations", "time between samples", "ms", 0),
    metric("ghz", "ghz", "TSC frequency", "GHz", 0),
];

/// The thinned values of all CPUs.
#[derive(Debug)]
pub struct SeriesSet {
    /// Time of the first record, nanoseconds (or ticks).
    pub start: u64,
    /// Length of an interval.
    pub width: u64,
    metrics: &'static [Metric],
    /// Intervals by CPU, then by metric.
    cpus: Vec<Option<Box<CpuSeries>>>,
    used: usize,
    started: bool,
    /// True if intervals count samples of all CPUs instead of time.
    by_sample: bool,
    samples: u64,
}

#[derive(Debug)]
struct CpuSeries {
    last: Option<u64>,
    buckets: Vec<Vec<Bucket>>,
}

/// Maximum number of buckets over all CPUs and metrics, eight bytes each.
const MAX: usize = 4 << 20;
/// Maximum number of buckets per CPU and metric: more than any screen has columns.
const MAX_EACH: usize = 8192;

impl Default for SeriesSet {
    fn default() -> SeriesSet {
        SeriesSet {
            start: 0,
            width: 1_000,
            metrics: &[],
            cpus: Vec::new(),
            used: 0,
            started: false,
            by_sample: false,
            samples: 0,
        }
    }
}

impl SeriesSet {
    /// Uses the number of the sample instead of time as the axis, like some of the kernel tracers'
    /// plots.
    pub fn by_sample() -> SeriesSet {
        SeriesSet { by_sample: true, width: 1, ..SeriesSet::default() }
    }

    /// Adds one record, in chronological order.
    pub fn add(&mut self, record: &Record) {
        let percent =
            |part: u64, whole: u64| if whole > 0 { part as f32 * 100.0 / whole as f32 } else { f32::NAN };
        match &record.event {
            Event::AmdPerf(event) => {
                let load = percent(event.mperf, event.tsc);
                let levels = [event.des, event.min, event.max].map(|level| level as f32);
                let values = [event.khz as f32 / 1e6, levels[0], load, levels[1], levels[2]];
                self.sample(&AMD, record.time, event.cpu, |_| values);
            }
            Event::AmdRequest(event) => {
                let [desired, min, max] = [event.des, event.min, event.max].map(|level| level as f32);
                self.sample(&AMD, record.time, event.cpu, |_| [f32::NAN, desired, f32::NAN, min, max]);
            }
            Event::Intel(event) => {
                let load = percent(event.mperf, event.tsc);
                self.sample(&INTEL, record.time, record.cpu, |passed| {
                    [
                        event.khz as f32 / 1e6,
                        event.to as f32,
                        load,
                        event.core_busy as f32,
                        event.scaled_busy as f32,
                        event.io_boost as f32,
                        passed as f32 / 1e6,
                        // Ticks divided by nanoseconds are GHz; NaN draws nothing.
                        if passed > 0 { event.tsc as f32 / passed as f32 } else { f32::NAN },
                    ]
                });
            }
            _ => {}
        }
    }

    fn sample<const N: usize>(
        &mut self,
        metrics: &'static [Metric; N],
        time: u64,
        cpu: u32,
        values: impl FnOnce(u64) -> [f32; N],
    ) {
        if !self.started {
            (self.started, self.metrics) = (true, metrics);
            self.start = if self.by_sample { 0 } else { time };
        }
        self.samples += 1;
        let x = if self.by_sample { self.samples } else { time };
        // A trace has the metrics of its first sample; samples of another driver would have other
        // columns.
        if cpu >= MAX_CPUS || self.metrics.len() != N {
            return;
        }
        let cpu = cpu as usize;
        if self.cpus.len() <= cpu {
            self.cpus.resize_with(cpu + 1, || None);
        }
        self.cpus[cpu]
            .get_or_insert_with(|| Box::new(CpuSeries { last: None, buckets: vec![Vec::new(); N] }));
        let place =
            |set: &SeriesSet| usize::try_from(x.saturating_sub(set.start) / set.width).unwrap_or(usize::MAX);
        let mut at = place(self);
        loop {
            // All metrics of a CPU have equally many buckets.
            let have = self.cpus[cpu].as_ref().map_or(0, |series| series.buckets[0].len());
            // A CPU's buckets are filled up to the index, so a first record late in the trace needs
            // as many as all before.
            let more = at.saturating_add(1).saturating_sub(have).saturating_mul(N);
            if at < MAX_EACH && self.used.saturating_add(more) <= MAX {
                self.used += more;
                break;
            }
            // A damaged time: doubling would overflow before it fits.
            if self.width > 1 << 62 {
                return;
            }
            self.widen();
            at = place(self);
        }
        let Some(series) = &mut self.cpus[cpu] else { return };
        // A CPU's first record covers time before the trace; the kernel's tracers skip it too.
        let Some(passed) = series.last.replace(time).map(|last| time.saturating_sub(last)) else { return };
        for (buckets, value) in series.buckets.iter_mut().zip(values(passed)) {
            if buckets.len() <= at {
                buckets.resize(at + 1, Bucket::EMPTY);
            }
            buckets[at].add(value);
        }
    }

    fn widen(&mut self) {
        self.width *= 2;
        // Count again, because a CPU's odd last bucket remains, so half the number would be wrong.
        self.used = 0;
        for buckets in self.cpus.iter_mut().flatten().flat_map(|series| &mut series.buckets) {
            let merged: Vec<Bucket> = buckets
                .chunks(2)
                .map(|pair| pair.get(1).map_or(pair[0], |second| pair[0].merge(*second)))
                .collect();
            *buckets = merged;
            self.used += buckets.len();
        }
    }

    /// The available metrics; none for a trace without requests.
    pub fn metrics(&self) -> &'static [Metric] {
        self.metrics
    }

    /// The CPUs that have values.
    pub fn cpus(&self) -> impl Iterator<Item = u32> + '_ {
        self.cpus.iter().enumerate().filter(|(_, series)| series.is_some()).map(|(cpu, _)| cpu as u32)
    }

    /// The intervals of one CPU and metric; they may end before those of another CPU.
    pub fn buckets(&self, cpu: u32, metric: usize) -> &[Bucket] {
        let series = self.cpus.get(cpu as usize).and_then(Option::as_ref);
        series.and_then(|series| series.buckets.get(metric)).map_or(&[], Vec::as_slice)
    }

    /// Length of the longest list of intervals.
    pub fn len(&self) -> usize {
        self.cpus.iter().flatten().map(|series| series.buckets[0].len()).max().unwrap_or(0)
    }

    /// Returns whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Joins intervals until all CPUs and metrics together have at most `most`.
    pub fn thin(&mut self, most: usize) {
        // At least 64 intervals: a plot of a thousand CPUs must still show a curve.
        while self.len() * self.cpus().count() * self.metrics.len() > most && self.len() > 64 {
            self.widen();
        }
    }

    /// Minimum and maximum of one metric over all CPUs.
    pub fn range(&self, metric: usize) -> Option<(f32, f32)> {
        let all = self.cpus.iter().flatten().flat_map(|series| &series.buckets[metric]);
        let range = all.copied().reduce(Bucket::merge)?;
        (!range.is_empty()).then_some((range.min, range.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Comm;
    use crate::events::AmdPerf;

    fn record(time: u64, cpu: u32, des: u32) -> Record {
        let event =
            Event::AmdPerf(AmdPerf { des, cpu, khz: 1_000_000, mperf: 1, tsc: 2, ..AmdPerf::default() });
        Record { time, cpu, pid: 0, comm: Comm::default(), flags: 0, preempt: 0, event }
    }

    #[test]
    fn extremes_survive_any_thinning() {
        let mut set = SeriesSet::default();
        for step in 0..200_000u64 {
            set.add(&record(5_000_000_000 + step * 1_000_000, (step % 3) as u32, 100));
            if step == 77_777 {
                set.add(&record(5_000_000_000 + step * 1_000_000, 1, 255));
                set.add(&record(5_000_000_000 + step * 1_000_000, 1, 1));
            }
        }
        assert!(set.len() <= MAX_EACH && set.len() > MAX_EACH / 4, "{}", set.len());
        set.thin(3 * 5 * 500);
        assert!(set.len() <= 500);
        assert_eq!(set.range(1), Some((1.0, 255.0)));
        let at = (77_777 * 1_000_000 / set.width) as usize;
        assert_eq!(set.buckets(1, 1)[at], Bucket { min: 1.0, max: 255.0 });
        assert_eq!(set.buckets(0, 1)[at], Bucket { min: 100.0, max: 100.0 });
        assert_eq!(set.cpus().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(set.range(2), Some((50.0, 50.0)));
    }

    proptest::proptest! {
        #[test]
        fn no_sample_is_lost_by_thinning(
            steps in proptest::collection::vec((1u64..1 << 34, 0u32..3, 0u32..256), 2..400),
            most in 64usize..4096,
            by_sample: bool,
        ) {
            let mut set = if by_sample { SeriesSet::by_sample() } else { SeriesSet::default() };
            let mut time = 7_000_000_000;
            let mut kept = Vec::new();
            let mut seen = std::collections::HashSet::new();
            for (number, (step, cpu, des)) in steps.iter().enumerate() {
                time += step;
                set.add(&record(time, *cpu, *des));
                // A CPU's first sample covers time before the trace.
                if !seen.insert(*cpu) {
                    kept.push((if by_sample { number as u64 + 1 } else { time }, *cpu, *des));
                }
            }
            set.thin(most);
            // Each sample is within its interval's minimum and maximum, and both are samples of the
            // interval.
            let mut filled = 0;
            for cpu in 0..3 {
                for (at, bucket) in set.buckets(cpu, 1).iter().enumerate().filter(|(_, bucket)| !bucket.is_empty()) {
                    let inside = kept.iter().filter(|(x, of, _)| {
                        *of == cpu && ((x - set.start) / set.width) as usize == at
                    });
                    let values: Vec<f32> = inside.map(|(_, _, des)| *des as f32).collect();
                    filled += values.len();
                    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
                    let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    proptest::prop_assert_eq!((bucket.min, bucket.max), (least, most));
                }
            }
            proptest::prop_assert_eq!(filled, kept.len());
        }
    }

    #[test]
    fn hundreds_of_cpus_stay_in_bounds() {
        let mut set = SeriesSet::default();
        for step in 0..300_000u64 {
            set.add(&record(step * 50_000, (step % 512) as u32, 100));
        }
        set.add(&record(u64::MAX, 3, 7));
        let held: usize = set.cpus.iter().flatten().flat_map(|series| &series.buckets).map(Vec::len).sum();
        assert!(held <= MAX, "{held}");
    }
}
