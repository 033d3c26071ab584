//! trace.dat, the file of trace-cmd and kernelshark: versions 6 (parts in a fixed order) and 7
//! (sections that an options list points at, which may be compressed).

mod buffer;
mod compression;
mod id;
mod metadata;
mod options;
mod source;
mod write;

pub use buffer::{Buffer, CpuData, CpuPages};
pub use id::MAGIC;
pub use metadata::TraceFile;
pub use source::Source;
pub use write::{CpuInput, DatVersion, Description, Head, save, write};
