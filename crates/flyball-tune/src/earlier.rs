//! `--start-from`: the rounds of an earlier search, mapped to this search's settings.

use std::path::{Path, PathBuf};

use flyball_measure::{RecordError, RunDirectory};
use flyball_search::Round;

use crate::{
    goal::Goal,
    intake::searched as as_searched,
    record::{EarlierRound, Record, RecordFileError},
    space::Searched,
};

/// Why a search cannot start from another one.
#[derive(Debug, thiserror::Error)]
pub enum EarlierError {
    #[error(transparent)]
    Directory(#[from] RecordError),
    #[error(transparent)]
    Record(#[from] RecordFileError),
    #[error("--start-from {}: it searched for another quantity or under another limit", path.display())]
    Goal { path: PathBuf },
    #[error("--start-from {}: it ran none of these settings", path.display())]
    Settings { path: PathBuf },
}

/// The rounds of the search in a directory, block by block, if this search has their settings too.
///
/// # Errors
/// The directory holds no search, a search with another goal, or none of these settings.
pub fn earlier_rounds(
    path: &Path,
    goal: &Goal,
    searched: &Searched,
) -> Result<Vec<Vec<EarlierRound>>, EarlierError> {
    let directory = RunDirectory::open(path)?;
    let record = Record::read(&directory)?;
    let limit = |goal: &Goal| goal.limit.map(|limit| limit.aim);
    if record.goal.aim != goal.aim || limit(goal).is_some_and(|aim| limit(&record.goal) != Some(aim)) {
        return Err(EarlierError::Goal { path: path.to_owned() });
    }
    let arm_here = |arm: usize| {
        searched.arms.iter().position(|here| here.settings == directory.manifest.arms[arm].settings)
    };
    let mut blocks: Vec<Vec<EarlierRound>> = Vec::new();
    let mut of = usize::MAX;
    for round in directory.rounds.iter().filter(|round| !round.warm_up) {
        let Some(arm) = arm_here(round.arm) else { continue };
        if round.block != of {
            of = round.block;
            blocks.push(Vec::new());
        }
        let one = EarlierRound {
            arm,
            objective: goal.aim.cost(round, &directory.manifest),
            bounded: goal.limit.and_then(|limit| limit.aim.cost(round, &directory.manifest)),
            seconds: round.outcome.seconds,
        };
        blocks.last_mut().into_iter().for_each(|block| block.push(one));
    }
    if blocks.iter().flatten().all(|one| one.arm == 0) {
        return Err(EarlierError::Settings { path: path.to_owned() });
    }
    Ok(blocks)
}

/// The rounds of a confirmation, block by block, as rounds of the search.
pub(crate) fn confirmation_rounds(fresh: &RunDirectory, record: &Record) -> Vec<Vec<Round>> {
    let arm_here = |arm: usize| {
        record.searched.arms.iter().position(|here| here.settings == fresh.manifest.arms[arm].settings)
    };
    let last = fresh.rounds.iter().map(|round| round.block).max().map_or(0, |block| block + 1);
    let rounds_of = |block: usize| {
        let rounds = fresh.rounds.iter().filter(move |round| !round.warm_up && round.block == block);
        rounds.filter_map(|round| Some(as_searched(record, arm_here(round.arm)?, round, &fresh.manifest)))
    };
    (0..last).map(|block| rounds_of(block).collect()).collect()
}
