//! What can go wrong before, and with, a guest; each with what the user can do about it.

use std::{io, path::PathBuf};

use thiserror::Error;

/// A failure on this side of the guest. What happens inside a guest is its exit code.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GuestError {
    /// A file could not be read, written or made.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried, as a verb.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {why}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Something that `guest fetch` brings is not there.
    #[error("{what} is not in {}; bring it with: {remedy}", cache.display())]
    NotFetched {
        /// What is missing.
        what: String,
        /// The cache that was looked in.
        cache: PathBuf,
        /// The command that brings it.
        remedy: String,
    },
    /// The package mirror or its tools did not give what was asked for.
    #[error("{0}")]
    Fetch(String),
    /// The request makes no sense.
    #[error("{0}")]
    Request(String),
    /// The emulator did not start, or ended by itself.
    #[error("{0}")]
    Emulator(String),
}

impl GuestError {
    /// An error of `what` on `path`.
    pub fn file(what: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> GuestError {
        GuestError::File { what, path: path.into(), source: source.into() }
    }

    /// `path` is not what it should be.
    pub fn format(path: impl Into<PathBuf>, why: impl Into<String>) -> GuestError {
        GuestError::Format { path: path.into(), why: why.into() }
    }
}
