//! Changes that go back: some runs in the middle differ from those before and after them. No single
//! split shows these well, because both of its sides hold some of both.
//!
//! Every pair of ends is scored as a split is (circular binary segmentation, Olshen and others
//! 2004).

use std::ops::Range;

use super::{Chance, Options, permutation_test, shape};

/// Number of places on the grid of ends: about 2000 pairs, whatever the length of the series.
const GRID: usize = 64;

/// The runs in the middle that differ most, with how likely that is by chance, if it counts.
pub(super) fn test(
    scores: &[f64],
    options: &Options,
    chance: Chance,
    rng: &mut impl rand::Rng,
) -> Option<(Range<usize>, f64)> {
    let count = scores.len();
    let shortest = options.shortest;
    let stride = count.div_ceil(GRID).max(1);
    let (coarse, score) = best(scores, shortest, stride)?;
    // What is left when both of its edges are taken out, as steps or ramps, is noise, and says how
    // much belongs together.
    let middle = usize::midpoint(coarse.start, coarse.end);
    let left = shape::rest(&scores[..middle], coarse.start, shortest);
    let right = shape::rest(&scores[middle..], coarse.end - middle, shortest);
    let rest: Vec<f64> = left.into_iter().chain(right).collect();
    let p = permutation_test(scores, &rest, chance, rng, |shuffled| {
        best(shuffled, shortest, stride).is_some_and(|(_, other)| other >= score)
    })?;
    Some((finer(scores, &coarse, shortest, stride), p))
}

/// The range that differs most on the grid, and the number of ranges on it.
pub(super) fn widest(scores: &[f64], shortest: usize) -> Option<(Range<usize>, usize)> {
    let count = scores.len();
    let stride = count.div_ceil(GRID).max(1);
    let (range, _) = best(scores, shortest, stride)?;
    let ends = |from: usize| (from + shortest..=count - shortest).step_by(stride).count();
    let ranges = (shortest..=count - 2 * shortest).step_by(stride).map(ends).sum();
    Some((range, ranges))
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

/// The best range near one of the grid.
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
