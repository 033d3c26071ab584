//! Converts the rounds of a directory to those of a search, block by block.

use flyball_measure::{Manifest, Round, RunDirectory, disturbance, last_lines};
use flyball_search::Round as Searched;

use crate::{Progress, goal::Aim, record::Record};

/// Void blocks in a row after which the search ends.
const MAX_VOID: usize = 3;
/// Failures of the machine as it is after which the search ends.
const MAX_BASE_FAILURES: usize = 2;
/// How often a disturbed round of a setting is run again. After that, the setting itself is taken
/// as the cause.
const REPEATS: usize = 2;
/// Seconds by which the wall clock and the machine's clock may differ in a block. The latter stops
/// in suspend.
const ASLEEP: f64 = 2.0;

/// The state of reading a directory's rounds.
pub(crate) struct Intake<'a> {
    /// Blocks of the directory that were read.
    pub taken: usize,
    /// How often each arm's round was left out.
    left_out: Vec<usize>,
    /// Consecutive void blocks.
    void: usize,
    /// Rounds of the machine as it is that failed.
    base_failures: usize,
    /// Where new blocks are reported. Those in a resumed directory were reported when they ran.
    pub progress: Option<&'a dyn Progress>,
    /// Why the search cannot go on.
    pub failure: Option<String>,
}

/// A block that was read.
pub(crate) enum Block {
    /// The machine was suspended during the block, or another program changed it.
    Void,
    Rounds(Vec<Searched>),
}

impl<'a> Intake<'a> {
    pub(crate) fn new(arms: usize) -> Intake<'a> {
        Intake { taken: 0, left_out: vec![0; arms], void: 0, base_failures: 0, progress: None, failure: None }
    }

    /// The next block of the directory, if there is one.
    pub(crate) fn next(&mut self, record: &Record, manifest: &Manifest, done: &[&Round]) -> Option<Block> {
        let rounds: Vec<&Round> = done.iter().copied().filter(|round| round.block == self.taken).collect();
        if rounds.is_empty() {
            return None;
        }
        self.taken += 1;
        if let Some(why) = void(&rounds) {
            self.void += 1;
            if self.void >= MAX_VOID {
                self.failure = Some(format!("three blocks in a row cannot be used: {why}"));
            } else {
                self.say(|| format!("block {} does not count and is repeated: {why}", self.taken));
            }
            return Some(Block::Void);
        }
        self.void = 0;
        let mut block = Vec::new();
        for round in rounds {
            let name = &manifest.arms[round.arm].name;
            if self.left_out[round.arm] < REPEATS
                && let Some(why) = disturbance(manifest, round)
            {
                self.left_out[round.arm] += 1;
                self.say(|| format!("a round of '{name}' does not count: {why}"));
                continue;
            }
            let searched = searched(record, round.arm, round, manifest);
            if let Some(failure) = record.goal.aim.why_none(round, manifest) {
                self.say(|| format!("'{name}' failed; after a second time it is left out: {failure}"));
            }
            if round.arm == 0 && searched.objective.is_none() {
                self.base_failed(record, round, manifest);
            }
            block.push(searched);
        }
        Some(Block::Rounds(block))
    }

    fn say(&self, message: impl FnOnce() -> String) {
        if let Some(progress) = self.progress {
            progress.say(&message());
        }
    }

    /// Counts a failure of the machine as it is, without which nothing can be compared.
    fn base_failed(&mut self, record: &Record, round: &Round, manifest: &Manifest) {
        self.base_failures += 1;
        // If it fails in the first block, the next one is not likely to be better.
        if self.taken == 1 || self.base_failures >= MAX_BASE_FAILURES {
            let why = record.goal.aim.why_none(round, manifest).unwrap_or_default();
            let lines = round.outcome.failure.is_none().then(|| last_lines(&round.outcome.output));
            self.failure = Some(format!("'now' itself fails: {why}{}", lines.unwrap_or_default()));
        }
    }
}

/// Converts a round to one of the search.
pub(crate) fn searched(record: &Record, arm: usize, round: &Round, manifest: &Manifest) -> Searched {
    // The meters also read a round that failed or was cut off, but it did not do the work.
    let did_work = round.outcome.failure.is_none();
    let cost = |aim: Aim| aim.cost(round, manifest).filter(|_| did_work);
    Searched {
        arm,
        objective: cost(record.goal.aim),
        bounded: record.goal.limit.and_then(|limit| cost(limit.aim)),
        preferred: record.goal.prefer.and_then(cost),
        seconds: round.outcome.seconds,
    }
}

/// The rounds of a search in the order in which they ran.
pub fn in_order(directory: &RunDirectory) -> Vec<&Round> {
    let mut done: Vec<_> = directory.rounds.iter().filter(|round| !round.warm_up).collect();
    done.sort_by_key(|round| (round.block, round.place));
    done
}

/// Why a block says nothing about its settings.
fn void(rounds: &[&Round]) -> Option<String> {
    let changed = rounds.iter().find_map(|round| round.void.clone());
    changed.or_else(|| slept(rounds).then(|| "the machine was suspended".to_owned()))
}

/// Whether the machine was suspended within a block.
fn slept(rounds: &[&Round]) -> bool {
    rounds.windows(2).any(|two| {
        let walls = (two[0].moment.uptime_s, two[1].moment.uptime_s);
        let (Some(from), Some(to)) = walls else { return false };
        // /proc/uptime counts suspend (kernel/time/timekeeping.c, ktime_get_boottime_ts64), the
        // monotonic clock does not.
        (to - from) - (two[1].started - two[0].started) > ASLEEP && two[1].started > two[0].started
    })
}
