//! Reads pages from a CPU's ring buffer (trace_pipe_raw).
//!
//! It uses read(2), not splice(2) or a mapping. read(2) works on every kernel and leaves the page
//! in the cache of the CPU that counts its records next. With sub-buffers of 16 KiB (280 records
//! per system call) it costs half as much as splice(2), which allocates and frees a page of the
//! page cache for every page of the buffer.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::{Errno, HostError, Op};

/// The pages of one CPU's buffer. Reading consumes them.
pub trait Pages: Send + std::fmt::Debug {
    /// Reads the next page into `page`, which must have the page size. If the page is not full,
    /// reads its present content. `false` if the buffer is empty.
    fn read_page(&self, page: &mut [u8]) -> Result<bool, HostError>;

    /// Returns whether the buffer has reached the fill level at which the instance wakes readers.
    fn is_ready(&self) -> bool;

    /// Returns the descriptor for poll(2); only on the running kernel.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// Reads one CPU's pages.
#[derive(Debug)]
pub struct PageReader {
    pages: Box<dyn Pages>,
    cpu: u32,
    page_size: usize,
}

impl PageReader {
    pub(super) fn new(pages: Box<dyn Pages>, cpu: u32, page_size: usize) -> PageReader {
        PageReader { pages, cpu, page_size }
    }

    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Returns the bytes of a page.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// See [`Pages::read_page`].
    pub fn read_page(&self, page: &mut [u8]) -> Result<bool, HostError> {
        self.pages.read_page(page)
    }

    /// See [`Pages::is_ready`].
    pub fn is_ready(&self) -> bool {
        self.pages.is_ready()
    }
}

/// A `trace_pipe_raw` of the running kernel.
#[derive(Debug)]
pub(super) struct LivePages {
    file: File,
    path: PathBuf,
}

impl LivePages {
    pub(super) fn open(path: &Path) -> io::Result<LivePages> {
        let mut options = File::options();
        // Nonblocking, because one thread may read several CPUs.
        options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
        Ok(LivePages { file: options.open(path)?, path: path.to_owned() })
    }
}

impl Pages for LivePages {
    fn read_page(&self, page: &mut [u8]) -> Result<bool, HostError> {
        loop {
            match io::Read::read(&mut &self.file, page) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    // The kernel usually fills the rest of a short page with zeros, but need not.
                    page[count..].fill(0);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                // A CPU that has been offline since the instance was created has no buffer until it
                // comes online (ring_buffer_alloc_read_page() in kernel/trace/ring_buffer.c).
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(HostError::new(
                        Op::Read,
                        self.path.display().to_string(),
                        Errno::from(&error),
                    ));
                }
            }
        }
    }

    fn is_ready(&self) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok()
            && polled[0].revents().contains(PollFlags::IN)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// Sleeps until a buffer reaches the fill level at which the instance wakes readers, `time` has
/// passed, or a signal arrives. Puts the indices in `readers` of such buffers into `ready`.
pub fn wait_for_pages(
    readers: &[PageReader],
    time: Duration,
    ready: &mut Vec<usize>,
) -> Result<(), HostError> {
    ready.clear();
    let mut watched: Vec<(usize, BorrowedFd<'_>)> = readers
        .iter()
        .enumerate()
        .filter_map(|(at, reader)| Some((at, reader.pages.descriptor()?)))
        .collect();
    loop {
        let mut polled: Vec<PollFd<'_>> =
            watched.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        match rustix::event::poll(&mut polled, Some(&time)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(errno) => return Err(HostError::new(Op::Read, "trace_pipe_raw", errno)),
        }
        let answers: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        let answered = watched.iter().zip(&answers);
        ready.extend(answered.filter(|(_, flags)| flags.contains(PollFlags::IN)).map(|((at, _), _)| *at));
        // An offline CPU without a buffer answers at once, so exclude it from the wait.
        let before = watched.len();
        let mut answers = answers.iter();
        watched.retain(|_| answers.next().is_some_and(PollFlags::is_empty));
        if !ready.is_empty() || watched.len() == before {
            return Ok(());
        }
    }
}
