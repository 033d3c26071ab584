//! The commit that changed a noisy number: a bisection by a posterior over the commits.
//!
//! Commits are numbered from 0, the good one, to the last, the bad one. One of them changed the
//! number; those before it are alike, and so are those from it on. A block has rounds of two
//! commits next to each other. Each decision uses all blocks so far, so later rounds can undo a
//! step that looked clear by chance.

/// Degrees of freedom of the noise. Few make its tails heavy: one outlier proves little.
const FREEDOM: f64 = 5.0;

/// The noise is at least this fraction of the change, so that a few equal values do not decide
/// alone.
const LEAST_NOISE: f64 = 0.1;

/// A commit that already ran is preferred as long as it splits the probability no worse than this:
/// a new one would have to be built first.
const WORST_SPLIT: f64 = 0.2;

/// A search for the commit that changed something.
#[derive(Debug, Clone)]
pub struct Bisection {
    last: usize,
    skipped: Vec<bool>,
    blocks: Vec<[(usize, f64); 2]>,
}

/// The next step of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Measure this commit beside the good or the bad one.
    Commit(usize),
    /// One of the commits after `before`, up to `at`, made the change. They are several if those
    /// between cannot be measured.
    Found { before: usize, at: usize },
}

impl Bisection {
    /// A search among the commits 1 to `last`.
    pub fn new(last: usize) -> Bisection {
        Bisection { last, skipped: vec![false; last + 1], blocks: Vec::new() }
    }

    /// Adds a block: two commits with the logarithms of their values.
    pub fn add(&mut self, block: [(usize, f64); 2]) {
        self.blocks.push(block);
    }

    /// Leaves a commit out, because it cannot be measured.
    pub fn skip(&mut self, commit: usize) {
        if let Some(skipped) = self.skipped.get_mut(commit) {
            *skipped = true;
        }
    }

    /// The differences of the bad commit from the good one, by block.
    pub fn differences(&self) -> Vec<f64> {
        let of = |[one, other]: &[(usize, f64); 2]| match (one.0, other.0) {
            (0, last) if last == self.last => Some(other.1 - one.1),
            (last, 0) if last == self.last => Some(one.1 - other.1),
            _ => None,
        };
        self.blocks.iter().filter_map(of).collect()
    }

    /// The probability of each commit to have made the change; 0 for the good one.
    pub fn posterior(&self) -> Vec<f64> {
        let differences = self.differences();
        let change = median(differences.clone());
        // A difference has the noise of two rounds.
        let noise = (spread(&differences) / 2f64.sqrt()).max(change.abs() * LEAST_NOISE);
        if noise <= 0.0 {
            let even = 1.0 / self.last as f64;
            return (0..=self.last).map(|commit| if commit == 0 { 0.0 } else { even }).collect();
        }
        // The ends show the level of the machine, whichever commit made the change. The more it
        // drifts, the less a block says about its own level, and in the end nothing.
        let rounds = || self.blocks.iter().flatten();
        let at_ends = rounds().filter(|one| one.0 == 0 || one.0 == self.last);
        let levels: Vec<f64> = at_ends.map(|one| one.1 - if one.0 == 0 { 0.0 } else { change }).collect();
        let middle = median(levels.clone());
        let drift = (spread(&levels).powi(2) / (noise * noise) - 1.0).max(0.0);
        let likelihood = |commit: usize| -> f64 {
            let of_block = |block: &[(usize, f64); 2]| {
                let [a, b] = block.map(|one| one.1 - middle - if one.0 >= commit { change } else { 0.0 });
                let squares = a * a + b * b - (a + b).powi(2) * drift / (1.0 + 2.0 * drift);
                // Student's t for two values that share their level.
                -(FREEDOM + 2.0) / 2.0 * (squares / (FREEDOM * noise * noise)).ln_1p()
            };
            self.blocks.iter().map(of_block).sum()
        };
        let logs: Vec<f64> = (1..=self.last).map(likelihood).collect();
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logs.iter().map(|log| (log - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        std::iter::once(0.0).chain(weights.into_iter().map(|weight| weight / sum)).collect()
    }

    /// The next step. The commit is found once it has this probability.
    pub fn next(&self, confidence: f64) -> Probe {
        let posterior = self.posterior();
        let (mut before, mut below) = (0, 0.0);
        let (mut new, mut known) = (None::<(usize, f64)>, None::<(usize, f64)>);
        for at in (1..=self.last).filter(|commit| !self.skipped[*commit]) {
            let mass: f64 = posterior[before + 1..=at].iter().sum();
            if mass >= confidence {
                return Probe::Found { before, at };
            }
            (before, below) = (at, below + mass);
            let split = below.min(1.0 - below);
            let has_run = self.blocks.iter().flatten().any(|one| one.0 == at);
            let best = if has_run { &mut known } else { &mut new };
            if at < self.last && best.is_none_or(|(_, least)| split > least) {
                *best = Some((at, split));
            }
        }
        let is_good =
            |(_, split): &(usize, f64)| *split >= WORST_SPLIT || new.is_none_or(|(_, other)| other < *split);
        match known.filter(is_good).or(new) {
            Some((commit, _)) => Probe::Commit(commit),
            // No commit between the ends can be measured.
            None => Probe::Found { before: 0, at: self.last },
        }
    }
}

/// The median distance from the median, scaled to the standard deviation of normal noise.
fn spread(values: &[f64]) -> f64 {
    let middle = median(values.to_vec());
    median(values.iter().map(|value| (value - middle).abs()).collect()) * 1.4826
}

/// The middle value; 0 if there is none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len() % 2, values.get(middle)) {
        (_, None) => 0.0,
        (1, Some(value)) => *value,
        (_, Some(value)) => (value + values[middle - 1]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_values_halve_the_commits() {
        let mut search = Bisection::new(64);
        let value = |commit: usize| if commit >= 41 { 0.1 } else { 0.0 };
        search.add([(0, 0.0), (64, 0.1)]);
        let mut tried = Vec::new();
        let found = loop {
            match search.next(0.9) {
                Probe::Commit(commit) => {
                    search.add([(0, 0.0), (commit, value(commit))]);
                    tried.push(commit);
                }
                found @ Probe::Found { .. } => break found,
            }
        };
        assert_eq!(found, Probe::Found { before: 40, at: 41 });
        assert!(tried.len() < 9, "{tried:?}");
    }

    #[test]
    fn commits_that_cannot_be_measured_are_named_together() {
        let mut search = Bisection::new(4);
        for _ in 0..3 {
            search.add([(0, 0.0), (4, 1.0)]);
        }
        search.skip(1);
        search.skip(2);
        assert_eq!(search.next(0.9), Probe::Commit(3));
        search.add([(0, 0.0), (3, 1.0)]);
        assert_eq!(search.next(0.9), Probe::Found { before: 0, at: 3 });
        search.skip(3);
        assert_eq!(search.next(0.9), Probe::Found { before: 0, at: 4 });
    }
}
