//! Samples in a file: written as they are taken, read from any moment.
//!
//! A file is a header (the layout, with the machine's facts) and chunks of up to [`CHUNK`] samples.
//! Each chunk has a head with its length, its times and a CRC of its own, so that a moment is found
//! by the heads alone, and a content whose CRC covers it. Files only grow: what a process that was
//! killed leaves behind is at most one torn chunk, which the reader counts and the next writer cuts
//! off.

mod codec;
mod reader;
mod recorder;
mod writer;

use std::io::{self, Write as _};

use flyball_files::{ZstdReader, ZstdWriter, read_bounded};

pub use reader::{Lost, Recording};
pub use recorder::{FileLimits, RecordError, Recorder, shards};
pub use writer::Writer;

use crate::{Layout, Sample, layout::Scope};

/// Samples of a chunk: what a process that is killed loses at most.
pub const CHUNK: usize = 16;
/// A chunk is written after this long even if it has fewer samples, ns: at an interval of an hour,
/// 16 are most of a day.
pub const LONGEST_CHUNK: u64 = 60_000_000_000;

/// The first bytes of a file. The newline and the zero show a transfer as text, as in PNG.
const MAGIC: [u8; 8] = *b"FLYTOP\n\0";
/// The format that is written.
pub const VERSION: u32 = 1;
/// The first bytes of a chunk.
const CHUNK_MAGIC: [u8; 4] = *b"CHNK";

/// Bytes of the header as it is stored and unpacked. That of 576 CPUs has 5 and 90 kB.
const MAX_HEADER: u64 = 4 << 20;
const MAX_LAYOUT: u64 = 32 << 20;
/// Values of a sample: 8192 CPUs (the kernel's largest NR_CPUS) with 60 fields.
pub const MAX_VALUES: usize = 500_000;
/// Chunks of a recording, over all its files: two years at a sample per second.
pub const MAX_CHUNKS: usize = 4_000_000;
/// How far a damaged place is searched for the next chunk: past the longest chunk that a real
/// machine has.
const MAX_SEARCHED: u64 = 64 << 20;

/// Header of a file: the layout, and beside its keys the limits that the settings impose.
#[derive(serde::Serialize, serde::Deserialize)]
struct Header<L, F> {
    #[serde(flatten)]
    layout: L,
    /// Absent in recordings of the first release.
    #[serde(default = "Option::default")]
    facts: Option<F>,
}

/// Errors in a recording.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read it at byte {offset}: {cause}")]
    Io { offset: u64, cause: io::Error },
    /// It does not begin as a recording does.
    #[error("it is not a recording of 'flyball top --record' (at byte 0)")]
    NotOne,
    /// A later version of the format.
    #[error("it has format {0}, and this flyball reads format {VERSION} (at byte 8)")]
    Newer(u32),
    /// A damaged header or chunk.
    #[error("{what} (at byte {offset})")]
    Damaged { offset: u64, what: &'static str },
    /// More than a recording may have.
    #[error("{what} than a recording may have (at byte {offset}); docs/limits.md has the bounds")]
    TooLarge { offset: u64, what: &'static str },
    /// It holds no whole chunk.
    #[error("it holds no samples")]
    Empty,
}

/// Packs samples of `values` values each as the content of a chunk.
pub(crate) fn pack(samples: &[Sample], values: usize) -> Vec<u8> {
    packed(&codec::encode(samples, values))
}

/// The samples of a chunk's content; `None` if it is not that of `count` samples.
pub(crate) fn unpack(content: &[u8], count: usize, values: usize) -> Option<Vec<Sample>> {
    let most = (values as u64 + codec::LEADING as u64) * CHUNK as u64 * codec::MAX_NUMBER;
    let bytes = read_bounded(ZstdReader::new(content), most).ok()?;
    codec::decode(&bytes, count, values)
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut writer = ZstdWriter::new(Vec::with_capacity(bytes.len() / 2));
    // A vector takes everything.
    let _ = writer.write_all(bytes);
    writer.finish().unwrap_or_default()
}

/// Returns whether a layout from a file is one that samples can have.
fn check(layout: &Layout) -> bool {
    // Counted without multiplying lengths that the file chose.
    let instances = |scope| match scope {
        Scope::Cpu => layout.cpus.len(),
        Scope::Package => layout.packages.len(),
        Scope::Machine => 1,
    };
    let mut values = 0usize;
    for field in &layout.fields {
        values = values.saturating_add(instances(field.scope));
        if values > MAX_VALUES || field.wraps_after > 64 {
            return false;
        }
    }
    let ordered = layout.cpus.windows(2).all(|pair| pair[0].number < pair[1].number);
    ordered && layout.cpus.len() <= MAX_VALUES && layout.packages.len() <= layout.cpus.len().max(1)
}

#[cfg(test)]
pub(crate) mod tests;
