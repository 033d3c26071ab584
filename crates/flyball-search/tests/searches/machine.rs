//! Random machines, whose true energy and time are known.
//!
//! They have 12, 48 or 192 settings (preference, frequency, uncore, idle states) of a processor
//! whose time is partly bound by memory and whose energy has static, uncore and voltage-squared
//! parts. The noise: Student's t with 4 degrees, a different deviation for each setting, 1.5 % of
//! rounds up to 20 % too slow, a warm-up, a random walk, and a step in one machine of five.

use flyball_search::{Factor, Levels, Round, Space};
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Normal, StudentT};
use rand_pcg::Pcg64Mcg;

/// The numbers of levels: preference, frequency, uncore, idle states.
pub(crate) type Size = [usize; 4];

pub(crate) struct Machine {
    /// The logarithms of each setting's energy and time.
    truth: Vec<[f64; 2]>,
    deviations: Vec<f64>,
    /// By how much every round is slower, in the order of rounds.
    drift: Vec<f64>,
    seed: u64,
    /// How often each setting has run.
    runs: Vec<u64>,
    /// Rounds that have been run.
    pub done: usize,
    /// A setting, and by how much it slows the round after it, as a logarithm.
    slows: Option<(usize, f64)>,
    before: Option<usize>,
}

impl Machine {
    pub(crate) fn new(size: Size, noise: f64, seed: u64) -> Machine {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let between = |random: &mut Pcg64Mcg, low: f64, high: f64| random.random_range(low..high);
        let memory = between(&mut random, 0.1, 0.6);
        let power_limited = between(&mut random, 0.75, 1.0);
        let parts =
            [between(&mut random, 0.2, 0.5), between(&mut random, 0.05, 0.3), between(&mut random, 0.4, 0.9)];
        let exponent = between(&mut random, 2.0, 3.2);
        let eager = between(&mut random, 0.0, 0.06);
        let idle_gain = between(&mut random, -0.03, 0.06);
        let own = Normal::new(0.0, 0.004).expect("a deviation");
        let truth = levels(size)
            .into_iter()
            .map(|at| {
                let part = |index: usize| at[index] as f64 / (size[index] - 1).max(1) as f64;
                // A preference for performance holds the requested frequency; one for energy gives
                // away a little of it.
                let asked = (0.45 + 0.55 * part(1)) * (1.0 - eager * (1.0 - part(0)));
                let clock = asked.min(power_limited + 0.2 * (asked - power_limited));
                let uncore = if size[2] > 1 { 0.5 + 0.5 * part(2) } else { 1.0 };
                let time = (1.0 - memory) / clock + memory * (0.6 + 0.4 / uncore);
                let idle = if size[3] > 1 { idle_gain * part(3) } else { 0.0 };
                let power =
                    parts[0] * (1.0 - idle) + parts[1] * uncore.powi(2) + parts[2] * asked.powf(exponent);
                let shift = own.sample(&mut random);
                [(time * power).ln() + shift, time.ln() + own.sample(&mut random)]
            })
            .collect::<Vec<_>>();
        let spread = Normal::new(0.0, 0.5).expect("a deviation");
        let deviations = truth.iter().map(|_| noise * f64::exp(spread.sample(&mut random))).collect();
        let runs = vec![0; truth.len()];
        Machine {
            deviations,
            truth,
            drift: drift(noise, &mut random),
            seed,
            runs,
            done: 0,
            slows: None,
            before: None,
        }
    }

    /// This machine with all settings equal.
    pub(crate) fn flat(mut self) -> Machine {
        let first = self.truth[0];
        self.truth.fill(first);
        self
    }

    /// This machine with all settings equal except one, which takes 5 % less energy.
    pub(crate) fn needle(self) -> Machine {
        self.needle_of(0.05).0
    }

    /// This machine with all settings equal except one, and the index of that one.
    pub(crate) fn needle_of(self, gain: f64) -> (Machine, usize) {
        let place = (self.seed % self.truth.len() as u64) as usize;
        let mut machine = self.flat();
        machine.truth[place][0] -= gain;
        (machine, place)
    }

    /// This machine, on which a setting of medium merit slows the round after it.
    pub(crate) fn slowing_the_next(mut self, by: f64) -> Machine {
        let mut order: Vec<usize> = (0..self.truth.len()).collect();
        order.sort_by(|a, b| self.truth[*a][0].total_cmp(&self.truth[*b][0]));
        self.slows = Some((order[order.len() / 3], by));
        self
    }

    /// The true logarithm of a setting's energy and time.
    pub(crate) fn truth(&self, arm: usize) -> [f64; 2] {
        self.truth[arm]
    }

    pub(crate) fn round(&mut self, arm: usize) -> Round {
        // A setting's n-th round is equal in every way to search.
        let place = (arm as u64) << 32 | self.runs[arm];
        let mut random = Pcg64Mcg::seed_from_u64(self.seed ^ (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.runs[arm] += 1;
        let tail = StudentT::new(4.0).expect("degrees");
        // A t with 4 degrees has variance 2.
        let mut draw = || tail.sample(&mut random) / 2.0_f64.sqrt();
        let (time, other) = (draw(), draw());
        let energy = 0.6 * time + 0.8 * other;
        let slow = if random.random_bool(0.015) { random.random_range(0.0..0.2) } else { 0.0 };
        let left = self.slows.filter(|(slowing, _)| self.before == Some(*slowing)).map_or(0.0, |(_, by)| by);
        self.before = Some(arm);
        let drift = self.drift[self.done.min(self.drift.len() - 1)] + slow + left;
        self.done += 1;
        let noise = self.deviations[arm];
        let time = self.truth[arm][1] + drift + noise * time;
        Round {
            arm,
            objective: Some(self.truth[arm][0] + drift + noise * energy),
            bounded: Some(time),
            preferred: Some(time),
            seconds: time.exp(),
        }
    }

    /// The rounds of a setting without drift, and the drift, so that another program can add them
    /// up.
    pub(crate) fn recorded(&mut self, arm: usize, rounds: usize) -> Vec<[f64; 2]> {
        let drift = std::mem::replace(&mut self.drift, vec![0.0]);
        let values = (0..rounds).map(|_| {
            let round = self.round(arm);
            [round.objective, round.bounded].map(Option::unwrap_or_default)
        });
        let values = values.collect();
        self.drift = drift;
        values
    }

    pub(crate) fn drift(&self) -> &[f64] {
        &self.drift
    }

    /// Whether `arm` is a right answer: energy within 1 % of the best setting that keeps the limit,
    /// and the limit kept to half a percent.
    pub(crate) fn is_right(&self, arm: usize, base: usize, limit: Option<f64>) -> bool {
        let over = |arm: usize, more: f64| {
            limit.is_some_and(|limit| self.truth[arm][1] - self.truth[base][1] > limit + more)
        };
        let best = (0..self.truth.len())
            .filter(|arm| !over(*arm, 0.0))
            .map(|arm| self.truth[arm][0])
            .fold(f64::INFINITY, f64::min);
        self.truth[arm][0] <= best + 0.01 && !over(arm, 0.005)
    }
}

/// Warm-up, wander and perhaps a step, in logarithms.
fn drift(noise: f64, random: &mut Pcg64Mcg) -> Vec<f64> {
    let step = random
        .random_bool(0.2)
        .then(|| (random.random_range(10..200), random.random_range(-3.0..3.0) * noise));
    let normal = Normal::new(0.0, noise * (2.0_f64 / 40.0).sqrt()).expect("a deviation");
    let mut wander = 0.0;
    (0..4000)
        .map(|round| {
            // A random walk that returns within some 40 rounds.
            wander += normal.sample(random) - wander / 40.0;
            let warm = 2.0 * noise * f64::exp(-f64::from(round) / 8.0);
            let stepped = step.map_or(0.0, |(at, size)| if round >= at { size } else { 0.0 });
            wander + warm + stepped
        })
        .collect()
}

fn levels(size: Size) -> Vec<[usize; 4]> {
    let [a, b, c, d] = size;
    (0..a * b * c * d).map(|arm| [arm % a, arm / a % b, arm / a / b % c, arm / a / b / c]).collect()
}

pub(crate) fn space(size: Size) -> Space {
    let names = ["epp", "max-freq", "uncore-max-freq", "idle"];
    let factors: Vec<Factor> = names
        .iter()
        .zip(size)
        .map(|(name, levels)| Factor {
            name: (*name).to_owned(),
            levels: Levels::Ordered((0..levels).map(|level| level as f64).collect()),
        })
        .collect();
    let arms = levels(size).into_iter().map(|at| Some(at.to_vec())).collect::<Vec<_>>();
    // Everything at its highest, as a machine does by default.
    let base = arms.len() - 1;
    Space::new(&factors, arms, base).expect("a good space")
}
