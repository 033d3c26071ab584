//! How sure it is that a series has a shift of its level at all: for thousands of series, of which few may be named by chance.
//!
//! Permutations cannot show a probability of one in a million in any reasonable time, and that much is needed where ten thousand
//! series are searched. So the rank-sum test of the best split, which has an exact null distribution, is multiplied by the
//! number of splits that it was chosen from (Bonferroni). This is valid for exchangeable values. Runs may be similar to their
//! neighbours, and in a short series that hardly shows: the deviate is made smaller by the number of values that weigh as one, with
//! a correlation that is not estimated too low.

use statrs::distribution::{ContinuousCDF, Normal};

use super::{OF_SPLITS, Options, best_split, correlation, normal_scores, spread::around_means, temporary};
use crate::stats;

/// The share of the chance that runs in the middle get.
const OF_MIDDLE: f64 = 1.0 - OF_SPLITS;

/// The probability that a series of one level looks as uneven as this one, at most.
pub fn evidence(values: &[f64], options: &Options) -> f64 {
    if values.iter().any(|value| !value.is_finite()) {
        return 1.0;
    }
    let scores = normal_scores(values);
    let mut p: f64 = 1.0;
    let Some((split, _)) = best_split(&scores, options.shortest) else { return p };
    let rest = around_means(&scores, split);
    let splits = (values.len() - 2 * options.shortest + 1) as f64;
    p = p.min(of_sides(&values[..split], &values[split..], &rest, splits / OF_SPLITS));
    if let Some((middle, ranges)) = temporary::widest(&scores, options.shortest) {
        let outside: Vec<f64> = values[..middle.start].iter().chain(&values[middle.end..]).copied().collect();
        let mut rest = around_means(&scores[..middle.end], middle.start);
        rest.extend_from_slice(&scores[middle.end..]);
        p = p.min(of_sides(&values[middle], &outside, &rest, ranges as f64 / OF_MIDDLE));
    }
    p
}

/// Values of a first-order autoregression that weigh as one, above which the exact distribution of independent ones says nothing.
const EXACT_WEIGHT: f64 = 5.0 / 3.0;

/// The probability of two sides this different, times the number of ways in which they were chosen.
fn of_sides(a: &[f64], b: &[f64], rest: &[f64], ways: f64) -> f64 {
    let weight = weight(rest);
    let quick = stats::rank_sum_normal(a, b).unwrap_or(1.0);
    // Most series have no shift, and need no exact number.
    let exact = weight <= EXACT_WEIGHT && quick * ways < 0.2;
    let p = if exact { stats::rank_sum_tail(a, b).unwrap_or(1.0) } else { quick };
    let normal = Normal::standard();
    let deviate = normal.inverse_cdf(p / 2.0).abs();
    (2.0 * normal.sf(deviate / weight.sqrt()) * ways).min(1.0)
}

/// How many neighbours weigh as one independent value.
fn weight(rest: &[f64]) -> f64 {
    let Some(correlation) = correlation(rest) else { return 1.0 };
    let count = rest.len() as f64;
    // Of each of the two means that were taken out, the estimate is too low by (1 + 3 r) over the number of values (Marriott and
    // Pope 1954). Half a standard error more, because what is too low names series that have no shift.
    let raised = correlation + 2.0 * (1.0 + 3.0 * correlation.max(0.0)) / count + 0.5 / count.sqrt();
    let correlation = raised.clamp(0.0, 0.98);
    (1.0 + correlation) / (1.0 - correlation)
}
