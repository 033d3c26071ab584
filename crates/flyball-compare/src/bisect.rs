//! A bisection of commits with a statistical decision, in work trees outside the checkout.

mod hunt;
mod repository;

use std::collections::BTreeMap;

use flyball_measure::{
    Arm, Better, Blocks, HookRunner, Manifest, NoInterval, Program, Quantity, Round, RunDirectory, Stop,
    render::{level, percent},
    stats::Interval,
    step, with_step,
};

use flyball_process::terminal;

pub use self::repository::{BisectError, Repository};
use self::{
    hunt::{Ending, Hunt, Pair, Step},
    repository::Built,
};

/// Builds commits and chooses the two that run in the next block.
pub struct CommitBlocks<'a> {
    repository: &'a Repository<'a>,
    /// The hook `setup`, if there is one, builds a commit.
    build: HookRunner,
    stop: Stop,
    hunt: Hunt,
    /// Rounds that the hunt has seen.
    taken: usize,
    /// Commits that were left out, with the reason.
    skipped: BTreeMap<usize, String>,
    ending: Option<Ending>,
    pub failure: Option<BisectError>,
}

/// The answer of a bisection.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct BisectReport {
    /// `found`, `alike` (GOOD and BAD do not differ) or `undecided`.
    pub answer: &'static str,
    /// The commit that made the change. Several if commits between them could not be measured. If
    /// the rounds did not decide, the most probable commits, the likeliest first.
    pub commits: Vec<SuspectCommit>,
    /// Minimum probability that the commit is right, if it was found.
    pub confidence: f64,
    /// The change as a fraction: from the previous commit if the commit was found, otherwise from
    /// GOOD to BAD. 0.02 is 2 % more.
    pub change: Option<f64>,
    /// The confidence interval of `change`.
    pub interval: Option<Interval>,
    /// Why there is no interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<NoInterval>,
    /// Whether the change made the metric worse.
    pub is_worse: Option<bool>,
    /// Commits after GOOD, up to BAD.
    pub candidates: usize,
    pub runs: usize,
    /// Commits that were built and measured.
    pub built: usize,
    /// Commits that could not be measured, with the reason.
    pub skipped: BTreeMap<String, String>,
}

/// A commit that may have made the change.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize)]
pub struct SuspectCommit {
    pub commit: String,
    pub subject: String,
    pub probability: f64,
    /// Whether it merges a branch, whose commits were not searched.
    pub is_merge: bool,
}

impl<'a> CommitBlocks<'a> {
    /// Builds GOOD and BAD, without which there is nothing to search.
    ///
    /// # Errors
    /// One of the two cannot be built.
    pub fn new(
        repository: &'a Repository<'a>,
        build: HookRunner,
        stop: Stop,
        confidence: f64,
    ) -> Result<CommitBlocks<'a>, BisectError> {
        let last = repository.commits.len() - 1;
        let hunt = Hunt::new(last, confidence);
        let mut blocks = CommitBlocks {
            repository,
            build,
            stop,
            hunt,
            taken: 0,
            skipped: BTreeMap::new(),
            ending: None,
            failure: None,
        };
        for commit in [0, last] {
            if !blocks.build(commit)? {
                let why = blocks.skipped.remove(&commit).unwrap_or_default();
                return Err(BisectError::End { commit: repository.commits[commit].clone(), why });
            }
        }
        Ok(blocks)
    }

    /// Makes sure that a commit can run. Returns false if it cannot; `skipped` has the reason.
    fn build(&mut self, commit: usize) -> Result<bool, BisectError> {
        if self.skipped.contains_key(&commit) {
            return Ok(false);
        }
        match self.repository.build(commit, &self.build, &self.stop)? {
            Built::Ready => Ok(true),
            Built::Not(why) => {
                self.skip(commit, why);
                Ok(false)
            }
        }
    }

    fn skip(&mut self, commit: usize, why: String) {
        let first = why.lines().next().unwrap_or_default();
        terminal::complain(format!("flyball: {} is skipped: {first}\n", self.repository.commits[commit]));
        self.hunt.skip(commit);
        self.skipped.insert(commit, why);
    }

    /// Hands the rounds of the last blocks to the hunt.
    fn take(&mut self, done: &[&Round]) -> Result<(), BisectError> {
        let new = done.get(self.taken..).unwrap_or_default();
        self.taken = done.len();
        let ends = [0, self.repository.commits.len() - 1];
        let mut values: BTreeMap<usize, Vec<(usize, f64)>> = BTreeMap::new();
        for round in new {
            let value = round.outcome.value.filter(|value| *value > 0.0 && value.is_finite());
            if let (Some(value), None) = (value, &round.outcome.failure) {
                values.entry(round.block).or_default().push((round.arm, value.ln()));
                continue;
            }
            let why = match (&round.outcome.failure, round.outcome.value) {
                (Some(failure), _) => format!("it does not run: {failure}"),
                (None, None) => "it has no metric in its output".to_owned(),
                // A short round sometimes has no user time.
                (None, Some(_)) if !is_hopeless(done, round.arm) => continue,
                (None, Some(_)) => format!("its metric was not above 0 in any of {LEAST_ZEROS} rounds"),
            };
            if ends.contains(&round.arm) {
                let commit = self.repository.commits[round.arm].clone();
                let output = flyball_measure::last_lines(&round.outcome.output);
                return Err(BisectError::End { commit, why: why + &output });
            }
            self.skip(round.arm, why);
        }
        for block in values.values() {
            if let [one, other] = block[..] {
                self.hunt.add([one, other]);
            }
        }
        Ok(())
    }

    /// The commits of the next two blocks; `None` at the end.
    fn choose(&mut self, manifest: &Manifest, done: &[&Round]) -> Result<Option<[Pair; 2]>, BisectError> {
        self.take(done)?;
        loop {
            let pairs = match self.hunt.step(|pair| rounding(manifest, done, pair)) {
                Step::End(ending) => {
                    self.ending = Some(ending);
                    return Ok(None);
                }
                Step::Measure(pairs) => pairs,
            };
            let mut are_built = true;
            for commit in pairs.iter().flat_map(|pair| [pair.low, pair.high]) {
                are_built = are_built && self.build(commit)?;
            }
            if are_built {
                return Ok(Some(pairs));
            }
        }
    }

    /// The answer so far.
    pub fn report(&self, directory: &RunDirectory) -> BisectReport {
        let manifest = &directory.manifest;
        let commits = &self.repository.commits;
        let posterior = self.hunt.posterior();
        let suspect = |place: usize| SuspectCommit {
            commit: commits[place].clone(),
            subject: self.repository.subject(place),
            probability: posterior[place],
            is_merge: self.repository.is_merge(place),
        };
        let mut reason = None;
        let (answer, named, interval) = match &self.ending {
            Some(Ending::Found { before, at, interval }) => {
                ("found", (before + 1..=*at).map(suspect).collect(), Some(*interval))
            }
            Some(Ending::Alike(interval)) => ("alike", Vec::new(), Some(*interval)),
            None => {
                let mut likely: Vec<usize> = (1..commits.len()).collect();
                likely.sort_by(|a, b| posterior[*b].total_cmp(&posterior[*a]));
                likely.retain(|place| self.hunt.differs() && posterior[*place] >= 0.02);
                let named = likely.into_iter().take(5).map(suspect).collect();
                let rounds: Vec<&Round> = directory.rounds.iter().collect();
                let step = rounding(manifest, &rounds, self.hunt.ends());
                let found = self.hunt.between_ends();
                reason = Some(found.map_or(NoInterval::TooFewRounds, |_| NoInterval::UnknownStep));
                let found = found.and_then(|found| with_step(found, step, self.hunt.differs()));
                ("undecided", named, found)
            }
        };
        let change = interval.map(|found| f64::midpoint(found.low, found.high));
        BisectReport {
            answer,
            commits: named,
            confidence: manifest.schedule.confidence,
            change,
            interval,
            reason: reason.filter(|_| interval.is_none()),
            is_worse: change
                .map(|change| (change > 0.0) == (manifest.workload.metric.better == Better::Lower)),
            candidates: commits.len() - 1,
            runs: self.taken,
            built: self.repository.built(),
            skipped: self.skipped.iter().map(|(place, why)| (commits[*place].clone(), why.clone())).collect(),
        }
    }
}

/// The rounding step of two commits' values.
fn rounding(manifest: &Manifest, done: &[&Round], pair: Pair) -> Option<f64> {
    step(manifest, done, Quantity::Performance, &[pair.low, pair.high])
}

/// Number of rounds without a value above 0 after which a commit is given up.
const LEAST_ZEROS: usize = 6;

/// Returns whether a commit has many rounds, and none with a value above 0.
fn is_hopeless(done: &[&Round], commit: usize) -> bool {
    let own = done.iter().filter(|round| round.arm == commit).map(|round| round.outcome.value);
    own.clone().count() >= LEAST_ZEROS && own.flatten().all(|value| value <= 0.0)
}

impl BisectReport {
    /// The answer in words. `metric` is the name of the metric.
    pub fn text(&self, metric: &str) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        let size =
            |interval: Interval| format!("between {} and {}", percent(interval.low), percent(interval.high));
        let way = |is_worse| if is_worse { "worse" } else { "better" };
        let level = level(self.confidence);
        match (self.answer, self.interval, self.commits.as_slice()) {
            ("found", Some(interval), commits) => {
                let word = way(self.is_worse == Some(true));
                match commits {
                    [one] => _ = writeln!(text, "{} made {metric} {word}: {}", one.commit, one.subject),
                    _ => {
                        _ = writeln!(text, "One of {} commits made {metric} {word}:", commits.len());
                        for one in commits {
                            _ = writeln!(text, "  {} {}", one.commit, one.subject);
                        }
                    }
                }
                _ = writeln!(text, "change: {}, in fresh pairs with the commit before", size(interval));
                _ = writeln!(text, "confidence: {level} %");
            }
            ("alike", Some(interval), _) => {
                _ = writeln!(text, "GOOD and BAD do not differ in {metric}: {} ({level} %)", size(interval));
            }
            (_, interval, commits) => {
                let reason = self.reason.map_or_else(String::new, |reason| reason.to_string());
                let known = interval.map_or(reason, size);
                _ = writeln!(text, "cannot tell: {metric} of BAD against GOOD: {known} ({level} %)");
                _ = writeln!(text, "{} runs were not enough; raise --max-rounds.", self.runs);
                if !commits.is_empty() {
                    _ = writeln!(text, "Likely, but not confirmed at {level} % against the commit before:");
                }
                for one in commits {
                    let percent = 100.0 * one.probability;
                    _ = writeln!(text, "  {percent:.0} % {} {}", one.commit, one.subject);
                }
            }
        }
        _ = writeln!(
            text,
            "{} runs; {} of {} commits were built",
            self.runs,
            self.built,
            self.candidates + 1
        );
        for one in self.commits.iter().filter(|one| one.is_merge && self.answer == "found") {
            let name = &one.commit;
            _ = writeln!(
                text,
                "{name} is a merge; search its branch with --bisect $(git merge-base {name}^1 {name}^2)..{name}^2"
            );
        }
        for (commit, why) in &self.skipped {
            _ = writeln!(text, "skipped: {commit}: {}", why.lines().next().unwrap_or_default());
        }
        text
    }
}

impl Blocks for CommitBlocks<'_> {
    fn next(&mut self, manifest: &Manifest, done: &[&Round]) -> Option<Vec<Vec<usize>>> {
        // The limit counts rounds. The conductor counts blocks of two rounds.
        let is_over = done.len() >= manifest.schedule.most();
        let chosen = if is_over { self.take(done).map(|()| None) } else { self.choose(manifest, done) };
        match chosen {
            Ok(pairs) => pairs.map(|pairs| {
                let first = done.last().map_or(0, |round| round.block + 1);
                let order =
                    |(block, pair): (usize, Pair)| manifest.schedule.order(block, &[pair.low, pair.high]);
                (first..).zip(pairs).map(order).collect()
            }),
            Err(error) => {
                self.failure = Some(error);
                None
            }
        }
    }
}

/// An arm for each commit, from GOOD to BAD.
pub fn arms(repository: &Repository<'_>, argv: &[String]) -> Vec<Arm> {
    let arm = |commit: &String| Arm {
        name: commit.clone(),
        program: Some(Program {
            argv: argv.to_vec(),
            directory: Some(repository.directory(commit)),
            ..Program::default()
        }),
        ..Arm::now()
    };
    repository.commits.iter().map(arm).collect()
}
