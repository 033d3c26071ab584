//! Random access to the bytes of a file or of memory, and a cursor that never reads past the end or
//! trusts a size beyond it.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::error::{Malformed, TraceError};

/// The bytes of a trace.dat. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Source {
    bytes: Bytes,
    length: u64,
    path: Arc<PathBuf>,
}

#[derive(Debug, Clone)]
enum Bytes {
    File(Arc<File>),
    Memory(Arc<[u8]>),
}

impl Source {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// The file cannot be opened, or has no size (a pipe).
    pub fn open(path: &Path) -> Result<Source, TraceError> {
        let file = File::open(path).map_err(|error| TraceError::io("open", path, error))?;
        Source::file(file, path)
    }

    /// Uses an open file, called `path` in errors.
    ///
    /// # Errors
    /// The size of the file cannot be determined.
    pub fn file(file: File, path: &Path) -> Result<Source, TraceError> {
        let length = file.metadata().map_err(|error| TraceError::io("read", path, error))?.len();
        Ok(Source { bytes: Bytes::File(Arc::new(file)), length, path: Arc::new(path.to_owned()) })
    }

    pub fn memory(bytes: impl Into<Arc<[u8]>>) -> Source {
        let bytes = bytes.into();
        Source { length: bytes.len() as u64, bytes: Bytes::Memory(bytes), path: Arc::new("(memory)".into()) }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the path that names the bytes in errors.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TraceError> {
        match &self.bytes {
            Bytes::Memory(bytes) => {
                let rest =
                    usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                Ok(count)
            }
            Bytes::File(file) => {
                let mut got = 0;
                while got < buffer.len() {
                    match file.read_at(&mut buffer[got..], offset + got as u64) {
                        // The file was truncated after it was opened; the caller reports where it
                        // ends.
                        Ok(0) => break,
                        Ok(count) => got += count,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(TraceError::io("read", self.path.as_path(), error)),
                    }
                }
                Ok(got)
            }
        }
    }

    /// A cursor over the bytes from `offset` to `end`, or to the end of the source.
    pub(crate) fn cursor(&self, offset: u64, end: Option<u64>) -> Cursor {
        let end = end.unwrap_or(u64::MAX).min(self.length);
        // An offset from the file may be beyond its end; then nothing is left to read.
        Cursor { source: self.clone(), at: offset.min(end), end, window: Vec::new(), window_at: 0 }
    }
}

/// Reads forward in a part of a [`Source`].
#[derive(Debug, Clone)]
pub(crate) struct Cursor {
    source: Source,
    at: u64,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
}

const WINDOW: usize = 16 * 1024;

impl Cursor {
    /// Offset in the source.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn left(&self) -> u64 {
        self.end - self.at
    }

    /// Creates an error at the current offset.
    pub(crate) fn error(&self, what: impl Into<String>) -> TraceError {
        TraceError::damaged(self.source.path().display().to_string(), Malformed::new(self.at, what))
    }

    /// Returns the next `count` bytes. `what` names them in the error.
    pub(crate) fn bytes(&mut self, count: u64, what: &str) -> Result<Vec<u8>, TraceError> {
        if count > self.left() {
            return Err(self.error(format!(
                "{what} should take {count} bytes, but the file ends after {}",
                self.left()
            )));
        }
        // The source has at least `count` bytes, so a wrong size costs no memory.
        let mut bytes = vec![0; count as usize];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8], what: &str) -> Result<(), TraceError> {
        if bytes.len() as u64 > self.left() {
            return Err(self.error(format!("{what} is cut off")));
        }
        // A larger piece would replace the window that the small reads around it need.
        if bytes.len() > WINDOW {
            let got = self.source.read_at(self.at, bytes)?;
            if got < bytes.len() {
                return Err(self.error(format!("{what} is cut off")));
            }
            self.at += bytes.len() as u64;
            return Ok(());
        }
        // `skip` may have moved past the window, or a large piece may have been read in between.
        let mut start = self.at.checked_sub(self.window_at).map_or(usize::MAX, |start| start as usize);
        if start.checked_add(bytes.len()).is_none_or(|end| end > self.window.len()) {
            // Metadata is read in words and short names; a system call for each would dominate the
            // time.
            self.window.resize(WINDOW.min(self.left() as usize), 0);
            let got = self.source.read_at(self.at, &mut self.window)?;
            self.window.truncate(got);
            self.window_at = self.at;
            start = 0;
        }
        let Some(found) = self.window.get(start..start + bytes.len()) else {
            return Err(self.error(format!("{what} is cut off")));
        };
        bytes.copy_from_slice(found);
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Skips `count` bytes.
    pub(crate) fn skip(&mut self, count: u64, what: &str) -> Result<(), TraceError> {
        if count > self.left() {
            return Err(self.error(format!(
                "{what} should take {count} bytes, but the file ends after {}",
                self.left()
            )));
        }
        self.at += count;
        Ok(())
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8, TraceError> {
        let mut bytes = [0];
        self.fill(&mut bytes, what)?;
        Ok(bytes[0])
    }

    pub(crate) fn u16(&mut self, what: &str) -> Result<u16, TraceError> {
        let mut bytes = [0; 2];
        self.fill(&mut bytes, what)?;
        Ok(u16::from_le_bytes(bytes))
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32, TraceError> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes, what)?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64, TraceError> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes, what)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Text up to a NUL, at most 4 KiB.
    pub(crate) fn text(&mut self, what: &str) -> Result<String, TraceError> {
        let mut bytes = Vec::new();
        loop {
            match self.u8(what)? {
                0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                // Otherwise text without a NUL would be read byte by byte to the end of the file.
                _ if bytes.len() >= 4096 => return Err(self.error(format!("{what} has no end"))),
                byte => bytes.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_stop_at_the_end() {
        let source = Source::memory(&b"\x01\x02\x00\x03\x00\x00\x00name\0rest"[..]);
        let mut cursor = source.cursor(0, None);
        assert_eq!(cursor.u8("a").unwrap(), 1);
        assert_eq!(cursor.u16("b").unwrap(), 2);
        assert_eq!(cursor.u32("c").unwrap(), 3);
        assert_eq!(cursor.text("d").unwrap(), "name");
        assert_eq!(cursor.left(), 4);
        let error = cursor.bytes(5, "the rest").unwrap_err().to_string();
        assert!(error.contains("at byte 12") && error.contains("the rest"), "{error}");
        assert!(cursor.text("e").is_err());
        assert!(source.cursor(100, None).u8("f").is_err());
        assert!(source.cursor(0, Some(1)).u16("g").is_err());
    }

    #[test]
    fn large_pieces_go_around_the_window() {
        let bytes: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
        let mut cursor = Source::memory(bytes.clone()).cursor(0, None);
        assert_eq!(cursor.u8("a").unwrap(), 0);
        assert_eq!(cursor.bytes(50_000, "b").unwrap(), bytes[1..50_001]);
        cursor.skip(9, "c").unwrap();
        assert_eq!(cursor.bytes(3, "d").unwrap(), bytes[50_010..50_013]);
    }
}
