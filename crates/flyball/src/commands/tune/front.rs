//! `tune --front`: prints and writes the front.

use std::path::Path;

use flyball_measure::{Blocks as _, RunDirectory};
use flyball_tune::{FrontBlocks, FrontClaim, FrontFound, Record, in_order};

use super::{Tuning, pictures, screen::print_resumable, write_profile};
use crate::{
    exit::{Exit, Failure},
    output::Reporter,
};

pub(super) fn finish(tuning: &Tuning<'_>, found: &FrontFound) -> Result<Exit, Failure> {
    let directory = &tuning.directory;
    pictures::write(directory, &found.pictures(&directory.manifest), directory.path())?;
    let output = tuning.context.output.about(tuning.host);
    output.object(|| found, || found.text(&directory.manifest))?;
    if let Some(path) = &tuning.args.output {
        let on_front = found.settings.iter().filter(|one| one.claim == FrontClaim::OnFront && one.arm != 0);
        for (index, place) in on_front.enumerate() {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let path = path.with_file_name(format!("{stem}-{}.toml", index + 1));
            write_profile(&path, directory, &tuning.record, place.arm, "")?;
            eprintln!("profile: {} ({})", path.display(), place.name);
        }
    }
    eprintln!("run directory: {}", directory.path().display());
    Ok(Exit::Done)
}

/// Recomputes the front of a directory, and writes its pictures to `place`.
///
/// # Errors
/// A directory that is damaged.
pub(super) fn report(
    output: &Reporter,
    directory: &RunDirectory,
    record: &Record,
    place: &Path,
) -> Result<Exit, Failure> {
    let mut blocks = FrontBlocks::new(record, directory.manifest.schedule.seed, None)?;
    let done = in_order(directory);
    let next = blocks.next(&directory.manifest, &done);
    let Some(found) = blocks.found().filter(|_| next.is_none()) else {
        return Ok(print_resumable(directory, done.len()));
    };
    pictures::write(directory, &found.pictures(&directory.manifest), place)?;
    output.object(|| &found, || found.text(&directory.manifest))?;
    Ok(Exit::Done)
}
