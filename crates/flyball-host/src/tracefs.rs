//! tracefs: a trace instance of one's own, and the pages of its ring buffers.
//!
//! Nothing here touches the global trace buffer: other programs may be using it. An [`Instance`] is a directory below
//! `instances/` whose name carries the process that made it and when that process started, so that what a killed
//! process left behind can be told from what a living one uses, and removed ([`Tracefs::remove_leftovers`]).

mod instance;
mod mount;
mod reader;

pub use instance::{Instance, InstanceOptions};
pub use mount::Tracefs;
pub use reader::{PageReader, wait_for_pages};

use std::path::Path;

use crate::{Errno, HostError, Op};

fn failed(op: Op, path: &Path, error: &std::io::Error) -> HostError {
    HostError::new(op, path.display().to_string(), Errno::from(error))
}

/// Reads a whole file, in large pieces: `events/header_page` answers its first read(2) only, whatever its length.
fn read(path: &Path) -> Result<Vec<u8>, HostError> {
    use std::io::Read;
    let read = || {
        let mut file = std::fs::File::open(path)?;
        let mut bytes = Vec::new();
        loop {
            let have = bytes.len();
            bytes.resize(have + 64 * 1024, 0);
            let count = file.read(&mut bytes[have..])?;
            bytes.truncate(have + count);
            if count == 0 {
                return Ok(bytes);
            }
        }
    };
    read().map_err(|error| failed(Op::Read, path, &error))
}

/// One write(2): tracefs takes each write as a whole.
fn write(path: &Path, value: &str) -> Result<(), HostError> {
    use std::io::Write;
    let open = std::fs::OpenOptions::new().write(true).open(path);
    open.and_then(|mut file| file.write_all(value.as_bytes()))
        .map_err(|error| failed(Op::Write, path, &error))
}
