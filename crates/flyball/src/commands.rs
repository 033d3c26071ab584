//! One module per command: its arguments, and `run`.

pub mod apply;
pub mod compare;
pub mod completions;
pub mod doctor;
pub mod explain;
pub mod get;
pub mod guardian;
pub mod guest;
pub mod intel_speed_select;
pub mod man;
pub mod plan;
pub mod quiet;
pub mod record;
pub mod report;
pub mod restore;
pub mod run;
pub mod save;
pub mod set;
pub mod show;
pub mod sim;
pub mod sst;
pub mod task;
pub mod trace;
pub mod verify;
