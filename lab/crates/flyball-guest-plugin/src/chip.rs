//! The silicon's interface for a guest's instructions: RDMSR, WRMSR, CPUID, P-state ports and the
//! CPPC mailbox.
//!
//! QEMU handles registers that flyball-silicon does not know (paging, the APIC and so on). A write
//! that real hardware would answer with #GP is dropped, because a plug-in cannot raise an
//! exception.

use std::{
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use flyball_silicon::{Activity, SharedCppc, Silicon, msr, spec::Vendor};

use crate::{
    class::WorkloadClass,
    feedback::Feedback,
    layout::{MARK, PORTS, block},
    punit::{Function, ServedFunction},
    settings::FAULTS,
    vfio_user::{self, Connection},
};

/// The CPPC mailbox's blocks, as 64-bit words of the guest's memory.
pub type Mailbox = &'static [AtomicU64];

/// The guest's memory from address 0 on, as 64-bit words.
pub type Memory = &'static [AtomicU64];

/// The silicon, with the state that an emulator needs in addition.
pub struct Chip {
    silicon: Silicon,
    class: WorkloadClass,
    activity: Vec<Activity>,
    mailbox: Option<Mailbox>,
    memory: Option<Memory>,
    /// The last content written to each package's table of hardware feedback.
    written_feedback: Vec<Option<Feedback>>,
    seen: Vec<SharedCppc>,
    p_state: Vec<u8>,
    p_states: Vec<u32>,
    intel: bool,
    log: Option<Box<dyn Write + Send>>,
    trace: Option<Box<dyn Write + Send>>,
    /// Time of the trace's last line, ns, and each package's energy since then, W ns.
    traced_ns: u64,
    traced_energy: Vec<f64>,
    /// Each CPU's busy time since that line, ns.
    traced_busy: Vec<u64>,
    /// Number of register writes that real hardware would have rejected.
    pub refused: u64,
    /// True if the guest may inject firmware faults.
    breakable: bool,
}

/// TSC and its adjustment: an emulator has its own clock for these.
const TIME: [u32; 2] = [msr::TSC, msr::TSC_ADJUST];

/// Registers with ratios on Atoms: nominal and turbo.
const ATOM_RATIOS: [u32; 2] = [0x66a, 0x66c];

impl Chip {
    /// Wraps `silicon`. `mailbox` is needed if the machine keeps its CPPC registers in memory.
    pub fn new(silicon: Silicon, mailbox: Option<Mailbox>) -> Chip {
        let (cpus, packages) = (silicon.cpus(), silicon.topology().packages());
        let intel = silicon.spec().identity.vendor == Vendor::Intel;
        let p_states = silicon.spec().firmware.pstates_mhz.clone();
        let mut chip = Chip {
            silicon,
            class: WorkloadClass::INTEGER,
            activity: vec![Activity::idle(0); cpus],
            mailbox,
            memory: None,
            written_feedback: vec![None; packages],
            seen: vec![SharedCppc::default(); cpus],
            p_state: vec![0; cpus],
            p_states,
            intel,
            log: None,
            trace: None,
            traced_ns: 0,
            traced_energy: vec![0.0; packages],
            traced_busy: vec![0; cpus],
            refused: 0,
            breakable: false,
        };
        chip.fill_mailbox();
        chip
    }

    /// Sets the workload class of the guest's instructions.
    pub fn set_class(&mut self, class: WorkloadClass) {
        self.class = class;
    }

    /// Lets the guest inject firmware faults with [`FAULTS`].
    pub fn make_breakable(&mut self) {
        self.breakable = true;
    }

    /// Sets the guest's memory, which has the tables that firmware writes.
    pub fn set_memory(&mut self, memory: Memory) {
        self.memory = Some(memory);
    }

    /// Logs a line for every register write to `to`.
    pub fn log_to(&mut self, to: Box<dyn Write + Send>) {
        self.log = Some(to);
    }

    /// Writes the silicon's state to `to` once a millisecond.
    pub fn trace_to(&mut self, mut to: Box<dyn Write + Send>) {
        let _ = writeln!(
            to,
            "# ms, then for each package: mean W since the line before, C; then for each CPU: kHz, busy ns since the line \
             before"
        );
        self.trace = Some(to);
    }

    pub fn silicon(&self) -> &Silicon {
        &self.silicon
    }

    /// A CPU's current frequency, kHz; never 0.
    pub fn khz(&self, cpu: usize) -> u64 {
        u64::from(self.silicon.frequency(cpu).0).max(1)
    }

    /// The time stamp counter after `ns` of guest time.
    pub fn tsc(&self, ns: u64) -> u64 {
        (u128::from(ns) * u128::from(self.silicon.spec().clock.tsc_khz) / 1_000_000) as u64
    }

    /// Advances the machine by `dt_ns`. `busy_ns` is each CPU's busy time in this step.
    pub fn advance(&mut self, dt_ns: u64, busy_ns: impl Iterator<Item = u64>) {
        // Read the mailbox first: values that the guest wrote during the step apply to it, as with
        // a register write.
        self.read_mailbox();
        let (class, silicon) = (self.class, &self.silicon);
        for (cpu, (activity, busy)) in self.activity.iter_mut().zip(busy_ns).enumerate() {
            let frequency = silicon.frequency(cpu);
            *activity = Activity {
                intensity: class.intensity_at(frequency),
                memory: (class.memory_share(frequency) * 255.0) as u8,
                ..Activity::partly(
                    busy.min(dt_ns).min(u64::from(u32::MAX)) as u32,
                    // At least one wake-up for a CPU that was also idle. The scheduler does not
                    // count how many there were.
                    u16::from(busy < dt_ns),
                    0,
                )
            };
        }
        self.silicon.advance(dt_ns, &self.activity);
        self.write_counters();
        self.write_feedback();
        self.trace_line(dt_ns);
    }

    /// RDMSR, in the middle of a step of which this CPU has executed `elapsed_ns`. `None` if the
    /// register is QEMU's.
    pub fn read_msr(&self, cpu: usize, register: u32, elapsed_ns: u64) -> Option<u64> {
        if TIME.contains(&register) {
            return None;
        }
        if self.intel && ATOM_RATIOS.contains(&register) {
            return self.atom_ratios(cpu, register);
        }
        self.silicon.read_msr_within(cpu, register, elapsed_ns).ok()
    }

    /// Registers of Atoms in which the kernel first looks for its scale of utilisation
    /// (arch/x86/kernel/cpu/aperfmperf.c, slv_set_max_freq_ratio). Other processors reject the
    /// access. Here an unknown register reads 0, and the kernel would use that value and do without
    /// frequency invariance. So these registers return the values that the kernel would read next:
    /// the base ratio, and turbo with four busy cores.
    fn atom_ratios(&self, cpu: usize, register: u32) -> Option<u64> {
        let read = |register| self.silicon.read_msr(cpu, register).ok();
        if register == ATOM_RATIOS[0] {
            return Some((read(msr::PLATFORM_INFO)? >> 8 & 0xff) << 16);
        }
        msr::turbo_ratio_of_four(self.silicon.spec().identity.model, read)
    }

    /// WRMSR. Does nothing if the silicon does not have the register.
    pub fn write_msr(&mut self, cpu: usize, register: u32, value: u64, now_ns: u64) {
        use flyball_silicon::Fault;
        if TIME.contains(&register) {
            return;
        }
        if self.breakable && register == FAULTS {
            for package in 0..self.silicon.topology().packages() {
                self.silicon.stall_mailbox(package, value & 1 != 0);
            }
            self.silicon.refuse_changes(value & 2 != 0);
            let locked = self.silicon.spec().sst.as_ref().is_some_and(|sst| sst.locked);
            self.silicon.lock_levels(locked || value & 4 != 0);
            return;
        }
        let result = self.silicon.write_msr(cpu, register, value);
        // Registers that only QEMU has, for example the APIC's.
        if let Err(Fault::NoSuchRegister(_) | Fault::NoSuchCpu(_)) = result {
            return;
        }
        // Counted and logged: a plug-in cannot raise #GP, so the guest does not notice that the
        // write failed.
        self.refused += u64::from(result.is_err());
        if let Some(log) = &mut self.log {
            let end = if result.is_err() { " refused" } else { "" };
            let _ = writeln!(
                log,
                "{}.{:09} cpu{cpu} wrmsr {register:#x} {value:#x}{end}",
                now_ns / 1_000_000_000,
                now_ns % 1_000_000_000
            );
        }
    }

    /// Passes bytes from QEMU to a PCI function of the silicon and returns the reply; `None` if
    /// they are malformed.
    pub fn pci(
        &mut self,
        connection: &mut Connection,
        bytes: &[u8],
        function: &mut Function,
    ) -> Option<Vec<u8>> {
        let mut served = ServedFunction { function, silicon: &mut self.silicon, written: Vec::new() };
        let answers = connection.take(bytes, &mut served).ok();
        let written = served.written;
        if let Some(log) = &mut self.log {
            let (ns, name) = (self.silicon.now_ns(), function.place().socket());
            for (region, offset, value) in written {
                let region = if region == vfio_user::CONFIG { "config" } else { "memory" };
                let _ = writeln!(
                    log,
                    "{}.{:09} {name} {region} {offset:#x} {value:#x}",
                    ns / 1_000_000_000,
                    ns % 1_000_000_000
                );
            }
        }
        answers
    }

    /// CPUID. `None` if the leaf is QEMU's.
    pub fn cpuid(&self, cpu: usize, leaf: u32, subleaf: u32) -> Option<[u32; 4]> {
        // QEMU's APIC timer does not run at the crystal's frequency. A kernel that can read the
        // crystal's frequency uses it as the timer's (arch/x86/kernel/tsc.c, native_calibrate_tsc).
        // Without it, the kernel calibrates the timer.
        if leaf == 0x15 {
            return None;
        }
        let mut answer = self.silicon.cpuid(leaf, subleaf, cpu)?;
        if leaf == 0x8000_0008 {
            // The width of the APIC ids and the number of threads must match this guest.
            let threads = (self.silicon.cpus() / self.silicon.topology().packages()).max(1) as u32;
            // CPUID 80000008h ECX: the kernel derives package and core ids from this width.
            let width = u32::BITS - (threads - 1).leading_zeros();
            answer[2] = width << 12 | (threads - 1) & 0xff;
        }
        Some(answer)
    }

    /// OUT to a P-state port: requests the P-state with that number. `false` if the port is not one
    /// of ours.
    pub fn write_port(&mut self, cpu: usize, port: u16, value: u8, now_ns: u64) -> bool {
        if port == MARK {
            if let Some(log) = &mut self.log {
                let _ =
                    writeln!(log, "{}.{:09} mark {value}", now_ns / 1_000_000_000, now_ns % 1_000_000_000);
            }
            return true;
        }
        // Each CPU has its own port, so the port selects the CPU whose state changes. It does not
        // matter which CPU executes OUT.
        let Some(owner) = self.port_owner(port) else { return false };
        let _ = cpu;
        self.p_state[owner] = value;
        if let Some(mhz) = self.p_states.get(usize::from(value)).copied() {
            // PERF_CTL takes a ratio of the bus clock in bits 15:8. AMD's register takes the number
            // of the P-state.
            let bus = self.silicon.spec().clock.bus_khz.max(1);
            let (register, content) = if self.intel {
                (msr::PERF_CTL, u64::from(mhz * 1000 / bus) << 8)
            } else {
                (msr::AMD_PERF_CTL, u64::from(value))
            };
            self.write_msr(owner, register, content, now_ns);
        }
        true
    }

    /// IN from a P-state port: returns the value that was written last.
    pub fn read_port(&self, port: u16) -> Option<u8> {
        self.port_owner(port).map(|owner| self.p_state[owner])
    }

    fn port_owner(&self, port: u16) -> Option<usize> {
        let owner = usize::from(port.checked_sub(PORTS)?);
        (owner < self.p_state.len()).then_some(owner)
    }

    /// Writes the registers' reset values to the mailbox.
    fn fill_mailbox(&mut self) {
        let Some(mailbox) = self.mailbox else { return };
        for cpu in 0..self.silicon.cpus() {
            let Some(shared) = self.silicon.shared_cppc(cpu) else { continue };
            for (at, value) in fields(&shared) {
                store(mailbox, cpu, at, value);
            }
            self.seen[cpu] = shared;
        }
    }

    /// Passes values that the guest wrote to the mailbox on to the silicon.
    fn read_mailbox(&mut self) {
        let Some(mailbox) = self.mailbox else { return };
        for cpu in 0..self.seen.len() {
            let word = |at: u32| load(mailbox, cpu, at);
            let found = SharedCppc {
                desired: word(block::DESIRED),
                min: word(block::MINIMUM),
                max: word(block::MAXIMUM),
                enable: word(block::ENABLE),
                auto_select: word(block::AUTONOMOUS),
                epp: word(block::PREFERENCE),
            };
            // Only if they changed: each is a request to the silicon and a line of the log.
            if found != self.seen[cpu] {
                self.seen[cpu] = found;
                self.silicon.set_shared_cppc(cpu, found);
                if let Some(log) = &mut self.log {
                    let ns = self.silicon.now_ns();
                    let _ = writeln!(
                        log,
                        "{}.{:09} cpu{cpu} mailbox desired {} min {} max {} enable {} auto {} epp {}",
                        ns / 1_000_000_000,
                        ns % 1_000_000_000,
                        found.desired,
                        found.min,
                        found.max,
                        found.enable,
                        found.auto_select,
                        found.epp
                    );
                }
            }
        }
    }

    /// Writes the counters to the mailbox.
    fn write_counters(&mut self) {
        let Some(mailbox) = self.mailbox else { return };
        for cpu in 0..self.seen.len() {
            for (at, register) in [(block::REFERENCE, msr::MPERF), (block::DELIVERED, msr::APERF)] {
                if let Ok(value) = self.silicon.read_msr(cpu, register)
                    && let Some(word) = mailbox.get((block::offset(cpu as u32) + at) as usize / 8)
                {
                    // One 64-bit store, so that the guest never reads half a counter.
                    word.store(value, Ordering::Relaxed);
                }
            }
        }
    }

    /// Writes the tables of hardware feedback that are out of date.
    fn write_feedback(&mut self) {
        if !self.silicon.spec().firmware.feedback {
            return;
        }
        let Some(memory) = self.memory else { return };
        for package in 0..self.written_feedback.len() {
            let feedback = Feedback::new(&self.silicon, package);
            if let Some(wanted) =
                feedback.as_ref().filter(|wanted| self.written_feedback[package].as_ref() != Some(*wanted))
            {
                // A guest may set any address. Nothing is written beyond its memory. Above 2 GiB,
                // addresses are no longer offsets in the memory's file.
                let low = wanted.address < 1 << 31;
                let at = if low { (wanted.address / 8) as usize } else { usize::MAX };
                // The kernel ignores a table whose time stamp equals the one it saw last, which
                // starts at 0 (intel_hfi_process_event, drivers/thermal/intel/intel_hfi.c).
                let words = wanted.table(self.silicon.now_ns().max(1));
                let words = words
                    .chunks_exact(8)
                    .map(|word| word.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)));
                for (word, place) in words.zip(memory.get(at..).unwrap_or_default()) {
                    place.store(word, Ordering::Relaxed);
                }
                self.silicon.feedback_written(package);
            }
            self.written_feedback[package] = feedback;
        }
    }

    fn trace_line(&mut self, dt_ns: u64) {
        let Some(trace) = &mut self.trace else { return };
        for (package, energy) in self.traced_energy.iter_mut().enumerate() {
            *energy += self.silicon.power(package).0 * dt_ns as f64;
        }
        for (busy, activity) in self.traced_busy.iter_mut().zip(&self.activity) {
            *busy += u64::from(activity.busy_ns);
        }
        let now = self.silicon.now_ns();
        // Steps are slices of 50 us by default: with a line for each, the trace would grow to a
        // gigabyte in minutes.
        if now / 1_000_000 == self.traced_ns / 1_000_000 {
            return;
        }
        let passed = (now - self.traced_ns) as f64;
        self.traced_ns = now;
        let _ = write!(trace, "{}.{:03}", now / 1_000_000, now / 1000 % 1000);
        for (package, energy) in self.traced_energy.iter_mut().enumerate() {
            let watts = std::mem::take(energy) / passed;
            let _ = write!(trace, " {watts:.3} {:.2}", self.silicon.temperature(package).0);
        }
        for (cpu, busy) in self.traced_busy.iter_mut().enumerate() {
            let _ = write!(trace, " {} {}", self.silicon.frequency(cpu).0, std::mem::take(busy));
        }
        let _ = writeln!(trace);
    }
}

impl Drop for Chip {
    fn drop(&mut self) {
        self.end();
    }
}

impl Chip {
    /// Flushes the log and the trace, and closes them.
    pub fn end(&mut self) {
        for mut writer in [self.log.take(), self.trace.take()].into_iter().flatten() {
            let _ = writer.flush();
        }
    }
}

fn fields(shared: &SharedCppc) -> [(u32, u32); 6] {
    [
        (block::DESIRED, shared.desired),
        (block::MINIMUM, shared.min),
        (block::MAXIMUM, shared.max),
        (block::ENABLE, shared.enable),
        (block::AUTONOMOUS, shared.auto_select),
        (block::PREFERENCE, shared.epp),
    ]
}

fn load(mailbox: Mailbox, cpu: usize, at: u32) -> u32 {
    let byte = block::offset(cpu as u32) + at;
    let word = mailbox.get(byte as usize / 8).map_or(0, |word| word.load(Ordering::Relaxed));
    (word >> (byte % 8 * 8)) as u32
}

fn store(mailbox: Mailbox, cpu: usize, at: u32, value: u32) {
    let byte = block::offset(cpu as u32) + at;
    let shift = byte % 8 * 8;
    if let Some(word) = mailbox.get(byte as usize / 8) {
        // Not atomic as a whole: this runs before the guest starts, and later only the guest writes
        // these fields.
        let kept = word.load(Ordering::Relaxed) & !(0xffff_ffff << shift);
        word.store(kept | u64::from(value) << shift, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use flyball_silicon::MachineSpec;

    use super::*;
    use crate::machine::{Interface, Reduction};

    fn chip(name: &str, interface: Option<Interface>) -> (Chip, Mailbox) {
        let toml = MachineSpec::builtin_text(name).unwrap().to_owned();
        let (spec, _) = Reduction { toml, cpus: 4, interface }.make().unwrap();
        let words: Vec<AtomicU64> = (0..4096).map(|_| AtomicU64::new(0)).collect();
        let mailbox: Mailbox = Box::leak(words.into_boxed_slice());
        let given = (interface == Some(Interface::CppcMailbox)).then_some(mailbox);
        (Chip::new(Silicon::new(spec, 0).unwrap(), given), mailbox)
    }

    fn run(chip: &mut Chip, ms: u64) {
        for _ in 0..ms {
            chip.advance(1_000_000, [1_000_000; 4].into_iter());
        }
    }

    #[test]
    fn the_scale_of_utilisation_is_found_where_the_kernel_looks_first() {
        let (intel, _) = chip("sst-guide", None);
        let base = intel.read_msr(0, msr::PLATFORM_INFO, 0).unwrap() >> 8 & 0xff;
        let four = intel.read_msr(0, msr::TURBO_RATIO_LIMIT, 0).unwrap() >> 24 & 0xff;
        assert_eq!(intel.read_msr(0, 0x66a, 0), Some(base << 16));
        assert_eq!(intel.read_msr(0, 0x66c, 0), Some(four));
        // The kernel reads only six bits.
        assert!(four > base && four < 64);
        assert_eq!(chip("ryzen-5750g", None).0.read_msr(0, 0x66a, 0), None);
    }

    #[test]
    fn a_request_in_the_mailbox_is_a_request() {
        let (mut chip, mailbox) = chip("ryzen-5750g", Some(Interface::CppcMailbox));
        let mut khz = Vec::new();
        for desired in [39, 117] {
            for (at, value) in [(block::ENABLE, 1), (block::MAXIMUM, 166), (block::DESIRED, desired)] {
                store(mailbox, 2, at, value);
            }
            run(&mut chip, 20);
            khz.push(chip.khz(2));
        }
        assert!((1_000_000..1_300_000).contains(&khz[0]), "{khz:?}");
        assert!((3_200_000..3_400_000).contains(&khz[1]), "{khz:?}");
        let count = |at: u32| mailbox[(block::offset(2) + at) as usize / 8].load(Ordering::Relaxed);
        assert!(count(block::DELIVERED) > 20_000_000 && count(block::REFERENCE) > 100_000_000);
    }

    #[test]
    fn ports_ask_for_p_states() {
        let (mut chip, _) = chip("ryzen-5750g", Some(Interface::PStates));
        assert!(!chip.write_port(0, PORTS + 4, 1, 0) && !chip.write_port(0, 0x80, 1, 0));
        for cpu in 0..4 {
            assert!(chip.write_port(cpu, PORTS + cpu as u16, 2, 0));
        }
        run(&mut chip, 20);
        assert_eq!(chip.read_port(PORTS + 3), Some(2));
        assert_eq!(chip.khz(3), 1_400_000);
        assert!(chip.write_port(3, PORTS + 3, 250, 0), "an unknown state is swallowed");
    }

    #[test]
    fn what_is_not_ours_is_qemus() {
        let (mut chip, _) = chip("sst-guide", None);
        assert_eq!(chip.read_msr(0, 0xc000_0080, 0), None);
        chip.write_msr(0, 0xc000_0080, 1, 0);
        assert_eq!(chip.refused, 0);
        assert_eq!(chip.read_msr(0, msr::TSC, 0), None);
        assert_eq!(chip.cpuid(0, 0x15, 0), None);
        assert_eq!(chip.cpuid(0, 1, 0), None);
        assert!(chip.cpuid(0, 6, 0).is_some());
        chip.write_msr(1, msr::HWP_CAPABILITIES, 1, 0);
        assert_eq!(chip.refused, 1);
    }

    /// A guest may write anything anywhere.
    #[test]
    fn hostile_writes_do_no_harm() {
        for (name, interface) in
            [("ryzen-5750g", None), ("ryzen-5750g", Some(Interface::CppcMailbox)), ("sst-guide", None)]
        {
            let (mut chip, mailbox) = chip(name, interface);
            let mut state = 0x9e37_79b9_7f4a_7c15u64;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            for round in 0..3000 {
                let value = next();
                let register = match round % 4 {
                    0 => next() as u32 & 0xfff,
                    1 => 0xc001_0000 | next() as u32 & 0x3ff,
                    2 => 0x770 + next() as u32 % 8,
                    _ => 0xb0 + next() as u32 % 2,
                };
                let cpu = next() as usize % 5;
                chip.write_msr(cpu, register, value, 0);
                let _ = chip.read_msr(cpu, register, next() % 100_000);
                let _ = chip.cpuid(cpu % 4, next() as u32, next() as u32);
                let _ = chip.write_port(0, PORTS + (next() as u16 % 6), value as u8, 0);
                mailbox[next() as usize % mailbox.len()].store(value, Ordering::Relaxed);
                chip.advance(50_000, [next() % 60_000; 4].into_iter());
                let khz = chip.khz(0);
                assert!((1..=100_000_000).contains(&khz), "{khz}");
                assert!(chip.silicon().power(0).0.is_finite());
            }
        }
    }
}
