//! A simulated machine's interface: files, registers and a clock.

use std::time::Duration;

use flyball_silicon::{MachineSpec, Silicon, SpecError};
use flyball_text::Natural;

use crate::{
    errno::{Answer, Errno},
    fault::{Effect, Fault, Op},
    isst::{self, Caller},
    kernel::Kernel,
    load::Load,
    tree::{self, Dir, Node, tracefs},
    world::{Boot, World},
};

/// Time that a system call takes on the machine, in nanoseconds (measured on sysfs files: 2.0 to
/// 2.5 us).
const CALL_NS: u64 = 2_300;

/// The kind of file at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Directory,
    /// A file, with its permission bits.
    File(u16),
    /// A symbolic link, with its target.
    Link(String),
    /// `/dev/cpu/N/msr`: the file offset is the register.
    Msr(u32),
    /// A file whose contents are gone once they are read, with its permission bits: see
    /// [`SimMachine::take`].
    Stream(u16),
}

/// A simulated machine. It has its own clock, which moves only by [`SimMachine::advance`] and, by a
/// few microseconds, with each access.
pub struct SimMachine {
    world: World,
    load: Option<Box<dyn Load>>,
    faults: Vec<Fault>,
    /// An access that a fault makes: it sets off no faults itself.
    in_fault: bool,
}

impl std::fmt::Debug for SimMachine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimMachine").field("name", &self.world.name).finish_non_exhaustive()
    }
}

impl SimMachine {
    pub fn boot(spec: MachineSpec, kernel: Kernel, boot: Boot, seed: u64) -> Result<SimMachine, SpecError> {
        Ok(SimMachine::from_world(World::boot(spec, kernel, boot, seed)?))
    }

    pub(crate) fn from_world(world: World) -> SimMachine {
        SimMachine { world, load: None, faults: Vec::new(), in_fault: false }
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// Boots the machine again: nothing that was set is left, nothing runs, and its clock starts
    /// again. Faults stay.
    pub fn reboot(&mut self) {
        let spec = self.silicon().spec().clone();
        // What was booted once can be booted again.
        if let Ok(world) = World::boot(spec, self.kernel(), self.world.boot.clone(), 0) {
            self.world = world;
            self.load = None;
        }
    }

    /// The machine's name, without `sim:`.
    pub fn name(&self) -> &str {
        &self.world.name
    }

    /// A one-line description.
    pub fn title(&self) -> &str {
        &self.world.title
    }

    pub fn kernel(&self) -> Kernel {
        self.world.platform.kernel
    }

    /// The processors, for physics that no file shows.
    pub fn silicon(&self) -> &Silicon {
        self.world.platform.chip.silicon()
    }

    /// The processors, to change the world around them: air, fans.
    pub fn silicon_mut(&mut self) -> &mut Silicon {
        self.world.platform.chip.silicon_mut()
    }

    /// The answer of CPU 0 to CPUID.
    pub fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        crate::cpuid::answer(self.silicon(), leaf, subleaf, 0)
    }

    /// Returns whether a CPU exists and is online.
    pub fn is_online(&self, cpu: u32) -> bool {
        self.world.is_online(cpu)
    }

    pub fn inject(&mut self, fault: Fault) {
        self.faults.push(fault);
        // A fault that is due at boot has happened before the first access.
        self.pass(self.world.platform.now);
    }

    /// Removes all faults and returns them with their counts. Their effects so far remain.
    pub fn take_faults(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.faults)
    }

    /// Returns what a fault names that this machine does not have now: a file that no path matches
    /// (it may come with another driver), or a CPU.
    pub fn lacks(&mut self, fault: &Fault) -> Option<String> {
        let (paths, cpus) = fault.names();
        // Copied: looking for a path needs the machine.
        let (paths, cpus): (Vec<String>, Vec<u32>) =
            (paths.into_iter().map(str::to_owned).collect(), cpus.to_vec());
        let count = self.world.platform.board.cpus();
        if let Some(cpu) = cpus.into_iter().find(|&cpu| cpu >= count) {
            return Some(format!("CPU {cpu}: it has 0-{}", count.saturating_sub(1)));
        }
        paths.into_iter().find(|path| !self.matches(path)).map(|path| format!("file {path}"))
    }

    /// Returns whether a path with `*` in it matches anything.
    fn matches(&self, pattern: &str) -> bool {
        // One folder level at a time: a pattern's star stands for names, never for a slash.
        let mut found = vec![String::new()];
        for part in pattern.split('/').filter(|part| !part.is_empty()) {
            let mut next = Vec::new();
            for base in &found {
                if !part.contains('*') {
                    next.push(format!("{base}/{part}"));
                    continue;
                }
                let path = if base.is_empty() { "/" } else { base };
                let Ok(Node::Dir(dir)) = tree::resolve(&self.world, path, true) else { continue };
                let names = tree::list(&self.world, dir);
                let fits =
                    names.iter().filter(|name| crate::fault::matches(part.as_bytes(), name.as_bytes()));
                next.extend(fits.map(|name| format!("{base}/{name}")));
            }
            found = next;
        }
        found.iter().any(|path| self.exists(path))
    }

    /// Varies a machine that has just booted, as runs on a real one vary: the air's temperature,
    /// the heat left from earlier work, and where in its periods the run begins, by the amounts in
    /// its description. The same seed gives the same run.
    pub fn vary(&mut self, seed: u64) {
        // "machine!": another sequence than the workload's, which is seeded with the same number.
        let mut noise = crate::workload::Noise::new(seed ^ 0x6d61_6368_696e_6521);
        let spec = self.silicon().spec();
        let (variation, tdp, idle) = (spec.variation.clone(), spec.power.tdp_w, spec.power.uncore_idle_w);
        let air = spec.thermal.ambient_c + variation.ambient_c * noise.normal();
        let silicon = self.silicon_mut();
        silicon.set_ambient(air);
        for package in 0..silicon.topology().packages() {
            silicon.preheat(package, idle + variation.preheat * noise.share() * tdp);
        }
        // Where in the firmware's and the tick's periods the run begins.
        self.advance(Duration::from_micros(noise.next_u64() % 50_000));
    }

    /// Sets what runs; returns what ran before.
    pub fn run(&mut self, load: Option<Box<dyn Load>>) -> Option<Box<dyn Load>> {
        if let Some(load) = &load {
            self.world.platform.trace.set_task(load.name());
        }
        std::mem::replace(&mut self.load, load)
    }

    /// Returns whether no load runs, or the load has nothing more to do.
    pub fn is_idle(&self) -> bool {
        self.load.as_ref().is_none_or(|load| load.is_done())
    }

    /// The machine's monotonic clock.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.world.platform.now)
    }

    /// Lets the machine's time pass.
    pub fn advance(&mut self, time: Duration) {
        // Bounded: a time that a user gives in years must not overflow the sums that follow.
        let until =
            self.world.platform.now.saturating_add(time.as_nanos().min(u128::from(u64::MAX / 4)) as u64);
        self.pass(until);
    }

    /// Lets time pass to `until`, and fires the faults that are due on the way.
    fn pass(&mut self, until: u64) {
        if !self.faults.is_empty() {
            // One instant after the other: the effect of a fault may decide when the next one is
            // due.
            while let Some(due) = self.faults.iter().filter_map(Fault::due).min().filter(|&due| due <= until)
            {
                self.world.run_until(due, &mut self.load);
                // Collected before they are applied: applying needs the whole machine.
                let effects: Vec<Effect> = self
                    .faults
                    .iter_mut()
                    .filter(|fault| fault.due() == Some(due))
                    .map(Fault::fire_due)
                    .collect();
                for effect in effects {
                    self.apply_effect(effect);
                }
            }
        }
        self.world.run_until(until, &mut self.load);
    }

    /// Applies the effect of a fault to the machine.
    fn apply_effect(&mut self, effect: Effect) {
        match effect {
            Effect::ForeignWrite(path, text) => {
                // A fault's own write sets off no further faults.
                let before = std::mem::replace(&mut self.in_fault, true);
                // The result is the other program's.
                let _ = self.store(&path, &text);
                self.in_fault = before;
            }
            Effect::Online(cpus, online) => {
                let count = self.world.platform.board.cpus();
                for cpu in cpus.into_iter().filter(|&cpu| cpu < count) {
                    // The last one cannot go offline.
                    let _ = self.world.set_online(cpu, online);
                }
            }
            Effect::Fan(factor) => {
                for package in 0..self.world.platform.board.packages() {
                    self.silicon_mut().set_obstruction(package as usize, factor);
                }
            }
            Effect::Air(celsius) => {
                let own = self.silicon().spec().thermal.ambient_c;
                self.silicon_mut().set_ambient(celsius.unwrap_or(own));
            }
            Effect::Hold(cpus, khz) => {
                for cpu in cpus {
                    self.silicon_mut().hold(cpu as usize, khz.map(flyball_silicon::KiloHertz));
                }
            }
            // These two answer an access and have been dealt with there.
            Effect::Fail(_) | Effect::Ignore => {}
        }
    }

    /// Advances the clock by the cost of one access.
    fn spend(&mut self) {
        // Each access takes time, so that a program that polls for a change sees it come.
        let until = self.world.platform.now + CALL_NS;
        if self.in_fault {
            self.world.run_until(until, &mut self.load);
        } else {
            self.pass(until);
        }
    }

    /// The faults that were injected.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Faults that an access sets off: an error, or a write that is lost.
    fn fault(&mut self, path: &str, op: Op) -> Answer<bool> {
        if self.faults.is_empty() || self.in_fault {
            return Ok(false);
        }
        let effects: Vec<Effect> = self.faults.iter_mut().filter_map(|fault| fault.fires(path, op)).collect();
        let mut lost = false;
        for effect in effects {
            match effect {
                Effect::Fail(errno) => return Err(errno),
                Effect::Ignore => lost = true,
                other => self.apply_effect(other),
            }
        }
        Ok(lost)
    }

    /// Reads a whole file into `buffer`, which is cleared first.
    pub fn read_into(&mut self, path: &str, buffer: &mut Vec<u8>) -> Answer {
        buffer.clear();
        self.spend();
        // After the time of the call: a fault that is due in between counts.
        self.fault(path, Op::Read)?;
        match tree::resolve(&self.world, path, true)? {
            Node::Dir(_) => Err(Errno::ISDIR),
            Node::Link(_) => Err(Errno::LOOP),
            Node::Sensor(sensor) => tree::hwmon::show(&self.world, sensor, buffer),
            Node::File(dir, name) => {
                let attribute = tree::attribute(&self.world, dir, name).ok_or(Errno::NOENT)?;
                let show = attribute.show.ok_or(Errno::ACCES)?;
                show(&self.world, dir, buffer)
            }
            Node::DmaLatency => {
                buffer.extend_from_slice(&self.world.latency_limit().to_le_bytes());
                Ok(())
            }
            Node::Trace(file) if tracefs::is_stream(file) => {
                *buffer = tracefs::take(&mut self.world, file, usize::MAX)?;
                Ok(())
            }
            Node::Trace(file) => tracefs::read(&self.world, file, buffer),
            // Registers are read at an offset, and the Speed Select node has no read
            // (isst_if_char_driver_ops).
            Node::Msr(_) | Node::Isst => Err(Errno::INVAL),
        }
    }

    /// Takes up to `limit` bytes of a stream: lines of trace_pipe, or pages of trace_pipe_raw (one
    /// at least).
    ///
    /// # Errors
    /// `EAGAIN` if there is nothing now, `EINVAL` for a file that is not a stream.
    pub fn take(&mut self, path: &str, limit: usize) -> Answer<Vec<u8>> {
        self.spend();
        self.fault(path, Op::Read)?;
        match tree::resolve(&self.world, path, true)? {
            Node::Trace(file) if tracefs::is_stream(file) => tracefs::take(&mut self.world, file, limit),
            _ => Err(Errno::INVAL),
        }
    }

    /// Returns whether a stream has enough to read that the kernel wakes those who wait for it.
    pub fn is_ready(&self, path: &str) -> bool {
        match tree::resolve(&self.world, path, true) {
            Ok(Node::Trace(file)) => tracefs::is_ready(&self.world, file),
            _ => true,
        }
    }

    /// Truncates a file, as open(2) with O_TRUNC does: clears the records of `trace` and the events
    /// of `set_event`; other files stay as they are.
    pub fn truncate(&mut self, path: &str) -> Answer {
        match tree::resolve(&self.world, path, true)? {
            Node::Trace(file) => tracefs::truncate(&mut self.world, file),
            _ => Ok(()),
        }
    }

    /// mkdir(2): a new instance of the tracing.
    ///
    /// # Errors
    /// `EPERM` everywhere else.
    pub fn make_directory(&mut self, parent: &str, name: &str) -> Answer {
        match tree::resolve(&self.world, parent, true)? {
            Node::Dir(Dir::Trace(_, tracefs::Folder::Instances)) => tracefs::make(&mut self.world, name),
            _ => Err(Errno::PERM),
        }
    }

    /// rmdir(2): an instance goes.
    ///
    /// # Errors
    /// `EPERM` everywhere else.
    pub fn remove_directory(&mut self, path: &str) -> Answer {
        match tree::resolve(&self.world, path, true)? {
            Node::Dir(Dir::Trace(instance, tracefs::Folder::Root)) => {
                tracefs::remove(&mut self.world, instance)
            }
            Node::Dir(_) => Err(Errno::PERM),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// Reads a whole file.
    pub fn read(&mut self, path: &str) -> Answer<Vec<u8>> {
        let mut buffer = Vec::with_capacity(64);
        self.read_into(path, &mut buffer)?;
        Ok(buffer)
    }

    /// The kernel's log as syslog(2) gives it: the kernel, its command line, and what the driver of
    /// Intel's processors says of itself (intel_pstate_init()).
    pub fn kernel_log(&mut self) -> String {
        let mut text =
            |path: &str| String::from_utf8_lossy(&self.read(path).unwrap_or_default()).into_owned();
        let (version, options) = (text("/proc/version"), text("/proc/cmdline"));
        let World { cpufreq, platform, .. } = &self.world;
        let driver = cpufreq.driver.map_or("", |driver| driver.name());
        let lines = [
            (true, version.trim_end().to_owned()),
            (true, format!("Command line: {}", options.trim_end())),
            (driver.starts_with("intel_"), "intel_pstate: Intel P-state driver initializing".to_owned()),
            (driver.starts_with("intel_") && platform.intel.hwp, "intel_pstate: HWP enabled".to_owned()),
        ];
        let said = lines.into_iter().filter(|line| line.0);
        said.map(|(_, line)| format!("<6>[    0.000000] {line}\n")).collect()
    }

    /// Writes to a file in one write(2).
    pub fn write(&mut self, path: &str, text: &[u8]) -> Answer {
        self.spend();
        // The write was lost: it succeeds and changes nothing.
        if self.fault(path, Op::Write)? {
            return Ok(());
        }
        self.store(path, text)
    }

    /// A write, without the time and the faults of one.
    fn store(&mut self, path: &str, text: &[u8]) -> Answer {
        match tree::resolve(&self.world, path, true)? {
            Node::Dir(_) => Err(Errno::ISDIR),
            Node::Link(_) => Err(Errno::LOOP),
            Node::Sensor(_) => Err(Errno::ACCES),
            Node::File(dir, name) => {
                let attribute = tree::attribute(&self.world, dir, name).ok_or(Errno::NOENT)?;
                let store = attribute.store.ok_or(Errno::ACCES)?;
                // sysfs takes one page at most (fs/kernfs/file.c), and to a store function it is a
                // C string.
                let text = &text[..text.len().min(4095)];
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                store(&mut self.world, dir, &text[..end])
            }
            Node::Trace(file) => tracefs::write(&mut self.world, file, text),
            // Their writes need an open file or an offset: request_latency(), write_msr(), isst().
            Node::DmaLatency | Node::Msr(_) | Node::Isst => Err(Errno::INVAL),
        }
    }

    /// The names in a directory, so sorted that `cpu2` comes before `cpu10`.
    pub fn list(&mut self, path: &str) -> Answer<Vec<String>> {
        self.spend();
        match tree::resolve(&self.world, path, true)? {
            Node::Dir(dir) => Ok(self.names(dir)),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn names(&self, dir: Dir) -> Vec<String> {
        let mut names = tree::list(&self.world, dir);
        names.sort_by(|a, b| Natural(a).cmp(&Natural(b)));
        names
    }

    /// Returns the kind of file at a path, without following a link at its end.
    ///
    /// # Errors
    /// `ENOENT`, and every other error of a path walk.
    pub fn kind(&self, path: &str) -> Answer<Kind> {
        Ok(match tree::resolve(&self.world, path, false)? {
            Node::Dir(_) => Kind::Directory,
            Node::Link(target) => Kind::Link(target),
            Node::Sensor(_) => Kind::File(0o444),
            Node::File(dir, name) => {
                Kind::File(tree::attribute(&self.world, dir, name).ok_or(Errno::NOENT)?.mode)
            }
            Node::Trace(file) if tracefs::is_stream(file) => Kind::Stream(tracefs::mode(file)),
            Node::Trace(file) => Kind::File(tracefs::mode(file)),
            Node::DmaLatency | Node::Isst => Kind::File(0o600),
            Node::Msr(cpu) => Kind::Msr(cpu),
        })
    }

    /// Returns whether a path exists, following links.
    pub fn exists(&self, path: &str) -> bool {
        tree::resolve(&self.world, path, true).is_ok()
    }

    /// Returns whether the file at a path has a write permission bit.
    pub fn writable(&self, path: &str) -> bool {
        match tree::resolve(&self.world, path, true) {
            Ok(Node::File(dir, name)) => {
                tree::attribute(&self.world, dir, name).is_some_and(|attribute| attribute.mode & 0o222 != 0)
            }
            Ok(Node::Trace(file)) => tracefs::mode(file) & 0o222 != 0,
            // Mode 0600 of devices.
            Ok(Node::DmaLatency | Node::Msr(_) | Node::Isst) => true,
            _ => false,
        }
    }

    /// Returns the target text of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` if the path is not a link.
    pub fn readlink(&self, path: &str) -> Answer<String> {
        match tree::resolve(&self.world, path, false)? {
            Node::Link(target) => Ok(target),
            _ => Err(Errno::INVAL),
        }
    }

    /// Reads a register as `/dev/cpu/N/msr` does.
    ///
    /// # Errors
    /// `ENXIO` for a CPU that is not there or offline, `EIO` for a register that it does not have.
    pub fn read_msr(&mut self, cpu: u32, register: u32) -> Answer<u64> {
        self.spend();
        // The path is put together only if a rule may match it: programs read registers by the
        // thousand.
        if !self.faults.is_empty() {
            self.fault(&format!("/dev/cpu/{cpu}/msr"), Op::Read)?;
        }
        if !self.world.is_online(cpu) {
            return Err(Errno::NXIO);
        }
        self.world.disturb(cpu);
        self.world.platform.chip.read(cpu, register)
    }

    /// Writes a register as `/dev/cpu/N/msr` does.
    ///
    /// # Errors
    /// Fails like [`SimMachine::read_msr`], and with `EIO` for a register or value that faults.
    pub fn write_msr(&mut self, cpu: u32, register: u32, value: u64) -> Answer {
        self.spend();
        if !self.faults.is_empty() && self.fault(&format!("/dev/cpu/{cpu}/msr"), Op::Write)? {
            return Ok(());
        }
        if !self.world.is_online(cpu) {
            return Err(Errno::NXIO);
        }
        self.world.disturb(cpu);
        self.world.platform.chip.write(cpu, register, value)
    }

    /// Makes one ioctl(2) call on /dev/isst_interface. `argument` is the call's whole structure as
    /// it lies in the caller's memory (see [`argument_size`](crate::argument_size)); the driver's
    /// answer replaces it in place.
    ///
    /// # Errors
    /// Fails like the kernel's drivers: TPMI's rejects calls with `ENOTTY` and the mailbox's with
    /// `EINVAL`, `EPERM`, `ENXIO` or `EBUSY`; calls that do not exist get `ENOTTY`. A machine
    /// without the node gives `ENOENT`, an argument that is too short `EFAULT`, and every call
    /// after [one that took the kernel down](SimMachine::kernel_fault) `EIO`.
    pub fn isst(&mut self, number: u32, argument: &mut [u8], caller: Caller) -> Answer<i32> {
        self.spend();
        if self.world.isst.backend.is_some() && self.fault(isst::NODE, Op::Ioctl)? {
            return Ok(0);
        }
        isst::call(&mut self.world, number, argument, caller)
    }

    /// Returns the kernel's last words if a call took it down: kernels 6.12 and 7.2 have one each
    /// that walks off a Speed Select mapping. No program may cause it.
    pub fn kernel_fault(&self) -> Option<&str> {
        self.world.isst.fault.as_deref()
    }

    /// Adds a request on /dev/cpu_dma_latency, in microseconds, under a key of the caller's; -1
    /// sets no constraint.
    pub fn request_latency(&mut self, key: u64, us: i32) {
        // One request per open file: a second write replaces the first.
        self.drop_latency(key);
        // PM_QOS_DEFAULT_VALUE stands for the default (cpu_latency_qos_update_request()).
        let us = if us == -1 { 2_000_000_000 } else { us };
        self.world.dma_latency.push((key, us));
    }

    /// Limits the frequency of a CPU's policy as a cooling device does: by a request of its own, in
    /// kHz. `None` removes it.
    pub fn request_frequency(&mut self, cpu: u32, max: Option<u32>) {
        let World { cpufreq, platform, .. } = &mut self.world;
        let Some(index) = cpufreq.index_of(cpu) else { return };
        cpufreq.policies[index].cooling_request =
            max.map_or(i32::MAX, |khz| i32::try_from(khz).unwrap_or(i32::MAX));
        cpufreq.refresh(platform, index);
    }

    /// Firmware allows a CPU's policy no P-state above this many kHz (_PPC,
    /// acpi_processor_get_platform_limit()). Only acpi-cpufreq has P-states of firmware.
    pub fn limit_by_firmware(&mut self, cpu: u32, most: u32) {
        let World { cpufreq, platform, .. } = &mut self.world;
        let Some(index) = cpufreq.index_of(cpu) else { return };
        let policy = &mut cpufreq.policies[index];
        policy.bios_limit = policy.table.iter().copied().find(|khz| *khz <= most);
        cpufreq.refresh(platform, index);
    }

    /// Takes a request on /dev/cpu_dma_latency back.
    pub fn drop_latency(&mut self, key: u64) {
        self.world.dma_latency.retain(|(other, _)| *other != key);
    }
}

/// Reads a machine file, boots the machine, lets it run for a moment, and reads its files. For
/// fuzzing: no text may make it panic, hang or take much memory. Machines of more CPUs than `most`
/// are only read.
pub fn try_machine_file(text: &str, kernel: Kernel, most: usize) -> Result<(), SpecError> {
    let spec = MachineSpec::from_toml(text)?;
    if spec.cpus() > most {
        return Ok(());
    }
    let mut machine = SimMachine::boot(spec, kernel, Boot::default(), 0)?;
    // Long enough for the tick and the governors to run once.
    machine.advance(Duration::from_millis(5));
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let path = if folder.is_empty() { "/" } else { &folder };
        for name in machine.list(path).unwrap_or_default() {
            let child = format!("{folder}/{name}");
            match machine.kind(&child) {
                Ok(Kind::Directory) => folders.push(child),
                // What the file answers is not judged, only that it answers.
                Ok(Kind::File(_)) => drop(machine.read(&child)),
                _ => {}
            }
        }
    }
    Ok(())
}
