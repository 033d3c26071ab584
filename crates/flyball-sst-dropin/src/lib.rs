//! The drop-in for intel-speed-select v1.26: its command lines, its text and JSON, its streams and
//! exit codes.
//!
//! Results go to stderr and most failures exit with 0, as scripts expect; with `--strict` before
//! the feature word results go to stdout, everything else to stderr, and the exit code says what
//! happened. Where the tool damages something or hides a failure, this crate behaves differently:
//! docs/dev/speed-select.md lists every place. The tool's source is
//! tools/power/x86/intel-speed-select in the kernel tree; comments here name its functions where a
//! detail follows one.
//!
//! Writes go straight to the host, without flyball's journal: scripts that use the tool undo its
//! changes themselves.

/// The value of an answer; a failure ends the function, which then returns it.
macro_rules! answered {
    ($answer:expr) => {
        match $answer {
            Ok(value) => value,
            Err(code) => return Ok(Err(code)),
        }
    };
    ($answer:expr, $session:ident, $error:expr) => {
        match $answer {
            Ok(value) => value,
            Err(code) => {
                $session.error($error);
                return Ok(Err(code));
            }
        }
    };
}

mod bios;
mod command;
mod daemon;
mod debug;
mod display;
mod features;
mod getopt;
mod global_options;
mod help;
mod info;
mod levels;
mod numbers;
mod online;
mod options;
mod power;
mod profile;
mod run;
mod session;
mod show;
mod turbo;
mod words;

#[cfg(test)]
mod tests;

pub use daemon::Daemon;
pub use global_options::outputs;
pub use run::{Environment, run};
pub use session::Ended;
