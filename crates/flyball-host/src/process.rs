//! System calls about files and processes that std does not offer and that are not about a machine's settings.

use std::{fs::File, io};

use rustix::fs::FlockOperation;

/// Takes an exclusive flock(2) on `file` without waiting; `false` where another open file has it.
///
/// The lock belongs to the open file, not to the process: a child that inherits the descriptor holds it too, and the
/// kernel gives it up when the last copy is closed.
///
/// # Errors
/// What flock(2) answered, other than that it is taken.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Sends bytes over a socket; a peer that has gone is an error and no SIGPIPE, which would end the process.
///
/// # Errors
/// What send(2) answered: `EPIPE` where the peer has gone.
pub fn send(socket: &impl std::os::fd::AsFd, bytes: &[u8]) -> io::Result<()> {
    let sent = rustix::net::send(socket, bytes, rustix::net::SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
