//! One module per command: its arguments, and `run`.

pub(crate) mod apply;
pub(crate) mod compare;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod exporter;
pub(crate) mod get;
pub(crate) mod guardian;
pub(crate) mod guest;
pub(crate) mod hold;
#[cfg(feature = "bus")]
pub(crate) mod hold_bus;
pub(crate) mod intel_speed_select;
pub(crate) mod man;
pub(crate) mod parse;
pub(crate) mod plan;
pub(crate) mod profiles;
pub(crate) mod quiet;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod restore;
#[cfg_attr(
    not(feature = "parquet"),
    allow(dead_code, reason = "the command line is the same in every build")
)]
pub(crate) mod results;
pub(crate) mod run;
pub(crate) mod save;
pub(crate) mod schema;
pub(crate) mod set;
pub(crate) mod show;
pub(crate) mod sim;
pub(crate) mod sst;
pub(crate) mod task;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod tracer_dropin;
pub(crate) mod tune;
pub(crate) mod verify;
pub(crate) mod why;
