//! Confidence intervals, in particular that of a median.

use statrs::distribution::{Binomial, DiscreteCDF};

#[derive(Debug, Clone, Copy, PartialEq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    pub fn half_width(self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Whether `value` is inside.
    pub fn contains(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Applies `change`, which must be increasing, to both ends.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Interval {
        Interval { low: change(self.low), high: change(self.high) }
    }
}

/// The interval between two of the values that holds the median of their population with at least
/// the probability `level` (0.99), whatever the distribution. `None` if there are too few values.
pub fn median_interval(values: &[f64], level: f64) -> Option<Interval> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // How many values lie below the median, each with a probability of one half: the sign test.
    let below = Binomial::new(0.5, sorted.len() as u64).ok()?;
    // 1 - 0.99 is rounded, and a probability that equals it must not be lost.
    let tail = (1.0 - level) / 2.0 * (1.0 + 1e-12);
    let place = (0..sorted.len()).take_while(|count| below.cdf(*count as u64) <= tail).count();
    let low = sorted.get(place.checked_sub(1)?)?;
    Some(Interval { low: *low, high: sorted[sorted.len() - place] })
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn the_median_lies_between_values() {
        let values = [3.0, 1.0, 2.0, 8.0, 5.0, 7.0, 6.0, 4.0];
        assert_eq!(median_interval(&values, 0.99), Some(Interval { low: 1.0, high: 8.0 }));
        assert_eq!(median_interval(&values, 0.9), Some(Interval { low: 2.0, high: 7.0 }));
        assert_eq!(median_interval(&values[1..], 0.99), None);
        assert_eq!(median_interval(&[], 0.99), None);
    }

    #[test]
    fn covers_the_median_as_often_as_it_says() {
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(7);
        // Cubes have heavy tails and the median 0.
        for count in [8, 15, 30, 100] {
            let covered = (0..2000).filter(|_| {
                let values: Vec<f64> =
                    (0..count).map(|_| random.random_range(-1.0_f64..1.0).powi(3)).collect();
                median_interval(&values, 0.99).is_some_and(|interval| interval.contains(0.0))
            });
            assert!(covered.count() >= 1970, "{count}");
        }
    }
}
