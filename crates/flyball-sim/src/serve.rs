//! Serves a simulated machine to any program: FUSE files cover the real files in the program's own
//! mount namespace.
//!
//! Two processes take part. The server holds the machine and answers requests; the other process
//! creates the namespace ([`enter`]) and becomes the program. Programs see the machine of the
//! in-process interface, with the real clock.

mod files;
mod namespace;
mod open;
mod own;
mod supervise;
mod wait;

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, FromRawFd, OwnedFd},
    sync::{Arc, Mutex},
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg,
};

pub use files::Files;
pub use namespace::{SetupError, enter};
pub use open::RealTimeMachine;
pub use supervise::{Supervisor, submit};

/// Serves a machine until its last user has ended. The process inside opens the FUSE device in its
/// own user namespace, mounts it, and sends it over `socket`.
pub fn serve(machine: Arc<Mutex<RealTimeMachine>>, socket: &OwnedFd) -> io::Result<()> {
    // The device must be opened in the user namespace that mounts it (fs/fuse/inode.c), so the
    // process inside opens it and passes it on.
    let device = receive(socket)?;
    let config = fuser::Config::default();
    match fuser::Session::from_fd(Files::new(machine), device, fuser::SessionACL::All, config)?.run() {
        // The program's namespace was destroyed, and the mount with it, during a request.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::ENODEV)) => Ok(()),
        ended => ended,
    }
}

/// Receives a descriptor from a socket.
fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // A descriptor travels only with data.
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(device) = descriptors.next()
        {
            return Ok(device);
        }
    }
    Err(io::Error::other("the program ended before it had mounted the machine"))
}

/// Sends a descriptor over a socket.
fn send(socket: &OwnedFd, device: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let devices = [device];
    control.push(SendAncillaryMessage::ScmRights(&devices));
    sendmsg(socket, &[IoSlice::new(b"m")], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Returns whether the kernel provides FUSE.
pub fn has_fuse() -> bool {
    std::path::Path::new("/dev/fuse").exists()
}

/// Returns two connected sockets: the server's, and one that the process inside inherits under its
/// number.
pub fn connection() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Kept across exec, because the process inside runs another program, which gets the number.
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
    Ok((ours, theirs))
}

/// Takes over the socket from [`connection`], and closes it on the next exec.
///
/// # Errors
/// `EBADF` if the number is not an open descriptor.
#[allow(unsafe_code, reason = "a descriptor by its number")]
pub fn inherited(socket: i32) -> io::Result<OwnedFd> {
    // Standard streams have other uses in this process.
    if socket < 3 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the number is not -1; whether something is open under it is what the call finds out.
    let borrowed = unsafe { BorrowedFd::borrow_raw(socket) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: it is open and belongs to nothing else in this process: the process that started this
    // one opened it for it and named it on its command line.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}
