//! Serving a simulated machine to any program: its files through FUSE, laid over the real ones in a mount namespace of
//! the program's own.
//!
//! Two processes take part. The server holds the machine and answers; the other makes the namespace ([`enter`]) and
//! becomes the program. The machine that programs see is the one of the in-process interface, with the real clock.

mod files;
mod namespace;

use std::{
    io::{self, Read},
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
};

pub use files::{Files, Paced};
pub use namespace::{SetupError, enter};

/// Serves a machine on an open `/dev/fuse` until its last user is gone. Waits first for a byte on `ready`: the file
/// system must be mounted before the kernel speaks.
///
/// # Errors
/// What the FUSE device answered.
pub fn serve(machine: Arc<Mutex<Paced>>, device: OwnedFd, ready: OwnedFd) -> io::Result<()> {
    let mut byte = [0];
    if std::fs::File::from(ready).read(&mut byte)? == 0 {
        return Err(io::Error::other("the program ended before it had mounted the machine"));
    }
    let config = fuser::Config::default();
    fuser::Session::from_fd(Files::new(machine), device, fuser::SessionACL::All, config)?.run()
}

/// Lets a program that is started from here on have this descriptor, under its number.
///
/// # Errors
/// As fcntl(2).
pub fn inherit(descriptor: &OwnedFd) -> io::Result<()> {
    Ok(rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty())?)
}

/// Takes over the FUSE device and the pipe that [`inherit`] handed on, and keeps them from the next program.
///
/// # Errors
/// `EBADF` for numbers that are no open descriptors.
pub fn inherited(device: i32, ready: i32) -> io::Result<(OwnedFd, OwnedFd)> {
    use std::os::fd::{BorrowedFd, FromRawFd};
    if device == ready || device < 3 || ready < 3 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    for number in [device, ready] {
        // SAFETY: the number is not -1; whether something is open under it is what the call finds out.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    }
    // SAFETY: both are open, are not the same, and belong to nothing else in this process: the process that started
    // this one opened them for it and named them on its command line, and nothing has been opened since by number.
    Ok(unsafe { (OwnedFd::from_raw_fd(device), OwnedFd::from_raw_fd(ready)) })
}
