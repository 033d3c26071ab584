//! A file that may become large. What goes beyond some megabytes is written past the page cache, in large pieces:
//! nobody reads so long a file out of memory, and a new page of the page cache costs more than the row on it.

use std::{
    fs::File,
    io::{self, Write},
    time::Instant,
};

use crate::pace::Pace;

/// Bytes that are written at once, past the page cache a request to the disk.
const BLOCK: usize = 512 * 1024;
/// Bytes behind a block for what crosses its end.
const SLACK: usize = 4096;
/// Bytes that the page cache gets.
const CACHED: u64 = 16 << 20;

/// The file, and what is not written yet.
#[derive(Debug)]
pub(super) struct Large {
    file: File,
    memory: Memory,
    have: usize,
    written: u64,
    direct: bool,
    pace: Pace,
}

impl Large {
    pub(super) fn new(file: File) -> Large {
        let memory = Memory::new(BLOCK + SLACK);
        Large { file, memory, have: 0, written: 0, direct: false, pace: Pace::new() }
    }

    /// Adds some bytes, fewer than [`SLACK`], to a block that is not full. Answers where they are in it.
    #[inline]
    pub(super) fn add(&mut self, bytes: &[u8]) -> usize {
        let place = self.have;
        self.have += bytes.len();
        self.memory.bytes()[place..self.have].copy_from_slice(bytes);
        place
    }

    /// Whether there is a block to write.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.have >= BLOCK
    }

    /// What is not written yet.
    pub(super) fn block(&mut self) -> &[u8] {
        &self.memory.bytes()[..self.have]
    }

    /// Writes the block if it is full; what crosses its end is the next one's beginning.
    pub(super) fn write(&mut self) -> io::Result<()> {
        if !self.is_full() {
            return Ok(());
        }
        self.flush(BLOCK)?;
        self.memory.bytes().copy_within(BLOCK..BLOCK + self.have, 0);
        Ok(())
    }

    /// Writes the first `length` bytes. But for the last time, that is a whole block.
    fn flush(&mut self, length: usize) -> io::Result<()> {
        let start = Instant::now();
        match self.file.write_all(&self.memory.bytes()[..length]) {
            // A file system that takes the flag and then wants larger multiples has written nothing.
            Err(error) if self.direct && error.kind() == io::ErrorKind::InvalidInput => {
                self.through_the_cache()?;
                self.file.write_all(&self.memory.bytes()[..length])?;
            }
            other => other?,
        }
        self.written += length as u64;
        self.have -= length;
        if self.direct && !self.pace.keeps_up(start.elapsed()) {
            self.through_the_cache()?;
        } else if self.written == CACHED && set_direct(&self.file, true).is_ok() {
            (self.direct, self.pace) = (true, Pace::new());
        }
        Ok(())
    }

    fn through_the_cache(&mut self) -> io::Result<()> {
        self.direct = false;
        set_direct(&self.file, false)
    }

    /// Writes the rest.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if self.direct {
            self.through_the_cache()?;
        }
        self.flush(self.have)
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
        for length in [0u64, 5, BLOCK as u64, CACHED, CACHED + 3 * BLOCK as u64 + 777] {
            let path = folder.path().join("large");
            let mut large = Large::new(File::create(&path).unwrap());
            let mut wanted = Vec::with_capacity(length as usize);
            let mut row = 0u64;
            while (wanted.len() as u64) < length {
                let left = (length - wanted.len() as u64).min(100 + row % 50) as usize;
                let bytes = row.to_string().repeat(150);
                let bytes = &bytes.as_bytes()[..left];
                let place = large.add(bytes);
                assert_eq!(&large.block()[place..], bytes);
                large.write().unwrap();
                wanted.extend_from_slice(bytes);
                row += 1;
            }
            large.finish().unwrap();
            assert!(std::fs::read(&path).unwrap() == wanted, "{length}");
        }
    }
}
