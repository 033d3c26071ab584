//! Facts about a machine that several checks need, read once.

use std::{cell::OnceCell, collections::BTreeMap};

use flyball_host::{CpuList, Host, HostError, Kind, isolation::LastCpu, msr::MSR_IA32_ENERGY_PERF_BIAS};
use flyball_sst::{
    access::Levels,
    layout::{Domain, Layout},
};

use super::pass::{Pass, Unseen};
use crate::{
    CoreType, ReadError, Snapshot, Topology, Vendor,
    kernel::{kernel_release, version},
    topology::CPUS,
};

/// The performance level in effect in a power domain.
pub(super) struct Level {
    /// `package 0 power domain 1`.
    pub place: String,
    pub cpus: CpuList,
    pub levels: Levels,
    /// The base frequency of the level as a ratio of 100 MHz.
    pub base: u64,
    /// True if base-freq (SST-BF) is on.
    pub base_freq: bool,
}

/// One cpufreq policy as its files describe it. A value is `None` if its file is missing.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The N of policyN.
    pub number: u32,
    folder: String,
    /// CPUs of the policy, including offline ones.
    pub cpus: CpuList,
    /// The type of its cores; `None` if the machine has only one type.
    pub core_type: Option<CoreType>,
    attributes: BTreeMap<&'static str, String>,
}

impl Policy {
    /// Returns the path of one of its files.
    pub fn path(&self, attribute: &str) -> String {
        format!("{}/{attribute}", self.folder)
    }

    /// Returns the text of one of the files that [`POLICY_FILES`] names.
    pub fn get(&self, attribute: &str) -> Option<&str> {
        self.attributes.get(attribute).map(String::as_str)
    }

    /// Parses one of those files as a number; `None` if it is not a 32-bit number.
    pub fn number(&self, attribute: &str) -> Option<u64> {
        self.get(attribute)?.parse::<u32>().ok().map(u64::from)
    }
}

/// The switch of intel_pstate. 1 turns turbo off.
pub(super) const NO_TURBO: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
/// The highest performance that intel_pstate asks for, in percent.
pub(super) const MAX_PERF_PCT: &str = "/sys/devices/system/cpu/intel_pstate/max_perf_pct";
/// The lowest performance that intel_pstate asks for, in percent.
pub(super) const MIN_PERF_PCT: &str = "/sys/devices/system/cpu/intel_pstate/min_perf_pct";
/// The switch of acpi-cpufreq and amd-pstate. 1 turns boost on.
pub(super) const BOOST: &str = "/sys/devices/system/cpu/cpufreq/boost";

/// The policy files that checks read.
const POLICY_FILES: &[&str] = &[
    "affected_cpus",
    "amd_pstate_highest_perf",
    "amd_pstate_hw_prefcore",
    "amd_pstate_lowest_nonlinear_freq",
    "amd_pstate_max_freq",
    "amd_pstate_prefcore_ranking",
    "base_frequency",
    "bios_limit",
    "boost",
    "cpuinfo_max_freq",
    "cpuinfo_min_freq",
    "energy_performance_available_preferences",
    "energy_performance_preference",
    "scaling_available_frequencies",
    "scaling_available_governors",
    "scaling_driver",
    "scaling_governor",
    "scaling_max_freq",
    "scaling_min_freq",
    "scaling_setspeed",
];

/// Message for a machine whose kernel files list no online CPU.
pub(super) const NO_CPU_ONLINE: &str = "no CPU is online according to the kernel's files";

/// Names the packages that a finding is about: `package 0`, `packages 0 and 1`.
pub(super) fn packages(numbers: &[u32]) -> String {
    match numbers {
        [one] => format!("package {one}"),
        [most @ .., last] => {
            let most: Vec<String> = most.iter().map(u32::to_string).collect();
            format!("packages {} and {last}", most.join(", "))
        }
        [] => "no package".to_owned(),
    }
}

/// Formats `CPUs 0-3`, or the number of CPUs if the list would be wider than a screen.
pub(super) fn cpu_words(cpus: &CpuList) -> String {
    let text = cpus.short();
    match cpus.first() {
        Some(first) if text.len() > 48 => format!("{} CPUs (CPU {first} is one)", cpus.len()),
        _ => format!("CPUs {text}"),
    }
}

/// Everything that the checks read from the machine.
pub struct Facts<'h> {
    pass: Pass<'h>,
    snapshot: Snapshot,
    /// Vendor of the processors.
    pub vendor: Vendor,
    /// CPU family; 0 if unknown.
    pub family: u32,
    /// CPU model; 0 if unknown.
    pub model: u32,
    /// CPU stepping; 0 if unknown.
    pub stepping: u32,
    /// The model name.
    pub processor: String,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The kernel's command line.
    pub cmdline: Option<String>,
    pub online: CpuList,
    /// An error if `online` is only a guess from the CPU folders.
    pub online_is_listed: Result<(), Unseen>,
    /// CPUs that are present in the machine.
    pub present: CpuList,
    /// The cpufreq policies with an online CPU. The others refuse every read.
    pub policies: Vec<Policy>,
    /// The kernel's log, if it can be read.
    pub log: Option<String>,
    levels: OnceCell<Option<Result<Vec<Level>, HostError>>>,
    /// Other programs that write the same knobs.
    pub owners: Vec<crate::owners::Owner>,
    /// True if /proc lists the machine's processes.
    pub sees_processes: bool,
}

impl std::fmt::Debug for Facts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Facts").field("processor", &self.processor).finish_non_exhaustive()
    }
}

impl<'h> Facts<'h> {
    /// Reads the machine.
    ///
    /// # Errors
    /// The list of processors cannot be read.
    pub fn gather(host: &'h dyn Host) -> Result<Facts<'h>, ReadError> {
        let mut snapshot = Snapshot::begin(host)?;
        snapshot.take_policy_files(host, POLICY_FILES);
        snapshot.take_speed_select(host);
        let pass = Pass::over(host);
        let topology = snapshot.topology();
        Ok(Facts {
            // The topology falls back on the CPUs' folders, which offline CPUs have as well.
            online_is_listed: pass.read(&format!("{CPUS}/online")).map(|_| ()),
            vendor: topology.vendor,
            family: topology.family.unwrap_or(0),
            model: topology.model.unwrap_or(0),
            stepping: topology.stepping.unwrap_or(0),
            processor: topology.model_name.clone().unwrap_or_else(|| "an unknown processor".to_owned()),
            kernel: kernel_release(host),
            cmdline: pass.read("/proc/cmdline").ok(),
            online: topology.online.clone(),
            present: topology.present.clone(),
            policies: policies(&snapshot),
            // Without the log (dmesg_restrict, a recording) checks use registers and files.
            log: host.kernel_log().ok(),
            levels: OnceCell::new(),
            owners: crate::owners::owners(host),
            sees_processes: crate::owners::sees_processes(host),
            pass,
            snapshot,
        })
    }

    /// Returns the machine, for queries to a device.
    pub(super) fn host(&self) -> &'h dyn Host {
        self.pass.host()
    }

    /// Returns the location of Speed Select; `None` without it.
    pub(super) fn speed_select(&self) -> Option<&Layout> {
        self.snapshot.speed_select()?.ok()
    }

    /// Returns the levels in effect of all domains with CPUs, as `flyball sst info` shows them;
    /// `None` without Speed Select.
    pub(super) fn levels(&self) -> Option<&Result<Vec<Level>, HostError>> {
        let read = || {
            let layout = self.speed_select()?;
            let access = layout.access(self.host());
            let level = |domain: &Domain| {
                let levels = access.levels(&domain.place)?;
                Ok(Level {
                    place: format!("package {} power domain {}", domain.place.package, domain.place.domain),
                    cpus: domain.cpus.clone(),
                    levels,
                    base: access.level_data(&domain.place, levels.current)?.tdp_ratio.into(),
                    base_freq: access.features(&domain.place, levels.current)?.base_freq_on,
                })
            };
            Some(layout.domains.iter().filter(|domain| !domain.cpus.is_empty()).map(level).collect())
        };
        self.levels.get_or_init(read).as_ref()
    }

    /// Returns how the processors are arranged.
    pub fn topology(&self) -> &Topology {
        self.snapshot.topology()
    }

    /// Returns whether the machine is live, recorded or simulated.
    pub fn kind(&self) -> Kind {
        self.host().kind()
    }

    /// Returns whether the first processor has a CPU flag.
    pub fn flag(&self, name: &str) -> bool {
        self.topology().flags.contains(name)
    }

    /// Returns the value of a kernel parameter; `Some("")` if it has no value. If it occurs several
    /// times, the last value counts.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        // The kernel calls the parameter's setter for each occurrence, so the last one counts.
        self.cmdline.as_deref()?.split_whitespace().rev().find_map(|word| match word.split_once('=') {
            Some((key, value)) if key == name => Some(value),
            None if word == name => Some(""),
            _ => None,
        })
    }

    /// Reads an attribute once and caches it, so that every check gets the same text.
    pub fn read(&self, path: &str) -> Result<String, Unseen> {
        self.pass.read(path)
    }

    /// Reads an attribute again, for counters that are read twice.
    pub fn read_again(&self, path: &str) -> Result<String, Unseen> {
        self.pass.read_again(path)
    }

    pub fn exists(&self, path: &str) -> bool {
        self.pass.exists(path)
    }

    /// Returns why a file or register is missing. A recording may only have omitted it.
    pub fn missing(&self, what: &str, remedy: &'static str) -> Unseen {
        match self.kind() {
            Kind::Recorded => Unseen::NotRecorded(what.to_owned()),
            _ => Unseen::NotThere { what: what.to_owned(), remedy },
        }
    }

    /// Lists the names in a directory; empty if it does not exist.
    pub fn list(&self, path: &str) -> Vec<String> {
        self.pass.list(path)
    }

    /// Reads a register on one CPU.
    ///
    /// # Errors
    /// The reason, with the remedy.
    pub fn msr(&self, cpu: u32, register: u32) -> Result<u64, Unseen> {
        self.pass.msr(cpu, register)
    }

    /// Returns a CPU's energy bias and where it was read: the file, or before kernel 5.2 the
    /// register.
    pub fn energy_bias(&self, cpu: u32) -> Result<(u64, &'static str), Unseen> {
        let file = self.read(&format!("{CPUS}/cpu{cpu}/power/energy_perf_bias"));
        match file.ok().and_then(|text| text.parse().ok()) {
            Some(value) => Ok((value, "/sys/devices/system/cpu/cpuN/power/energy_perf_bias")),
            // Bits 3:0; the rest of the register is reserved.
            None => Ok((self.msr(cpu, MSR_IA32_ENERGY_PERF_BIAS)? & 0xf, "MSR 0x1b0")),
        }
    }

    /// Returns the energy bias of each online CPU, as [`Facts::energy_bias`] does.
    pub fn energy_biases(&self) -> Result<Vec<(u32, u64, &'static str)>, Unseen> {
        let read = |cpu| self.energy_bias(cpu).map(|(value, place)| (cpu, value, place));
        self.online.iter().map(read).collect()
    }

    /// Reads a register on all online CPUs.
    pub fn msr_everywhere(&self, register: u32) -> Result<Vec<(u32, u64)>, Unseen> {
        self.online_is_listed.clone()?;
        // A CPU that cannot be read may be the one that differs.
        let read = |cpu| self.msr(cpu, register).map(|value| (cpu, value));
        let values = self.online.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        if values.is_empty() { Err(NO_CPU_ONLINE.into()) } else { Ok(values) }
    }

    /// Returns the first online CPU of each package, with the package's number, for registers that
    /// exist once per package.
    ///
    /// # Errors
    /// The online CPUs, or the package of one of them, are not known.
    pub fn first_of_packages(&self) -> Result<Vec<(u32, u32)>, Unseen> {
        self.online_is_listed.clone()?;
        let packages = self.topology().packages();
        let mut known = 0;
        let mut first = Vec::new();
        for (package, cpus) in packages {
            let online = cpus.intersection(&self.online);
            known += online.len();
            first.extend(online.first().map(|cpu| (package, cpu)));
        }
        // If a CPU without a known package were skipped, its package's register would go unread and
        // the check could still return ok.
        if known != self.online.len() {
            return Err("the packages of the CPUs are unknown".into());
        }
        if first.is_empty() { Err(NO_CPU_ONLINE.into()) } else { Ok(first) }
    }

    /// Reads a register of each package, by package.
    ///
    /// # Errors
    /// Why a register cannot be read.
    pub fn msr_of_packages(&self, register: u32) -> Result<Vec<(u32, u64)>, Unseen> {
        let read = |(package, cpu)| Ok((package, self.msr(cpu, register)?));
        self.first_of_packages()?.into_iter().map(read).collect()
    }

    /// Returns the last CPU that the kernel's lists can name; `None` if it is not known.
    pub fn last_cpu(&self) -> Option<LastCpu> {
        let list = |name: &str| self.read(&format!("{CPUS}/{name}")).ok();
        LastCpu::parse(list("possible").as_deref(), list("present").as_deref())
    }

    /// Returns the name of the cpufreq driver, from the first policy that has it.
    pub fn driver(&self) -> Option<&str> {
        self.policies.iter().find_map(|policy| policy.get("scaling_driver"))
    }

    /// Returns whether intel_pstate drives the CPUs, in any of its modes.
    pub fn is_intel_pstate(&self) -> bool {
        matches!(self.driver(), Some("intel_pstate" | "intel_cpufreq"))
    }

    /// Returns the CPUs of the policies that have this text in an attribute.
    pub fn cpus_with(&self, attribute: &str, text: &str) -> CpuList {
        let mut cpus = CpuList::new();
        for policy in self.policies.iter().filter(|policy| policy.get(attribute) == Some(text)) {
            cpus.extend(policy.cpus.iter());
        }
        cpus
    }

    /// Groups policies by the text of one attribute, the largest group first.
    pub fn by_value(&self, attribute: &str) -> Vec<(String, CpuList)> {
        let mut groups: BTreeMap<String, CpuList> = BTreeMap::new();
        for policy in &self.policies {
            if let Some(text) = policy.get(attribute) {
                groups.entry(text.to_owned()).or_default().extend(policy.cpus.iter());
            }
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        // The largest group shows the intended value. The others deviate from it.
        groups.sort_by_key(|(_, cpus)| std::cmp::Reverse(cpus.len()));
        groups
    }

    /// Returns the kernel's version as (major, minor).
    pub fn kernel_version(&self) -> Option<(u32, u32)> {
        version(self.kernel.as_deref()?)
    }

    /// Waits in the machine's time, between two reads of a counter.
    pub fn wait(&self, time: std::time::Duration) {
        self.pass.wait(time);
    }
}

fn policies(snapshot: &Snapshot) -> Vec<Policy> {
    let topology = snapshot.topology();
    let policy = |policy: &crate::Policy| Policy {
        number: policy.number,
        folder: topology.policy_folder(policy.number),
        cpus: policy.cpus.clone(),
        core_type: policy.cpus.first().and_then(|cpu| topology.cpus.get(&cpu)?.core_type),
        attributes: snapshot.policy_files(policy.number).cloned().unwrap_or_default(),
    };
    let is_online = |policy: &&crate::Policy| !policy.cpus.intersection(&topology.online).is_empty();
    topology.policies.iter().filter(is_online).map(policy).collect()
}
