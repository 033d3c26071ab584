//! Tests guests with real kernels on simulated silicon: they boot, follow its time, and do no harm.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod boots;
mod closed_loop;
mod common;
mod hostile_guest;
mod recorded;
