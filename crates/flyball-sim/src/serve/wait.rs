//! Programs that wait for a stream of a served machine, in blocking reads or polls.
//!
//! A machine does not report new trace records, so a thread checks a hundred times per second while
//! a program waits. The thread also checks for pending signals, so that a killed reader does not
//! hang in its read.

use std::{
    fs,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use fuser::{PollNotifier, ReplyData};

use super::open::{RealTimeMachine, State, error, lock, take};
use crate::errno::Errno;

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A waiting request.
#[derive(Debug)]
pub(super) enum Waiting {
    Read { handle: u64, size: usize, thread: u32, reply: ReplyData },
    Poll { path: String, notifier: PollNotifier },
}

/// The waiting requests. The thread that answers them ends with the file system.
#[derive(Debug, Default)]
pub(super) struct Waiters(Arc<Mutex<Vec<Waiting>>>);

impl Waiters {
    /// Starts the thread that answers requests.
    pub(super) fn start(machine: &Arc<Mutex<RealTimeMachine>>, state: &Arc<Mutex<State>>) -> Waiters {
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
    machine: &Weak<Mutex<RealTimeMachine>>,
    state: &Weak<Mutex<State>>,
) -> Option<()> {
    // Before the upgrades: between rounds the thread holds nothing, so it ends once the file system
    // is gone.
    std::thread::sleep(POLL_INTERVAL);
    let (list, machine, state) = (list.upgrade()?, machine.upgrade()?, state.upgrade()?);
    // Take the list, so that new requests need not wait for the lock.
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
                    // A file that was closed in the meantime needs no notification.
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
    // FUSE's request names a thread. Signals may be pending for the thread or its process.
    let Ok(text) = fs::read_to_string(format!("/proc/{thread}/status")) else { return true };
    let mask = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|word| u64::from_str_radix(word.trim(), 16).ok()).unwrap_or(0)
    };
    (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:") & !mask("SigIgn:") != 0
}
