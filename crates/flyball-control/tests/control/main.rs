//! Knobs, plans, transactions and the doctor, on machines that are artificial, recorded or fail on
//! purpose.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod doctor;
mod fake;
mod knobs_md;
mod model;
mod opens;
mod recorded_plans;
mod registers;
mod settings;
mod snapshots;
mod speed_select;
mod topology;
mod transaction;
