//! A search computed again from its directory: the verdict, and its pictures.

use std::path::Path;

use flyball_measure::{Blocks as _, RunDirectory};
use flyball_tune::{CONFIRM, Confirmed, Pictures, Record, Verdict, in_order};

use super::front;
use crate::{
    commands::report::save,
    exit::{Exit, Failure},
    output::Reporter,
    schema,
};

/// Computes the verdict of a finished search again, and writes its pictures to `place`.
///
/// # Errors
/// A directory that is damaged, or whose search is not over.
pub fn report(output: &Reporter, directory: &RunDirectory, place: &Path) -> Result<Exit, Failure> {
    let record = Record::read(directory)?;
    if record.goal.second.is_some() {
        return front::report(output, directory, &record, place);
    }
    let mut blocks = record.blocks(directory, None)?;
    let done = in_order(directory);
    let next = blocks.next(&directory.manifest, &done);
    let Some(outcome) = blocks.outcome.filter(|_| next.is_none()) else {
        return Ok(not_over(directory, done.len()));
    };
    let second = record.contradicted_after.is_some();
    let folder = directory.path().join(CONFIRM[usize::from(second)]);
    let confirmed = match outcome.chosen {
        0 => None,
        _ => Some(Confirmed::new(&RunDirectory::open(&folder)?, &record.goal)),
    };
    let verdict = Verdict::new(&record.goal, &record.searched, directory, &outcome, confirmed, second);
    write_pictures(directory, &Pictures::of_search(directory, &record, &outcome), place)?;
    output.object(schema::TUNE, || &verdict, || verdict.text(&directory.manifest, &record.searched))?;
    Ok(Exit::Done)
}

/// Says that a search can go on.
pub(super) fn not_over(directory: &RunDirectory, rounds: usize) -> Exit {
    eprintln!(
        "note: this search is not over ({rounds} rounds); to continue: flyball tune --resume {}",
        directory.path().display()
    );
    Exit::Done
}

/// Writes the pictures of a search.
pub(super) fn write_pictures(
    directory: &RunDirectory,
    pictures: &Pictures,
    place: &Path,
) -> Result<(), Failure> {
    let _as_owner = directory.owner().map(flyball_process::User::for_files);
    save(place, "search.svg", pictures.svg.as_bytes())?;
    save(place, "search.html", pictures.html.as_bytes())
}
