//! A model of one quantity of all arms, fitted to noisy rounds.
//!
//! A logarithm of a round is the mean, plus an effect of each factor, of each two factors, and of
//! the arm alone, plus what all rounds of its block share (drift, a neighbour), plus noise. All
//! effects are normal, so that the model is a Gaussian process with five standard deviations, which
//! are found by their likelihood. Two things keep it honest with real timings: noise has heavy
//! tails (Student's t with 4 degrees, as weights), and each arm has its own variance, drawn towards
//! the common one.

use crate::{
    cholesky::Cholesky,
    space::{Likeness, Space},
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Observation {
    pub block: usize,
    pub arm: usize,
    /// The logarithm of the measured value.
    pub value: f64,
}

/// The standard deviations of the model's parts, in units of a logarithm: 0.01 is 1 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scales {
    /// Effects of single factors.
    pub single: f64,
    /// Effects of two factors that their single effects do not explain.
    pub pair: f64,
    /// Effects of an arm that no factor explains.
    pub own: f64,
    /// Noise that the rounds of a block share.
    pub block: f64,
    /// Noise of one round.
    pub noise: f64,
}

/// Prior scales before anything is measured: settings differ by some 5 %, rounds by 1 %.
const EXPECTED: [f64; 5] = [0.05, 0.01, 0.004, 0.007, 0.01];

/// How far from that, as the standard deviation of the logarithm of each scale: a factor of three
/// either way is common. Own effects are held tighter, because noise of arms that ran once looks
/// like them.
const SURPRISE: [f64; 5] = [1.2, 1.0, 0.7, 1.0, 1.2];

/// The degrees of freedom of the noise: one round in fifty lies beyond three deviations.
const TAIL: f64 = 4.0;

/// How many rounds the common variance counts as when an arm's own is estimated.
const COMMON: f64 = 6.0;

/// How many deviations an arm must lie from its expected mean to get its own size of own effect,
/// and by at least how many rounds.
const UNLIKE: f64 = 3.0;
const UNLIKE_ROUNDS: f64 = 2.0;

/// The prior variance of the mean. Nothing is known about it, and values are centred first.
const MEAN_VARIANCE: f64 = 1.0;

impl Default for Scales {
    fn default() -> Scales {
        Scales::new(EXPECTED)
    }
}

impl Scales {
    fn new([single, pair, own, block, noise]: [f64; 5]) -> Scales {
        Scales { single, pair, own, block, noise }
    }

    fn list(self) -> [f64; 5] {
        [self.single, self.pair, self.own, self.block, self.noise]
    }

    /// The logarithm of the prior density, up to a constant.
    fn log_prior(self) -> f64 {
        let terms = self.list().into_iter().zip(EXPECTED).zip(SURPRISE);
        -terms
            .map(|((scale, expected), surprise)| ((scale / expected).ln() / surprise).powi(2) / 2.0)
            .sum::<f64>()
    }

    /// The covariance of two arms' values. `own` is the variance of an arm's own effect relative to
    /// the common one, or 0 for two different arms.
    pub(crate) fn covariance(self, alike: Likeness, own: f64) -> f64 {
        let own = self.own.powi(2) * own;
        MEAN_VARIANCE + self.single.powi(2) * alike.single + self.pair.powi(2) * alike.pair + own
    }
}

/// The fitted model of one quantity.
#[derive(Debug, Clone)]
pub(crate) struct Fit {
    pub scales: Scales,
    /// Mean that was subtracted from every value.
    pub centre: f64,
    pub observations: Vec<Observation>,
    /// Cholesky factor of the covariance of the observations.
    pub factored: Cholesky,
    /// The inverse of that covariance times the centred values.
    pub coefficients: Vec<f64>,
    /// Prediction of each observation from all others.
    pub by_others: Vec<f64>,
    /// The variance of each observation's noise, relative to the common one.
    noise: Vec<f64>,
    /// The variance of each arm's own effect, relative to the common one.
    own: Vec<f64>,
}

impl Fit {
    /// The variance of an own effect relative to the common one, or 0 for two different arms.
    pub(crate) fn own_of(&self, a: usize, b: usize) -> f64 {
        own_of(&self.own, a, b)
    }
}

/// The observations, with everything that is constant while scales are searched.
struct Data<'a> {
    observations: &'a [Observation],
    centred: Vec<f64>,
    /// The likeness of each pair of observations: the lower triangle, row by row.
    alike: Vec<Likeness>,
    /// The variance of each observation's noise, as a multiple of the common one.
    noise: Vec<f64>,
    /// The variance of each arm's own effect, as a multiple of the common one.
    own: Vec<f64>,
}

fn own_of(own: &[f64], a: usize, b: usize) -> f64 {
    if a == b { own.get(a).copied().unwrap_or(1.0) } else { 0.0 }
}

impl Data<'_> {
    fn covariance(&self, scales: Scales) -> Vec<f64> {
        let size = self.observations.len();
        let mut lower = vec![0.0; size * size];
        let mut alike = self.alike.iter();
        for (row, a) in self.observations.iter().enumerate() {
            for ((column, b), alike) in self.observations[..=row].iter().enumerate().zip(&mut alike) {
                let mut entry = scales.covariance(*alike, own_of(&self.own, a.arm, b.arm));
                if a.block == b.block {
                    entry += scales.block.powi(2);
                }
                if row == column {
                    entry += scales.noise.powi(2) * self.noise[row];
                }
                lower[row * size + column] = entry;
            }
        }
        lower
    }

    /// The logarithm of the posterior density of scales, up to a constant, with the factorisation
    /// and the coefficients.
    fn score(&self, scales: Scales) -> Option<(f64, Cholesky, Vec<f64>)> {
        let factored = Cholesky::new(self.covariance(scales), self.observations.len())?;
        let coefficients = factored.solve(&self.centred);
        let fit: f64 = coefficients.iter().zip(&self.centred).map(|(c, v)| c * v).sum();
        let score = -0.5 * (fit + factored.log_determinant()) + scales.log_prior();
        // Reject impossible scales: their determinant overflows before the factorisation notices.
        score.is_finite().then_some((score, factored, coefficients))
    }
}

/// Up to this many observations, a fit starts from scratch: it is cheap, and early scales are far
/// off.
const FEW: usize = 40;

/// Fits the model. `earlier` is a fit of the first of these observations, from which the search for
/// scales starts.
///
/// `None` if there are no observations, or if values are so far apart that the covariance cannot be
/// factored.
pub(crate) fn fit(space: &Space, observations: Vec<Observation>, earlier: Option<&Fit>) -> Option<Fit> {
    if observations.is_empty() {
        return None;
    }
    let centre = observations.iter().map(|one| one.value).sum::<f64>() / observations.len() as f64;
    let mut alike = Vec::with_capacity(observations.len() * (observations.len() + 1) / 2);
    for (row, a) in observations.iter().enumerate() {
        alike.extend(observations[..=row].iter().map(|b| space.likeness(a.arm, b.arm)));
    }
    let earlier = earlier.filter(|_| observations.len() > FEW);
    let mut noise = earlier.map_or_else(Vec::new, |fit| fit.noise.clone());
    noise.resize(observations.len(), 1.0);
    let mut scales = earlier.map_or_else(Scales::default, |fit| fit.scales);
    let mut data = Data {
        centred: observations.iter().map(|one| one.value - centre).collect(),
        noise,
        own: earlier.map_or_else(Vec::new, |fit| fit.own.clone()),
        alike,
        observations: &observations,
    };
    // Weights depend on scales and scales on weights: both settle within three iterations. With
    // many observations, a new block changes little: one iteration for about half of the scales is
    // enough.
    let steps: &[f64] = if earlier.is_some() { &[1.25] } else { &[1.6, 1.25, 1.25] };
    for step in steps {
        let which = |index: usize| earlier.is_none() || (index + observations.len()).is_multiple_of(2);
        scales = climb(&data, scales, *step, which)?;
        let (_, factored, coefficients) = data.score(scales)?;
        let own = own_multiples(&data, scales, &coefficients);
        data.noise = noise_multiples(&data, scales, &factored, &coefficients);
        data.own = own;
    }
    let (_, factored, coefficients) = data.score(scales)?;
    let by_others = factored
        .inverse_diagonal()
        .into_iter()
        .zip(&coefficients)
        .zip(&observations)
        // Leave-one-out in closed form (Rasmussen and Williams 2006, equations 5.10 to 5.12).
        .map(|((inverse, c), one)| one.value - c / inverse)
        .collect();
    let (noise, own) = (std::mem::take(&mut data.noise), std::mem::take(&mut data.own));
    Some(Fit { scales, centre, observations, factored, coefficients, by_others, noise, own })
}

/// Improves the scales selected by `which`, each by steps of `factor`.
fn climb(data: &Data<'_>, start: Scales, factor: f64, which: impl Fn(usize) -> bool) -> Option<Scales> {
    let mut best = data.score(start)?.0;
    let mut at = start.list();
    for index in (0..at.len()).filter(|index| which(*index)) {
        for direction in [factor, 1.0 / factor] {
            let mut moved = false;
            // Four steps at most, so that one odd block cannot send a scale to an end of the range.
            for _ in 0..4 {
                let mut there = at;
                there[index] *= direction;
                let Some((score, ..)) = data.score(Scales::new(there)) else { break };
                // Downhill or flat: the scale is at its best in this direction, to within a step.
                if score <= best {
                    break;
                }
                (best, at, moved) = (score, there, true);
            }
            // The density of a scale usually has one peak: if one direction is uphill, the other is
            // not.
            if moved {
                break;
            }
        }
    }
    Some(Scales::new(at))
}

/// The variance of each arm's own effect relative to the common one. It is 1, unless the rounds of
/// an arm agree on a value so far from what its factors explain that noise cannot be the reason: a
/// single setting may be unlike all others.
fn own_multiples(data: &Data<'_>, scales: Scales, coefficients: &[f64]) -> Vec<f64> {
    let most = data.observations.iter().map(|one| one.arm).max().unwrap_or(0) + 1;
    let (mut own, mut noise, mut counts) = (vec![0.0; most], vec![0.0; most], vec![0.0_f64; most]);
    for ((one, coefficient), multiple) in data.observations.iter().zip(coefficients).zip(&data.noise) {
        own[one.arm] += scales.own.powi(2) * own_of(&data.own, one.arm, one.arm) * coefficient;
        noise[one.arm] += scales.noise.powi(2) * multiple * coefficient;
        counts[one.arm] += 1.0;
    }
    let multiple = |arm: usize| {
        let away: f64 = own[arm] + noise[arm] / counts[arm].max(1.0);
        let by_chance = scales.noise.powi(2) / counts[arm];
        let is_unlike = counts[arm] >= UNLIKE_ROUNDS && away.powi(2) > UNLIKE.powi(2) * by_chance;
        if is_unlike { ((away.powi(2) - by_chance) / scales.own.powi(2)).max(1.0) } else { 1.0 }
    };
    (0..most).map(multiple).collect()
}

/// The variance of each observation's noise relative to the common one: the variance of its arm,
/// times the factor that a heavy tail allows.
fn noise_multiples(data: &Data<'_>, scales: Scales, factored: &Cholesky, coefficients: &[f64]) -> Vec<f64> {
    let common = scales.noise.powi(2);
    // The expected square of each observation's error, given all of them, relative to the common
    // variance.
    let squares: Vec<f64> = factored
        .inverse_diagonal()
        .into_iter()
        .zip(coefficients)
        .zip(&data.noise)
        .map(|((inverse, coefficient), multiple)| {
            let variance = common * multiple;
            let error = variance * coefficient;
            let left = variance * (1.0 - variance * inverse).max(0.0);
            (error * error + left) / common
        })
        .collect();
    let most = data.observations.iter().map(|one| one.arm).max().unwrap_or(0) + 1;
    let (mut sums, mut counts) = (vec![COMMON; most], vec![COMMON; most]);
    // As if the weights of the last iteration had removed the tail.
    for ((one, square), multiple) in data.observations.iter().zip(&squares).zip(&data.noise) {
        sums[one.arm] += square / multiple.max(1.0);
        counts[one.arm] += 1.0;
    }
    data.observations
        .iter()
        .zip(squares)
        .map(|(one, square)| {
            // Shrunk towards the common variance, which counts as COMMON rounds: one or two rounds
            // of an arm say nothing about its variance.
            let of_arm = sums[one.arm] / counts[one.arm];
            // The mean of the weight of Student's t, given the error (Lange, Little and Taylor
            // 1989).
            let weight = (TAIL + 1.0) / (TAIL + square / of_arm);
            of_arm / weight
        })
        .collect()
}
