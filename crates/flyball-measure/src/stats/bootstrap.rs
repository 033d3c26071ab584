//! Confidence intervals by resampling: the bias-corrected and accelerated bootstrap (Efron 1987).

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use statrs::distribution::{ContinuousCDF, Normal};

use super::order::sorted_quantile;

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

    /// Both ends through `change`, which must be increasing.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Interval {
        Interval { low: change(self.low), high: change(self.high) }
    }
}

/// The interval that holds `statistic` of the population with probability `level` (0.99), from
/// `resamples` draws with a generator seeded by `seed`.
///
/// `None` of fewer than two values. Where the correction is not defined (all draws on one side of
/// the estimate, or a jackknife without spread) it falls back to plain percentiles, as it must.
pub fn bootstrap(
    values: &[f64],
    statistic: impl Fn(&[f64]) -> f64,
    level: f64,
    resamples: usize,
    seed: u64,
) -> Option<Interval> {
    if values.len() < 2 || resamples == 0 {
        return None;
    }
    // A fixed algorithm, not rand's StdRng: that one may change with a release of rand, and a
    // stored run must give the same report with every later flyball.
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut draw = vec![0.0; values.len()];
    let mut draws: Vec<f64> = (0..resamples)
        .map(|_| {
            draw.fill_with(|| values[random.random_range(0..values.len())]);
            statistic(&draw)
        })
        .collect();
    // Plain total order: a NaN of `statistic` sorts to the end and does not panic.
    draws.sort_by(f64::total_cmp);
    let estimate = statistic(values);
    let tail = (1.0 - level) / 2.0;
    // Without a correction this is the percentile interval (Efron and Tibshirani 1993, chapter 13).
    let (low, high) = corrected(values, &statistic, &draws, estimate, tail).unwrap_or((tail, 1.0 - tail));
    Some(Interval { low: sorted_quantile(&draws, low)?, high: sorted_quantile(&draws, high)? })
}

/// The two quantiles to take instead of `tail` and `1 - tail`.
fn corrected(
    values: &[f64],
    statistic: &impl Fn(&[f64]) -> f64,
    sorted: &[f64],
    estimate: f64,
    tail: f64,
) -> Option<(f64, f64)> {
    let normal = Normal::standard();
    // Draws equal to the estimate count half, so that a statistic with few values (a median) is not
    // biased.
    let below = sorted.partition_point(|draw| *draw < estimate) as f64;
    let up_to = sorted.partition_point(|draw| *draw <= estimate) as f64;
    let share = f64::midpoint(below, up_to) / sorted.len() as f64;
    if share <= 0.0 || share >= 1.0 {
        return None;
    }
    // z0 of Efron and Tibshirani (1993), equation 14.14: how far the draws' centre is from the
    // estimate, in normal units. The same as `scipy.stats.bootstrap(method="BCa")`, which counts
    // ties by half too.
    let bias = normal.inverse_cdf(share);
    let mut rest = Vec::with_capacity(values.len());
    // The jackknife: how skewed the statistic is shows in what each single value does to it.
    let left_out: Vec<f64> = (0..values.len())
        .map(|out| {
            rest.clear();
            rest.extend(
                values.iter().enumerate().filter(|(index, _)| *index != out).map(|(_, value)| *value),
            );
            statistic(&rest)
        })
        .collect();
    let centre = left_out.iter().sum::<f64>() / left_out.len() as f64;
    let squares: f64 = left_out.iter().map(|value| (centre - value).powi(2)).sum();
    let cubes: f64 = left_out.iter().map(|value| (centre - value).powi(3)).sum();
    if squares <= 0.0 {
        return None;
    }
    // Equation 14.15: the skewness of the jackknife, a sixth of it, says how the spread changes
    // with the value.
    let acceleration = cubes / (6.0 * squares.powf(1.5));
    let place = |tail: f64| {
        // Equation 14.10. A negative denominator turns the ends around; the check below then
        // refuses the correction.
        let z = bias + normal.inverse_cdf(tail);
        normal.cdf(bias + z / (1.0 - acceleration * z))
    };
    let (low, high) = (place(tail), place(1.0 - tail));
    // A large acceleration turns the ends around; such a correction is worse than none.
    (low.is_finite() && high.is_finite() && low < high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::{super::median, *};

    #[test]
    fn covers_the_median_as_often_as_it_says() {
        // Normal rounds of 12; 95 % intervals; the true median is 0. Small samples cost a little
        // coverage.
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let normal = Normal::standard();
        let trials = 400;
        let covered = (0..trials)
            .filter(|trial| {
                let values: Vec<f64> =
                    (0..12).map(|_| normal.inverse_cdf(random.random_range(1e-9..1.0))).collect();
                bootstrap(&values, |v| median(v).unwrap_or(f64::NAN), 0.95, 400, *trial)
                    .is_some_and(|interval| interval.contains(0.0))
            })
            .count();
        let share = covered as f64 / trials as f64;
        assert!((0.90..=0.99).contains(&share), "{share}");
    }

    #[test]
    fn equal_values_make_a_point() {
        let interval = bootstrap(&[2.0; 5], |v| median(v).unwrap_or(f64::NAN), 0.99, 100, 1);
        assert_eq!(interval, Some(Interval { low: 2.0, high: 2.0 }));
        assert_eq!(bootstrap(&[2.0], |v| v[0], 0.99, 100, 1), None);
    }
}
