//! Sockets with time limits, using only calls that confined processes may make.

use std::{io, os::unix::net::UnixStream, path::Path, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};

/// Connects to a socket without waiting. If a server hangs, its queue fills, and an ordinary
/// connect would wait forever.
///
/// # Errors
/// The errno of connect(2): `EAGAIN` for a full queue.
pub fn connect_at_once(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(UnixStream::from(socket))
}

/// Waits until there is data to read, or the end of the input. Returns whether there is.
///
/// # Errors
/// Returns the error of poll(2).
pub fn is_readable_within(socket: &UnixStream, time: Duration) -> io::Result<bool> {
    let mut polled = [PollFd::new(socket, PollFlags::IN)];
    // If the time is too long for the kernel, this waits without a limit.
    let time = Timespec::try_from(time).ok();
    match poll(&mut polled, time.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        // After a signal, whose handler may have written to the other end.
        Err(Errno::INTR) => is_readable_within(socket, Duration::ZERO),
        Err(error) => Err(error.into()),
    }
}
