//! The pages of one CPU in a trace.dat file, read in pieces.

use crate::{
    clock::Clock,
    error::{Malformed, TraceError},
};

use super::{compression::Compression, source::Source};

/// One ring buffer of a trace: the main one, or that of an instance.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Buffer {
    /// The instance's name; empty for the main buffer.
    pub name: String,
    /// The clock of the records' times.
    pub clock: Clock,
    /// Bytes of a page (or sub-buffer).
    pub page_size: u32,
    pub cpus: Vec<CpuData>,
}

/// Location of one CPU's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct CpuData {
    pub cpu: u32,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub size: u64,
    /// True if the pages are compressed.
    pub compressed: bool,
}

/// Maximum unpacked size of a compressed piece. trace-cmd writes far smaller ones.
const LARGEST_CHUNK: u32 = 64 << 20;

/// Reads one CPU's pages in order.
#[derive(Debug)]
pub struct CpuPages {
    source: Source,
    data: CpuData,
    page_size: usize,
    compression: Compression,
    /// Buffer; `stretch[used..]` has not been returned yet.
    stretch: Vec<u8>,
    used: usize,
    /// Offset in the file of the next read.
    at: u64,
    end: u64,
    /// Number of compressed pieces left; `None` until that number has been read.
    chunks: Option<u32>,
    /// Size of a read, if not compressed.
    ahead: usize,
}

impl CpuPages {
    pub(super) fn new(
        source: Source,
        data: CpuData,
        page_size: u32,
        compression: Compression,
        ahead: usize,
    ) -> CpuPages {
        let page_size = page_size as usize;
        CpuPages {
            at: data.offset,
            // A truncated file gives what it has. The size of compressed data excludes the number
            // of its pieces, so it does not tell where the data ends.
            end: if data.compressed {
                source.len()
            } else {
                data.offset.saturating_add(data.size).min(source.len())
            },
            source,
            data,
            page_size,
            compression,
            stretch: Vec::new(),
            used: 0,
            chunks: None,
            // Whole pages, so that no page is split between two reads.
            ahead: ahead.div_ceil(page_size).max(1) * page_size,
        }
    }

    pub fn cpu(&self) -> u32 {
        self.data.cpu
    }

    /// Offset in the file of the last returned page; for compressed data, of the end of its piece.
    pub fn place(&self) -> u64 {
        if self.data.compressed { self.at } else { self.at - (self.stretch.len() - self.used) as u64 }
    }

    fn damaged(&self, what: impl Into<String>) -> TraceError {
        let name = format!("{}, CPU {}", self.source.path().display(), self.data.cpu);
        TraceError::damaged(name, Malformed::new(self.at, what))
    }

    /// Moves the next page into `page`. Returns `false` after the last page.
    ///
    /// # Errors
    /// The file cannot be read or decompressed, or ends inside a page.
    pub fn next_page(&mut self, page: &mut Vec<u8>) -> Result<bool, TraceError> {
        if self.stretch.len() - self.used < self.page_size {
            // Less than a page remains, so this moves few bytes.
            self.stretch.drain(..self.used);
            self.used = 0;
            while self.stretch.len() < self.page_size {
                if !self.more()? {
                    if self.stretch.is_empty() {
                        let missing =
                            self.data.offset.saturating_add(self.data.size).saturating_sub(self.source.len());
                        if missing > 0 && self.data.size > 0 && !self.data.compressed {
                            // Report this once: the next call finds nothing missing and ends the
                            // CPU normally.
                            self.data.size = 0;
                            return Err(self.damaged(format!(
                                "the file ends {missing} bytes before this CPU's data does"
                            )));
                        }
                        return Ok(false);
                    }
                    let left = self.stretch.len();
                    self.stretch.clear();
                    return Err(self.damaged(format!("the last page is cut off after {left} bytes")));
                }
            }
        }
        page.clear();
        page.extend_from_slice(&self.stretch[self.used..self.used + self.page_size]);
        self.used += self.page_size;
        Ok(true)
    }

    /// Reads and appends the next piece. Returns `false` at the end.
    fn more(&mut self) -> Result<bool, TraceError> {
        if self.data.compressed {
            return self.more_compressed();
        }
        let count = (self.end.saturating_sub(self.at)).min(self.ahead as u64) as usize;
        if count == 0 {
            return Ok(false);
        }
        let have = self.stretch.len();
        self.stretch.resize(have + count, 0);
        // Fewer than `count` if the file shrinks meanwhile.
        let got = self.source.read_at(self.at, &mut self.stretch[have..])?;
        self.stretch.truncate(have + got);
        self.at += got as u64;
        Ok(got > 0)
    }

    fn more_compressed(&mut self) -> Result<bool, TraceError> {
        // First the number of pieces, then each piece with its packed and full size
        // (trace-cmd.dat.v7(5), compressed data).
        let mut cursor = self.source.cursor(self.at, Some(self.end));
        let left = match self.chunks {
            Some(left) => left,
            // A CPU without data does not have that number.
            None if self.data.size == 0 => 0,
            None => cursor.u32("the number of compressed stretches")?,
        };
        if left == 0 {
            self.chunks = Some(0);
            self.at = cursor.at();
            return Ok(false);
        }
        // If anything fails after this, the next call must not fail again.
        self.chunks = Some(0);
        let packed = cursor.u32("a stretch's compressed size")?;
        let size = cursor.u32("a stretch's size")?;
        if size > LARGEST_CHUNK {
            return Err(self.damaged(format!("a compressed stretch says that it holds {size} bytes")));
        }
        let bytes = cursor.bytes(u64::from(packed), "a compressed stretch")?;
        let unpacked = self
            .compression
            .unpack(&bytes, size as usize)
            .map_err(|error| self.damaged(error.to_string()))?;
        self.at = cursor.at();
        self.stretch.extend_from_slice(&unpacked);
        self.chunks = Some(left - 1);
        Ok(true)
    }
}
