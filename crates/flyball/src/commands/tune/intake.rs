//! The rounds of a directory as those of a search, block by block.

use flyball_measure::{Manifest, Round, RunDirectory, disturbance};
use flyball_search::Round as Searched;

use super::Record;
use crate::exit::Exit;

/// Void blocks in a row that end the search.
const MOST_VOID: usize = 3;
/// How often a disturbed round of a setting is run again. After that its setting brings the disturbance about.
const REPEATS: usize = 2;
/// Seconds by which the wall clock and the machine's clock may differ in a block. The latter stands still in suspend.
const ASLEEP: f64 = 2.0;

/// What has been read of a directory's rounds.
pub(super) struct Intake {
    /// Blocks of the directory that were read.
    pub taken: usize,
    /// How often each arm's round was left out.
    left_out: Vec<usize>,
    /// Blocks in a row that say nothing.
    void: usize,
    /// Why the search cannot go on.
    pub failure: Option<String>,
}

/// A block that was read.
pub(super) enum Block {
    /// The machine was suspended within it.
    Void,
    Rounds(Vec<Searched>),
}

impl Intake {
    pub fn new(arms: usize) -> Intake {
        Intake { taken: 0, left_out: vec![0; arms], void: 0, failure: None }
    }

    /// The next block of the directory, if there is one.
    pub fn next(&mut self, record: &Record, manifest: &Manifest, done: &[&Round]) -> Option<Block> {
        let rounds: Vec<&Round> = done.iter().copied().filter(|round| round.block == self.taken).collect();
        if rounds.is_empty() {
            return None;
        }
        self.taken += 1;
        if slept(&rounds) {
            self.void += 1;
            if self.void >= MOST_VOID {
                self.failure = Some("the machine was suspended in three blocks in a row".to_owned());
            }
            return Some(Block::Void);
        }
        self.void = 0;
        let mut block = Vec::new();
        for round in rounds {
            let left_out = &mut self.left_out[round.arm];
            if *left_out < REPEATS && disturbance(manifest, round).is_some() {
                *left_out += 1;
                continue;
            }
            block.push(searched(record, round.arm, round, manifest));
        }
        if self.taken == 1 && block.iter().any(|one| one.arm == 0 && one.objective.is_none()) {
            self.failure = Some("'now' itself fails, or its quantity is not a number above zero".to_owned());
        }
        Some(Block::Rounds(block))
    }
}

/// A round as the search sees it.
pub(super) fn searched(record: &Record, arm: usize, round: &Round, manifest: &Manifest) -> Searched {
    // The meters have read a round that failed or was ended, but not that of the work.
    let did_work = round.outcome.failure.is_none();
    let cost = |aim: super::goal::Aim| aim.cost(round, manifest).filter(|_| did_work);
    let second = record.goal.second.or(record.goal.limit.map(|limit| limit.aim));
    Searched {
        arm,
        objective: cost(record.goal.aim),
        bounded: second.and_then(cost),
        preferred: record.goal.prefer.and_then(cost),
        seconds: round.outcome.seconds,
    }
}

/// The rounds of a search in the order in which they ran.
pub(super) fn in_order(directory: &RunDirectory) -> Vec<&Round> {
    let mut done: Vec<_> = directory.rounds.iter().filter(|round| !round.warm_up).collect();
    done.sort_by_key(|round| (round.block, round.place));
    done
}

/// Says that a search can go on.
pub(super) fn not_over(directory: &RunDirectory, rounds: usize) -> Exit {
    eprintln!(
        "note: this search is not over ({rounds} rounds); to continue: flyball tune --resume {}",
        directory.path().display()
    );
    Exit::Done
}

/// Whether the machine was suspended within a block.
fn slept(rounds: &[&Round]) -> bool {
    rounds.windows(2).any(|two| {
        let walls = (two[0].moment.uptime_s, two[1].moment.uptime_s);
        let (Some(from), Some(to)) = walls else { return false };
        // /proc/uptime counts suspend (kernel/time/timekeeping.c, ktime_get_boottime_ts64), the monotonic clock does not.
        (to - from) - (two[1].started - two[0].started) > ASLEEP && two[1].started > two[0].started
    })
}
