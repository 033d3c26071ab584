//! Durations in logarithmic buckets: quantiles of any number of values, within 3 %, in at most 15
//! KiB.

/// Counts of values by size.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    max: u64,
}

/// Buckets between one power of two and the next.
const STEPS: u32 = 32;

impl Histogram {
    fn bucket(value: u64) -> usize {
        let value = value.max(1);
        let octave = value.ilog2();
        // Small values have a bucket each: below 32 there are fewer values than steps.
        if octave < STEPS.ilog2() {
            return value as usize;
        }
        let step = (value >> (octave - STEPS.ilog2())) as u32 - STEPS;
        ((octave - STEPS.ilog2() + 1) * STEPS + step) as usize
    }

    /// The lower end of a bucket.
    fn floor(bucket: usize) -> u64 {
        let bucket = bucket as u64;
        let steps = u64::from(STEPS);
        if bucket < steps {
            return bucket;
        }
        (steps + bucket % steps) << (bucket / steps - 1)
    }

    pub(crate) fn add(&mut self, value: u64) {
        let bucket = Histogram::bucket(value);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.max = self.max.max(value);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// The value that this share of all values does not exceed, within a bucket's width.
    pub(crate) fn quantile(&self, share: f64) -> Option<u64> {
        let wanted = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= wanted {
                // The bucket's lower end, at most 1/32 (3 %) below the true quantile.
                return Some(Histogram::floor(bucket).min(self.max));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_three_percent() {
        let mut histogram = Histogram::default();
        for value in 1..=100_000u64 {
            histogram.add(value * 37);
        }
        for (share, value) in [(0.5, 50_000.0 * 37.0), (0.95, 95_000.0 * 37.0), (0.99, 99_000.0 * 37.0)] {
            let found = histogram.quantile(share).unwrap() as f64;
            assert!((found / value - 1.0).abs() < 0.033, "{share}: {found} for {value}");
        }
        assert_eq!((histogram.count(), histogram.max()), (100_000, 3_700_000));
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn buckets_start_where_they_say() {
        for value in [0, 1, 31, 32, 33, 63, 64, 1_000, u64::from(u32::MAX), u64::MAX] {
            let bucket = Histogram::bucket(value);
            assert!(Histogram::floor(bucket) <= value.max(1), "{value}");
            assert_eq!(Histogram::bucket(Histogram::floor(bucket)), bucket, "{value}");
        }
    }
}
