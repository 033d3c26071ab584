//! How many rounds a difference needs, from the noise seen so far.

use statrs::distribution::{ContinuousCDF, Normal};

/// The efficiency of the signed-rank test against the t test on normal noise, 3/pi.
const EFFICIENCY: f64 = 3.0 / std::f64::consts::PI;

/// Pairs needed to show a shift of `effect` with probability `power`, when differences of pairs
/// have the standard deviation `spread` and the test is made at `alpha`, two-sided. Both in the
/// same unit. At least what the test can do at all.
pub fn rounds_to_show(effect: f64, spread: f64, alpha: f64, power: f64) -> usize {
    let normal = Normal::standard();
    let z = normal.inverse_cdf(1.0 - alpha / 2.0) + normal.inverse_cdf(power);
    // Half of the squared quantile more than the normal formula, as small samples of the t test
    // need (Guenther 1981): two pairs at an alpha of 0.05, three at 0.01. The normal formula
    // divided by the efficiency: a rank test needs pi/3 times the pairs of a t test.
    let pairs = ((z * spread / effect.abs()).powi(2) + normal.inverse_cdf(1.0 - alpha / 2.0).powi(2) / 2.0)
        / EFFICIENCY;
    // Below this no outcome is significant, however large the effect.
    let floor = super::paired::pairs_needed(alpha, 1);
    if pairs.is_finite() { (pairs.ceil() as usize).max(floor) } else { usize::MAX }
}

/// The smallest shift that `pairs` pairs show with probability `power`: the inverse of
/// [`rounds_to_show`].
pub fn mean_shift_shown(pairs: usize, spread: f64, alpha: f64, power: f64) -> Option<f64> {
    let normal = Normal::standard();
    let z_alpha = normal.inverse_cdf(1.0 - alpha / 2.0);
    let z = z_alpha + normal.inverse_cdf(power);
    // The formula above, solved for the effect.
    let left = pairs as f64 * EFFICIENCY - z_alpha.powi(2) / 2.0;
    (left > 0.0 && pairs >= super::paired::pairs_needed(alpha, 1)).then(|| z * spread / left.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_noise_needs_more_rounds() {
        let quiet = rounds_to_show(0.02, 0.01, 0.01, 0.9);
        let loud = rounds_to_show(0.02, 0.02, 0.01, 0.9);
        assert!((8..=10).contains(&quiet), "{quiet}");
        assert!(loud > quiet);
        let shown = mean_shift_shown(loud, 0.02, 0.01, 0.9).expect("enough rounds");
        assert!((0.018..=0.02).contains(&shown), "{shown}");
        assert_eq!(mean_shift_shown(3, 0.02, 0.01, 0.9), None);
        assert_eq!(rounds_to_show(0.0, 0.1, 0.01, 0.9), usize::MAX);
    }

    /// The promise is kept: simulated pairs of that many rounds find the effect about as often as
    /// asked.
    #[test]
    fn the_promised_power_is_there() {
        use rand::{Rng, SeedableRng};
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(3);
        let normal = Normal::standard();
        let pairs = rounds_to_show(0.02, 0.025, 0.01, 0.9);
        let found = (0..1000)
            .filter(|_| {
                let differences: Vec<f64> = (0..pairs)
                    .map(|_| 0.02 + 0.025 * normal.inverse_cdf(random.random_range(1e-12..1.0)))
                    .collect();
                crate::stats::signed_rank(&differences).p <= 0.01
            })
            .count();
        assert!((860..=950).contains(&found), "{found} of 1000 with {pairs} pairs");
    }
}
