//! trace.dat, the file format of trace-cmd and kernelshark: versions 6 (parts in a fixed order) and
//! 7 (sections, possibly compressed, that a list of options refers to).

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
pub use write::{CpuInput, Description, Head, save, write};
