//! The machine that is served, on the real clock, and the files that programs have open on it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::own::StandIns;
use crate::{
    errno::{Answer, Errno},
    machine::SimMachine,
    workload::Several,
};

/// A machine whose clock follows the real one.
#[derive(Debug)]
pub struct Paced {
    machine: SimMachine,
    started: Instant,
    offset: Duration,
}

impl Paced {
    /// Lets the machine's time pass as real time does from now on.
    pub fn new(machine: SimMachine) -> Paced {
        let offset = machine.now();
        Paced { machine, started: Instant::now(), offset }
    }

    /// The machine, brought up to the present.
    pub fn machine(&mut self) -> &mut SimMachine {
        let now = self.offset + self.started.elapsed();
        // Accesses move the machine's clock ahead of the real one by a little: then nothing is to
        // be caught up.
        let behind = now.saturating_sub(self.machine.now());
        self.machine.advance(behind);
        &mut self.machine
    }

    /// Boots the machine again.
    pub(super) fn reboot(&mut self) {
        self.machine.reboot();
        (self.started, self.offset) = (Instant::now(), self.machine.now());
    }
}

/// The state of an open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) path: String,
    pub(super) text: Vec<u8>,
    /// The errno of the read at offset 0, repeated until the next.
    pub(super) fresh: bool,
    /// How far the workload is that was written to it.
    pub(super) work: Option<crate::workload::Shared>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) paths: Vec<Arc<str>>,
    pub(super) inodes: HashMap<Arc<str>, u64>,
    pub(super) open: HashMap<u64, OpenFile>,
    pub(super) next: u64,
    /// How far the workload is that was started last.
    pub(super) work: Option<crate::workload::Shared>,
    /// The loads that run.
    pub(super) running: Several,
    /// The settings of the served kernel.
    pub(super) own: StandIns,
}

/// Takes at most `size` bytes from a stream; bytes beyond them wait in the open file for the next
/// read.
pub(super) fn take(
    machine: &Mutex<Paced>,
    state: &Mutex<State>,
    handle: u64,
    size: usize,
) -> Answer<Vec<u8>> {
    let mut state = lock(state);
    let open = state.open.get_mut(&handle).ok_or(Errno::IO)?;
    if open.text.is_empty() {
        open.text = lock(machine).machine().take(&open.path, size)?;
    }
    // A page that is larger than the read is handed out in parts.
    let rest = open.text.split_off(size.min(open.text.len()));
    Ok(std::mem::replace(&mut open.text, rest))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in another thread leaves a machine that still answers.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn error(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.0)
}
