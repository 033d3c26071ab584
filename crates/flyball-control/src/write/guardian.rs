//! The guardian: a process that puts the machine back when flyball dies.
//!
//! It is flyball itself, started as another process before the first write, in its own process group so that Ctrl-C
//! and a kill of flyball's group do not reach it. Its standard input is one end of a socket whose other end only flyball
//! holds: whatever ends flyball, SIGKILL and the out-of-memory killer included, the kernel closes it, and the guardian
//! sees the end of its input. Its standard output is the lock, so that nobody else can take the machine before it is
//! done. A farewell byte sends it home when flyball has restored by itself.

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

use flyball_host::{Host, process::send};

use super::{
    hold::{Restored, Scope, restore_locked},
    journal::JournalError,
    state::{Lock, StateDir},
};

/// The variable that tells a guardian whose it is.
const GUARDED: &str = "FLYBALL_GUARDED";

/// What flyball says when it needs no guardian any more.
const FAREWELL: u8 = b'.';

/// What the guardian says when it watches.
const READY: u8 = b'!';

/// How long to wait for a guardian to be at its post. It has a process to start and nothing else to do.
const PATIENCE: Duration = Duration::from_secs(20);

/// A guardian at its post.
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
    pub fn post(mut command: Command, lock: &Lock) -> io::Result<Guardian> {
        let (mut line, theirs) = UnixStream::pair()?;
        let child = command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(lock.share()?))
            .env(GUARDED, flyball_host::process::unique_name())
            .process_group(0)
            .spawn()?;
        // The command would keep its ends of the line and of the lock open for as long as it lives.
        drop(command);
        let mut guardian = Guardian { child, line: line.try_clone()? };
        line.set_read_timeout(Some(PATIENCE))?;
        let mut word = [0];
        match line.read(&mut word) {
            Ok(1) if word[0] == READY => Ok(guardian),
            Ok(_) => {
                let status = guardian.child.wait()?;
                Err(io::Error::other(format!("it ended before it was ready ({status})")))
            }
            Err(error) => {
                let _ = guardian.child.kill();
                let _ = guardian.child.wait();
                Err(error)
            }
        }
    }

    /// Sends the guardian home and waits until it has gone.
    pub fn dismiss(mut self) {
        // It may have been killed; then there is nobody to take leave of.
        let _ = send(&self.line, &[FAREWELL]);
        let _ = self.line.shutdown(Shutdown::Both);
        let _ = self.child.wait();
    }

    /// The guardian's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// The guardian's own work: says that it is ready, waits for flyball's farewell or death, and on death ends what a
/// workload left running and puts back what the open transaction changed. `None` after a farewell.
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
            Ok(1) if word[0] == FAREWELL => return Ok(None),
            Ok(1) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The end of the line, or an error on it: flyball is dead.
            _ => break,
        }
    }
    // The measured command died with flyball; what it had started would go on loading a machine that nobody watches.
    if let Ok(guarded) = std::env::var(GUARDED) {
        flyball_host::process::kill_owned_by(&guarded);
    }
    // Between putting back, or committing, and its farewell flyball leaves nothing open: then nothing is to be done.
    restore_locked(host, state, Scope::Open).map(Some)
}
