//! How the program ends: the exit codes of `flyball guest`, and the failures that lead to them.

use std::{error::Error, fmt, process::ExitCode};

use flyball_guest::error::GuestError;

/// The result of a command. The numbers are flyball's exit codes (docs/exit-codes.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    Failed,
    /// The command line, or a file named on it, is invalid.
    Usage,
    /// Something that `flyball guest fetch` downloads is missing; tests skip on this code.
    NotHere,
    /// Writing to standard output failed.
    Unwritten,
    /// The exit code of the command in the guest, or a code of the launcher.
    Command(u8),
}

/// The kernel or the emulator failed before it could give a result: 125, as with `git bisect run`,
/// env(1) and timeout(1).
pub(crate) const CANNOT_TELL: Exit = Exit::Command(125);

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::NotHere => 4,
            Exit::Unwritten => 10,
            Exit::Command(code) => code,
        })
    }
}

/// Why a command failed, and the exit code that goes with it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    cause: Box<dyn Error + Send + Sync>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        Failure { exit, cause: cause.into() }
    }

    /// A failure because the command line, or a file named on it, is invalid.
    pub(crate) fn usage(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        Failure::new(Exit::Usage, cause)
    }

    pub(crate) fn failed(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        Failure::new(Exit::Failed, cause)
    }

    /// The same failure with another exit code.
    #[must_use]
    pub(crate) fn exiting(self, exit: Exit) -> Failure {
        Failure { exit, ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl From<GuestError> for Failure {
    fn from(error: GuestError) -> Failure {
        let exit = match error {
            GuestError::Request(_) => Exit::Usage,
            // Treated like a missing device, so that a test without network is skipped.
            GuestError::NotFetched { .. } => Exit::NotHere,
            _ => Exit::Failed,
        };
        Failure::new(exit, error)
    }
}
