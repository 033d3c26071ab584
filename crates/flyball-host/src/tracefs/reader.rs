//! Reading pages out of a CPU's ring buffer (trace_pipe_raw).
//!
//! read(2) is used, not splice(2) or a mapping: it works on every kernel, leaves the page in the cache of the CPU that
//! counts its records next, and with sub-buffers of 16 KiB (280 records a system call) it costs half of what splice(2)
//! does, which makes and frees a page of the page cache for every page of the buffer.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::{HostError, Op};

use super::failed;

/// Reads one CPU's pages and consumes them.
#[derive(Debug)]
pub struct PageReader {
    file: File,
    path: PathBuf,
    cpu: u32,
    page_size: usize,
}

impl PageReader {
    pub(super) fn open(path: &Path, cpu: u32, page_size: usize) -> Result<PageReader, HostError> {
        let mut options = File::options();
        options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
        let file = options.open(path).map_err(|error| failed(Op::Read, path, &error))?;
        Ok(PageReader { file, path: path.to_owned(), cpu, page_size })
    }

    /// The CPU.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Reads the next page into `page`, which must have its size; what has been written so far, if it is not full.
    /// `false` if the buffer is empty.
    ///
    /// # Errors
    /// The errno of read(2).
    pub fn read_page(&self, page: &mut [u8]) -> Result<bool, HostError> {
        loop {
            match io::Read::read(&mut &self.file, page) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    // The kernel fills the rest of a short page with zeros, but need not.
                    page[count..].fill(0);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                // A CPU that has been offline since the instance was made has no buffer before it comes online
                // (ring_buffer_alloc_read_page() in kernel/trace/ring_buffer.c).
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(Op::Read, &self.path, &error)),
            }
        }
    }
}

/// Sleeps until one of the buffers is as full as the instance's readers want it, or `time` has passed, or a signal
/// arrives. Puts the places in `readers` of those that are full enough into `ready`.
///
/// # Errors
/// The errno of poll(2).
pub fn wait_for_pages(
    readers: &[PageReader],
    time: Duration,
    ready: &mut Vec<usize>,
) -> Result<(), HostError> {
    ready.clear();
    let mut wanted: Vec<usize> = (0..readers.len()).collect();
    loop {
        let poll = |at: &usize| PollFd::from_borrowed_fd(readers[*at].file.as_fd(), PollFlags::IN);
        let mut polled: Vec<PollFd<'_>> = wanted.iter().map(poll).collect();
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        match rustix::event::poll(&mut polled, Some(&time)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(errno) => return Err(HostError::new(Op::Read, "trace_pipe_raw", errno)),
        }
        let answered: Vec<(usize, PollFlags)> =
            wanted.iter().zip(&polled).map(|(at, fd)| (*at, fd.revents())).collect();
        ready.extend(answered.iter().filter(|(_, flags)| flags.contains(PollFlags::IN)).map(|(at, _)| *at));
        // A CPU without a buffer, because it is offline, answers at once: the others are waited for without it.
        let silent = answered.iter().filter(|(_, flags)| flags.is_empty()).map(|(at, _)| *at);
        let silent: Vec<usize> = silent.collect();
        if !ready.is_empty() || silent.len() == wanted.len() {
            return Ok(());
        }
        wanted = silent;
    }
}
