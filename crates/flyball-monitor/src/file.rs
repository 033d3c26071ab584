//! Sample files: written as samples are taken, and readable from any moment on.
//!
//! A file is a header (the layout and the machine's facts) and chunks of up to [`CHUNK`] samples.
//! Each chunk has a head with its length, its times and its own CRC, so that a moment can be found
//! from the heads alone, and a content that another CRC covers. Files only grow. A process that is
//! killed leaves at most one torn chunk. The reader counts it, and the next writer cuts it off.

mod codec;
mod reader;
mod recorder;
mod writer;

use std::io::{self, Write as _};

use flyball_files::{ZstdReader, ZstdWriter, read_bounded};

pub use reader::{Lost, Recording};
pub use recorder::{RecordError, Recorder, Retention, shards};
pub use writer::Writer;

use crate::{Layout, Sample, layout::Scope};

/// Maximum samples of a chunk: what is lost at most if the process is killed.
pub const CHUNK: usize = 16;
/// A chunk is written after this long even if it has fewer samples, ns. At an interval of an hour,
/// 16 samples would take most of a day.
pub const LONGEST_CHUNK: u64 = 60_000_000_000;

/// The first bytes of a file. As in PNG, the newline and the zero reveal a transfer in text mode.
const MAGIC: [u8; 8] = *b"FLYTOP\n\0";
/// The format version that this code writes.
pub const VERSION: u32 = 1;
/// The first bytes of a chunk.
const CHUNK_MAGIC: [u8; 4] = *b"CHNK";

/// Maximum size of the header, both as stored and unpacked. For 576 CPUs these are 5 and 90 kB.
const MAX_HEADER: u64 = 4 << 20;
const MAX_LAYOUT: u64 = 32 << 20;
/// Maximum values of a sample: 8192 CPUs (the kernel's largest NR_CPUS) with 60 fields.
pub const MAX_VALUES: usize = 500_000;
/// Maximum chunks of a recording, over all its files: two years at a sample per second.
pub const MAX_CHUNKS: usize = 4_000_000;
/// How far to search for the next chunk after damage. Longer than any chunk of a real machine.
const MAX_SEARCHED: u64 = 64 << 20;

/// Header of a file: the layout's keys, and the facts next to them.
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
    /// The file does not begin like a recording.
    #[error("it is not a recording of 'flyball top --record' (at byte 0)")]
    NotOne,
    /// The file has a later version of the format.
    #[error("it has format {0}, and this flyball reads format {VERSION} (at byte 8)")]
    Newer(u32),
    /// A damaged header or chunk.
    #[error("{what} (at byte {offset})")]
    Damaged { offset: u64, what: &'static str },
    /// The file has more than a recording may have.
    #[error("{what} than a recording may have (at byte {offset}); docs/limits.md has the bounds")]
    TooLarge { offset: u64, what: &'static str },
    /// The file has no complete chunk.
    #[error("it holds no samples")]
    Empty,
}

/// Packs samples of `values` values each into the content of a chunk.
pub(crate) fn pack(samples: &[Sample], values: usize) -> Vec<u8> {
    packed(&codec::encode(samples, values))
}

/// Unpacks a chunk's content. `None` if it does not have exactly `count` samples.
pub(crate) fn unpack(content: &[u8], count: usize, values: usize) -> Option<Vec<Sample>> {
    let most = (values as u64 + codec::LEADING as u64) * CHUNK as u64 * codec::MAX_NUMBER;
    let bytes = read_bounded(ZstdReader::new(content), most).ok()?;
    codec::decode(&bytes, count, values)
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut writer = ZstdWriter::new(Vec::with_capacity(bytes.len() / 2));
    // Writing to a vector cannot fail.
    let _ = writer.write_all(bytes);
    writer.finish().unwrap_or_default()
}

/// Returns whether samples can have this layout, which comes from a file.
fn check(layout: &Layout) -> bool {
    // Counts without multiplying lengths that the file chose: the product could overflow.
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
