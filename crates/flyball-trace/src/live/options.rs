//! Options and results of a recording.

use std::path::PathBuf;

use flyball_host::{CpuList, HostError, tracefs::Tracefs};

use crate::{error::TraceError, machine::Machine, record::Record, stats::CpuStats};

/// Receives the records of some pages in chronological order during the recording. Passed-through
/// events come with their name and fields as text, which is empty for all others.
pub type LiveSink = Box<dyn FnMut(&[(Record, String)]) + Send>;

/// Options of a recording.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    /// Events: `group/event` or `group:event`, or `group` for the whole group.
    pub events: Vec<String>,
    /// CPUs to record on; all if `None`.
    pub cpus: Option<CpuList>,
    /// Buffer size per CPU, KiB. By default 8 MiB, or less on machines with little memory or many
    /// CPUs.
    pub buffer_kib: Option<u64>,
    /// The trace clock; `mono`, which every program can read and which is the same on all CPUs, if
    /// not given.
    pub clock: Option<String>,
    /// Directory for pages during the recording, on the disk of the final file.
    pub directory: PathBuf,
    /// Name of the recording program, stored in the file.
    pub writer: String,
    /// Facts about the machine, for judging the trace elsewhere.
    pub machine: Option<Machine>,
    /// Distinguishes this recording from the machine's other recordings.
    pub trace_id: u64,
}

impl CaptureOptions {
    /// The default events that this kernel has.
    pub fn default_events(tracefs: &Tracefs) -> Vec<String> {
        // Enabling an event that the kernel does not have would fail the recording.
        crate::events::by_default()
            .filter(|event| {
                event.split_once('/').is_some_and(|(group, event)| tracefs.has_event(group, event))
            })
            .collect()
    }
}

/// Why a capture failed.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The kernel returned an error.
    #[error("{0}")]
    Host(#[from] HostError),
    /// The file could not be written.
    #[error("{0}")]
    Trace(#[from] TraceError),
    /// Recording is not possible on this machine.
    #[error("{0}")]
    NotHere(String),
}

/// What one CPU recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct CpuCapture {
    pub cpu: u32,
    /// Records in the file, counted page by page.
    pub received: u64,
    /// Bytes of pages in the file.
    pub bytes: u64,
    /// The kernel's counts.
    pub stats: CpuStats,
}

impl CpuCapture {
    /// Returns whether every record is accounted for: received and lost records add up to the
    /// number that the kernel wrote.
    pub fn balanced(&self) -> bool {
        // `entries`: records that are still in the buffer, such as the last ones of a CPU that went
        // offline.
        self.received + self.stats.lost() + self.stats.entries == self.stats.written()
    }
}

/// What a capture recorded.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct CaptureSummary {
    pub file: PathBuf,
    /// Records in it.
    pub received: u64,
    /// Records that were overwritten or rejected before they could be read.
    pub lost: u64,
    /// Records that the kernel wrote: received and lost.
    pub written: u64,
    /// Bytes of pages.
    pub bytes: u64,
    /// Instances of an earlier, killed run that were removed.
    pub leftovers: Vec<String>,
    /// Each CPU with a buffer.
    pub cpus: Vec<CpuCapture>,
}
