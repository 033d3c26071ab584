//! A file that may become large. What goes beyond some megabytes is written past the page cache, in large pieces:
//! nobody reads so long a file out of memory, and a new page of the page cache costs more than the row on it.

use std::{
    fs::File,
    io::{self, Write},
    time::Instant,
};

use crate::pace::Pace;

/// Bytes that are written at once through the page cache. Larger pieces cost more, not less: they leave the
/// second-level cache.
const PIECE: usize = 64 * 1024;
/// The same past the page cache, where each write is a request to the disk.
const DIRECT_PIECE: usize = 512 * 1024;
/// Bytes that the page cache gets.
const CACHED: u64 = 16 << 20;

/// The file, and what is not written yet.
#[derive(Debug)]
pub(super) struct Large {
    file: File,
    memory: Memory,
    have: usize,
    piece: usize,
    written: u64,
    direct: bool,
    pace: Pace,
}

impl Large {
    pub(super) fn new(file: File) -> Large {
        let memory = Memory::new(DIRECT_PIECE);
        Large { file, memory, have: 0, piece: PIECE, written: 0, direct: false, pace: Pace::new() }
    }

    /// Adds some bytes, fewer than a piece.
    #[inline]
    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = self.piece - self.have;
        if bytes.len() < room {
            self.memory.bytes()[self.have..self.have + bytes.len()].copy_from_slice(bytes);
            self.have += bytes.len();
            return Ok(());
        }
        let (now, later) = bytes.split_at(room);
        self.memory.bytes()[self.have..self.piece].copy_from_slice(now);
        self.have = self.piece;
        self.flush()?;
        self.memory.bytes()[..later.len()].copy_from_slice(later);
        self.have = later.len();
        Ok(())
    }

    /// Writes what is there. But for the last time, that is a whole piece.
    fn flush(&mut self) -> io::Result<()> {
        let start = Instant::now();
        let bytes = &self.memory.bytes()[..self.have];
        match self.file.write_all(bytes) {
            // A file system that takes the flag and then wants larger multiples has written nothing.
            Err(error) if self.direct && error.kind() == io::ErrorKind::InvalidInput => {
                self.through_the_cache()?;
                self.file.write_all(&self.memory.bytes()[..self.have])?;
            }
            other => other?,
        }
        self.written += self.have as u64;
        self.have = 0;
        if self.direct && !self.pace.keeps_up(start.elapsed()) {
            self.through_the_cache()?;
        } else if self.written == CACHED && set_direct(&self.file, true).is_ok() {
            (self.direct, self.piece, self.pace) = (true, DIRECT_PIECE, Pace::new());
        }
        Ok(())
    }

    fn through_the_cache(&mut self) -> io::Result<()> {
        (self.direct, self.piece) = (false, PIECE);
        set_direct(&self.file, false)
    }

    /// Writes the rest.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if self.direct {
            self.through_the_cache()?;
        }
        self.flush()
    }
}

#[cfg(feature = "live")]
use flyball_host::spool::{Aligned as Memory, set_direct};

/// Without the crate that makes system calls there is only the page cache.
#[cfg(not(feature = "live"))]
fn set_direct(_: &File, _: bool) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(feature = "live"))]
#[derive(Debug)]
struct Memory(Vec<u8>);

#[cfg(not(feature = "live"))]
impl Memory {
    fn new(length: usize) -> Memory {
        Memory(vec![0; length])
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for length in [0u64, 5, PIECE as u64, CACHED, CACHED + 3 * DIRECT_PIECE as u64 + 777] {
            let path = folder.path().join("large");
            let mut large = Large::new(File::create(&path).unwrap());
            let mut wanted = Vec::with_capacity(length as usize);
            let mut row = 0u64;
            while (wanted.len() as u64) < length {
                let left = (length - wanted.len() as u64).min(100 + row % 50) as usize;
                let bytes = row.to_string().repeat(150);
                large.add(&bytes.as_bytes()[..left]).unwrap();
                wanted.extend_from_slice(&bytes.as_bytes()[..left]);
                row += 1;
            }
            large.finish().unwrap();
            assert!(std::fs::read(&path).unwrap() == wanted, "{length}");
        }
    }
}
