//! The search as the chooser of a comparison's blocks.

use flyball_measure::{Blocks, Manifest, Round};
use flyball_search::{Choice, Round as Searched, Search, Step};

use super::goal::{Goal, certainty};
use crate::terminal;

pub(super) struct SearchBlocks {
    search: Search,
    goal: Goal,
    /// Rounds at most.
    most: usize,
    /// Set when the search is over.
    pub outcome: Option<Outcome>,
}

/// How a search ended.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Outcome {
    pub chosen: usize,
    /// The probability, by the model, that it is within the indifference of the best.
    pub certainty: f64,
    pub runner_up: Option<usize>,
    /// Arms that may be better, each with the probability of it.
    pub undecided: Vec<(usize, f64)>,
    /// Whether the model was certain enough, or the rounds were used up.
    pub settled: bool,
    pub rounds: usize,
    pub blocks: usize,
    /// Different settings that ran.
    pub tried: usize,
    /// Of each factor, which share of the differences it explains.
    pub shares: Vec<f64>,
}

impl SearchBlocks {
    pub fn new(search: Search, goal: Goal, most: usize) -> SearchBlocks {
        SearchBlocks { search, goal, most, outcome: None }
    }

    fn end(&mut self, choice: Choice, settled: bool, rounds: usize) {
        let tried = (0..self.search.space().len()).filter(|arm| self.search.runs(*arm) > 0).count();
        self.outcome = Some(Outcome {
            chosen: choice.arm,
            certainty: choice.certainty,
            runner_up: choice.runner_up,
            undecided: choice.undecided,
            settled,
            rounds,
            blocks: self.search.blocks(),
            tried,
            shares: self.search.shares().unwrap_or_default(),
        });
    }

    /// What is known so far, while the next block has not begun.
    fn report(&self, manifest: &Manifest, rounds: usize) {
        let Some(best) = self.search.best() else { return };
        terminal::redraw("");
        eprintln!(
            "flyball: {rounds} rounds; best so far: {}, {} certain",
            manifest.arms[best.arm].name,
            certainty(best.certainty)
        );
    }
}

impl Blocks for SearchBlocks {
    fn next(&mut self, manifest: &Manifest, done: &[Round]) -> Option<Vec<usize>> {
        // One block at a time, also when a stopped search is resumed: the fit of a block begins where that of the block
        // before ended, and the search goes on as if it had never been stopped.
        loop {
            let next = self.search.blocks();
            let block: Vec<Searched> = done
                .iter()
                .filter(|round| round.block == next)
                .map(|round| Searched {
                    arm: round.arm,
                    objective: self.goal.aim.cost(round, manifest),
                    bounded: self.goal.limit.and_then(|limit| limit.aim.cost(round, manifest)),
                    seconds: round.outcome.seconds,
                })
                .collect();
            if block.is_empty() {
                break;
            }
            self.search.add(&block);
        }
        match self.search.step() {
            Step::End(choice) => {
                self.end(choice, true, done.len());
                None
            }
            Step::Run(_) if done.len() >= self.most => {
                let best = self.search.best()?;
                self.end(best, false, done.len());
                None
            }
            Step::Run(block) => {
                if !done.is_empty() {
                    self.report(manifest, done.len());
                }
                Some(block)
            }
        }
    }
}
