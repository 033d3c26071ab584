//! Makes new sequences from kept ones: adds, removes, replaces and moves steps, and joins
//! sequences.

use rand::{Rng as _, SeedableRng as _, seq::IndexedRandom as _};
use rand_pcg::Pcg64Mcg;

use super::corpus::LONGEST;
use crate::{generate::Source, mode::Mode, step::Step, topic};

/// Number of steps of a sequence that is not derived from another.
const FRESH: usize = 10;

pub(super) struct Mutator<'a> {
    source: Source<'a>,
    random: Pcg64Mcg,
    /// Events of a machine, such as sleep, other than settings.
    events: Vec<Step>,
}

impl<'a> Mutator<'a> {
    pub(super) fn new(mode: &'a Mode, seed: u64) -> Mutator<'a> {
        // Different steps from those of `contract` with this seed.
        let random = Pcg64Mcg::seed_from_u64(seed ^ 0xf022);
        Mutator { source: Source::new(mode, seed ^ 0xf022), random, events: topic::harmless_events(mode) }
    }

    /// Returns a new sequence.
    pub(super) fn next(&mut self, corpus: &[Vec<Step>]) -> Vec<Step> {
        let Some(entry) = self.choose(corpus).filter(|_| self.random.random_range(0..5) != 0) else {
            return (0..FRESH).map(|_| self.step()).collect();
        };
        let mut steps = entry.clone();
        for _ in 0..self.random.random_range(1..=4) {
            self.change(&mut steps, corpus);
        }
        steps.truncate(LONGEST);
        steps
    }

    /// Half of the time chooses a recent sequence, which has not been mutated yet.
    fn choose<'c>(&mut self, corpus: &'c [Vec<Step>]) -> Option<&'c Vec<Step>> {
        let latest = &corpus[corpus.len() - corpus.len().div_ceil(4)..];
        if self.random.random() { latest.choose(&mut self.random) } else { corpus.choose(&mut self.random) }
    }

    fn step(&mut self) -> Step {
        match self.events.choose(&mut self.random).filter(|_| self.random.random_range(0..25) == 0) {
            Some(event) => event.clone(),
            None => self.source.random_step(),
        }
    }

    fn change(&mut self, steps: &mut Vec<Step>, corpus: &[Vec<Step>]) {
        let at = self.random.random_range(0..=steps.len());
        let inside = at.min(steps.len().saturating_sub(1));
        match self.random.random_range(0..7) {
            0 | 1 => steps.insert(at, self.step()),
            2 if steps.len() > 1 => drop(steps.remove(inside)),
            3 if !steps.is_empty() => {
                // Another value for the same file, if one is generated soon.
                let is_like = |step: &Step| match (step, &steps[inside]) {
                    (Step::Write { path: a, .. }, Step::Write { path: b, .. }) => a == b,
                    _ => false,
                };
                let step = (0..40).map(|_| self.source.random_step()).find(is_like);
                steps[inside] = step.unwrap_or_else(|| self.step());
            }
            4 if !steps.is_empty() => {
                let step = steps[inside].clone();
                let to = self.random.random_range(0..=steps.len());
                steps.insert(to, step);
            }
            5 if steps.len() > 1 => {
                let other = self.random.random_range(0..steps.len());
                steps.swap(inside, other);
            }
            _ => {
                let Some(other) = corpus.choose(&mut self.random) else { return };
                let from = self.random.random_range(0..=other.len());
                steps.truncate(at);
                steps.extend_from_slice(&other[from..]);
                if steps.is_empty() {
                    steps.push(self.step());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_never_empty_nor_too_long() {
        for mode in Mode::all("ryzen-5750g").unwrap() {
            let mut mutator = Mutator::new(&mode, 3);
            let mut corpus: Vec<Vec<Step>> = Vec::new();
            for _ in 0..400 {
                let steps = mutator.next(&corpus);
                assert!((1..=LONGEST).contains(&steps.len()), "{steps:?}");
                // Files store steps as lines.
                assert!(steps.iter().all(|step| Step::parse(&step.to_string()).as_ref() == Some(step)));
                corpus.push(steps);
            }
        }
    }
}
