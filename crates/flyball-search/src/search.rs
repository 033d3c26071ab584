//! Which arms to run next, and when to end.
//!
//! A block holds the base, the leader, and challengers drawn by how often each is the best in draws
//! of the model (top-two Thompson sampling, Russo 2016): rounds go to arms that can still change
//! the answer.

use std::cell::OnceCell;

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;

use crate::{
    fit::{Fit, Observation, Scales, fit},
    posterior::{Posterior, Wider, marginal},
    space::Space,
};

/// Goal: minimise one quantity, perhaps with a bound on another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// Differences up to this do not matter: a difference of logarithms, 0.01 for 1 %.
    pub within: f64,
    /// Upper bound of the second quantity.
    pub bound: Option<Bound>,
    /// The probability at which the search ends: 0.99.
    pub certainty: f64,
}

/// A bound on the second quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// The logarithm of the bound's ratio to the base.
    OverBase(f64),
    /// Logarithm of the bound.
    Absolute(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Round {
    pub arm: usize,
    /// The logarithm of the quantity to minimise. `None` if the round failed or was cut off.
    pub objective: Option<f64>,
    /// The logarithm of the quantity with a bound.
    pub bounded: Option<f64>,
    /// The logarithm of the quantity that decides between settings with equal objectives; less is
    /// better.
    pub preferred: Option<f64>,
    /// How long the round took in seconds, including everything around it.
    pub seconds: f64,
}

/// Next step of a search.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Run these arms, in this order, as one block.
    Run(Vec<usize>),
    /// The search is over.
    End(Choice),
}

/// The best arm so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    pub arm: usize,
    /// The probability, by the model, that it keeps the bound and that no other arm within the
    /// bound is better by more than [`Goal::within`].
    pub certainty: f64,
    /// The arm that is most often the best if this one is not.
    pub runner_up: Option<usize>,
    /// Arms that may be better by more than [`Goal::within`], with the probabilities of that, the
    /// largest first.
    pub undecided: Vec<(usize, f64)>,
    /// Set if the search ended early, because no arm is likely to beat the base by more than a
    /// certain difference of logarithms: that difference, and the probability of a larger one.
    /// `arm` is then the base.
    pub gain_left: Option<(f64, f64)>,
}

/// A search under way.
#[derive(Debug, Clone)]
pub struct Search {
    space: Space,
    goal: Goal,
    seed: u64,
    blocks: usize,
    rounds: Vec<(usize, Round)>,
    /// Fits of the objective and of the bounded quantity.
    fits: [Option<Fit>; 2],
    /// Odds after the rounds so far, drawn once for the next block, the end and the progress.
    odds: OnceCell<Option<Odds>>,
}

/// Up to this many arms, the first block runs all of them.
pub(crate) const ALL_AT_ONCE: usize = 12;
/// The number of arms in the first block of a larger space.
pub(crate) const FIRST: usize = 8;
/// The size of every other block, including the base and the leader.
pub(crate) const BLOCK: usize = 6;
/// Maximum probability of a gain worth a search when the search ends without one.
const GAIN_LEFT: f64 = 0.02;
/// Up to this many arms, each runs once before a search without a gain ends.
const ALL_RUN: usize = 64;
/// Minimum number of rounds of the chosen arm. With fewer, one lucky round decides in a few percent
/// of searches.
const LEAST_ROUNDS: usize = 5;
/// This many arms most like the leader run before the end, whatever the model expects of them.
const NEIGHBOURS: usize = 6;
/// The number of draws of the model, which determine 0.99 to 0.003.
const DRAWS: usize = 1000;
/// Minimum number of draws in which an arm must be the best to run again.
const LEAST_CHANCE: usize = 10;
/// Maximum number of arms whose values are drawn together. Arms left out are expected to be worse
/// by more than two deviations.
const CANDIDATES: usize = 256;
/// An arm that has failed so often is not run again.
const FAILURES: usize = 2;

/// Summary of the draws.
#[derive(Debug, Clone)]
struct Odds {
    /// The arms that were drawn.
    arms: Vec<usize>,
    /// In how many draws each keeps the bound and none is better by more than the indifference.
    good: Vec<usize>,
    /// In how many draws each is the best.
    best: Vec<usize>,
    /// In how many draws each is better than the leader by more than the indifference.
    better: Vec<usize>,
    /// The index of the leader.
    leader: usize,
    /// In how many draws the best is better than the base by enough to be worth a search.
    worth: usize,
}

impl Search {
    pub fn new(space: Space, goal: Goal, seed: u64) -> Search {
        Search { space, goal, seed, blocks: 0, rounds: Vec::new(), fits: [None, None], odds: OnceCell::new() }
    }

    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The blocks given so far.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// The scales of the model of the objective.
    pub fn scales(&self) -> Option<Scales> {
        Some(self.fits[0].as_ref()?.scales)
    }

    /// Adds the rounds of one block, in any order.
    pub fn add(&mut self, block: &[Round]) {
        self.rounds.extend(block.iter().map(|round| (self.blocks, *round)));
        self.blocks += 1;
        self.fit();
    }

    fn fit(&mut self) {
        let observed = [self.observed(|round| round.objective), self.observed(|round| round.bounded)];
        for (known, observed) in self.fits.iter_mut().zip(observed) {
            *known = fit(&self.space, observed, known.as_ref());
        }
        self.odds = OnceCell::new();
    }

    /// Returns the measurements of one quantity.
    fn observed(&self, value: fn(&Round) -> Option<f64>) -> Vec<Observation> {
        let values = self.rounds.iter().filter_map(|(block, round)| {
            Some(Observation { block: *block, arm: round.arm, value: value(round)? })
        });
        values.collect()
    }

    /// The generator for this block's draws (0) or its members (1). Each block has its own, as in a
    /// comparison's schedule, so that nothing depends on earlier draws.
    fn random(&self, stream: u8) -> Pcg64Mcg {
        let seed = self.seed ^ (self.blocks as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Pcg64Mcg::seed_from_u64(if stream == 0 { seed } else { !seed })
    }

    fn odds(&self) -> Option<&Odds> {
        self.odds.get_or_init(|| self.draw_odds(&mut self.random(0))).as_ref()
    }

    /// Returns the next step.
    pub fn step(&self) -> Step {
        let mut random = self.random(1);
        let mut next = match self.odds() {
            None => self.space.spread(if self.space.len() <= ALL_AT_ONCE { self.space.len() } else { FIRST }),
            Some(odds) => {
                let mut again = self.second_looks(odds);
                if again.is_empty() {
                    again = self.unknown(odds, &mut random);
                }
                let is_settled = self.settled(odds);
                if again.is_empty() && (is_settled || self.is_without_gain(odds)) {
                    again = self.left_open(odds);
                    if !is_settled {
                        again.extend(self.seldom_run(odds));
                    }
                    if again.is_empty() {
                        return Step::End(if is_settled { self.choice(odds) } else { self.base(odds) });
                    }
                }
                self.block(odds, &again, &mut random)
            }
        };
        // The first round of a block is often the coldest or the most disturbed one.
        next.shuffle(&mut random);
        Step::Run(next)
    }

    /// The best arm by what is known now, for a search that must end. `None` before the first
    /// block.
    pub fn best(&self) -> Option<Choice> {
        Some(self.choice(self.odds()?))
    }

    /// The expected logarithm of each arm's objective and its standard deviation. `None` before the
    /// first block.
    pub fn expected(&self) -> Option<Vec<(f64, f64)>> {
        let fit = self.fits[0].as_ref()?;
        Some((0..self.space.len()).map(|arm| marginal(&self.space, fit, arm)).collect())
    }

    /// By how much an arm's objective is expected to exceed the base's, in logarithms, with the
    /// standard deviation.
    pub fn against_base(&self, arm: usize) -> Option<(f64, f64)> {
        self.difference(0, self.space.base(), arm)
    }

    /// By how much the second arm is expected to exceed the first in the objective (0) or the
    /// bounded quantity (1).
    pub(crate) fn difference(&self, quantity: usize, from: usize, to: usize) -> Option<(f64, f64)> {
        Some(Posterior::new(&self.space, self.fitted(quantity)?, &[from, to])?.difference())
    }

    /// The model of the objective (0) or of the bounded quantity (1).
    pub(crate) fn fitted(&self, quantity: usize) -> Option<&Fit> {
        self.fits[quantity].as_ref()
    }

    /// Returns, by factor, the share of the objective's expected differences that it explains
    /// alone.
    pub fn shares(&self) -> Option<Vec<f64>> {
        let expected: Vec<f64> = self.expected()?.into_iter().map(|(mean, _)| mean).collect();
        Some(self.space.shares(&expected))
    }

    fn draw_odds(&self, random: &mut Pcg64Mcg) -> Option<Odds> {
        let objective = self.fits[0].as_ref()?;
        let arms = self.candidates(objective);
        let base = arms.iter().position(|arm| *arm == self.space.base())?;
        let values = Posterior::new(&self.space, objective, &arms)?;
        let bounded = match self.goal.bound {
            None => None,
            Some(bound) => Some((bound, Posterior::new(&self.space, self.fits[1].as_ref()?, &arms)?)),
        };
        let wider = Wider::new(arms.iter().map(|arm| self.runs(*arm)));
        let mut good = vec![0; arms.len()];
        let mut best = vec![0; arms.len()];
        // Kept, because the leader is known only after all draws, and each draw is then compared
        // with it.
        let mut draws = Vec::with_capacity(DRAWS);
        let (worth_a_search, mut worth) = (self.worth_a_search(), 0);
        for _ in 0..DRAWS {
            let values = wider.draw(&values, random);
            // By how much each arm exceeds the bound.
            let over: Vec<f64> = match &bounded {
                None => vec![f64::NEG_INFINITY; arms.len()],
                Some((Bound::Absolute(most), posterior)) => {
                    wider.draw(posterior, random).into_iter().map(|value| value - most).collect()
                }
                Some((Bound::OverBase(most), posterior)) => {
                    let drawn = wider.draw(posterior, random);
                    let most = drawn[base] + most;
                    drawn.into_iter().map(|value| value - most).collect()
                }
            };
            let winner = winner(&values, &over);
            best[winner] += 1;
            worth += usize::from(values[winner] < values[base] - worth_a_search);
            for (arm, count) in good.iter_mut().enumerate() {
                *count += usize::from(match over[winner] {
                    // No arm keeps the bound: the nearest one is the right answer.
                    least if least > 0.0 => self.is_good(0.0, over[arm] - least),
                    _ => self.is_good(values[arm] - values[winner], over[arm]),
                });
            }
            draws.push((values, over));
        }
        let leader = (0..arms.len()).max_by_key(|arm| (good[*arm], best[*arm]))?;
        let mut better = vec![0; arms.len()];
        for (values, over) in &draws {
            for (arm, count) in better.iter_mut().enumerate() {
                *count += usize::from(over[arm] <= 0.0 && values[arm] < values[leader] - self.goal.within);
            }
        }
        Some(Odds { arms, good, best, better, leader, worth })
    }

    /// Returns whether an arm is a right answer that is worse than the best by `behind` and exceeds
    /// the bound by `over`.
    fn is_good(&self, behind: f64, over: f64) -> bool {
        // Many arms meet a bound almost exactly, and no number of rounds decides those. So half of
        // what does not matter is allowed. With a quarter, searches near a bound took a quarter
        // more rounds and were right as often.
        behind <= self.goal.within && over <= self.goal.within / 2.0
    }

    /// The arms to draw: all of them or, if the space is too large, those that may be the best.
    pub(crate) fn candidates(&self, objective: &Fit) -> Vec<usize> {
        let failed = |arm: &usize| {
            let failures =
                self.rounds.iter().filter(|(_, round)| round.arm == *arm && round.objective.is_none());
            // Without the base there is nothing to compare with; the caller reports its failures.
            *arm != self.space.base() && failures.count() >= FAILURES
        };
        let mut arms: Vec<usize> = (0..self.space.len()).filter(|arm| !failed(arm)).collect();
        if arms.len() > CANDIDATES {
            let promise: Vec<f64> = (0..self.space.len())
                .map(|arm| {
                    let (mean, deviation) = marginal(&self.space, objective, arm);
                    mean - 2.0 * deviation
                })
                .collect();
            // The base and arms that have run stay in any case: leaving them out would discard
            // measurements.
            arms.sort_by(|a, b| {
                let first = |arm: &usize| (*arm != self.space.base(), self.runs(*arm) == 0);
                first(a).cmp(&first(b)).then(promise[*a].total_cmp(&promise[*b]))
            });
            arms.truncate(CANDIDATES);
        }
        arms
    }

    /// Rounds of an arm that count.
    pub fn runs(&self, arm: usize) -> usize {
        self.rounds.iter().filter(|(_, round)| round.arm == arm && round.objective.is_some()).count()
    }

    /// Returns whether the search can end.
    fn settled(&self, odds: &Odds) -> bool {
        let leader = odds.arms[odds.leader];
        let enough = |arm| self.runs(arm) >= LEAST_ROUNDS;
        odds.good[odds.leader] as f64 >= self.goal.certainty * DRAWS as f64
            && enough(leader)
            // The bound is relative to the base.
            && (self.goal.bound.is_none() || enough(self.space.base()))
    }

    /// Returns whether no arm is likely to beat the base by enough to be worth a search.
    fn is_without_gain(&self, odds: &Odds) -> bool {
        odds.worth as f64 <= GAIN_LEFT * DRAWS as f64
            && self.runs(self.space.base()) >= LEAST_ROUNDS
            // The base may break an absolute bound.
            && !matches!(self.goal.bound, Some(Bound::Absolute(_)))
    }

    /// Arms that have run at most once, some at a time: the model mistakes a gain of one arm alone
    /// for noise.
    fn seldom_run(&self, odds: &Odds) -> Vec<usize> {
        odds.arms.iter().copied().filter(|arm| self.runs(*arm) < 2).take(BLOCK - 2).collect()
    }

    /// The gain over the base, a difference of logarithms. If no larger one is likely, a search
    /// ends early.
    fn worth_a_search(&self) -> f64 {
        2.0 * self.goal.within
    }

    /// The choice of the base, at the end of a search without a gain.
    fn base(&self, odds: &Odds) -> Choice {
        Choice {
            arm: self.space.base(),
            certainty: self.certainty(self.space.base()),
            gain_left: Some((self.worth_a_search(), odds.worth as f64 / DRAWS as f64)),
            ..self.choice(odds)
        }
    }

    /// The probability that an arm is a right answer.
    fn certainty(&self, arm: usize) -> f64 {
        let place = |odds: &&Odds| odds.arms.iter().position(|other| *other == arm);
        let odds = self.odds();
        odds.zip(odds.as_ref().and_then(place))
            .map_or(0.0, |(odds, place)| odds.good[place] as f64 / DRAWS as f64)
    }

    /// Arms that have not run, some at a time, as long as none is expected to be worth a search. If
    /// the model has only seen equal arms, it knows nothing of one that differs.
    fn unknown(&self, odds: &Odds, random: &mut Pcg64Mcg) -> Vec<usize> {
        let gain = self.against_base(odds.arms[odds.leader]).map_or(0.0, |(mean, _)| -mean);
        if gain >= self.worth_a_search() || self.space.len() > ALL_RUN {
            return Vec::new();
        }
        let mut unknown: Vec<usize> = odds.arms.iter().copied().filter(|arm| self.runs(*arm) == 0).collect();
        unknown.shuffle(random);
        unknown.truncate(BLOCK - 2);
        unknown
    }

    /// Arms that would be better than the leader by all other rounds, with only one round of their
    /// own against it.
    fn second_looks(&self, odds: &Odds) -> Vec<usize> {
        let Some(objective) = &self.fits[0] else { return Vec::new() };
        let (leader, _) = marginal(&self.space, objective, odds.arms[odds.leader]);
        let most = match (self.goal.bound, &self.fits[1]) {
            (Some(Bound::Absolute(most)), _) => most,
            (Some(Bound::OverBase(most)), Some(bounded)) => {
                most + marginal(&self.space, bounded, self.space.base()).0
            }
            _ => f64::INFINITY,
        };
        let by_others = |fit: &Fit, arm: usize| {
            let mut all = fit.observations.iter().zip(&fit.by_others);
            all.find(|(one, _)| one.arm == arm).map(|(_, by)| *by)
        };
        let alone = |arm: &usize| {
            self.runs(*arm) == 1
                && by_others(objective, *arm).is_some_and(|value| value < leader)
                && self.fits[1]
                    .as_ref()
                    .is_none_or(|fit| by_others(fit, *arm).is_none_or(|value| value <= most))
        };
        odds.arms.iter().copied().filter(alone).collect()
    }

    /// Arms that are ruled out by the model alone, before a search ends: those most like the leader
    /// that have not run, and those whose few rounds, compared with the base in the same blocks,
    /// are better than the leader's by more than the indifference.
    fn left_open(&self, odds: &Odds) -> Vec<usize> {
        let leader = odds.arms[odds.leader];
        let alike = |arm: usize| self.space.likeness(leader, arm).single;
        let mut arms: Vec<usize> = odds.arms.iter().copied().filter(|arm| *arm != leader).collect();
        arms.sort_by(|a, b| alike(*b).total_cmp(&alike(*a)));
        let best = self.measured(leader).unwrap_or(f64::INFINITY) - self.goal.within;
        let is_open = |(place, arm): (usize, usize)| match self.runs(arm) {
            0 => place < NEIGHBOURS,
            runs => runs < LEAST_ROUNDS && self.measured(arm).is_some_and(|value| value < best),
        };
        let open = arms.iter().copied().enumerate().filter(|one| is_open(*one));
        open.map(|(_, arm)| arm).collect()
    }

    /// The median of an arm's rounds, each relative to the base in its block. `None` without
    /// rounds, or if they break the bound.
    fn measured(&self, arm: usize) -> Option<f64> {
        let own = || self.rounds.iter().filter(|(_, round)| round.arm == arm);
        let middle = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            Some(f64::midpoint(*all.get(all.len().checked_sub(1)? / 2)?, all[all.len() / 2]))
        };
        let against = |value: fn(&Round) -> Option<f64>| {
            let of = |block: usize| {
                let own = self.rounds.iter().find(|(at, one)| *at == block && one.arm == self.space.base());
                own.and_then(|(_, base)| value(base))
            };
            middle(own().filter_map(|(block, round)| Some(value(round)? - of(*block)?)).collect())
        };
        let (bounded, most) = match self.goal.bound {
            Some(Bound::OverBase(most)) => (against(|round| round.bounded), most),
            Some(Bound::Absolute(most)) => {
                (middle(own().filter_map(|(_, round)| round.bounded).collect()), most)
            }
            None => (None, f64::INFINITY),
        };
        against(|round| round.objective).filter(|_| bounded.is_none_or(|value| value <= most))
    }

    /// The arms of the next block.
    fn block(&self, odds: &Odds, again: &[usize], random: &mut Pcg64Mcg) -> Vec<usize> {
        // Always with the base and the leader: only differences within a block count, and these two
        // decide when to end.
        let mut block = vec![self.space.base()];
        let add = |arm: usize, block: &mut Vec<usize>| {
            if block.len() < BLOCK && !block.contains(&arm) {
                block.push(arm);
            }
        };
        add(odds.arms[odds.leader], &mut block);
        for arm in again {
            add(*arm, &mut block);
        }
        let mut weights: Vec<f64> = odds
            .arms
            .iter()
            .zip(&odds.best)
            // Not filled up with arms that are hardly ever the best: a smaller block has more
            // rounds of base and leader, on which limit and saving depend (fewer rounds for the
            // same rate of right answers, in the tests).
            .map(|(arm, best)| match *best {
                best if best < LEAST_CHANCE || block.contains(arm) => 0.0,
                // Weighted by seconds, because they are the cost.
                best => best as f64 / self.seconds(*arm),
            })
            .collect();
        while block.len() < BLOCK {
            let Some(chosen) = take_by_weight(&mut weights, random) else { break };
            add(odds.arms[chosen], &mut block);
        }
        block
    }

    /// How long a round of an arm takes: the mean of its own rounds, or of all if it has none.
    pub(crate) fn seconds(&self, arm: usize) -> f64 {
        let mean = |of: &dyn Fn(usize) -> bool| {
            let (mut sum, mut count) = (0.0, 0.0);
            for (_, round) in self.rounds.iter().filter(|(_, round)| of(round.arm)) {
                sum += round.seconds;
                count += 1.0;
            }
            (count > 0.0 && sum > 0.0).then(|| sum / count)
        };
        mean(&|other| other == arm).or_else(|| mean(&|_| true)).unwrap_or(1.0)
    }

    fn choice(&self, odds: &Odds) -> Choice {
        let share = |count: usize| count as f64 / DRAWS as f64;
        let others = |arm: &usize| *arm != odds.leader;
        let runner_up = (0..odds.arms.len())
            .filter(others)
            .max_by_key(|arm| (odds.best[*arm], odds.good[*arm]))
            .map(|arm| odds.arms[arm]);
        let mut undecided: Vec<(usize, f64)> = (0..odds.arms.len())
            .filter(others)
            .filter(|arm| share(odds.better[*arm]) >= 1.0 - self.goal.certainty)
            .map(|arm| (odds.arms[arm], share(odds.better[arm])))
            .collect();
        undecided.sort_by(|a, b| b.1.total_cmp(&a.1));
        let choice = Choice {
            arm: odds.arms[odds.leader],
            certainty: share(odds.good[odds.leader]),
            runner_up,
            undecided,
            gain_left: None,
        };
        self.preferred(odds, choice)
    }

    /// Among the settings that are certainly good enough, returns the one with the least preferred
    /// quantity: energy is often flat where time is not.
    fn preferred(&self, odds: &Odds, choice: Choice) -> Choice {
        let equal = |arm: &usize| {
            odds.good[*arm] as f64 >= self.goal.certainty * DRAWS as f64
                && self.runs(odds.arms[*arm]) >= LEAST_ROUNDS
        };
        let equals: Vec<usize> = (0..odds.arms.len()).filter(equal).collect();
        if equals.len() < 2 {
            return choice;
        }
        // Fitted only here: most blocks do not need it.
        let Some(fit) = fit(&self.space, self.observed(|round| round.preferred), None) else { return choice };
        let expected = |arm: usize| marginal(&self.space, &fit, arm).0;
        let best =
            equals.into_iter().map(|arm| (arm, expected(odds.arms[arm]))).min_by(|a, b| a.1.total_cmp(&b.1));
        match best {
            // A difference that does not matter does not change the choice.
            Some((arm, value)) if value < expected(choice.arm) - self.goal.within / 2.0 => Choice {
                arm: odds.arms[arm],
                certainty: odds.good[arm] as f64 / DRAWS as f64,
                runner_up: Some(choice.arm),
                undecided: choice
                    .undecided
                    .into_iter()
                    .filter(|(other, _)| *other != odds.arms[arm])
                    .collect(),
                gain_left: None,
            },
            _ => choice,
        }
    }
}

/// The best arm of a draw: the least value among those that keep the bound, or, if there are none,
/// the arm nearest to the bound.
fn winner(values: &[f64], over: &[f64]) -> usize {
    // Even if no arm keeps the bound, the search has to end. It then reports that the bound is not
    // kept.
    let allowed = (0..values.len()).filter(|arm| over[*arm] <= 0.0);
    allowed
        .min_by(|a, b| values[*a].total_cmp(&values[*b]))
        .or_else(|| (0..over.len()).min_by(|a, b| over[*a].total_cmp(&over[*b])))
        .unwrap_or(0)
}

/// Draws an index with a probability proportional to its weight, and sets its weight to 0. `None`
/// if all weights are 0.
pub(crate) fn take_by_weight(weights: &mut [f64], random: &mut Pcg64Mcg) -> Option<usize> {
    let sum: f64 = weights.iter().sum();
    if sum <= 0.0 {
        return None;
    }
    let mut place = random.random::<f64>() * sum;
    // Rounding can leave a remainder after the last weight: then the last one with a weight is
    // chosen.
    let chosen = weights
        .iter()
        .position(|weight| {
            place -= weight;
            *weight > 0.0 && place < 0.0
        })
        .or_else(|| weights.iter().rposition(|weight| *weight > 0.0))?;
    weights[chosen] = 0.0;
    Some(chosen)
}
