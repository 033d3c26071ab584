//! The specification of a machine, from its TOML file. The files under machines/ are the examples;
//! each number there has its source, or the word estimated, next to it.

mod bounds;
mod check;
mod sst;

pub use bounds::{MAX_CPUS, MAX_TEXT};
pub use sst::{SstBfSpec, SstClass, SstDomainSpec, SstLevelSpec, SstSpec, SstTfSpec};

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// The name after `sim:` or `guest:`.
    pub name: String,
    /// One line for lists.
    pub title: String,
    /// Where the numbers come from, in prose.
    pub about: String,
    /// Identity in CPUID and /proc/cpuinfo.
    pub identity: IdentitySpec,
    /// Packages, dies and how CPUs are numbered.
    pub topology: TopologySpec,
    /// Counters that run at a constant rate.
    pub clock: ClockSpec,
    /// Core types, in the order of their cores in a die.
    pub core: Vec<CoreSpec>,
    /// Turbo limits by active cores. Empty: none but each core's own.
    #[serde(default)]
    pub turbo: TurboSpec,
    /// Power other than the cores', limits and energy counters.
    pub power: PowerSpec,
    /// Heat, per package.
    pub thermal: ThermalSpec,
    /// The uncore's (mesh's, ring's) clock, if the system can set it.
    pub uncore: Option<UncoreSpec>,
    /// The variation from one run on the machine to the next.
    #[serde(default)]
    pub variation: VariationSpec,
    /// The firmware: who decides frequencies, and how.
    pub firmware: FirmwareSpec,
    /// Drivers with platform profiles, in the order in which they register.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profile_device: Vec<ProfileDeviceSpec>,
    /// Intel Speed Select.
    pub sst: Option<SstSpec>,
    /// Registers that only hold a value.
    #[serde(default)]
    pub register: Vec<RegisterSpec>,
    /// CPUID leaves beyond those made from the rest, or in their place.
    #[serde(default)]
    pub leaf: Vec<LeafSpec>,
}

/// Vendor of a processor.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    Intel,
    Amd,
    /// A server whose processor has no registers of x86: CPPC through ACPI alone.
    Arm,
}

/// Identity in CPUID and /proc/cpuinfo.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct IdentitySpec {
    /// The processor's maker.
    pub vendor: Vendor,
    /// Family as the kernel prints it, extended family added. Arm: the implementer.
    pub family: u32,
    /// Model as the kernel prints it. Arm: the part.
    pub model: u32,
    /// Arm: the variant times 16 and the revision.
    pub stepping: u32,
    #[serde(default)]
    pub microcode: u32,
    /// Brand string, at most 48 bytes.
    pub brand: String,
    /// Feature flags beyond those which follow from the rest, as /proc/cpuinfo spells them.
    #[serde(default)]
    pub flags: String,
    /// Last-level cache in KiB.
    pub cache_kb: u32,
    /// ACPI's preferred profile is a server's (4, 5 or 7) or unspecified.
    #[serde(default)]
    pub server: bool,
}

/// How Linux numbers the CPUs.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Numbering {
    /// First threads of all cores of all packages, then second threads.
    SiblingsLast,
    /// The threads of a core next to each other.
    SiblingsAdjacent,
}

/// Packages, dies and how CPUs are numbered.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TopologySpec {
    pub packages: u32,
    /// Dies a package, each with the cores of every `[[core]]` table.
    #[serde(default = "one")]
    pub dies: u32,
    /// How Linux numbers the CPUs.
    pub numbering: Numbering,
    /// Cores that share the last-level cache (a core complex). 0: all of a package.
    #[serde(default)]
    pub cores_per_cache: u32,
    /// Sizes of the last-level caches of a package in order, KiB; 0: these cores have none. Empty:
    /// all `identity.cache_kb`.
    #[serde(default)]
    pub caches_kb: Vec<u32>,
    /// The dies are power domains of their own (TPMI), which the kernel shows as dies of one.
    #[serde(default)]
    pub dies_are_power_domains: bool,
    /// Cores of each power domain of a package in order, if they differ; then there is one die.
    #[serde(default)]
    pub power_domains: Vec<u32>,
    /// Core ids as topology/core_id shows them, of the cores of a package in order, if they are not
    /// 0, 1, 2...
    #[serde(default)]
    pub core_ids: Vec<u32>,
    /// The power unit's numbers of the cores of a package in order (within their power domain if
    /// there are several), if they are not 0, 1, 2...: cores in between are fused off.
    #[serde(default)]
    pub unit_cores: Vec<u32>,
}

/// Counters that run at a constant rate.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ClockSpec {
    /// Time stamp counter and MPERF, kHz.
    pub tsc_khz: u32,
    /// Bus clock, kHz: what ratios multiply.
    #[serde(default = "bus_khz")]
    pub bus_khz: u32,
}

/// The role of a core on a hybrid part.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum CoreKind {
    /// The big cores, or the only ones.
    Performance,
    /// The small ones.
    Efficiency,
    /// The smallest ones, outside the last-level cache of the others.
    LowPower,
}

/// A core type.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct CoreSpec {
    pub kind: CoreKind,
    /// Cores of it in a die.
    pub count: u32,
    /// Threads a core: 1 or 2.
    pub threads: u32,
    /// Lowest frequency, MHz.
    pub min_mhz: u32,
    /// Most efficient (Intel) or lowest non-linear (AMD) frequency, MHz.
    pub efficient_mhz: u32,
    /// Guaranteed (Intel: base) or nominal (AMD) frequency, MHz.
    pub base_mhz: u32,
    /// Highest frequency of one core, MHz.
    pub max_mhz: u32,
    /// How register values of performance map onto frequency.
    pub perf: PerfScale,
    /// Voltage-frequency points, MHz and mV, rising.
    pub volts: Vec<(u32, u32)>,
    /// Switched capacitance at activity 1 (dense integer code, one thread), nF: W per V^2 GHz.
    pub dynamic_nf: f64,
    /// Activity that a second busy thread adds to the core.
    #[serde(default = "smt_power")]
    pub smt_power: f64,
    /// Work that each of two busy threads gets done, against one that has the core alone.
    #[serde(default = "smt_share")]
    pub smt_share: f64,
    /// Leakage at the base frequency's voltage and 50 C, W.
    pub leakage_w: f64,
    /// Share of the dynamic power that an idle core takes in C1 (clocks gated, caches kept).
    #[serde(default)]
    pub idle_activity: f64,
    /// Cores (numbers within the die's cores of this type) that need less voltage, and how much of
    /// it: (core, share).
    #[serde(default)]
    pub better: Vec<(u32, f64)>,
    /// Dynamic power that the cores of a package may draw together (a current limit), W: active
    /// cores have equal shares, and one that would draw more runs a step lower, but not below its
    /// guaranteed frequency. 0: none.
    #[serde(default)]
    pub budget_w: f64,
    /// CPPC highest performance (preferred-core ranking) by core number in the package. Empty: all
    /// the same.
    #[serde(default)]
    pub ranking: Vec<u16>,
    /// Idle states, shallowest first. State 0 here is the shallowest real state (C1), not POLL.
    pub idle: Vec<IdleSpec>,
}

/// How register values of performance map onto frequency: `khz = perf x khz_per_perf` for HWP
/// ratios, or `khz = perf x nominal_khz / nominal_perf` for CPPC.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct PerfScale {
    pub lowest: u16,
    /// Most efficient (Intel) or lowest non-linear (AMD) performance.
    pub efficient: u16,
    /// Guaranteed (Intel) or nominal (AMD) performance.
    pub nominal: u16,
    /// At most 255 but on Arm.
    pub highest: u16,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// An idle state.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct IdleSpec {
    /// cpuidle's name.
    pub name: String,
    /// cpuidle's description.
    #[serde(default)]
    pub desc: String,
    /// MWAIT hint, or 0 for HLT.
    #[serde(default)]
    pub hint: u32,
    /// Exit latency as cpuidle publishes it, us.
    pub latency_us: u32,
    /// Target residency, us.
    pub residency_us: u32,
    /// Time from the wake-up to the first instruction as a workload sees it, us. 0: the published
    /// latency.
    #[serde(default)]
    pub wake_us: f64,
    /// How much a wake-up differs from `wake_us` at most, us: all times in between are equally
    /// likely.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wake_spread_us: f64,
    /// Share of the leakage that stays.
    pub leakage: f64,
    /// Share of `idle_activity` that stays.
    #[serde(default)]
    pub activity: f64,
    /// Time after a wake-up during which the core still runs at `ramp_mhz`, us.
    #[serde(default)]
    pub ramp_us: f64,
    /// The frequency in that time, MHz. 0: none.
    #[serde(default)]
    pub ramp_mhz: u32,
    /// The residency counter that counts it: 1, 3, 6 or 7; 0 none.
    #[serde(default)]
    pub counter: u8,
    /// A core in it does not count as active for the turbo limits.
    #[serde(default)]
    pub deep: bool,
}

/// Turbo limits by active cores.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TurboSpec {
    /// Bucket core counts, rising.
    #[serde(default)]
    pub cores: Vec<u32>,
    /// Limits with plain code, MHz, one per bucket.
    #[serde(default)]
    pub sse_mhz: Vec<u32>,
    /// Limits with AVX2, MHz. Empty: those of plain code.
    #[serde(default)]
    pub avx2_mhz: Vec<u32>,
    /// Limits with AVX-512, MHz. Empty: those of AVX2.
    #[serde(default)]
    pub avx512_mhz: Vec<u32>,
    /// Where 0x1AE holds core counts (servers), not ratios of more cores.
    #[serde(default)]
    pub counts_register: bool,
}

/// Power other than the cores', limits and energy counters. Per package if not said otherwise.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct PowerSpec {
    /// Thermal design power, W.
    pub tdp_w: f64,
    /// Long-term limit, W. 0: none.
    pub pl1_w: f64,
    /// Window of the long-term limit, s.
    pub pl1_s: f64,
    /// Short-term limit, W. 0: none.
    pub pl2_w: f64,
    /// Window of the short-term limit, s.
    pub pl2_s: f64,
    /// Limits are locked until reset (bit 63).
    #[serde(default)]
    pub locked: bool,
    /// Uncore with all cores busy, W.
    pub uncore_busy_w: f64,
    /// Uncore with some core awake but nothing going on, W.
    pub uncore_idle_w: f64,
    /// The package with every core in a deep state, W.
    pub package_sleep_w: f64,
    /// Memory with nothing going on, W.
    #[serde(default)]
    pub dram_idle_w: f64,
    /// Memory with all cores waiting for it, W.
    #[serde(default)]
    pub dram_busy_w: f64,
    /// The rest of the machine: drives, fans, losses, W, once per machine.
    #[serde(default)]
    pub platform_w: f64,
    /// Share of each watt of the packages and memory that power supplies and regulators add.
    #[serde(default)]
    pub platform_loss: f64,
    /// Energy status unit: 1 / 2^n J.
    pub energy_unit: u8,
    /// Power unit: 1 / 2^n W.
    #[serde(default = "power_unit")]
    pub power_unit: u8,
    /// Time unit: 1 / 2^n s.
    #[serde(default = "time_unit")]
    pub time_unit: u8,
    /// The energy counters that exist.
    pub domains: Vec<EnergyDomain>,
    /// A fixed unit of the memory's counter, nJ. 0: the energy status unit.
    #[serde(default)]
    pub dram_unit_nj: u32,
    /// A fixed unit of the platform's counter, nJ. 0: the energy status unit.
    #[serde(default)]
    pub platform_unit_nj: u32,
}

/// An energy counter's domain.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum EnergyDomain {
    Package,
    /// Power plane 0 (Intel: all cores of a package), or each core's own counter (AMD).
    Core,
    /// Power plane 1: graphics.
    Uncore,
    Dram,
    /// The whole machine.
    Platform,
}

/// Heat, per package.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ThermalSpec {
    /// Air at the sink, C.
    pub ambient_c: f64,
    /// Sink to air, K/W.
    pub sink_k_per_w: f64,
    /// Sink's heat capacity, J/K.
    pub sink_j_per_k: f64,
    /// Die to sink, K/W.
    pub die_k_per_w: f64,
    /// Die's heat capacity, J/K.
    pub die_j_per_k: f64,
    /// A core's hot spot above the die, K per W of that core.
    pub core_k_per_w: f64,
    /// The junction's highest temperature, C. The sensors count down from it.
    pub tjmax_c: u32,
    /// The temperature at which the firmware throttles, C. 0: `tjmax_c`.
    #[serde(default)]
    pub throttle_c: u32,
}

/// The variation from one run to the next, if a run has a seed. None if the file specifies none.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct VariationSpec {
    /// Standard deviation of the air's temperature, C.
    #[serde(default)]
    pub ambient_c: f64,
    /// Heat left from earlier work, at most this share of the machine's TDP.
    #[serde(default)]
    pub preheat: f64,
}

/// The uncore's clock.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct UncoreSpec {
    pub min_mhz: u32,
    pub max_mhz: u32,
    /// Fabric clusters a die or package with registers of their own (TPMI); 0: the MSR.
    #[serde(default)]
    pub clusters: u32,
    /// Highest frequency of the clusters of IO dies, if it is another.
    #[serde(default)]
    pub io_max_mhz: Option<u32>,
}

impl UncoreSpec {
    /// Returns the highest frequency of a cluster in MHz.
    pub fn max_of(&self, is_io: bool) -> u32 {
        self.io_max_mhz.filter(|_| is_io).unwrap_or(self.max_mhz)
    }
}

/// The registers that carry the system's requests.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum InterfaceSpec {
    /// Intel hardware P-states, with PERF_CTL while they are off.
    Hwp,
    /// Intel PERF_CTL alone.
    PerfCtl,
    /// AMD CPPC in MSRs, with P-state registers while it is off.
    CppcMsr,
    /// CPPC in memory, written through ACPI; on AMD with P-state registers while it is off.
    CppcShared,
    /// AMD P-state registers alone.
    AmdPstate,
}

/// Cores that run at one frequency.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ClockDomain {
    #[default]
    Core,
    /// All cores of a package: the highest request of an active core.
    Package,
}

/// The firmware: who decides frequencies, and how.
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a machine file")]
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct FirmwareSpec {
    /// The registers that carry the system's requests.
    pub interface: InterfaceSpec,
    /// How often it decides, us.
    #[serde(default = "period_us")]
    pub period_us: u32,
    /// The cores that share one frequency.
    #[serde(default)]
    pub clock_domain: ClockDomain,
    /// Frequencies are multiples of this, kHz.
    #[serde(default = "bus_khz")]
    pub step_khz: u32,
    /// HWP or CPPC is on before the kernel boots.
    #[serde(default)]
    pub on_at_boot: bool,
    /// EPP at reset.
    #[serde(default = "epp")]
    pub epp: u8,
    /// EPB at reset.
    #[serde(default = "epb")]
    pub epb: u8,
    /// Minimum performance that firmware asks for at boot (AMD CPPC_REQ; 0 none).
    #[serde(default)]
    pub boot_min_perf: u8,
    /// Turbo or boost is allowed by firmware settings.
    #[serde(default = "yes")]
    pub turbo: bool,
    /// CPUID says that the preference is a full EPP, not only EPB. Arm: there are registers of
    /// autonomous selection.
    #[serde(default = "yes")]
    pub has_epp: bool,
    /// Firmware keeps a table in memory of what each CPU can do (Intel's hardware feedback).
    #[serde(default)]
    pub feedback: bool,
    /// ACPI P-states (_PSS), MHz, highest first. A top pair 1 MHz apart is Intel's mark of turbo.
    #[serde(default)]
    pub pstates_mhz: Vec<u32>,
    /// Share of the frequency that AMD's own frequency management loses while P-state registers
    /// hold it at P0 with boost (AMD's slides name the conflict of the two; the size is estimated).
    #[serde(default)]
    pub pstate_loss: f64,
    /// Share of dynamic power that it costs.
    #[serde(default)]
    pub pstate_power: f64,
    /// Transition latency in _PSS, us, or of the mailbox for CPPC; Arm: 0 without a mailbox.
    #[serde(default = "transition_us")]
    pub transition_us: u32,
    /// ACPI CPPC objects: lowest and nominal frequency, MHz. 0: no _CPC.
    #[serde(default)]
    pub cpc_lowest_mhz: u32,
    /// See `cpc_lowest_mhz`.
    #[serde(default)]
    pub cpc_nominal_mhz: u32,
    /// The firmware can prefer either die of a processor with 3D V-Cache (ACPI device AMDI0101).
    #[serde(default)]
    pub x3d: bool,
    /// A management port for each socket (HSMP of EPYC), and a kernel with its driver hsmp_acpi.
    /// Its power limit is kept, and has no effect on the processor.
    #[serde(default)]
    pub hsmp: bool,
    /// How the autonomous policy follows load.
    #[serde(default)]
    pub autonomous: AutonomousSpec,
}

/// The words of platform profiles, in the kernel's order.
pub const PROFILE_WORDS: [&str; 8] =
    ["low-power", "cool", "quiet", "balanced", "balanced-performance", "performance", "max-power", "custom"];

/// A driver with platform profiles.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ProfileDeviceSpec {
    /// The driver's name for it (`amd-pmf`, `thinkpad-acpi-profile`).
    pub name: String,
    /// The words that it lists.
    pub choices: Vec<String>,
    /// Words that it takes besides, so that it can follow another driver.
    #[serde(default)]
    pub hidden: Vec<String>,
    /// The profile at boot.
    pub start: String,
}

/// How the autonomous policy (HWP, or CPPC with desired = 0) follows load. The real ones are not
/// published: all of this is estimated, and shaped so that the published measurements come out.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct AutonomousSpec {
    /// Smoothing of the measured utilisation when it rises, ms.
    pub rise_ms: f64,
    /// When it falls, ms.
    pub fall_ms: f64,
    /// Target over utilisation at EPP 0.
    pub gain: f64,
    /// How much of the gain is lost at EPP 255.
    pub gain_loss: f64,
    /// EPP above which the top of the range is given up bit by bit.
    pub ceiling_from: u8,
    /// Share of the range above the efficient frequency that is given up at EPP 255.
    pub ceiling_loss: f64,
}

impl Default for AutonomousSpec {
    fn default() -> Self {
        AutonomousSpec {
            rise_ms: 2.0,
            fall_ms: 8.0,
            gain: 2.2,
            gain_loss: 0.5,
            ceiling_from: 128,
            ceiling_loss: 0.4,
        }
    }
}

/// Which CPUs share a register.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    #[default]
    Cpu,
    /// One per core.
    Core,
    /// One per package.
    Package,
}

/// A register that only holds a value.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct RegisterSpec {
    pub msr: u32,
    /// The register's value at reset.
    pub value: u64,
    /// Bits that can be written; 0 read-only.
    #[serde(default)]
    pub writable: u64,
    /// The CPUs that share it.
    #[serde(default)]
    pub scope: Scope,
}

/// A CPUID leaf.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct LeafSpec {
    /// EAX of the question.
    pub leaf: u32,
    /// ECX of the question; absent: any.
    pub subleaf: Option<u32>,
    /// EAX, EBX, ECX, EDX of the answer.
    pub value: [u32; 4],
}

fn one() -> u32 {
    1
}
fn yes() -> bool {
    true
}
fn bus_khz() -> u32 {
    100_000
}
fn smt_power() -> f64 {
    0.3
}
fn smt_share() -> f64 {
    0.62
}
fn power_unit() -> u8 {
    3
}
fn time_unit() -> u8 {
    10
}
fn period_us() -> u32 {
    1000
}
fn epp() -> u8 {
    128
}
fn epb() -> u8 {
    6
}
fn transition_us() -> u32 {
    10
}

/// A mistake in a machine file.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecError {
    /// The machine; empty if not even its name could be read.
    pub machine: String,
    pub fault: SpecFault,
}

/// A value of a machine file that no machine has.
#[derive(Clone, Debug, PartialEq, derive_more::Display)]
pub enum SpecFault {
    /// No machine of the crate has this name.
    #[display("not known; there are {}", MachineSpec::names().collect::<Vec<_>>().join(", "))]
    UnknownMachine,
    /// The file has more bytes than [`MAX_TEXT`].
    #[display("longer than {MAX_TEXT} bytes")]
    TooLong,
    #[display("{}", _0.to_string().trim_end())]
    Toml(toml::de::Error),
    /// A number that TOML cannot hold.
    #[display("{_0}")]
    NotWritable(toml::ser::Error),
    /// More CPUs than [`MAX_CPUS`].
    #[display("topology: more than {MAX_CPUS} CPUs")]
    TooManyCpus,
    /// A count, or the largest of a list, above its bound.
    #[display("{key}: {value} is more than {most}")]
    Above { key: String, value: u64, most: u64 },
    #[display("{key}: must be {low} to {high}")]
    Outside { key: String, low: f64, high: f64 },
    /// A rule that keys of the whole machine break.
    #[display("{}", _0)]
    Rule(&'static str),
    /// A rule that a key of a core type breaks.
    #[display("core[{index}].{key}: {rule}")]
    CoreRule { index: usize, key: &'static str, rule: &'static str },
    /// A rule that a Speed Select level breaks.
    #[display("sst.level {level}: {rule}")]
    LevelRule { level: u32, rule: &'static str },
    #[display("topology.core_ids: {ids} ids for {cores} cores")]
    CoreIds { ids: usize, cores: u64 },
    #[display("topology.unit_cores: numbers below {room}")]
    UnitCores { room: u32 },
    #[display("sst.level {level}: a core number is not below {cores}")]
    LevelCores { level: u32, cores: u64 },
}

impl SpecFault {
    /// Returns the fault with its key prefixed by that of a part of the file, `part`.
    fn in_part(self, part: &str) -> SpecFault {
        match self {
            SpecFault::Above { key, value, most } => {
                SpecFault::Above { key: format!("{part}{key}"), value, most }
            }
            SpecFault::Outside { key, low, high } => {
                SpecFault::Outside { key: format!("{part}{key}"), low, high }
            }
            other => other,
        }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.machine.is_empty() {
            write!(f, "machine file: {}", self.fault)
        } else {
            write!(f, "machine {}: {}", self.machine, self.fault)
        }
    }
}

impl std::error::Error for SpecError {}

impl MachineSpec {
    /// Read a machine file and check that it is a machine that can be.
    ///
    /// # Errors
    /// Not TOML, unknown or missing keys, or values that no machine has; the message names the key.
    pub fn from_toml(text: &str) -> Result<MachineSpec, SpecError> {
        if text.len() > MAX_TEXT {
            return Err(SpecError { machine: String::new(), fault: SpecFault::TooLong });
        }
        let spec: MachineSpec = toml::from_str(text)
            .map_err(|error| SpecError { machine: String::new(), fault: SpecFault::Toml(error) })?;
        spec.check()?;
        Ok(spec)
    }

    /// The machine as a file that [`from_toml`](Self::from_toml) reads.
    ///
    /// # Errors
    /// A number that TOML cannot hold (above 2^63).
    pub fn to_toml(&self) -> Result<String, SpecError> {
        toml::to_string(self)
            .map_err(|error| SpecError { machine: self.name.clone(), fault: SpecFault::NotWritable(error) })
    }

    pub fn cpus(&self) -> usize {
        let die: u64 = self.core.iter().map(|c| u64::from(c.count) * u64::from(c.threads)).sum();
        (die * u64::from(self.topology.dies) * u64::from(self.topology.packages)).min(1 << 20) as usize
    }

    pub fn cores_per_package(&self) -> u64 {
        self.core.iter().map(|c| u64::from(c.count)).sum::<u64>() * u64::from(self.topology.dies)
    }
}
