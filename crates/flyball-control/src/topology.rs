//! What a machine's processors are: which CPUs there are, and how they share packages, dies, cores, policies and nodes.
//!
//! Most of it comes from few files: lists name many CPUs at once, and /proc/cpuinfo has a block per online CPU. Only
//! what these do not say is read per CPU. Every file may be missing: what is unknown is `None`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

pub use flyball_host::Vendor;
use flyball_host::{CpuInfo, CpuList, Host};
use serde::{Deserialize, Serialize};

use crate::{Location, value::ReadError};

/// Where the kernel keeps CPUs.
pub(crate) const CPUS: &str = "/sys/devices/system/cpu";

/// The kind of core on a hybrid processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CoreType {
    /// Performance core.
    P,
    /// Efficiency core.
    E,
    /// Low-power efficiency core, outside the compute tile.
    LP,
}

impl fmt::Display for CoreType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CoreType::P => "P",
            CoreType::E => "E",
            CoreType::LP => "LP",
        })
    }
}

/// One logical CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Its number.
    pub number: u32,
    /// Whether it is online. The kernel knows the ids below for online CPUs only.
    pub online: bool,
    /// Package (`physical_package_id`).
    pub package: Option<u32>,
    /// Die in the package; 0 where the kernel does not tell dies apart.
    pub die: Option<u32>,
    /// Core (`core_id`), a number that may repeat in another die.
    pub core: Option<u32>,
    /// NUMA node.
    pub node: Option<u32>,
    /// Kind of core; `None` where all are alike.
    pub core_type: Option<CoreType>,
    /// The number of its cpufreq policy.
    pub policy: Option<u32>,
}

/// A cpufreq policy: CPUs that share one frequency setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The number in `policyN`.
    pub number: u32,
    /// All its CPUs (`related_cpus`), offline ones included.
    pub cpus: CpuList,
    /// Its online CPUs (`affected_cpus`). When there is none, every read and write of its files answers `EBUSY`.
    pub online: CpuList,
}

/// What the machine is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// CPUs that could ever be plugged in.
    pub possible: CpuList,
    /// CPUs that are there.
    pub present: CpuList,
    /// CPUs that run.
    pub online: CpuList,
    /// CPUs that are there and do not run.
    pub offline: CpuList,
    /// Who made the processor.
    pub vendor: Vendor,
    /// `cpu family` of /proc/cpuinfo.
    pub family: Option<u32>,
    /// `model` of /proc/cpuinfo.
    pub model: Option<u32>,
    /// `stepping` of /proc/cpuinfo.
    pub stepping: Option<u32>,
    /// `model name` of /proc/cpuinfo.
    pub model_name: Option<String>,
    /// `flags` of the first CPU of /proc/cpuinfo.
    #[serde(skip)]
    pub flags: BTreeSet<String>,
    /// Every present CPU.
    pub cpus: BTreeMap<u32, Cpu>,
    /// Every cpufreq policy, by number; empty without a cpufreq driver.
    pub policies: Vec<Policy>,
    /// NUMA nodes and their CPUs.
    pub nodes: BTreeMap<u32, CpuList>,
}

/// Reads a file that holds a CPU list; `None` where there is none.
pub(crate) fn read_list(host: &dyn Host, path: &str) -> Result<Option<CpuList>, ReadError> {
    let Some(text) = host.read_optional(path)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| bad(path, &text, "a CPU list such as 0-3,7"))
}

/// Reads a file that holds a number; `None` where there is none.
fn read_number(host: &dyn Host, path: &str) -> Result<Option<u32>, ReadError> {
    let Some(text) = host.read_optional(path)? else { return Ok(None) };
    match text.parse::<i64>() {
        // The kernel prints -1 for an id that the firmware did not give.
        Ok(number) => Ok(u32::try_from(number).ok()),
        Err(_) => Err(bad(path, &text, "a number")),
    }
}

pub(crate) fn bad(path: &str, found: &str, expected: &'static str) -> ReadError {
    let found = found.chars().take(60).collect();
    ReadError::Content { source: Location::File(path.to_owned()), found, expected }
}

/// The numbers of the entries of `folder` that are named `stem` and a number; none where there is no such folder.
pub(crate) fn numbered(host: &dyn Host, folder: &str, stem: &str) -> Result<Vec<u32>, ReadError> {
    match host.list(folder) {
        Ok(names) => Ok(names.iter().filter_map(|name| name.strip_prefix(stem)?.parse().ok()).collect()),
        Err(error) if error.is_absent() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Where the driver's name is in kernels before 4.3.
pub(crate) const BEFORE_POLICIES: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver";

/// The driver of a kernel before 4.3, which has no directory of policies: each CPU has its own
/// (drivers/cpufreq/cpufreq.c made `policyN` in 4.3). flyball does not read those.
pub fn driver_before_policies(host: &dyn Host) -> Option<String> {
    let driver = host.read(BEFORE_POLICIES).ok()?;
    Some(driver.trim().to_owned()).filter(|name| !name.is_empty())
}

impl Topology {
    /// Three times the bus clock that the ratios of an Intel processor multiply, kHz: 133.33 MHz before Sandy Bridge, 100 MHz
    /// since (turbostat.c, `bclk`). `None` of processors before Nehalem, and of Atoms that say it in a register of their own.
    pub(crate) fn bus_third_khz(&self) -> Option<u64> {
        const NEHALEM_AND_WESTMERE: &[u32] = &[0x1a, 0x1e, 0x1f, 0x2e, 0x25, 0x2c, 0x2f];
        const OTHERS: &[u32] =
            &[0x0e, 0x0f, 0x16, 0x17, 0x1d, 0x1c, 0x26, 0x27, 0x35, 0x36, 0x37, 0x4a, 0x4c, 0x4d, 0x5a, 0x5d];
        match (self.family, self.model) {
            (Some(6), Some(model)) if NEHALEM_AND_WESTMERE.contains(&model) => Some(400_000),
            (Some(6), Some(model)) if OTHERS.contains(&model) => None,
            (Some(0..=5 | 15), _) => None,
            _ => Some(300_000),
        }
    }

    /// Learns the topology.
    ///
    /// # Errors
    /// Where a file is there and cannot be read or makes no sense, or where not even one CPU can be found.
    pub fn inspect(host: &dyn Host) -> Result<Topology, ReadError> {
        let mut topology = Topology::lists(host)?;
        topology.cpuinfo(host)?;
        topology.ids(host)?;
        topology.core_types(host)?;
        topology.nodes(host)?;
        topology.policies(host)?;
        Ok(topology)
    }

    /// Which CPUs there are.
    fn lists(host: &dyn Host) -> Result<Topology, ReadError> {
        let list = |name: &str| read_list(host, &format!("{CPUS}/{name}"));
        let (online, present, possible) = (list("online")?, list("present")?, list("possible")?);
        let present = match present.or_else(|| online.clone()) {
            Some(present) => present,
            None => numbered(host, CPUS, "cpu")?.into_iter().collect(),
        };
        let online = online.unwrap_or_else(|| present.clone());
        let present = present.union(&online);
        if present.is_empty() {
            // The listing's own error names the folder that a machine must have.
            host.list(CPUS)?;
            return Err(bad(&format!("{CPUS}/present"), "", "a CPU list such as 0-3,7"));
        }
        let cpus = present
            .iter()
            .map(|number| (number, Cpu { number, online: online.contains(number), ..Cpu::default() }))
            .collect();
        Ok(Topology {
            possible: possible.unwrap_or_else(|| present.clone()),
            offline: present.difference(&online),
            present,
            online,
            vendor: Vendor::Other,
            family: None,
            model: None,
            stepping: None,
            model_name: None,
            flags: BTreeSet::new(),
            cpus,
            policies: Vec::new(),
            nodes: BTreeMap::new(),
        })
    }

    fn cpuinfo(&mut self, host: &dyn Host) -> Result<(), ReadError> {
        let info = CpuInfo::read(host)?;
        for (number, ids) in &info.cpus {
            if let Some(cpu) = self.cpus.get_mut(number) {
                (cpu.package, cpu.core) = (ids.package, ids.core);
            }
        }
        self.vendor = info.vendor();
        (self.family, self.model, self.stepping) = (info.family, info.model, info.stepping);
        self.model_name = info.model_name.map(|name| name.split_whitespace().collect::<Vec<_>>().join(" "));
        self.flags = info.flags;
        Ok(())
    }

    /// Package, die and core of each online CPU, as far as /proc/cpuinfo left them open.
    fn ids(&mut self, host: &dyn Host) -> Result<(), ReadError> {
        let online: Vec<u32> = self.online.iter().collect();
        // One die list names every CPU of the die, so that one read serves them all.
        let mut dies_known = true;
        for &number in &online {
            let path = |file: &str| format!("{CPUS}/cpu{number}/topology/{file}");
            let cpu = &self.cpus[&number];
            let (mut package, mut core) = (cpu.package, cpu.core);
            if package.is_none() {
                package = read_number(host, &path("physical_package_id"))?;
            }
            if core.is_none() {
                core = read_number(host, &path("core_id"))?;
            }
            let mut die = cpu.die;
            if die.is_none() && dies_known {
                die = read_number(host, &path("die_id"))?;
                match die {
                    Some(die) => {
                        let siblings = read_list(host, &path("die_cpus_list"))?.unwrap_or_default();
                        for sibling in siblings.iter() {
                            if let Some(cpu) = self.cpus.get_mut(&sibling).filter(|cpu| cpu.online) {
                                cpu.die = Some(die);
                            }
                        }
                    }
                    // Kernels before 5.2 have no die_id; a machine has it for all CPUs or for none.
                    None => dies_known = false,
                }
            }
            if let Some(cpu) = self.cpus.get_mut(&number) {
                *cpu = Cpu { package, core, die: die.or(package.map(|_| 0)), ..cpu.clone() };
            }
        }
        Ok(())
    }

    /// Kinds of cores on a hybrid processor.
    fn core_types(&mut self, host: &dyn Host) -> Result<(), ReadError> {
        // The perf PMUs of each kind: arch/x86/events/intel/core.c names them cpu_core, cpu_atom and cpu_lowpower.
        let kinds = [("cpu_core", CoreType::P), ("cpu_atom", CoreType::E), ("cpu_lowpower", CoreType::LP)];
        let mut found = false;
        for (folder, kind) in kinds {
            for cpu in read_list(host, &format!("/sys/devices/{folder}/cpus"))?.unwrap_or_default().iter() {
                if let Some(cpu) = self.cpus.get_mut(&cpu) {
                    cpu.core_type = Some(kind);
                    found = true;
                }
            }
        }
        let Some(first) = self.online.first() else { return Ok(()) };
        let capacity = |cpu: u32| read_number(host, &format!("{CPUS}/cpu{cpu}/cpu_capacity"));
        if found || capacity(first)?.is_none() {
            return Ok(());
        }
        // Kernels since 6.12 tell capacities of hybrid processors without hyper-threading.
        let mut capacities = BTreeMap::new();
        for cpu in self.online.iter() {
            if let Some(value) = capacity(cpu)? {
                capacities.insert(cpu, value);
            }
        }
        let highest = capacities.values().copied().max().unwrap_or(0);
        // Cores of one kind differ by a few percent of turbo; kinds differ by a third and more.
        let is_big = |value: u32| u64::from(value) * 4 >= u64::from(highest) * 3;
        if capacities.values().all(|&value| is_big(value)) {
            return Ok(());
        }
        for (number, value) in capacities {
            if let Some(cpu) = self.cpus.get_mut(&number) {
                cpu.core_type = Some(if is_big(value) { CoreType::P } else { CoreType::E });
            }
        }
        Ok(())
    }

    fn nodes(&mut self, host: &dyn Host) -> Result<(), ReadError> {
        const NODES: &str = "/sys/devices/system/node";
        for node in numbered(host, NODES, "node")? {
            let cpus = read_list(host, &format!("{NODES}/node{node}/cpulist"))?.unwrap_or_default();
            for cpu in cpus.iter() {
                if let Some(cpu) = self.cpus.get_mut(&cpu) {
                    cpu.node = Some(node);
                }
            }
            self.nodes.insert(node, cpus);
        }
        Ok(())
    }

    fn policies(&mut self, host: &dyn Host) -> Result<(), ReadError> {
        let folder = format!("{CPUS}/cpufreq");
        let numbers = numbered(host, &folder, "policy")?;
        // Policies are disjoint and not empty, and each holds the CPU that it is named after: as many policies as CPUs
        // means one each, and a large machine is spared a read of related_cpus for every CPU.
        let one_each =
            numbers.len() == self.present.len() && numbers.iter().all(|&cpu| self.present.contains(cpu));
        for number in numbers {
            let path = format!("{folder}/policy{number}/related_cpus");
            let text = if one_each { Ok(None) } else { host.read_optional(&path) };
            let cpus = match text {
                Ok(Some(text)) => CpuList::from_words(&text)
                    .map_err(|_| bad(&path, &text, "CPU numbers with blanks between"))?,
                // The policy is named after the CPU that it was made for.
                Ok(None) => CpuList::from_iter([number]),
                Err(error) if error.errno == flyball_host::Errno::BUSY => CpuList::from_iter([number]),
                Err(error) => return Err(error.into()),
            };
            let cpus = if cpus.is_empty() { CpuList::from_iter([number]) } else { cpus };
            for cpu in cpus.iter() {
                if let Some(cpu) = self.cpus.get_mut(&cpu) {
                    cpu.policy = Some(number);
                }
            }
            let online = cpus.intersection(&self.online);
            self.policies.push(Policy { number, cpus, online });
        }
        Ok(())
    }

    /// The packages and their CPUs.
    pub fn packages(&self) -> BTreeMap<u32, CpuList> {
        self.grouped(|cpu| cpu.package)
    }

    /// The dies, by (package, die), and their CPUs.
    pub fn dies(&self) -> BTreeMap<(u32, u32), CpuList> {
        self.grouped(|cpu| Some((cpu.package?, cpu.die?)))
    }

    /// The cores, by (package, die, core), and their threads.
    pub fn cores(&self) -> BTreeMap<(u32, u32, u32), CpuList> {
        self.grouped(|cpu| Some((cpu.package?, cpu.die?, cpu.core?)))
    }

    /// The kinds of cores and their CPUs; empty where all are alike.
    pub fn core_kinds(&self) -> BTreeMap<CoreType, CpuList> {
        self.grouped(|cpu| cpu.core_type)
    }

    /// The policy of that number.
    pub fn policy(&self, number: u32) -> Option<&Policy> {
        let index = self.policies.binary_search_by_key(&number, |policy| policy.number).ok()?;
        self.policies.get(index)
    }

    /// The CPUs of `cpu`'s core, itself included; itself alone where the core is unknown.
    pub fn siblings(&self, cpu: u32) -> CpuList {
        let key = |cpu: &Cpu| Some((cpu.package?, cpu.die?, cpu.core?));
        let Some(wanted) = self.cpus.get(&cpu).and_then(key) else { return CpuList::from_iter([cpu]) };
        self.cpus.values().filter(|cpu| key(cpu) == Some(wanted)).map(|cpu| cpu.number).collect()
    }

    fn grouped<K: Ord>(&self, key: impl Fn(&Cpu) -> Option<K>) -> BTreeMap<K, CpuList> {
        let mut groups: BTreeMap<K, CpuList> = BTreeMap::new();
        for cpu in self.cpus.values() {
            if let Some(key) = key(cpu) {
                groups.entry(key).or_default().insert(cpu.number);
            }
        }
        groups
    }
}
