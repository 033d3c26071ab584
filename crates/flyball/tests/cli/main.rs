//! Tests flyball's commands as a user runs them: on trees of plain files, on simulated and recorded
//! machines, and on traces.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod book;
#[cfg(feature = "bus")]
mod bus;
mod change;
mod confined;
mod doctor;
mod documents;
mod examples;
mod exporter;
mod faults;
mod fleet;
mod guest;
mod hold;
mod hostile;
mod house;
mod knobs;
mod measure;
mod odd;
mod old_kernels;
mod packages;
mod platform;
mod privileges;
mod profiles;
mod programs;
mod recorded;
mod results;
mod schemas;
mod screens;
mod shells;
mod simulated;
mod slurm;
mod speed_select;
mod speed_select_guide;
mod terminal;
mod top;
mod trace;
mod trace_files;
mod traces;
mod tune;
mod tune_input;
mod tune_truth;
mod turbo_order;
mod wake;
mod why;
