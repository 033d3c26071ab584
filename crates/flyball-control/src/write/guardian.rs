//! The guardian: a process that puts the machine back when flyball dies.
//!
//! It is flyball itself, started as another process before the first write, in its own process
//! group so that Ctrl-C and a kill of flyball's group do not reach it. Its standard input is one
//! end of a socket whose other end only flyball holds: whatever ends flyball, SIGKILL and the
//! out-of-memory killer included, the kernel closes it, and the guardian sees the end of its input.
//! Its standard output is the lock, so that no other process can take the machine before it is
//! done. When flyball has restored by itself, it sends one byte, and the guardian exits.

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
    journal::JournalError,
    state::{Lock, StateDir},
    undo::{Restored, Scope, restore_locked},
};

/// The environment variable with the name of the process that a guardian guards.
const GUARDED: &str = "FLYBALL_GUARDED";

/// What flyball sends when it does not need the guardian any more.
const DONE: u8 = b'.';

/// What the guardian sends when it watches.
const READY: u8 = b'!';

/// How long a guardian may take to start: it has a process to start and nothing else to do.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A guardian that watches.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    line: UnixStream,
}

impl Guardian {
    /// Starts `command`, which must end in [`watch`], and waits until it watches.
    ///
    /// # Errors
    /// It cannot be started, or ended before it was ready.
    pub fn start(mut command: Command, lock: &Lock) -> io::Result<Guardian> {
        let (mut line, theirs) = UnixStream::pair()?;
        // Its standard output is one lock. The other it inherits: a lock belongs to the open file,
        // so that it is held until the last process that has it is gone.
        let machine = lock.share_machine()?;
        if let Some(file) = &machine {
            fcntl_setfd(file, FdFlags::empty())?;
        }
        let child = command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(lock.share()?))
            .env(GUARDED, flyball_process::unique_name())
            // Ctrl-C goes to the foreground group of the terminal: it must end flyball and not its
            // guardian.
            .process_group(0)
            .spawn()?;
        // The command would keep its ends of the line and of the lock open for as long as it lives.
        drop((command, machine));
        let mut guardian = Guardian { child, line: line.try_clone()? };
        line.set_read_timeout(Some(START_TIMEOUT))?;
        let mut word = [0];
        match line.read(&mut word) {
            Ok(1) if word[0] == READY => Ok(guardian),
            // Another byte, or the end of the line: it is not a guardian that watches.
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
        // It may have been killed; then the byte has no receiver.
        let _ = send(&self.line, &[DONE]);
        // Closed in any case: without the byte the end of its input is what makes the guardian act,
        // and it finds no open transaction.
        let _ = self.line.shutdown(Shutdown::Both);
        let _ = self.child.wait();
    }

    /// The guardian's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// The guardian's own work: reports that it is ready, waits for flyball's message or death, and on
/// death ends what a workload left running and restores what the open transaction changed. `None`
/// after the message.
///
/// # Errors
/// The line cannot be used, or the journal.
pub fn watch(host: &dyn Host, state: &StateDir, line: OwnedFd) -> Result<Option<Restored>, JournalError> {
    let path = || state.journal();
    let mut line = UnixStream::from(line);
    send(&line, &[READY]).map_err(|error| JournalError::Io { path: path(), error })?;
    let mut word = [0];
    loop {
        match line.read(&mut word) {
            Ok(1) if word[0] == DONE => return Ok(None),
            // Another byte than the agreed one: not the end, and not a reason to act.
            Ok(1) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The end of the line, or an error on it: flyball is dead.
            _ => break,
        }
    }
    // The measured command died with flyball; what it had started would go on loading the machine.
    if let Ok(guarded) = std::env::var(GUARDED) {
        flyball_process::kill_owned_by(&guarded);
    }
    // Between restoring, or committing, and its message flyball leaves nothing open: then nothing
    // is to be done.
    restore_locked(host, state, Scope::Open).map(Some)
}
