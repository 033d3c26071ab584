//! Simulated machines behind flyball's host interface: the adapter from flyball-sim, which does not
//! depend on flyball's other crates, to [`flyball_host::Host`].
//!
//! [`SimSetup`] describes the machine and its boot, [`SimHost`] is the machine, and a state file
//! keeps its state between processes. The binary opens them for `-M sim:NAME`; libraries use them
//! in their tests.

mod host;
mod setup;
mod state;

use std::path::PathBuf;

pub use self::{
    host::{PROGRAM, SimHost},
    setup::{FaultRule, SetupError, SimSetup, read_file, workload_model},
    state::{STATE_HELD, StateFault, try_state_file},
};

/// Why a simulated machine cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The setup names something that does not exist, or that this machine does not have.
    #[error("{0}")]
    Setup(String),
    /// The state file is damaged or belongs to another machine. It was not changed.
    #[error("state file {}: {fault}", path.display())]
    NotItsState { path: PathBuf, fault: StateFault },
    /// The state file cannot be read or written.
    #[error("state file {}: {error}", path.display())]
    State { path: PathBuf, error: std::io::Error },
    /// Another process uses the state file.
    #[error("state file {}: {holder} has had the machine for {seconds} s; wait for it to end, or use another file", path.display())]
    Busy { path: PathBuf, holder: String, seconds: u64 },
}
