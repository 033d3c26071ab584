//! How sure it is that a series has a shift of its level: for searches of thousands of series, few
//! of which may be named by chance.
//!
//! Permutations cannot show a probability of one in a million in reasonable time, and searches of
//! ten thousand series need that. So the p-value of a test of the best split is multiplied by the
//! number of splits that it was chosen from (Bonferroni). If runs hardly depend on their
//! neighbours, this is the rank-sum test, which has an exact null distribution. If they do, ranks
//! cannot show how far two sides are apart. Then, and if counting ranks takes too long, it is a t
//! test of trimmed means (Yuen 1974, with one variance for both sides), in which several dependent
//! values count as one. The correlation of neighbours is estimated rather too high, because a low
//! estimate names series without a shift.

use statrs::distribution::{ContinuousCDF, Normal};

use super::{
    Options, SPLIT_SHARE, best_split, neighbours, normal_scores, shape, spread::around_means, temporary,
};
use crate::stats;

/// The share of the chance that ramps and two steps get.
const SLOW_SHARE: f64 = 0.05;

/// The share of the chance that runs in the middle get.
const MIDDLE_SHARE: f64 = 1.0 - SPLIT_SHARE - SLOW_SHARE;

/// Upper bound of the probability that a series of one level looks as uneven as this one.
pub fn evidence(values: &[f64], options: &Options) -> f64 {
    if values.iter().any(|value| !value.is_finite()) {
        return 1.0;
    }
    let scores = normal_scores(values);
    let mut p: f64 = 1.0;
    let Some((split, _)) = best_split(&scores, options.shortest) else { return p };
    let rest = around_means(&scores, split);
    let splits = super::ways(values.len(), options) as f64;
    let (before, after) = values.split_at(split);
    p = p.min(sides_chance(before, after, &rest, splits / SPLIT_SHARE));
    // In few runs, neighbours can be alike by chance. That must not hide a step that is far larger
    // than the distances between neighbours. One step fitted to a ramp or to two steps leaves
    // residuals that are alike in neighbouring runs, even if the runs are independent.
    let ranks_p = sides_chance(before, after, &[], splits / SPLIT_SHARE);
    if ranks_p < p {
        let shares = shape::shares(values, split, options.shortest);
        let is_slow = shares.iter().any(|share| 0.0 < *share && *share < 1.0);
        let (part, chance) = if is_slow {
            (SLOW_SHARE, neighbours::rare_chance(values, &shares, splits / SLOW_SHARE))
        } else {
            (SPLIT_SHARE, neighbours::rare_step_chance(values, &shares, splits / SPLIT_SHARE))
        };
        p = p.min(chance.max(ranks_p * SPLIT_SHARE / part));
    }
    if let Some((middle, ranges)) = temporary::widest(&scores, options.shortest) {
        let outside: Vec<f64> = values[..middle.start].iter().chain(&values[middle.end..]).copied().collect();
        let mut rest = around_means(&scores[..middle.end], middle.start);
        rest.extend_from_slice(&scores[middle.end..]);
        p = p.min(sides_chance(&values[middle], &outside, &rest, ranges as f64 / MIDDLE_SHARE));
    }
    p
}

/// If more dependent values than this count as one, the distribution of independent values does not
/// apply: a correlation of 0.25.
const DEPENDENT: f64 = 5.0 / 3.0;

/// The probability of two sides this different, times the number of ways in which they were chosen.
fn sides_chance(a: &[f64], b: &[f64], rest: &[f64], ways: f64) -> f64 {
    let weight = weight(rest);
    let of_means = || stats::trimmed_t(a, b, weight).unwrap_or(1.0);
    if weight > DEPENDENT {
        return (of_means() * ways).min(1.0);
    }
    let quick = stats::rank_sum_normal(a, b).unwrap_or(1.0);
    // Most series have no shift, and need no exact number.
    let p = if quick * ways < 0.2 { stats::rank_sum_tail(a, b) } else { Some(quick) };
    let Some(p) = p else { return (of_means() * ways).min(1.0) };
    let normal = Normal::standard();
    let deviate = normal.inverse_cdf(p / 2.0).abs();
    (2.0 * normal.sf(deviate / weight.sqrt()) * ways).min(1.0)
}

/// How many neighbours count as one independent value.
fn weight(rest: &[f64]) -> f64 {
    let Some(correlation) = neighbours::raised_correlation(rest) else { return 1.0 };
    (1.0 + correlation) / (1.0 - correlation)
}
