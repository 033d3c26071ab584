//! The simulated kernel's whole state: processors, drivers, CPUs, and what hangs off them.

use flyball_silicon::{Activity, MachineSpec, Silicon, SpecError, msr};

use crate::{
    board::{Board, CppcAccess, Vendor},
    chip::Chip,
    cpu_state::{Cpu, CpuStep, IdleCount, Speed},
    cpufreq::{
        Cpufreq, Platform, amd, cppc, intel,
        invariance::{FullSpeed, full_speed},
    },
    errno::{Answer, Errno},
    firmware::Firmware,
    governor::{Decay, Decays},
    idle::{Governor as IdleGovernor, Limits, Sleeper, States},
    isst_drivers::IsstDrivers,
    kernel::Kernel,
    load::{CpuWork, Load, STEP_NS, Step},
    trace::Tracer,
};

/// Boot options that change what a machine offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Boot {
    /// Words of the kernel command line. Those that are not in [`Boot::FOLLOWED`] are only shown.
    pub options: Vec<String>,
    /// Governors other than performance and schedutil are modules, which the first use loads, as in
    /// Debian's kernels.
    pub modular_governors: bool,
}

impl Boot {
    /// Options that the models follow.
    pub const FOLLOWED: [&str; 8] = [
        "acpi_cpufreq",
        "amd_prefcore",
        "amd_pstate",
        "cpuidle.governor",
        "intel_pstate",
        "isolcpus",
        "nohz_full",
        "nosmt",
    ];

    /// Returns the first option that the models ignore.
    pub fn ignored(&self) -> Option<&str> {
        let is_followed =
            |option: &&str| option.split('=').next().is_some_and(|name| Self::FOLLOWED.contains(&name));
        self.options.iter().map(String::as_str).find(|option| !is_followed(option))
    }

    fn has(&self, word: &str) -> bool {
        self.options.iter().any(|option| option == word)
    }

    /// The last value of an option that is one of these words.
    fn mode<'a>(&'a self, key: &str, words: &[&str]) -> Option<&'a str> {
        let values =
            self.options.iter().rev().filter_map(|option| option.strip_prefix(key)?.strip_prefix('='));
        values.into_iter().find(|value| words.contains(value))
    }

    pub(crate) fn value<'a>(&'a self, key: &str) -> Option<&'a str> {
        self.options.iter().rev().find_map(|option| option.strip_prefix(key)?.strip_prefix('='))
    }
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) boot: Boot,
    pub(crate) platform: Platform,
    pub(crate) cpufreq: Cpufreq,
    pub(crate) cpus: Vec<Cpu>,
    /// Threads beyond the first of a core are held offline by /sys/devices/system/cpu/smt/control.
    pub(crate) smt: Smt,
    /// Requests on /dev/cpu_dma_latency, by open file: microseconds.
    pub(crate) dma_latency: Vec<(u64, i32)>,
    /// Platform profiles and the preferred die, as they were last written.
    pub(crate) firmware: Firmware,
    /// The ratios last written to each package's uncore entry, highest and lowest; 0 if none was.
    pub(crate) uncore_bounds: Vec<[u64; 2]>,
    /// The drivers behind /dev/isst_interface.
    pub(crate) isst: IsstDrivers,
    pub(crate) online_count: u32,
    /// Time throttled by heat, by package: total, longest stretch, present stretch, in nanoseconds.
    throttle: Vec<[u64; 3]>,
    activity: Vec<Activity>,
    /// The governor of idle states, and whether the kernel has teo, which Debian's do not.
    pub(crate) idle_governor: IdleGovernor,
    pub(crate) has_teo: bool,
    idle_states: States,
    sleepers: Vec<Sleeper>,
    /// Idle state of each CPU in the last step.
    states: Vec<u8>,
    work: Vec<CpuWork>,
    /// The frequencies that the kernel scales utilisation by.
    full_speed: Option<FullSpeed>,
    /// Busy time that accesses to a CPU's registers cost it and that the next step takes into
    /// account, ns.
    disturbed: Vec<u32>,
    /// True if any of them is not 0.
    is_disturbed: bool,
    decays: Decays,
    /// The processors' own time, which trails `platform.now` by less than a step.
    simulated: u64,
}

/// /sys/devices/system/cpu/smt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Smt {
    On,
    Off,
    ForceOff,
    NotSupported,
}

impl World {
    pub(crate) fn boot(spec: MachineSpec, kernel: Kernel, boot: Boot, seed: u64) -> Result<World, SpecError> {
        let mut board = Board::new(&spec);
        let (name, title) = (spec.name.clone(), spec.title.clone());
        let silicon = Silicon::new(spec, seed)?;
        board.complete(&silicon);
        Ok(World::assemble(name, title, board, Chip::new(silicon), kernel, boot))
    }

    /// Boots a machine from a board and a chip that belong together.
    pub(crate) fn assemble(
        name: String,
        title: String,
        board: Board,
        chip: Chip,
        kernel: Kernel,
        boot: Boot,
    ) -> World {
        let count = board.cpus();
        let states = board.idle.len() + board.first_idle;
        // All CPUs are online when drivers register, as after the kernel's smp_init().
        let cpus: Vec<Cpu> = (0..count)
            .map(|_| Cpu { online: true, idle: vec![IdleCount::default(); states], ..Cpu::default() })
            .collect();
        let threads = board.places.iter().any(|place| place.siblings.len() > 1);
        let packages = board.packages() as usize;
        let cpufreq = Cpufreq::new(count);
        let trace = Tracer::new(kernel, count, board.tick_us, board.tsc_khz);
        let platform = Platform {
            kernel,
            trace,
            amd: amd::Amd::new(count),
            intel: intel::Intel::new(count),
            cppc: vec![cppc::Registers::default(); count as usize],
            board,
            chip,
            boost: false,
            now: 0,
        };
        let mut world = World {
            name,
            title,
            boot,
            full_speed: full_speed(&platform),
            idle_governor: IdleGovernor::default(),
            has_teo: false,
            idle_states: States::new(&platform.board),
            sleepers: vec![Sleeper::default(); count as usize],
            firmware: Firmware::new(&platform.board),
            uncore_bounds: vec![[0; 2]; platform.board.packages() as usize],
            platform,
            cpufreq,
            cpus,
            smt: if threads { Smt::On } else { Smt::NotSupported },
            dma_latency: Vec::new(),
            isst: IsstDrivers::default(),
            online_count: count,
            throttle: vec![[0; 3]; packages],
            activity: vec![Activity::idle(0); count as usize],
            states: vec![0; count as usize],
            work: vec![CpuWork::default(); count as usize],
            disturbed: vec![0; count as usize],
            is_disturbed: false,
            decays: Decays::default(),
            simulated: 0,
        };
        if world.boot.modular_governors {
            // Debian builds these two in; the first write of another one's name loads its module
            // (cpufreq_parse_governor()).
            world.cpufreq.governors = vec!["performance", "schedutil"];
        }
        // It came with 5.1.
        world.has_teo = kernel >= Kernel::V5_10 && world.boot.value("cpuidle.governor") == Some("teo");
        if world.has_teo {
            world.set_idle_governor(IdleGovernor::Teo);
        }
        if kernel < Kernel::V4_19 {
            // schedutil came with 4.7.
            world.cpufreq.governors.retain(|name| *name != "schedutil");
        }
        // Last: drivers read registers and the board, and the Speed Select drivers look at what
        // they left.
        world.load_drivers();
        world.isst = IsstDrivers::for_platform(&world.platform);
        // The kernel starts each sibling once and takes it offline again (cpu_bootable()).
        let smt = match (world.boot.has("nosmt"), world.boot.has("nosmt=force")) {
            (_, true) => Smt::ForceOff,
            (true, false) => Smt::Off,
            (false, false) => Smt::On,
        };
        if smt != Smt::On && world.smt == Smt::On {
            // No rule of a simulated machine keeps a sibling online at boot.
            let _ = world.set_smt(smt);
        }
        world
    }

    /// The initcalls that decide which cpufreq driver binds.
    fn load_drivers(&mut self) {
        // The order of the initcalls: intel_pstate and amd-pstate are device_initcall, acpi-cpufreq
        // late_initcall, which gives up if a driver is registered.
        self.normalise_epb();
        match self.platform.board.vendor {
            Vendor::Intel => self.load_intel_pstate(),
            Vendor::Amd => self.load_amd_pstate(),
            Vendor::Arm => {
                let _ = self.cpufreq.register(&mut self.platform, &self.cpus, &cppc::CppcCpufreq);
            }
        }
        let World { platform, cpufreq, cpus, boot, .. } = self;
        if cpufreq.driver.is_none() && !platform.board.pss.is_empty() && !boot.has("acpi_cpufreq=disable") {
            let _ = cpufreq.register(platform, cpus, &crate::cpufreq::acpi::AcpiCpufreq);
        }
        // As after the seconds that a kernel takes to boot: frequencies, heat and power of an idle
        // machine.
        platform.chip.silicon_mut().settle();
    }

    /// arch/x86/kernel/cpu/intel_epb.c: a value that firmware left at 0 becomes normal.
    fn normalise_epb(&mut self) {
        let platform = &mut self.platform;
        for cpu in 0..platform.board.cpus() {
            // Before its first time online saved_epb is empty, and intel_epb_restore() makes a 0
            // normal.
            platform.intel.cpus[cpu as usize].epb = 6;
            if platform.board.epb {
                match platform.chip.read(cpu, msr::ENERGY_PERF_BIAS) {
                    Ok(value) if value as u8 & 0xf == 0 => {
                        // ENERGY_PERF_BIAS_NORMAL; that the register can be written is clear, since
                        // it was read.
                        let _ = platform.chip.write(cpu, msr::ENERGY_PERF_BIAS, value | 6);
                    }
                    Ok(value) => platform.intel.cpus[cpu as usize].epb = (value & 0xf) as u8,
                    Err(_) => {}
                }
            }
        }
    }

    fn load_intel_pstate(&mut self) {
        let World { platform, cpufreq, cpus, boot, .. } = self;
        let forced = intel::firmware_enabled_hwp(platform);
        // Once HWP is on it cannot be switched off, and the kernel ignores the option
        // (intel_pstate_init).
        if !forced && boot.has("intel_pstate=disable") {
            return;
        }
        // Some descriptions have none: intel_pstate_msrs_not_valid().
        let registers = platform.chip.read(0, msr::PLATFORM_INFO).is_ok();
        platform.intel.forced = forced;
        // Without a preference HWP is left off unless firmware has switched it on
        // (intel_pstate_init()).
        let wanted = platform.board.has("hwp_epp") && !boot.has("intel_pstate=no_hwp");
        // Up to 5.8 passive mode does without HWP, and `active` is not a word
        // (intel_pstate_setup()).
        let old = platform.before(Kernel::V5_10);
        let passive = boot.mode("intel_pstate", &["passive", "active"]) == Some("passive");
        platform.intel.hwp = platform.board.hwp && if old { wanted && !passive } else { forced || wanted };
        let mode = match boot.mode("intel_pstate", &["passive", "active"]) {
            Some("passive") => intel::Mode::Passive,
            Some("active") => intel::Mode::Active,
            // Without HWP the default has been passive since 5.8 (default_driver in
            // intel_pstate_init()).
            _ if platform.intel.hwp || old => intel::Mode::Active,
            _ => intel::Mode::Passive,
        };
        if registers && intel::register(cpufreq, platform, cpus, mode).is_ok() {
            platform.intel.present = true;
            // On by default only if ACPI's preferred profile is a server's; RHEL 7 has none.
            platform.intel.dynamic_boost =
                platform.intel.hwp && platform.board.server && platform.since(Kernel::V4_19);
        }
    }

    fn load_amd_pstate(&mut self) {
        let World { platform, cpufreq, cpus, boot, .. } = self;
        // The driver came with 5.17.
        if platform.before(Kernel::V6_1) {
            return;
        }
        // amd_pstate_init(): 6.1 loads only if asked to; 6.12 leaves all servers to acpi-cpufreq,
        // kernels from 6.13 on those before family 1Ah. The mode is
        // CONFIG_X86_AMD_PSTATE_DEFAULT_MODE, 3 in Debian's kernels.
        let server =
            platform.board.server && (platform.board.family < 0x1a || platform.before(Kernel::V6_18));
        let by_default = platform.since(Kernel::V6_12) && !server;
        let mode = match boot.value("amd_pstate") {
            Some("disable") => None,
            Some("passive") => Some(amd::Mode::Passive),
            // 6.1 knows passive alone; other words leave it unloaded (amd_pstate_param()).
            Some("active") if platform.since(Kernel::V6_12) => Some(amd::Mode::Active),
            Some("guided") if platform.since(Kernel::V6_12) => Some(amd::Mode::Guided),
            _ if by_default => Some(amd::Mode::Active),
            _ => None,
        };
        let cppc = &platform.board.cppc;
        // amd_detect_prefcore() in arch/x86/kernel/acpi/cppc.c: two different highest levels on the
        // machine make a ranking.
        let ranked = cppc.windows(2).any(|pair| pair[0].highest != pair[1].highest);
        platform.amd.ranked = ranked;
        platform.amd.prefcore =
            ranked && platform.since(Kernel::V6_12) && boot.value("amd_prefcore") != Some("disable");
        if let Some(mode) = mode
            && platform.board.access != CppcAccess::None
            && amd::register(cpufreq, platform, cpus, mode).is_ok()
        {
            platform.amd.present = true;
        }
    }

    /// The CPUs that are online, ascending.
    pub(crate) fn online(&self) -> impl Iterator<Item = u32> + '_ {
        self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.online).map(|(number, _)| number as u32)
    }

    /// Returns whether a CPU exists and is online.
    pub(crate) fn is_online(&self, cpu: u32) -> bool {
        self.cpus.get(cpu as usize).is_some_and(|cpu| cpu.online)
    }

    /// An access to a CPU's registers wakes it: the kernel reads them on that CPU
    /// (arch/x86/lib/msr-smp.c), so an observer changes what it observes.
    pub(crate) fn disturb(&mut self, cpu: u32) {
        // An estimate of the wake-up and the function call (smp_call_function_single()).
        const COST_NS: u32 = 2_000;
        if let Some(cost) = self.disturbed.get_mut(cpu as usize) {
            // At most half a step, so that a program that reads without a pause leaves the CPU some
            // time.
            *cost = cost.saturating_add(COST_NS).min(STEP_NS as u32 / 2);
            self.is_disturbed = true;
        }
    }

    /// Takes a CPU offline or back.
    pub(crate) fn set_online(&mut self, cpu: u32, online: bool) -> Answer {
        if self.cpus[cpu as usize].online == online {
            return Ok(());
        }
        if online {
            let siblings = &self.platform.board.places[cpu as usize].siblings;
            // cpu_smt_allowed() in kernel/cpu.c: a second thread stays off.
            if matches!(self.smt, Smt::Off | Smt::ForceOff) && siblings.first() != Some(&cpu) {
                return Err(Errno::PERM);
            }
            self.cpus[cpu as usize].online = true;
            self.online_count += 1;
            self.platform.chip.silicon_mut().set_online(cpu as usize, true);
            // Online first: the hotplug callback of cpufreq runs on the CPU that has come up
            // (cpuhp_cpufreq_online).
            self.cpufreq.online(&mut self.platform, &self.cpus, cpu);
            if self.platform.board.epb {
                // intel_epb_online(): a reset of the core may have lost the bias.
                let epb = u64::from(self.platform.intel.cpus[cpu as usize].epb);
                let _ = self.platform.chip.write(cpu, msr::ENERGY_PERF_BIAS, epb);
            }
        } else {
            // kernel/cpu.c, _cpu_down().
            if self.online_count == 1 {
                return Err(Errno::BUSY);
            }
            // In the reverse order of coming up: the driver still reaches the CPU's registers.
            self.cpufreq.offline(&mut self.platform, cpu);
            self.cpus[cpu as usize].online = false;
            self.online_count -= 1;
            self.platform.chip.silicon_mut().set_online(cpu as usize, false);
        }
        Ok(())
    }

    /// Takes second threads offline and holds them there, or brings all back (kernel/cpu.c,
    /// cpuhp_smt_*).
    pub(crate) fn set_smt(&mut self, wanted: Smt) -> Answer {
        let threads: Vec<u32> = (0..self.platform.board.cpus())
            .filter(|&cpu| self.platform.board.places[cpu as usize].siblings.first() != Some(&cpu))
            .collect();
        // The state first: set_online() reads it, as cpu_smt_allowed() does.
        if wanted == Smt::On {
            self.smt = Smt::On;
        }
        for cpu in threads {
            // The first refusal ends it (cpuhp_smt_disable()).
            self.set_online(cpu, wanted == Smt::On)?;
        }
        self.smt = wanted;
        Ok(())
    }

    pub(crate) fn set_idle_governor(&mut self, governor: IdleGovernor) {
        if governor != self.idle_governor {
            self.idle_governor = governor;
            self.sleepers.iter_mut().for_each(|sleeper| sleeper.set_governor(governor));
        }
    }

    /// Milliseconds that a package was throttled by heat: in all, and at the longest stretch.
    pub(crate) fn throttle_ms(&self, package: u32) -> (u64, u64) {
        let [total, longest, _] = self.throttle.get(package as usize).copied().unwrap_or_default();
        (total / 1_000_000, longest / 1_000_000)
    }

    /// The latency that all requests together leave, in microseconds.
    pub(crate) fn latency_limit(&self) -> i32 {
        // PM_QOS_CPU_LATENCY_DEFAULT_VALUE: 2000 seconds.
        self.dma_latency.iter().map(|(_, us)| *us).min().unwrap_or(2_000_000_000)
    }

    /// Lets time pass to `until`, in steps; work items run when they are due.
    pub(crate) fn run_until(&mut self, until: u64, load: &mut Option<Box<dyn Load>>) {
        loop {
            let next_step = self.simulated + STEP_NS;
            let next_work = self.cpufreq.next_work();
            let next = next_step.min(next_work);
            // A step is never cut: what lies beyond the last whole step is simulated with the next
            // call.
            if next > until {
                break;
            }
            self.platform.now = self.platform.now.max(next);
            // A work item that is due with a step comes first: the step then runs under its limits.
            if next_work <= next {
                self.cpufreq.work(&mut self.platform);
            }
            if next == next_step {
                self.step(load);
            }
        }
        // Reads between two steps see the clock move, and the processors as the last step left
        // them.
        self.platform.now = self.platform.now.max(until);
    }

    /// Records the tracepoints of the last step: who ran, and who went idle.
    fn trace_step(&mut self, now: u64) {
        let trace = &mut self.platform.trace;
        let first_idle = self.platform.board.first_idle as u32;
        let cpus = self.activity.iter().zip(&self.cpus).zip(&self.work);
        for (number, ((activity, cpu), work)) in cpus.enumerate() {
            let busy = u64::from(activity.busy_ns).min(STEP_NS);
            // Also for CPUs that are offline: a stale flag would give their next record a task.
            trace.running[number] = cpu.online && busy > 0 && !work.kernel;
            if cpu.online {
                // cpuidle's numbers: POLL is 0 on x86, the silicon's first state is 1.
                let state = u32::from(activity.idle) + first_idle;
                trace.idle_step(now, STEP_NS, number as u32, state, busy, activity.wakes);
            }
        }
    }

    /// The idle state of each CPU in this step, from the work that the load left it, and its
    /// counts.
    fn choose_idle_states(&mut self) {
        let limit = self.latency_limit();
        let time = (self.simulated, STEP_NS);
        for (number, (work, cpu)) in self.work.iter().zip(&mut self.cpus).enumerate() {
            let activity = &mut self.activity[number];
            let was_busy = u64::from(activity.busy_ns) >= STEP_NS;
            let rest = STEP_NS - u64::from(work.activity.busy_ns).min(STEP_NS);
            let state = &mut self.states[number];
            if rest > 0 || work.activity.wakes > 0 || !cpu.online {
                let limits =
                    Limits { limit_us: limit, own_us: cpu.resume_latency_us, disabled: cpu.disabled };
                let sleeper = &mut self.sleepers[number];
                sleeper.limit(&self.idle_states, limits);
                if !cpu.online {
                    // An offline CPU has no counters of cpuidle: it rests in play_dead().
                    *state = sleeper.deepest();
                    *activity = Activity::idle(*state);
                    continue;
                }
                if was_busy {
                    sleeper.stay_awake_until(time.0 - STEP_NS);
                }
                *state = sleeper.step(&self.idle_states, (work, rest), time, &mut cpu.idle);
            }
            *activity = work.activity;
            activity.idle = *state;
        }
    }

    /// Time of packages above their temperature limit.
    fn count_throttling(&mut self) {
        for (package, [total, longest, present]) in self.throttle.iter_mut().enumerate() {
            // therm_throt.c counts from the interrupt to the one that ends it; a step is as fine as
            // it gets here.
            if self.platform.chip.silicon().throttled(package) {
                *total += STEP_NS;
                *present += STEP_NS;
                *longest = (*longest).max(*present);
            } else {
                *present = 0;
            }
        }
    }

    /// Runs one step of the processors, the scheduler and the governors.
    fn step(&mut self, load: &mut Option<Box<dyn Load>>) {
        self.simulated += STEP_NS;
        let now = self.simulated;
        // Offline and unmentioned CPUs are idle.
        self.work.fill(CpuWork::default());
        if let Some(load) = load {
            // What the governors wrote since the last step acts in this one.
            self.platform.chip.silicon_mut().settle();
            let silicon = self.platform.chip.silicon();
            let step = Step { now_ns: now, span_ns: STEP_NS, silicon, idle: &self.states };
            load.step(&step, &mut self.work);
        }
        if std::mem::take(&mut self.is_disturbed) {
            for (work, cost) in self.work.iter_mut().zip(&mut self.disturbed) {
                // After the load's own work: accesses to registers come on top of it.
                if *cost > 0 {
                    let activity = &mut work.activity;
                    work.kernel |= activity.busy_ns == 0;
                    activity.busy_ns = activity.busy_ns.saturating_add(std::mem::take(cost));
                    activity.wakes = activity.wakes.saturating_add(1);
                }
            }
        }
        self.choose_idle_states();
        self.platform.chip.advance(STEP_NS, &self.activity);
        if self.platform.trace.is_any_enabled() {
            self.trace_step(now);
        }
        self.count_throttling();
        let tick = self.platform.board.tick_us * 1000;
        let decay = Decay::over(STEP_NS, &mut self.decays);
        let step = CpuStep { now, span: STEP_NS, decay, tick, is_tick: now.is_multiple_of(tick) };
        let full_speed = match self.full_speed {
            // arch_set_max_freq_ratio(): without turbo the base frequency is full speed.
            Some(full) if self.platform.intel.no_turbo => Some(full.base),
            full => full.map(|full| full.turbo),
        };
        for (number, (work, cpu)) in self.work.iter().zip(&mut self.cpus).enumerate() {
            if !cpu.online {
                continue;
            }
            let busy = match u64::from(work.activity.busy_ns) {
                0 => 0.0,
                // u32::MAX stands for the whole step.
                STEP_NS.. => 1.0,
                _ => f64::from(work.activity.busy_ns) / STEP_NS as f64,
            };
            let khz = self.platform.chip.khz(number as u32);
            if work.activity.busy_ns > 0 && self.platform.board.vendor == Vendor::Arm {
                cppc::report(&mut self.platform, number as u32, khz);
            }
            let full = full_speed.unwrap_or_else(|| match self.cpufreq.highest[number] {
                0 => khz,
                // No invariance: the kernel takes the policy's maximum for full speed.
                highest => highest,
            });
            cpu.woke_from_io |= work.io;
            if work.fork {
                cpu.load.fork();
                // The estimate was that of the process that has gone.
                cpu.estimate = 0;
            }
            cpu.step(step, &mut self.decays, busy, work, Speed { khz, full });
        }
        self.cpufreq.tick(&mut self.platform, &mut self.cpus);
    }
}
