//! Replaces the emulator's virtual clock.
//!
//! `qemu_plugin_update_ns` is the documented way to move the emulator's clock, but it has no effect
//! under TCG: the accelerator's class leaves its two hooks for the virtual clock empty. This module
//! fills them in. It finds their offsets in the class by reading the machine code of the two
//! functions that call them, and tests the result before anything depends on it. A QEMU that is
//! built with loadable modules, as in distributions, exports these functions, but QEMU does not
//! guarantee them.

#![allow(unsafe_code, reason = "QEMU's C interface")]
#![allow(clippy::cast_ptr_alignment, reason = "the emulator aligns its own structures")]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    sync::atomic::{AtomicI64, Ordering},
};

use crate::{api::symbol, error::PluginError};

macro_rules! private {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the emulator that are not part of its plug-in interface.
        #[derive(Debug)]
        pub(crate) struct Clock {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Clock {
            fn load() -> Result<Clock, PluginError> {
                $(
                    let address = symbol(concat!(stringify!($name), "\0"))
                        .ok_or(PluginError::NotExported(stringify!($name)))?;
                    // SAFETY: a function pointer is as large as a pointer; the signature is that of
                    // QEMU 11's source.
                    let $name = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(address)
                    };
                )*
                Ok(Clock { $($name,)* })
            }
        }
    };
}

private! {
    cpus_get_virtual_clock: fn() -> i64;
    cpus_set_virtual_clock: fn(i64);
    qemu_clock_deadline_ns_all: fn(c_int, c_int) -> i64;
    qemu_clock_advance_virtual_time: fn(i64) -> i64;
    all_cpu_threads_idle: fn() -> bool;
    bql_lock_impl: fn(*const c_char, c_int);
    bql_unlock: fn();
    object_class_by_name: fn(*const c_char) -> *mut c_void;
    qemu_get_cpu: fn(c_int) -> *mut c_void;
    tcg_cpu_init_cflags: fn(*mut c_void, bool);
    cpu_exit: fn(*mut c_void);
}

/// QEMU_CLOCK_VIRTUAL.
const VIRTUAL: c_int = 1;
/// Timers of every kind.
const ALL_TIMERS: c_int = -1;

/// The functions that replace the emulator's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hooks {
    /// Returns the time, ns.
    pub get: extern "C" fn() -> i64,
    /// Sets the time, ns.
    pub set: extern "C" fn(i64),
}

static TRIED: AtomicI64 = AtomicI64::new(0);

extern "C" fn trial_get() -> i64 {
    0x0123_4567
}

extern "C" fn trial_set(ns: i64) {
    TRIED.store(ns, Ordering::Relaxed);
}

/// The offset in the first `mov offset(%rax),%rax` (48 8b 80 and four bytes) in a function's code,
/// which loads a function pointer from a class.
fn hook_offset(function: *const c_void) -> Option<usize> {
    // SAFETY: QEMU's two functions are longer than 47 bytes: each loads the class, tests the slot
    // and has a fall-back.
    let code = unsafe { std::slice::from_raw_parts(function.cast::<u8>(), 47) };
    // The hook is loaded before it is called, so the load is among the function's first
    // instructions.
    let at = code.windows(3).take(40).position(|bytes| bytes == [0x48, 0x8b, 0x80])?;
    let offset = u32::from_le_bytes([code[at + 3], code[at + 4], code[at + 5], code[at + 6]]) as usize;
    (offset > 0 && offset < 0x400 && offset.is_multiple_of(8)).then_some(offset)
}

impl Clock {
    /// Replaces the clock, after a test with functions whose effect is visible.
    pub(crate) fn take(hooks: Hooks) -> Result<Clock, PluginError> {
        let clock = Clock::load()?;
        const CLASS: &CStr = c"tcg-accel-ops";
        // SAFETY: the name is a C string; the function only looks a class up.
        let class = unsafe { (clock.object_class_by_name)(CLASS.as_ptr()) }.cast::<u8>();
        let get = hook_offset(clock.cpus_get_virtual_clock as *const c_void);
        let set = hook_offset(clock.cpus_set_virtual_clock as *const c_void);
        let (Some(get), Some(set)) = (get, set) else {
            return Err(PluginError::ClockCode);
        };
        // The two hooks are adjacent in AccelOpsClass. Other offsets mean that the code was
        // misread.
        if class.is_null() || set != get + 8 {
            return Err(PluginError::ClockHooks { get, set });
        }
        let fill = |hooks: Hooks| {
            // SAFETY: both offsets were read from the code that calls through them, are adjacent
            // and aligned, and the class lives as long as the process. No CPU executes guest code
            // yet.
            unsafe {
                class.add(get).cast::<extern "C" fn() -> i64>().write(hooks.get);
                class.add(set).cast::<extern "C" fn(i64)>().write(hooks.set);
            }
        };
        // Test first: a wrong offset would overwrite some other hook, and this must fail now, not
        // in the middle of a boot.
        fill(Hooks { get: trial_get, set: trial_set });
        // SAFETY: these call the two trial functions, if the slots are what they are taken for.
        let seen = unsafe {
            (clock.cpus_set_virtual_clock)(77);
            (clock.cpus_get_virtual_clock)()
        };
        if seen != 0x0123_4567 || TRIED.load(Ordering::Relaxed) != 77 {
            return Err(PluginError::ClockTrial);
        }
        fill(hooks);
        Ok(clock)
    }

    /// Time until the guest clock's next timer, ns.
    pub(crate) fn deadline(&self) -> Option<u64> {
        // SAFETY: reads the timer lists under their own locks.
        let ns = unsafe { (self.qemu_clock_deadline_ns_all)(VIRTUAL, ALL_TIMERS) };
        // -1: no timer is set.
        u64::try_from(ns).ok()
    }

    /// If all CPUs are idle, moves the clock to the time that `to` returns, and runs the timers up
    /// to it. Returns whether all were idle, and whether there was a timer.
    pub(crate) fn jump_if_idle(&self, to: impl FnOnce(u64) -> u64) -> (bool, bool) {
        const FILE: &CStr = c"flyball";
        // SAFETY: the big lock is taken before and released after; what is called in between needs
        // it.
        unsafe {
            // QEMU uses file and line in its own reports of lock contention.
            (self.bql_lock_impl)(FILE.as_ptr(), 1);
            let idle = (self.all_cpu_threads_idle)();
            let deadline = if idle { self.deadline() } else { None };
            if let Some(deadline) = deadline {
                (self.qemu_clock_advance_virtual_time)(to(deadline) as i64);
            }
            (self.bql_unlock)();
            (idle, deadline.is_some())
        }
    }
}
