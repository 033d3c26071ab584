//! From the time that QEMU loads the plug-in until its CPUs run: arguments, the silicon, the
//! mailbox, the callbacks, and the handles of each CPU.

#![allow(unsafe_code, reason = "QEMU's C interface")]
#![allow(clippy::cast_ptr_alignment, reason = "the emulator aligns its own structures")]

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    fs::File,
    io::BufWriter,
    os::fd::AsRawFd,
    path::Path,
    sync::{
        Condvar, Mutex, OnceLock,
        atomic::{AtomicI64, AtomicU32, AtomicU64},
    },
    thread,
    time::Instant,
};

use flyball_silicon::{Silicon, spec::InterfaceSpec};

use super::{
    Cpu, Handles, Open, PLUGIN, Plugin, State,
    callbacks::{clock_get, clock_set, on_cpu, on_exit, on_idle, on_resume, on_translation},
};
use crate::{
    api::{Api, Info, RegisterDescription},
    chip::Chip,
    clock::{Clock, Hooks},
    error::{MachineError, PluginError},
    layout,
    machine::Reduction,
    punit,
    scheduler::{LIMIT, Scheduler},
    serve,
    settings::{Settings, Time},
};

/// The version of the plug-in interface that the plug-in uses.
#[unsafe(no_mangle)]
pub(super) static qemu_plugin_version: c_int = 7;

/// Maps `size` bytes of the guest's memory file from `start` on, or everything from there.
fn map(memory: &Path, start: u64, size: Option<u64>) -> Result<&'static [AtomicU64], PluginError> {
    let error = |source| PluginError::File { what: "map", path: memory.to_owned(), source };
    let file = File::options().read(true).write(true).open(memory).map_err(error)?;
    let length = file.metadata().map_err(error)?.len();
    let size = size.unwrap_or_else(|| length.saturating_sub(start)) as usize;
    if size == 0 || length < start + size as u64 {
        return Err(PluginError::Memory);
    }
    // SAFETY: a new mapping of our own; the file is at least that long and is not made shorter
    // while QEMU lives.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            start as libc::off_t,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(error(std::io::Error::last_os_error()));
    }
    // SAFETY: the mapping stays for ever, is aligned to a page, and its words are only used as
    // atomics here; what the guest writes at the same time is a value like any other.
    Ok(unsafe { std::slice::from_raw_parts(address.cast::<AtomicU64>(), size / 8) })
}

fn install(id: u64, info: &Info, arguments: &[&str]) -> Result<(), PluginError> {
    let settings = Settings::parse(arguments.iter().copied())?;
    if !info.system_emulation {
        return Err(PluginError::NotSystem);
    }
    let api = Api::load()?;
    let toml = std::fs::read_to_string(&settings.machine).map_err(|source| PluginError::File {
        what: "read",
        path: settings.machine.clone(),
        source,
    })?;
    let (spec, layout) = Reduction { toml, cpus: settings.cpus, interface: settings.interface }.make()?;
    let cpus = layout.cpus() as usize;
    // The handles of CPUs are found by index: with another number of CPUs, the plug-in would use
    // the handles of the wrong CPU.
    if usize::try_from(info.cpus[0]) != Ok(cpus) {
        return Err(PluginError::Cpus { machine: cpus, emulator: info.cpus[0] });
    }
    // From the first kind of core: hybrid machines are reduced to one thread per core, or have
    // threads on all cores or none.
    let share = (spec.core[0].smt_share * 1024.0) as u64;
    let places = if settings.sockets.is_some() { punit::places(&spec) } else { Vec::new() };
    let silicon = Silicon::new(spec, settings.seed).map_err(MachineError::Spec)?;
    let functions: Vec<_> =
        places.into_iter().map(|place| (place, punit::Function::new(place, &silicon))).collect();
    let chip = chip(silicon, &settings)?;
    // SAFETY: called during installation, as the interface requires; the entry of a CPU is one
    // counter.
    let (score, time_control) = unsafe {
        let score = (api.qemu_plugin_scoreboard_new)(8) as usize;
        let closed = settings.time == Time::Closed;
        (score, if closed { (api.qemu_plugin_request_time_control)() as usize } else { 1 })
    };
    if time_control == 0 {
        return Err(PluginError::TimeControl);
    }
    let (cycles, memory_ps) = (settings.cycles, settings.class.memory_ps);
    let scheduler =
        Scheduler::new(cpus, cycles, memory_ps, settings.slice_ns, layout.threads as usize, share);
    let open = Open { advanced_to: 0, running_since: vec![None; cpus], busy: vec![0; cpus] };
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
    // Set this before registering callbacks, because they find the plug-in through this static.
    let plugin = PLUGIN.get_or_init(|| plugin);
    for (place, function) in functions {
        let dir = plugin.settings.sockets.as_deref().unwrap_or(Path::new("."));
        serve::start(dir, place, function, |connection, bytes, function| {
            Plugin::get().pci(connection, bytes, function)
        })?;
    }
    let none = std::ptr::null_mut();
    // SAFETY: the callbacks live as long as the process, and take what the interface's version 7
    // gives them.
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

/// Makes the silicon with the memory, workload class and logs from the settings.
fn chip(silicon: Silicon, settings: &Settings) -> Result<Chip, PluginError> {
    let firmware = &silicon.spec().firmware;
    let (has_mailbox, has_feedback) = (firmware.interface == InterfaceSpec::CppcShared, firmware.feedback);
    let memory = settings.memory.as_deref();
    let mailbox = memory
        .filter(|_| has_mailbox)
        .map(|memory| map(memory, layout::MAILBOX, Some(layout::MAILBOX_RESERVED)))
        .transpose()?;
    let mut chip = Chip::new(silicon, mailbox);
    if let Some(memory) = memory.filter(|_| has_feedback) {
        chip.set_memory(map(memory, 0, None)?);
    }
    chip.set_class(settings.class);
    if settings.faults {
        chip.make_breakable();
    }
    let create = |path: &Path| match File::create(path) {
        Ok(file) => Ok(Box::new(BufWriter::new(file))),
        Err(source) => Err(PluginError::File { what: "write", path: path.to_owned(), source }),
    };
    if let Some(path) = &settings.log {
        chip.log_to(create(path)?);
    }
    if let Some(path) = &settings.trace {
        chip.trace_to(create(path)?);
    }
    Ok(chip)
}

/// QEMU calls this after it has loaded the plug-in.
///
/// # Safety
/// As QEMU's interface says: `info` is valid, `argv` has `argc` C strings.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn qemu_plugin_install(
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

impl Plugin {
    /// Looks up the handles of a CPU that QEMU has created.
    pub(super) fn add_cpu(&'static self, cpu: usize) -> Result<(), PluginError> {
        let slot = self.cpus.get(cpu).ok_or(PluginError::ExtraCpu)?;
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
        // SAFETY: QEMU's array of descriptions, each of the size that glib says; names are C
        // strings that live as long as the CPU.
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
            // Set to the limit, so that the CPU calls the scheduler before its first instruction.
            found.counter.write(LIMIT);
        }
        if [found.ax, found.bx, found.cx, found.dx, found.ip].iter().any(|handle| handle.is_null()) {
            return Err(PluginError::Registers);
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
                        .map_err(PluginError::Thread)?;
                    clock
                }
            };
            // SAFETY: QEMU's own functions with this CPU's index. With one thread QEMU assumes one
            // CPU, and writes the index of the CPU that translates a block into its callbacks as a
            // constant; blocks made for CPUs in parallel look the index up.
            unsafe {
                found.cpu = (clock.qemu_get_cpu)(cpu as c_int);
                if found.cpu.is_null() {
                    return Err(PluginError::UnknownCpu(cpu));
                }
                (clock.tcg_cpu_init_cflags)(found.cpu, true);
            }
        }
        // QEMU creates every CPU only once.
        let _ = slot.handles.set(found);
        if !closed {
            let now = self.start.elapsed().as_nanos() as u64;
            self.state().open.running_since[cpu] = Some(now);
        }
        Ok(())
    }
}
