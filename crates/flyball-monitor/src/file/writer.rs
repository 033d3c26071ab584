//! Writes a file of samples, a chunk at a time.

use std::io::{self, Write};

use super::{CHUNK, CHUNK_MAGIC, Header, LONGEST_CHUNK, MAGIC, VERSION, pack, packed};
use crate::{Facts, Layout, Sample};

/// Bytes of a chunk's head: magic, length of the content, count, first and last time, CRC of the
/// content, CRC of the head.
pub(super) const HEAD: usize = 4 + 4 + 4 + 8 + 8 + 4 + 4;

/// Writes samples of one layout.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    values: usize,
    waiting: Vec<Sample>,
    /// Bytes written by this writer.
    written: u64,
}

/// The header of a file of samples with this layout.
fn header(layout: &Layout, facts: Option<&Facts>) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(&Header { layout, facts }).map_err(io::Error::other)?;
    let content = packed(&text);
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((content.len() as u32).to_le_bytes());
    bytes.extend(crc32fast::hash(&content).to_le_bytes());
    bytes.extend(content);
    Ok(bytes)
}

impl<W: Write> Writer<W> {
    /// Writes the header of a new file.
    ///
    /// # Errors
    /// Writing to `out` failed.
    pub fn create(mut out: W, layout: &Layout, facts: Option<&Facts>) -> io::Result<Writer<W>> {
        let bytes = header(layout, facts)?;
        out.write_all(&bytes)?;
        Ok(Writer { written: bytes.len() as u64, ..Writer::append(out, layout) })
    }

    /// Continues a file that has a header and complete chunks of this layout.
    pub fn append(out: W, layout: &Layout) -> Writer<W> {
        Writer { out, values: layout.values(), waiting: Vec::with_capacity(CHUNK), written: 0 }
    }

    /// Returns the bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Adds a sample, and writes a chunk if it is full or old.
    ///
    /// # Errors
    /// Writing to `out` failed. The chunk may then be torn, and its samples are still pending.
    pub fn add(&mut self, sample: Sample) -> io::Result<()> {
        self.waiting.push(sample);
        let span = |first: &Sample, last: &Sample| last.at.saturating_sub(first.at);
        let is_old = match self.waiting.as_slice() {
            [first, .., last] => span(first, last) >= LONGEST_CHUNK,
            _ => false,
        };
        if self.waiting.len() >= CHUNK || is_old { self.flush() } else { Ok(()) }
    }

    /// Writes pending samples as a chunk: at the end, and before switching to the next file.
    pub fn flush(&mut self) -> io::Result<()> {
        let (Some(first), Some(last)) = (self.waiting.first(), self.waiting.last()) else { return Ok(()) };
        let content = pack(&self.waiting, self.values);
        let mut bytes = Vec::with_capacity(HEAD + content.len());
        bytes.extend(CHUNK_MAGIC);
        bytes.extend((content.len() as u32).to_le_bytes());
        bytes.extend((self.waiting.len() as u32).to_le_bytes());
        bytes.extend(first.wall.to_le_bytes());
        bytes.extend(last.wall.to_le_bytes());
        bytes.extend(crc32fast::hash(&content).to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes.extend(content);
        // One write, so that only a full disk or a crash of the machine can leave a part.
        self.out.write_all(&bytes)?;
        self.out.flush()?;
        self.written += bytes.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    /// Returns the output. Samples that were not flushed are lost.
    pub fn into_inner(self) -> W {
        self.out
    }
}
