//! The callbacks: thin, because what they do is decided in `chip` and `scheduler`.
//!
//! A callback of an instruction that the silicon answers ends in `qemu_plugin_set_pc`, which does not return: it jumps
//! out of the callback's frame. So every such callback is a frame of plain values around a function that has returned
//! by then, with all that it owned.
//!
//! A panic ends the emulator: callbacks are `extern "C"`, out of which nothing unwinds. The launcher reports what was
//! said.

#![allow(unsafe_code, reason = "a foreign interface; every use says why it is sound")]

use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    fs::File,
    io::BufWriter,
    os::fd::AsRawFd,
    path::Path,
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use flyball_silicon::Silicon;

use crate::{
    api::{
        ADD, ALL_REGISTERS, ANY_ACCESS, AT_LEAST, Api, ByteArray, Field, Info, NO_REGISTERS,
        RegisterDescription,
    },
    chip::{Chip, Mailbox},
    clock::{Clock, Hooks},
    layout,
    machine::Wanted,
    punit,
    scheduler::{LIMIT, Machine, Next, Scheduler, Slice},
    serve,
    settings::{Settings, Time},
    vfio_user::Connection,
};

/// The version of the plug-in interface that this is written for.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 7;

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

/// Everything.
struct Plugin {
    api: Api,
    settings: Settings,
    state: Mutex<State>,
    cpus: Vec<Cpu>,
    /// The table of counters.
    score: usize,
    time_control: usize,
    clock: OnceLock<Clock>,
    /// The guest's clock for QEMU's other threads, ns.
    published: AtomicI64,
    idle: (Mutex<u64>, Condvar),
    start: Instant,
}

/// What changes.
struct State {
    chip: Chip,
    scheduler: Scheduler,
    open: Open,
    /// The counts when the machine was switched off.
    off: Option<String>,
}

/// Open loop: who is running since when.
struct Open {
    told: u64,
    running_since: Vec<Option<u64>>,
    busy: Vec<u64>,
}

/// A CPU's handles.
struct Cpu {
    handles: OnceLock<Handles>,
    tsc_aux: AtomicU32,
}

/// Pointers that QEMU gave for one CPU and that are used on that CPU's thread alone.
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

// SAFETY: the register handles and the buffer are used in callbacks of their own CPU, which QEMU runs one at a time. The
// counter is written by that CPU's thread; with one thread for all CPUs that is the only one.
unsafe impl Send for Handles {}
// SAFETY: as above.
unsafe impl Sync for Handles {}

impl Machine for Chip {
    fn advance(&mut self, dt_ns: u64, busy_ns: &[u64]) {
        Chip::advance(self, dt_ns, busy_ns.iter().copied());
    }

    fn khz(&self, cpu: usize) -> u64 {
        Chip::khz(self, cpu)
    }
}

thread_local! {
    /// Set on the threads that may see the time within a slice.
    static SEES_SLICES: Cell<bool> = const { Cell::new(false) };
}

/// How far QEMU's main thread sees the clock behind, so that it never runs one of the guest's timers itself.
const LAG: i64 = 1_000_000;
/// The most idle time that is skipped at once, ns.
const JUMP: u64 = 2_000_000;

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

    fn write(&self, handles: &Handles, register: *mut c_void, value: u32) {
        // SAFETY: as in `read`; the array has been made eight bytes long before they are written.
        unsafe {
            (self.api.g_byte_array_set_size)(handles.buffer, 8);
            let bytes = u64::from(value).to_le_bytes();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), (*handles.buffer).data, 8);
            (self.api.qemu_plugin_write_register)(register, handles.buffer);
        }
    }

    /// EDX:EAX.
    fn write_pair(&self, handles: &Handles, value: u64) {
        self.write(handles, handles.ax, value as u32);
        self.write(handles, handles.dx, (value >> 32) as u32);
    }

    /// The address after an instruction. A block may have been translated at another address than the one it runs at
    /// (the same page, mapped twice): the page is that of the instruction pointer, which QEMU has set to this block or
    /// a later instruction of it; the offset in the page is that of the translation.
    fn after(&self, handles: &Handles, at: u64, length: u64) -> u64 {
        let ip = self.read(handles, handles.ip);
        ip.wrapping_add(at.wrapping_sub(ip) & 0xfff).wrapping_add(length)
    }

    fn counter(&self, cpu: usize) -> u64 {
        self.handles(cpu).map_or(LIMIT, |handles| {
            // SAFETY: QEMU's table has an entry for every CPU and lives as long as the plug-in.
            unsafe { handles.counter.read() }
        })
    }

    fn set_counter(&self, cpu: usize, value: u64) {
        if let Some(handles) = self.handles(cpu) {
            // SAFETY: as above.
            unsafe { handles.counter.write(value) }
        }
    }

    fn leave(&self, cpu: usize) {
        self.set_counter(cpu, LIMIT);
        if let (Some(handles), Some(clock)) = (self.handles(cpu), self.clock.get()) {
            // SAFETY: the CPU is the one that QEMU gave for this index.
            unsafe { (clock.cpu_exit)(handles.cpu) }
        }
    }

    /// Guest time for a CPU and what it has executed that the silicon does not know of, ns. In the open loop the
    /// silicon is brought up to date first if that is some time ago.
    fn now(&self, state: &mut State, cpu: usize, least_ns: u64) -> (u64, u64) {
        match self.settings.time {
            Time::Closed => {
                let counter = self.counter(cpu);
                (state.scheduler.time_of(cpu, counter), state.scheduler.untold(cpu, counter))
            }
            Time::Open => {
                let now = self.start.elapsed().as_nanos() as u64;
                if now.saturating_sub(state.open.told) >= least_ns {
                    state.catch_up(now);
                }
                let since = state.open.running_since.get(cpu).copied().flatten();
                let untold = since.map_or(0, |since| now.saturating_sub(since.max(state.open.told)));
                (now, untold + state.open.busy.get(cpu).copied().unwrap_or(0))
            }
        }
    }

    fn tsc(&self, cpu: usize) -> u64 {
        let mut state = self.state();
        let (now, _) = self.now(&mut state, cpu, u64::MAX);
        state.chip.tsc(now)
    }

    fn rdtsc(&self, cpu: usize, at: u64, with_aux: bool) -> Option<u64> {
        let handles = self.handles(cpu)?;
        let tsc = self.tsc(cpu);
        if with_aux {
            self.write(handles, handles.cx, self.cpus[cpu].tsc_aux.load(Ordering::Relaxed));
        }
        self.write_pair(handles, tsc);
        Some(self.after(handles, at, if with_aux { 3 } else { 2 }))
    }

    fn rdmsr(&self, cpu: usize, at: u64) -> Option<u64> {
        let handles = self.handles(cpu)?;
        let register = self.read(handles, handles.cx) as u32;
        if register == 0x10 {
            return self.rdtsc(cpu, at, false);
        }
        let value = {
            let mut state = self.state();
            let (_, untold) = self.now(&mut state, cpu, 100_000);
            state.chip.read_msr(cpu, register, untold)?
        };
        self.write_pair(handles, value);
        Some(self.after(handles, at, 2))
    }

    fn wrmsr(&self, cpu: usize, at: u64) -> Option<u64> {
        let handles = self.handles(cpu)?;
        let register = self.read(handles, handles.cx) as u32;
        let low = self.read(handles, handles.ax) & 0xffff_ffff;
        let value = low | self.read(handles, handles.dx) << 32;
        match register {
            // TSC_AUX, which RDTSCP gives; QEMU keeps its own as well.
            0xc000_0103 => self.cpus[cpu].tsc_aux.store(low as u32, Ordering::Relaxed),
            // The APIC as registers: perhaps an interrupt for another CPU.
            0x800..=0x83f => self.interrupts_sent(cpu),
            _ => {}
        }
        {
            let mut state = self.state();
            let (now, _) = self.now(&mut state, cpu, 0);
            if !state.chip.write_msr(cpu, register, value, now) {
                return None;
            }
        }
        Some(self.after(handles, at, 2))
    }

    fn cpuid(&self, cpu: usize, at: u64) -> Option<u64> {
        let handles = self.handles(cpu)?;
        let leaf = self.read(handles, handles.ax) as u32;
        let subleaf = self.read(handles, handles.cx) as u32;
        // QEMU 11 ends with a failed assertion when leaf 1Fh, or a leaf that it does not know and takes for its
        // highest, is asked with a large subleaf.
        if (0x1f..0x8000_0000).contains(&leaf) && subleaf > 5 {
            self.write(handles, handles.cx, 5);
        }
        let [ax, bx, cx, dx] = self.state().chip.cpuid(cpu, leaf, subleaf)?;
        for (register, value) in [(handles.ax, ax), (handles.bx, bx), (handles.cx, cx), (handles.dx, dx)] {
            self.write(handles, register, value);
        }
        Some(self.after(handles, at, 2))
    }

    fn port(&self, cpu: usize, at: u64, write: bool) -> Option<u64> {
        let handles = self.handles(cpu)?;
        let port = self.read(handles, handles.dx) as u16;
        if !(layout::PORTS..layout::PORTS + layout::MAX_CPUS as u16).contains(&port) {
            return None;
        }
        let ax = self.read(handles, handles.ax);
        let read = {
            let mut state = self.state();
            let (now, _) = self.now(&mut state, cpu, 0);
            if write {
                state.chip.write_port(cpu, port, ax as u8, now).then_some(None)?
            } else {
                Some(state.chip.read_port(port)?)
            }
        };
        if let Some(value) = read {
            self.write(handles, handles.ax, (ax as u32) & !0xff | u32::from(value));
        }
        Some(self.after(handles, at, 1))
    }

    /// A message of QEMU's to a PCI function. The CPU that has caused it waits, so that in the closed loop no time passes;
    /// what it has executed in its slice the silicon learns at the slice's end, as with register writes.
    fn pci(
        &self,
        connection: &mut Connection,
        bytes: &[u8],
        function: &mut punit::Function,
    ) -> Option<Vec<u8>> {
        let state = &mut *self.state();
        if self.settings.time == Time::Open {
            state.catch_up(self.start.elapsed().as_nanos() as u64);
        }
        state.chip.pci(connection, bytes, function)
    }

    /// The closed loop's question: see [`Scheduler::limit_reached`]. `Some`: the block at `at` is not to be executed now; it
    /// is where to go on later.
    fn limit(&self, cpu: usize, at: u64) -> Option<u64> {
        SEES_SLICES.set(true);
        let next = {
            let state = &mut *self.state();
            let counter = self.counter(cpu);
            let next =
                state.scheduler.limit_reached(&mut state.chip, cpu, counter, |other| self.counter(other));
            self.publish(state);
            next
        };
        let slice = match next {
            Next::Run(counter) => Slice::Run(counter),
            Next::Leave => Slice::Leave,
            Next::AskForTimers => {
                let deadline = self.clock.get().and_then(Clock::deadline);
                let state = &mut *self.state();
                let slice = state.scheduler.slice_over(&mut state.chip, cpu, deadline);
                self.publish(state);
                slice
            }
        };
        match slice {
            Slice::Run(counter) => self.set_counter(cpu, counter),
            Slice::Leave => {
                self.leave(cpu);
                return self.handles(cpu).map(|handles| self.after(handles, at, 0));
            }
            Slice::MoveClock(ns) => {
                self.set_counter(cpu, LIMIT);
                // SAFETY: the handle is the one that QEMU gave to this plug-in.
                unsafe { (self.api.qemu_plugin_update_ns)(self.time_control as *const c_void, ns as i64) }
                // The clock moves when this CPU has left its loop, which it has been told to; until then nothing runs.
                return self.handles(cpu).map(|handles| self.after(handles, at, 0));
            }
        }
        None
    }

    /// A 16-bit write to a port: the one by which the machine is switched off ends the logs and the counts, because the
    /// emulator takes its own time until it stops. QEMU gets it in any case.
    fn out_word(&self, cpu: usize) -> Option<u64> {
        /// PM1a control of q35 (ICH9's power management at 600h, which SeaBIOS sets), and its sleep enable bit.
        const CONTROL: u64 = 0x604;
        const SLEEP_ENABLE: u64 = 1 << 13;
        let handles = self.handles(cpu)?;
        let (port, value) = (self.read(handles, handles.dx) & 0xffff, self.read(handles, handles.ax));
        if port == CONTROL && value & SLEEP_ENABLE != 0 {
            let state = &mut *self.state();
            let counts = self.counts(state);
            state.off.get_or_insert(counts);
            state.chip.end();
        }
        None
    }

    /// What is reported at the end.
    fn counts(&self, state: &State) -> String {
        let packages = state.chip.silicon().topology().packages();
        let joules: f64 = (0..packages).map(|package| state.chip.silicon().energy_joules(package)).sum();
        let counts = state.scheduler.counts;
        format!(
            "guest_ns={} instructions={} joules={joules:.6} slices={} turns={} timers={} jumps={} stuck={} refused={}",
            if self.settings.time == Time::Closed { state.scheduler.clock() } else { state.open.told },
            state.scheduler.instructions(),
            counts.slices,
            counts.turns,
            counts.timers,
            counts.jumps,
            counts.stuck,
            state.chip.refused,
        )
    }

    /// The question at a block that begins with a repeated string instruction. Such an instruction is left and entered
    /// again when the host interrupts, so a CPU in its slice is not asked here, wherever its counter is: after the
    /// instruction it will be.
    fn limit_in_string(&self, cpu: usize, at: u64) -> Option<u64> {
        let goes_on = self.state().scheduler.current() == Some(cpu);
        if goes_on { None } else { self.limit(cpu, at) }
    }

    fn pause(&self, cpu: usize) {
        if self.state().scheduler.pause(cpu, self.counter(cpu)) {
            self.set_counter(cpu, LIMIT);
        }
    }

    fn publish(&self, state: &State) {
        self.published.store(state.scheduler.clock() as i64, Ordering::Release);
    }

    fn halt(&self, cpu: usize) {
        let all = self.state().scheduler.halt(cpu, self.counter(cpu));
        self.set_counter(cpu, LIMIT);
        if all {
            let mut count = self.idle.0.lock().unwrap_or_else(PoisonError::into_inner);
            *count += 1;
            self.idle.1.notify_one();
        }
    }

    fn interrupts_sent(&self, cpu: usize) {
        if self.settings.time == Time::Closed
            && self.state().scheduler.interrupts_sent(cpu, self.counter(cpu))
        {
            self.set_counter(cpu, LIMIT);
        }
    }

    fn clock_get(&self) -> i64 {
        let published = self.published.load(Ordering::Acquire);
        if !SEES_SLICES.get() {
            return (published - LAG).max(0);
        }
        self.state().scheduler.clock_for_cpus(|cpu| self.counter(cpu)) as i64
    }

    fn clock_set(&self, ns: i64) {
        let state = &mut *self.state();
        state.scheduler.move_clock(&mut state.chip, ns.max(0) as u64);
        self.publish(state);
    }

    /// A thread of its own: when all CPUs are halted, time goes to the next timer.
    fn jump_when_idle(&self) {
        SEES_SLICES.set(true);
        let mut seen = 0;
        loop {
            {
                let mut count = self.idle.0.lock().unwrap_or_else(PoisonError::into_inner);
                while *count == seen {
                    count = self.idle.1.wait(count).unwrap_or_else(PoisonError::into_inner);
                }
                seen = *count;
            }
            loop {
                // What the host has to say to the guest gets a moment before the time is skipped.
                thread::sleep(Duration::from_micros(50));
                let Some(clock) = self.clock.get() else { break };
                let (idle, armed) =
                    clock.jump_if_idle(|deadline| self.state().scheduler.jump(deadline, JUMP));
                if !self.state().scheduler.all_halted() {
                    break;
                }
                if !armed {
                    thread::sleep(Duration::from_micros(if idle { 500 } else { 20 }));
                }
            }
        }
    }

    /// A CPU is there.
    fn cpu_is_there(&'static self, cpu: usize) -> Result<(), String> {
        let slot = self.cpus.get(cpu).ok_or("more CPUs than were announced")?;
        let closed = self.settings.time == Time::Closed;
        let mut found = Handles {
            ax: std::ptr::null_mut(),
            bx: std::ptr::null_mut(),
            cx: std::ptr::null_mut(),
            dx: std::ptr::null_mut(),
            ip: std::ptr::null_mut(),
            buffer: std::ptr::null_mut(),
            counter: std::ptr::null_mut(),
            cpu: std::ptr::null_mut(),
        };
        // SAFETY: QEMU's array of descriptions, each of the size that glib says; names are C strings that live as long
        // as the CPU.
        unsafe {
            let registers = (self.api.qemu_plugin_get_registers)();
            let size = (self.api.g_array_get_element_size)(registers) as usize;
            for index in 0..(*registers).len as usize {
                let description = &*(*registers).data.add(index * size).cast::<RegisterDescription>();
                match CStr::from_ptr(description.name).to_bytes() {
                    b"rax" => found.ax = description.handle,
                    b"rbx" => found.bx = description.handle,
                    b"rcx" => found.cx = description.handle,
                    b"rdx" => found.dx = description.handle,
                    b"rip" => found.ip = description.handle,
                    _ => {}
                }
            }
            found.buffer = (self.api.g_byte_array_new)();
            found.counter =
                (self.api.qemu_plugin_scoreboard_find)(self.score as *mut c_void, cpu as c_uint).cast();
            found.counter.write(LIMIT);
        }
        if [found.ax, found.bx, found.cx, found.dx, found.ip].iter().any(|handle| handle.is_null()) {
            return Err("the CPU has no registers rax, rbx, rcx, rdx and rip".into());
        }
        if closed {
            let clock = match self.clock.get() {
                Some(clock) => clock,
                None => {
                    let taken = Clock::take(Hooks { get: clock_get, set: clock_set })?;
                    let clock = self.clock.get_or_init(|| taken);
                    thread::Builder::new()
                        .name("flyball-idle".into())
                        .spawn(|| Plugin::get().jump_when_idle())
                        .map_err(|e| format!("cannot start a thread: {e}"))?;
                    clock
                }
            };
            // SAFETY: QEMU's own functions with this CPU's index. With one thread QEMU takes it that there is one
            // CPU, and writes the index of the CPU that translates a block into its callbacks as a constant; blocks
            // made for CPUs in parallel look the index up.
            unsafe {
                found.cpu = (clock.qemu_get_cpu)(cpu as c_int);
                if found.cpu.is_null() {
                    return Err("QEMU does not know its CPU".into());
                }
                (clock.tcg_cpu_init_cflags)(found.cpu, true);
            }
        }
        let _ = slot.handles.set(found);
        if !closed {
            let now = self.start.elapsed().as_nanos() as u64;
            self.state().open.running_since[cpu] = Some(now);
        }
        Ok(())
    }

    /// Open loop: a CPU begins or ends to wait.
    fn waits(&self, cpu: usize, waits: bool) {
        let now = self.start.elapsed().as_nanos() as u64;
        let open = &mut self.state().open;
        let told = open.told;
        let Some(since) = open.running_since.get_mut(cpu) else { return };
        match (waits, *since) {
            (true, Some(start)) => {
                open.busy[cpu] += now.saturating_sub(start.max(told));
                *since = None;
            }
            (false, None) => *since = Some(now),
            _ => {}
        }
    }

    /// Puts callbacks into a block that is being translated.
    fn translate(&self, block: *mut c_void) {
        let closed = self.settings.time == Time::Closed;
        let field = Field { score: self.score as *mut c_void, offset: 0 };
        // SAFETY: the block and its instructions are valid during this callback, and the functions are called with
        // what they document.
        unsafe {
            let count = (self.api.qemu_plugin_tb_n_insns)(block);
            let mut strings = 0;
            let mut begins_with_string = false;
            for index in 0..count {
                let instruction = (self.api.qemu_plugin_tb_get_insn)(block, index);
                let length = (self.api.qemu_plugin_insn_size)(instruction);
                let mut bytes = [0u8; 15];
                let length = length.min(15);
                (self.api.qemu_plugin_insn_data)(instruction, bytes.as_mut_ptr().cast(), length);
                let at = (self.api.qemu_plugin_insn_vaddr)(instruction) as *mut c_void;
                let on = |callback, registers| {
                    (self.api.qemu_plugin_register_vcpu_insn_exec_cb)(instruction, callback, registers, at);
                };
                match kind(&bytes[..length]) {
                    Kind::ReadTsc => on(on_rdtsc, ALL_REGISTERS),
                    Kind::ReadTscAndAux => on(on_rdtscp, ALL_REGISTERS),
                    Kind::ReadMsr => on(on_rdmsr, ALL_REGISTERS),
                    Kind::WriteMsr => on(on_wrmsr, ALL_REGISTERS),
                    Kind::Cpuid => on(on_cpuid, ALL_REGISTERS),
                    Kind::In => on(on_in, ALL_REGISTERS),
                    Kind::Out => on(on_out, ALL_REGISTERS),
                    Kind::OutWord => on(on_out_word, ALL_REGISTERS),
                    Kind::Halt if closed => on(on_halt, NO_REGISTERS),
                    Kind::Apic if closed => on(on_apic, NO_REGISTERS),
                    // PAUSE waits about as long as a hundred other instructions take.
                    Kind::Pause if closed => {
                        (self.api.qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu)(
                            instruction,
                            ADD,
                            field,
                            100,
                        );
                        on(on_pause, NO_REGISTERS);
                    }
                    // A repeated string instruction is entered again whenever something has made the CPU leave its
                    // loop, at the host's whim: it counts by its memory accesses.
                    Kind::RepeatedString if closed => {
                        strings += 1;
                        begins_with_string |= index == 0;
                        (self.api.qemu_plugin_register_vcpu_mem_inline_per_vcpu)(
                            instruction,
                            ANY_ACCESS,
                            ADD,
                            field,
                            1,
                        );
                    }
                    _ => {}
                }
            }
            if closed {
                (self.api.qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu)(
                    block,
                    ADD,
                    field,
                    (count - strings) as u64,
                );
                (self.api.qemu_plugin_register_vcpu_tb_exec_cond_cb)(
                    block,
                    if begins_with_string { on_limit_in_string } else { on_limit },
                    ALL_REGISTERS,
                    AT_LEAST,
                    field,
                    LIMIT,
                    (self.api.qemu_plugin_insn_vaddr)((self.api.qemu_plugin_tb_get_insn)(block, 0))
                        as *mut c_void,
                );
            }
        }
    }
}

impl State {
    /// Open loop: the silicon up to the host's time.
    fn catch_up(&mut self, now: u64) {
        let passed = now.saturating_sub(self.open.told);
        if passed == 0 {
            return;
        }
        let Open { told, running_since, busy } = &mut self.open;
        for (busy, since) in busy.iter_mut().zip(running_since.iter()) {
            if let Some(since) = since {
                *busy += now.saturating_sub((*since).max(*told));
            }
        }
        *told = now;
        self.chip.advance(passed, busy.iter().copied());
        busy.fill(0);
    }
}

/// What an instruction is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ReadTsc,
    ReadTscAndAux,
    OutWord,
    ReadMsr,
    WriteMsr,
    Cpuid,
    In,
    Out,
    Halt,
    Apic,
    Pause,
    RepeatedString,
    Other,
}

/// Looks at an instruction's bytes.
fn kind(bytes: &[u8]) -> Kind {
    match bytes {
        [0x0f, 0x31] => Kind::ReadTsc,
        [0x0f, 0x32] => Kind::ReadMsr,
        [0x0f, 0x30] => Kind::WriteMsr,
        [0x0f, 0xa2] => Kind::Cpuid,
        [0x0f, 0x01, 0xf9] => Kind::ReadTscAndAux,
        [0xf4] => Kind::Halt,
        [0xec] => Kind::In,
        [0xee] => Kind::Out,
        [0x66, 0xef] => Kind::OutWord,
        [0xf3, 0x90] => Kind::Pause,
        // mov %reg,disp32(%reg) with the kernel's fixed mapping of the APIC as displacement (FIX_APIC_BASE,
        // 0xffffffffff5fXXXX). Where another kernel has it elsewhere, wake-ups across CPUs come a slice late.
        [0x89, modrm, _, _, 0x5f, 0xff] | [0x40..=0x4f, 0x89, modrm, _, _, 0x5f, 0xff] if modrm >> 6 == 2 => {
            Kind::Apic
        }
        _ => {
            let prefix = |byte: &u8| matches!(byte, 0xf2 | 0xf3 | 0x66 | 0x67 | 0x40..=0x4f);
            let at = bytes.iter().take_while(|byte| prefix(byte)).count();
            let repeated = bytes[..at].iter().any(|byte| matches!(byte, 0xf2 | 0xf3));
            match &bytes[at..] {
                [0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf] if repeated => Kind::RepeatedString,
                _ => Kind::Other,
            }
        }
    }
}

macro_rules! answered {
    ($($callback:ident: |$plugin:ident, $cpu:ident, $at:ident| $answer:expr;)*) => {$(
        extern "C" fn $callback($cpu: c_uint, $at: *mut c_void) {
            let $plugin = Plugin::get();
            let ($cpu, $at) = ($cpu as usize, $at as u64);
            let next: Option<u64> = $answer;
            if let Some(next) = next {
                // SAFETY: allowed in a callback that was registered with all registers. It does not return; the frame
                // holds numbers and references to what lives for ever.
                unsafe { ($plugin.api.qemu_plugin_set_pc)(next) }
            }
        }
    )*};
}

answered! {
    on_rdtsc: |plugin, cpu, at| plugin.rdtsc(cpu, at, false);
    on_rdtscp: |plugin, cpu, at| plugin.rdtsc(cpu, at, true);
    on_rdmsr: |plugin, cpu, at| plugin.rdmsr(cpu, at);
    on_wrmsr: |plugin, cpu, at| plugin.wrmsr(cpu, at);
    on_cpuid: |plugin, cpu, at| plugin.cpuid(cpu, at);
    on_in: |plugin, cpu, at| plugin.port(cpu, at, false);
    on_out: |plugin, cpu, at| plugin.port(cpu, at, true);
    on_out_word: |plugin, cpu, _at| plugin.out_word(cpu);
    on_limit: |plugin, cpu, at| plugin.limit(cpu, at);
    on_limit_in_string: |plugin, cpu, at| plugin.limit_in_string(cpu, at);
}

extern "C" fn on_pause(cpu: c_uint, _: *mut c_void) {
    Plugin::get().pause(cpu as usize);
}

extern "C" fn on_halt(cpu: c_uint, _: *mut c_void) {
    Plugin::get().halt(cpu as usize);
}

extern "C" fn on_apic(cpu: c_uint, _: *mut c_void) {
    Plugin::get().interrupts_sent(cpu as usize);
}

extern "C" fn on_idle(cpu: c_uint, _: *mut c_void) {
    Plugin::get().waits(cpu as usize, true);
}

extern "C" fn on_resume(cpu: c_uint, _: *mut c_void) {
    Plugin::get().waits(cpu as usize, false);
}

extern "C" fn on_translation(block: *mut c_void, _: *mut c_void) {
    Plugin::get().translate(block);
}

extern "C" fn on_cpu(cpu: c_uint, _: *mut c_void) {
    if let Err(why) = Plugin::get().cpu_is_there(cpu as usize) {
        eprintln!("flyball: this QEMU cannot be used: {why}");
        std::process::exit(3);
    }
}

extern "C" fn clock_get() -> i64 {
    Plugin::get().clock_get()
}

extern "C" fn clock_set(ns: i64) {
    Plugin::get().clock_set(ns);
}

extern "C" fn on_exit(_: *mut c_void) {
    let plugin = Plugin::get();
    let mut state = plugin.state();
    state.chip.end();
    let counts = state.off.take().unwrap_or_else(|| plugin.counts(&state));
    eprintln!("flyball: {counts}");
}

/// Maps the mailbox out of the file that is the guest's memory.
fn map_mailbox(memory: &Path) -> Result<Mailbox, String> {
    let error = |e: std::io::Error| format!("cannot map the mailbox in {}: {e}", memory.display());
    let file = File::options().read(true).write(true).open(memory).map_err(error)?;
    let size = layout::MAILBOX_RESERVED as usize;
    if file.metadata().map_err(error)?.len() < layout::MAILBOX + layout::MAILBOX_RESERVED {
        return Err("the guest has too little memory for the mailbox".into());
    }
    // SAFETY: a new mapping of our own; the file is at least that long and is not made shorter while QEMU lives.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            layout::MAILBOX as libc::off_t,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(error(std::io::Error::last_os_error()));
    }
    // SAFETY: the mapping stays for ever, is aligned to a page, and its words are only used as atomics here; what the
    // guest writes at the same time is a value like any other.
    Ok(unsafe { std::slice::from_raw_parts(address.cast::<AtomicU64>(), size / 8) })
}

fn install(id: u64, info: &Info, arguments: &[&str]) -> Result<(), String> {
    let settings = Settings::parse(arguments.iter().copied())?;
    if !info.system_emulation {
        return Err("this is no system emulator".into());
    }
    let api =
        Api::load().map_err(|name| format!("it has no {name} (QEMU 11.1 is the first that will do)"))?;
    let toml = std::fs::read_to_string(&settings.machine)
        .map_err(|e| format!("cannot read {}: {e}", settings.machine.display()))?;
    let (spec, layout) = Wanted { toml, cpus: settings.cpus, interface: settings.interface }.make()?;
    let cpus = layout.cpus() as usize;
    if usize::try_from(info.cpus[0]) != Ok(cpus) {
        return Err(format!("the machine has {cpus} CPUs and the emulator {}", info.cpus[0]));
    }
    let share = (spec.core[0].smt_share * 1024.0) as u64;
    let places = if settings.sockets.is_some() { punit::places(&spec) } else { Vec::new() };
    let silicon = Silicon::new(spec, settings.seed).map_err(|e| e.to_string())?;
    let functions: Vec<_> =
        places.into_iter().map(|place| (place, punit::Function::new(place, &silicon))).collect();
    let mailbox = settings.memory.as_deref().map(map_mailbox).transpose()?;
    let mut chip = Chip::new(silicon, mailbox);
    let create = |path: &Path| {
        let file = File::create(path).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok::<_, String>(Box::new(BufWriter::new(file)))
    };
    if let Some(path) = &settings.log {
        chip.log_to(create(path)?);
    }
    if let Some(path) = &settings.trace {
        chip.trace_to(create(path)?);
    }
    // SAFETY: called during installation, as the interface wants; the entry of a CPU is one counter.
    let (score, time_control) = unsafe {
        let score = (api.qemu_plugin_scoreboard_new)(8) as usize;
        let closed = settings.time == Time::Closed;
        (score, if closed { (api.qemu_plugin_request_time_control)() as usize } else { 1 })
    };
    if time_control == 0 {
        return Err("it does not let go of its clock".into());
    }
    let scheduler = Scheduler::new(cpus, settings.cycles, settings.slice_ns, layout.threads as usize, share);
    let open = Open { told: 0, running_since: vec![None; cpus], busy: vec![0; cpus] };
    let plugin = Plugin {
        api,
        state: Mutex::new(State { chip, scheduler, open, off: None }),
        cpus: (0..cpus).map(|_| Cpu { handles: OnceLock::new(), tsc_aux: AtomicU32::new(0) }).collect(),
        score,
        time_control,
        clock: OnceLock::new(),
        published: AtomicI64::new(0),
        idle: (Mutex::new(0), Condvar::new()),
        start: Instant::now(),
        settings,
    };
    let plugin = PLUGIN.get_or_init(|| plugin);
    for (place, function) in functions {
        let dir = plugin.settings.sockets.as_deref().unwrap_or(Path::new("."));
        serve::start(dir, place, function, |connection, bytes, function| {
            Plugin::get().pci(connection, bytes, function)
        })?;
    }
    let none = std::ptr::null_mut();
    // SAFETY: the callbacks live as long as the process, and take what the interface's version 7 gives them.
    unsafe {
        (plugin.api.qemu_plugin_register_vcpu_init_cb)(id, on_cpu, none);
        (plugin.api.qemu_plugin_register_vcpu_tb_trans_cb)(id, on_translation, none);
        if plugin.settings.time == Time::Open {
            (plugin.api.qemu_plugin_register_vcpu_idle_cb)(id, on_idle, none);
            (plugin.api.qemu_plugin_register_vcpu_resume_cb)(id, on_resume, none);
        }
        (plugin.api.qemu_plugin_register_atexit_cb)(id, on_exit, none);
    }
    Ok(())
}

/// QEMU calls this when it has loaded the plug-in.
///
/// # Safety
/// As QEMU's interface says: `info` is valid, `argv` has `argc` C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: see above.
    let (info, arguments) = unsafe {
        let words = (0..argc.max(0) as usize).map(|n| CStr::from_ptr(*argv.add(n)).to_str().unwrap_or(""));
        (&*info, words.collect::<Vec<_>>())
    };
    match install(id, info, &arguments) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("flyball: the plug-in cannot be used in this QEMU: {why}");
            -1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_known_by_their_bytes() {
        assert_eq!(kind(&[0x0f, 0x30]), Kind::WriteMsr);
        assert_eq!(kind(&[0x0f, 0x01, 0xf9]), Kind::ReadTscAndAux);
        assert_eq!(kind(&[0x89, 0xb7, 0x00, 0xd3, 0x5f, 0xff]), Kind::Apic);
        assert_eq!(kind(&[0x41, 0x89, 0xb4, 0x00, 0xd3, 0x5f, 0xff]), Kind::Apic);
        assert_eq!(kind(&[0xf3, 0xa4]), Kind::RepeatedString);
        assert_eq!(kind(&[0xf3, 0x48, 0xab]), Kind::RepeatedString);
        assert_eq!(kind(&[0xa4]), Kind::Other);
        assert_eq!(kind(&[0xf3, 0x90]), Kind::Pause);
        assert_eq!(kind(&[0xf3, 0xa8]), Kind::Other);
        assert_eq!(kind(&[]), Kind::Other);
    }
}
