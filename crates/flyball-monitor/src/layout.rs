//! Layout of a sample: CPUs, packages, and the quantities read from each, with unit and width.

use std::collections::BTreeMap;

use flyball_control::{CoreType, LimitReasons, Policy, Topology};
use flyball_host::{CpuList, KiloHertz, Vendor};
use serde::{Deserialize, Serialize};

use crate::Missing;

/// Quantities of a machine and their positions in a sample, as in the header of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    pub machine: Machine,
    /// Every present CPU, by number; numbers may have gaps.
    pub cpus: Vec<Cpu>,
    /// All packages, by number.
    pub packages: Vec<Package>,
    /// The fields, in the order of a sample's values. A field has one value per CPU, per package,
    /// or one for the machine.
    pub fields: Vec<Field>,
    /// Quantities that this user cannot see on this machine.
    #[serde(default)]
    pub missing: Vec<Missing>,
}

/// Identity of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The host's name for the machine: `live`, `sim:NAME`.
    pub name: String,
    pub kind: flyball_host::Kind,
    pub vendor: Vendor,
    pub family: Option<u32>,
    pub model: Option<u32>,
    pub model_name: Option<String>,
    /// The kernel's release.
    pub kernel: String,
    /// The cpufreq driver, if there is one.
    pub driver: Option<String>,
    /// The temperature at which the processor throttles, degrees Celsius, if a register reports it.
    pub throttle_temperature: Option<u32>,
    /// Names of the idle states, in the order of [`Quantity::IdleTime`]'s numbers.
    pub idle_states: Vec<String>,
    /// Exit latencies of these states, us. Empty on virtual machines, whose host decides how CPUs
    /// sleep, and in recordings of older versions.
    #[serde(default)]
    pub idle_exits_us: Vec<u64>,
    /// Names of the governors, in the order of [`Quantity::Governor`]'s numbers.
    pub governors: Vec<String>,
}

impl Machine {
    /// Returns which register tells what limits this processor.
    pub fn limit_reasons(&self) -> Option<LimitReasons> {
        LimitReasons::for_processor(self.vendor, self.family, self.model)
    }
}

/// A CPU and its position in the topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    pub number: u32,
    /// Package number. `package`, `die` and `core` are `None` if the kernel does not report them or
    /// the CPU was offline.
    pub package: Option<u32>,
    pub die: Option<u32>,
    /// `core_id`, which is unique only within a die.
    pub core: Option<u32>,
    /// Kind of core. `None` if all cores are of the same type.
    pub core_type: Option<CoreType>,
    pub policy: Option<u32>,
    /// The highest frequency of the hardware, turbo included, and the guaranteed one.
    pub highest: Option<KiloHertz>,
    pub base: Option<KiloHertz>,
    /// Frequency of CPPC's reference counter, if the speed is measured with CPPC's counters.
    /// [`Quantity::Mperf`] and [`Quantity::Aperf`] then hold the reference and the delivered
    /// counter, and there is no [`Quantity::Tsc`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<KiloHertz>,
    /// The CPU is isolated or tickless (isolcpus, nohz_full), so it is only interrupted with
    /// [`crate::Touch::All`].
    pub is_isolated: bool,
}

impl Cpu {
    /// Returns whether boost exceeds a request for this frequency, MHz. The driver lists its
    /// highest P-state, but not the frequency that boost reaches.
    pub(crate) fn is_boosted_above(&self, mhz: f64) -> bool {
        self.base.is_some_and(|base| mhz * 1000.0 >= base.0 as f64)
    }
}

/// A package.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize, Deserialize)]
pub struct Package {
    pub number: u32,
    pub cpus: CpuList,
}

/// A quantity with its scope, unit and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    pub quantity: Quantity,
    pub scope: Scope,
    pub unit: Unit,
    /// Width of a counter in bits, 1 to 64. 0 for a value that does not count up.
    pub wraps_after: u8,
}

/// What a field has one value for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    Cpu,
    Package,
    Machine,
}

/// Unit of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A count, a register's bits, or an index.
    Count,
    Nanoseconds,
    Microseconds,
    Milliseconds,
    /// Hundredths of a second, as in /proc/stat.
    Ticks,
    Cycles,
    KiloHertz,
    MicroJoules,
    MicroWatts,
    /// Thousandths of a degree Celsius.
    MilliDegrees,
    Degrees,
}

/// Exit latency, us, of states for which the kernel's counters of wrong choices are worth reading.
pub const DEEP_US: u64 = 10;

/// A quantity that samples hold. Its text form is its name in recordings and CSV.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, schemars::JsonSchema, Serialize, Deserialize, strum::Display,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "snake_case")]
pub enum Quantity {
    /// 1 for a CPU that is online.
    Online,
    /// Time that the CPU ran anything, of /proc/stat.
    Busy,
    /// Idle time and time waiting for IO, from /proc/stat. Includes the current sleep.
    Idle,
    /// Time that the hypervisor gave to other guests, from /proc/stat.
    Steal,
    /// When this CPU's idle times below were read, on the machine's monotonic clock. Sleeping CPUs
    /// are read in turns.
    IdleAt,
    /// Residency of idle state N, without a sleep in progress.
    #[strum(to_string = "idle_{0}_time")]
    IdleTime(u8),
    /// Entries into idle state N.
    #[strum(to_string = "idle_{0}_usage")]
    IdleUsage(u8),
    /// Wakeups before the target residency, from states whose exit takes [`DEEP_US`] or more, and
    /// sleeps after which a deeper state would have been better. Counted only on CPUs that wakeups
    /// may slow down.
    IdleAbove,
    IdleBelow,
    /// Times that heat throttled the core, and how long.
    CoreThrottles,
    CoreThrottleTime,
    /// Times that heat throttled the package, and how long.
    PackageThrottles,
    PackageThrottleTime,
    /// scaling_cur_freq, only if the registers below cannot be read and the kernel answers without
    /// waiting.
    ReportedFrequency,

    /// When this CPU's six values below were read, on the machine's monotonic clock. A CPU that
    /// slept is not read: it keeps its values and their time.
    CountersAt,
    Tsc,
    Aperf,
    Mperf,
    /// Cycles in which the core did not wait for memory (Intel), or retired instructions (AMD).
    Productive,
    /// System management interrupts.
    Smi,
    /// Energy of the core, in 2^-16 J (AMD).
    CoreEnergy,
    /// Degrees below the temperature at which the processor throttles.
    ThermalMargin,

    /// When this CPU's register values below were read.
    ReasonsAt,
    /// IA32_THERM_STATUS.
    ThermStatus,
    /// IA32_PACKAGE_THERM_STATUS, read on this CPU.
    PackageThermStatus,
    /// MSR_CORE_PERF_LIMIT_REASONS.
    LimitReasons,
    /// MSR_RING_PERF_LIMIT_REASONS.
    RingLimitReasons,
    /// IA32_HWP_STATUS.
    HwpStatus,
    /// AMD: the fastest P-state that is allowed at the moment.
    PstateLimit,

    /// scaling_min_freq and scaling_max_freq.
    #[strum(to_string = "min_freq")]
    RequestMin,
    #[strum(to_string = "max_freq")]
    RequestMax,
    /// Energy performance preference: 0 to 255, or 256 and more for a word.
    Epp,
    /// An index into [`Machine::governors`].
    Governor,
    /// The raw register IA32_HWP_CAPABILITIES or AMD's CPPC capabilities. The guaranteed level in
    /// it may change.
    Capabilities,
    /// The raw register IA32_HWP_REQUEST or AMD's CPPC request.
    Request,

    /// When the three values below were read, on the clock of the hold service. They may be older
    /// than the sample.
    EnergyAt,
    /// Energy of a package, its memory, and the machine.
    PackageEnergy,
    DramEnergy,
    PlatformEnergy,
    /// Long-term and short-term power limit of a package.
    PowerLimit,
    ShortPowerLimit,
    /// Temperature of the package's own sensor, if reading it interrupts no CPU (AMD). Otherwise
    /// the temperature follows from [`Quantity::ThermalMargin`].
    PackageTemperature,
    /// The frequency limit of a socket with a management port (HSMP), and its sources: a bit for
    /// each of [`flyball_control::LimitSource::ALL`]. Absent if not read in this sample.
    SocketLimit,
    SocketSources,
    /// perf_limited of cppc_cpufreq. Bit 0: the CPU delivered less than the desired performance.
    /// Bit 1: less than the minimum. Both stay set until somebody clears them.
    PerfLimited,
}

impl Layout {
    /// Returns how many values a field of this scope has.
    pub fn instances(&self, scope: Scope) -> usize {
        match scope {
            Scope::Cpu => self.cpus.len(),
            Scope::Package => self.packages.len(),
            Scope::Machine => 1,
        }
    }

    /// Returns how many values a sample has. A reader of files must check the lists' lengths first.
    pub fn values(&self) -> usize {
        self.fields.iter().map(|field| self.instances(field.scope)).sum()
    }

    /// Returns where a quantity's values begin in a sample, and its field. `None` if it is not read
    /// on this machine.
    pub(crate) fn place(&self, quantity: Quantity) -> Option<(usize, &Field)> {
        let mut start = 0;
        for field in &self.fields {
            if field.quantity == quantity {
                return Some((start, field));
            }
            start += self.instances(field.scope);
        }
        None
    }

    /// Returns where the values of a quantity begin in a sample.
    pub fn start(&self, quantity: Quantity) -> Option<usize> {
        self.place(quantity).map(|place| place.0)
    }

    pub fn field(&self, quantity: Quantity) -> Option<&Field> {
        self.place(quantity).map(|place| place.1)
    }

    /// The index of a CPU in [`Layout::cpus`], by its number.
    pub fn index_of(&self, cpu: u32) -> Option<usize> {
        self.cpus.binary_search_by_key(&cpu, |cpu| cpu.number).ok()
    }

    /// Returns the CPUs as a topology, for CPU selectors. A recording has no NUMA nodes.
    pub fn topology(&self) -> Topology {
        let mut topology = Topology { vendor: self.machine.vendor, ..Topology::default() };
        let mut policies: BTreeMap<u32, CpuList> = BTreeMap::new();
        for cpu in &self.cpus {
            topology.present.insert(cpu.number);
            // The kernel knows no package of an offline CPU.
            if cpu.package.is_some() {
                topology.online.insert(cpu.number);
            } else {
                topology.offline.insert(cpu.number);
            }
            if let Some(policy) = cpu.policy {
                policies.entry(policy).or_default().insert(cpu.number);
            }
            let Cpu { number, package, die, core, core_type, policy, .. } = *cpu;
            let online = package.is_some();
            let cpu =
                flyball_control::Cpu { number, online, package, die, core, node: None, core_type, policy };
            topology.cpus.insert(number, cpu);
        }
        topology.policies = policies
            .into_iter()
            .map(|(number, cpus)| Policy { number, online: cpus.clone(), cpus })
            .collect();
        topology
    }

    /// The index of a CPU's package in [`Layout::packages`].
    pub fn package_of(&self, cpu: &Cpu) -> Option<usize> {
        let package = cpu.package?;
        self.packages.iter().position(|other| other.number == package)
    }
}
