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

/// Duration of a system call, in nanoseconds (measured on sysfs files: 2.0 to 2.5 us).
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
    /// A file that reading empties, with its permission bits: see [`SimMachine::take`].
    Stream(u16),
}

/// A simulated machine. Its clock moves only by [`SimMachine::advance`] and, by a few microseconds,
/// with each access.
pub struct SimMachine {
    world: World,
    load: Option<Box<dyn Load>>,
    faults: Vec<Fault>,
    /// True while a fault makes an access, which fires no further faults.
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

    /// Boots the machine again: settings and loads are gone, and the clock restarts. Faults stay.
    pub fn reboot(&mut self) {
        let spec = self.silicon().spec().clone();
        // The description booted once, so it boots again.
        if let Ok(world) = World::boot(spec, self.kernel(), self.world.boot.clone(), 0) {
            self.world = world;
            self.load = None;
        }
    }

    /// The machine's name without `sim:`.
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

    /// The processors, for physics that files do not show.
    pub fn silicon(&self) -> &Silicon {
        self.world.platform.chip.silicon()
    }

    /// The processors, for changes of their environment: air, fans.
    pub fn silicon_mut(&mut self) -> &mut Silicon {
        self.world.platform.chip.silicon_mut()
    }

    /// CPU 0's answer to CPUID.
    pub fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        crate::cpuid::answer(self.silicon(), leaf, subleaf, 0)
    }

    /// Returns whether a CPU exists and is online.
    pub fn is_online(&self, cpu: u32) -> bool {
        self.world.is_online(cpu)
    }

    pub fn inject(&mut self, fault: Fault) {
        self.faults.push(fault);
        // Apply faults that are due at boot before the first access.
        self.pass(self.world.platform.now);
    }

    /// Removes all faults and returns them with their counts. Their effects remain.
    pub fn take_faults(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.faults)
    }

    /// Returns the first path or CPU in a fault that this machine does not have now. A path may
    /// still appear with another driver.
    pub fn lacks(&mut self, fault: &Fault) -> Option<String> {
        let (paths, cpus) = fault.names();
        // Cloned, because matching paths borrows the machine.
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
        // One directory level at a time, because a star never matches a slash.
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

    /// Varies a freshly booted machine as real runs vary: the air's temperature, the heat left from
    /// earlier work, and the phase of periodic events, by the amounts in its description. Equal
    /// seeds give equal runs.
    pub fn vary(&mut self, seed: u64) {
        // "machine!": a sequence that differs from the workload's, which may have the same seed.
        let mut noise = crate::workload::Noise::new(seed ^ 0x6d61_6368_696e_6521);
        let spec = self.silicon().spec();
        let (variation, tdp, idle) = (spec.variation.clone(), spec.power.tdp_w, spec.power.uncore_idle_w);
        let air = spec.thermal.ambient_c + variation.ambient_c * noise.normal();
        let silicon = self.silicon_mut();
        silicon.set_ambient(air);
        for package in 0..silicon.topology().packages() {
            silicon.preheat(package, idle + variation.preheat * noise.share() * tdp);
        }
        // Start the run at a random phase of the firmware's and the tick's periods.
        self.advance(Duration::from_micros(noise.next_u64() % 50_000));
    }

    /// Sets the running load and returns the previous one.
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

    /// Advances the machine's clock.
    pub fn advance(&mut self, time: Duration) {
        // Bounded: a time of years must not overflow the sums that follow.
        let until =
            self.world.platform.now.saturating_add(time.as_nanos().min(u128::from(u64::MAX / 4)) as u64);
        self.pass(until);
    }

    /// Advances the clock to `until`, and fires the faults that are due on the way.
    fn pass(&mut self, until: u64) {
        if !self.faults.is_empty() {
            // One point in time after the other, because a fault's effect may decide when the next
            // one is due.
            while let Some(due) = self.faults.iter().filter_map(Fault::due).min().filter(|&due| due <= until)
            {
                self.world.run_until(due, &mut self.load);
                // Collect them before applying them, which needs the whole machine.
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
                // The other program would see the result.
                let _ = self.store(&path, &text);
                self.in_fault = before;
            }
            Effect::Online(cpus, online) => {
                let count = self.world.platform.board.cpus();
                for cpu in cpus.into_iter().filter(|&cpu| cpu < count) {
                    // The last CPU cannot go offline.
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
            // These belong to an access, which has handled them.
            Effect::Fail(_) | Effect::Ignore => {}
        }
    }

    /// Advances the clock by the cost of one access.
    fn spend(&mut self) {
        // Each access takes time, so that a polling program sees the change that it waits for.
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

    /// Applies the faults that an access fires: returns an error, or whether a write is lost.
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
        // After the call's duration: a fault that becomes due during the call counts.
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
            // Registers are read at an offset, and the Speed Select node cannot be read
            // (isst_if_char_driver_ops).
            Node::Msr(_) | Node::Isst => Err(Errno::INVAL),
        }
    }

    /// Takes up to `limit` bytes of a stream: lines of trace_pipe, or pages of trace_pipe_raw (at
    /// least one).
    ///
    /// # Errors
    /// `EAGAIN` if the stream is empty, `EINVAL` for a file that is not a stream.
    pub fn take(&mut self, path: &str, limit: usize) -> Answer<Vec<u8>> {
        self.spend();
        self.fault(path, Op::Read)?;
        match tree::resolve(&self.world, path, true)? {
            Node::Trace(file) if tracefs::is_stream(file) => tracefs::take(&mut self.world, file, limit),
            _ => Err(Errno::INVAL),
        }
    }

    /// Returns whether a stream has enough data for the kernel to wake its readers.
    pub fn is_ready(&self, path: &str) -> bool {
        match tree::resolve(&self.world, path, true) {
            Ok(Node::Trace(file)) => tracefs::is_ready(&self.world, file),
            _ => true,
        }
    }

    /// Truncates a file like open(2) with O_TRUNC: clears the records of `trace` and the events of
    /// `set_event`. Other files do not change.
    pub fn truncate(&mut self, path: &str) -> Answer {
        match tree::resolve(&self.world, path, true)? {
            Node::Trace(file) => tracefs::truncate(&mut self.world, file),
            _ => Ok(()),
        }
    }

    /// mkdir(2): creates an instance of the tracing.
    ///
    /// # Errors
    /// `EPERM` everywhere else.
    pub fn make_directory(&mut self, parent: &str, name: &str) -> Answer {
        match tree::resolve(&self.world, parent, true)? {
            Node::Dir(Dir::Trace(_, tracefs::Folder::Instances)) => tracefs::make(&mut self.world, name),
            _ => Err(Errno::PERM),
        }
    }

    /// rmdir(2): removes an instance.
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

    /// The kernel's log as returned by syslog(2): the kernel, its command line, and the messages of
    /// Intel's driver (intel_pstate_init()).
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
        // The fault discards the write, which succeeds.
        if self.fault(path, Op::Write)? {
            return Ok(());
        }
        self.store(path, text)
    }

    /// Writes without the duration and the faults of an access.
    fn store(&mut self, path: &str, text: &[u8]) -> Answer {
        match tree::resolve(&self.world, path, true)? {
            Node::Dir(_) => Err(Errno::ISDIR),
            Node::Link(_) => Err(Errno::LOOP),
            Node::Sensor(_) => Err(Errno::ACCES),
            Node::File(dir, name) => {
                let attribute = tree::attribute(&self.world, dir, name).ok_or(Errno::NOENT)?;
                let store = attribute.store.ok_or(Errno::ACCES)?;
                // sysfs accepts at most a page (fs/kernfs/file.c), and store functions get a C
                // string.
                let text = &text[..text.len().min(4095)];
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                store(&mut self.world, dir, &text[..end])
            }
            Node::Trace(file) => tracefs::write(&mut self.world, file, text),
            // These need an open file or an offset: request_latency(), write_msr(), isst().
            Node::DmaLatency | Node::Msr(_) | Node::Isst => Err(Errno::INVAL),
        }
    }

    /// The names in a directory, with `cpu2` before `cpu10`.
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
    /// `ENXIO` for a missing or offline CPU, `EIO` for a register that the CPU does not have.
    pub fn read_msr(&mut self, cpu: u32, register: u32) -> Answer<u64> {
        self.spend();
        // Format the path only if a rule may match it: programs read thousands of registers.
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

    /// Makes one ioctl(2) call on /dev/isst_interface. `argument` is the call's whole structure in
    /// the caller's memory layout (see [`argument_size`](crate::argument_size)); the driver's
    /// answer replaces it in place.
    ///
    /// # Errors
    /// Fails like the kernel's drivers: TPMI's rejects calls with `ENOTTY` and the mailbox's with
    /// `EINVAL`, `EPERM`, `ENXIO` or `EBUSY`; unknown calls get `ENOTTY`. Without the node the
    /// error is `ENOENT`, for an argument that is too short `EFAULT`, and for every call after [one
    /// that crashed the kernel](SimMachine::kernel_fault) `EIO`.
    pub fn isst(&mut self, number: u32, argument: &mut [u8], caller: Caller) -> Answer<i32> {
        self.spend();
        if self.world.isst.backend.is_some() && self.fault(isst::NODE, Op::Ioctl)? {
            return Ok(0);
        }
        isst::call(&mut self.world, number, argument, caller)
    }

    /// Returns the kernel's oops message if a call crashed it. Kernels 6.12 and 7.2 each have a
    /// call that reads beyond a Speed Select mapping; programs must avoid it.
    pub fn kernel_fault(&self) -> Option<&str> {
        self.world.isst.fault.as_deref()
    }

    /// Adds a request on /dev/cpu_dma_latency, in microseconds, under the caller's key; -1 means no
    /// constraint.
    pub fn request_latency(&mut self, key: u64, us: i32) {
        // One request per open file: a second write replaces the first.
        self.drop_latency(key);
        // -1 stands for the default, PM_QOS_DEFAULT_VALUE (cpu_latency_qos_update_request()).
        let us = if us == -1 { 2_000_000_000 } else { us };
        self.world.dma_latency.push((key, us));
    }

    /// Limits the frequency of a CPU's policy in kHz like a cooling device does, by its own
    /// request. `None` removes the request.
    pub fn request_frequency(&mut self, cpu: u32, max: Option<u32>) {
        let World { cpufreq, platform, .. } = &mut self.world;
        let Some(index) = cpufreq.index_of(cpu) else { return };
        cpufreq.policies[index].cooling_request =
            max.map_or(i32::MAX, |khz| i32::try_from(khz).unwrap_or(i32::MAX));
        cpufreq.refresh(platform, index);
    }

    /// Makes firmware forbid P-states above `most` kHz on a CPU's policy (_PPC,
    /// acpi_processor_get_platform_limit()). Only acpi-cpufreq uses firmware's P-states.
    pub fn limit_by_firmware(&mut self, cpu: u32, most: u32) {
        let World { cpufreq, platform, .. } = &mut self.world;
        let Some(index) = cpufreq.index_of(cpu) else { return };
        let policy = &mut cpufreq.policies[index];
        policy.bios_limit = policy.table.iter().copied().find(|khz| *khz <= most);
        cpufreq.refresh(platform, index);
    }

    /// Removes a request on /dev/cpu_dma_latency.
    pub fn drop_latency(&mut self, key: u64) {
        self.world.dma_latency.retain(|(other, _)| *other != key);
    }
}

/// Parses a machine file, boots the machine, runs it briefly, and reads its files. For fuzzing: no
/// text may make it panic, hang or use much memory. Machines with more than `most` CPUs are only
/// parsed.
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
                // The content does not matter, only that reading returns.
                Ok(Kind::File(_)) => drop(machine.read(&child)),
                _ => {}
            }
        }
    }
    Ok(())
}
