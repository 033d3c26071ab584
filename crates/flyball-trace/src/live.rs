//! Recording a machine's trace: a separate instance, its pages into a trace.dat file, every record
//! accounted for.
//!
//! Reader threads, each for some CPUs, sleep until a buffer is a quarter full, take its pages,
//! count their records and write them, past the page cache, into a stretch of a nameless file with
//! holes. [`Capture::stop`] takes the holes out, writes the head in front, and gives the file its
//! name: no page is copied a second time. Where the file system cannot do that, each CPU has its
//! own file, and they are copied together. A process that is killed leaves an instance, which the
//! next capture removes, and no files.
//!
//! The time of a machine in software stands still while its buffers are read, so there the pages
//! are taken by [`Capture::poll`], on the thread that lets its time pass: reader threads would make
//! what is lost, and where pages end, depend on the host's scheduler.

mod capture;
mod collect;
mod describe;
mod options;

pub use capture::{Capture, default_buffer};
pub use options::{CaptureError, CaptureOptions, CaptureSummary, CpuCapture, LiveSink};
