//! What touches the machine that runs the tests: quiet, live traces, and programs under a served machine. Where the
//! machine lacks what a test needs, the test is skipped and says so.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod quiet;
#[cfg(feature = "serve")]
mod sim_run;
#[cfg(feature = "serve")]
mod speed_select_sim;
mod trace_record;
