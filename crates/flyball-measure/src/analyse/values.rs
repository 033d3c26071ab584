//! How the values of an arm lie: the steps in which they come, and levels or rounds apart from the
//! others.

use super::report::Summary;
use crate::stats;

/// An arm with fewer different values does not show how it is rounded.
const DIFFERENT: usize = 3;

/// Returns the unit of the last digit other than 0 that any of these values has. Zeros at all ends
/// may be digits too, but a step that is too large makes no difference where there is none. Values
/// may have been scaled, as from nanoseconds to seconds, which leaves noise behind the twelfth
/// digit.
fn last_digit(values: &[f64]) -> f64 {
    let exponent = |value: &f64| {
        let text = format!("{value:.11e}");
        let (mantissa, exponent) = text.split_once('e')?;
        let digits = mantissa.trim_end_matches('0').split_once('.')?.1.len();
        Some(exponent.parse::<i32>().ok()? - digits as i32)
    };
    let exponent = values.iter().filter_map(exponent).min().unwrap_or(0);
    10.0_f64.powi(exponent)
}

fn are_different(sorted: &[f64]) -> bool {
    sorted.chunk_by(|one, other| one == other).nth(DIFFERENT - 1).is_some()
}

/// The step in which the values of two arms come, as a fraction of the smallest: their last digit,
/// or the least distance of two values of an arm if values repeat, as those of a coarse clock do.
pub(super) fn step(arms: [&Summary; 2]) -> f64 {
    let of_cases = arms.map(|arm| arm.case_step);
    step_of(arms.map(Summary::values)).max(of_cases[0]).max(of_cases[1])
}

/// Returns the step of values of several arms.
pub(super) fn step_of<const N: usize>(mut all: [Vec<f64>; N]) -> f64 {
    for values in &mut all {
        values.sort_by(f64::total_cmp);
    }
    // An arm may be rounded more coarsely than another: 99.7 and 100 have three digits each.
    let digits = all.iter().filter(|values| are_different(values)).map(|values| last_digit(values));
    let digit = digits
        .max_by(f64::total_cmp)
        .unwrap_or_else(|| all.iter().map(|values| last_digit(values)).fold(f64::INFINITY, f64::min));
    let ticks = all.iter().filter_map(|values| {
        let distances = values.windows(2).map(|pair| pair[1] - pair[0]);
        let is_repeated = distances.clone().any(|distance| distance == 0.0);
        distances.filter(|distance| is_repeated && *distance > 0.0).min_by(f64::total_cmp)
    });
    let tick = ticks.min_by(f64::total_cmp).unwrap_or(0.0);
    let least = all.iter().filter_map(|values| values.first()).copied().fold(f64::INFINITY, f64::min);
    let step = digit.max(tick) / least;
    if step.is_finite() && step > 0.0 { step } else { 0.0 }
}

/// The two levels of an arm's values: each with how many rounds it has. The gap between them is
/// twice as wide as either level: of ten rounds without levels, 0.1 to 0.7 % have such a gap
/// (normal, exponential and uniform noise), of six 1 to 4 %.
pub(crate) fn two_levels(values: &[f64]) -> Option<[(f64, usize); 2]> {
    const LEAST: usize = 3;
    const ROUNDS: usize = 10;
    const WIDER: f64 = 2.0;
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| *value > 0.0).collect();
    if sorted.len() < ROUNDS {
        return None;
    }
    sorted.sort_by(f64::total_cmp);
    let logs: Vec<f64> = sorted.iter().map(|value| value.ln()).collect();
    let range = |logs: &[f64]| logs[logs.len() - 1] - logs[0];
    let gap = |at: usize| logs[at] - logs[at - 1];
    let at = (LEAST..(logs.len() + 1).saturating_sub(LEAST)).max_by(|a, b| gap(*a).total_cmp(&gap(*b)))?;
    let (low, high) = logs.split_at(at);
    // Values rounded to whole milliseconds, or to a clock's ticks, can lie on two sides of a border.
    let step = 1.5 * step_of([sorted.clone()]) * sorted[0];
    let is_rounding = sorted[at] - sorted[at - 1] < step;
    // 0.01: levels that lie closer are seen by nobody, and coarse clocks have them.
    let is_wide = gap(at) > (WIDER * range(low).max(range(high))).max(0.01);
    (is_wide && !is_rounding).then(|| {
        let level = |values: &[f64]| (stats::median(values).unwrap_or_default(), values.len());
        let (low, high) = sorted.split_at(at);
        [level(low), level(high)]
    })
}

/// Returns whether some rounds of an arm are far from the others, or have a level of their own:
/// verdicts are then about typical rounds.
pub(crate) fn is_uneven(summary: &Summary) -> bool {
    !summary.outliers.is_empty() || summary.is_judged && two_levels(&summary.values()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_to_hundreds_or_to_few_digits_is_a_step() {
        let hundreds = [vec![12300.0, 12200.0, 12400.0], vec![12300.0, 12500.0, 12400.0]];
        assert_eq!(step_of(hundreds), 100.0 / 12200.0);
        let digits = [vec![99.5, 99.7, 99.6], vec![100.0, 102.0, 101.0]];
        assert_eq!(step_of(digits), 1.0 / 99.5);
        let same = [vec![1000.0; 8], vec![1000.0; 8]];
        assert_eq!(step_of(same), 1.0);
        assert_eq!(step_of([vec![12300.0; 8], vec![12300.0; 8]]), 100.0 / 12300.0);
    }
}
