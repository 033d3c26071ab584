//! The posterior of arms after a fit: expected values, and joint draws.

use rand::Rng;

use crate::{
    cholesky::{Cholesky, dot},
    fit::Fit,
    space::Space,
};

/// How many rounds the prior variance of an arm counts as. If fewer, searches need more rounds; if
/// more, the error returns.
const KNOWN_BEFORE: f64 = 4.0;

/// The joint distribution of some arms' values.
pub(crate) struct Posterior {
    /// In the order of the requested arms.
    pub mean: Vec<f64>,
    factored: Cholesky,
}

impl Posterior {
    /// Computes the posterior of the logarithms of `arms`. `None` if rounding has made the
    /// covariance indefinite.
    pub(crate) fn new(space: &Space, fit: &Fit, arms: &[usize]) -> Option<Posterior> {
        // One triangular solve per arm and then inner products, which is the cheapest order for
        // some hundred of each.
        let mut mean = Vec::with_capacity(arms.len());
        let mut explained = Vec::with_capacity(arms.len());
        for arm in arms {
            let (expected, solved) = with_observations(space, fit, *arm);
            mean.push(expected);
            explained.push(solved);
        }
        let size = arms.len();
        let mut covariance = vec![0.0; size * size];
        for (row, a) in arms.iter().enumerate() {
            for (column, b) in arms[..=row].iter().enumerate() {
                let prior = fit.scales.covariance(space.likeness(*a, *b), fit.own_of(*a, *b));
                covariance[row * size + column] = prior - dot(&explained[row], &explained[column]);
            }
            // The mean's variance of 1 was subtracted from 1, so the remainder is rounded at 1e-15.
            covariance[row * size + row] += 1e-11;
        }
        Some(Posterior { mean, factored: Cholesky::new(covariance, size)? })
    }

    /// By how much the second arm is expected to exceed the first, with the standard deviation.
    pub(crate) fn difference(&self) -> (f64, f64) {
        // The columns of the triangle: what each of two independent normal numbers contributes to
        // the difference.
        let by = |standard: [f64; 2]| {
            let moved = self.factored.times(&standard);
            moved[1] - moved[0]
        };
        (self.mean[1] - self.mean[0], by([1.0, 0.0]).hypot(by([0.0, 1.0])))
    }

    /// One draw of all values.
    pub(crate) fn draw(&self, random: &mut impl Rng) -> Vec<f64> {
        let mut standard = Vec::with_capacity(self.mean.len() + 1);
        while standard.len() < self.mean.len() {
            standard.extend(standard_normal(random));
        }
        let mut draw = self.factored.times(&standard);
        for (value, mean) in draw.iter_mut().zip(&self.mean) {
            *value += mean;
        }
        draw
    }
}

/// Draws that allow for an arm whose noise is larger than it seems.
///
/// The posterior treats each arm's variance as known. With one to five rounds it is not: searches
/// ended wrongly when the best arm had run one to five times and lay three or four deviations from
/// its expected value. So deviations follow Student's t.
pub(crate) struct Wider {
    /// Degrees of freedom by arm; `None` for arms that have not run, whose noise is not modelled.
    freedom: Vec<Option<f64>>,
}

impl Wider {
    /// Creates it for arms with these numbers of runs.
    pub(crate) fn new(runs: impl Iterator<Item = usize>) -> Wider {
        Wider { freedom: runs.map(|runs| (runs > 0).then_some(KNOWN_BEFORE + runs as f64)).collect() }
    }

    /// One draw of all values.
    pub(crate) fn draw(&self, posterior: &Posterior, random: &mut impl Rng) -> Vec<f64> {
        let mut drawn = posterior.draw(random);
        for ((value, mean), freedom) in drawn.iter_mut().zip(&posterior.mean).zip(&self.freedom) {
            if let Some(freedom) = freedom {
                *value = mean + (*value - mean) / (chi_squared(*freedom, random) / freedom).sqrt();
            }
        }
        drawn
    }
}

/// A draw of chi squared, by the approximation of Wilson and Hilferty (1931), exact to a percent
/// from four degrees on.
fn chi_squared(freedom: f64, random: &mut impl Rng) -> f64 {
    let part = 2.0 / (9.0 * freedom);
    let [normal, _] = standard_normal(random);
    // Far below, the approximation fails and the cube would be negative.
    freedom * (1.0 - part + normal * part.sqrt()).max(0.05).powi(3)
}

/// The expected value of one arm and its standard deviation.
pub(crate) fn marginal(space: &Space, fit: &Fit, arm: usize) -> (f64, f64) {
    let (expected, solved) = with_observations(space, fit, arm);
    // Without factoring all arms at once: this is called for thousands of arms of a large space.
    let prior = fit.scales.covariance(space.likeness(arm, arm), fit.own_of(arm, arm));
    (expected, (prior - dot(&solved, &solved)).max(0.0).sqrt())
}

/// The expected value of an arm, and its covariances with the observations, multiplied by the
/// inverse of the observations' triangle.
fn with_observations(space: &Space, fit: &Fit, arm: usize) -> (f64, Vec<f64>) {
    let mut covariances: Vec<f64> = fit
        .observations
        .iter()
        .map(|one| fit.scales.covariance(space.likeness(arm, one.arm), fit.own_of(arm, one.arm)))
        .collect();
    let expected = fit.centre + dot(&covariances, &fit.coefficients);
    fit.factored.solve_lower(&mut covariances);
    (expected, covariances)
}

/// Two independent standard normal numbers, by Box and Muller.
fn standard_normal(random: &mut impl Rng) -> [f64; 2] {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    // 1 - u is never 0, whose logarithm is infinite; u itself can be 0.
    let (sine, cosine) = (std::f64::consts::TAU * random.random::<f64>()).sin_cos();
    [radius * sine, radius * cosine]
}
