//! Lets a search choose the blocks of a comparison.

use std::time::Instant;

use flyball_measure::{Blocks, Manifest, Round, RunDirectory, render, stats};
use flyball_search::{Choice, Round as Searched, Search, Step};

use crate::{
    Progress,
    goal::{Aim, CERTAINTY, certainty},
    intake::{Block, Intake, searched},
    record::{CONFIRM, Record, RecordFileError},
    space::SpaceError,
};

pub struct SearchBlocks<'a> {
    search: Search,
    record: &'a Record,
    /// The rounds of a confirmation that contradicted the search, and how many blocks the search
    /// had then.
    contradiction: Option<(usize, Vec<Vec<Searched>>)>,
    intake: Intake<'a>,
    /// Where progress is shown.
    progress: Option<&'a dyn Progress>,
    /// When this session began, and how many rounds there were then. On the user's clock: a
    /// simulated machine has another one.
    began: (Instant, Option<usize>),
    /// Set when the search is over.
    pub outcome: Option<Outcome>,
}

/// How a search ended.
#[derive(Debug, Clone, schemars::JsonSchema, serde::Serialize)]
#[schemars(rename = "SearchOutcome")]
pub struct Outcome {
    /// The arm that the search chose. Fresh rounds show whether it is better.
    pub chosen: usize,
    /// The probability, by the model, that it is within the indifference of the best.
    pub certainty: f64,
    pub runner_up: Option<usize>,
    /// Arms that may be better, each with the probability of that.
    pub undecided: Vec<(usize, f64)>,
    /// True if the model was certain enough, false if the rounds were used up.
    pub settled: bool,
    /// If the search ended early: a gain over now, as a logarithm, and the probability, by the
    /// model, that a setting has a larger one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain_left: Option<(f64, f64)>,
    pub rounds: usize,
    pub blocks: usize,
    /// Different settings that ran.
    pub tried: usize,
    /// For each factor, the share of the differences that it explains.
    pub shares: Vec<f64>,
    /// For each arm, the expected change of the objective against the first arm and its standard
    /// deviation, as logarithms.
    pub expected: Vec<(f64, f64)>,
}

impl Outcome {
    /// The least and the greatest expected cost of a setting against the first, as logarithms.
    pub(crate) fn range(&self) -> Option<(f64, f64)> {
        let costs = || self.expected.iter().skip(1).map(|(cost, _)| *cost);
        Some((costs().min_by(f64::total_cmp)?, costs().max_by(f64::total_cmp)?))
    }
}

/// The block after which the noise is known well enough to report its consequences.
const NOISE_KNOWN: usize = 4;

impl<'a> SearchBlocks<'a> {
    pub fn new(
        record: &'a Record,
        seed: u64,
        progress: Option<&'a dyn Progress>,
    ) -> Result<SearchBlocks<'a>, SpaceError> {
        let search = Search::new(record.searched.space()?, record.goal.for_search(), seed);
        Ok(SearchBlocks {
            intake: Intake::new(record.searched.arms.len()),
            search,
            record,
            contradiction: None,
            progress,
            began: (Instant::now(), None),
            outcome: None,
        })
    }

    /// Returns the blocks of a search, with the fresh rounds that contradicted it, if any did.
    ///
    /// # Errors
    /// The space is damaged, or the fresh rounds cannot be read.
    pub fn from_directory(
        record: &'a Record,
        directory: &RunDirectory,
        progress: Option<&'a dyn Progress>,
    ) -> Result<SearchBlocks<'a>, RecordFileError> {
        let blocks = SearchBlocks::new(record, directory.manifest.schedule.seed, progress)?;
        let Some(after) = record.contradicted_after else { return Ok(blocks) };
        let fresh = RunDirectory::open(&directory.path().join(CONFIRM[0]))?;
        Ok(blocks.contradicted(after, of_confirmation(&fresh, record)))
    }

    /// Continues after a confirmation that contradicted the search, with the confirmation's rounds.
    #[must_use]
    fn contradicted(mut self, after: usize, blocks: Vec<Vec<Searched>>) -> SearchBlocks<'a> {
        self.contradiction = Some((after, blocks));
        self
    }

    /// Why the search cannot go on.
    pub fn failure(&self) -> Option<&str> {
        self.intake.failure.as_deref()
    }

    fn end(&mut self, choice: Choice, settled: bool, rounds: usize) {
        let arms = 0..self.search.space().len();
        self.outcome = Some(Outcome {
            chosen: choice.arm,
            certainty: choice.certainty,
            runner_up: choice.runner_up,
            undecided: choice.undecided,
            settled,
            gain_left: choice.gain_left,
            rounds,
            blocks: self.intake.taken,
            tried: arms.clone().filter(|arm| self.search.runs(*arm) > 0).count(),
            shares: self.search.shares().unwrap_or_default(),
            expected: arms.map(|arm| self.search.against_base(arm).unwrap_or_default()).collect(),
        });
    }

    /// Reports what is known and which settings come next, before the next block begins.
    fn report(&self, manifest: &Manifest, done: &[&Round], next: &[usize]) {
        let (Some(progress), Some(best)) = (self.progress, self.search.best()) else { return };
        let name = |arm: usize| manifest.arms[arm].name.as_str();
        let change = match self.search.against_base(best.arm) {
            Some((mean, deviation)) if best.arm != 0 => format!(
                " ({} {:+.1} % \u{b1} {:.1} %)",
                self.record.goal.aim.quantity.metric(&manifest.workload.metric).name,
                100.0 * self.record.goal.aim.change_of_log(mean).exp_m1(),
                // Two deviations of the expected value.
                200.0 * deviation
            ),
            _ => String::new(),
        };
        let others: Vec<&str> =
            next.iter().filter(|arm| **arm != 0 && **arm != best.arm).map(|arm| name(*arm)).collect();
        let rest = match others.as_slice() {
            [] => "it and 'now' again".to_owned(),
            [one] => format!("'{one}', which may be better"),
            [one, rest @ ..] => format!("'{one}' and {} more that may be better", rest.len()),
        };
        let (began, before) = self.began;
        let new = done.len().saturating_sub(before.unwrap_or(0)).max(1);
        let each = began.elapsed().as_secs_f64() / new as f64;
        let left = each * self.record.most_rounds.saturating_sub(done.len()) as f64;
        let left = self.record.most_seconds.map_or(left, |most| left.min((most - spent(done)).max(0.0)));
        let message = format!(
            "{} rounds; best so far: {}{change}, {} certain; next: {rest}",
            done.len(),
            name(best.arm),
            certainty(best.certainty)
        );
        progress.say_time_left(&message, left);
    }

    /// Says once that the noise is too high for the allowed number of rounds, if so.
    fn noise(&self, done: &[&Round]) {
        let (Some(progress), Some(scales), NOISE_KNOWN) =
            (self.progress, self.search.scales(), self.intake.taken)
        else {
            return;
        };
        let within = self.record.goal.within;
        let needed = |within: f64| needed(self.search.space().len(), scales.noise, within);
        if needed(within) > self.record.most_rounds {
            // Find the difference for which the allowed rounds are just enough.
            let wider = (1..100).map(|step| within * (1.0 + f64::from(step) / 4.0));
            let enough = wider.into_iter().find(|within| needed(*within) <= self.record.most_rounds);
            let or = enough.map_or(String::new(), |within| {
                format!("; --within {:.1}% needs {}", 100.0 * within, needed(within))
            });
            let rounds = render::two_digits(needed(within));
            let seconds = spent(done) / done.len().max(1) as f64 * rounds as f64;
            progress.say(&format!(
                "at this noise ({:.1} %) some {rounds} rounds ({}) are needed for {} %{or}",
                100.0 * scales.noise,
                flyball_text::span::words(seconds),
                100.0 * within
            ));
        }
    }

    /// Gives the search the rounds of the next block in the directory; false if there is none.
    fn take(&mut self, manifest: &Manifest, done: &[&Round]) -> bool {
        if let Some((_, blocks)) = self.contradiction.take_if(|(after, _)| *after == self.intake.taken) {
            for block in &blocks {
                self.search.add(block);
            }
        }
        match self.intake.next(self.record, manifest, done) {
            None => return false,
            Some(Block::Void) => {}
            Some(Block::Rounds(block)) => self.search.add(&block),
        }
        true
    }

    /// With --strict: settings that might be better than the chosen one, as far as rounds without a
    /// model show.
    fn open(&self, chosen: usize, manifest: &Manifest, done: &[&Round]) -> Vec<usize> {
        let goal = &self.record.goal;
        let arms = self.search.space().len();
        // Bonferroni over the settings and the two quantities.
        let level = 1.0 - (1.0 - CERTAINTY) / (2 * arms) as f64;
        let pairs = |aim: Aim, from: usize, to: usize| -> Vec<f64> {
            let of = |arm: usize, block: usize| {
                let round = done.iter().find(|round| round.arm == arm && round.block == block)?;
                aim.cost(round, manifest)
            };
            (0..self.intake.taken).filter_map(|block| Some(of(to, block)? - of(from, block)?)).collect()
        };
        let is_open = |arm: &usize| {
            let worse = stats::always_interval(&pairs(goal.aim, chosen, *arm), level)
                .is_some_and(|found| found.low > -goal.within);
            let over = goal.limit.filter(|limit| limit.relative).is_some_and(|limit| {
                let most = match limit.bound() {
                    flyball_search::Bound::OverBase(most) | flyball_search::Bound::Absolute(most) => most,
                };
                stats::always_interval(&pairs(limit.aim, 0, *arm), level)
                    .is_some_and(|found| found.low > most)
            });
            !worse && !over
        };
        let mut open: Vec<usize> = (0..arms).filter(|arm| *arm != chosen).filter(is_open).collect();
        // Those with the fewest rounds first.
        open.sort_by_key(|arm| self.search.runs(*arm));
        open
    }
}

impl Blocks for SearchBlocks<'_> {
    fn next(&mut self, manifest: &Manifest, done: &[&Round]) -> Option<Vec<Vec<usize>>> {
        // One block at a time, even when a stopped search is resumed: each fit starts where the fit
        // of the previous block ended, so the search continues as if it had never been stopped.
        while self.take(manifest, done) {}
        if self.failure().is_some() {
            return None;
        }
        self.began.1.get_or_insert(done.len());
        self.intake.progress = self.progress;
        self.noise(done);
        let is_over = self.record.most_seconds.is_some_and(|most| spent(done) >= most);
        let fits = |block: &[usize]| !is_over && done.len() + block.len() <= self.record.most_rounds;
        let block = match self.search.step() {
            Step::End(choice) => {
                let open =
                    if self.record.strict { self.open(choice.arm, manifest, done) } else { Vec::new() };
                let mut block = vec![0, choice.arm];
                block.extend(open.iter().copied().filter(|arm| *arm != 0).take(4));
                block.dedup();
                if open.is_empty() || !fits(&block) {
                    self.end(choice, open.is_empty(), done.len());
                    return None;
                }
                block
            }
            // Without the first block, nothing is known.
            Step::Run(block) if done.len() <= 1 || fits(&block) => block,
            Step::Run(_) => {
                let best = self.search.best()?;
                self.end(best, false, done.len());
                return None;
            }
        };
        if !done.is_empty() {
            self.report(manifest, done, &block);
        }
        Some(vec![block])
    }
}

/// The rounds of a confirmation, block by block, as the search's.
fn of_confirmation(fresh: &RunDirectory, record: &Record) -> Vec<Vec<Searched>> {
    let arm_here = |arm: usize| {
        record.searched.arms.iter().position(|here| here.settings == fresh.manifest.arms[arm].settings)
    };
    let last = fresh.rounds.iter().map(|round| round.block).max().map_or(0, |block| block + 1);
    let rounds_of = |block: usize| {
        let rounds = fresh.rounds.iter().filter(move |round| !round.warm_up && round.block == block);
        rounds.filter_map(|round| Some(searched(record, arm_here(round.arm)?, round, &fresh.manifest)))
    };
    (0..last).map(|block| rounds_of(block).collect()).collect()
}

/// Rounds that a search needs at some noise: the first block, and what it takes to distinguish two
/// settings. By the searches of the crate's tests.
fn needed(settings: usize, noise: f64, within: f64) -> usize {
    settings.min(12) + (20.0 * (noise / within).powi(2)) as usize
}

/// The seconds that rounds took, including the time between them, over all sessions.
pub(crate) fn spent(done: &[&Round]) -> f64 {
    let alone: f64 = done.iter().map(|round| round.outcome.seconds).sum();
    // The clock restarts in each session. Within one, the difference of two starts is the round and
    // the time after it.
    let around: f64 = done
        .windows(2)
        .map(|two| two[1].started - two[0].started - two[0].outcome.seconds)
        .filter(|gap| *gap > 0.0)
        .sum();
    alone + around
}
