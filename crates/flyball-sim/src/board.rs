//! Facts that a kernel learns from firmware and hardware at boot: identity, topology, ACPI's
//! performance and idle tables.
//!
//! A [`Board`] holds facts that do not change while the machine runs. It is derived from a
//! machine's description; drivers read it as the kernel's drivers read CPUID and ACPI.

use flyball_silicon::{
    MachineSpec, Silicon, Topology, msr,
    spec::{InterfaceSpec, PROFILE_WORDS},
};

pub(crate) use flyball_silicon::spec::Vendor;

/// ACPI's `_CPC` of one CPU: performance levels, and the frequencies of two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cppc {
    pub highest: u16,
    /// Level guaranteed now; 0 if firmware does not say.
    pub guaranteed: u16,
    /// Highest sustained level.
    pub nominal: u16,
    /// Below this level, lowering the frequency costs more performance than it saves power.
    pub lowest_nonlinear: u16,
    pub lowest: u16,
    /// Level at which APERF and MPERF count at the same rate.
    pub reference: u16,
    /// Frequency of the nominal level in MHz.
    pub nominal_mhz: u32,
    /// Frequency of the lowest level in MHz.
    pub lowest_mhz: u32,
}

/// How a kernel reaches the CPPC registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CppcAccess {
    None,
    /// AMD's model-specific registers (CPU flag cppc).
    Msr,
    /// Memory. On AMD it is a mailbox (PCC), where each access is slow.
    SharedMemory,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdleState {
    /// Name as cpuidle shows it (`C1`, `C6`).
    pub name: String,
    /// Description as cpuidle shows it.
    pub desc: String,
    /// Exit latency in microseconds.
    pub latency_us: u32,
    /// Target residency in microseconds.
    pub residency_us: u32,
}

/// A CPU's position in the topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuPlace {
    pub package: u32,
    /// Die within the package.
    pub die: u32,
    /// Core number as the kernel shows it (core_id), unique in the package.
    pub core: u32,
    /// Last-level cache domain, unique in the machine.
    pub llc: u32,
    /// Size of the last-level cache in KiB; 0 if the core has none.
    pub llc_kib: u32,
    pub node: u32,
    /// CPUs of the same core, this one included, ascending.
    pub siblings: Vec<u32>,
    /// True for an efficiency or low-power core of a hybrid processor.
    pub efficient: bool,
    /// kHz for each step of an Intel ratio or HWP level.
    pub scaling_khz: u32,
}

/// A cache as sysfs shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cache {
    pub level: u8,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: &'static str,
    /// Size in KiB.
    pub kib: u32,
}

/// A driver with platform profiles. Words have the kernel's numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProfileDevice {
    pub name: String,
    pub choices: Vec<usize>,
    /// Words that it accepts but does not list.
    pub hidden: Vec<usize>,
    pub start: usize,
}

/// The hardware and firmware that a kernel finds at boot.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of hardware and firmware")]
#[derive(Debug, Clone)]
pub(crate) struct Board {
    pub vendor: Vendor,
    pub family: u32,
    pub model: u32,
    pub stepping: u32,
    pub brand: String,
    pub microcode: u32,
    /// The flags line of /proc/cpuinfo.
    pub flags: Vec<String>,
    /// Position of each CPU.
    pub places: Vec<CpuPlace>,
    /// Time stamp counter frequency in kHz.
    pub tsc_khz: u32,
    /// The scheduler's tick in microseconds.
    pub tick_us: u64,
    /// True if ACPI's preferred profile is that of a server, or unspecified.
    pub server: bool,
    /// How CPPC is reached.
    pub access: CppcAccess,
    /// `_CPC` per CPU; empty if firmware has none.
    pub cppc: Vec<Cppc>,
    /// `_PSS` frequencies in kHz, highest first; empty if firmware has none.
    pub pss: Vec<u32>,
    /// `_PSS` transition latency in microseconds.
    pub pss_latency_us: u32,
    /// True if `_PCT` names I/O ports instead of registers: the P-state cannot be read back.
    pub pss_ports: bool,
    /// Transition latency according to CPPC, in nanoseconds; 0 if unknown.
    pub cppc_latency_ns: u32,
    /// True if AMD's boost or Intel's dynamic acceleration can be switched.
    pub boost: bool,
    /// True if the processor has hardware P-states (Intel).
    pub hwp: bool,
    /// True if the processor has the energy performance bias register (Intel).
    pub epb: bool,
    /// True if firmware can choose frequencies itself through CPPC registers (Arm).
    pub autonomous: bool,
    /// Idle states above polling, shallowest first.
    pub idle: Vec<IdleState>,
    /// cpuidle's number of the first entry in `idle`: 1 on x86, where state 0 polls.
    pub first_idle: usize,
    /// The cpuidle driver's name.
    pub idle_driver: &'static str,
    /// Caches of a core, lowest level first. Sizes of the last level are in `places`.
    pub caches: Vec<Cache>,
    pub profile_devices: Vec<ProfileDevice>,
    /// True if firmware can prefer either die of a processor with 3D V-Cache.
    pub x3d: bool,
    /// The highest power limit of a socket with a management port (HSMP), mW.
    pub socket_power_mw: Option<u32>,
    /// MiB of memory, for /proc/meminfo.
    pub memory_mib: u64,
}

impl Board {
    pub(crate) fn cpus(&self) -> u32 {
        self.places.len() as u32
    }

    pub(crate) fn packages(&self) -> u32 {
        self.places.iter().map(|place| place.package + 1).max().unwrap_or(0)
    }

    /// Returns whether `flags` contains a CPU flag.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|have| have == flag)
    }
}

/// Feature flags that every modelled processor of a vendor has, in /proc/cpuinfo's order.
// Tools match words of this line, so it holds only words that all modelled processors have.
const COMMON_FLAGS: &str = "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr \
    sse sse2 ht syscall nx rdtscp lm constant_tsc rep_good nopl nonstop_tsc cpuid aperfmperf pni pclmulqdq ssse3 fma \
    cx16 sse4_1 sse4_2 movbe popcnt aes xsave avx f16c rdrand lahf_lm abm avx2 bmi1 bmi2";

impl Board {
    /// Derives the facts from a machine's description.
    pub(crate) fn new(spec: &MachineSpec) -> Board {
        let topology = Topology::new(spec);
        let vendor = spec.identity.vendor;
        let intel = vendor == Vendor::Intel;
        let firmware = &spec.firmware;
        let access = match firmware.interface {
            InterfaceSpec::CppcMsr => CppcAccess::Msr,
            InterfaceSpec::CppcShared => CppcAccess::SharedMemory,
            _ => CppcAccess::None,
        };
        Board {
            vendor,
            family: spec.identity.family,
            model: spec.identity.model,
            stepping: spec.identity.stepping,
            brand: spec.identity.brand.clone(),
            microcode: spec.identity.microcode,
            flags: flags(spec, vendor, access),
            places: places(spec, &topology, intel),
            tsc_khz: spec.clock.tsc_khz,
            // CONFIG_HZ_250, as Debian builds its kernels.
            tick_us: 4000,
            server: spec.identity.server,
            access,
            cppc: cppc(spec, &topology),
            pss: firmware.pstates_mhz.iter().map(|mhz| mhz * 1000).collect(),
            pss_latency_us: firmware.transition_us,
            // The simulated silicon has registers only.
            pss_ports: false,
            // cppc_get_transition_latency() in drivers/acpi/cppc_acpi.c: a mailbox has a latency,
            // registers have none.
            cppc_latency_ns: if access == CppcAccess::SharedMemory {
                firmware.transition_us * 1000
            } else {
                0
            },
            boost: firmware.turbo,
            // `complete` corrects both once the silicon exists.
            hwp: firmware.interface == InterfaceSpec::Hwp,
            epb: intel,
            autonomous: firmware.has_epp,
            idle: idle_states(spec, intel),
            first_idle: usize::from(vendor != Vendor::Arm),
            idle_driver: if intel { "intel_idle" } else { "acpi_idle" },
            caches: vec![
                Cache { level: 1, kind: "Data", kib: 32 },
                Cache { level: 1, kind: "Instruction", kib: 32 },
                Cache { level: 2, kind: "Unified", kib: if intel { 1024 } else { 512 } },
                Cache { level: 3, kind: "Unified", kib: spec.identity.cache_kb },
            ],
            profile_devices: spec.profile_device.iter().map(profile_device).collect(),
            x3d: spec.firmware.x3d,
            socket_power_mw: spec.firmware.hsmp.then_some((spec.power.pl1_w * 1000.0) as u32),
            memory_mib: 16_384,
        }
    }

    /// Clears features whose registers cannot be read, although the description implies them.
    pub(crate) fn complete(&mut self, silicon: &Silicon) {
        // The description may list neither feature, so ask the register file.
        self.epb &= silicon.read_msr(0, msr::ENERGY_PERF_BIAS).is_ok();
        self.hwp &= silicon.read_msr(0, msr::HWP_CAPABILITIES).is_ok();
        if !self.epb {
            self.flags.retain(|flag| flag != "epb");
        }
    }
}

fn profile_device(spec: &flyball_silicon::spec::ProfileDeviceSpec) -> ProfileDevice {
    // In range: the description was checked.
    let number = |word: &String| PROFILE_WORDS.iter().position(|known| known == word).unwrap_or_default();
    let numbers = |words: &[String]| words.iter().map(number).collect();
    ProfileDevice {
        name: spec.name.clone(),
        choices: numbers(&spec.choices),
        hidden: numbers(&spec.hidden),
        start: number(&spec.start),
    }
}

/// Returns the frequency step of one HWP level on a performance core: HYBRID_SCALING_FACTOR and its
/// variants (intel_pstate.c). The kernel takes it from the model number, not from the levels.
fn hybrid_scaling_khz(model: u32) -> u32 {
    match model {
        // Meteor Lake L, Arrow Lake.
        0xaa | 0xc6 => 80_000,
        // Lunar Lake M.
        0xbd => 86_957,
        _ => 78_741,
    }
}

/// Returns the position of each CPU.
fn places(spec: &MachineSpec, topology: &Topology, intel: bool) -> Vec<CpuPlace> {
    let hybrid = spec.core.len() > 1;
    // 0: one last-level cache for the package.
    let per_cache = match spec.topology.cores_per_cache {
        0 => spec.cores_per_package() as u32,
        cores => cores,
    };
    // Numbers of last-level caches continue from package to package, even if a package's last cache
    // has fewer cores.
    let caches_per_package = (spec.cores_per_package() as u32).div_ceil(per_cache.max(1));
    let sizes = &spec.topology.caches_kb;
    (0..topology.cpus())
        .map(|cpu| {
            let core = topology.core_of(cpu);
            let kind = &spec.core[core.kind];
            let package = core.package as u32;
            let mut siblings: Vec<u32> =
                core.cpus[..core.threads as usize].iter().map(|&cpu| cpu as u32).collect();
            // The lowest CPU comes first, because it stays online when SMT is switched off.
            siblings.sort_unstable();
            let efficient = kind.kind != flyball_silicon::spec::CoreKind::Performance;
            let cache = core.in_package / per_cache.max(1);
            let scaling_khz = if intel && hybrid && !efficient {
                hybrid_scaling_khz(spec.identity.model)
            } else {
                spec.clock.bus_khz
            };
            CpuPlace {
                package,
                // The kernel does not count power domains as dies.
                die: if spec.topology.dies_are_power_domains { 0 } else { core.die },
                core: core.id,
                llc: package * caches_per_package + cache,
                llc_kib: sizes.get(cache as usize).copied().unwrap_or(spec.identity.cache_kb),
                node: package,
                siblings,
                efficient,
                scaling_khz,
            }
        })
        .collect()
}

/// `_CPC` per CPU, if firmware has it.
fn cppc(spec: &MachineSpec, topology: &Topology) -> Vec<Cppc> {
    let firmware = &spec.firmware;
    // amd-pstate cannot convert levels without a nominal frequency, so ignore such a _CPC.
    if firmware.cpc_nominal_mhz == 0 {
        Vec::new()
    } else {
        (0..topology.cpus())
            .map(|cpu| {
                let core = topology.core_of(cpu);
                let kind = &spec.core[core.kind];
                let ranking = kind.ranking.get(core.in_package as usize).copied();
                Cppc {
                    highest: ranking.unwrap_or(kind.perf.highest),
                    guaranteed: if firmware.interface == InterfaceSpec::CppcMsr {
                        0
                    } else {
                        kind.perf.nominal
                    },
                    nominal: kind.perf.nominal,
                    lowest_nonlinear: kind.perf.efficient,
                    lowest: kind.perf.lowest,
                    // MPERF counts at nominal performance; Arm's reference counter at a rate of its
                    // own.
                    reference: if spec.identity.vendor == Vendor::Arm {
                        (u64::from(kind.perf.nominal) * u64::from(spec.clock.tsc_khz)
                            / (u64::from(firmware.cpc_nominal_mhz) * 1000)) as u16
                    } else {
                        kind.perf.nominal
                    },
                    nominal_mhz: firmware.cpc_nominal_mhz,
                    lowest_mhz: firmware.cpc_lowest_mhz,
                }
            })
            .collect()
    }
}

/// The flags line of /proc/cpuinfo, in its order and without duplicates.
fn flags(spec: &MachineSpec, vendor: Vendor, access: CppcAccess) -> Vec<String> {
    let firmware = &spec.firmware;
    if vendor == Vendor::Arm {
        return spec.identity.flags.split_whitespace().map(str::to_owned).collect();
    }
    let hwp = firmware.interface == InterfaceSpec::Hwp;
    let mut flags: Vec<String> = COMMON_FLAGS.split_whitespace().map(str::to_owned).collect();
    let mut add = |words: &str| flags.extend(words.split_whitespace().map(str::to_owned));
    if vendor == Vendor::Intel {
        add("dts acpi ss tm pbe arch_perfmon dtherm arat pln pts est epb");
        if firmware.turbo {
            add("ida");
        }
        if hwp {
            // Without hwp_epp intel_pstate uses HWP only if firmware has switched it on
            // (intel_pstate_init()).
            add("hwp hwp_act_window hwp_pkg_req");
            if firmware.has_epp {
                add("hwp_epp");
            }
        }
    } else {
        add("svm hw_pstate");
        if firmware.turbo {
            add("cpb");
        }
        if access == CppcAccess::Msr {
            add("cppc");
        }
    }
    add(&spec.identity.flags);
    // A recorded machine brings its whole flags line, which repeats the words added above.
    let mut seen = std::collections::HashSet::new();
    flags.retain(|flag| seen.insert(flag.clone()));
    flags
}

fn idle_states(spec: &MachineSpec, intel: bool) -> Vec<IdleState> {
    // cpuidle has one table for all CPUs on x86; hybrid processors show the first core kind's.
    let states = spec.core.first().map(|core| core.idle.as_slice()).unwrap_or_default();
    states
        .iter()
        .map(|state| IdleState {
            name: state.name.clone(),
            desc: if !state.desc.is_empty() {
                state.desc.clone()
            } else if intel {
                format!("MWAIT {:#04x}", state.hint)
            } else {
                // acpi_idle's description of a state that is entered by reading a port; 0x414 as
                // recorded on milan0.
                format!("ACPI IOPORT 0x{:x}", 0x414)
            },
            latency_us: state.latency_us,
            residency_us: state.residency_us,
        })
        .collect()
}
