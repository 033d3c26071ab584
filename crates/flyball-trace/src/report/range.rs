//! Minimum, mean and maximum of a value, added up one sample at a time.

/// Minimum, mean and maximum of a value over its samples.
#[derive(Debug, Clone, Copy, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct Range {
    pub min: f64,
    /// Unweighted mean of the samples, as in the kernel's own scripts.
    pub mean: f64,
    pub max: f64,
}

/// Sums up integers. It takes three instructions per sample instead of ten for floating point, and
/// the sum is exact.
#[derive(Debug, Clone, Copy)]
pub(super) struct WholeMeter {
    min: u64,
    max: u64,
    sum: u128,
}

impl Default for WholeMeter {
    fn default() -> WholeMeter {
        // The first value replaces both, without a test in the loop.
        WholeMeter { min: u64::MAX, max: 0, sum: 0 }
    }
}

impl WholeMeter {
    #[inline]
    pub(super) fn add(&mut self, value: u64) {
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += u128::from(value);
    }

    #[inline]
    pub(super) fn add_all(&mut self, values: impl Iterator<Item = u64>) {
        let mut all = *self;
        values.for_each(|value| all.add(value));
        *self = all;
    }

    /// The range of `count` samples, in units of `unit`.
    pub(super) fn range(&self, count: u64, unit: f64) -> Option<Range> {
        (count > 0).then(|| Range {
            min: self.min as f64 / unit,
            mean: self.sum as f64 / unit / count as f64,
            max: self.max as f64 / unit,
        })
    }
}

/// Adds up loads, percent.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadMeter {
    min: f64,
    max: f64,
    sum: f64,
    count: u64,
}

impl Default for LoadMeter {
    fn default() -> LoadMeter {
        LoadMeter { min: f64::INFINITY, max: f64::NEG_INFINITY, sum: 0.0, count: 0 }
    }
}

impl LoadMeter {
    /// Adds a load, unless it is NaN.
    #[inline]
    pub(super) fn add(&mut self, load: f64) {
        if load.is_nan() {
            return;
        }
        // Plain comparisons are one instruction each; f64::min() and max() also order NaN.
        self.min = if load < self.min { load } else { self.min };
        self.max = if load > self.max { load } else { self.max };
        self.sum += load;
        self.count += 1;
    }

    #[inline]
    pub(super) fn add_all(&mut self, loads: impl Iterator<Item = f64>) {
        let mut all = *self;
        loads.for_each(|load| all.add(load));
        *self = all;
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn range(&self) -> Option<Range> {
        (self.count > 0).then(|| Range { min: self.min, mean: self.sum / self.count as f64, max: self.max })
    }
}

/// Load in percent; NaN if no time passed.
#[inline]
pub(super) fn load(mperf: u64, tsc: u64) -> f64 {
    if tsc > 0 { mperf as f64 * 100.0 / tsc as f64 } else { f64::NAN }
}
