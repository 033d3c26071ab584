//! Where a series of runs shifted, how surely, and what shifted with it.
//!
//! Every split of the series is scored by the difference between the normal scores of its two sides
//! (a rank statistic: outliers weigh little, and nothing is lost on normal noise). The best split
//! counts when fewer than `alpha` of all permutations of the same values score as high. Values of
//! runs that follow each other are often similar; if they are, whole blocks are permuted, so that
//! slow wandering does not pass for a shift. A change that a ramp over many runs fits clearly
//! better than a step is reported as drift, with the runs over which it went (`shape`). Found
//! shifts split the series, and the parts are searched again. Where no split counts, runs in the
//! middle are compared with all others (`temporary`); at the end the spread around the levels is
//! searched in the same way (`spread`).
//!
//! `column_changes` names the metadata that moved at the same run.

mod column_changes;
mod evidence;
mod shape;
mod spread;
mod temporary;

pub use column_changes::{Column, ColumnChange, Values, column_changes};
pub use evidence::evidence;

use rand::{Rng, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal};

use crate::stats;

/// How to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The chance of finding a shift in a series that has none.
    pub alpha: f64,
    /// How many permutations decide.
    pub permutations: u32,
    /// The fewest runs on either side of a shift.
    pub shortest: usize,
    /// Seed of the permutations.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        // 1999 and the observed order are 2000: alpha of them is a whole number, 10. Two wild
        // values do not move the median of five runs.
        Options { alpha: 0.005, permutations: 1999, shortest: 5, seed: 1 }
    }
}

/// What kind of change a segment shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// From one level to another between two runs.
    Step,
    /// A slow movement: it begins at `at`, where `before` ends, and is over where `after` begins.
    Drift,
    /// The level stays, and the runs vary more or less: both medians are standard deviations.
    Spread,
}

/// How the chance of finding something where there is nothing is divided: splits, which are what
/// mostly happens, get half.
const OF_SPLITS: f64 = 0.5;
const OF_TEMPORARY: f64 = 0.25;
const OF_SPREAD: f64 = 0.25;

/// A change in a series.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct Shift {
    pub form: Form,
    /// Index of the first value of the change, counted from 0.
    pub at: usize,
    /// The segment before, as indexes; empty where a drift goes on from the start.
    pub before: std::ops::Range<usize>,
    /// The segment after, as indexes; empty where a drift goes on to the end.
    pub after: std::ops::Range<usize>,
    /// Median before; of a drift from the start on, of its first runs.
    pub median_before: f64,
    /// Median after; of a drift to the end, of its last runs.
    pub median_after: f64,
    /// The share of permutations that score as high.
    pub p: f64,
}

impl Shift {
    /// The runs that stand for before and after: the levels; where a drift follows on another
    /// change, as many runs before it as it takes; where there is nothing else, its own first and
    /// last tenth.
    pub fn sides(&self) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let few = Options::default().shortest;
        let (from, to) = (self.before.end, self.after.start);
        let tenth = ((to - from) / 10).max(few).min(to - from);
        let first = if self.before.len() >= few || from == to {
            self.before.clone()
        } else if from >= few {
            from - from.min((to - from).max(few))..from
        } else {
            from..from + tenth
        };
        let last = if self.after.len() >= few || from == to { self.after.clone() } else { to - tenth..to };
        (first, last)
    }
}

/// Finds the shifts of a series, in order.
pub fn find(values: &[f64], options: &Options) -> Vec<Shift> {
    if values.iter().any(|value| !value.is_finite()) {
        return Vec::new();
    }
    let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(options.seed);
    let mut found = Vec::new();
    let mut open = Vec::new();
    open.push(0..values.len());
    // Binary segmentation (Scott and Knott 1974): the order of segments does not matter for the
    // result's shifts, but it decides which random numbers a segment gets, so it is fixed.
    while let Some(segment) = open.pop() {
        let scores = normal_scores(&values[segment.clone()]);
        let mut change = |part: std::ops::Range<usize>, split: usize, p: f64| {
            let shape = shape::of(&values[part.clone()], split - part.start, options.shortest);
            let change = part.start + shape.start..part.start + shape.end;
            found.push((change.clone(), p, part));
            change
        };
        if let Some((split, p)) = test(&scores, options, &mut rng) {
            let change = change(segment.clone(), segment.start + split, p);
            open.push(segment.start..change.start);
            open.push(change.end..segment.end);
        } else if let Some((inner, p)) =
            temporary::test(&scores, options, Chance::of(options, OF_TEMPORARY), &mut rng)
        {
            let (from, to) = (segment.start + inner.start, segment.start + inner.end);
            let middle = usize::midpoint(from, to);
            let first = change(segment.start..middle, from, p);
            let second = change(middle..segment.end, to, p);
            open.push(segment.start..first.start);
            open.push(first.end..second.start);
            open.push(second.end..segment.end);
        }
    }
    // Segments were searched depth first, later ones before earlier ones.
    found.sort_by_key(|(change, ..)| change.start);
    let mut shifts = describe(values, &with_tails(values, found, options), options);
    // With few distinct values (a simulated machine's, a coarse clock's) their shares may change
    // and the usual one stays.
    let is_news = |shift: &Shift| {
        let (before, after) = (shift.median_before, shift.median_after);
        (after - before).abs() > 1e-9 * before.abs().max(after.abs())
    };
    shifts.retain(is_news);
    let of_spread = spread::find(values, &shifts, options, options.alpha * OF_SPREAD, &mut rng);
    shifts.extend(of_spread);
    shifts.sort_by_key(|shift| shift.at);
    shifts
}

/// What slows down to a level does so ever more slowly, and the last of it looks like further,
/// smaller changes: they are the tail of the drift before them.
fn with_tails(values: &[f64], found: Vec<Found>, options: &Options) -> Vec<Found> {
    // A twentieth of the series: heat settles exponentially, and a gap of more is a change of its
    // own.
    let near = options.shortest.max(values.len() / 20);
    let mean = |range: std::ops::Range<usize>| stats::mean(&values[range]).unwrap_or(0.0);
    // How far the values move over a change, between some runs on either side of its ends.
    let moved = |change: &std::ops::Range<usize>| {
        let few = options.shortest;
        let before = change.start.saturating_sub(few)..change.start.max(1);
        let after = change.end.min(values.len() - 1)..(change.end + few).min(values.len());
        mean(after) - mean(before)
    };
    let mut joined: Vec<Found> = Vec::new();
    for next in found {
        if let Some((change, p, segment)) = joined.last_mut() {
            let (first, then) = (moved(change), moved(&next.0));
            let follows = change.start < change.end && next.0.start.saturating_sub(change.end) <= near;
            if follows && first * then > 0.0 && then.abs() < first.abs() {
                change.end = next.0.end;
                *p = p.min(next.1);
                segment.end = segment.end.max(next.2.end);
                continue;
            }
        }
        joined.push(next);
    }
    joined
}

/// A change (empty for a step), its significance, and the segment that it was found in.
type Found = (std::ops::Range<usize>, f64, std::ops::Range<usize>);

/// Puts each change between its neighbours: localises steps again there, and takes the medians of
/// both sides.
fn describe(values: &[f64], found: &[Found], options: &Options) -> Vec<Shift> {
    let shifts = found.iter().enumerate().map(|(index, (change, p, _))| {
        let start = index.checked_sub(1).map_or(0, |index| found[index].0.end);
        let end = found.get(index + 1).map_or(values.len(), |next| next.0.start);
        let median = |range: std::ops::Range<usize>| stats::median(&values[range]).unwrap_or(f64::NAN);
        if change.is_empty() {
            let scores = normal_scores(&values[start..end]);
            // A split found while a later shift was still in the segment may be off; between its
            // neighbours it is placed again.
            let split = best_split(&scores, options.shortest).map(|(split, _)| split);
            let at = split.map_or(change.start, |split| {
                start + shape::step_near(&values[start..end], split, options.shortest)
            });
            return Shift {
                form: Form::Step,
                at,
                median_before: median(start..at),
                median_after: median(at..end),
                before: start..at,
                after: at..end,
                p: *p,
            };
        }
        let mut shift = Shift {
            form: Form::Drift,
            at: change.start,
            median_before: f64::NAN,
            median_after: f64::NAN,
            before: start..change.start,
            after: change.end..end,
            p: *p,
        };
        let (first, last) = shift.sides();
        (shift.median_before, shift.median_after) = (median(first), median(last));
        shift
    });
    shifts.collect()
}

/// The normal scores of the values' ranks, centred: what a normal sample of this size would look
/// like in this order.
fn normal_scores(values: &[f64]) -> Vec<f64> {
    let normal = Normal::standard();
    let count = values.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut scores = vec![0.0; count];
    let mut first = 0;
    while first < count {
        let mut last = first;
        while last + 1 < count && values[order[last + 1]] == values[order[first]] {
            last += 1;
        }
        // Ties share the middle rank.
        let rank = (first + last) as f64 / 2.0 + 1.0;
        // Van der Waerden's scores. n + 1, because the normal quantile of 1 is infinite.
        let score = normal.inverse_cdf(rank / (count as f64 + 1.0));
        for &index in &order[first..=last] {
            scores[index] = score;
        }
        first = last + 1;
    }
    let mean = scores.iter().sum::<f64>() / count.max(1) as f64;
    for score in &mut scores {
        *score -= mean;
    }
    scores
}

/// The split with the highest standardised difference, and that difference squared (up to the
/// scores' variance).
fn best_split(scores: &[f64], shortest: usize) -> Option<(usize, f64)> {
    let count = scores.len();
    if count < 2 * shortest || shortest == 0 {
        return None;
    }
    let mut sum = 0.0;
    let mut best = (0, -1.0);
    for (index, score) in scores[..count - shortest].iter().enumerate() {
        sum += score;
        let left = index + 1;
        if left < shortest {
            continue;
        }
        // The scores sum to 0, so the left sum is all that is needed: sum^2 / (k (n - k)) is, up to
        // constants, the squared two-sample statistic of this split.
        let score = sum * sum / (left as f64 * (count - left) as f64);
        if score > best.1 {
            best = (left, score);
        }
    }
    (best.1 > 0.0).then_some(best)
}

/// The best split of a segment with its significance, if it is significant.
fn test(scores: &[f64], options: &Options, rng: &mut impl Rng) -> Option<(usize, f64)> {
    let (split, score) = best_split(scores, options.shortest)?;
    let rest = spread::around_means(scores, split);
    let p = permutation_test(scores, &rest, Chance::of(options, OF_SPLITS), rng, |shuffled| {
        best_split(shuffled, options.shortest).is_some_and(|(_, other)| other >= score)
    })?;
    Some((split, p))
}

/// What a search may find by chance.
#[derive(Debug, Clone, Copy)]
struct Chance {
    /// How often.
    alpha: f64,
    /// How many permutations decide.
    permutations: u32,
}

impl Chance {
    fn of(options: &Options, share: f64) -> Chance {
        Chance { alpha: options.alpha * share, permutations: options.permutations }
    }
}

/// The share of permutations that score as high as what was seen, if it is at most `alpha`. `rest`
/// is what is left of the scores when that is taken out: its correlation says how many neighbours
/// are moved together.
fn permutation_test(
    scores: &[f64],
    rest: &[f64],
    Chance { alpha, permutations }: Chance,
    rng: &mut impl Rng,
    is_as_high: impl Fn(&[f64]) -> bool,
) -> Option<f64> {
    let block = block_length(rest);
    let mut shuffled = scores.to_vec();
    let mut blocks: Vec<usize> = (0..scores.len().div_ceil(block)).collect();
    // The order that was seen is one of the permutations, so that fewer of them could not show
    // alpha.
    let permutations = permutations.max((1.0 / alpha).ceil() as u32 - 1);
    // More than this many and p cannot be at most alpha: the search stops early, which most
    // segments do.
    let allowed = (alpha * f64::from(permutations + 1) + 1e-9).floor() as u32;
    let mut as_high = 1;
    for _ in 0..permutations {
        permute(scores, &mut shuffled, &mut blocks, block, rng);
        if is_as_high(&shuffled) {
            as_high += 1;
            if as_high > allowed {
                return None;
            }
        }
    }
    // (b + 1) / (B + 1), never 0 (Phipson and Smyth 2010).
    Some(f64::from(as_high) / f64::from(permutations + 1))
}

/// Shuffles whole blocks of `block` neighbours, from a random offset.
fn permute(scores: &[f64], shuffled: &mut Vec<f64>, blocks: &mut [usize], block: usize, rng: &mut impl Rng) {
    // Fisher-Yates. The blocks need not be reset before: any order is as good a start.
    for index in (1..blocks.len()).rev() {
        blocks.swap(index, rng.random_range(0..=index));
    }
    // Blocks that always began at the same runs would keep the same neighbours together in every
    // permutation.
    let offset = if block > 1 { rng.random_range(0..scores.len()) } else { 0 };
    shuffled.clear();
    for &chosen in blocks.iter() {
        for place in chosen * block..((chosen + 1) * block).min(scores.len()) {
            shuffled.push(scores[(place + offset) % scores.len()]);
        }
    }
}

/// How many neighbours belong together: 1 for independent values, more the slower they wander.
/// Judged by the correlation of neighbours in what is left without the change, so that a clean one
/// does not look like wandering.
fn block_length(rest: &[f64]) -> usize {
    let Some(correlation) = correlation(rest) else { return 1 };
    // Below two standard errors of an independent series the correlation cannot be distinguished
    // from none.
    if correlation < 2.0 / (rest.len() as f64).sqrt() {
        return 1;
    }
    // (1 + r) / (1 - r) is how many values of a first-order autoregression weigh as one independent
    // value; twice that, so that little correlation is left between blocks. At least eight blocks,
    // or there is nothing to permute.
    let length = ((1.0 + correlation) / (1.0 - correlation).max(0.02)).ceil() * 2.0;
    (length as usize).clamp(1, (rest.len() / 8).max(1))
}

/// The correlation of neighbours; `None` of values that are all zero, such as what is left of two
/// constant levels.
fn correlation(rest: &[f64]) -> Option<f64> {
    let square: f64 = rest.iter().map(|r| r * r).sum();
    let of_neighbours = rest.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
    (square > f64::EPSILON).then(|| of_neighbours / square)
}

#[cfg(test)]
mod tests;
