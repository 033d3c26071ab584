//! Pairs of rounds of one block: Wilcoxon's signed-rank test with its exact null distribution, the
//! Hodges-Lehmann estimate, and the interval that belongs to the test.

use statrs::distribution::{ContinuousCDF, Normal};

use super::{interval::Interval, order::midranks};

/// Above this many pairs the normal approximation is used: its error is then below 1e-4.
const EXACT_UP_TO: usize = 200;

/// The outcome of a signed-rank test.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SignedRank {
    /// Pairs that differ.
    pub pairs: usize,
    /// The sum of ranks of positive differences.
    pub statistic: f64,
    /// Two-sided probability of such a sum if neither side were better.
    pub p: f64,
}

/// Tests whether differences are symmetric around zero. Differences of exactly zero are left out
/// (Wilcoxon's way).
pub fn signed_rank(differences: &[f64]) -> SignedRank {
    // `zero_method="wilcox"` of scipy.stats.wilcoxon, its default. Rounds with equal results favour
    // neither side.
    let differing: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0 && d.is_finite()).collect();
    let sizes: Vec<f64> = differing.iter().map(|d| d.abs()).collect();
    let (ranks, ties) = midranks(&sizes);
    let positive: u32 = ranks.iter().zip(&differing).filter(|(_, d)| **d > 0.0).map(|(rank, _)| rank).sum();
    let n = differing.len();
    let statistic = f64::from(positive) / 2.0;
    // All pairs equal: no evidence, not a division by zero.
    let p = if n == 0 {
        1.0
    } else if n <= EXACT_UP_TO {
        exact(&ranks, positive)
    } else {
        approximate(n, statistic, ties)
    };
    SignedRank { pairs: n, statistic, p }
}

/// The two-sided probability of a doubled sum of positive ranks, by counting.
fn exact(doubled_ranks: &[u32], positive: u32) -> f64 {
    // Without ties every doubled rank is even, and the whole ranks need half of the sums.
    let unit = if doubled_ranks.iter().all(|rank| rank % 2 == 0) { 2 } else { 1 };
    let mut ranks: Vec<u32> = doubled_ranks.iter().map(|rank| rank / unit).collect();
    ranks.sort_unstable();
    // Signs are fair coins, so the sums are symmetric, and the smaller tail is enough. It includes
    // the observed sum: hence the bound. With ties this equals
    // `wilcoxon(method=PermutationMethod(n_resamples=inf))`, without them `method="exact"`.
    let low = (positive / unit).min(ranks.iter().sum::<u32>() - positive / unit);
    (2.0 * sign_flips(&ranks, low as usize).iter().sum::<f64>()).min(1.0)
}

/// The two-sided probability by the normal approximation.
fn approximate(pairs: usize, statistic: f64, ties: f64) -> f64 {
    let count = pairs as f64;
    let centre = count * (count + 1.0) / 4.0;
    // The tie term of Lehmann (1975): the sum of t^3 - t over 48. No continuity correction, as
    // SciPy's default.
    let variance = count * (count + 1.0) * (2.0 * count + 1.0) / 24.0 - ties / 48.0;
    (2.0 * Normal::standard().sf((statistic - centre).abs() / variance.sqrt())).min(1.0)
}

/// The probability of each sum of `ranks` up to `most`, when every sign is a fair coin.
fn sign_flips(ranks: &[u32], most: usize) -> Vec<f64> {
    let mut chance = vec![0.0; most + 1];
    chance[0] = 1.0;
    let mut next = chance.clone();
    let mut reached = 0;
    for rank in ranks {
        let rank = *rank as usize;
        reached = most.min(reached + rank);
        let without = rank.min(reached + 1);
        // Halving at each step keeps entries probabilities: counts of 2^200 sign patterns would
        // lose the small ones.
        for sum in 0..without {
            next[sum] = 0.5 * chance[sum];
        }
        let with = chance[without..=reached].iter().zip(&chance);
        for (next, (without, with)) in next[without..=reached].iter_mut().zip(with) {
            *next = 0.5 * (without + with);
        }
        std::mem::swap(&mut chance, &mut next);
    }
    chance
}

/// Returns the mean at `place`, counted from 0, among the sorted means of all pairs of finite
/// values, including each value with itself. It does not compute all of them: 200 samples of 220
/// pairs, as [`shift_shown`] draws them, have five million.
///
/// [`shift_shown`]: super::shift_shown
fn pair_mean(sorted: &[f64], place: usize) -> Option<f64> {
    let count = sorted.len();
    if place >= count * (count + 1) / 2 {
        return None;
    }
    // Row i has the means of value i with itself and all later ones. Those from `starts` to `ends`
    // are above `low` and at most `high`.
    let (mut starts, mut ends): (Vec<usize>, Vec<usize>) = ((0..count).collect(), vec![count; count]);
    let (mut low, mut high) = (sorted[0].next_down(), sorted[count - 1]);
    let size = |starts: &[usize], ends: &[usize]| ends.iter().sum::<usize>() - starts.iter().sum::<usize>();
    let rows: Vec<usize> = (0..count).collect();
    while size(&starts, &ends) > count {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            // No number lies between them, so all that are left equal `high`.
            return Some(high);
        }
        // The rows' ends move in one direction only, because the values are sorted.
        let mut end = count;
        let cut: Vec<usize> = (0..count)
            .map(|row| {
                while end > row && f64::midpoint(sorted[row], sorted[end - 1]) > middle {
                    end -= 1;
                }
                end.max(row)
            })
            .collect();
        if size(&rows, &cut) > place {
            (ends, high) = (cut, middle);
        } else {
            (starts, low) = (cut, middle);
        }
    }
    let row = |row: usize| {
        sorted[starts[row]..ends[row]].iter().map(move |other| f64::midpoint(sorted[row], *other))
    };
    let mut left: Vec<f64> = rows.iter().flat_map(|&number| row(number)).collect();
    let place = place - size(&rows, &starts);
    Some(*left.select_nth_unstable_by(place, f64::total_cmp).1)
}

/// Returns the finite values, sorted: like [`signed_rank`], estimate and interval leave out
/// differences that are infinite or NaN.
fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The Hodges-Lehmann estimate of the centre: the median of all pairwise means. Nearly as precise
/// as the mean on clean data, and unmoved by a few bad rounds.
pub fn hodges_lehmann(differences: &[f64]) -> Option<f64> {
    let sorted = sorted(differences);
    let count = sorted.len();
    let last = (count * (count + 1) / 2).checked_sub(1)?;
    let (below, above) = (pair_mean(&sorted, last / 2)?, pair_mean(&sorted, last.div_ceil(2))?);
    Some(below + (above - below) * 0.5)
}

/// The confidence interval of the centre that belongs to the signed-rank test; `None` if there are
/// too few pairs for this level.
pub fn walsh_interval(differences: &[f64], level: f64) -> Option<Interval> {
    let sorted = sorted(differences);
    let count = sorted.len();
    let drop = averages_to_drop(count, (1.0 - level) / 2.0);
    // The ends are the C-th smallest and C-th largest average, where P(W <= C - 1) is at most the
    // tail (Hollander and Wolfe 1999, section 3.3; `wilcox.test(conf.int=TRUE)` of R). C = 0: no
    // interval of this level exists.
    let low = pair_mean(&sorted, drop.checked_sub(1)?)?;
    let high = pair_mean(&sorted, (count * (count + 1) / 2).checked_sub(drop)?)?;
    Some(Interval { low, high })
}

/// How many averages of `n` pairs lie outside an interval at either end, its last one included, if
/// each tail may have this probability.
pub(super) fn averages_to_drop(n: usize, tail: f64) -> usize {
    if n > EXACT_UP_TO {
        let count = n as f64;
        let spread = (count * (count + 1.0) * (2.0 * count + 1.0) / 24.0).sqrt();
        return (count * (count + 1.0) / 4.0 + Normal::standard().inverse_cdf(tail) * spread).floor()
            as usize;
    }
    let ranks: Vec<u32> = (1..=n as u32).collect();
    let mut below = 0.0;
    let mut drop = 0;
    // Half of the sums lie below the centre, and a tail is less than that.
    for chance in sign_flips(&ranks, n * (n + 1) / 4) {
        below += chance;
        // `level` is a decimal fraction: (1 - 0.99) / 2 is rounded, and a probability that equals
        // it must not be lost.
        if below > tail * (1.0 + 1e-12) {
            break;
        }
        drop += 1;
    }
    drop
}

/// The lower end of the interval that drops this many averages.
pub(super) fn walsh_end(differences: &[f64], dropped: usize) -> Option<f64> {
    pair_mean(&sorted(differences), dropped.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_p_is_two_in_two_to_the_n() {
        let outcome = signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((outcome.p - 0.0625).abs() < 1e-12);
        for (alpha, pairs, rounds) in [(0.05, 6, 4), (0.01, 8, 5), (0.002, 10, 7)] {
            assert_eq!(crate::stats::rounds_needed(alpha, crate::stats::Test::Pairs), pairs);
            assert_eq!(crate::stats::rounds_needed(alpha, crate::stats::Test::Ranks), rounds);
        }
    }

    /// For all kinds of values, with ties, the mean at a place is the one that sorting all means
    /// gives.
    #[test]
    fn pair_means_are_found_without_making_all() {
        use rand::{Rng, SeedableRng};
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(7);
        let kinds: [fn(f64) -> f64; 5] =
            [|u| u - 0.5, |u| (u * 4.0).floor(), |_| 0.25, |u| 1.0 / (u - 0.5).powi(9), |u| 0.1 + u * 1e-17];
        for (kind, value) in kinds.into_iter().enumerate() {
            for count in [1, 2, 3, 8, 31, 120] {
                let values: Vec<f64> = (0..count).map(|_| value(random.random_range(0.0..1.0))).collect();
                let values = sorted(&values);
                let row = |row: usize| values[row..].iter().map(move |other| (row, *other));
                let all: Vec<f64> =
                    (0..count).flat_map(row).map(|(row, other)| f64::midpoint(values[row], other)).collect();
                for (place, mean) in sorted(&all).into_iter().enumerate() {
                    assert_eq!(pair_mean(&values, place), Some(mean), "kind {kind}, {count} values, {place}");
                }
                assert_eq!(pair_mean(&values, all.len()), None);
            }
        }
        assert_eq!(pair_mean(&[], 0), None);
    }

    #[test]
    fn infinite_differences_are_left_out() {
        let finite = [0.3, 1.1, 2.7, -0.4, 1.9, 0.8, 2.2, 1.5];
        let mut with_others = finite.to_vec();
        with_others.extend([f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::NEG_INFINITY]);
        assert_eq!(hodges_lehmann(&with_others), hodges_lehmann(&finite));
        assert_eq!(walsh_interval(&with_others, 0.99), walsh_interval(&finite, 0.99));
        assert_eq!(walsh_interval(&[f64::NEG_INFINITY; 30], 0.99), None);
    }

    #[test]
    fn nothing_differs_in_nothing() {
        assert!((signed_rank(&[0.0; 9]).p - 1.0).abs() < 1e-12);
        assert!((signed_rank(&[]).p - 1.0).abs() < 1e-12);
        assert_eq!(hodges_lehmann(&[]), None);
    }

    #[test]
    fn the_interval_agrees_with_the_test() {
        // The interval excludes exactly the centres that the test rejects.
        let values = [0.3, 1.1, 2.7, -0.4, 1.9, 0.8, 2.2, 1.5, 0.1, 3.1];
        let interval = walsh_interval(&values, 0.95).expect("ten pairs are enough");
        for (centre, inside) in [
            (interval.low - 1e-6, false),
            (interval.low + 1e-6, true),
            (interval.high - 1e-6, true),
            (interval.high + 1e-6, false),
        ] {
            let moved: Vec<f64> = values.iter().map(|v| v - centre).collect();
            assert_eq!(signed_rank(&moved).p > 0.05, inside, "{centre}");
        }
        assert_eq!(walsh_interval(&values[..7], 0.99), None);
        assert!(walsh_interval(&values[..8], 0.99).is_some());
    }

    #[test]
    fn approximation_meets_the_exact_distribution() {
        let ranks: Vec<u32> = (1..=200).map(|rank| 2 * rank).collect();
        for sum in [7000, 8000, 9000, 10_000] {
            let (counted, normal) = (exact(&ranks, 2 * sum), approximate(200, f64::from(sum), 0.0));
            assert!((counted - normal).abs() < 1e-3, "{sum}: {counted} {normal}");
        }
    }
}
