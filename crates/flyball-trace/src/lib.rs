//! Turns ring-buffer bytes or trace text into the decisions of a P-state driver.
//!
//! The kernel reports every performance request in its ring buffer (`amd_cpu:amd_pstate_perf`,
//! `power:pstate_sample`, ...). This library reads that buffer in every form in which it leaves the
//! kernel: pages of `trace_pipe_raw` ([`Page`]), `trace.dat` files, and the text of `trace` and
//! `trace_pipe` ([`read_text`]). All of them become the same [`Record`]s.
//!
//! Layouts come only from the trace's own format files ([`EventFormat`]). No input makes this
//! library panic. It counts and locates what it cannot read, and never guesses.

mod clock;
mod comm;
pub mod csv;
pub mod dat;
mod decode;
mod detail;
pub mod diagnose;
mod disk_pace;
mod error;
mod event_names;
pub mod events;
mod format;
mod histogram;
pub mod html;
mod input;
pub mod live;
mod machine;
mod merge;
mod page;
#[cfg(feature = "parquet")]
pub mod parquet;
mod print;
mod record;
pub mod report;
mod scan;
pub mod series;
mod stats;
mod tasks;
mod text;

pub use clock::{Clock, Stamp, microseconds};
pub use comm::Comm;
pub use decode::Decoder;
pub use detail::{Detail, DetailSink};
pub use error::{Malformed, TraceError};
pub use event_names::{NameId, Names};
pub use events::{AmdEpp, AmdPerf, AmdReq2, AmdRequest, Event, IntelSample, Switch};
pub use flyball_host::isolation::Isolation;
pub use format::{EventFormat, Field, PageHeader, Shape};
pub use input::{RawDescription, RecordSink, Stored, Trace, TraceSummary, concerns, read_file};
pub use machine::Machine;
pub use merge::{BufferSummary, CpuCount, Readahead, merge};
pub use page::{Entries, Entry, Missed, Page, PageCursor};
pub use print::Line;
pub use record::{MAX_CPUS, Record};
pub use stats::CpuStats;
pub use tasks::Tasks;
pub use text::{LineParser, TextBatch, TextOptions, TextSummary, read_text};
