//! What is run under each arm: anything that does a piece of work on a machine and reports how well
//! it went.
//!
//! A workload reads no meter and sets no knob. It calls back now and then while it works, so that
//! the meters can be read meanwhile (counters wrap, frequencies change) without a second thread.
//! [`Command`] runs what [`Host::spawn`] starts: a program, or its model on a simulated machine.

mod command;
pub mod preset;
pub mod suite;
pub mod task;
mod words;

pub use command::Command;
pub use preset::Output;
pub use words::{SplitError, quote, split};

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flyball_host::{Host, Usage};

use crate::{arm::Arm, counters::Counts, metric::Metric};

/// A request to stop, shared with signal handlers.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Wraps a flag that is set elsewhere.
    pub fn watching(flag: Arc<AtomicBool>) -> Stop {
        Stop(flag)
    }

    /// Asks everything to stop.
    pub fn ask(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Forgets a request to stop. Returns whether there was one.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }

    /// Whether a stop was requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// What one run of a workload yielded.
#[derive(Debug, Clone, Default, PartialEq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
#[schemars(rename = "RunOutcome")]
pub struct Outcome {
    /// The value of the workload's metric; `None` if its output did not have it.
    pub value: Option<f64>,
    /// Time from start to end on the machine's clock, in seconds.
    pub seconds: f64,
    /// Seconds of the work that a rate refers to, if that is not the whole time (tbench counts one
    /// second less than its limit).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_seconds: Option<f64>,
    /// Resource usage by the kernel's accounting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Upper bound of its peak memory in KiB, if `usage` does not know it: this process's own peak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_at_most_kib: Option<u64>,
    /// The processor's counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// Whether it was ended because it took too long, which is then its failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// `exit 1`, `signal 11`: how it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Its exit code, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// SHA-256 of its standard output, if outputs are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_digest: Option<String>,
    /// Processes of its group that remained after its end, and were killed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<String>,
    /// Bytes that it printed, on both streams.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub printed_bytes: u64,
    /// The value of each case of a suite.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cases: BTreeMap<String, f64>,
    /// The end of what it printed, kept so that values can be read from it again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Why a workload could not be run.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The program could not be started.
    #[error("cannot start {program}: {cause}{hint}")]
    Start {
        program: String,
        /// The system's error.
        cause: std::io::Error,
        /// What to do about it, with a leading separator, or nothing.
        hint: String,
    },
    /// A file that it needs failed.
    #[error("cannot {what}: {cause}")]
    Io {
        /// The action that failed.
        what: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// A stop was requested. What ran has been stopped.
    #[error("stopped")]
    Stopped,
}

/// A piece of work.
pub trait Workload {
    /// How to name it in reports: the command line, or the name of a known workload.
    fn name(&self) -> String;

    /// The metric that it yields.
    fn metric(&self) -> Metric;

    /// What its output is searched for, for a message.
    fn sought(&self) -> String {
        format!("{} (--metric time counts wall time)", self.metric().name)
    }

    /// Makes later runs rounds of `arm`: its program replaces the workload's. `padding` is the
    /// number of bytes by which the environment grows, which moves the stack.
    fn begin_arm(&mut self, _arm: &Arm, _padding: usize) {}

    /// Ends later runs after this time, if the workload can do that.
    fn limit(&mut self, _time: Option<Duration>) {}

    /// Does the work once on `host`, and calls `tick` about every `interval` of the machine's time
    /// meanwhile.
    ///
    /// # Errors
    /// [`WorkloadError::Stopped`] if `stop` was raised; otherwise why it could not run. Work that
    /// ran and failed is an [`Outcome`] with its failure.
    fn run(
        &mut self,
        host: &dyn Host,
        interval: Duration,
        tick: &mut dyn FnMut(),
        stop: &Stop,
    ) -> Result<Outcome, WorkloadError>;
}
