//! The simulated kernel's whole state: processors, drivers, CPUs, and everything attached to them.

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
    /// Words of the kernel command line. Those outside [`Boot::FOLLOWED`] are only shown.
    pub options: Vec<String>,
    /// True if governors other than performance and schedutil are modules that the first use loads,
    /// as in Debian's kernels.
    pub modular_governors: bool,
}

impl Boot {
    /// Options that the models implement.
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

    /// The last value of an option that is one of `words`.
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
    /// State of /sys/devices/system/cpu/smt/control, which can hold second threads of cores
    /// offline.
    pub(crate) smt: Smt,
    /// Requests on /dev/cpu_dma_latency: (open file, microseconds).
    pub(crate) dma_latency: Vec<(u64, i32)>,
    /// Platform profiles and the preferred die, as last written.
    pub(crate) firmware: Firmware,
    /// Highest and lowest ratio last written to each package's uncore entry; 0 if none.
    pub(crate) uncore_bounds: Vec<[u64; 2]>,
    /// The drivers behind /dev/isst_interface.
    pub(crate) isst: IsstDrivers,
    pub(crate) online_count: u32,
    /// Time throttled by heat, by package: total, longest stretch, current stretch, in nanoseconds.
    throttle: Vec<[u64; 3]>,
    activity: Vec<Activity>,
    /// The idle governor. The next field tells whether the kernel has teo, which Debian's kernels
    /// lack.
    pub(crate) idle_governor: IdleGovernor,
    pub(crate) has_teo: bool,
    idle_states: States,
    sleepers: Vec<Sleeper>,
    /// Idle state of each CPU in the last step.
    states: Vec<u8>,
    work: Vec<CpuWork>,
    /// The full speed by which the kernel scales utilisation.
    full_speed: Option<FullSpeed>,
    /// Busy time that register accesses cost each CPU, which the next step adds, ns.
    disturbed: Vec<u32>,
    /// True if any entry of `disturbed` is not 0.
    is_disturbed: bool,
    decays: Decays,
    /// Simulated time of the processors, less than a step behind `platform.now`.
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

    /// Boots a machine from a board and its chip.
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
            // Debian builds these two in; writing another governor's name loads its module
            // (cpufreq_parse_governor()).
            world.cpufreq.governors = vec!["performance", "schedutil"];
        }
        // teo came with 5.1.
        world.has_teo = kernel >= Kernel::V5_10 && world.boot.value("cpuidle.governor") == Some("teo");
        if world.has_teo {
            world.set_idle_governor(IdleGovernor::Teo);
        }
        if kernel < Kernel::V4_19 {
            // schedutil came with 4.7.
            world.cpufreq.governors.retain(|name| *name != "schedutil");
        }
        // Last, because drivers read registers and the board, and the Speed Select drivers check
        // what the others left.
        world.load_drivers();
        world.isst = IsstDrivers::for_platform(&world.platform);
        // The kernel starts each sibling once, and takes it offline again (cpu_bootable()).
        let smt = match (world.boot.has("nosmt"), world.boot.has("nosmt=force")) {
            (_, true) => Smt::ForceOff,
            (true, false) => Smt::Off,
            (false, false) => Smt::On,
        };
        if smt != Smt::On && world.smt == Smt::On {
            // Nothing in a simulated machine keeps a sibling online at boot.
            let _ = world.set_smt(smt);
        }
        world
    }

    /// Runs the initcalls that decide which cpufreq driver binds.
    fn load_drivers(&mut self) {
        // In the order of initcalls: intel_pstate and amd-pstate are device_initcall. acpi-cpufreq
        // is late_initcall, and gives up if a driver is registered.
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
        // Settle frequencies, heat and power to those of an idle machine, as after the seconds of a
        // boot.
        platform.chip.silicon_mut().settle();
    }

    /// arch/x86/kernel/cpu/intel_epb.c: changes a 0 from firmware to normal.
    fn normalise_epb(&mut self) {
        let platform = &mut self.platform;
        for cpu in 0..platform.board.cpus() {
            // Before a CPU is first online, saved_epb is empty, and intel_epb_restore() changes 0
            // to normal.
            platform.intel.cpus[cpu as usize].epb = 6;
            if platform.board.epb {
                match platform.chip.read(cpu, msr::ENERGY_PERF_BIAS) {
                    Ok(value) if value as u8 & 0xf == 0 => {
                        // ENERGY_PERF_BIAS_NORMAL. The register was read, so it can be written.
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
        // HWP cannot be disabled once enabled, so the kernel ignores the option
        // (intel_pstate_init).
        if !forced && boot.has("intel_pstate=disable") {
            return;
        }
        // Some descriptions lack these registers: intel_pstate_msrs_not_valid().
        let registers = platform.chip.read(0, msr::PLATFORM_INFO).is_ok();
        platform.intel.forced = forced;
        // Without EPP, HWP stays off unless firmware has enabled it (intel_pstate_init()).
        let wanted = platform.board.has("hwp_epp") && !boot.has("intel_pstate=no_hwp");
        // Up to 5.8 passive mode does not use HWP, and `active` is not a valid word
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
            // On by default only if ACPI's preferred profile is that of a server; RHEL 7 does not
            // have it.
            platform.intel.dynamic_boost =
                platform.intel.hwp && platform.board.server && platform.since(Kernel::V4_19);
        }
    }

    fn load_amd_pstate(&mut self) {
        let World { platform, cpufreq, cpus, boot, .. } = self;
        // amd-pstate came with 5.17.
        if platform.before(Kernel::V6_1) {
            return;
        }
        // amd_pstate_init(): 6.1 loads only on request. 6.12 leaves all servers to acpi-cpufreq,
        // kernels from 6.13 on only those before family 1Ah. The mode is
        // CONFIG_X86_AMD_PSTATE_DEFAULT_MODE, 3 in Debian's kernels.
        let server =
            platform.board.server && (platform.board.family < 0x1a || platform.before(Kernel::V6_18));
        let by_default = platform.since(Kernel::V6_12) && !server;
        let mode = match boot.value("amd_pstate") {
            Some("disable") => None,
            Some("passive") => Some(amd::Mode::Passive),
            // 6.1 accepts only passive; other words leave it unloaded (amd_pstate_param()).
            Some("active") if platform.since(Kernel::V6_12) => Some(amd::Mode::Active),
            Some("guided") if platform.since(Kernel::V6_12) => Some(amd::Mode::Guided),
            _ if by_default => Some(amd::Mode::Active),
            _ => None,
        };
        let cppc = &platform.board.cppc;
        // amd_detect_prefcore() in arch/x86/kernel/acpi/cppc.c: cores are ranked if their highest
        // levels differ.
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

    /// Online CPUs in ascending order.
    pub(crate) fn online(&self) -> impl Iterator<Item = u32> + '_ {
        self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.online).map(|(number, _)| number as u32)
    }

    /// Returns whether a CPU exists and is online.
    pub(crate) fn is_online(&self, cpu: u32) -> bool {
        self.cpus.get(cpu as usize).is_some_and(|cpu| cpu.online)
    }

    /// Charges a CPU for an access to its registers. The kernel reads them on that CPU and wakes it
    /// (arch/x86/lib/msr-smp.c), so an observer changes what it observes.
    pub(crate) fn disturb(&mut self, cpu: u32) {
        // Estimated cost of the wakeup and the function call (smp_call_function_single()).
        const COST_NS: u32 = 2_000;
        if let Some(cost) = self.disturbed.get_mut(cpu as usize) {
            // At most half a step, so that a program that reads continuously leaves the CPU some
            // time.
            *cost = cost.saturating_add(COST_NS).min(STEP_NS as u32 / 2);
            self.is_disturbed = true;
        }
    }

    /// Takes a CPU offline or online.
    pub(crate) fn set_online(&mut self, cpu: u32, online: bool) -> Answer {
        if self.cpus[cpu as usize].online == online {
            return Ok(());
        }
        if online {
            let siblings = &self.platform.board.places[cpu as usize].siblings;
            // cpu_smt_allowed() in kernel/cpu.c: second threads stay offline.
            if matches!(self.smt, Smt::Off | Smt::ForceOff) && siblings.first() != Some(&cpu) {
                return Err(Errno::PERM);
            }
            self.cpus[cpu as usize].online = true;
            self.online_count += 1;
            self.platform.chip.silicon_mut().set_online(cpu as usize, true);
            // The CPU is online first, because cpufreq's hotplug callback runs on it
            // (cpuhp_cpufreq_online).
            self.cpufreq.online(&mut self.platform, &self.cpus, cpu);
            if self.platform.board.epb {
                // intel_epb_online(): a core reset may have lost the bias.
                let epb = u64::from(self.platform.intel.cpus[cpu as usize].epb);
                let _ = self.platform.chip.write(cpu, msr::ENERGY_PERF_BIAS, epb);
            }
        } else {
            // kernel/cpu.c, _cpu_down().
            if self.online_count == 1 {
                return Err(Errno::BUSY);
            }
            // In reverse order of coming online: the driver still needs the CPU's registers.
            self.cpufreq.offline(&mut self.platform, cpu);
            self.cpus[cpu as usize].online = false;
            self.online_count -= 1;
            self.platform.chip.silicon_mut().set_online(cpu as usize, false);
        }
        Ok(())
    }

    /// Takes second threads offline and keeps them there, or brings all back (kernel/cpu.c,
    /// cpuhp_smt_*).
    pub(crate) fn set_smt(&mut self, wanted: Smt) -> Answer {
        let threads: Vec<u32> = (0..self.platform.board.cpus())
            .filter(|&cpu| self.platform.board.places[cpu as usize].siblings.first() != Some(&cpu))
            .collect();
        // Set the state first: set_online() reads it, like cpu_smt_allowed().
        if wanted == Smt::On {
            self.smt = Smt::On;
        }
        for cpu in threads {
            // Stop at the first error (cpuhp_smt_disable()).
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

    /// Total time that heat throttled a package, and its longest stretch, in milliseconds.
    pub(crate) fn throttle_ms(&self, package: u32) -> (u64, u64) {
        let [total, longest, _] = self.throttle.get(package as usize).copied().unwrap_or_default();
        (total / 1_000_000, longest / 1_000_000)
    }

    /// The strictest latency of all requests, in microseconds.
    pub(crate) fn latency_limit(&self) -> i32 {
        // PM_QOS_CPU_LATENCY_DEFAULT_VALUE: 2000 seconds.
        self.dma_latency.iter().map(|(_, us)| *us).min().unwrap_or(2_000_000_000)
    }

    /// Simulates steps up to `until`, and runs work items when they are due.
    pub(crate) fn run_until(&mut self, until: u64, load: &mut Option<Box<dyn Load>>) {
        loop {
            let next_step = self.simulated + STEP_NS;
            let next_work = self.cpufreq.next_work();
            let next = next_step.min(next_work);
            // Never split a step: the next call simulates time beyond the last whole step.
            if next > until {
                break;
            }
            self.platform.now = self.platform.now.max(next);
            // A work item that is due during a step runs first, so that its limits apply to the
            // step.
            if next_work <= next {
                self.cpufreq.work(&mut self.platform);
            }
            if next == next_step {
                self.step(load);
            }
        }
        // Reads between two steps see the clock advance, and the processors in the state after the
        // last step.
        self.platform.now = self.platform.now.max(until);
    }

    /// Records the tracepoints of the last step: which CPUs ran, and which went idle.
    fn trace_step(&mut self, now: u64) {
        let trace = &mut self.platform.trace;
        let first_idle = self.platform.board.first_idle as u32;
        let cpus = self.activity.iter().zip(&self.cpus).zip(&self.work);
        for (number, ((activity, cpu), work)) in cpus.enumerate() {
            let busy = u64::from(activity.busy_ns).min(STEP_NS);
            // Update offline CPUs too: a stale flag would attribute their next record to a task.
            trace.running[number] = cpu.online && busy > 0 && !work.kernel;
            if cpu.online {
                // In cpuidle's numbers: on x86 POLL is 0, and the silicon's first state is 1.
                let state = u32::from(activity.idle) + first_idle;
                trace.idle_step(now, STEP_NS, number as u32, state, busy, activity.wakes);
            }
        }
    }

    /// Chooses each CPU's idle state in this step from the load's work, and counts it.
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
                    // An offline CPU has no cpuidle counters: it idles in play_dead().
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

    /// Counts the time of packages above their temperature limit.
    fn count_throttling(&mut self) {
        for (package, [total, longest, present]) in self.throttle.iter_mut().enumerate() {
            // therm_throt.c counts from an interrupt to the one that ends the event; the model's
            // resolution is a step.
            if self.platform.chip.silicon().throttled(package) {
                *total += STEP_NS;
                *present += STEP_NS;
                *longest = (*longest).max(*present);
            } else {
                *present = 0;
            }
        }
    }

    /// Simulates one step of processors, scheduler and governors.
    fn step(&mut self, load: &mut Option<Box<dyn Load>>) {
        self.simulated += STEP_NS;
        let now = self.simulated;
        // CPUs that are offline, or that the load does not set, are idle.
        self.work.fill(CpuWork::default());
        if let Some(load) = load {
            // Apply what the governors wrote since the last step.
            self.platform.chip.silicon_mut().settle();
            let silicon = self.platform.chip.silicon();
            let step = Step { now_ns: now, span_ns: STEP_NS, silicon, idle: &self.states };
            load.step(&step, &mut self.work);
        }
        if std::mem::take(&mut self.is_disturbed) {
            for (work, cost) in self.work.iter_mut().zip(&mut self.disturbed) {
                // After the load's own work, to which register accesses are added.
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
                // Without invariance the kernel uses the policy's maximum as full speed.
                highest => highest,
            });
            cpu.woke_from_io |= work.io;
            if work.fork {
                cpu.load.fork();
                // The estimate belonged to the process that has ended.
                cpu.estimate = 0;
            }
            cpu.step(step, &mut self.decays, busy, work, Speed { khz, full });
        }
        self.cpufreq.tick(&mut self.platform, &mut self.cpus);
    }
}
