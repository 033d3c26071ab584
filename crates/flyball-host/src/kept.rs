//! Files that stay open between readings. A sampler reads thousands of attributes each second, and
//! opening a file costs ten times as much as reading it.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::process::Resource;

use crate::{Errno, HostError, Op};

/// A file that stays open.
pub trait KeptFile: Send {
    /// Reads at `offset` (0 for an attribute, the register's number for `/dev/cpu/N/msr`). Returns
    /// the number of bytes.
    ///
    /// # Errors
    /// The errno of pread(2): `ENODEV`, `ENXIO` or `EIO` if its CPU went offline.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, HostError>;
}

#[derive(Debug)]
pub(crate) struct LiveFile {
    file: OwnedFd,
    path: String,
}

/// Number of descriptors reserved for the rest of the program.
const SPARE: u64 = 64;

impl LiveFile {
    /// Keeps a file open; `None` if this process cannot have more open files.
    pub(crate) fn new(
        path: &str,
        open: impl Fn() -> Result<OwnedFd, HostError>,
    ) -> Result<Option<LiveFile>, HostError> {
        let mut opened = open();
        if !opened.as_ref().is_ok_and(fits) {
            // The soft limit is 1024 on most systems, because of select(2), and any process may
            // raise it.
            raise_limit();
            opened = open();
        }
        match opened {
            Ok(file) => Ok(fits(&file).then(|| LiveFile { file, path: path.to_owned() })),
            Err(error) if error.errno == Errno::MFILE => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The limit as last read. A sampler opens thousands of files, and reading the limit each time
/// costs half as much as opening.
static LIMIT: AtomicU64 = AtomicU64::new(0);

/// Returns whether enough descriptors remain after this one: the kernel assigns the lowest free
/// number.
fn fits(file: &OwnedFd) -> bool {
    let needed = (file.as_raw_fd() as u64).saturating_add(SPARE);
    if needed < LIMIT.load(Ordering::Relaxed) {
        return true;
    }
    let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    LIMIT.store(limit, Ordering::Relaxed);
    needed < limit
}

fn raise_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // If the kernel refuses, fewer files are kept open.
        let _ = rustix::process::setrlimit(
            Resource::Nofile,
            rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum },
        );
    }
}

impl KeptFile for LiveFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, HostError> {
        loop {
            match rustix::io::pread(&self.file, &mut *buffer, offset) {
                Err(rustix::io::Errno::INTR) => {}
                other => return other.map_err(|errno| HostError::new(Op::Read, self.path.clone(), errno)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Host, Live};

    #[test]
    fn a_file_is_read_again_and_again() {
        let file = Live::new().keep_open("/proc/stat").unwrap().unwrap();
        let mut buffer = [0; 64];
        for _ in 0..3 {
            let count = file.read_at(0, &mut buffer).unwrap();
            assert!(buffer[..count].starts_with(b"cpu "));
        }
        assert!(Live::new().keep_open("/proc/no-such-file").is_err());
    }
}
