//! Splits the rows of a block into the CPUs' files.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use flyball_files::Replacement;

use crate::error::TraceError;

/// Maximum number of open files. By default a process may have about a thousand (RLIMIT_NOFILE is
/// 1024).
const OPEN: usize = 512;

/// Bytes of a CPU's rows to collect before writing: whole pages of the page cache, so that none is
/// written twice.
const KEPT: usize = 16 * 1024;

/// Unwritten rows of one CPU.
#[derive(Debug, Default)]
struct CpuRows {
    rows: Vec<u8>,
    /// The CPU's file, once it has one.
    replacement: Option<Replacement>,
    /// The replacement's open file, for the first [`OPEN`] CPUs.
    file: Option<File>,
}

/// A row's CPU and its offset in the block.
#[derive(Debug, Clone, Copy, Default)]
struct Piece {
    cpu: u32,
    start: u32,
}

/// All CPUs' files.
#[derive(Debug)]
pub(super) struct SplitFiles {
    directory: PathBuf,
    cpus: Vec<CpuRows>,
    /// The block's rows in the order of time.
    pieces: Vec<Piece>,
    /// The block's rows by CPU (start and end). `starts` has the index of each CPU's first row.
    /// Both keep their memory between blocks.
    sorted: Vec<(u32, u32)>,
    starts: Vec<u32>,
    open: usize,
}

impl SplitFiles {
    pub(super) fn new(directory: &Path) -> SplitFiles {
        SplitFiles {
            directory: directory.to_owned(),
            cpus: Vec::new(),
            pieces: Vec::new(),
            sorted: Vec::new(),
            starts: Vec::new(),
            open: 0,
        }
    }

    /// Records that a row of `cpu` starts at this offset of the block. It ends where the next one
    /// starts.
    #[inline]
    pub(super) fn note(&mut self, cpu: u32, start: usize) {
        // A block is far below 4 GiB.
        self.pieces.push(Piece { cpu, start: start as u32 });
    }

    /// Moves the noted rows to their CPUs.
    pub(super) fn take(&mut self, block: &[u8], header: &str) -> Result<(), TraceError> {
        let Some(most) = self.pieces.iter().map(|piece| piece.cpu as usize).max() else { return Ok(()) };
        if self.cpus.len() <= most {
            self.cpus.resize_with(most + 1, CpuRows::default);
        }
        self.starts.clear();
        self.starts.resize(self.cpus.len() + 1, 0);
        for piece in &self.pieces {
            self.starts[piece.cpu as usize + 1] += 1;
        }
        for cpu in 1..self.starts.len() {
            self.starts[cpu] += self.starts[cpu - 1];
        }
        // A counting sort: two passes over some thousand small entries, which keep rows in
        // chronological order.
        self.sorted.resize(self.pieces.len(), (0, 0));
        for (at, piece) in self.pieces.iter().enumerate() {
            let end = self.pieces.get(at + 1).map_or(block.len() as u32, |next| next.start);
            let place = &mut self.starts[piece.cpu as usize];
            self.sorted[*place as usize] = (piece.start, end);
            *place += 1;
        }
        self.pieces.clear();
        // Each start has become the end, which is the next CPU's start.
        let mut first = 0;
        for cpu in 0..self.cpus.len() {
            let end = self.starts[cpu] as usize;
            if first < end {
                self.add(cpu, block, first..end, header)?;
            }
            first = end;
        }
        Ok(())
    }

    fn add(
        &mut self,
        cpu: usize,
        block: &[u8],
        range: std::ops::Range<usize>,
        header: &str,
    ) -> Result<(), TraceError> {
        for at in range {
            let (start, end) = self.sorted[at];
            let rows = &mut self.cpus[cpu];
            // Only CPUs with rows get a buffer. CPUs without rows get no file either, unlike in the
            // tracer.
            if rows.rows.capacity() == 0 {
                // One row more than the limit (a row has at most 1024 bytes), so that it never
                // grows.
                rows.rows.reserve_exact(KEPT + 1024);
                rows.rows.extend_from_slice(header.as_bytes());
            }
            rows.rows.extend_from_slice(&block[start as usize..end as usize]);
            if rows.rows.len() >= KEPT {
                self.write(cpu, KEPT)?;
            }
        }
        Ok(())
    }

    /// Writes the first `length` bytes of a CPU's rows.
    fn write(&mut self, cpu: usize, length: usize) -> Result<(), TraceError> {
        let name = || self.directory.join(format!("cpu{cpu:03}.csv"));
        let rows = &mut self.cpus[cpu];
        let bytes = &rows.rows[..length];
        let written = if let Some(file) = &mut rows.file {
            file.write_all(bytes)
        } else {
            let written = open(&name(), &mut rows.replacement)
                .and_then(|mut file| file.write_all(bytes).map(|()| file));
            written.map(|file| {
                // The first CPUs to write keep their files open, because they are likely to be the
                // busiest.
                if self.open < OPEN {
                    rows.file = Some(file);
                    self.open += 1;
                }
            })
        };
        written.map_err(|error| TraceError::io("write", name(), error))?;
        // The rest of a row that was cut at the page goes before the next row.
        let left = rows.rows.len() - length;
        rows.rows.copy_within(length.., 0);
        rows.rows.truncate(left);
        Ok(())
    }

    /// Writes the remaining rows.
    pub(super) fn finish(mut self) -> Result<(), TraceError> {
        for cpu in 0..self.cpus.len() {
            let left = self.cpus[cpu].rows.len();
            if left > 0 {
                self.write(cpu, left)?;
            }
        }
        for (cpu, rows) in self.cpus.iter_mut().enumerate() {
            if let Some(replacement) = rows.replacement.take() {
                let path = || self.directory.join(format!("cpu{cpu:03}.csv"));
                replacement.finish().map_err(|error| TraceError::io("write", path(), error))?;
            }
        }
        Ok(())
    }
}

/// Opens a CPU's file, either a new one or at its end.
fn open(path: &Path, replacement: &mut Option<Replacement>) -> io::Result<File> {
    if let Some(replacement) = replacement {
        return replacement.reopen();
    }
    let (file, new) = Replacement::create(path)?;
    *replacement = Some(new);
    Ok(file)
}
