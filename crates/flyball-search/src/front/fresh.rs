//! The proposals of a front and their tests in fresh rounds.
//!
//! A proposal is a list of statements about differences of two settings, all of which must be shown
//! (an intersection-union test: none of them needs a correction). Holm's procedure corrects for the
//! number of proposals. The looks at growing numbers of rounds divide the error among them.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{FrontGoal, Label, Standing};
use crate::search::Round;

/// One statement: the difference of a quantity, the other setting minus this one, times `sign`
/// exceeds `more_than`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Test {
    pub other: usize,
    pub quantity: usize,
    pub sign: f64,
    pub more_than: f64,
    /// The rounding step of both arms' values, if it is known. Rounding can hide how small a
    /// difference is, but it does not reverse one.
    pub step: Option<f64>,
}

/// Proposed label of one setting.
#[derive(Debug)]
struct Proposal {
    arm: usize,
    label: Label,
    tests: Vec<Test>,
    /// The p-value of all its tests together at the last look.
    p: f64,
    is_shown: bool,
    /// True if no allowed number of rounds is likely to show it.
    is_hopeless: bool,
}

/// The second part of a front's search.
#[derive(Debug)]
pub(super) struct Fresh {
    goal: FrontGoal,
    proposals: Vec<Proposal>,
    blocks: Vec<Vec<Round>>,
    /// Variance of a round by quantity and arm, from earlier rounds.
    noise: [Vec<f64>; 2],
    /// Arms of all proposals.
    arms: Vec<usize>,
}

/// The numbers of fresh blocks after which proposals are tested, with their shares of the allowed
/// error.
const LOOKS: [(usize, f64); 3] = [(3, 0.4), (6, 0.3), (9, 0.3)];
/// How many rounds the variance of the first part counts as, as in the model.
const COMMON: f64 = 6.0;
/// If a proposal reaches less than this share of the needed distance, it is given up.
const MIN_DISTANCE_SHARE: f64 = 0.6;

/// Returns the tests that show that another setting dominates this one, and the least distance of
/// their statements, in deviations.
pub(super) fn domination(other: usize, by: [f64; 2], noise: [f64; 2], within: f64) -> (f64, Vec<Test>) {
    let clear = |better: usize| {
        let worse = 1 - better;
        let tests = vec![
            Test { other, quantity: better, sign: -1.0, more_than: 0.0, step: None },
            Test { other, quantity: worse, sign: -1.0, more_than: -within, step: None },
        ];
        let distance = |quantity: usize, margin: f64| (margin - by[quantity]) / noise[quantity].sqrt();
        (distance(better, 0.0).min(distance(worse, within)), tests)
    };
    let (first, second) = (clear(0), clear(1));
    if first.0 >= second.0 { first } else { second }
}

/// Returns the tests that show that another setting does not dominate: the clearest of three ways.
pub(super) fn no_domination(other: usize, by: [f64; 2], noise: [f64; 2], within: f64) -> Vec<Test> {
    let distance = |quantity: usize, margin: f64| (by[quantity] - margin) / noise[quantity].sqrt();
    let test = |quantity, more_than| Test { other, quantity, sign: 1.0, more_than, step: None };
    let ways = [
        (distance(0, 0.0), vec![test(0, 0.0)]),
        (distance(1, 0.0), vec![test(1, 0.0)]),
        // Another setting does not dominate if it is not better by what matters in either quantity.
        (distance(0, -within).min(distance(1, -within)), vec![test(0, -within), test(1, -within)]),
    ];
    ways.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map_or_else(Vec::new, |(_, tests)| tests)
}

impl Fresh {
    pub(super) fn new(goal: FrontGoal) -> Fresh {
        Fresh {
            goal,
            proposals: Vec::new(),
            blocks: Vec::new(),
            noise: [Vec::new(), Vec::new()],
            arms: Vec::new(),
        }
    }

    pub(super) fn know_noise(&mut self, noise: [Vec<f64>; 2]) {
        self.noise = noise;
    }

    /// Proposes a label, if its arms fit into the remaining rounds.
    pub(super) fn propose(&mut self, arm: usize, label: Label, tests: Vec<Test>, left: usize) {
        let mut arms = self.arms.clone();
        arms.extend(tests.iter().map(|test| test.other).chain([arm]));
        arms.sort_unstable();
        arms.dedup();
        if arms.len() * LOOKS[0].0 <= left {
            self.arms = arms;
            self.proposals.push(Proposal { arm, label, tests, p: 1.0, is_shown: false, is_hopeless: false });
        }
    }

    pub(super) fn rounds(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = &[Round]> {
        self.blocks.iter().map(Vec::as_slice)
    }

    pub(super) fn standing(&self, arm: usize) -> Standing {
        let found = self.proposals.iter().find(|one| one.arm == arm);
        Standing {
            label: found.filter(|one| one.is_shown).map_or(Label::Undecided, |one| one.label),
            proposed: found.map_or(Label::Undecided, |one| one.label),
            chance: 0.0,
            p: found.map_or(1.0, |one| one.p),
        }
    }

    pub(super) fn add(&mut self, block: &[Round], step: impl Fn(usize, [usize; 2]) -> Option<f64>) {
        self.blocks.push(block.to_vec());
        for one in &mut self.proposals {
            for test in &mut one.tests {
                test.step = step(test.quantity, [one.arm, test.other]);
            }
        }
        if let Some((_, share)) = LOOKS.iter().find(|(blocks, _)| *blocks == self.blocks.len()) {
            self.look(share * (1.0 - self.goal.confidence));
        }
    }

    /// How many blocks are left until the next look.
    pub(super) fn until_look(&self) -> usize {
        let done = self.blocks.len();
        LOOKS.iter().find(|(blocks, _)| *blocks > done).map_or(1, |(blocks, _)| blocks - done)
    }

    /// The arms of the next blocks: those of statements that are not shown yet. Empty at the end.
    pub(super) fn next(&self) -> Vec<usize> {
        if self.blocks.len() >= LOOKS[LOOKS.len() - 1].0 {
            return Vec::new();
        }
        let open = self.proposals.iter().filter(|one| !one.is_shown && !one.is_hopeless);
        let mut arms: Vec<usize> = open
            .flat_map(|one| {
                let needed = self.needed();
                let others = one
                    .tests
                    .iter()
                    .filter(move |test| self.p(one.arm, test).0 > needed)
                    .map(|test| test.other);
                others.chain([one.arm])
            })
            .collect();
        arms.sort_unstable();
        arms.dedup();
        arms
    }

    /// The p-value that suffices even for the hardest step of Holm's procedure at the next look.
    fn needed(&self) -> f64 {
        let share =
            LOOKS.iter().find(|(blocks, _)| *blocks > self.blocks.len()).map_or(0.0, |(_, share)| *share);
        share * (1.0 - self.goal.confidence) / self.proposals.len().max(1) as f64
    }

    /// Decides what the rounds so far show, at an error of `alpha` for all proposals together.
    fn look(&mut self, alpha: f64) {
        let found: Vec<(f64, f64)> = self
            .proposals
            .iter()
            .map(|one| {
                let all = one.tests.iter().map(|test| self.p(one.arm, test));
                all.fold((0.0, f64::INFINITY), |(p, clear), (other, distance)| {
                    (other.max(p), distance.min(clear))
                })
            })
            .collect();
        let mut order: Vec<usize> = (0..found.len()).collect();
        order.sort_by(|a, b| found[*a].0.total_cmp(&found[*b].0));
        let count = order.len();
        let mut still = true;
        let last = LOOKS[LOOKS.len() - 1].0 as f64;
        let grows = (last / self.blocks.len() as f64).sqrt();
        for (step, index) in order.into_iter().enumerate() {
            let (p, distance) = found[index];
            let one = &mut self.proposals[index];
            one.p = p;
            // Holm: the first proposal that fails also fails all after it.
            still = still && p <= alpha / (count - step) as f64;
            one.is_shown |= still;
            one.is_hopeless |= !one.is_shown && distance * grows < MIN_DISTANCE_SHARE * NORMAL;
        }
    }

    /// The p-value of a statement, and its distance in deviations.
    fn p(&self, arm: usize, test: &Test) -> (f64, f64) {
        let value = |round: &Round| if test.quantity == 0 { round.objective } else { round.bounded };
        let of = |block: &[Round], arm: usize| block.iter().find(|round| round.arm == arm).and_then(value);
        let pairs: Vec<f64> = self
            .blocks
            .iter()
            .filter_map(|block| Some(test.sign * (of(block, test.other)? - of(block, arm)?)))
            .collect();
        let count = pairs.len() as f64;
        let (true, Some(step)) = (pairs.len() >= LOOKS[0].0, test.step) else {
            return (1.0, f64::NEG_INFINITY);
        };
        let more_than = if test.more_than < 0.0 { test.more_than + step } else { test.more_than };
        let mean = pairs.iter().sum::<f64>() / count;
        let squares: f64 = pairs.iter().map(|pair| (pair - mean).powi(2)).sum();
        let noise = &self.noise[test.quantity];
        let before = noise[arm] + noise[test.other];
        // Three pairs hardly determine a variance. It is shrunk towards the one of the first part,
        // as in the model (moderated t, Smyth 2004). The first part's rounds are other rounds, so
        // this is still a test of fresh rounds.
        let freedom = COMMON + count - 1.0;
        let variance = (COMMON * before + squares) / freedom;
        let distance = (mean - more_than) / (variance / count).sqrt();
        let p = StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |t| t.sf(distance));
        (p, distance)
    }
}

/// The approximate distance that proposals of a dozen settings need: 0.1 % of a normal
/// distribution.
const NORMAL: f64 = 3.1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two settings whose second quantity reads the same by a coarse clock.
    #[test]
    fn equal_ticks_show_no_domination() {
        for (step, label) in
            [(Some(0.0), Label::Dominated { by: 1 }), (Some(0.1), Label::Undecided), (None, Label::Undecided)]
        {
            let mut fresh = Fresh::new(FrontGoal { within: 0.01, confidence: 0.95, most: 100 });
            fresh.know_noise([vec![1e-6; 2], vec![1e-6; 2]]);
            fresh.propose(0, Label::Dominated { by: 1 }, domination(1, [-0.1, 0.0], [1e-6; 2], 0.01).1, 100);
            for block in 0..9 {
                let round = |arm: usize| Round {
                    arm,
                    objective: Some(-0.1 * arm as f64 + 1e-4 * f64::from(block)),
                    bounded: Some(5.0),
                    preferred: None,
                    seconds: 1.0,
                };
                fresh.add(&[round(0), round(1)], |_, _| step);
            }
            assert_eq!(fresh.standing(0).label, label, "{step:?}");
        }
    }
}
