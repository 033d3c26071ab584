//! How many rounds a difference needs, from the noise seen so far.

use rand::{Rng, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal};

/// The efficiency of the signed-rank test against the t test on normal noise, 3/pi.
const EFFICIENCY: f64 = 3.0 / std::f64::consts::PI;

/// Returns how many pairs show a shift of `effect` with probability `power`, if differences of
/// pairs have the standard deviation `spread`, in the same unit, and the two-sided test is made at
/// `alpha`. Never fewer than the test needs for any effect.
pub fn rounds_to_show(effect: f64, spread: f64, alpha: f64, power: f64) -> usize {
    let normal = Normal::standard();
    let z = normal.inverse_cdf(1.0 - alpha / 2.0) + normal.inverse_cdf(power);
    // Half of the squared quantile more than the normal formula, as small samples of the t test
    // need (Guenther 1981): two pairs at an alpha of 0.05, three at 0.01. The normal formula
    // divided by the efficiency: a rank test needs pi/3 times the pairs of a t test.
    let pairs = ((z * spread / effect.abs()).powi(2) + normal.inverse_cdf(1.0 - alpha / 2.0).powi(2) / 2.0)
        / EFFICIENCY;
    // Below this no outcome is significant, however large the effect.
    let floor = rounds_needed(alpha, Test::Pairs);
    if pairs.is_finite() { (pairs.ceil() as usize).max(floor) } else { usize::MAX }
}

/// Returns how many pairs it takes until an outcome can reach `alpha`, divided among `questions`.
pub fn pairs_needed(alpha: f64, questions: usize) -> usize {
    rounds_needed(alpha / questions.max(1) as f64, Test::Pairs)
}

/// How two arms are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// The signed-rank test of a fixed number of pairs.
    Pairs,
    /// The rank-sum test of arms that share no block.
    Ranks,
    /// The test of pairs that stays valid under repeated looks.
    Looks,
}

impl Test {
    /// The smallest p-value that is possible with these rounds.
    pub fn smallest_p(self, rounds: [usize; 2]) -> f64 {
        let pairs = rounds[0].min(rounds[1]) as i32;
        match self {
            // All signs equal is the most extreme outcome: its two-sided probability is 2 / 2^n.
            Test::Pairs => 2.0_f64.powi(1 - pairs),
            Test::Ranks => super::unpaired::smallest_rank_sum_p(rounds[0], rounds[1]),
            Test::Looks => super::always::smallest_p(pairs),
        }
    }
}

/// Returns how many rounds of each arm it takes until an outcome of a test can reach `alpha`.
pub fn rounds_needed(alpha: f64, test: Test) -> usize {
    // 2^-1074 is the smallest positive f64: beyond it the power is 0, so that the search always
    // ends.
    (1..1100).find(|rounds| test.smallest_p([*rounds; 2]) <= alpha).unwrap_or(1100)
}

/// The standard deviation of normal differences whose interval at 1 - `alpha` has this half-width.
pub fn spread_of_interval(half_width: f64, pairs: usize, alpha: f64) -> f64 {
    half_width * (pairs as f64 * EFFICIENCY).sqrt() / Normal::standard().inverse_cdf(1.0 - alpha / 2.0)
}

/// Draws with which [`shift_shown`] simulates the noise of a comparison.
const DRAWS: usize = 100;

/// The smallest shift, up or down, that a comparison of as many pairs with the same noise shows at
/// `alpha`, in 9 of 10 cases. `None` if there are too few pairs to know the noise: one round far
/// from the others would then decide the test.
pub fn shift_shown(differences: &[f64], alpha: f64) -> Option<f64> {
    let pairs = differences.len();
    let dropped = super::paired::averages_to_drop(pairs, alpha / 2.0);
    // One pair is part of as many averages as there are pairs.
    if dropped * 5 < pairs * 6 {
        return None;
    }
    let centre = super::paired::hodges_lehmann(differences)?;
    // Equal rounds must give equal draws.
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(pairs as u64);
    // Slow rounds of one arm hide how much faster it is, and not how much slower. Both sides get
    // the same draws, so that a quantity and its inverse have one answer.
    let mut draw = || differences[random.random_range(0..pairs)] - centre;
    let draws: Vec<Vec<f64>> = (0..DRAWS).map(|_| (0..pairs).map(|_| draw()).collect()).collect();
    let of_side = |sign: f64| {
        // A shift is shown if it lifts the interval's lower end above 0.
        let low = |drawn: &Vec<f64>| {
            let turned: Vec<f64> = drawn.iter().map(|value| sign * value).collect();
            Some(-super::paired::walsh_end(&turned, dropped)?)
        };
        let mut lows: Vec<f64> = draws.iter().filter_map(low).collect();
        lows.sort_by(f64::total_cmp);
        // More than the 0.9 quantile, because the noise is known from these rounds only. The test
        // below counts how often the promise is kept.
        super::order::sorted_quantile(&lows, 0.95)
    };
    Some(of_side(1.0)?.max(of_side(-1.0)?) * (1.0 + 2.0 / pairs as f64))
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
        assert_eq!(rounds_to_show(0.0, 0.1, 0.01, 0.9), usize::MAX);
    }

    /// The promise is kept: simulated pairs of that many rounds find the effect about as often as
    /// asked, if the noise is known, and if it is known from the interval of 15 pairs or more.
    #[test]
    fn the_promised_power_is_there() {
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(3);
        let normal = Normal::standard();
        for known_by in [None, Some(15), Some(30), Some(60)] {
            let mut draw = |pairs: usize, effect: f64| -> Vec<f64> {
                let mut one = || 0.025 * normal.inverse_cdf(random.random_range(1e-12..1.0));
                (0..pairs).map(|_| effect + one()).collect()
            };
            let found = (0..500).filter(|_| {
                let spread = known_by.map_or(0.025, |pairs| {
                    let interval = crate::stats::walsh_interval(&draw(pairs, 0.0), 0.99);
                    spread_of_interval(interval.expect("enough pairs").half_width(), pairs, 0.01)
                });
                let pairs = rounds_to_show(0.02, spread, 0.01, 0.9);
                crate::stats::signed_rank(&draw(pairs, 0.02)).p <= 0.01
            });
            let found = found.count();
            println!("noise known by {known_by:?}: {found} of 500 shown");
            assert!((400..=480).contains(&found), "{known_by:?}: {found} of 500");
        }
    }

    #[test]
    fn a_quantity_and_its_inverse_have_one_answer() {
        let differences: Vec<f64> = (0..30).map(|pair| (f64::from(pair) * 12.9898).sin().powi(3)).collect();
        let inverse: Vec<f64> = differences.iter().map(|difference| -difference).collect();
        let (one, other) = (shift_shown(&differences, 0.01), shift_shown(&inverse, 0.01));
        assert!(
            one.zip(other).is_some_and(|(one, other)| (one / other - 1.0).abs() < 1e-9),
            "{one:?} {other:?}"
        );
    }

    /// After a comparison of an arm with itself, fresh ones with the printed shift show it in 9 of
    /// 10 cases: with normal, heavy-tailed, disturbed and bimodal noise.
    #[test]
    fn what_could_have_been_seen_is_seen() {
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(31);
        let normal = Normal::standard();
        let kinds: [fn(f64, f64) -> f64; 5] = [
            |z, _| z,
            // Student's t with two degrees of freedom, by its quantile.
            |_, u| (2.0 * u - 1.0) / (2.0 * u * (1.0 - u)).sqrt(),
            |z, u| if u < 0.05 { z + 20.0 * 20.0 * u } else { z },
            |z, u| z / 100.0 + if u < 0.1 { 0.69 } else { 0.0 },
            |z, u| z / 100.0 + if u < 0.3 { 0.69 } else { 0.0 },
        ];
        // The last kind again, in one arm only, with the shift on its other side.
        for (kind, arm) in kinds.into_iter().chain([kinds[4]]).enumerate() {
            for (pairs, alpha) in [(18, 0.005), (30, 0.01 / 3.0), (60, 0.01)] {
                let mut draw = || {
                    let mut one = || {
                        let z = normal.inverse_cdf(random.random_range(1e-12..1.0 - 1e-12));
                        arm(z, random.random_range(1e-9..1.0 - 1e-9))
                    };
                    let mut pair = || if kind == kinds.len() { 0.3 - one() } else { one() - one() };
                    (0..pairs).map(|_| pair()).collect::<Vec<f64>>()
                };
                let searches = 100;
                let seen = (0..searches)
                    .filter(|_| {
                        let shift = shift_shown(&draw(), alpha).expect("enough pairs");
                        let fresh: Vec<f64> = draw().into_iter().map(|value| value + shift).collect();
                        crate::stats::walsh_interval(&fresh, 1.0 - alpha).is_some_and(|one| one.low > 0.0)
                    })
                    .count();
                println!("noise {kind}, {pairs} pairs at {alpha:.4}: {seen} of {searches} seen");
                assert!(seen * 100 >= 84 * searches, "noise {kind}, {pairs} pairs: {seen}");
            }
        }
        assert_eq!(shift_shown(&[0.1; 9], 0.01), None);
    }
}
