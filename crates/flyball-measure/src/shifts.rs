//! Where a series of runs shifted, how surely, and what shifted with it.
//!
//! Every split of the series is scored by the difference between the normal scores of its two sides
//! (a rank statistic: outliers weigh little, and nothing is lost on normal noise). The best split
//! counts if fewer than `alpha` of all permutations of the values score as high. Neighbouring runs
//! often have similar values, so the change must also be larger than such runs wander by chance
//! (`neighbours`). If a ramp over many runs fits clearly better than a step, the change is reported
//! as drift, with the runs of the ramp (`shape`). Shifts split the series, and the parts are
//! searched again. If no split counts, runs in the middle are compared with all others
//! (`temporary`). Finally the spread around the levels is searched in the same way (`spread`).
//!
//! `column_changes` names the metadata that moved at the same run.

mod column_changes;
mod evidence;
mod neighbours;
mod shape;
mod spread;
mod temporary;

pub use column_changes::{Column, ColumnChange, Values, column_changes};
pub use evidence::evidence;
pub use temporary::too_few_at_end;

use rand::{Rng, SeedableRng, seq::SliceRandom};
use statrs::distribution::{ContinuousCDF, Normal};

use crate::{analyse::two_levels, stats};

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
        // 1999 and the observed order are 2000, of which alpha is a whole number, 10. Two wild
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
    /// A slow movement from `at`, where `before` ends, to the start of `after`.
    Drift,
    /// The level stays and the spread of the runs changes: both medians are standard deviations.
    Spread,
}

/// How the chance of a false discovery is divided among the searches. Splits, the most frequent
/// change, get half.
const SPLIT_SHARE: f64 = 0.5;
const TEMPORARY_SHARE: f64 = 0.2;
const GLITCH_SHARE: f64 = 0.1;
const SPREAD_SHARE: f64 = 0.2;

/// A change in a series.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct Shift {
    pub form: Form,
    /// Index of the first value of the change, counted from 0.
    pub at: usize,
    /// The runs between which the change lies with 95 % confidence, as indexes: it begins with the
    /// first of these runs or later, and is over at the end. Not known for a change of the spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<std::ops::Range<usize>>,
    /// The segment before, as indexes; empty if a drift begins at the start.
    pub before: std::ops::Range<usize>,
    /// The segment after, as indexes; empty if a drift goes on to the end.
    pub after: std::ops::Range<usize>,
    /// Median before. For a drift that begins at the start, the median of its first runs.
    pub median_before: f64,
    /// Median after. For a drift that goes on to the end, the median of its last runs.
    pub median_after: f64,
    /// The probability of so large a change by chance: the share of permutations that score as
    /// high, or the probability that similar neighbours wander so far, whichever is larger.
    pub p: f64,
}

impl Shift {
    /// Returns the runs that stand for before and after: the levels. If a drift follows another
    /// change, these are as many runs before it as the drift has. If there is nothing else, they
    /// are the first and last tenth of the drift.
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

/// Returns the smallest step, in standard deviations, that is found in the middle of these runs in
/// about 9 of 10 series with independent noise around one level. `None` if there are too few runs,
/// if they resemble their neighbours, or if they have two levels.
pub fn found_from(values: &[f64]) -> Option<f64> {
    const FEWEST: usize = 40;
    // By simulation; `a_lasting_change_of_the_named_size_is_found` verifies it.
    const OF_ROOT: f64 = 13.0;
    let is_known = values.len() >= FEWEST && two_levels(values).is_none();
    let mean = stats::mean(values).filter(|_| is_known)?;
    let rest: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let root = (values.len() as f64).sqrt();
    // In 2 % of series of independent runs, the correlation is higher than this.
    neighbours::correlation(&rest).is_none_or(|found| found <= 2.0 / root).then(|| OF_ROOT / root)
}

/// Returns whether several values are all equal, as with counts and coarse clocks.
pub fn are_equal(values: &[f64]) -> bool {
    values.len() > 1 && values.windows(2).all(|pair| pair[0] == pair[1])
}

/// Returns after how many runs the level repeats itself, if it goes up and down at least three
/// times. A wave must explain half of the squares, and most of what is not scatter between
/// neighbours.
pub fn season(values: &[f64]) -> Option<f64> {
    const FEWEST: usize = 60;
    const OF_ALL: f64 = 0.5;
    const OF_MOVEMENT: f64 = 0.7;
    // Equal values leave a wave nothing to explain.
    if values.len() < FEWEST || values.iter().any(|value| !value.is_finite()) || are_equal(values) {
        return None;
    }
    let (count, mean) = (values.len() as f64, stats::mean(values)?);
    let total: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let scatter: f64 = values.windows(2).map(|pair| (pair[1] - pair[0]).powi(2) / 2.0).sum();
    let explained = |cycles: f64| {
        let (mut sine, mut cosine) = (0.0, 0.0);
        for (run, value) in values.iter().enumerate() {
            let angle = std::f64::consts::TAU * cycles * run as f64 / count;
            sine += (value - mean) * angle.sin();
            cosine += (value - mean) * angle.cos();
        }
        2.0 * (sine * sine + cosine * cosine) / count
    };
    // From three cycles on, in tenths: a change that is made, undone, made and undone has two.
    let cycles = (30..=10 * values.len() / 6).map(|tenths| tenths as f64 / 10.0);
    let (cycles, best) =
        cycles.map(|cycles| (cycles, explained(cycles))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (best >= OF_ALL * total && best >= OF_MOVEMENT * (total - scatter)).then_some(count / cycles)
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
    // Binary segmentation (Scott and Knott 1974). The order of segments is fixed, because it
    // decides which random numbers a segment gets.
    while let Some(segment) = open.pop() {
        let scores = normal_scores(&values[segment.clone()]);
        let mut change = |part: std::ops::Range<usize>, split: usize, p: f64| {
            let shape = shape::fit(&values[part.clone()], split - part.start, options.shortest);
            let runs = part.start + shape.start..part.start + shape.end;
            found.push(Change { runs: runs.clone(), p, segment: part, is_placed: false });
            runs
        };
        let inside = &values[segment.clone()];
        if let Some((glitch, p)) = temporary::glitch(inside, options) {
            let (from, to) = (segment.start + glitch.start, segment.start + glitch.end);
            // The end of a segment is a known change, or the end of the series.
            for at in [from, to].into_iter().filter(|at| segment.start < *at && *at < segment.end) {
                found.push(Change { runs: at..at, p, segment: segment.clone(), is_placed: true });
            }
            open.push(segment.start..from);
            open.push(to..segment.end);
        } else if let Some((split, p)) = test(inside, &scores, options, &mut rng) {
            let change = change(segment.clone(), segment.start + split, p);
            open.push(segment.start..change.start);
            open.push(change.end..segment.end);
        } else if let Some((inner, p)) =
            temporary::test(inside, &scores, options, Chance::new(options, TEMPORARY_SHARE), &mut rng)
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
    found.sort_by_key(|change| change.runs.start);
    let mut shifts = describe(values, &with_tails(values, found, options), options);
    // With few distinct values (simulated machines, coarse clocks), their shares can change while
    // the median stays.
    let is_news = |shift: &Shift| {
        let (before, after) = (shift.median_before, shift.median_after);
        (after - before).abs() > 1e-9 * before.abs().max(after.abs())
    };
    shifts.retain(is_news);
    let of_spread = spread::find(values, &shifts, options, options.alpha * SPREAD_SHARE, &mut rng);
    shifts.extend(of_spread);
    shifts.sort_by_key(|shift| shift.at);
    shifts
}

/// A value that settles to a level does so ever more slowly, and its last part looks like further,
/// smaller changes. These are the tail of the drift before them.
fn with_tails(values: &[f64], found: Vec<Change>, options: &Options) -> Vec<Change> {
    // A twentieth of the series: heat settles exponentially, and a change after a longer gap stands
    // by itself.
    let near = options.shortest.max(values.len() / 20);
    let mean = |range: std::ops::Range<usize>| stats::mean(&values[range]).unwrap_or(0.0);
    // How far the values move over a change, between a few runs on either side.
    let moved = |change: &std::ops::Range<usize>| {
        let few = options.shortest;
        let before = change.start.saturating_sub(few)..change.start.max(1);
        let after = change.end.min(values.len() - 1)..(change.end + few).min(values.len());
        mean(after) - mean(before)
    };
    let mut joined: Vec<Change> = Vec::new();
    for next in found {
        if let Some(last) = joined.last_mut() {
            let (first, then) = (moved(&last.runs), moved(&next.runs));
            let follows = !last.runs.is_empty() && next.runs.start.saturating_sub(last.runs.end) <= near;
            if follows && first * then > 0.0 && then.abs() < first.abs() {
                last.runs.end = next.runs.end;
                last.p = last.p.min(next.p);
                last.segment.end = last.segment.end.max(next.segment.end);
                continue;
            }
        }
        joined.push(next);
    }
    joined
}

/// A change that was found.
struct Change {
    /// The runs of the change; empty for a step.
    runs: std::ops::Range<usize>,
    /// Its significance.
    p: f64,
    /// The segment that it was found in.
    segment: std::ops::Range<usize>,
    /// Whether its location is exact.
    is_placed: bool,
}

/// Describes each change between its neighbours: locates steps again there, and takes the medians
/// of both sides.
fn describe(values: &[f64], found: &[Change], options: &Options) -> Vec<Shift> {
    let shifts = found.iter().enumerate().map(|(index, Change { runs: change, p, is_placed, .. })| {
        let start = index.checked_sub(1).map_or(0, |index| found[index].runs.end);
        let end = found.get(index + 1).map_or(values.len(), |next| next.runs.start);
        let median = |range: std::ops::Range<usize>| stats::median(&values[range]).unwrap_or(f64::NAN);
        let region = |change: std::ops::Range<usize>| {
            let region = shape::region(&values[start..end], &(change.start - start..change.end - start));
            Some(region.start + start..region.end + start)
        };
        if change.is_empty() {
            let scores = normal_scores(&values[start..end]);
            // A split may be off if it was found while a later shift was still in the segment. It
            // is placed again between its neighbours.
            let split = best_split(&scores, options.shortest).map(|(split, _)| split).filter(|_| !is_placed);
            let at = split.map_or(change.start, |split| {
                start + shape::step_near(&values[start..end], split, options.shortest)
            });
            return Shift {
                form: Form::Step,
                at,
                within: if *is_placed { Some(at..at) } else { region(at..at) },
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
            within: region(change.clone()),
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

/// The centred normal scores of the values' ranks: a normal sample of this size in this order.
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
fn test(values: &[f64], scores: &[f64], options: &Options, rng: &mut impl Rng) -> Option<(usize, f64)> {
    let (split, score) = best_split(scores, options.shortest)?;
    let chance = Chance::new(options, SPLIT_SHARE);
    let p = permutation_test(scores, chance, rng, |shuffled| {
        best_split(shuffled, options.shortest).is_some_and(|(_, other)| other >= score)
    })?;
    let shares = shape::shares(values, split, options.shortest);
    Some((split, chance.with_neighbours(p, values, &shares, ways(values.len(), options))?))
}

/// The number of possible splits.
fn ways(count: usize, options: &Options) -> usize {
    (count + 1).saturating_sub(2 * options.shortest)
}

/// How a search limits false discoveries.
#[derive(Debug, Clone, Copy)]
struct Chance {
    /// The allowed probability of one.
    alpha: f64,
    /// How many permutations decide.
    permutations: u32,
}

impl Chance {
    fn new(options: &Options, share: f64) -> Chance {
        Chance { alpha: options.alpha * share, permutations: options.permutations }
    }

    /// Returns the p-value of a change: `p` from permutations, or the probability that similar
    /// neighbours make it, whichever is larger; `None` above `alpha`.
    fn with_neighbours(self, p: f64, values: &[f64], shares: &[f64], ways: usize) -> Option<f64> {
        Some(neighbours::chance(values, shares, ways).max(p)).filter(|p| *p <= self.alpha)
    }
}

/// The share of permutations that score as high as the observed order, if it is at most `alpha`.
fn permutation_test(
    scores: &[f64],
    Chance { alpha, permutations }: Chance,
    rng: &mut impl Rng,
    is_as_high: impl Fn(&[f64]) -> bool,
) -> Option<f64> {
    let mut shuffled = scores.to_vec();
    // The observed order is one of the permutations. Fewer than this could not reach alpha.
    let permutations = permutations.max((1.0 / alpha).ceil() as u32 - 1);
    // With more than this many, p cannot be at most alpha. Most segments stop early here.
    let allowed = (alpha * f64::from(permutations + 1) + 1e-9).floor() as u32;
    let mut as_high = 1;
    for _ in 0..permutations {
        // Any order is a valid start of the next shuffle.
        shuffled.shuffle(rng);
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

#[cfg(test)]
mod tests;
