//! Failures before and around a guest, with advice for each.

use std::{io, path::PathBuf};

use thiserror::Error;

/// A failure outside the guest. A failure in a guest is its exit code.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GuestError {
    /// A file could not be read, written or created.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// The failed action: a verb.
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
        /// The cache that was searched.
        cache: PathBuf,
        /// The command that fetches it.
        remedy: String,
    },
    /// The user has no directory for the cache.
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
    /// The package mirror or apt failed.
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
