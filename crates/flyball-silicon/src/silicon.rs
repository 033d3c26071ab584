//! The running machine: its state by CPU, core and package, and the step that advances it.

mod choose;
mod request;
mod step;

use std::sync::Arc;

use crate::curve::Curve;
use crate::energy::EnergyUnit;
use crate::firmware::{Autonomous, Request, SharedCppc};
use crate::latched::Registers;
use crate::limits::{PowerControl, PowerLimit};
use crate::spec::{MachineSpec, SpecError};
use crate::sst_state::SstState;
use crate::thermal::Thermal;
use crate::topology::{CorePlace, Topology};
use crate::units::{Celsius, KiloHertz, Watts};

/// The kind of code, which selects the turbo limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum License {
    /// Plain code.
    #[default]
    Sse,
    /// Heavy AVX2.
    Avx2,
    /// Heavy AVX-512.
    Avx512,
}

/// The work of one CPU in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Time executing in C0, ns. Clipped to the step; `u32::MAX` means all of it.
    pub busy_ns: u32,
    /// Wakeups from the idle state in that time.
    pub wakes: u16,
    /// Switching activity while busy, in 1/256 of dense integer code. Code that waits for memory
    /// has less, vector code more.
    pub intensity: u16,
    /// Share of the busy time spent waiting for memory, in 1/255. Memory's power depends on it.
    pub memory: u8,
    /// The idle state for the remaining time: index into the core type's idle states, 0 the
    /// shallowest.
    pub idle: u8,
    /// The kind of code.
    pub license: License,
}

impl Activity {
    /// Executes dense integer code all the time.
    pub const fn busy() -> Activity {
        Activity { busy_ns: u32::MAX, wakes: 0, intensity: 256, memory: 0, idle: 0, license: License::Sse }
    }

    /// Idle all the time in state `state`.
    pub const fn idle(state: u8) -> Activity {
        Activity { busy_ns: 0, wakes: 0, intensity: 256, memory: 0, idle: state, license: License::Sse }
    }

    /// Executes for `busy_ns` of the step, and idles in `state` otherwise.
    pub const fn partly(busy_ns: u32, wakes: u16, state: u8) -> Activity {
        Activity { busy_ns, wakes, intensity: 256, memory: 0, idle: state, license: License::Sse }
    }
}

/// A core type's constants in a form for the step loop.
#[derive(Debug)]
pub(crate) struct Kind {
    pub curve: Curve,
    pub min: u32,
    pub efficient: u32,
    pub base: u32,
    pub max: u32,
    leakage: f64,
    smt_power: f64,
    budget: f64,
    idle: Vec<Idle>,
}

#[derive(Clone, Copy, Debug)]
struct Idle {
    leakage: f64,
    activity: f64,
    ramp_ns: f64,
    ramp_khz: f64,
    /// Residency counter of the state: an index into [`Core::residency`].
    counter: usize,
    deep: bool,
}

/// Numbers of the C-states with a residency counter, by index. States without a counter use the
/// index after the last.
const COUNTERS: [u8; 4] = [1, 3, 6, 7];

/// State of one package.
#[expect(clippy::struct_excessive_bools, reason = "independent switches and log bits of the hardware")]
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub thermal: Thermal,
    pub control: PowerControl,
    pub watts: f64,
    pub cores_watts: f64,
    pub dram_watts: f64,
    pub energy: u128,
    pub cores_energy: u128,
    pub dram_energy: u128,
    /// Energy since the firmware's last decision, J.
    window_joules: f64,
    /// Sum of the awake time of all cores since that decision, core-seconds.
    window_awake: f64,
    window_first_awake: f64,
    pub awake: f64,
    /// Mean number of awake cores of the first core type.
    first_awake: f64,
    /// Share of the frequency range that the temperature allows.
    pub cool: f64,
    pub hottest: f64,
    pub hot: bool,
    /// PROCHOT log and power-limit log of the package's status register.
    pub hot_log: bool,
    pub power_log: bool,
    /// Bit 24 of the limit reasons.
    pub current_log: bool,
    pub throttle_events: u64,
    pub sleep_ns: u64,
    /// True if a register write changed the limits of the package's cores.
    pub stale: bool,
    /// Sums over the cores, for both parts of a step.
    sums: [step::Sums; 2],
    /// The limits at the last choice of the cores' frequencies.
    chosen: Option<choose::PackageLimits>,
    /// The share of the uncore's range that its limits allow.
    pub uncore: f64,
}

/// A running machine. See the crate's documentation for an example.
#[derive(Debug)]
pub struct Silicon {
    pub(crate) spec: Arc<MachineSpec>,
    pub(crate) topology: Topology,
    pub(crate) kinds: Arc<[Kind]>,
    pub(crate) autonomous: Autonomous,
    pub(crate) registers: Registers,
    pub(crate) sst: Option<SstState>,
    pub(crate) now_ns: u64,
    period_ns: u64,
    phase_ns: u64,
    /// True after a write to a register that affects requests.
    stale: bool,
    /// True if the write affects more than the requests of the CPUs in `written`.
    wide: bool,
    /// CPUs whose own request was written.
    written: Vec<u32>,
    /// The length of the last step.
    whole_ns: u64,

    /// State by CPU.
    pub(crate) thread: Vec<Thread>,
    pub(crate) core: Vec<Core>,
    pub(crate) package: Vec<Package>,
    /// Turbo limits by package and licence: (active cores, kHz).
    pub(crate) turbo: Vec<[Vec<(u32, u32)>; 3]>,
    pub(crate) platform_energy: u128,
    platform_watts: f64,
}

/// State of one CPU.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    request: Request,
    utilisation: f64,
    /// Total busy time at the firmware's last decision, and busy time in the period before it.
    looked: u64,
    window: u64,
    /// `window` as a share of the period.
    measured: f64,
    pub busy_ns: u64,
    /// Cycles since reset, in millionths (kHz times ns).
    microcycles: u128,
    pub online: bool,
}

impl Thread {
    /// Cycles since reset.
    pub(crate) fn cycles(&self) -> u64 {
        (self.microcycles / 1_000_000) as u64
    }
}

/// State of one core.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    place: CoreSlot,
    pub khz: u32,
    /// Frequency that the firmware would choose without limits.
    target: u32,
    /// Guaranteed frequency, kHz; Speed Select changes it.
    pub guaranteed: u32,
    /// Highest frequency that turbo switches and classes of service allow, kHz.
    ceiling: u32,
    /// Frequency at which firmware caps the core regardless of requests, kHz; `u32::MAX`: none.
    held: u32,
    /// True if an input of the frequency's choice has changed since the last choice.
    moved: bool,
    /// True if an input of the target has changed since the target was chosen.
    asked: bool,
    license: License,
    pub hot_log: bool,
    quality: f64,
    intensity: f64,
    /// At the current frequency: dynamic power at full activity, W, and the factor of the leakage.
    dynamic: f64,
    leakage: f64,
    /// Inputs for which `dynamic` and `leakage` were computed: the frequency, and the factor of the
    /// dynamic power while two frequency managers conflict.
    powered: (u32, f64),
    /// The work of the core's CPUs in the last step. `kept` has values derived from it for the two
    /// parts of a step.
    activity: [Activity; 2],
    kept: [step::CachedPower; 2],
    pub watts: f64,
    pub energy: u128,
    pub residency: [u64; 5],
}

#[derive(Clone, Copy, Debug)]
struct CoreSlot {
    first: u32,
    second: u32,
    kind: u16,
    smt: bool,
}

impl Silicon {
    /// Creates a machine at reset. The seed makes machines of one type differ: so far only in the
    /// phase of the first firmware tick.
    ///
    /// # Errors
    /// The specification is contradictory.
    pub fn new(spec: impl Into<Arc<MachineSpec>>, seed: u64) -> Result<Silicon, SpecError> {
        let spec: Arc<MachineSpec> = spec.into();
        spec.check()?;
        // After check(), because the arithmetic here relies on its bounds.
        let topology = Topology::new(&spec);
        let kinds: Arc<[Kind]> = spec.core.iter().map(Kind::new).collect();
        let (cpus, cores, packages) = (topology.cpus(), topology.cores(), topology.packages());
        let core = (0..cores).map(|c| Core::new(&spec, &kinds, topology.core(c))).collect();
        let period_ns = u64::from(spec.firmware.period_us) * 1000;
        let mut s = Silicon {
            autonomous: Autonomous::new(&spec.firmware.autonomous, spec.firmware.period_us),
            registers: Registers::new(&spec, &topology),
            sst: spec.sst.as_ref().map(|s| SstState::new(&spec, s, &topology)),
            now_ns: 0,
            period_ns,
            // Whole microseconds; with seed 0 the first period is complete.
            phase_ns: if seed == 0 { 0 } else { mix(seed) % period_ns / 1000 * 1000 },
            stale: true,
            wide: true,
            written: Vec::new(),
            whole_ns: 0,
            thread: vec![Thread::default(); cpus],
            core,
            package: vec![Package::new(&spec); packages],
            turbo: vec![[Vec::new(), Vec::new(), Vec::new()]; packages],
            platform_energy: 0,
            platform_watts: 0.0,
            kinds,
            topology,
            spec,
        };
        // Derive the frequencies from the registers at reset.
        s.settle();
        Ok(s)
    }

    /// Returns the specification that the machine was made from.
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// Returns the topology: the position of each CPU.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> usize {
        self.thread.len()
    }

    /// Time since reset, ns.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The exit latency of an idle state as a workload sees it, ns.
    pub fn wake_ns(&self, cpu: usize, state: u8) -> u64 {
        let idle = &self.spec.core[self.topology.core_of(cpu).kind].idle;
        // A machine file has at least one idle state (check_core()); a larger number means the
        // deepest.
        let s = &idle[(state as usize).min(idle.len() - 1)];
        if s.wake_us > 0.0 { (s.wake_us * 1000.0) as u64 } else { u64::from(s.latency_us) * 1000 }
    }

    /// Maximum deviation of a wakeup from [`Silicon::wake_ns`], ns.
    pub fn wake_spread_ns(&self, cpu: usize, state: u8) -> u64 {
        let idle = &self.spec.core[self.topology.core_of(cpu).kind].idle;
        idle.get(usize::from(state)).map_or(0, |state| (state.wake_spread_us * 1000.0) as u64)
    }

    /// Time that a wakeup from an idle state loses at the CPU's current frequency, because the core
    /// is slow at first, ns.
    pub fn wake_loss_ns(&self, cpu: usize, state: u8) -> f64 {
        let place = self.topology.cpu(cpu);
        let kind = &self.kinds[self.topology.core(place.core).kind];
        let s = kind.idle[(state as usize).min(kind.idle.len() - 1)];
        let khz = f64::from(self.core[place.core].khz);
        // A core that runs below the ramp frequency loses nothing.
        if s.ramp_khz > 0.0 && s.ramp_khz < khz { s.ramp_ns * (1.0 - s.ramp_khz / khz) } else { 0.0 }
    }

    /// The current frequency of a CPU, which is constant until the firmware's next decision.
    pub fn frequency(&self, cpu: usize) -> KiloHertz {
        KiloHertz(self.core[self.topology.cpu(cpu).core].khz)
    }

    /// The current guaranteed (base, nominal) frequency of a CPU; Speed Select changes it.
    pub fn guaranteed(&self, cpu: usize) -> KiloHertz {
        KiloHertz(self.core[self.topology.cpu(cpu).core].guaranteed)
    }

    /// Cycles that a CPU executed since reset (APERF before any write to it).
    pub fn cycles(&self, cpu: usize) -> u64 {
        self.thread.get(cpu).map_or(0, Thread::cycles)
    }

    /// Power of a package in the last step.
    pub fn power(&self, package: usize) -> Watts {
        Watts(self.package[package].watts)
    }

    /// Power of the whole machine at the wall in the last step.
    pub fn platform_power(&self) -> Watts {
        Watts(self.platform_watts)
    }

    /// Energy of a package since reset, in femtojoules.
    pub fn energy_femtojoules(&self, package: usize) -> u128 {
        self.package[package].energy
    }

    /// Energy of a package since reset, J.
    pub fn energy_joules(&self, package: usize) -> f64 {
        self.package[package].energy as f64 * 1e-15
    }

    /// The hottest spot of a package.
    pub fn temperature(&self, package: usize) -> Celsius {
        Celsius(self.package[package].hottest)
    }

    /// The hot spot of a CPU's core.
    pub fn core_temperature(&self, cpu: usize) -> Celsius {
        let p = self.topology.cpu(cpu);
        let package = self.topology.core(p.core).package;
        Celsius(self.package[package].thermal.die + self.core[p.core].watts * self.spec.thermal.core_k_per_w)
    }

    /// Number of times that a package overheated since reset. Each time, every CPU of it gets one
    /// thermal interrupt.
    pub fn throttle_events(&self, package: usize) -> u64 {
        self.package[package].throttle_events
    }

    /// Returns whether a power limit currently holds down a package's frequencies.
    pub fn is_power_limited(&self, package: usize) -> bool {
        self.package[package].control.room < 1.0
    }

    /// Returns whether heat throttles a package now.
    pub fn throttled(&self, package: usize) -> bool {
        self.package[package].hot
    }

    /// Sets the temperature of the air.
    pub fn set_ambient(&mut self, celsius: f64) {
        for p in &mut self.package {
            p.thermal.ambient = celsius.clamp(-40.0, 80.0);
        }
    }

    /// Sets the factor of a package's thermal resistance to air: 1 for a normal fan, more for a
    /// blocked one.
    pub fn set_obstruction(&mut self, package: usize, factor: f64) {
        if let Some(p) = self.package.get_mut(package) {
            p.thermal.obstruction = factor.clamp(0.01, 1000.0);
        }
    }

    /// Simulates faulty firmware that caps a CPU's core at this frequency regardless of requests;
    /// `None` ends it.
    pub fn hold(&mut self, cpu: usize, khz: Option<KiloHertz>) {
        if cpu < self.cpus() {
            let core = self.topology.cpu(cpu).core;
            self.core[core].held = khz.map_or(u32::MAX, |khz| khz.0);
            self.touch();
        }
    }

    /// Sets the temperatures that this power reaches after a long time.
    pub fn preheat(&mut self, package: usize, watts: f64) {
        if let Some(p) = self.package.get_mut(package) {
            p.thermal.settle(watts.clamp(0.0, 10_000.0));
        }
    }

    /// Takes a CPU offline or online. An offline CPU does nothing, requests nothing and does not
    /// count as active.
    pub fn set_online(&mut self, cpu: usize, online: bool) {
        if let Some(thread) = self.thread.get_mut(cpu) {
            thread.online = online;
            self.touch();
        }
    }

    /// Records a write that affects more than one CPU's request.
    pub(crate) fn touch(&mut self) {
        self.stale = true;
        self.wide = true;
    }

    /// Records a write that affects only this CPU's request.
    pub(crate) fn touch_request(&mut self, cpu: usize) {
        self.stale = true;
        // A governor on 512 CPUs writes one request after the other, and decoding all requests
        // after each write would be quadratic. If the list is longer than the number of CPUs, one
        // pass over all is cheaper.
        if self.written.len() > self.thread.len() {
            self.wide = true;
        } else {
            self.written.push(cpu as u32);
        }
    }

    /// Applies register writes now instead of at the start of the next step.
    pub fn settle(&mut self) {
        if !self.stale {
            return;
        }
        self.stale = false;
        // Moved out and back, to reuse its memory: this runs in every step.
        let mut written = std::mem::take(&mut self.written);
        if std::mem::take(&mut self.wide) {
            for p in 0..self.package.len() {
                if std::mem::take(&mut self.package[p].stale) {
                    self.refresh_package(p);
                }
            }
            for cpu in 0..self.cpus() {
                self.thread[cpu].request = self.decode_request(cpu);
            }
            // A switch may have changed limits without changing the target.
            for core in &mut self.core {
                (core.moved, core.asked) = (true, true);
                // CPUs may have gone online or offline.
                core.kept = [step::CachedPower::default(); 2];
            }
            self.choose_targets();
        } else {
            for &cpu in &written {
                self.thread[cpu as usize].request = self.decode_request(cpu as usize);
                let core = self.topology.cpu(cpu as usize).core;
                (self.core[core].moved, self.core[core].asked) = (true, true);
                self.choose_target(core);
            }
        }
        written.clear();
        self.written = written;
        for p in 0..self.package.len() {
            self.choose_frequencies(p);
        }
    }

    /// Advances the machine by `dt_ns`, with one activity per CPU; missing ones are idle in their
    /// first state.
    pub fn advance(&mut self, dt_ns: u64, activity: &[Activity]) {
        self.settle();
        self.forget_changed_work(dt_ns, activity);
        let mut left = dt_ns;
        while left > 0 {
            // Split at the firmware's periods, so that its decisions do not depend on the caller's
            // step length.
            let part = left.min(self.period_ns - self.phase_ns);
            // Part 0 is before the firmware's decision and part 1 after it. If periods are as long
            // as the caller's steps, the length of each part does not change from step to step.
            let kept = usize::from(left < dt_ns);
            self.step(kept, part, dt_ns);
            self.now_ns += part;
            self.phase_ns += part;
            left -= part;
            if self.phase_ns >= self.period_ns {
                self.phase_ns = 0;
                self.firmware();
            }
        }
    }

    /// A core's energy counter in its unit.
    pub(crate) fn core_energy_counter(&self, core: usize) -> u32 {
        self.esu().counter(self.core[core].energy)
    }

    pub(crate) fn esu(&self) -> EnergyUnit {
        EnergyUnit::Shift(self.spec.power.energy_unit)
    }

    /// The shared-memory CPPC block of a CPU, if the machine has one.
    pub fn shared_cppc(&self, cpu: usize) -> Option<SharedCppc> {
        self.registers.shared(cpu)
    }

    /// Writes the shared-memory CPPC block of a CPU, with the effect of a register write.
    pub fn set_shared_cppc(&mut self, cpu: usize, value: SharedCppc) {
        let before = self.registers.shared(cpu).map(|shared| shared.enable);
        self.registers.set_shared(cpu, value);
        // Only `enable` affects more than this request: it decides between CPPC and P-state
        // registers.
        if before == Some(value.enable) {
            self.touch_request(cpu);
        } else {
            self.touch();
        }
    }
}

impl Package {
    fn new(spec: &MachineSpec) -> Package {
        let p = &spec.power;
        let limits = [
            PowerLimit { enabled: p.pl1_w > 0.0, clamp: true, watts: p.pl1_w, window: p.pl1_s },
            PowerLimit { enabled: p.pl2_w > 0.0, clamp: true, watts: p.pl2_w, window: p.pl2_s },
        ];
        Package {
            // Start as an idle machine, not with a cold heat sink.
            thermal: Thermal::new(&spec.thermal, p.uncore_idle_w),
            control: PowerControl::new(limits),
            watts: p.uncore_idle_w,
            cores_watts: 0.0,
            dram_watts: p.dram_idle_w,
            energy: 0,
            cores_energy: 0,
            dram_energy: 0,
            window_joules: 0.0,
            window_awake: 0.0,
            window_first_awake: 0.0,
            first_awake: 0.0,
            awake: 1.0,
            cool: 1.0,
            hottest: spec.thermal.ambient_c,
            hot: false,
            hot_log: false,
            power_log: false,
            current_log: false,
            throttle_events: 0,
            sleep_ns: 0,
            stale: true,
            sums: [step::Sums::default(); 2],
            chosen: None,
            uncore: 1.0,
        }
    }
}

impl Core {
    fn new(spec: &MachineSpec, kinds: &[Kind], place: CorePlace) -> Core {
        let better = &spec.core[place.kind].better;
        let base = kinds[place.kind].base;
        Core {
            place: CoreSlot {
                first: place.cpus[0] as u32,
                second: place.cpus[1] as u32,
                kind: place.kind as u16,
                smt: place.threads > 1,
            },
            khz: base,
            // Firmware hands over the machine at the guaranteed frequency.
            target: base,
            guaranteed: base,
            ceiling: base,
            held: u32::MAX,
            moved: true,
            asked: true,
            license: License::Sse,
            hot_log: false,
            // A factor of the voltage, which power depends on quadratically.
            quality: better.iter().find(|b| b.0 == place.in_kind).map_or(1.0, |b| b.1),
            intensity: 1.0,
            dynamic: 0.0,
            leakage: 0.0,
            powered: (0, 0.0),
            activity: [Activity::default(); 2],
            kept: [step::CachedPower::default(); 2],
            watts: 0.0,
            energy: 0,
            residency: [0; 5],
        }
    }
}

impl Default for Thread {
    fn default() -> Thread {
        Thread {
            // Decoded from the registers in the first settle().
            request: Request { min: 0, max: 0, desired: 0, epp: 128 },
            utilisation: 0.0,
            looked: 0,
            window: 0,
            measured: 0.0,
            busy_ns: 0,
            microcycles: 0,
            online: true,
        }
    }
}

impl Kind {
    fn new(c: &crate::spec::CoreSpec) -> Kind {
        let idle = c.idle.iter().map(|s| Idle {
            leakage: s.leakage,
            activity: c.idle_activity * s.activity,
            ramp_ns: s.ramp_us * 1000.0,
            ramp_khz: f64::from(s.ramp_mhz) * 1000.0,
            // States without a counter share the last index, which no register shows.
            counter: COUNTERS.iter().position(|&counter| counter == s.counter).unwrap_or(COUNTERS.len()),
            deep: s.deep,
        });
        Kind {
            curve: Curve::new(&c.volts, c.dynamic_nf, c.base_mhz * 1000),
            min: c.min_mhz * 1000,
            efficient: c.efficient_mhz * 1000,
            base: c.base_mhz * 1000,
            max: c.max_mhz * 1000,
            leakage: c.leakage_w,
            smt_power: c.smt_power,
            budget: c.budget_w,
            idle: idle.collect(),
        }
    }
}

fn mix(seed: u64) -> u64 {
    // One round of splitmix64.
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
