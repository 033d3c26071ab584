//! Records a machine's trace in its own instance, into a trace.dat file, and accounts for every
//! record.
//!
//! Reader threads, each for some CPUs, sleep until a buffer is a quarter full. They take its pages,
//! count their records and write them, bypassing the page cache, into a part of an unnamed sparse
//! file. [`Capture::stop`] removes the holes, writes the header at the front, and gives the file
//! its name: no page is copied a second time. If the file system cannot do that, each CPU has its
//! own file, and they are copied together. A killed process leaves an instance, which the next
//! capture removes, and no files.
//!
//! A simulated machine's time stands still while its buffers are read. There [`Capture::poll`]
//! takes the pages, on the thread that advances the time: with reader threads, lost records and the
//! ends of pages would depend on the host's scheduler.

mod capture;
mod collect;
mod describe;
mod options;

pub use capture::{Capture, default_buffer};
pub use options::{CaptureError, CaptureOptions, CaptureSummary, CpuCapture, LiveSink};
