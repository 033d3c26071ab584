//! Tests that use the live machine: quiet, live traces, and programs under a served machine. Tests
//! are skipped with a message if the machine lacks what they need.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod pages;
mod power_command;
mod quiet;
#[cfg(feature = "serve")]
mod sim_run;
#[cfg(feature = "serve")]
mod speed_select_sim;
mod sudo;
mod trace_record;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for exclusive use of the machine, for a test that changes it or is disturbed by one that
/// does.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether simulated machines can be served here.
#[cfg(feature = "serve")]
fn has_fuse() -> bool {
    let there = std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !there {
        flyball_testing::skip(1, "test of served machines", "/dev/fuse cannot be opened");
    }
    there
}
