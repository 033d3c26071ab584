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

/// CPU time, user and system, and the largest memory of this process or of its ended children.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// CPU time.
    pub time: std::time::Duration,
    /// Largest resident memory so far, KiB.
    pub peak_kib: u64,
}

/// What this process has used so far (`children` false), or all its children that were waited for.
pub fn usage(children: bool) -> Usage {
    let who = if children { libc::RUSAGE_CHILDREN } else { libc::RUSAGE_SELF };
    // SAFETY: all zeros is a value of rusage, a structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: getrusage writes one rusage to the place that it is given, which lives until the call returns.
    if unsafe { libc::getrusage(who, &raw mut usage) } != 0 {
        return Usage::default();
    }
    let time = |time: libc::timeval| std::time::Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Usage { time: time(usage.ru_utime) + time(usage.ru_stime), peak_kib: usage.ru_maxrss as u64 }
}

/// CPU time of the calling thread.
pub fn thread_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
