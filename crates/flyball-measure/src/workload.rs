//! What is run under each arm: anything that does a piece of work on a machine and says how well it
//! went.
//!
//! A workload watches no meter and sets no knob; it calls back now and then while it works, so that
//! the meters can be read in the middle (counters wrap, frequencies move) without a second thread.
//! [`Command`] is the one that runs what [`Host::spawn`] starts: a program, or the model of one on
//! a machine in software.

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
    /// The value of the workload's metric; `None` where its output did not have it.
    pub value: Option<f64>,
    /// Time from start to end on the machine's clock, in seconds.
    pub seconds: f64,
    /// Seconds of the work that a rate refers to, where that is not the whole time (tbench counts
    /// one second less than its limit).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_seconds: Option<f64>,
    /// What the kernel accounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What its peak memory in KiB is at most, if `usage` does not know it: this process's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_at_most_kib: Option<u64>,
    /// What the processor's counters say of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// Whether it was ended because it took too long, which is how it failed then.
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
    /// Processes of its group that were still there after its end, and were killed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<String>,
    /// Bytes that it printed, on both streams.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub printed_bytes: u64,
    /// What a suite of benchmarks says of each of its cases.
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
        /// The system's answer.
        cause: std::io::Error,
        /// What to do about it, with a leading separator, or nothing.
        hint: String,
    },
    /// A file around it failed.
    #[error("cannot {what}: {cause}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
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

    /// What it yields.
    fn metric(&self) -> Metric;

    /// What its output was searched for, for a message.
    fn sought(&self) -> String {
        format!("{} (--metric time counts wall time)", self.metric().name)
    }

    /// Later runs are rounds of `arm`: its program replaces the workload's. `padding` is a number
    /// of bytes that the environment grows by, which moves the stack.
    fn begin_arm(&mut self, _arm: &Arm, _padding: usize) {}

    /// Ends later runs after this time, where that can be done.
    fn limit(&mut self, _time: Option<Duration>) {}

    /// Does it once on `host`, calling `tick` about every `interval` of the machine's time while it
    /// lasts.
    ///
    /// # Errors
    /// [`WorkloadError::Stopped`] after `stop` was raised; else why it could not run. Work that ran
    /// and failed is an [`Outcome`] with its failure.
    fn run(
        &mut self,
        host: &dyn Host,
        interval: Duration,
        tick: &mut dyn FnMut(),
        stop: &Stop,
    ) -> Result<Outcome, WorkloadError>;
}
