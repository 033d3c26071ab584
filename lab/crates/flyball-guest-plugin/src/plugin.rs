//! The plug-in in QEMU's process: its state, and access to a CPU's registers. The decisions are
//! made in `chip` and `scheduler`; these modules connect them to QEMU:
//!
//! - `install`: from QEMU's first call until its CPUs run;
//! - `translation`: recognises the instructions that the plug-in handles;
//! - `callbacks`: the functions that QEMU calls;
//! - `answers`: the instructions that the silicon answers;
//! - `time`: turns and clocks.
//!
//! A panic ends the emulator, because nothing may unwind out of an `extern "C"` callback. The
//! launcher reports the message.

#![allow(unsafe_code, reason = "QEMU's C interface")]

mod answers;
mod callbacks;
mod install;
mod time;
mod translation;

use std::{
    ffi::c_void,
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicI64, AtomicU32},
    },
    time::Instant,
};

use crate::{
    api::{Api, ByteArray},
    chip::Chip,
    clock::Clock,
    scheduler::Scheduler,
    settings::{Settings, Time},
};

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

struct Plugin {
    api: Api,
    settings: Settings,
    state: Mutex<State>,
    cpus: Vec<Cpu>,
    /// QEMU's table of instruction counters.
    score: usize,
    time_control: usize,
    clock: OnceLock<Clock>,
    /// The guest's clock for QEMU's other threads, ns.
    published: AtomicI64,
    idle: (Mutex<u64>, Condvar),
    start: Instant,
}

struct State {
    chip: Chip,
    scheduler: Scheduler,
    open: Open,
    /// The counts at the time when the machine was switched off.
    off: Option<String>,
}

/// State of the open loop: since when each CPU has been running.
struct Open {
    advanced_to: u64,
    running_since: Vec<Option<u64>>,
    busy: Vec<u64>,
}

struct Cpu {
    handles: OnceLock<Handles>,
    tsc_aux: AtomicU32,
}

/// Pointers from QEMU for one CPU. They are only used on that CPU's thread.
struct Handles {
    ax: *mut c_void,
    bx: *mut c_void,
    cx: *mut c_void,
    dx: *mut c_void,
    ip: *mut c_void,
    buffer: *mut ByteArray,
    counter: *mut u64,
    cpu: *mut c_void,
}

// SAFETY: the register handles and the buffer are used in callbacks of their own CPU, which QEMU
// runs one at a time. The counter is written by that CPU's thread; with one thread for all CPUs
// that is the only one.
unsafe impl Send for Handles {}
// SAFETY: as above.
unsafe impl Sync for Handles {}

impl Plugin {
    fn get() -> &'static Plugin {
        PLUGIN.get().expect("callbacks come after the installation")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self, cpu: usize) -> Option<&Handles> {
        self.cpus.get(cpu)?.handles.get()
    }

    fn read(&self, handles: &Handles, register: *mut c_void) -> u64 {
        // SAFETY: the handles are QEMU's for the CPU whose callback this is; the buffer is ours.
        unsafe {
            // QEMU appends to the array.
            (self.api.g_byte_array_set_size)(handles.buffer, 0);
            (self.api.qemu_plugin_read_register)(register, handles.buffer);
            let array = &*handles.buffer;
            if array.data.is_null() {
                return 0;
            }
            let bytes = std::slice::from_raw_parts(array.data, array.len.min(8) as usize);
            bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
        }
    }

    /// Writes the whole register: instructions with a 32-bit result clear the upper half.
    fn write(&self, handles: &Handles, register: *mut c_void, value: impl Into<u64>) {
        // SAFETY: as in `read`; the array has been made eight bytes long before they are written.
        unsafe {
            (self.api.g_byte_array_set_size)(handles.buffer, 8);
            let bytes = value.into().to_le_bytes();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), (*handles.buffer).data, 8);
            (self.api.qemu_plugin_write_register)(register, handles.buffer);
        }
    }

    /// Writes EDX:EAX.
    fn write_pair(&self, handles: &Handles, value: u64) {
        self.write(handles, handles.ax, value as u32);
        self.write(handles, handles.dx, (value >> 32) as u32);
    }

    /// Returns the counts to report at the end.
    fn counts(&self, state: &State) -> String {
        let packages = state.chip.silicon().topology().packages();
        let joules: f64 = (0..packages).map(|package| state.chip.silicon().energy_joules(package)).sum();
        let counts = state.scheduler.counts;
        format!(
            "guest_ns={} instructions={} joules={joules:.6} slices={} turns={} timers={} jumps={} stuck={} refused={}",
            if self.settings.time == Time::Closed { state.scheduler.clock() } else { state.open.advanced_to },
            state.scheduler.instructions(),
            counts.slices,
            counts.turns,
            counts.timers,
            counts.jumps,
            counts.stuck,
            state.chip.refused,
        )
    }
}
