//! Exit codes, and the failures that lead to them. The table here is what help and the manual print.

use std::{fmt, process::ExitCode};

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

            fn code(self) -> u8 {
                match self {
                    $(Exit::$name => $code,)*
                    Exit::Command(code) => code,
                }
            }
        }
    };
}

exits! {
    /// Done; for `verify`, the settings hold; for `doctor`, nothing worse than a note.
    Done = 0;
    /// It failed; nothing was changed, or what was changed has been put back.
    Failed = 1;
    /// The command line or a file given on it cannot be used; nothing was done.
    Usage = 2;
    /// A write failed and putting back what was written before failed too: see the message.
    HalfDone = 3;
    /// This machine does not have what the command needs (kselftest's SKIP).
    NotHere = 4;
    /// `verify`: at least one setting no longer holds.
    Drifted = 5;
    /// Another flyball holds the machine.
    Locked = 6;
    /// A value was accepted, but the kernel clamped it to another.
    Clamped = 7;
    /// `doctor`: the worst finding is a warning.
    Warning = 8;
    /// `doctor`: the worst finding is a fault.
    Fault = 9;
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// A failure, in words for a person, with the exit code that goes with it.
#[derive(Debug)]
pub struct Failure {
    /// What the process ends with.
    pub exit: Exit,
    /// What happened, where, and what to do about it.
    pub message: String,
}

impl Failure {
    /// A failure with this message.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<flyball_host::HostError> for Failure {
    fn from(error: flyball_host::HostError) -> Failure {
        let exit = if error.is_absent() { Exit::NotHere } else { Exit::Failed };
        Failure::new(exit, error.to_string())
    }
}

/// Runs a command. What it cannot print because stdout takes no more (a full disk behind `>`) is a failure like any other:
/// the standard library's `println!` unwinds then, so that whatever the command holds is put back on the way.
pub fn with_printing(command: impl FnOnce() -> Result<Exit, Failure>) -> Result<Exit, Failure> {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if unprinted(info.payload()).is_none() {
            usual(info);
        }
    }));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(command)).unwrap_or_else(|payload| match unprinted(
        &*payload,
    ) {
        Some(why) => Err(Failure::new(Exit::Failed, format!("cannot write to stdout: {why}"))),
        None => std::panic::resume_unwind(payload),
    })
}

/// Why stdout could not be written to, if that is what a panic is about (`library/std/src/io/stdio.rs`, `print_to`).
fn unprinted(payload: &(dyn std::any::Any + Send)) -> Option<&str> {
    payload.downcast_ref::<String>()?.strip_prefix("failed printing to stdout: ")
}

/// A reader that went away (`flyball show | head`) is no error: take SIGPIPE's default, which ends the process.
pub fn die_quietly_on_a_closed_pipe() {
    flyball_host::default_sigpipe();
}
