//! The drop-in for intel-speed-select v1.26: its command lines, its text and JSON, its streams and
//! exit codes.
//!
//! Results go to stderr and most errors exit with 0, as scripts expect. With `--strict` before the
//! feature word, results go to stdout, everything else to stderr, and the exit code reports errors.
//! Where the tool does damage or hides an error, this crate behaves differently:
//! docs/dev/speed-select.md lists every case. The tool's source is
//! tools/power/x86/intel-speed-select in the kernel tree; comments here name the function that a
//! detail follows.
//!
//! Writes go straight to the host, without flyball's journal: scripts that use the tool undo its
//! changes themselves.

/// Returns the value of a result; on an error, returns that error from the function.
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
