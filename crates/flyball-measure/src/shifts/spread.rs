//! Changes of spread: the runs vary more, or less, from some run on, around whatever level they
//! have.

use rand::Rng;

use super::{
    Chance, Form, Options, Shift, best_split, neighbours, normal_scores, permutation_test, temporary, ways,
};
use crate::stats::{self, NORMAL_MEDIAN_DISTANCE};

/// Returns the changes of spread of a series around its levels, in order. `shifts` are the changes
/// of the level.
///
/// At a new level, the spread may stay equal as a number or as a share of the level, and neither is
/// a change. So if values are positive, only a spread that changes in both ways counts.
pub(super) fn find(
    values: &[f64],
    shifts: &[Shift],
    options: &Options,
    alpha: f64,
    rng: &mut impl Rng,
) -> Vec<Shift> {
    let levels = levels(values, shifts);
    let rest: Vec<f64> = values.iter().zip(&levels).map(|(value, level)| value - level).collect();
    // Runs that resemble their neighbours wander away from the level and back. What each of them
    // adds to the run before it does not.
    let correlation = neighbours::correlation(&rest).unwrap_or(0.0).max(0.0);
    let added = |run: usize| neighbours::added(|run| rest[run], run, correlation);
    let distances: Vec<f64> = (0..rest.len()).map(|run| added(run).abs()).collect();
    let mut edges = edges(&distances, options, alpha, rng);
    if !edges.is_empty() && values.iter().all(|value| *value > 0.0) {
        let shares: Vec<f64> =
            distances.iter().zip(&levels).map(|(distance, level)| distance / level).collect();
        let of_shares = self::edges(&shares, options, alpha, rng);
        let near = (values.len() / 20).max(10);
        edges.retain(|edge| {
            of_shares.iter().any(|other| other.at.abs_diff(edge.at) <= near && other.rises == edge.rises)
        });
    }
    edges.retain(|edge| !is_of_level(edge, &rest, shifts, options));
    let deviation = |range: std::ops::Range<usize>| {
        let distances: Vec<f64> = rest[range].iter().map(|rest| rest.abs()).collect();
        stats::median(&distances).unwrap_or(f64::NAN) / NORMAL_MEDIAN_DISTANCE
    };
    let shifts = edges.iter().enumerate().map(|(index, &Edge { at, p, .. })| {
        let before = index.checked_sub(1).map_or(0, |index| edges[index].at)..at;
        let after = at..edges.get(index + 1).map_or(values.len(), |next| next.at);
        Shift {
            form: Form::Spread,
            at,
            within: None,
            median_before: deviation(before.clone()),
            median_after: deviation(after.clone()),
            before,
            after,
            p,
        }
    });
    // If half of the rounded values are equal, their typical distance is 0 and says nothing.
    shifts.filter(|shift| shift.median_before > 0.0 && shift.median_after > 0.0).collect()
}

/// Where distances change.
struct Edge {
    at: usize,
    rises: bool,
    p: f64,
}

/// Returns whether a change of spread belongs to a change of level: it is near one whose place is
/// not known exactly, or three far runs at an end cause it.
fn is_of_level(edge: &Edge, rest: &[f64], shifts: &[Shift], options: &Options) -> bool {
    let mut places = shifts.iter().filter_map(|shift| shift.within.as_ref());
    let is_near =
        places.any(|within| within.start < within.end && (within.start..=within.end).contains(&edge.at));
    let distances: Vec<f64> = rest.iter().map(|rest| rest.abs()).collect();
    let far = 3.0 * stats::median(&distances).unwrap_or(0.0) / NORMAL_MEDIAN_DISTANCE;
    let (wide, last) =
        if edge.rises { (&rest[edge.at..], &rest[rest.len() - 3..]) } else { (&rest[..edge.at], &rest[..3]) };
    wide.len() <= 3 * options.shortest
        && (is_near || last.iter().all(|rest| *rest > far) || last.iter().all(|rest| *rest < -far))
}

/// Where distances change, in order.
fn edges(distances: &[f64], options: &Options, alpha: f64, rng: &mut impl Rng) -> Vec<Edge> {
    let mut found: Vec<(usize, f64)> = Vec::new();
    // Two searches share the chance.
    let chance = Chance { alpha: alpha / 2.0, permutations: options.permutations };
    let mut open = Vec::from([(0, distances.len())]);
    while let Some((start, end)) = open.pop() {
        let scores = normal_scores(&distances[start..end]);
        let Some((split, best)) = best_split(&scores, options.shortest) else { continue };
        let inside = &distances[start..end];
        let p = permutation_test(&scores, chance, rng, |shuffled| {
            best_split(shuffled, options.shortest).is_some_and(|(_, other)| other >= best)
        });
        let shares: Vec<f64> = (0..inside.len()).map(|run| f64::from(u8::from(run >= split))).collect();
        let ways = ways(inside.len(), options);
        if let Some(p) = p.and_then(|p| chance.with_neighbours(p, inside, &shares, ways)) {
            found.push((start + split, p));
            open.push((start, start + split));
            open.push((start + split, end));
        } else if let Some((inner, p)) = temporary::test(inside, &scores, options, chance, rng) {
            found.push((start + inner.start, p));
            found.push((start + inner.end, p));
            // The rest has three levels, usually with too few runs each to show a further change.
            open.push((start + inner.start, start + inner.end));
        }
    }
    found.sort_by_key(|(at, _)| *at);
    let places: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
    let median = |range: std::ops::Range<usize>| stats::median(&distances[range]).unwrap_or(0.0);
    let edges = found.iter().enumerate().map(|(index, &(at, p))| {
        let from = index.checked_sub(1).map_or(0, |index| places[index]);
        let to = places.get(index + 1).copied().unwrap_or(distances.len());
        Edge { at, rises: median(at..to) > median(from..at), p }
    });
    edges.collect()
}

/// The level of each run: the median between two changes; while a drift goes on, which no line
/// describes exactly, the median of the neighbours.
fn levels(values: &[f64], shifts: &[Shift]) -> Vec<f64> {
    let median = |range: std::ops::Range<usize>| stats::median(&values[range]).unwrap_or(f64::NAN);
    let mut levels = vec![f64::NAN; values.len()];
    let mut from = 0;
    for shift in shifts {
        let (start, end) = (shift.before.end.max(from), shift.after.start);
        levels[from..start].fill(median(from..start));
        for (run, level) in levels.iter_mut().enumerate().take(end).skip(start) {
            let near = run.saturating_sub(2)..(run + 3).min(values.len());
            let others: Vec<f64> = near.filter(|other| *other != run).map(|other| values[other]).collect();
            *level = stats::median(&others).unwrap_or(values[run]);
        }
        from = end.max(start);
    }
    let count = values.len();
    levels[from..].fill(median(from..count));
    levels
}

/// Subtracts from the scores the mean of their side.
pub(super) fn around_means(scores: &[f64], split: usize) -> Vec<f64> {
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let (left, right) = (mean(&scores[..split]), mean(&scores[split..]));
    scores.iter().enumerate().map(|(i, score)| score - if i < split { left } else { right }).collect()
}
