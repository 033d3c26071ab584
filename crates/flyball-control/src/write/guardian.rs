//! The guardian: a process that restores the machine if flyball dies.
//!
//! It is flyball itself, started as another process before the first write. It has its own process
//! group, so that Ctrl-C and a kill of flyball's group do not reach it. Its standard input is one
//! end of a socket whose other end only flyball holds. However flyball ends, even by SIGKILL or the
//! out-of-memory killer, the kernel closes that end, and the guardian sees the end of its input.
//! Its standard output is the lock, so that no other process can take the machine before the
//! guardian is done. After flyball has restored the machine itself, it sends one byte, and the
//! guardian exits.

use std::{
    io::{self, Read},
    net::Shutdown,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, Stdio},
    time::Duration,
};

use flyball_host::Host;
use flyball_process::send;
use rustix::io::{FdFlags, fcntl_setfd};

use super::{
    outcome::TransactionError,
    state::{Lock, StateDir},
    undo::{Restored, Scope, restore_locked},
};

/// The environment variable with the name of the process that the guardian watches.
const GUARDED: &str = "FLYBALL_GUARDED";

/// Byte that flyball sends when it no longer needs the guardian.
const DONE: u8 = b'.';

/// Byte that the guardian sends once it is watching.
const READY: u8 = b'!';

/// Time limit for starting a guardian, which has little to do before it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A guardian that is watching.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    line: UnixStream,
}

impl Guardian {
    /// Starts `command`, which must end in [`watch`], and waits until it is watching.
    ///
    /// # Errors
    /// It cannot be started, or ended before it was ready.
    pub fn start(mut command: Command, lock: &Lock) -> io::Result<Guardian> {
        let (mut line, theirs) = UnixStream::pair()?;
        // One lock is its standard output, the other is inherited. A lock belongs to the open file,
        // so the last process that has the file open releases it.
        let machine = lock.share_machine()?;
        if let Some(file) = &machine {
            fcntl_setfd(file, FdFlags::empty())?;
        }
        let child = command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(lock.share()?))
            .env(GUARDED, flyball_process::unique_name())
            // Ctrl-C goes to the terminal's foreground group. It must end flyball but not the
            // guardian.
            .process_group(0)
            .spawn()?;
        // `command` would keep its ends of the socket and the lock open as long as it lives.
        drop((command, machine));
        let mut guardian = Guardian { child, line: line.try_clone()? };
        line.set_read_timeout(Some(START_TIMEOUT))?;
        let mut word = [0];
        match line.read(&mut word) {
            Ok(1) if word[0] == READY => Ok(guardian),
            // Another byte, or the end of the input: the process is not a guardian that watches.
            Ok(_) => {
                let status = guardian.child.wait()?;
                Err(io::Error::other(format!("it ended before it was ready ({status})")))
            }
            Err(error) => {
                // No answer in time. It must not restore later, when this command has ended without
                // a guardian.
                let _ = guardian.child.kill();
                let _ = guardian.child.wait();
                Err(error)
            }
        }
    }

    /// Ends the guardian and waits until it has exited.
    pub fn stop(mut self) {
        // If the guardian was killed, nobody receives the byte.
        let _ = send(&self.line, &[DONE]);
        // Close the socket in any case: if the byte was lost, the guardian acts at the end of its
        // input and finds no open transaction.
        let _ = self.line.shutdown(Shutdown::Both);
        let _ = self.child.wait();
    }

    /// Returns the process ID of the guardian.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// Runs the guardian: reports that it is ready and waits for flyball's message or death. If flyball
/// dies, ends the processes that a workload left running and returns true. The caller must then
/// call [`restore`].
///
/// # Errors
/// The standard input is not usable.
pub fn watch(line: OwnedFd) -> Result<bool, TransactionError> {
    let mut line = UnixStream::from(line);
    send(&line, &[READY]).map_err(TransactionError::Guardian)?;
    let mut word = [0];
    loop {
        match line.read(&mut word) {
            Ok(1) if word[0] == DONE => return Ok(false),
            // Ignore any other byte.
            Ok(1) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The end of the input, or a read error: flyball is dead.
            _ => break,
        }
    }
    // The measured command died with flyball. Its child processes would keep loading the machine.
    if let Ok(guarded) = std::env::var(GUARDED) {
        flyball_process::kill_owned_by(&guarded);
    }
    Ok(true)
}

/// Restores the changes of the open transaction. `host` must be opened after flyball's death:
/// otherwise a simulated machine lacks some of flyball's changes.
///
/// # Errors
/// The journal cannot be used.
pub fn restore(host: &dyn Host, state: &StateDir) -> Result<Restored, TransactionError> {
    // If flyball dies after restoring or committing, but before its message, no transaction is open
    // and there is nothing to do.
    restore_locked(host, state, Scope::Open)
}
