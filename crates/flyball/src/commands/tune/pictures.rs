//! The pictures of a search in its directory.

use std::path::Path;

use flyball_measure::RunDirectory;
use flyball_tune::Pictures;

use crate::{commands::report::save, exit::Failure};

pub(super) fn write(directory: &RunDirectory, pictures: &Pictures, place: &Path) -> Result<(), Failure> {
    let _as_owner = directory.owner().map(flyball_process::User::for_files);
    save(place, "search.svg", pictures.svg.as_bytes())?;
    save(place, "search.html", pictures.html.as_bytes())
}
