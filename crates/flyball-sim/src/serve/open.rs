//! The served machine on the real clock, and the files that programs have open on it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::own::KernelSettings;
use crate::{
    errno::{Answer, Errno},
    machine::SimMachine,
    workload::Several,
};

/// A machine whose clock follows the real one.
#[derive(Debug)]
pub struct RealTimeMachine {
    machine: SimMachine,
    started: Instant,
    offset: Duration,
}

impl RealTimeMachine {
    /// Starts the machine's clock in step with the real one.
    pub fn new(machine: SimMachine) -> RealTimeMachine {
        let offset = machine.now();
        RealTimeMachine { machine, started: Instant::now(), offset }
    }

    /// The machine, after its clock has caught up.
    pub fn machine(&mut self) -> &mut SimMachine {
        let now = self.offset + self.started.elapsed();
        // Accesses put the machine's clock slightly ahead of the real one; then there is nothing to
        // catch up.
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
    /// True until the file is first read.
    pub(super) fresh: bool,
    /// Progress of the workload that was written to the file.
    pub(super) work: Option<crate::workload::Shared>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) paths: Vec<Arc<str>>,
    pub(super) inodes: HashMap<Arc<str>, u64>,
    pub(super) open: HashMap<u64, OpenFile>,
    pub(super) next: u64,
    /// Progress of the workload started last.
    pub(super) work: Option<crate::workload::Shared>,
    /// The running loads.
    pub(super) running: Several,
    /// The settings of the served kernel.
    pub(super) own: KernelSettings,
}

/// Takes at most `size` bytes from a stream; more bytes wait in the open file for the next read.
pub(super) fn take(
    machine: &Mutex<RealTimeMachine>,
    state: &Mutex<State>,
    handle: u64,
    size: usize,
) -> Answer<Vec<u8>> {
    let mut state = lock(state);
    let open = state.open.get_mut(&handle).ok_or(Errno::IO)?;
    if open.text.is_empty() {
        open.text = lock(machine).machine().take(&open.path, size)?;
    }
    // A page larger than the read is returned in parts.
    let rest = open.text.split_off(size.min(open.text.len()));
    Ok(std::mem::replace(&mut open.text, rest))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in another thread leaves a machine that can still answer.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn error(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.0)
}
