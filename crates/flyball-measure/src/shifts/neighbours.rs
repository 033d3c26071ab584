//! Runs that resemble their neighbours wander, and a random order of them does not. A change
//! counts only if it is also larger than such wandering.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::stats::{self, NORMAL_MEDIAN_DISTANCE};

/// Correction for the number of ways to choose a change, as a fraction of them: most ways nearly
/// agree. Half of them keeps the rates of docs/dev/sentences.md.
const INDEPENDENT_WAYS: f64 = 0.5;

/// The correlation of neighbours; `None` if all values are zero, such as the residuals of two
/// constant levels.
pub(super) fn correlation(rest: &[f64]) -> Option<f64> {
    let square: f64 = rest.iter().map(|r| r * r).sum();
    let of_neighbours = rest.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
    (square > f64::EPSILON).then(|| of_neighbours / square)
}

/// The correlation of neighbours after two means were subtracted.
pub(super) fn correlation_around_means(rest: &[f64]) -> Option<f64> {
    let correlation = correlation(rest)?;
    // Each of the two subtracted means makes the estimate too low by (1 + 3 r) over the number of
    // values (Marriott and Pope 1954).
    Some(correlation + 2.0 * (1.0 + 3.0 * correlation.max(0.0)) / rest.len() as f64)
}

/// [`correlation_around_means`], raised by a standard error: an estimate that is too low finds
/// changes that are none.
pub(super) fn raised_correlation(rest: &[f64]) -> Option<f64> {
    correlation_raised_by(rest, 1.0)
}

/// [`correlation_around_means`], raised by this many standard errors.
fn correlation_raised_by(rest: &[f64], errors: f64) -> Option<f64> {
    let raised = correlation_around_means(rest)? + errors / (rest.len() as f64).sqrt();
    Some(raised.clamp(0.0, 0.98))
}

/// The residuals of two levels. `shares` has how far each run has gone from the first level to the
/// second.
pub(super) fn around(values: &[f64], shares: &[f64]) -> Vec<f64> {
    let plain = Fit::new(values, shares, 0.0);
    let count = values.len() as f64;
    let middle = (values.iter().sum::<f64>() - plain.height * shares.iter().sum::<f64>()) / count;
    values.iter().zip(shares).map(|(value, share)| value - middle - plain.height * share).collect()
}

/// How likely an autoregression of first order makes a change this large. `shares` has how far
/// each run has gone from the first level to the second, and was chosen from so many `ways`.
pub(super) fn chance(values: &[f64], shares: &[f64], ways: usize) -> f64 {
    change_chance(values, shares, 1.0, |_| 1.0, (ways as f64 * INDEPENDENT_WAYS).max(1.0))
}

/// Like [`chance`], for probabilities far below one in a thousand. There it matters how uncertain
/// the correlation is: correlated runs weigh as fewer, and every way counts.
pub(super) fn rare_chance(values: &[f64], shares: &[f64], ways: f64) -> f64 {
    change_chance(values, shares, 1.0, |correlation| (1.0 - correlation) / (1.0 + correlation), ways)
}

/// Like [`rare_chance`], for a step, which is compared with how far runs move from one to the next.
/// The correlation is the highest plausible one, so that few runs which happen to be alike do not
/// hide a far larger step.
pub(super) fn rare_step_chance(values: &[f64], shares: &[f64], ways: f64) -> f64 {
    change_chance(values, shares, 3.0, |_| 0.5, ways)
}

/// Raises the correlation by this many standard `errors`. `weight` returns how much a run weighs in
/// the degrees of freedom, by the correlation.
fn change_chance(values: &[f64], shares: &[f64], errors: f64, weight: impl Fn(f64) -> f64, ways: f64) -> f64 {
    let values = clipped(values, shares);
    let square: f64 = values.iter().map(|value| value * value).sum();
    let plain = Fit::new(&values, shares, 0.0);
    // The levels have no scatter.
    if plain.rest <= 1e-12 * square {
        return if plain.height == 0.0 { 1.0 } else { 0.0 };
    }
    let count = values.len() as f64;
    let correlation = correlation_raised_by(&around(&values, shares), errors).unwrap_or(0.0);
    let fit = Fit::new(&values, shares, correlation);
    // Two levels and the correlation are fitted.
    let freedom = count - 3.0;
    let deviate = fit.height.abs() * (fit.spread * freedom / fit.rest).sqrt();
    let p = StudentsT::new(0.0, 1.0, freedom * weight(correlation)).map_or(1.0, |t| 2.0 * t.sf(deviate));
    (p * ways).min(1.0)
}

/// The values, clamped to three deviations around their level.
fn clipped(values: &[f64], shares: &[f64]) -> Vec<f64> {
    let level = |after: bool| {
        let side = values.iter().zip(shares).filter(|(_, share)| (**share >= 0.5) == after);
        stats::median(&side.map(|(value, _)| *value).collect::<Vec<f64>>()).unwrap_or(0.0)
    };
    let (before, after) = (level(false), level(true));
    let fitted: Vec<f64> = shares.iter().map(|share| before + (after - before) * share).collect();
    let distances: Vec<f64> =
        values.iter().zip(&fitted).map(|(value, fitted)| (value - fitted).abs()).collect();
    let most = 3.0 * stats::median(&distances).unwrap_or(0.0) / NORMAL_MEDIAN_DISTANCE;
    // With few distinct values, most have no distance, and all others would be clamped.
    if most == 0.0 {
        return values.to_vec();
    }
    values.iter().zip(fitted).map(|(value, fitted)| value.clamp(fitted - most, fitted + most)).collect()
}

/// Returns the part of a run that the run before it does not predict. The first run has none before
/// it (Prais and Winsten 1954).
pub(super) fn added(of: impl Fn(usize) -> f64, run: usize, correlation: f64) -> f64 {
    match run {
        0 => (1.0 - correlation * correlation).sqrt() * of(0),
        _ => of(run) - correlation * of(run - 1),
    }
}

/// Generalised least squares of two levels, with errors that follow a first-order autoregression.
struct Fit {
    /// The second level over the first.
    height: f64,
    /// The sum of squares of the shares around their mean.
    spread: f64,
    /// The residual sum of squares.
    rest: f64,
}

impl Fit {
    fn new(values: &[f64], shares: &[f64], correlation: f64) -> Fit {
        let new = |of: &dyn Fn(usize) -> f64, run: usize| added(of, run, correlation);
        let (mut one, mut share, mut value) = (0.0, 0.0, 0.0);
        let (mut shares_squared, mut product, mut values_squared) = (0.0, 0.0, 0.0);
        for run in 0..values.len() {
            let (a, b, c) = (new(&|_| 1.0, run), new(&|run| shares[run], run), new(&|run| values[run], run));
            one += a * a;
            share += a * b;
            value += a * c;
            shares_squared += b * b;
            product += b * c;
            values_squared += c * c;
        }
        let spread = shares_squared - share * share / one;
        let of_both = product - share * value / one;
        let height = if spread > 0.0 { of_both / spread } else { 0.0 };
        let rest = (values_squared - value * value / one - height * of_both).max(0.0);
        Fit { height, spread, rest }
    }
}
