//! Recomputes a search from its directory: the verdict, and its pictures.

use std::path::Path;

use flyball_measure::{Blocks as _, RunDirectory};
use flyball_tune::{CONFIRM, Confirmed, Pictures, Record, SearchBlocks, Verdict, in_order};

use super::{pictures, screen::print_resumable};
use crate::{
    exit::{Exit, Failure},
    output::Reporter,
};

/// Recomputes the verdict of a finished search, and writes its pictures to `place`.
///
/// # Errors
/// The directory is damaged, or its search is not finished.
pub(crate) fn report(output: &Reporter, directory: &RunDirectory, place: &Path) -> Result<Exit, Failure> {
    let record = Record::read(directory)?;
    let mut blocks = SearchBlocks::from_directory(&record, directory, None)?;
    let done = in_order(directory);
    let next = blocks.next(&directory.manifest, &done);
    let Some(outcome) = blocks.outcome.filter(|_| next.is_none()) else {
        return Ok(print_resumable(directory, done.len()));
    };
    let second = record.contradicted_after.is_some();
    let folder = directory.path().join(CONFIRM[usize::from(second)]);
    let confirmed = match outcome.chosen {
        0 => None,
        _ => {
            let fresh = RunDirectory::open(&folder)?;
            Some(Confirmed::new(&fresh, &record.goal, directory, outcome.chosen))
        }
    };
    let verdict = Verdict::new(&record.goal, &record.searched, directory, &outcome, confirmed, second);
    pictures::write(directory, &Pictures::draw(directory, &record, &outcome, &verdict), place)?;
    output.object(|| &verdict, || verdict.text(&directory.manifest, &record.searched))?;
    Ok(Exit::Done)
}
