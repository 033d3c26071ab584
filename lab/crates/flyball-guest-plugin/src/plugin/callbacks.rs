//! The functions that QEMU calls. For an instruction that the silicon answers, the callback ends
//! with `qemu_plugin_set_pc`, which does not return: it jumps out of the callback's frame. So each
//! such callback has only plain values in its frame, and calls a function that has returned, and
//! dropped all its values, before the jump.

#![allow(unsafe_code, reason = "QEMU's C interface")]

use std::ffi::{c_uint, c_void};

use super::Plugin;

macro_rules! answered {
    ($($callback:ident: |$plugin:ident, $cpu:ident, $at:ident| $answer:expr;)*) => {$(
        pub(super) extern "C" fn $callback($cpu: c_uint, $at: *mut c_void) {
            let $plugin = Plugin::get();
            let ($cpu, $at) = ($cpu as usize, $at as u64);
            let next: Option<u64> = $answer;
            if let Some(next) = next {
                // SAFETY: allowed in a callback that was registered with all registers. It does not
                // return; the frame holds numbers and references to what lives for ever.
                unsafe { ($plugin.api.qemu_plugin_set_pc)(next) }
            }
        }
    )*};
}

answered! {
    on_rdtsc: |plugin, cpu, at| plugin.rdtsc(cpu, at, false);
    on_rdtscp: |plugin, cpu, at| plugin.rdtsc(cpu, at, true);
    on_rdmsr: |plugin, cpu, at| plugin.rdmsr(cpu, at);
    on_cpuid: |plugin, cpu, at| plugin.cpuid(cpu, at);
    on_in: |plugin, cpu, at| plugin.port(cpu, at, false);
    on_out: |plugin, cpu, at| plugin.port(cpu, at, true);
    on_out_word: |plugin, cpu, _at| plugin.out_word(cpu);
    on_limit: |plugin, cpu, at| plugin.limit(cpu, at);
    on_limit_in_string: |plugin, cpu, at| plugin.limit_in_string(cpu, at);
}

pub(super) extern "C" fn on_wrmsr(cpu: c_uint, _: *mut c_void) {
    Plugin::get().wrmsr(cpu as usize);
}

pub(super) extern "C" fn on_pause(cpu: c_uint, _: *mut c_void) {
    Plugin::get().pause(cpu as usize);
}

pub(super) extern "C" fn on_halt(cpu: c_uint, _: *mut c_void) {
    Plugin::get().halt(cpu as usize);
}

pub(super) extern "C" fn on_apic(cpu: c_uint, _: *mut c_void) {
    Plugin::get().interrupts_sent(cpu as usize);
}

pub(super) extern "C" fn on_idle(cpu: c_uint, _: *mut c_void) {
    Plugin::get().set_waiting(cpu as usize, true);
}

pub(super) extern "C" fn on_resume(cpu: c_uint, _: *mut c_void) {
    Plugin::get().set_waiting(cpu as usize, false);
}

pub(super) extern "C" fn on_translation(block: *mut c_void, _: *mut c_void) {
    Plugin::get().translate(block);
}

pub(super) extern "C" fn on_cpu(cpu: c_uint, _: *mut c_void) {
    if let Err(why) = Plugin::get().add_cpu(cpu as usize) {
        eprintln!("flyball: this QEMU cannot be used: {why}");
        // A callback cannot reject the CPU, and without the CPU's handles the guest would get
        // QEMU's own register values.
        std::process::exit(3);
    }
}

pub(super) extern "C" fn clock_get() -> i64 {
    Plugin::get().clock_get()
}

pub(super) extern "C" fn clock_set(ns: i64) {
    Plugin::get().clock_set(ns);
}

pub(super) extern "C" fn on_exit(_: *mut c_void) {
    let plugin = Plugin::get();
    let mut state = plugin.state();
    state.chip.end();
    let counts = state.off.take().unwrap_or_else(|| plugin.counts(&state));
    // The launcher reads this line from the emulator's standard error.
    eprintln!("flyball: {counts}");
}
