//! Two groups of rounds that no block ties together (other boots, files of other tools): the rank-sum test with its
//! exact null distribution, the shift between groups with its interval, and Welch's t test.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::{
    bootstrap::Interval,
    order::{mean, midranks, sorted_quantile, standard_deviation},
};

/// Groups of at most this many values together are counted exactly.
const EXACT_UP_TO: usize = 80;

/// The two-sided probability of ranks this uneven if both groups came from one population; `None` if one is empty.
pub fn rank_sum(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let (ranks, ties) = midranks(&all);
    let sum: u32 = ranks[..a.len()].iter().sum();
    // `scipy.stats.mannwhitneyu(method="exact")`, which ignores ties; with ties this equals its PermutationMethod.
    if all.len() <= EXACT_UP_TO {
        return Some(exact(&ranks, a.len()));
    }
    Some(of_sum(sum, ties, a.len(), b.len()))
}

/// The same by the normal approximation, for groups of any size: quick, and far out larger than the exact probability.
pub fn rank_sum_normal(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let (ranks, ties) = midranks(&all);
    Some(of_sum(ranks[..a.len()].iter().sum(), ties, a.len(), b.len()))
}

/// The same, exact also for larger groups where one of them is small: there the approximation is off by powers of ten.
pub fn rank_sum_tail(a: &[f64], b: &[f64]) -> Option<f64> {
    // The smaller group is what is drawn.
    let (a, b) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if a.is_empty() {
        return None;
    }
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let count = all.len();
    if a.len() * count * count * (count + 1) > MOST_STEPS {
        return rank_sum_normal(a, b);
    }
    let (ranks, _) = midranks(&all);
    Some(exact(&ranks, a.len()))
}

/// Steps of counting that take some milliseconds.
const MOST_STEPS: usize = 6_000_000;

/// The two-sided probability of the first `take` of doubled ranks.
fn exact(ranks: &[u32], take: usize) -> f64 {
    let sum: u32 = ranks[..take].iter().sum();
    let null = choices(ranks, take);
    let below: f64 = null[..=sum as usize].iter().sum();
    let above: f64 = null[sum as usize..].iter().sum();
    (2.0 * below.min(above)).min(1.0)
}

/// The two-sided probability of a sum of the first group's doubled ranks, by the normal approximation.
fn of_sum(sum: u32, ties: f64, m: usize, n: usize) -> f64 {
    let (m, n) = (m as f64, n as f64);
    let total = m + n;
    let centre = m * (total + 1.0) / 2.0;
    // Variance under ties and the continuity correction of 1/2: `mannwhitneyu(method="asymptotic")`.
    let variance = m * n / 12.0 * ((total + 1.0) - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((f64::from(sum) / 2.0 - centre).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * Normal::standard().sf(z)).min(1.0)
}

/// The smallest p value that [`rank_sum`] can give groups of these sizes.
pub fn smallest_rank_sum_p(m: usize, n: usize) -> f64 {
    // The number of ways to choose m of m + n: only one of them puts all ranks of a group at one end, one at the other.
    let ways: f64 = (1..=m).map(|i| (n + i) as f64 / i as f64).product();
    (2.0 / ways).min(1.0)
}

/// The probability of each sum of doubled ranks when `take` of them are drawn.
fn choices(doubled_ranks: &[u32], take: usize) -> Vec<f64> {
    let total: usize = doubled_ranks.iter().map(|rank| *rank as usize).sum();
    // chance[k][s]: of the ranks seen so far, k were taken and sum to s. Drawing one after the other keeps every
    // entry a probability, so nothing overflows.
    let mut chance = vec![vec![0.0; total + 1]; take + 1];
    chance[0][0] = 1.0;
    for (seen, rank) in doubled_ranks.iter().enumerate() {
        let rank = *rank as usize;
        let left = (doubled_ranks.len() - seen) as f64;
        // Downwards: the entry for one more has been thinned already when this one adds to it.
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

/// The interval of the shift that belongs to the rank-sum test; `None` where so few values cannot give one.
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
    // Moses' interval (Hollander and Wolfe 1999, section 4.3), as `wilcox.test(conf.int=TRUE)` of R gives it.
    let low = all.get(drop.checked_sub(1)?)?;
    let high = all.get(all.len().checked_sub(drop)?)?;
    Some(Interval { low: *low, high: *high })
}

/// Welch's t test: the two-sided probability of means this far apart, if rounds are independent and normal.
/// `None` of groups of one, and of groups without any spread.
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
    fn empty_and_equal_groups_say_nothing() {
        assert_eq!(rank_sum(&[], &[1.0]), None);
        assert_eq!(rank_sum(&[2.0; 4], &[2.0; 4]), Some(1.0));
        assert_eq!(welch(&[2.0; 4], &[2.0; 4]), None);
        assert_eq!(shift(&[], &[1.0]), None);
    }
}
