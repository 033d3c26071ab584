//! Whether a change is a step between two runs or goes on over many: a blocked fan warms a machine
//! for minutes before it is throttled, and none of its runs is the one at which it shifted.
//!
//! Both are fitted to the values themselves (outliers cut off): a step at the best split, and every
//! ramp, level before and after, on a grid. The ramp has one more parameter, so it must fit clearly
//! better.

use std::ops::Range;

use super::neighbours;
use crate::stats;

/// Number of grid points for the start and the end of a ramp.
const GRID: usize = 120;

/// The fewest runs on either side of a step. A split needs more: if three runs at an end are far
/// off, the best split has two others on their side.
const FEWEST: usize = 3;

/// Returns the runs of the change; for a step, an empty range at `split`. Two steps in one
/// direction roughly fit a ramp: then it returns the larger one.
pub(super) fn fit(values: &[f64], split: usize, shortest: usize) -> Range<usize> {
    let ramp = fit_one(values, split, shortest);
    let steps = two_steps(values, &ramp, shortest).filter(|steps| steps.gain > 3.0);
    steps.map_or(ramp, |steps| {
        let larger = if steps.share < 0.5 { steps.runs.end } else { steps.runs.start };
        larger..larger
    })
}

/// Two steps in one direction.
struct Steps {
    /// The runs between them.
    runs: Range<usize>,
    /// The first step's share of the whole change.
    share: f64,
    /// How much better than the ramp they fit, as [`gain`] counts it.
    gain: f64,
}

fn two_steps(values: &[f64], ramp: &Range<usize>, shortest: usize) -> Option<Steps> {
    if ramp.is_empty() {
        return None;
    }
    let count = values.len();
    let sums = Sums::new(&clipped(values));
    let stride = count.div_ceil(GRID);
    let mut best: Option<(Range<usize>, f64, f64)> = None;
    for from in (shortest..count - shortest).step_by(stride) {
        for to in (from + shortest..=count - shortest).step_by(stride) {
            let Some((share, rest)) = sums.two_steps(&(from..to)) else { continue };
            if best.as_ref().is_none_or(|(.., least)| rest < *least) {
                best = Some((from..to, share, rest));
            }
        }
    }
    let (runs, share, rest) = best?;
    Some(Steps { runs, share, gain: gain(sums.rest(ramp), rest, count) })
}

/// Returns how much better the second fit is, in units of Schwarz's penalty (BIC) for one more
/// parameter. A fit with more parameters must be better by three, because neighbours are often
/// similar.
fn gain(simple: f64, other: f64, count: usize) -> f64 {
    let ratio = simple / other.max(f64::MIN_POSITIVE);
    (count as f64) * ratio.ln() / (count as f64).ln()
}

/// Finds the one step or ramp that fits best.
fn fit_one(values: &[f64], split: usize, shortest: usize) -> Range<usize> {
    let count = values.len();
    let split = step_near(values, split, shortest);
    let step = split..split;
    // Too few values for two levels and a ramp between them.
    if count < 4 * shortest {
        return step;
    }
    let values = clipped(values);
    let sums = Sums::new(&values);
    // Every pair of ends on the grid is tried: about 7000 fits of constant time, whatever the
    // length of the series.
    let stride = count.div_ceil(GRID);
    let mut best = (split..split, sums.rest(&(split..split)));
    for from in (0..count).step_by(stride) {
        // A shorter ramp is a step with a run or two on its way.
        let least = from + shortest.max(count / 40);
        for to in (least..=count).step_by(stride) {
            let rest = sums.rest(&(from..to));
            if rest < best.1 {
                best = (from..to, rest);
            }
        }
    }
    if best.0.is_empty() || gain(sums.rest(&step), best.1, count) <= 3.0 {
        return step;
    }
    // A level of a few runs at either end is part of the ramp.
    let edge = shortest.max(count / 20);
    let from = if best.0.start < edge { 0 } else { best.0.start };
    let to = if count - best.0.end < edge { count } else { best.0.end };
    // A few far runs at an end fit a short ramp by chance.
    if (from == 0 || to == count) && to - from < 2 * shortest { step } else { from..to }
}

/// Returns the position near `split` where a step fits best. Splits are found by ranks, which do
/// not know how far apart two levels are, so chance moves the best split by a run or two. A step
/// that is one run off fits worse than a short ramp.
pub(super) fn step_near(values: &[f64], split: usize, shortest: usize) -> usize {
    let count = values.len();
    if count < 2 * shortest {
        return split;
    }
    let sums = Sums::new(&clipped(values));
    let around = shortest.max(count / 40);
    let near = split.saturating_sub(around).max(FEWEST)..=(split + around).min(count - FEWEST);
    near.min_by(|a, b| sums.rest(&(*a..*a)).total_cmp(&sums.rest(&(*b..*b)))).unwrap_or(split)
}

/// How far each run has gone from the first level to the second, by the step or ramp near `split`.
pub(super) fn shares(values: &[f64], split: usize, shortest: usize) -> Vec<f64> {
    let ramp = fit_one(values, split, shortest);
    // Runs that resemble their neighbours fit two steps too, so these must fit far better here.
    match two_steps(values, &ramp, shortest).filter(|steps| steps.gain > 9.0) {
        Some(Steps { runs, share, .. }) => {
            let gone =
                |run: usize| if runs.contains(&run) { share } else { f64::from(u8::from(run >= runs.end)) };
            (0..values.len()).map(gone).collect()
        }
        None => shares_of(&ramp, values.len()),
    }
}

fn shares_of(ramp: &Range<usize>, count: usize) -> Vec<f64> {
    let share = |run: usize| {
        let passed = run as f64 + 0.5 - ramp.start as f64;
        if ramp.is_empty() {
            f64::from(u8::from(run >= ramp.start))
        } else {
            (passed / ramp.len() as f64).clamp(0.0, 1.0)
        }
    };
    (0..count).map(share).collect()
}

/// How much worse than the best one a possible change may fit, as twice the logarithm of the
/// likelihood ratio. By simulation: `the_named_runs_hold_the_change`.
const POSSIBLE: f64 = 7.0;

/// The runs between which the change lies at 95 %, be it a step or a ramp: from the first possible
/// beginning to the last possible end. `change` is the one that fits best.
pub(super) fn region(values: &[f64], change: &Range<usize>) -> Range<usize> {
    let count = values.len();
    let values = clipped(values);
    let sums = Sums::new(&values);
    let rest = neighbours::around(&values, &shares_of(change, count));
    // Runs that resemble their neighbours count as fewer.
    let correlation = neighbours::correlation_around_means(&rest).unwrap_or(0.0).clamp(0.0, 0.98);
    let weight = (1.0 + correlation) / (1.0 - correlation);
    let mut around = GRID / 4;
    loop {
        let near = change.start.saturating_sub(around)..(change.end + around).min(count);
        let stride = near.len().div_ceil(GRID).max(1);
        let mut fits = vec![(change.clone(), sums.rest(change))];
        let places: Vec<usize> = near.clone().step_by(stride).chain([near.end]).collect();
        for (index, &from) in places.iter().enumerate() {
            // Over a single run, a ramp is a step.
            let ends = places[index..].iter().filter(|to| **to != from + 1);
            fits.extend(ends.map(|&to| (from..to, sums.rest(&(from..to)))));
        }
        let least = fits.iter().map(|(_, rest)| *rest).fold(f64::INFINITY, f64::min);
        let most = least.max(f64::MIN_POSITIVE) * (POSSIBLE * weight / count as f64).exp();
        let possible = fits.iter().filter(|(_, rest)| *rest <= most);
        let found =
            possible.fold(change.clone(), |all, (one, _)| all.start.min(one.start)..all.end.max(one.end));
        let is_inside = |end: usize, edge: usize| end != edge || edge == 0 || edge == count;
        if is_inside(found.start, near.start) && is_inside(found.end, near.end) {
            return found;
        }
        around *= 2;
    }
}

/// Returns the values, clamped to their 2 % and 98 % quantiles: a fit by least squares follows
/// outliers.
fn clipped(values: &[f64]) -> Vec<f64> {
    let low = stats::quantile(values, 0.02).unwrap_or(f64::NEG_INFINITY);
    let high = stats::quantile(values, 0.98).unwrap_or(f64::INFINITY);
    values.iter().map(|value| value.clamp(low, high)).collect()
}

/// Running sums, so that each ramp's fit takes constant time.
struct Sums {
    /// Sums of the values before each index. `moment` sums index times value.
    value: Vec<f64>,
    moment: Vec<f64>,
    square: f64,
}

impl Sums {
    fn new(values: &[f64]) -> Sums {
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let mut sums = Sums { value: vec![0.0], moment: vec![0.0], square: 0.0 };
        let (mut value, mut moment) = (0.0, 0.0);
        for (index, one) in values.iter().enumerate() {
            // Centred before summing: with values near 1e9 (counters) the squares would cancel.
            let one = one - mean;
            value += one;
            moment += index as f64 * one;
            sums.square += one * one;
            sums.value.push(value);
            sums.moment.push(moment);
        }
        sums
    }

    /// Returns, for two steps at the ends of these runs, the first step's share of the change and
    /// the remaining squares. `None` if the steps go in different directions.
    fn two_steps(&self, runs: &Range<usize>) -> Option<(f64, f64)> {
        let count = self.value.len() - 1;
        let part = |from: usize, to: usize| (self.value[to] - self.value[from], (to - from) as f64);
        let parts = [part(0, runs.start), part(runs.start, runs.end), part(runs.end, count)];
        let [first, between, last] = parts.map(|(sum, count)| sum / count);
        let share = (between - first) / (last - first);
        let explained: f64 = parts.iter().map(|(sum, count)| sum * sum / count).sum();
        (0.0 < share && share < 1.0).then(|| (share, (self.square - explained).max(0.0)))
    }

    /// The residual of a ramp over these runs: the sum of squares around the best levels. The ramp
    /// is 0 before, 1 after, and (index - from + 1/2) / length between; an empty one is a step.
    fn rest(&self, ramp: &Range<usize>) -> f64 {
        let count = (self.value.len() - 1) as f64;
        let (from, to) = (ramp.start, ramp.end);
        let length = (to - from) as f64;
        let after = count - to as f64;
        // Sums of the ramp, its square, and its product with the values.
        let (mut sum, mut square) = (after, after);
        let total = self.value[self.value.len() - 1];
        let mut product = total - self.value[to];
        if length > 0.0 {
            sum += length / 2.0;
            // The sum of ((j - 1/2) / L)^2 over j = 1..L.
            square += length / 3.0 - 1.0 / (12.0 * length);
            let offset = 0.5 - from as f64;
            product +=
                (self.moment[to] - self.moment[from] + offset * (self.value[to] - self.value[from])) / length;
        }
        // The ramp's own sum of squares around its mean; least squares explains product^2 / spread.
        let spread = square - sum * sum / count;
        if spread <= 0.0 {
            return self.square;
        }
        // The values are centred, so their mean takes nothing from the product.
        (self.square - product * product / spread).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_distr::{Distribution, StandardNormal};

    use super::*;

    /// Steps and ramps in the middle, at the ends and over the whole series, found or not.
    #[test]
    fn the_named_runs_hold_the_change() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(3);
        for count in [20, 60, 150] {
            let middle = count / 2;
            for (from, to) in
                [(middle, middle), (count - 6, count - 6), (count / 4, 3 * count / 4), (0, count)]
            {
                for size in [3.0, 6.0, 10.0] {
                    let shares = shares_of(&(from..to), count);
                    let mut holds = || {
                        let mut noise = || -> f64 { StandardNormal.sample(&mut rng) };
                        let values: Vec<f64> = shares.iter().map(|share| size * share + noise()).collect();
                        let found = region(&values, &fit(&values, usize::midpoint(from, to), 5));
                        found.start <= from && to <= found.end
                    };
                    let held = (0..200).filter(|_| holds()).count();
                    println!("{count} runs, {size} over {from}..{to}: {held} of 200");
                    assert!(held >= 180, "{count} {from}..{to} {size}: {held}");
                }
            }
        }
    }

    #[test]
    fn a_step_is_a_step_and_a_ramp_has_its_ends() {
        let wobble = |run: usize| 0.05 * (run as f64 * 12.9898).sin();
        let step: Vec<f64> = (0..400).map(|run| if run < 105 { 2.0 } else { 1.0 } + wobble(run)).collect();
        assert!(fit(&step, 105, 5).is_empty());
        let ramp = |run: usize| ((run as f64 - 240.0) / 60.0).clamp(0.0, 1.0) + wobble(run);
        let found = fit(&(0..400).map(ramp).collect::<Vec<f64>>(), 270, 5);
        assert!(found.start.abs_diff(240) <= 10 && found.end.abs_diff(300) <= 10, "{found:?}");
        let slope: Vec<f64> = (0..200).map(|run| run as f64 * 0.01 + wobble(run)).collect();
        assert_eq!(fit(&slope, 100, 5), 0..200);
        // A single wild value makes no ramp.
        let wild: Vec<f64> =
            step.iter().enumerate().map(|(run, value)| if run == 300 { 90.0 } else { *value }).collect();
        assert!(fit(&wild, 105, 5).is_empty());
    }
}
