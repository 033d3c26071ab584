//! Two groups of rounds that no block ties together (other boots, files of other tools): the
//! rank-sum test with its exact null distribution, the shift between groups with its interval, and
//! Welch's t test.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::{
    interval::Interval,
    order::{mean, midranks, sorted_quantile, standard_deviation},
};

/// Groups of at most this many values together are counted exactly.
const EXACT_UP_TO: usize = 80;

/// The two-sided probability of ranks this uneven if both groups came from one population; `None`
/// if one is empty.
pub fn rank_sum(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let (ranks, ties) = midranks(&all);
    let sum: u32 = ranks[..a.len()].iter().sum();
    // `scipy.stats.mannwhitneyu(method="exact")`, which ignores ties; with ties this equals its
    // PermutationMethod.
    if all.len() <= EXACT_UP_TO {
        return Some(exact(&ranks, a.len()));
    }
    Some(sum_chance(sum, ties, a.len(), b.len()))
}

/// [`rank_sum`] by the normal approximation, for groups of any size: quick, and larger than the
/// exact probability in the tails.
pub fn rank_sum_normal(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let (ranks, ties) = midranks(&all);
    Some(sum_chance(ranks[..a.len()].iter().sum(), ties, a.len(), b.len()))
}

/// [`rank_sum`], exact also if only one of the groups is small, where the approximation is off by
/// powers of ten. `None` if one is empty, or if counting would take too long.
pub fn rank_sum_tail(a: &[f64], b: &[f64]) -> Option<f64> {
    // Count the draws of the smaller group.
    let (a, b) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if a.is_empty() {
        return None;
    }
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let count = all.len();
    if a.len() * count * count * (count + 1) > MAX_STEPS {
        return None;
    }
    let (ranks, _) = midranks(&all);
    Some(exact(&ranks, a.len()))
}

/// Maximum number of steps of counting, which take some milliseconds.
const MAX_STEPS: usize = 6_000_000;

/// The two-sided probability of the sum of the first `take` doubled ranks.
fn exact(ranks: &[u32], take: usize) -> f64 {
    let sum: u32 = ranks[..take].iter().sum();
    let null = choices(ranks, take);
    let below: f64 = null[..=sum as usize].iter().sum();
    let above: f64 = null[sum as usize..].iter().sum();
    (2.0 * below.min(above)).min(1.0)
}

/// The two-sided probability of a sum of the first group's doubled ranks, by the normal
/// approximation.
fn sum_chance(sum: u32, ties: f64, m: usize, n: usize) -> f64 {
    let (m, n) = (m as f64, n as f64);
    let total = m + n;
    let centre = m * (total + 1.0) / 2.0;
    // Variance under ties and the continuity correction of 1/2:
    // `mannwhitneyu(method="asymptotic")`.
    let variance = m * n / 12.0 * ((total + 1.0) - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((f64::from(sum) / 2.0 - centre).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * Normal::standard().sf(z)).min(1.0)
}

/// The smallest p value that [`rank_sum`] can give groups of these sizes.
pub fn smallest_rank_sum_p(m: usize, n: usize) -> f64 {
    // The number of ways to choose m of m + n: only one of them puts all ranks of a group at one
    // end, one at the other.
    let ways: f64 = (1..=m).map(|i| (n + i) as f64 / i as f64).product();
    (2.0 / ways).min(1.0)
}

/// The probability of each sum of doubled ranks when `take` of them are drawn.
fn choices(doubled_ranks: &[u32], take: usize) -> Vec<f64> {
    let total: usize = doubled_ranks.iter().map(|rank| *rank as usize).sum();
    // chance[k][s]: of the ranks seen so far, k were taken and sum to s. Drawing one after the
    // other keeps every entry a probability, so nothing overflows.
    let mut chance = vec![vec![0.0; total + 1]; take + 1];
    chance[0][0] = 1.0;
    for (seen, rank) in doubled_ranks.iter().enumerate() {
        let rank = *rank as usize;
        let left = (doubled_ranks.len() - seen) as f64;
        // Downwards: the entry for `taken + 1` is already scaled when this one adds to it.
        for taken in (0..=take.min(seen)).rev() {
            // The chance that the next rank is drawn, of those still to draw among those left.
            let draw = ((take - taken) as f64 / left).min(1.0);
            let (low, high) = chance.split_at_mut(taken + 1);
            for sum in 0..=total {
                let here = low[taken][sum];
                if here == 0.0 {
                    continue;
                }
                // With `take` ranks drawn there is no row for more, and `draw` is 0.
                if let Some(next) = high.first_mut()
                    && draw > 0.0
                {
                    next[sum + rank] += here * draw;
                }
                low[taken][sum] = here * (1.0 - draw);
            }
        }
    }
    chance.pop().unwrap_or_default()
}

/// Every difference of a value of `b` and one of `a`, sorted.
fn differences(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut all: Vec<f64> = a.iter().flat_map(|x| b.iter().map(move |y| y - x)).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The Hodges-Lehmann estimate of how far `b` lies above `a`.
pub fn shift(a: &[f64], b: &[f64]) -> Option<f64> {
    sorted_quantile(&differences(a, b), 0.5)
}

/// The interval of the shift that belongs to the rank-sum test; `None` if there are too few values.
pub fn shift_interval(a: &[f64], b: &[f64], level: f64) -> Option<Interval> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let all = differences(a, b);
    let tail = (1.0 - level) / 2.0;
    let (m, n) = (a.len(), b.len());
    let drop = if m + n <= EXACT_UP_TO {
        let ranks: Vec<u32> = (1..=(m + n) as u32).map(|rank| 2 * rank).collect();
        // The smallest sum is m(m+1)/2; doubled, and only even sums occur.
        let null = choices(&ranks, m);
        let mut below = 0.0;
        let mut drop = 0;
        for chance in null[m * (m + 1)..].iter().step_by(2) {
            below += chance;
            if below > tail * (1.0 + 1e-9) {
                break;
            }
            drop += 1;
        }
        drop
    } else {
        let (m, n) = (m as f64, n as f64);
        let spread = (m * n * (m + n + 1.0) / 12.0).sqrt();
        (m * n / 2.0 + Normal::standard().inverse_cdf(tail) * spread).floor() as usize
    };
    // Moses' interval (Hollander and Wolfe 1999, section 4.3), as `wilcox.test(conf.int=TRUE)` of R
    // gives it.
    let low = all.get(drop.checked_sub(1)?)?;
    let high = all.get(all.len().checked_sub(drop)?)?;
    Some(Interval { low: *low, high: *high })
}

/// Share of the values that is left out at each end.
const TRIMMED: f64 = 0.2;

/// The two-sided probability of trimmed means this far apart (Yuen 1974, with one variance for both
/// groups), if `weight` values count as one independent value. `None` if too few are left for a
/// variance.
pub fn trimmed_t(a: &[f64], b: &[f64], weight: f64) -> Option<f64> {
    let (one, other) = (Trimmed::new(a)?, Trimmed::new(b)?);
    let kept = one.kept + other.kept;
    let variance = (one.squares + other.squares) / (kept - 2.0 * weight).max(1.0);
    let error = (variance * weight * (1.0 / one.kept + 1.0 / other.kept)).sqrt();
    let difference = (one.mean - other.mean).abs();
    if error == 0.0 {
        return Some(if difference == 0.0 { 1.0 } else { 0.0 });
    }
    // Fewer than one degree of freedom has no meaning, but a probability that is too large is safe.
    let freedom = (kept / weight - 2.0).max(0.5);
    Some(2.0 * StudentsT::new(0.0, 1.0, freedom).ok()?.sf(difference / error))
}

/// A group without its ends.
struct Trimmed {
    mean: f64,
    /// Values that are left.
    kept: f64,
    /// Squares around the mean of all values, those at the ends moved in to the last that is left
    /// (Winsorised).
    squares: f64,
}

impl Trimmed {
    fn new(values: &[f64]) -> Option<Trimmed> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let cut = (TRIMMED * sorted.len() as f64) as usize;
        let left = sorted.get(cut..sorted.len() - cut).filter(|left| left.len() >= 2)?;
        let (first, last) = (left[0], left[left.len() - 1]);
        let (mean_left, kept) = (mean(left)?, left.len() as f64);
        let moved: Vec<f64> = sorted.iter().map(|value| value.clamp(first, last)).collect();
        let middle = mean(&moved)?;
        let squares = moved.iter().map(|value| (value - middle).powi(2)).sum();
        Some(Trimmed { mean: mean_left, kept, squares })
    }
}

/// Welch's t test: the two-sided probability of means this far apart, if rounds are independent and
/// normal. `None` for groups of one, and for groups without any spread.
pub fn welch(a: &[f64], b: &[f64]) -> Option<f64> {
    let part = |values: &[f64]| Some(standard_deviation(values)?.powi(2) / values.len() as f64);
    let (va, vb) = (part(a)?, part(b)?);
    // Welch and Satterthwaite's degrees of freedom; `scipy.stats.ttest_ind(equal_var=False)`.
    let freedom = (va + vb).powi(2) / (va.powi(2) / (a.len() - 1) as f64 + vb.powi(2) / (b.len() - 1) as f64);
    let t = (mean(b)? - mean(a)?) / (va + vb).sqrt();
    // Groups without any spread give 0/0 here, which StudentsT refuses.
    let distribution = StudentsT::new(0.0, 1.0, freedom).ok()?;
    t.is_finite().then(|| (2.0 * distribution.sf(t.abs())).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_against_three_cannot_go_below_a_tenth() {
        let p = rank_sum(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).expect("both have values");
        assert!((p - 0.1).abs() < 1e-12);
        assert!((smallest_rank_sum_p(3, 3) - 0.1).abs() < 1e-12);
        assert_eq!(shift_interval(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 0.95), None);
        assert_eq!(
            shift_interval(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 0.90),
            Some(Interval { low: 1.0, high: 5.0 })
        );
    }

    #[test]
    fn trimmed_means_are_compared_as_by_scipy() {
        // scipy.stats.ttest_ind(a, b, trim=0.2, equal_var=True)
        let a = [1.2, 3.4, 2.2, 9.9, 2.8, 3.1, 2.5, 2.9, 3.3, 2.0];
        let b = [4.1, 3.9, 5.2, 4.4, 0.1, 4.8, 4.6];
        let p = trimmed_t(&a, &b, 1.0).expect("both have values");
        assert!((p - 0.001_494_383_174_5).abs() < 1e-12, "{p}");
        // Values that count for less show less.
        assert!(trimmed_t(&a, &b, 2.0).expect("both have values") > 2.0 * p);
        assert_eq!(trimmed_t(&[1.0; 5], &[1.0; 5], 1.0), Some(1.0));
        assert_eq!(trimmed_t(&[1.0; 5], &[2.0; 5], 1.0), Some(0.0));
        assert_eq!(trimmed_t(&[1.0], &b, 1.0), None);
    }

    #[test]
    fn empty_and_equal_groups_say_nothing() {
        assert_eq!(rank_sum(&[], &[1.0]), None);
        assert_eq!(rank_sum(&[2.0; 4], &[2.0; 4]), Some(1.0));
        assert_eq!(welch(&[2.0; 4], &[2.0; 4]), None);
        assert_eq!(shift(&[], &[1.0]), None);
    }
}
