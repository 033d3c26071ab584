//! Failures before and around a guest, each with what the user can do about it.

use std::{io, path::PathBuf};

use thiserror::Error;

/// A failure on this side of the guest. What happens inside a guest is its exit code.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GuestError {
    /// A file could not be read, written or made.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried: a verb.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A file has the wrong format.
    #[error("{}: {why}", path.display())]
    Format { path: PathBuf, why: String },
    /// Something that `guest fetch` downloads is missing.
    #[error("{what} is not in {}; fetch it with: {remedy}", cache.display())]
    NotFetched {
        what: String,
        /// The cache that was looked in.
        cache: PathBuf,
        /// The command that fetches it.
        remedy: String,
    },
    /// There is no place for the cache that belongs to the user.
    #[error(
        "there is no home directory for the cache; set FLYBALL_CACHE to a directory that only you can write"
    )]
    NoHome,
    /// Another user could have put programs into the cache.
    #[error(
        "{0}; flyball runs programs of its cache, so it does not use this one. Set FLYBALL_CACHE to a directory that \
         only you can write"
    )]
    Cache(#[from] flyball_files::Untrusted),
    /// The package mirror or apt did not deliver.
    #[error("{0}")]
    Fetch(String),
    /// The request is invalid.
    #[error("{0}")]
    Request(String),
    /// The emulator could not be started or controlled.
    #[error("{0}")]
    Emulator(String),
}

impl GuestError {
    pub fn file(what: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> GuestError {
        GuestError::File { what, path: path.into(), source: source.into() }
    }

    pub fn format(path: impl Into<PathBuf>, why: impl Into<String>) -> GuestError {
        GuestError::Format { path: path.into(), why: why.into() }
    }
}
