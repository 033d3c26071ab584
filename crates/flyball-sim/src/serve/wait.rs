//! Programs that wait for a stream of a served machine: reads that block, and polls.
//!
//! A machine does not report that its trace grows, so a thread checks a hundred times per second
//! while a program waits. A reader that is killed must not hang in its read: the thread looks at
//! its pending signals too.

use std::{
    fs,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use fuser::{PollNotifier, ReplyData};

use super::open::{Paced, State, error, lock, take};
use crate::errno::Errno;

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A request that waits.
#[derive(Debug)]
pub(super) enum Waiting {
    Read { handle: u64, size: usize, thread: u32, reply: ReplyData },
    Poll { path: String, notifier: PollNotifier },
}

/// The requests that wait, and the thread that answers them. It ends with the file system.
#[derive(Debug, Default)]
pub(super) struct Waiters(Arc<Mutex<Vec<Waiting>>>);

impl Waiters {
    /// Starts the thread.
    pub(super) fn start(machine: &Arc<Mutex<Paced>>, state: &Arc<Mutex<State>>) -> Waiters {
        let waiters = Waiters::default();
        let (list, machine, state) =
            (Arc::downgrade(&waiters.0), Arc::downgrade(machine), Arc::downgrade(state));
        std::thread::spawn(move || while poll_once(&list, &machine, &state).is_some() {});
        waiters
    }

    pub(super) fn add(&self, waiting: Waiting) {
        lock(&self.0).push(waiting);
    }
}

fn poll_once(
    list: &Weak<Mutex<Vec<Waiting>>>,
    machine: &Weak<Mutex<Paced>>,
    state: &Weak<Mutex<State>>,
) -> Option<()> {
    // Before the upgrades: between two rounds nothing is held, and the thread ends when the file
    // system is gone.
    std::thread::sleep(POLL_INTERVAL);
    let (list, machine, state) = (list.upgrade()?, machine.upgrade()?, state.upgrade()?);
    // Taken out: a request that comes while these are looked at must not wait for the lock.
    let waiting = std::mem::take(&mut *lock(&list));
    let mut still = Vec::new();
    for one in waiting {
        match one {
            Waiting::Read { handle, size, thread, reply } => match take(&machine, &state, handle, size) {
                Ok(bytes) => reply.data(&bytes),
                Err(Errno::AGAIN) if !has_signal(thread) => {
                    still.push(Waiting::Read { handle, size, thread, reply });
                }
                Err(Errno::AGAIN) => reply.error(fuser::Errno::from_i32(libc::EINTR)),
                Err(errno) => reply.error(error(errno)),
            },
            Waiting::Poll { path, notifier } => {
                if lock(&machine).machine().is_ready(&path) {
                    // A file that has been closed in the meantime needs no notification.
                    let _ = notifier.notify();
                } else {
                    still.push(Waiting::Poll { path, notifier });
                }
            }
        }
    }
    lock(&list).extend(still);
    Some(())
}

/// Returns whether a thread has pending signals that it does not block, or is gone.
fn has_signal(thread: u32) -> bool {
    // FUSE's request names a thread, not a process: signals pend for either.
    let Ok(text) = fs::read_to_string(format!("/proc/{thread}/status")) else { return true };
    let mask = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|word| u64::from_str_radix(word.trim(), 16).ok()).unwrap_or(0)
    };
    (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:") & !mask("SigIgn:") != 0
}
