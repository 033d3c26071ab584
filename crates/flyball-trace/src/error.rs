//! Errors of traces, always with the byte offset of the problem.

use std::{io, path::PathBuf};

/// Bytes that do not follow the format.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[error("at byte {offset}: {what}")]
pub struct Malformed {
    /// Offset from the start of the file (or of the slice that was parsed).
    pub offset: u64,
    /// The problem at that offset.
    pub what: String,
}

impl Malformed {
    pub fn new(offset: u64, what: impl Into<String>) -> Malformed {
        Malformed { offset, what: what.into() }
    }

    /// Adds `base` to the offset, for a slice that starts there in the file.
    #[must_use]
    pub fn within(mut self, base: u64) -> Malformed {
        self.offset = self.offset.saturating_add(base);
        self
    }
}

/// Why a trace cannot be read or written at all. If damage leaves something readable, it is not an
/// error, but a [`Malformed`] among the reader's problems.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system returned an error.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// The failed operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The bytes are damaged.
    #[error("{what} is damaged {malformed}")]
    Damaged {
        /// The file, or its damaged part.
        what: String,
        /// Location and kind of the damage.
        malformed: Malformed,
    },
    /// The file is intact, but this program cannot read it.
    #[error("{0}")]
    Unsupported(String),
}

impl TraceError {
    /// An error of the operating system on `path`.
    pub fn io(what: &'static str, path: impl Into<PathBuf>, error: io::Error) -> TraceError {
        TraceError::Io { what, path: path.into(), error }
    }

    /// Damage in `what`.
    pub fn damaged(what: impl Into<String>, malformed: Malformed) -> TraceError {
        TraceError::Damaged { what: what.into(), malformed }
    }
}
