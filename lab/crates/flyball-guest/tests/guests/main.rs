//! Guests with real kernels on silicon in software: that they boot, follow it in time, and do no
//! harm.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod boots;
mod closed_loop;
mod common;
mod hostile_guest;
mod recorded;
