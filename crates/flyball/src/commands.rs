//! One module per command: its arguments, and `run`.

pub mod apply;
pub mod compare;
pub mod complete;
pub mod completions;
pub mod doctor;
pub mod explain;
pub mod exporter;
pub mod get;
pub mod guardian;
pub mod guest;
pub mod hold;
#[cfg(feature = "bus")]
pub mod hold_bus;
pub mod intel_speed_select;
pub mod man;
pub mod parse;
pub mod plan;
pub mod profiles;
pub mod quiet;
pub mod record;
pub mod report;
pub mod restore;
#[cfg_attr(
    not(feature = "parquet"),
    allow(dead_code, reason = "the command line is the same in every build")
)]
pub mod results;
pub mod run;
pub mod save;
pub mod schema;
pub mod set;
pub mod show;
pub mod sim;
pub mod sst;
pub mod task;
pub mod top;
pub mod trace;
pub mod tracer_dropin;
pub mod tune;
pub mod verify;
pub mod why;
