//! Exit codes, and the failures that lead to them. Help and the manual print the table in this
//! file.

use std::{error::Error, process::ExitCode};

use flyball_compare::{NotTraceable, PinError, UserKnobsError, arms::ArmsError, workloads::PrepareError};
use flyball_control::{ReadError, write::journal::JournalError};
use flyball_host::HostError;
use flyball_measure::{RecordError, RefusedArm, SettingsError};
use flyball_simhost::SimError;
use flyball_tune::{GoalError, NoProfile, PresetError, RecordFileError, SpaceError};

// A single list for the type, the help and the manual, so that they cannot differ.
macro_rules! exits {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal;)*) => {
        /// How a command ended.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Exit {
            $($(#[doc = $doc])+ $name,)*
            /// The exit code of a command that flyball ran for the user.
            Command(u8),
        }

        impl Exit {
            /// Code and meaning of every documented exit.
            pub const TABLE: &[(u8, &str)] = &[$(($code, concat!($($doc),+)),)*];

            /// The number.
            pub fn code(self) -> u8 {
                match self {
                    $(Exit::$name => $code,)*
                    Exit::Command(code) => code,
                }
            }
        }
    };
}

exits! {
    /// Done. `verify`: the settings are in effect. `doctor`: nothing is worse than a note.
    Done = 0;
    /// Failed. Nothing was changed, or every change was undone. Also: a trace has records that
    /// cannot be read.
    Failed = 1;
    /// The command line, or a file or machine that it names, cannot be used. Nothing was done.
    Usage = 2;
    /// A write failed, and undoing the others failed too. Or settings were restored and the journal
    /// could not be written.
    HalfDone = 3;
    /// This machine lacks what the command needs.
    NotHere = 4;
    /// `verify`, `hold status`, `hold rehearse`, `quiet status`: a setting is not in effect.
    Drifted = 5;
    /// Another flyball command is changing the machine.
    Locked = 6;
    /// The kernel clamped a value to another one.
    Clamped = 7;
    /// `doctor`: the worst finding is a warning.
    Warning = 8;
    /// `doctor`: the worst finding is a fault.
    Fault = 9;
    /// The work is done, but stdout or stderr could not be written.
    Unwritten = 10;
    /// A recording or machine file needs more memory or processor time than flyball allows.
    Limited = 11;
    /// `compare`, `report`: an arm is over a limit of `--fail-if`.
    Over = 12;
    /// The rounds do not decide a limit of `--fail-if`, or name no commit for `--bisect`. Or the
    /// first arm differs from itself (`--aa`).
    CannotTell = 13;
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Any error: a library's, or a message.
pub(crate) type Cause = Box<dyn Error + Send + Sync>;

/// Why a command failed, and the exit code that goes with it.
#[derive(Debug, derive_more::Display)]
#[display("{}", cause)]
pub(crate) struct Failure {
    /// The exit code of the process.
    pub exit: Exit,
    cause: Cause,
}

impl Failure {
    pub(crate) fn new(exit: Exit, cause: impl Into<Cause>) -> Failure {
        Failure { exit, cause: cause.into() }
    }

    /// The command line, or a file given on it, cannot be used.
    pub(crate) fn usage(cause: impl Into<Cause>) -> Failure {
        Failure::new(Exit::Usage, cause)
    }

    /// Something went wrong.
    pub(crate) fn failed(cause: impl Into<Cause>) -> Failure {
        Failure::new(Exit::Failed, cause)
    }

    /// The machine lacks what the command needs.
    pub(crate) fn not_here(cause: impl Into<Cause>) -> Failure {
        Failure::new(Exit::NotHere, cause)
    }

    /// Returns the failure with another message. The original cause can still be found.
    #[must_use]
    pub(crate) fn reworded(self, words: impl FnOnce(&str) -> String) -> Failure {
        let message = words(&self.cause.to_string());
        Failure { exit: self.exit, cause: Box::new(Reworded { message, cause: self.cause }) }
    }

    /// The first error of type `E` among the causes.
    pub(crate) fn find<E: Error + 'static>(&self) -> Option<&E> {
        let mut cause: Option<&(dyn Error + 'static)> = Some(&*self.cause);
        while let Some(error) = cause {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            cause = error.source();
        }
        None
    }
}

/// A cause with a changed message.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Reworded {
    message: String,
    #[source]
    cause: Cause,
}

/// Derives a failure from an error that has an exit code.
#[macro_export]
macro_rules! failures {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for $crate::exit::Failure {
            fn from(error: $error) -> $crate::exit::Failure {
                $crate::exit::Failure::new($crate::exit::Exit::from(&error), error)
            }
        })*
    };
}

failures!(ReadError, HostError);

impl From<&ReadError> for Exit {
    /// A file that should be readable and is not. If /sys itself is missing, this is
    /// [`Exit::NotHere`].
    fn from(error: &ReadError) -> Exit {
        match error {
            ReadError::Host(error) => error.into(),
            // The file exists, but no kernel would write this content. The machine has the feature,
            // so scripts must not skip.
            ReadError::Content { .. } | ReadError::NotTaken(_) => Exit::Failed,
        }
    }
}

impl From<&HostError> for Exit {
    fn from(error: &HostError) -> Exit {
        // A missing file or device is no error of this run: like kselftest, scripts skip on 4.
        if error.is_absent() { Exit::NotHere } else { Exit::Failed }
    }
}

impl From<SimError> for Failure {
    fn from(error: SimError) -> Failure {
        let exit = match error {
            // The user typed something wrong.
            SimError::Setup(_) | SimError::NotItsState { .. } => Exit::Usage,
            SimError::State { .. } => Exit::Failed,
            // The same exit code as for a real machine that another flyball has locked.
            SimError::Busy { .. } => Exit::Locked,
        };
        Failure::new(exit, error)
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Failure {
        let exit = match error {
            // An unreadable or unusable directory was named on the command line. A failed write is
            // a problem of this machine.
            RecordError::Io { what: "read" | "use", .. } | RecordError::Content { .. } => Exit::Usage,
            RecordError::Io { .. } => Exit::Failed,
        };
        Failure::new(exit, error)
    }
}

failures!(SettingsError, RefusedArm, ArmsError);

impl From<&SettingsError> for Exit {
    fn from(error: &SettingsError) -> Exit {
        match error {
            SettingsError::Intent(_) | SettingsError::Driver(_) | SettingsError::Kept => Exit::Usage,
            SettingsError::Read(error) => error.into(),
            SettingsError::Plan(error) => error.into(),
            SettingsError::Begin(error) => error.into(),
            SettingsError::Apply(error) => error.into(),
            SettingsError::Quiet(error) => error.into(),
            _ => Exit::Failed,
        }
    }
}

impl From<&ArmsError> for Exit {
    fn from(error: &ArmsError) -> Exit {
        match error {
            ArmsError::Arm(error) => error.into(),
            ArmsError::Knob(error) => error.into(),
        }
    }
}

impl From<&RefusedArm> for Exit {
    fn from(error: &RefusedArm) -> Exit {
        Exit::from(&error.cause)
    }
}

/// Derives failures from errors that have one exit code.
macro_rules! failures_of {
    ($exit:ident: $($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::new(Exit::$exit, error)
            }
        })*
    };
}

failures_of!(Usage: UserKnobsError, GoalError);
failures_of!(NotHere: NotTraceable);
failures_of!(Failed: NoProfile, JournalError);

failures!(PresetError, SpaceError, PrepareError);

impl From<&PrepareError> for Exit {
    fn from(error: &PrepareError) -> Exit {
        match error {
            PrepareError::OwnProgram(_) | PrepareError::OwnPath => Exit::Failed,
            PrepareError::Pin(PinError::NoRanking) => Exit::NotHere,
            _ => Exit::Usage,
        }
    }
}

impl From<&PresetError> for Exit {
    fn from(error: &PresetError) -> Exit {
        match error {
            PresetError::Word | PresetError::Watts => Exit::Usage,
            PresetError::NoKnobs => Exit::NotHere,
        }
    }
}

impl From<&SpaceError> for Exit {
    fn from(error: &SpaceError) -> Exit {
        match error {
            SpaceError::Refused { cause, .. } | SpaceError::Machine(cause) => cause.into(),
            _ => Exit::Usage,
        }
    }
}

impl From<RecordFileError> for Failure {
    fn from(error: RecordFileError) -> Failure {
        match error {
            RecordFileError::Directory(error) => error.into(),
            RecordFileError::Space(error) => error.into(),
            error => Failure::usage(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reworded_failure_keeps_its_cause() {
        let number = "x".parse::<u8>().unwrap_err();
        let failure = Failure::usage(number.clone()).reworded(|message| format!("seed 'x': {message}"));
        assert_eq!(failure.to_string(), format!("seed 'x': {number}"));
        assert_eq!(failure.find::<std::num::ParseIntError>(), Some(&number));
        assert!(failure.find::<std::fmt::Error>().is_none());
    }

    #[test]
    fn the_page_lists_every_code() {
        let page = include_str!("../../../docs/exit-codes.md");
        for (code, meaning) in Exit::TABLE {
            let row = format!("| {code} | {} |", meaning.trim());
            assert!(page.contains(&row), "docs/exit-codes.md lacks {row}");
        }
    }
}
