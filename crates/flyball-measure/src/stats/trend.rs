//! Drift inside a series: the Theil-Sen slope and the Mann-Kendall test.

use statrs::distribution::{ContinuousCDF, Normal};

use super::order::{median, midranks};

/// How a series moves with its index.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Trend {
    /// The median slope of all pairs of points, per step.
    pub slope: f64,
    /// Kendall's S: pairs that rise minus pairs that fall.
    pub s: i64,
    /// Two-sided probability of such an S in a series without order.
    pub p: f64,
}

/// The trend of values taken at equal steps; `None` for fewer than three.
///
/// The probability is exact for series of at most 30 different values, else normal with continuity
/// and ties corrected.
pub fn trend(values: &[f64]) -> Option<Trend> {
    if values.len() < 3 {
        return None;
    }
    let mut slopes = Vec::with_capacity(values.len() * (values.len() - 1) / 2);
    let mut s = 0_i64;
    for (i, early) in values.iter().enumerate() {
        for (j, late) in values.iter().enumerate().skip(i + 1) {
            slopes.push((late - early) / (j - i) as f64);
            s += match late.total_cmp(early) {
                std::cmp::Ordering::Less => -1,
                std::cmp::Ordering::Equal => 0,
                std::cmp::Ordering::Greater => 1,
            };
        }
    }
    // `scipy.stats.theilslopes`; S and its p are Kendall's tau against the index
    // (`scipy.stats.kendalltau`).
    let slope = median(&slopes)?;
    let (_, ties) = midranks(values);
    let n = values.len() as f64;
    // The tie term is a sum of whole numbers, exactly 0 without ties. The exact distribution holds
    // for different values only; above 30 of them the normal one is close enough for a note.
    let p = if ties == 0.0 && values.len() <= 30 {
        exact(values.len(), s)
    } else {
        // Tie groups of t values lower the variance by t(t-1)(2t+5)/18; recomputed here since
        // midranks gives t^3-t.
        let variance = (n * (n - 1.0) * (2.0 * n + 5.0) - tie_term(values)) / 18.0;
        if variance <= 0.0 {
            1.0
        } else {
            // S moves in steps of two: the continuity correction is 1 (Kendall 1975).
            let z = ((s as f64).abs() - 1.0).max(0.0) / variance.sqrt();
            (2.0 * Normal::standard().sf(z)).min(1.0)
        }
    };
    Some(Trend { slope, s, p })
}

/// The p-value of neighbours that resemble each other, if rounds are independent: von Neumann's
/// ratio of ranks, with the normal approximation of Bartels (1982). At 1 % and fewer than 20 values
/// it is too large by half, which finds less. `None` for fewer than ten values.
pub fn alike(values: &[f64]) -> Option<f64> {
    const FEWEST: usize = 10;
    let (ranks, _) = midranks(values);
    let ranks: Vec<f64> = ranks.into_iter().map(|twice| f64::from(twice) / 2.0).collect();
    let n = values.len() as f64;
    let squares: f64 = ranks.iter().map(|rank| (rank - f64::midpoint(n, 1.0)).powi(2)).sum();
    if values.len() < FEWEST || squares == 0.0 {
        return None;
    }
    let ratio = ranks.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum::<f64>() / squares;
    let variance =
        4.0 * (n - 2.0) * (5.0 * n * n - 2.0 * n - 9.0) / (5.0 * n * (n + 1.0) * (n - 1.0).powi(2));
    Some(Normal::standard().cdf((ratio - 2.0) / variance.sqrt()))
}

/// The sum of `t(t-1)(2t+5)` over groups of `t` equal values.
fn tie_term(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
        .chunk_by(|a, b| a == b)
        .map(|group| {
            let t = group.len() as f64;
            t * (t - 1.0) * (2.0 * t + 5.0)
        })
        .sum()
}

/// The two-sided probability of |S| or more among all orders of `n` different values.
fn exact(n: usize, s: i64) -> f64 {
    // The number of falling pairs of a random order: adding the k-th value adds 0 to k-1 of them,
    // evenly.
    let mut chance = vec![1.0];
    for k in 2..=n {
        let mut next = vec![0.0; chance.len() + k - 1];
        for (inversions, p) in chance.iter().enumerate() {
            for add in 0..k {
                next[inversions + add] += p / k as f64;
            }
        }
        chance = next;
    }
    let pairs = (n * (n - 1) / 2) as i64;
    // S = pairs - 2 x falling pairs.
    let extreme = ((pairs - s.abs()) / 2).max(0) as usize;
    let tail: f64 = chance[..=extreme.min(chance.len() - 1)].iter().sum();
    (2.0 * tail).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_is_a_trend() {
        let ramp: Vec<f64> = (0..10).map(|i| 100.0 + 0.5 * f64::from(i)).collect();
        let found = trend(&ramp).expect("ten values");
        assert!((found.slope - 0.5).abs() < 1e-12);
        assert_eq!(found.s, 45);
        assert!(found.p < 1e-5);
        assert!((trend(&[1.0; 8]).expect("eight values").p - 1.0).abs() < 1e-12);
        assert_eq!(trend(&[1.0, 2.0]), None);
        let comes_and_goes: Vec<f64> =
            (0..30).map(|i| f64::from(i % 7) + if i / 10 == 1 { 9.0 } else { 0.0 }).collect();
        assert!(trend(&comes_and_goes).expect("values").p > 0.5);
        assert!(alike(&comes_and_goes).expect("values") < 1e-4);
        let jumps: Vec<f64> = (0..30).map(|i| f64::from(i * 11 % 31)).collect();
        assert!(alike(&jumps).expect("values") > 0.01);
        assert_eq!(alike(&[1.0; 30]), None);
    }
}
