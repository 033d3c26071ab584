//! How an arm's values are distributed: their rounding step, and levels or rounds apart from the
//! others.

use std::collections::BTreeSet;

use super::report::{Origin, Summary};
use crate::stats;

/// An arm with fewer different values does not show how it is rounded.
const DIFFERENT: usize = 3;

/// Returns how many digits a value has without zeros at its end, and the power of ten of its first
/// digit. Values may have been scaled, as from nanoseconds to seconds, which leaves noise behind
/// the twelfth digit.
fn digits(value: f64) -> Option<(i32, i32)> {
    let text = format!("{value:.11e}");
    let (mantissa, exponent) = text.split_once('e')?;
    let digits = mantissa.trim_end_matches('0').split_once('.')?.1.len();
    Some((1 + digits as i32, exponent.parse().ok()?))
}

fn are_different(sorted: &[f64]) -> bool {
    sorted.chunk_by(|one, other| one == other).nth(DIFFERENT - 1).is_some()
}

/// Returns the rounding step of arms' values, as a fraction of the smallest value: their last
/// digit, or the least distance of two values of an arm if values repeat, as with a coarse clock.
/// The step of a mean of cases is the mean of their steps, and work over energy has the steps of
/// both. None if it is not known.
pub(super) fn step(arms: &[&Summary]) -> Option<f64> {
    let first = arms.first()?;
    let is_rate = first.metric.is_rate();
    let of = |values: &mut dyn Iterator<Item = Vec<f64>>, origin: Origin, is_rate: bool| {
        step_of(&mut values.collect::<Vec<_>>(), origin, is_rate)
    };
    let own = of(&mut arms.iter().map(|arm| arm.values()), first.origin, is_rate)?;
    let printed = of(&mut arms.iter().map(|arm| arm.printed.1.clone()), first.printed.0, is_rate)?;
    let joules = of(&mut arms.iter().map(|arm| arm.joules.clone()), first.origin, false)?;
    let watts = if first.origin == Origin::Measured { 0.0 } else { step_of_watts(arms)? };
    let computed = (1.0 + printed) * (1.0 + joules.max(watts)) - 1.0;
    let case = |name: &String| {
        of(&mut arms.iter().filter_map(|arm| arm.cases.get(name).cloned()), first.origin, is_rate)
    };
    let cases: Option<Vec<f64>> = first.cases.keys().map(case).collect();
    Some(own.max(computed).max(stats::mean(&cases?).unwrap_or(0.0)))
}

/// The step of the readings of power meters, as a fraction of the least mean of a round. The mean
/// over a round has more digits and is no more exact, unless its readings scatter.
fn step_of_watts(arms: &[&Summary]) -> Option<f64> {
    let names: BTreeSet<&String> = arms.iter().flat_map(|arm| arm.watts.keys()).collect();
    let of_meter = |name| {
        let own: Vec<&Vec<Vec<u64>>> = arms.iter().filter_map(|arm| arm.watts.get(name)).collect();
        step_of_readings(&own)
    };
    names.into_iter().map(of_meter).try_fold(0.0, |most: f64, step| Some(most.max(step?)))
}

fn step_of_readings(arms: &[&Vec<Vec<u64>>]) -> Option<f64> {
    let mut all: Vec<u64> = arms.iter().flat_map(|rounds| rounds.iter().flatten()).copied().collect();
    if all.is_empty() {
        return Some(0.0);
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    let step = match all[..] {
        // Readings are multiples of the step.
        [one, other] => greatest_divisor(one, other),
        _ => all.windows(2).map(|pair| pair[1] - pair[0]).min()?,
    } as f64;
    if all.len() == count || arms.iter().all(|rounds| is_dithered(rounds, step)) {
        return Some(0.0);
    }
    let mean = |round: &Vec<u64>| stats::mean(&round.iter().map(|one| *one as f64).collect::<Vec<_>>());
    let least = arms.iter().flat_map(|rounds| rounds.iter().filter_map(mean)).min_by(f64::total_cmp)?;
    Some((step / least).min(1.0))
}

/// Returns whether readings scattered by half a step or more before they were rounded. If the noise
/// was normal, rounding then moves their mean by at most 0.3 % of a step. The distances from the
/// mean must show it, and so must those between neighbours: readings on two steps can come from a
/// load without scatter, and if a load has two levels, each is rounded by itself.
fn is_dithered(rounds: &[Vec<u64>], step: f64) -> bool {
    // The square of half a step, and the variance that rounding adds.
    const LEAST: f64 = 0.25 + 1.0 / 12.0;
    let in_steps = |reading: &u64| *reading as f64 / step;
    let all: Vec<f64> = rounds.iter().flatten().map(in_steps).collect();
    let middle = stats::mean(&all).unwrap_or_default();
    let away: Vec<f64> = all.iter().map(|one| (one - middle).powi(2)).collect();
    let half_square = |pair: &[u64]| (in_steps(&pair[1]) - in_steps(&pair[0])).abs().min(2.0).powi(2) / 2.0;
    let apart: Vec<f64> = rounds.iter().flat_map(|round| round.windows(2).map(half_square)).collect();
    [away, apart].iter().all(|squares| stats::mean(squares).is_some_and(|mean| mean >= LEAST))
}

/// Returns the step of values of several arms. Rates are work divided by the time of a clock: the
/// higher they are, the further apart lie the clock's ticks.
pub(super) fn step_of(all: &mut [Vec<f64>], origin: Origin, is_rate: bool) -> Option<f64> {
    if origin == Origin::Exact {
        return Some(0.0);
    }
    let is_measured = origin == Origin::Measured;
    for values in &mut *all {
        values.sort_by(f64::total_cmp);
    }
    let mut pool = all.concat();
    pool.sort_by(f64::total_cmp);
    let Some(least) = pool.first().copied().filter(|least| *least > 0.0) else { return Some(0.0) };
    let distances =
        |sorted: &[f64]| -> Vec<f64> { sorted.windows(2).map(|pair| pair[1] - pair[0]).collect() };
    let shortest = |all: Vec<f64>| all.into_iter().filter(|one| *one > 0.0).min_by(f64::total_cmp);
    let Some(of_pool) = shortest(distances(&pool)) else { return is_measured.then_some(0.0) };
    // For arms in which values repeat: the least value, and the shortest distance of two values.
    // For rates, `scaled` converts the distance to an arm's own least value.
    let tick_of = |values: &Vec<f64>| {
        let all = distances(values);
        all.contains(&0.0).then(|| Some((values[0], shortest(all)?))).flatten()
    };
    let known: Vec<(f64, f64)> = all.iter().filter_map(tick_of).collect();
    let scaled = |least: f64| {
        let scale = |(of, tick): &(f64, f64)| if is_rate { tick * (least / of).powi(2) } else { *tick };
        known.iter().map(scale).min_by(f64::total_cmp)
    };
    let relative = |values: &Vec<f64>| Some(scaled(*values.first()?)? / values.first()?);
    // Values are multiples of the step, so it is at most the least of them.
    let tick = all.iter().filter_map(relative).max_by(f64::total_cmp).map(|tick| tick.min(1.0));
    if is_measured {
        return Some(tick.unwrap_or(0.0));
    }
    // Two arms of one value each lie one step apart at least.
    let is_shown = tick.is_some() || all.iter().any(|values| are_different(values));
    let of_two = || (if is_rate { of_pool } else { divisor(&pool).unwrap_or(of_pool) } / least).min(1.0);
    let tick = tick.or_else(|| (!is_shown).then(of_two)).unwrap_or(0.0);
    // 99.7 and 100 can have three digits each, so the last digit of 100 can be that of the ones.
    let most = pool.iter().filter_map(|value| Some(digits(*value)?.0)).max()?;
    let last = |values: &Vec<f64>| {
        let ends = values.iter().filter_map(|value| digits(*value).map(|(digits, first)| first + 1 - digits));
        let written = ends.min().filter(|_| are_different(values));
        Some(written.unwrap_or(i32::MIN).max(digits(*values.last()?)?.1 + 1 - most))
    };
    let digit = |values: &Vec<f64>| Some(10.0_f64.powi(last(values)?) / values.first()?);
    all.iter().filter_map(digit).chain([tick]).max_by(f64::total_cmp)
}

/// Returns the largest number of which all values are multiples.
fn divisor(values: &[f64]) -> Option<f64> {
    let ends = values.iter().map(|value| digits(*value).map(|(digits, first)| first + 1 - digits));
    let end = ends.collect::<Option<Vec<i32>>>()?.into_iter().min()?;
    let unit = 10.0_f64.powi(end);
    let whole = values.iter().map(|value| (value / unit).round() as u64);
    Some(whole.reduce(greatest_divisor)? as f64 * unit)
}

fn greatest_divisor(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// The two levels of an arm's values, each with its number of rounds. The gap between them is twice
/// as wide as either level. By chance, 0.1 to 0.7 % of arms with ten rounds have such a gap
/// (normal, exponential and uniform noise), and 1 to 4 % of arms with six.
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
    // Values rounded to whole milliseconds, or to a clock's ticks, can lie on two sides of a
    // border.
    let step = 1.5 * step_of(&mut [sorted.clone()], Origin::Measured, false).unwrap_or(0.0) * sorted[0];
    let is_rounding = sorted[at] - sorted[at - 1] < step;
    // Levels closer than 0.01 do not matter, and coarse clocks have them.
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
        let step = |arms: [&[f64]; 2]| step_of(&mut arms.map(<[f64]>::to_vec), Origin::Printed, false);
        assert_eq!(step([&[12300.0, 12200.0, 12400.0], &[12300.0, 12500.0, 12400.0]]), Some(100.0 / 12200.0));
        assert_eq!(step([&[99.5, 99.7, 99.6], &[100.0, 102.0, 101.0]]), Some(1.0 / 100.0));
        // Three digits across a power of ten: 100 may be 100.4.
        assert_eq!(step([&[99.7, 99.6, 99.8], &[100.0; 3]]), Some(1.0 / 100.0));
        assert_eq!(step([&[99.7, 99.9, 100.0], &[99.7, 99.8, 99.9]]), Some(1.0 / 99.7));
        assert_eq!(step([&[99.7, 99.9, 100.2], &[99.7, 99.8, 99.9]]), Some(0.1 / 99.7));
        // A clock of 64 Hz.
        assert_eq!(step([&[156.25; 3], &[156.25, 171.875, 171.875]]), Some(0.1));
        assert_eq!(step([&[156.25; 3], &[171.875; 3]]), Some(0.1));
        // Rates by a clock of milliseconds: 200 is 5 ms, and 6 ms would be 167.
        let slow = [1000.0 / 50.0, 1000.0 / 50.0, 1000.0 / 51.0];
        let found = step_of(&mut [vec![200.0; 3], slow.to_vec()], Origin::Printed, true).expect("a step");
        assert!((0.17..0.22).contains(&found), "{found}");
        // One value in each arm: multiples of the step, which is not above the least.
        assert_eq!(step([&[5.0; 3], &[7.0; 3]]), Some(0.2));
        assert_eq!(step([&[5.0; 3], &[50.0; 3]]), Some(1.0));
        assert_eq!(step([&[17.0; 3], &[1_000_003.0; 3]]), Some(1.0 / 17.0));
        assert_eq!(
            step_of(&mut [vec![100.0; 3], vec![100.0, 300.0, 300.0]], Origin::Exact, false),
            Some(0.0)
        );
        for equal in [156.25, 12300.0, 1000.0, 0.1] {
            assert_eq!(step([&[equal; 8], &[equal; 8]]), None);
            assert_eq!(step_of(&mut [vec![equal; 8]], Origin::Measured, false), Some(0.0));
        }
    }
}
