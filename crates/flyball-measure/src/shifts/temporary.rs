//! Changes that go back: some runs in the middle differ from those before and after them. No single
//! split shows these well, because both of its sides hold some of both.
//!
//! Every pair of ends is scored as a split is (circular binary segmentation, Olshen and others
//! 2004).

use std::ops::Range;

use super::{Chance, GLITCH_SHARE, Options, permutation_test, shape};
use crate::stats;

/// Number of grid points for the ends: about 2000 pairs, whatever the length of the series.
const GRID: usize = 64;

/// Returns the runs in the middle that differ most, with their p-value, if they count.
pub(super) fn test(
    values: &[f64],
    scores: &[f64],
    options: &Options,
    chance: Chance,
    rng: &mut impl rand::Rng,
) -> Option<(Range<usize>, f64)> {
    let count = scores.len();
    let shortest = options.shortest;
    let stride = count.div_ceil(GRID).max(1);
    let (coarse, score) = best(scores, shortest, stride)?;
    let inside = stats::mean(&scores[coarse.clone()])?;
    let away = [&scores[..coarse.start], &scores[coarse.end..]]
        .map(|part| stats::mean(part).map_or(0.0, |mean| mean - inside));
    // If one end is a step and the other is chance, the series does not go back.
    if away[0] * away[1] <= 0.0 || 3.0 * away[0].abs().min(away[1].abs()) < away[0].abs().max(away[1].abs()) {
        return None;
    }
    let p = permutation_test(scores, chance, rng, |shuffled| {
        best(shuffled, shortest, stride).is_some_and(|(_, other)| other >= score)
    })?;
    // Up and down again, each fitted as a step or a ramp.
    let middle = usize::midpoint(coarse.start, coarse.end);
    let mut shares = shape::shares(&values[..middle], coarse.start, shortest);
    let back = shape::shares(&values[middle..], coarse.end - middle, shortest);
    shares.extend(back.into_iter().map(|share| 1.0 - share));
    let p = chance.with_neighbours(p, values, &shares, ranges(count, shortest, stride))?;
    Some((finer(scores, &coarse, shortest, stride), p))
}

/// Three runs or a few more in a row that lie farther from all others than those do from each
/// other, with the probability that so many runs are neighbours in a random order. Neighbours that
/// resemble each other do not make such a gap.
pub(super) fn glitch(values: &[f64], options: &Options) -> Option<(Range<usize>, f64)> {
    let count = values.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let of_length = |length: usize| {
        // The lowest, or the highest.
        [order.split_at(length), (&order[count - length..], &order[..count - length])]
            .into_iter()
            .enumerate()
            .find_map(|(is_high, (few, others))| {
                let [low, high] = [others[0], others[others.len() - 1]].map(|run| values[run]);
                let gap = if is_high == 1 { values[few[0]] - high } else { low - values[few[length - 1]] };
                let (from, to) = (*few.iter().min()?, *few.iter().max()? + 1);
                (gap > high - low && to - from == length).then(|| (from..to, neighbours(count, length)))
            })
    };
    let found = (3..=2 * options.shortest).filter(|length| 4 * length < count).find_map(of_length);
    found.filter(|(_, p)| *p <= options.alpha * GLITCH_SHARE)
}

/// The probability that so many runs are neighbours in a random order.
fn neighbours(count: usize, length: usize) -> f64 {
    let orders = (1..=length).map(|i| (count - length + i) as f64 / i as f64).product::<f64>();
    (count - length + 1) as f64 / orders
}

/// Returns how many runs at an end of `count` are too few to be a change by themselves, however far
/// they lie.
pub fn too_few_at_end(count: usize, options: &Options) -> usize {
    let is_found =
        |length: &usize| 4 * length < count && neighbours(count, *length) <= options.alpha * GLITCH_SHARE;
    (3..options.shortest).find(is_found).unwrap_or(options.shortest) - 1
}

/// The range that differs most on the grid, and the number of ranges on it.
pub(super) fn widest(scores: &[f64], shortest: usize) -> Option<(Range<usize>, usize)> {
    let count = scores.len();
    let stride = count.div_ceil(GRID).max(1);
    let (range, _) = best(scores, shortest, stride)?;
    Some((range, ranges(count, shortest, stride)))
}

/// The number of ranges on a grid.
fn ranges(count: usize, shortest: usize, stride: usize) -> usize {
    let ends = |from: usize| (from + shortest..=count - shortest).step_by(stride).count();
    (shortest..=count - 2 * shortest).step_by(stride).map(ends).sum()
}

/// Sums of the scores before each index.
fn sums(scores: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    std::iter::once(0.0)
        .chain(scores.iter().map(|score| {
            sum += score;
            sum
        }))
        .collect()
}

/// The standardised difference between the runs of a range and all others, squared; as the score of
/// a split.
fn score(sums: &[f64], from: usize, to: usize) -> f64 {
    let count = sums.len() - 1;
    let inside = sums[to] - sums[from];
    let length = to - from;
    inside * inside / (length as f64 * (count - length) as f64)
}

/// The best range on a grid, with enough runs in it and on either side.
fn best(scores: &[f64], shortest: usize, stride: usize) -> Option<(Range<usize>, f64)> {
    let count = scores.len();
    if count < 3 * shortest || shortest == 0 {
        return None;
    }
    let sums = sums(scores);
    let mut best = (0..0, 0.0);
    for from in (shortest..=count - 2 * shortest).step_by(stride) {
        for to in (from + shortest..=count - shortest).step_by(stride) {
            let score = score(&sums, from, to);
            if score > best.1 {
                best = (from..to, score);
            }
        }
    }
    (best.1 > 0.0).then_some(best)
}

/// The best range near a range of the grid.
fn finer(scores: &[f64], coarse: &Range<usize>, shortest: usize, stride: usize) -> Range<usize> {
    let count = scores.len();
    let sums = sums(scores);
    let around = |at: usize| at.saturating_sub(stride).max(shortest)..=(at + stride).min(count - shortest);
    let mut found = (coarse.clone(), 0.0);
    for from in around(coarse.start) {
        for to in around(coarse.end).filter(|to| *to >= from + shortest) {
            let score = score(&sums, from, to);
            if score > found.1 {
                found = (from..to, score);
            }
        }
    }
    found.0
}
