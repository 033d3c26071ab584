//! The front of two quantities: the settings that no other one dominates.
//!
//! A setting dominates another if it is better in one quantity by more than what does not matter,
//! and not worse in the other by more than that. The posterior of the model alone names wrong
//! fronts in one search of seven, because a front makes as many claims as there are settings. So a
//! search has two parts. The first spends its rounds where draws of the model disagree about a
//! setting, and ends with one proposal for each setting. The second tests the proposals in fresh
//! rounds ([`fresh`]), and runs only the settings that are still undecided.

mod fresh;

use std::cell::OnceCell;

use rand::{SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;

use self::fresh::Fresh;
use crate::{
    posterior::Posterior,
    search::{ALL_AT_ONCE, BLOCK, FIRST, Goal, Round, Search, take_by_weight},
    space::Space,
};

/// Goal of a search for a front.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrontGoal {
    /// Differences up to this do not matter: a difference of logarithms.
    pub within: f64,
    /// The probability that all claims are right: 0.95.
    pub confidence: f64,
    /// Maximum number of rounds, including the fresh ones.
    pub most: usize,
}

/// Claim about a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    /// No setting dominates it.
    OnFront,
    /// This arm dominates it.
    Dominated { by: usize },
    /// Neither has been shown.
    Undecided,
}

/// Knowledge about a setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    pub label: Label,
    /// Label that the first part proposed and fresh rounds test; `Undecided` during the first part.
    pub proposed: Label,
    /// The probability, by the model and the rounds of the first part, that nothing dominates it.
    pub chance: f64,
    /// The p-value of the fresh rounds if the proposal were wrong; 1 without fresh rounds.
    pub p: f64,
}

/// A search for the front. [`Round::objective`] and [`Round::bounded`] are its two quantities.
#[derive(Debug)]
pub struct Front {
    /// The first part's rounds and their model.
    search: Search,
    goal: FrontGoal,
    seed: u64,
    /// All rounds so far.
    done: usize,
    /// All blocks so far.
    blocks: usize,
    odds: OnceCell<Option<Odds>>,
    /// The second part, once it has begun.
    fresh: Option<Fresh>,
}

/// Summary of the model's draws.
#[derive(Debug)]
struct Odds {
    /// The arms that were drawn.
    arms: Vec<usize>,
    /// In how many draws nothing dominates each arm.
    on_front: Vec<usize>,
    /// In how many draws the second arm dominates the first; row by row.
    dominated: Vec<usize>,
    /// Expected values by quantity.
    means: [Vec<f64>; 2],
}

/// Number of draws. Fewer than for one best setting: each draw compares pairs of settings.
const DRAWS: usize = 400;
/// How certain the model must be of every proposal before fresh rounds begin.
const CERTAIN: f64 = 0.95;
/// Maximum number of rounds of the first part: a constant, and this many per arm.
const ROUNDS: (usize, f64) = (12, 1.0);

impl Front {
    pub fn new(space: Space, goal: FrontGoal, seed: u64) -> Front {
        // The model of this search is used, but not its end.
        let only = Goal { within: goal.within, bound: None, certainty: 1.0 };
        Front {
            search: Search::new(space, only, seed),
            goal,
            seed,
            done: 0,
            blocks: 0,
            odds: OnceCell::new(),
            fresh: None,
        }
    }

    pub fn space(&self) -> &Space {
        self.search.space()
    }

    /// The search whose model is used, with the rounds of the first part.
    pub fn search(&self) -> &Search {
        &self.search
    }

    /// How many rounds are fresh.
    pub fn fresh_rounds(&self) -> usize {
        self.fresh.as_ref().map_or(0, Fresh::rounds)
    }

    /// Returns whether the fresh rounds have begun.
    pub fn is_fresh(&self) -> bool {
        self.fresh.is_some()
    }

    /// Adds the rounds of one block. `step` returns the rounding step of a quantity in two arms, as
    /// a difference of logarithms; none if it is not known.
    pub fn add(&mut self, block: &[Round], step: impl Fn(usize, [usize; 2]) -> Option<f64>) {
        self.done += block.len();
        self.blocks += 1;
        match &mut self.fresh {
            Some(fresh) => fresh.add(block, step),
            None => {
                self.search.add(block);
                self.odds = OnceCell::new();
                self.fresh = self.proposals();
            }
        }
    }

    /// The orders of the next blocks, which run interleaved: one, or all fresh ones up to the next
    /// look. `None` at the end.
    pub fn next(&self) -> Option<Vec<Vec<usize>>> {
        let mut random =
            Pcg64Mcg::seed_from_u64(self.seed ^ (self.blocks as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let count = self.fresh.as_ref().map_or(1, Fresh::until_look);
        let next = match (&self.fresh, self.odds()) {
            (Some(fresh), _) => fresh.next(),
            (None, None) => {
                let count = if self.space().len() <= ALL_AT_ONCE { self.space().len() } else { FIRST };
                self.space().spread(count)
            }
            (None, Some(odds)) => self.block(odds, &mut random),
        };
        // Settings are compared within a block: a block that is cut short by the end of the rounds
        // would be wasted.
        if next.is_empty() || (self.done > 0 && self.done + count * next.len() > self.goal.most) {
            return None;
        }
        let mut order = || {
            let mut order = next.clone();
            order.shuffle(&mut random);
            order
        };
        Some((0..count).map(|_| order()).collect())
    }

    /// Returns the knowledge about each arm.
    pub fn standings(&self) -> Vec<Standing> {
        let odds = self.odds();
        let chance = |arm: usize| {
            let place = odds.and_then(|odds| odds.arms.iter().position(|other| *other == arm));
            odds.zip(place).map_or(0.0, |(odds, place)| odds.on_front[place] as f64 / DRAWS as f64)
        };
        let arms = 0..self.space().len();
        arms.map(|arm| match &self.fresh {
            Some(fresh) => Standing { chance: chance(arm), ..fresh.standing(arm) },
            None => {
                Standing { label: Label::Undecided, proposed: Label::Undecided, chance: chance(arm), p: 1.0 }
            }
        })
        .collect()
    }

    /// By how much each arm's two quantities are expected to exceed the base's, with the standard
    /// deviations.
    pub fn against_base(&self) -> Vec<[(f64, f64); 2]> {
        // All rounds count here: this makes no claims, and more rounds give a better picture.
        let mut all = self.search.clone();
        for block in self.fresh.iter().flat_map(Fresh::blocks) {
            all.add(block);
        }
        let of = |quantity, arm| all.difference(quantity, self.space().base(), arm).unwrap_or_default();
        (0..self.space().len()).map(|arm| [of(0, arm), of(1, arm)]).collect()
    }

    fn odds(&self) -> Option<&Odds> {
        self.odds.get_or_init(|| self.draw()).as_ref()
    }

    fn draw(&self) -> Option<Odds> {
        let fits = [self.search.fitted(0)?, self.search.fitted(1)?];
        let arms = self.search.candidates(fits[0]);
        let count = arms.len();
        let posteriors =
            [Posterior::new(self.space(), fits[0], &arms)?, Posterior::new(self.space(), fits[1], &arms)?];
        let mut random =
            Pcg64Mcg::seed_from_u64(!self.seed ^ (self.blocks as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut on_front = vec![0; count];
        let mut dominated = vec![0; count * count];
        for _ in 0..DRAWS {
            let [first, second] = [posteriors[0].draw(&mut random), posteriors[1].draw(&mut random)];
            for arm in 0..count {
                let mut is_on_front = true;
                for other in 0..count {
                    let by = [first[other] - first[arm], second[other] - second[arm]];
                    if dominates(by, self.goal.within) {
                        dominated[arm * count + other] += 1;
                        is_on_front = false;
                    }
                }
                on_front[arm] += usize::from(is_on_front);
            }
        }
        let means = posteriors.map(|posterior| posterior.mean);
        Some(Odds { arms, on_front, dominated, means })
    }

    /// The proposals, if the model is certain of them or the rounds of the first part are used up.
    fn proposals(&self) -> Option<Fresh> {
        let odds = self.odds()?;
        let is_certain = |count: &usize| {
            let share = *count as f64 / DRAWS as f64;
            share.max(1.0 - share) >= CERTAIN
        };
        let most = ROUNDS.0 + (ROUNDS.1 * odds.arms.len() as f64) as usize;
        // At least a third is left for fresh rounds, without which nothing can be claimed.
        if !odds.on_front.iter().all(is_certain) && self.done < most.min(self.goal.most * 2 / 3) {
            return None;
        }
        let count = odds.arms.len();
        let left = self.goal.most.saturating_sub(self.done);
        let mut fresh = Fresh::new(self.goal);
        let noise = |quantity: usize, arm: usize| {
            self.search.fitted(quantity).map_or(1.0, |fit| fit.noise_of(odds.arms[arm]))
        };
        let difference = |quantity: usize, arm: usize, other: usize| {
            odds.means[quantity][other] - odds.means[quantity][arm]
        };
        // The least clear come last: if rounds do not suffice for all, these stay undecided.
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|arm| std::cmp::Reverse(odds.on_front[*arm].max(DRAWS - odds.on_front[*arm])));
        for arm in order {
            let row = &odds.dominated[arm * count..(arm + 1) * count];
            // In a large space, settings that never dominate in the draws are left to the model,
            // because each rival needs fresh rounds.
            let rivals =
                (0..count).filter(|other| *other != arm && (row[*other] > 0 || count <= ALL_AT_ONCE));
            if odds.on_front[arm] * 2 >= DRAWS {
                let tests = rivals.flat_map(|other| {
                    let by = [difference(0, arm, other), difference(1, arm, other)];
                    fresh::no_domination(
                        odds.arms[other],
                        by,
                        [0, 1].map(|q| noise(q, arm) + noise(q, other)),
                        self.goal.within,
                    )
                });
                let tests = tests.collect();
                fresh.propose(odds.arms[arm], Label::OnFront, tests, left);
            } else {
                let clear = |other: usize| {
                    let by = [difference(0, arm, other), difference(1, arm, other)];
                    fresh::domination(
                        odds.arms[other],
                        by,
                        [0, 1].map(|q| noise(q, arm) + noise(q, other)),
                        self.goal.within,
                    )
                };
                let best = (0..count)
                    .filter(|other| *other != arm)
                    .map(|other| (odds.arms[other], clear(other)))
                    .max_by(|a, b| a.1.0.total_cmp(&b.1.0));
                if let Some((by, (_, tests))) = best {
                    fresh.propose(odds.arms[arm], Label::Dominated { by }, tests, left);
                }
            }
        }
        fresh.know_noise([0, 1].map(|quantity| {
            let fit = self.search.fitted(quantity);
            (0..self.space().len()).map(|arm| fit.map_or(1.0, |fit| fit.noise_of(arm))).collect()
        }));
        Some(fresh)
    }

    /// A block of the first part: the base, and settings on which the draws disagree, each with the
    /// setting that dominates it most often.
    fn block(&self, odds: &Odds, random: &mut Pcg64Mcg) -> Vec<usize> {
        let count = odds.arms.len();
        let mut block = vec![self.space().base()];
        let mut weights: Vec<f64> = odds
            .on_front
            .iter()
            .zip(&odds.arms)
            .map(|(on_front, arm)| {
                let share = *on_front as f64 / DRAWS as f64;
                // A setting's disagreement. The more rounds a setting has, the less another one
                // reduces it.
                share * (1.0 - share) / (1.0 + self.search.runs(*arm) as f64) / self.search.seconds(*arm)
            })
            .collect();
        while block.len() < BLOCK {
            let Some(chosen) = take_by_weight(&mut weights, random) else { break };
            let row = &odds.dominated[chosen * count..(chosen + 1) * count];
            let rival = (0..count).max_by_key(|other| row[*other]).filter(|other| row[*other] > 0);
            // The two are compared with each other, so they belong in one block.
            for one in [Some(chosen), rival].into_iter().flatten() {
                if block.len() < BLOCK && !block.contains(&odds.arms[one]) {
                    block.push(odds.arms[one]);
                }
            }
        }
        block
    }
}

/// Returns whether a setting dominates that is worse by `by` in the two quantities (negative:
/// better).
fn dominates(by: [f64; 2], within: f64) -> bool {
    (by[0] < -within && by[1] <= within) || (by[1] < -within && by[0] <= within)
}
