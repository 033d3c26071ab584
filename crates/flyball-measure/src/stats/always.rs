//! Intervals that remain valid under repeated looks, for comparisons that end when they know
//! enough.
//!
//! The mixture t of Lai (1976), in the closed form of Wang and Ramdas (arXiv 2310.03722): the
//! likelihood ratio of the differences, averaged over a normal prior of mean over deviation, is a
//! martingale if nothing differs. So the probability that it ever exceeds 1/alpha is at most alpha
//! (Ville). Exact for normal differences from three pairs on; differences of pairs are symmetric,
//! and heavy tails make it conservative.

use super::{Interval, mean, standard_deviation};

/// The variance of the prior, in squared deviations of a pair. The value 1 suits differences from a
/// third of a deviation to several; others cost a few pairs more.
const PRIOR: f64 = 1.0;

/// The interval of the mean at `level`, over all looks together; `None` while there is none.
pub fn always_interval(differences: &[f64], level: f64) -> Option<Interval> {
    let (middle, spread) = (mean(differences)?, standard_deviation(differences)?);
    let pairs = differences.len() as f64;
    let grown = 1.0 + pairs * PRIOR;
    let ratio = (grown.sqrt() / (1.0 - level)).powf(2.0 / pairs);
    // With fewer pairs no t is large enough.
    if ratio >= grown {
        return None;
    }
    let squared = (pairs - 1.0) * (ratio - 1.0) / (1.0 - ratio / grown);
    let half = spread * (squared / pairs).sqrt();
    Some(Interval { low: middle - half, high: middle + half })
}

/// The probability, over all looks together, of differences that are as far from zero if nothing
/// differs.
pub fn always_p(differences: &[f64]) -> Option<f64> {
    let (middle, spread) = (mean(differences)?, standard_deviation(differences)?);
    if spread <= 0.0 {
        return Some(if middle == 0.0 { 1.0 } else { 0.0 });
    }
    let pairs = differences.len() as f64;
    let grown = 1.0 + pairs * PRIOR;
    let squared = pairs * (middle / spread).powi(2) / (pairs - 1.0);
    let log_ratio = pairs / 2.0 * ((1.0 + squared).ln() - (1.0 + squared / grown).ln()) - grown.ln() / 2.0;
    Some((-log_ratio).exp().min(1.0))
}

/// The smallest [`always_p`] that this many pairs can give.
pub(super) fn smallest_p(pairs: i32) -> f64 {
    (1.0 + f64::from(pairs) * PRIOR).sqrt().powi(1 - pairs)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_distr::Distribution;

    use super::*;

    #[test]
    fn interval_and_p_agree() {
        let values = [0.3, 1.1, 2.7, -0.4, 1.9, 0.8, 2.2, 1.5, 0.1, 3.1];
        let interval = always_interval(&values, 0.95).expect("ten pairs are enough");
        for (centre, inside) in [
            (interval.low - 1e-6, false),
            (interval.low + 1e-6, true),
            (interval.high - 1e-6, true),
            (interval.high + 1e-6, false),
        ] {
            let moved: Vec<f64> = values.iter().map(|value| value - centre).collect();
            assert_eq!(always_p(&moved).expect("a p") > 0.05, inside, "{centre}");
        }
        assert_eq!(always_interval(&values[..3], 0.999_999), None);
        // There is an interval exactly if some outcome decides.
        for pairs in 2..10_usize {
            let has_interval = always_interval(&values[..pairs], 0.995).is_some();
            assert_eq!(has_interval, smallest_p(pairs as i32) < 0.005, "{pairs}");
        }
        assert_eq!(always_p(&[0.0; 4]), Some(1.0));
    }

    /// 3000 comparisons of a setting with itself, looked at after each of 100 pairs, normal and
    /// with heavy tails.
    #[test]
    fn repeated_looks_keep_the_error_rate() {
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(11);
        let normal = rand_distr::StandardNormal;
        let heavy = rand_distr::StudentT::new(4.0).expect("degrees");
        for (name, is_heavy) in [("normal", false), ("heavy tails", true)] {
            let mut stops = [0_u32; 2];
            for _ in 0..3000 {
                let mut pairs = Vec::new();
                let mut least = 1.0_f64;
                for _ in 0..100 {
                    let mut draw = || -> f64 {
                        if is_heavy { heavy.sample(&mut random) } else { normal.sample(&mut random) }
                    };
                    pairs.push(draw() - draw());
                    least = always_p(&pairs).map_or(least, |p| least.min(p));
                }
                for (count, alpha) in stops.iter_mut().zip([0.05, 0.01]) {
                    *count += u32::from(least <= alpha);
                }
            }
            for (count, alpha) in stops.into_iter().zip([0.05, 0.01]) {
                println!("{name}, alpha {alpha}: false stops {count} of 3000");
                assert!(f64::from(count) <= alpha * 3000.0, "{name} {alpha}: {count}");
            }
        }
    }
}
