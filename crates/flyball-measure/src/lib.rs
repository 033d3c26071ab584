//! Run workloads in a fair order, meter energy, show what differs and with which confidence.
//!
//! The parts, in the order of a comparison: [`Arm`]s are the settings to compare; a [`Schedule`]
//! decides what runs when; a [`Workload`] is what runs; [`Meters`] are read around it; [`conduct`]
//! brings them together and hands each round to a [`RunDirectory`], which keeps raw readings only;
//! [`analyse`] computes a [`Report`] from them, as a pure function. [`watch`] finds what disturbed
//! a run, [`shifts`] where a [`series`] of runs changed and what changed with it. [`fleet`]
//! combines the run directories of many machines. Settings are applied and restored by the
//! implementation of [`Settings`]; this crate parses the settings of arms and writes none.

mod analyse;
mod arm;
mod conduct;
mod counters;
pub mod fleet;
mod hooks;
mod meter;
mod metric;
mod numbers;
mod program;
pub mod render;
mod run_directory;
mod schedule;
pub mod selftest;
pub mod series;
mod settings;
pub mod shifts;
mod speed;
pub mod stats;
pub mod watch;
mod workload;

pub use analyse::{
    ArmReport, CaseReport, Comparison, Correction, Drift, EQUIVALENT, GateAnswer, GateVerdict, Grades,
    LeftOut, Limit, LimitError, NoInterval, Point, ProgramEffect, Quantity, Report, Steadiness, Summary,
    Verdict, analyse, disturbance, gate, has_logarithm, judge, odd_rounds, step, with_step,
};
pub use arm::{Arm, ArmError, ArmSetting, Meaning};
pub use conduct::{Blocks, Conductor, End, Event, MeasureError, RoundTracer, TracerError, last_lines};
pub use counters::Counts;
pub use hooks::HookRunner;
pub use meter::{
    Domain, Effective, EnergySource, Exits, MeterList, Meters, PowerCommand, PowerCommandError, PowerFault,
    Readings, Recording, Series, WakeNote,
};
pub use metric::{Better, Metric};
pub use program::{Hook, Hooks, Program, ProgramFile, Server};
pub use run_directory::{
    BackgroundNote, BisectNote, Boot, ContentFault, ExperimentNote, FORMAT, MachineNote, Manifest, QuietNote,
    RecordError, Round, RunDirectory, Sampled, SystemNote, TraceNote, VERSION, WorkloadNote,
};
pub use schedule::{Length, Schedule, USUAL_ROUNDS};
pub use settings::{RefusedArm, Settings, SettingsError, SettingsSnapshot, UserKnobError};
pub use speed::{RoundSpeed, SpeedLoss, SpeedNote};
pub use workload::{
    Command, Outcome, Output, SplitError, Stop, Workload, WorkloadError, preset, quote, split, suite, task,
};
