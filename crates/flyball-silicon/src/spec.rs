//! The specification of a machine, from its TOML file. The files under machines/ are the examples;
//! each number there is followed by its source or the word "estimated".

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
    /// One-line description for lists.
    pub title: String,
    /// The sources of the numbers, in prose.
    pub about: String,
    /// Identity in CPUID and /proc/cpuinfo.
    pub identity: IdentitySpec,
    /// Packages, dies and the numbering of CPUs.
    pub topology: TopologySpec,
    /// Counters that run at a constant rate.
    pub clock: ClockSpec,
    /// Core types, in the order of their cores in a die.
    pub core: Vec<CoreSpec>,
    /// Turbo limits by active cores. If empty, only each core's own maximum applies.
    #[serde(default)]
    pub turbo: TurboSpec,
    /// Power outside the cores, limits and energy counters.
    pub power: PowerSpec,
    /// Heat, per package.
    pub thermal: ThermalSpec,
    /// The clock of the uncore (mesh or ring), if the system can set it.
    pub uncore: Option<UncoreSpec>,
    /// The variation between runs on the machine.
    #[serde(default)]
    pub variation: VariationSpec,
    /// The firmware: what decides frequencies, and how.
    pub firmware: FirmwareSpec,
    /// Drivers with platform profiles, in the order in which they register.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profile_device: Vec<ProfileDeviceSpec>,
    /// Intel Speed Select.
    pub sst: Option<SstSpec>,
    /// Registers that only hold a value.
    #[serde(default)]
    pub register: Vec<RegisterSpec>,
    /// CPUID leaves that are added to the derived ones, or replace them.
    #[serde(default)]
    pub leaf: Vec<LeafSpec>,
}

/// Vendor of a processor.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    Intel,
    Amd,
    /// A server whose processor has no x86 registers: CPPC only through ACPI.
    Arm,
}

/// Identity in CPUID and /proc/cpuinfo.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct IdentitySpec {
    /// The processor's maker.
    pub vendor: Vendor,
    /// Family as the kernel prints it, including the extended family. Arm: the implementer.
    pub family: u32,
    /// Model as the kernel prints it. Arm: the part.
    pub model: u32,
    /// Stepping. Arm: 16 times the variant, plus the revision.
    pub stepping: u32,
    #[serde(default)]
    pub microcode: u32,
    /// Brand string, at most 48 bytes.
    pub brand: String,
    /// Feature flags that do not follow from other keys, as /proc/cpuinfo spells them.
    #[serde(default)]
    pub flags: String,
    /// Last-level cache in KiB.
    pub cache_kb: u32,
    /// True if ACPI's preferred profile is that of a server (4, 5 or 7) or unspecified.
    #[serde(default)]
    pub server: bool,
}

/// How Linux numbers the CPUs.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Numbering {
    /// First threads of all cores of all packages, then second threads.
    SiblingsLast,
    /// The threads of a core have adjacent numbers.
    SiblingsAdjacent,
}

/// Packages, dies and the numbering of CPUs.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TopologySpec {
    pub packages: u32,
    /// Dies per package, each with the cores of every `[[core]]` table.
    #[serde(default = "one")]
    pub dies: u32,
    /// How Linux numbers the CPUs.
    pub numbering: Numbering,
    /// Cores that share the last-level cache (a core complex). 0: all cores of a package.
    #[serde(default)]
    pub cores_per_cache: u32,
    /// Sizes of a package's last-level caches in order, KiB; 0 for cores without one. If empty, all
    /// have `identity.cache_kb`.
    #[serde(default)]
    pub caches_kb: Vec<u32>,
    /// True if the dies are separate power domains (TPMI), which the kernel does not show as dies.
    #[serde(default)]
    pub dies_are_power_domains: bool,
    /// Cores of each power domain of a package in order, if domains differ; the package then has
    /// one die.
    #[serde(default)]
    pub power_domains: Vec<u32>,
    /// topology/core_id of a package's cores in order, if they are not 0, 1, 2...
    #[serde(default)]
    pub core_ids: Vec<u32>,
    /// The power unit's numbers of a package's cores in order (within each power domain if there
    /// are several), if they are not 0, 1, 2... Missing numbers are cores that are fused off.
    #[serde(default)]
    pub unit_cores: Vec<u32>,
}

/// Counters that run at a constant rate.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ClockSpec {
    /// Time stamp counter and MPERF, kHz.
    pub tsc_khz: u32,
    /// Bus clock, kHz, which ratios multiply.
    #[serde(default = "bus_khz")]
    pub bus_khz: u32,
}

/// The role of a core on a hybrid part.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum CoreKind {
    /// The large cores, or the only ones.
    Performance,
    /// The small cores.
    Efficiency,
    /// The smallest cores, outside the other cores' last-level cache.
    LowPower,
}

/// A core type.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct CoreSpec {
    pub kind: CoreKind,
    /// Cores of this type per die.
    pub count: u32,
    /// Threads per core: 1 or 2.
    pub threads: u32,
    /// Lowest frequency, MHz.
    pub min_mhz: u32,
    /// Most efficient (Intel) or lowest non-linear (AMD) frequency, MHz.
    pub efficient_mhz: u32,
    /// Guaranteed (Intel: base) or nominal (AMD) frequency, MHz.
    pub base_mhz: u32,
    /// Highest frequency of one core, MHz.
    pub max_mhz: u32,
    /// How performance values in registers map to frequency.
    pub perf: PerfScale,
    /// Voltage-frequency points, MHz and mV, ascending.
    pub volts: Vec<(u32, u32)>,
    /// Switched capacitance at activity 1 (dense integer code, one thread), nF: W per V^2 GHz.
    pub dynamic_nf: f64,
    /// Activity that a second busy thread adds to the core.
    #[serde(default = "smt_power")]
    pub smt_power: f64,
    /// Work of each of two busy threads, relative to a thread that has the core to itself.
    #[serde(default = "smt_share")]
    pub smt_share: f64,
    /// Leakage at the base frequency's voltage and 50 C, W.
    pub leakage_w: f64,
    /// Share of the dynamic power that an idle core draws in C1 (clocks gated, caches kept).
    #[serde(default)]
    pub idle_activity: f64,
    /// Cores that need less voltage: (core, factor of the voltage). Cores are numbered within the
    /// die's cores of this type.
    #[serde(default)]
    pub better: Vec<(u32, f64)>,
    /// Dynamic power that a package's cores may draw together (a current limit), W. Active cores
    /// have equal shares. A core that would draw more runs slower, but not below its guaranteed
    /// frequency. 0: no limit.
    #[serde(default)]
    pub budget_w: f64,
    /// CPPC highest performance (preferred-core ranking) by core number in the package. If empty,
    /// all are equal.
    #[serde(default)]
    pub ranking: Vec<u16>,
    /// Idle states, shallowest first. State 0 is the shallowest real state (C1), not POLL.
    pub idle: Vec<IdleSpec>,
}

/// How performance values in registers map to frequency: `khz = perf x khz_per_perf` for HWP
/// ratios, or `khz = perf x nominal_khz / nominal_perf` for CPPC.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct PerfScale {
    pub lowest: u16,
    /// Most efficient (Intel) or lowest non-linear (AMD) performance.
    pub efficient: u16,
    /// Guaranteed (Intel) or nominal (AMD) performance.
    pub nominal: u16,
    /// Highest performance, at most 255 except on Arm.
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
    /// Name in cpuidle.
    pub name: String,
    /// Description in cpuidle.
    #[serde(default)]
    pub desc: String,
    /// MWAIT hint, or 0 for HLT.
    #[serde(default)]
    pub hint: u32,
    /// Exit latency that cpuidle publishes, us.
    pub latency_us: u32,
    /// Target residency, us.
    pub residency_us: u32,
    /// Time from the wakeup to the first instruction as a workload sees it, us. 0: the published
    /// latency.
    #[serde(default)]
    pub wake_us: f64,
    /// Maximum deviation of a wakeup from `wake_us`, us, uniformly distributed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wake_spread_us: f64,
    /// Share of the leakage that remains.
    pub leakage: f64,
    /// Share of `idle_activity` that remains.
    #[serde(default)]
    pub activity: f64,
    /// Time after a wakeup during which the core runs at `ramp_mhz`, us.
    #[serde(default)]
    pub ramp_us: f64,
    /// Frequency right after a wakeup, MHz. 0: no ramp.
    #[serde(default)]
    pub ramp_mhz: u32,
    /// Number of the residency counter: 1, 3, 6 or 7; 0 for none.
    #[serde(default)]
    pub counter: u8,
    /// True if a core in this state does not count as active for turbo limits.
    #[serde(default)]
    pub deep: bool,
}

/// Turbo limits by active cores.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TurboSpec {
    /// Core counts of the buckets, ascending.
    #[serde(default)]
    pub cores: Vec<u32>,
    /// Limits with plain code, MHz, one per bucket.
    #[serde(default)]
    pub sse_mhz: Vec<u32>,
    /// Limits with AVX2, MHz. If empty, those of plain code.
    #[serde(default)]
    pub avx2_mhz: Vec<u32>,
    /// Limits with AVX-512, MHz. If empty, those of AVX2.
    #[serde(default)]
    pub avx512_mhz: Vec<u32>,
    /// True if 0x1AE holds core counts (servers) instead of more ratios.
    #[serde(default)]
    pub counts_register: bool,
}

/// Power outside the cores, limits and energy counters. Per package unless stated otherwise.
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
    /// True if limits are locked until reset (bit 63).
    #[serde(default)]
    pub locked: bool,
    /// Uncore with all cores busy, W.
    pub uncore_busy_w: f64,
    /// Uncore with a core awake but no activity, W.
    pub uncore_idle_w: f64,
    /// The package with every core in a deep state, W.
    pub package_sleep_w: f64,
    /// Memory without activity, W.
    #[serde(default)]
    pub dram_idle_w: f64,
    /// Memory with all cores waiting for it, W.
    #[serde(default)]
    pub dram_busy_w: f64,
    /// Power of drives, fans and losses, W, once per machine.
    #[serde(default)]
    pub platform_w: f64,
    /// Loss in power supplies and regulators per watt of packages and memory.
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
    /// Existing energy counters.
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
    /// Air at the heat sink, C.
    pub ambient_c: f64,
    /// Thermal resistance from sink to air, K/W.
    pub sink_k_per_w: f64,
    /// Heat capacity of the sink, J/K.
    pub sink_j_per_k: f64,
    /// Thermal resistance from die to sink, K/W.
    pub die_k_per_w: f64,
    /// Heat capacity of the die, J/K.
    pub die_j_per_k: f64,
    /// Temperature of a core's hot spot above the die, K per W of that core.
    pub core_k_per_w: f64,
    /// The junction's highest temperature, C. The sensors count down from it.
    pub tjmax_c: u32,
    /// The temperature at which the firmware throttles, C. 0: `tjmax_c`.
    #[serde(default)]
    pub throttle_c: u32,
}

/// The variation between runs with different seeds. Zero if the file has none.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct VariationSpec {
    /// Standard deviation of the air's temperature, C.
    #[serde(default)]
    pub ambient_c: f64,
    /// Maximum heat left from earlier work, as a share of the machine's TDP.
    #[serde(default)]
    pub preheat: f64,
}

/// The uncore's clock.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct UncoreSpec {
    pub min_mhz: u32,
    pub max_mhz: u32,
    /// Number of fabric clusters per die or package with their own registers (TPMI); 0: the MSR.
    #[serde(default)]
    pub clusters: u32,
    /// Highest frequency of IO dies' clusters, if it differs.
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
    /// Only Intel PERF_CTL.
    PerfCtl,
    /// AMD CPPC in MSRs, with P-state registers while it is off.
    CppcMsr,
    /// CPPC in memory, written through ACPI; on AMD with P-state registers while it is off.
    CppcShared,
    /// Only AMD P-state registers.
    AmdPstate,
}

/// The cores that share a frequency.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ClockDomain {
    #[default]
    Core,
    /// All cores of a package run at the highest request of an active core.
    Package,
}

/// The firmware: what decides frequencies, and how.
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a machine file")]
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct FirmwareSpec {
    /// The registers that carry the system's requests.
    pub interface: InterfaceSpec,
    /// Period of its decisions, us.
    #[serde(default = "period_us")]
    pub period_us: u32,
    /// The cores that share one frequency.
    #[serde(default)]
    pub clock_domain: ClockDomain,
    /// Frequency step, kHz.
    #[serde(default = "bus_khz")]
    pub step_khz: u32,
    /// True if HWP or CPPC is on before the kernel boots.
    #[serde(default)]
    pub on_at_boot: bool,
    /// EPP at reset.
    #[serde(default = "epp")]
    pub epp: u8,
    /// EPB at reset.
    #[serde(default = "epb")]
    pub epb: u8,
    /// Minimum performance that firmware requests at boot (AMD CPPC_REQ; 0 for none).
    #[serde(default)]
    pub boot_min_perf: u8,
    /// True if firmware settings allow turbo or boost.
    #[serde(default = "yes")]
    pub turbo: bool,
    /// True if CPUID reports a full EPP, not only EPB. Arm: if registers of autonomous selection
    /// exist.
    #[serde(default = "yes")]
    pub has_epp: bool,
    /// True if firmware keeps a table of each CPU's abilities in memory (Intel's hardware
    /// feedback).
    #[serde(default)]
    pub feedback: bool,
    /// ACPI P-states (_PSS), MHz, highest first. A top pair 1 MHz apart is how Intel marks turbo.
    #[serde(default)]
    pub pstates_mhz: Vec<u32>,
    /// Share of the frequency that AMD's frequency management loses while P-state registers hold it
    /// at P0 with boost (AMD's slides describe the conflict; the size is estimated).
    #[serde(default)]
    pub pstate_loss: f64,
    /// Share of the dynamic power that this conflict costs.
    #[serde(default)]
    pub pstate_power: f64,
    /// Transition latency in _PSS, or of CPPC's mailbox, us. Arm: 0 without a mailbox.
    #[serde(default = "transition_us")]
    pub transition_us: u32,
    /// Lowest frequency in ACPI's CPPC object, MHz. 0: no _CPC.
    #[serde(default)]
    pub cpc_lowest_mhz: u32,
    /// Nominal frequency in ACPI's CPPC object, MHz. 0: no _CPC.
    #[serde(default)]
    pub cpc_nominal_mhz: u32,
    /// True if firmware can prefer either die of a processor with 3D V-Cache (ACPI device
    /// AMDI0101).
    #[serde(default)]
    pub x3d: bool,
    /// True if each socket has a management port (HSMP of EPYC) and the kernel has its driver
    /// hsmp_acpi. Its power limit is stored, but has no effect on the processor.
    #[serde(default)]
    pub hsmp: bool,
    /// The autonomous policy.
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
    /// The driver's name of the device (`amd-pmf`, `thinkpad-acpi-profile`).
    pub name: String,
    /// The words that it lists.
    pub choices: Vec<String>,
    /// Words that it also accepts, so that it can follow another driver.
    #[serde(default)]
    pub hidden: Vec<String>,
    /// The profile at boot.
    pub start: String,
}

/// How the autonomous policy (HWP, or CPPC with desired = 0) follows load. Real policies are not
/// published, so all values are estimated and fitted to published measurements.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct AutonomousSpec {
    /// Smoothing of the measured utilisation when it rises, ms.
    pub rise_ms: f64,
    /// Smoothing of the measured utilisation when it falls, ms.
    pub fall_ms: f64,
    /// Target over utilisation at EPP 0.
    pub gain: f64,
    /// Share of the gain that is lost at EPP 255.
    pub gain_loss: f64,
    /// EPP above which the top of the range is gradually given up.
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

/// The CPUs that share a register.
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
    /// Writable bits; 0 for a read-only register.
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
    /// EAX of the request.
    pub leaf: u32,
    /// ECX of the request; any if absent.
    pub subleaf: Option<u32>,
    /// Returned EAX, EBX, ECX, EDX.
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

/// An invalid value in a machine file.
#[derive(Clone, Debug, PartialEq, derive_more::Display)]
pub enum SpecFault {
    /// No built-in machine has this name.
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
    /// A count, or the largest value of a list, exceeds its bound.
    #[display("{key}: {value} is more than {most}")]
    Above { key: String, value: u64, most: u64 },
    #[display("{key}: must be {low} to {high}")]
    Outside { key: String, low: f64, high: f64 },
    /// Keys of the machine break this rule.
    #[display("{}", _0)]
    Rule(&'static str),
    /// A key of a core type breaks this rule.
    #[display("core[{index}].{key}: {rule}")]
    CoreRule { index: usize, key: &'static str, rule: &'static str },
    /// A Speed Select level breaks this rule.
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
    /// Returns the fault with `part`, the enclosing table's key, as a prefix of its key.
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
    /// Parses and checks a machine file.
    ///
    /// # Errors
    /// The text is not TOML, a key is unknown or missing, or a value is invalid; the message names
    /// the key.
    pub fn from_toml(text: &str) -> Result<MachineSpec, SpecError> {
        if text.len() > MAX_TEXT {
            return Err(SpecError { machine: String::new(), fault: SpecFault::TooLong });
        }
        let spec: MachineSpec = toml::from_str(text)
            .map_err(|error| SpecError { machine: String::new(), fault: SpecFault::Toml(error) })?;
        spec.check()?;
        Ok(spec)
    }

    /// Formats the machine as a file that [`from_toml`](Self::from_toml) can parse.
    ///
    /// # Errors
    /// A number exceeds what TOML can hold (2^63).
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
