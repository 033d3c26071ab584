//! Files of a directory that are replaced or written: inotify(7).

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};

use super::Event;

#[derive(Debug)]
pub(super) struct Files(OwnedFd);

impl Files {
    pub(super) fn new(directory: &Path) -> io::Result<Files> {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // A lock is released by closing its file, which was open for writing. All other files are
        // renamed into place.
        add_watch(&inotify, directory, WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::DELETE)?;
        Ok(Files(inotify))
    }

    pub(super) fn take(&self, events: &mut Vec<Event>) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.0, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => events.push(Event::Lost),
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
                    let event = Event::File { name: name.unwrap_or_default() };
                    if !events.contains(&event) {
                        events.push(event);
                    }
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Files {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
