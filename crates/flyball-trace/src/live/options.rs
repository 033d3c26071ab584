//! Options and results of a recording.

use std::path::PathBuf;

use flyball_host::{CpuList, HostError, tracefs::Tracefs};

use crate::{error::TraceError, machine::Machine, record::Record, stats::CpuStats};

/// Called with the records of some pages, in the order of their time, while they are recorded.
/// Events that are passed through have their name and fields with them; the text is empty for all
/// others.
pub type LiveSink = Box<dyn FnMut(&[(Record, String)]) + Send>;

/// Options of a recording.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    /// Events: `group/event` or `group:event`, or `group` for all of a group.
    pub events: Vec<String>,
    /// CPUs to record on; all if not given.
    pub cpus: Option<CpuList>,
    /// Buffer of each CPU, KiB; 8 MiB, less on machines with little memory or many CPUs, if not
    /// given.
    pub buffer_kib: Option<u64>,
    /// Sub-buffer size, KiB, if the kernel can change it. If not given, 16 KiB if the kernel can do
    /// that, and the kernel's 4 KiB with a live sink, for which sub-buffers are taken before they
    /// are full.
    pub page_kib: Option<u32>,
    /// The trace clock; `mono`, which every program can read and which is the same on all CPUs, if
    /// not given.
    pub clock: Option<String>,
    /// Where the pages are kept until the recording ends: a directory on the disk that the file
    /// will be on.
    pub directory: PathBuf,
    /// The name of the program that writes the file, which the file carries.
    pub writer: String,
    /// Facts about the machine, to judge the trace elsewhere.
    pub machine: Option<Machine>,
    /// Distinguishes this recording from others of the machine, in the file.
    pub trace_id: u64,
}

impl CaptureOptions {
    /// The events that report a P-state driver's decisions, if this kernel has them.
    pub fn default_events(tracefs: &Tracefs) -> Vec<String> {
        // Asked of this kernel: enabling an event that it does not have would fail the recording.
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
    /// The kernel refused.
    #[error("{0}")]
    Host(#[from] HostError),
    /// The file could not be written.
    #[error("{0}")]
    Trace(#[from] TraceError),
    /// A recording is not possible here.
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
    /// Returns whether every record is accounted for: received and lost records add up to those
    /// that the kernel wrote.
    pub fn balanced(&self) -> bool {
        // `entries`: records that are still in the buffer, as the last ones of a CPU that went
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
    /// Records that were overwritten or refused before they could be read.
    pub lost: u64,
    /// Records that the kernel wrote: received and lost.
    pub written: u64,
    /// Bytes of pages.
    pub bytes: u64,
    /// Instances that an earlier, killed run had left, and that were removed.
    pub leftovers: Vec<String>,
    /// Each CPU with a buffer.
    pub cpus: Vec<CpuCapture>,
}
