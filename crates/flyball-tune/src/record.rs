//! The file `search.json` of a run directory: the settings and the goal of a search. With the
//! rounds it is enough to continue the search or to compute it again.

use std::{
    io,
    path::{Path, PathBuf},
};

use flyball_measure::{RecordError, RunDirectory};

use crate::{
    goal::Goal,
    space::{Searched, SpaceError},
};

const FORMAT: &str = "flyball-search";
const VERSION: u32 = 1;

const FILE: &str = "search.json";

/// Maximum size of the file in bytes: two thousand settings of a few hundred bytes.
const MAX_BYTES: u64 = 16 << 20;

/// The folders of the fresh rounds: of the first choice and, if they contradicted the search, of
/// the second.
pub const CONFIRM: [&str; 2] = ["confirm", "confirm-2"];

/// What `search.json` holds.
#[derive(Debug, Clone, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
pub struct Record {
    format: String,
    /// The version of the file's format.
    version: u32,
    pub goal: Goal,
    pub most_rounds: usize,
    /// Seconds of rounds, after which the search ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_seconds: Option<f64>,
    /// Whether the search may end only with intervals that need no model.
    #[serde(default)]
    pub strict: bool,
    pub searched: Searched,
    /// How many blocks the search had when fresh rounds contradicted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contradicted_after: Option<usize>,
}

/// Why a directory's search cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordFileError {
    #[error("{}: {cause}; is this a run directory of 'flyball tune'?", path.display())]
    Read { path: PathBuf, cause: io::Error },
    #[error("{}: {cause}", path.display())]
    Content { path: PathBuf, cause: serde_json::Error },
    #[error("{}: format {format} {version} is not one that this flyball reads", path.display())]
    Version { path: PathBuf, format: String, version: u32 },
    #[error("{}: its settings are not those of the manifest", path.display())]
    Arms { path: PathBuf },
    #[error(transparent)]
    Directory(#[from] RecordError),
    #[error(transparent)]
    Space(#[from] SpaceError),
}

impl Record {
    pub fn new(goal: Goal, searched: Searched, most_rounds: usize) -> Record {
        Record {
            format: FORMAT.to_owned(),
            version: VERSION,
            goal,
            most_rounds,
            most_seconds: None,
            strict: false,
            searched,
            contradicted_after: None,
        }
    }

    /// Whether a run directory holds a search.
    pub fn is_in(path: &Path) -> bool {
        path.join(FILE).is_file()
    }

    /// Reads the record of a run directory.
    pub fn read(directory: &RunDirectory) -> Result<Record, RecordFileError> {
        let path = directory.path().join(FILE);
        let bytes = flyball_files::Dir::open(directory.path())
            .and_then(|dir| dir.read(FILE, MAX_BYTES))
            .map_err(|cause| RecordFileError::Read { path: path.clone(), cause })?;
        let record: Record = match serde_json::from_slice(&bytes) {
            Ok(record) => record,
            Err(cause) => return Err(RecordFileError::Content { path, cause }),
        };
        let Record { format, version, searched, .. } = &record;
        if format != FORMAT || *version > VERSION {
            return Err(RecordFileError::Version { path, format: format.clone(), version: *version });
        }
        // The levels, arms and factors index each other.
        if searched.arms != directory.manifest.arms || searched.levels.len() != searched.arms.len() {
            return Err(RecordFileError::Arms { path });
        }
        Ok(record)
    }

    /// Writes it into a run directory.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, directory: &RunDirectory) -> Result<(), RecordFileError> {
        let failed = |cause| RecordFileError::Content { path: directory.path().join(FILE), cause };
        Ok(directory.write(FILE, &serde_json::to_vec_pretty(self).map_err(failed)?)?)
    }
}
