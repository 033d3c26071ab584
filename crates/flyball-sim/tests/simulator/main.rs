//! The simulated kernel against recorded answers of real ones, and properties that hold on any
//! machine.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod amd_pstate;
mod cppc;
mod idle;
mod isst;
mod old_kernels;
mod properties;
mod recorded;
mod replay;
mod source;
mod traces;
