//! The decisions of a bisection: which two commits run next, and when the answer is known.
//!
//! First GOOD and BAD run until they are known to differ. Then the posterior of [`Bisection`]
//! chooses. The commit that it finds runs in fresh pairs with the one before it until these pairs
//! alone show a change. Fresh pairs contradict a wrong find; they count for the posterior too, and
//! the search goes on.

use std::collections::BTreeMap;

use flyball_measure::{
    EQUIVALENT,
    stats::{Interval, always_interval},
    with_step,
};
use flyball_search::{Bisection, Probe};

/// The probability at which a commit is worth fresh pairs, which then decide.
const LIKELY: f64 = 0.9;

/// Minimum number of pairs before anything ends: outliers need some to be recognised.
const LEAST_PAIRS: usize = 6;

/// The state of a bisection.
#[derive(Debug, Clone)]
pub(super) struct Hunt {
    search: Bisection,
    last: usize,
    confidence: f64,
    /// Differences of fresh pairs, by the commits that they were meant to tell apart.
    fresh: BTreeMap<Pair, Vec<f64>>,
    /// The fresh pair that was requested last.
    asked: Option<Pair>,
}

/// Two commits by number, the older one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    pub(super) low: usize,
    pub(super) high: usize,
}

/// The next action of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    /// Run two interleaved blocks, each with both commits in random order.
    Measure([Pair; 2]),
    End(Ending),
}

/// How a bisection ended. Intervals are of fractions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Ending {
    /// One of the commits after `before`, up to `at`, made the change.
    Found { before: usize, at: usize, interval: Interval },
    /// GOOD and BAD are shown to differ by less than [`EQUIVALENT`].
    Alike(Interval),
}

impl Hunt {
    /// A hunt among the commits 1 to `last`.
    pub(super) fn new(last: usize, confidence: f64) -> Hunt {
        let search = Bisection::new(last);
        Hunt { search, last, confidence, fresh: BTreeMap::new(), asked: None }
    }

    /// Adds a requested block, as logarithms of values.
    pub(super) fn add(&mut self, block: [(usize, f64); 2]) {
        let [one, other] = block;
        let (low, high) = if one.0 < other.0 { (one, other) } else { (other, one) };
        let pair = Pair { low: low.0, high: high.0 };
        if self.asked == Some(pair) {
            self.fresh.entry(pair).or_default().push(high.1 - low.1);
        }
        self.search.add(block);
    }

    pub(super) fn skip(&mut self, commit: usize) {
        self.search.skip(commit);
    }

    pub(super) fn posterior(&self) -> Vec<f64> {
        self.search.posterior()
    }

    /// GOOD and BAD.
    pub(super) fn ends(&self) -> Pair {
        Pair { low: 0, high: self.last }
    }

    /// The change from GOOD to BAD, without allowing for rounding.
    pub(super) fn between_ends(&self) -> Option<Interval> {
        self.interval(&self.search.differences())
    }

    fn interval(&self, differences: &[f64]) -> Option<Interval> {
        let found = always_interval(differences, self.confidence);
        found.filter(|_| differences.len() >= LEAST_PAIRS).map(|found| found.map(f64::exp_m1))
    }

    /// Returns true if GOOD and BAD are known to differ.
    pub(super) fn differs(&self) -> bool {
        self.between_ends().is_some_and(leaves_out_zero)
    }

    /// The next step. `rounding` returns the rounding step of two commits' values.
    pub(super) fn step(&mut self, rounding: impl Fn(Pair) -> Option<f64>) -> Step {
        self.asked = None;
        let ends = self.ends();
        match self.between_ends() {
            Some(found) if leaves_out_zero(found) => {}
            found => match found.and_then(|found| with_step(found, rounding(ends), false)) {
                Some(found) if found.low > -EQUIVALENT && found.high < EQUIVALENT => {
                    return Step::End(Ending::Alike(found));
                }
                _ => return Step::Measure([ends; 2]),
            },
        }
        let (before, at) = match self.search.next(LIKELY) {
            // One pair with GOOD and one with BAD, so that neither end's luck decides alone.
            Probe::Commit(one) => {
                return Step::Measure([Pair { low: 0, high: one }, Pair { low: one, high: self.last }]);
            }
            Probe::Found { before, at } => (before, at),
        };
        let pair = Pair { low: before, high: at };
        // GOOD and BAD were not chosen by their rounds, which are therefore as good as fresh ones.
        let known = if pair == ends {
            self.between_ends()
        } else {
            self.fresh.get(&pair).and_then(|fresh| self.interval(fresh))
        };
        let known = known.filter(|found| leaves_out_zero(*found));
        match known.and_then(|found| with_step(found, rounding(pair), true)) {
            Some(interval) => Step::End(Ending::Found { before, at, interval }),
            None => {
                self.asked = Some(pair);
                Step::Measure([pair; 2])
            }
        }
    }
}

fn leaves_out_zero(found: Interval) -> bool {
    found.low > 0.0 || found.high < 0.0
}

#[cfg(test)]
mod tests {
    use rand::{Rng as _, SeedableRng as _, seq::SliceRandom as _};
    use rand_distr::{Distribution as _, StandardNormal};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// Noise of one round, in standard deviations.
    type Noise = fn(&mut Pcg64Mcg) -> f64;

    fn normal(random: &mut Pcg64Mcg) -> f64 {
        StandardNormal.sample(random)
    }

    /// Mostly small, with a spike in every twelfth round.
    fn spikes(random: &mut Pcg64Mcg) -> f64 {
        let spike = if random.random_bool(0.08) { 10.0 * random.random::<f64>() } else { 0.0 };
        0.6 * normal(random) + spike
    }

    /// Result of many searches.
    #[derive(Debug, Default)]
    struct Tally {
        right: usize,
        wrong: usize,
        alike: usize,
        undecided: usize,
        runs: usize,
        built: usize,
    }

    /// Searches among 64 commits, one of which changes the value, with this noise. The round after
    /// a round of BAD has `leaves` added.
    fn searches(count: u64, change: f64, deviation: f64, noise: Noise, walk: f64, leaves: f64) -> Tally {
        let mut tally = Tally::default();
        for seed in 0..count {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let truth = random.random_range(1..=64);
            let mut hunt = Hunt::new(64, 0.99);
            let mut built = std::collections::BTreeSet::new();
            let (mut level, mut before) = (0.0, None);
            let mut ending = None;
            for _ in 0..200 {
                let pairs = match hunt.step(|_| Some(0.0)) {
                    Step::End(end) => {
                        ending = Some(end);
                        break;
                    }
                    Step::Measure(pairs) => pairs,
                };
                let mut blocks = pairs.map(|pair| {
                    let mut order = [pair.low, pair.high];
                    order.shuffle(&mut random);
                    order.map(|commit| (commit, 0.0))
                });
                for place in 0..2 {
                    for block in &mut blocks {
                        let commit = block[place].0;
                        level += walk * deviation * normal(&mut random);
                        let step = if commit >= truth { change } else { 0.0 };
                        let left = if before == Some(64) { leaves } else { 0.0 };
                        block[place].1 = level + step + left + deviation * noise(&mut random);
                        before = Some(commit);
                    }
                }
                built.extend(pairs.iter().flat_map(|pair| [pair.low, pair.high]));
                tally.runs += 4;
                for block in blocks {
                    hunt.add(block);
                }
            }
            tally.built += built.len();
            match ending {
                Some(Ending::Found { at, interval, .. }) if at == truth => {
                    assert!(interval.low < 2.0 * change && interval.high > change / 2.0, "{interval:?}");
                    tally.right += 1;
                }
                Some(Ending::Found { .. }) => tally.wrong += 1,
                Some(Ending::Alike(_)) => tally.alike += 1,
                None => tally.undecided += 1,
            }
        }
        println!("{tally:?}: {} runs of {} commits", tally.runs as u64 / count, tally.built as u64 / count);
        tally
    }

    #[test]
    fn one_commit_of_64_that_is_3_percent_slower_is_found() {
        let found = searches(1000, 0.03, 0.02, normal, 0.0, 0.0);
        assert!(found.right >= 990 && found.wrong <= 5, "{found:?}");
        assert!(found.runs < 140_000 && found.built < 10_500, "{found:?}");
    }

    #[test]
    fn spikes_and_drift_cost_rounds_and_mislead_nobody() {
        for (noise, walk) in [(spikes as Noise, 0.0), (normal, 0.35)] {
            let found = searches(200, 0.03, 0.02, noise, walk, 0.0);
            assert!(found.right >= 190 && found.wrong <= 3, "{found:?}");
        }
    }

    #[test]
    fn equal_ends_are_called_alike() {
        let found = searches(200, 0.0, 0.003, normal, 0.0, 0.0);
        assert!(found.alike >= 190 && found.right + found.wrong <= 2, "{found:?}");
    }

    #[test]
    fn values_that_are_rounded_alike_are_not_called_alike() {
        for (step, alike) in [(None, false), (Some(0.01), false), (Some(0.001), true)] {
            let mut hunt = Hunt::new(4, 0.99);
            for _ in 0..20 {
                hunt.add([(0, 1.0), (4, 1.0)]);
            }
            let is_alike = matches!(hunt.step(|_| step), Step::End(Ending::Alike(_)));
            assert_eq!(is_alike, alike, "{step:?}");
        }
    }

    /// If each pair ran alone, BAD would hardly ever follow itself. It would look faster by half of
    /// its effect on the next round: 1 %.
    #[test]
    fn a_commit_that_slows_the_next_round_is_not_blamed() {
        let found = searches(200, 0.0, 0.01, normal, 0.0, 0.02);
        assert!(found.right + found.wrong <= 4, "{found:?}");
    }
}
