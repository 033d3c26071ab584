//! The processors of a machine: its CPUs, and how they share packages, dies, cores, policies and
//! nodes.
//!
//! Built on [`flyball_host::CpuTopology`]. Every file may be missing; unknown values are `None`.

mod caches;
mod kinds;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;

use flyball_host::Vendor;
pub(crate) use flyball_host::topology::{CPUS, read_list};
use flyball_host::{
    CpuInfo, CpuList, CpuTopology, Host,
    topology::{Position, TopologyError, numbered, read_number},
};
use serde::{Deserialize, Serialize};

pub use self::{
    caches::LastCache,
    kinds::{CoreType, KindEvidence},
};
use crate::{
    Location,
    kernel::{kernel_release, version},
    knob::On,
    value::ReadError,
};

/// One logical CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Cpu {
    pub number: u32,
    /// True if online. The kernel provides the ids below only for online CPUs.
    pub online: bool,
    /// Package (`physical_package_id`).
    pub package: Option<u32>,
    /// Die in the package; 0 if the kernel does not number dies.
    pub die: Option<u32>,
    /// Core (`core_id`). Another die may use the same number.
    pub core: Option<u32>,
    pub node: Option<u32>,
    /// Core type; `None` if all cores are of one type.
    pub core_type: Option<CoreType>,
    /// The number of its cpufreq policy.
    pub policy: Option<u32>,
}

/// A cpufreq policy: CPUs that share one frequency setting.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Policy {
    /// The number in `policyN`.
    pub number: u32,
    /// All its CPUs (`related_cpus`), offline ones included.
    pub cpus: CpuList,
    /// Online CPUs of the policy (`affected_cpus`). If there are none, every read and write of its
    /// files fails with `EBUSY`.
    pub online: CpuList,
}

/// The processors of a machine and how they are arranged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// CPUs that could ever be plugged in.
    pub possible: CpuList,
    /// CPUs that are present.
    pub present: CpuList,
    /// CPUs that are online.
    pub online: CpuList,
    /// CPUs that are present but not online.
    pub offline: CpuList,
    /// True if the kernel listed the online CPUs. Otherwise all present CPUs count as online.
    #[serde(skip)]
    pub online_is_listed: bool,
    /// Vendor of the processor.
    pub vendor: Vendor,
    /// `cpu family` of /proc/cpuinfo.
    pub family: Option<u32>,
    /// `model` of /proc/cpuinfo.
    pub model: Option<u32>,
    /// `stepping` of /proc/cpuinfo.
    pub stepping: Option<u32>,
    /// `model name` of /proc/cpuinfo.
    pub model_name: Option<String>,
    /// True if the numbers behind amd-pstate's preference words depend on the core type: models of
    /// Zen 6 since Linux 7.4 (`amd_pstate_epp_soc_ids`).
    #[serde(skip)]
    pub words_by_kind: bool,
    /// `microcode` of the first CPU of /proc/cpuinfo.
    pub microcode: Option<u32>,
    /// `flags` of the first CPU of /proc/cpuinfo.
    #[serde(skip)]
    pub flags: BTreeSet<String>,
    /// Every present CPU.
    pub cpus: BTreeMap<u32, Cpu>,
    /// How the core types were determined; `None` if they are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind_evidence: Option<KindEvidence>,
    /// The level-3 caches, in the order of their first CPUs; `None` if they were not read (see
    /// [`Topology::read_for`]).
    #[serde(skip)]
    pub caches: Option<Vec<LastCache>>,
    /// Every cpufreq policy, by number; empty without a cpufreq driver.
    pub policies: Vec<Policy>,
    /// True if a policy's files are below its CPU, in `cpuN/cpufreq`, as before kernel 4.3
    /// (drivers/cpufreq/cpufreq.c made `policyN` in 4.3).
    #[serde(skip)]
    pub has_policies_below_cpus: bool,
    /// NUMA nodes and their CPUs.
    pub nodes: BTreeMap<u32, CpuList>,
}

pub(crate) fn bad(path: &str, found: &str, expected: &'static str) -> ReadError {
    // Shortened: a recorded file may hold anything, and the message is one line.
    let found = found.chars().take(60).collect();
    ReadError::Content { source: Location::File(path.to_owned()), found, expected }
}

impl From<TopologyError> for ReadError {
    fn from(error: TopologyError) -> ReadError {
        match error {
            TopologyError::Host(error) => error.into(),
            TopologyError::Content { path, found, expected } => {
                ReadError::Content { source: Location::File(path), found, expected }
            }
        }
    }
}

impl Topology {
    /// Returns three times the bus clock of an Intel processor, which its ratios multiply, in kHz.
    /// The bus clock is 133.33 MHz before Sandy Bridge and 100 MHz since (turbostat.c, `bclk`).
    /// `None` for processors before Nehalem, and for Atoms that report the clock in a register.
    pub(crate) fn bus_third_khz(&self) -> Option<u64> {
        const NEHALEM_AND_WESTMERE: &[u32] = &[0x1a, 0x1e, 0x1f, 0x2e, 0x25, 0x2c, 0x2f];
        const OTHERS: &[u32] =
            &[0x0e, 0x0f, 0x16, 0x17, 0x1d, 0x1c, 0x26, 0x27, 0x35, 0x36, 0x37, 0x4a, 0x4c, 0x4d, 0x5a, 0x5d];
        match (self.family, self.model) {
            (Some(6), Some(model)) if NEHALEM_AND_WESTMERE.contains(&model) => Some(400_000),
            (Some(6), Some(model)) if OTHERS.contains(&model) => None,
            (Some(0..=5 | 15), _) => None,
            // Unknown models are newer ones, with 100 MHz.
            _ => Some(300_000),
        }
    }

    /// Returns whether `on` includes this processor.
    pub(crate) fn is(&self, on: On) -> bool {
        match on {
            On::All => true,
            On::Flag(flag) => self.flags.contains(flag),
            On::Models(models) => {
                self.family == Some(6) && self.model.is_some_and(|model| models.contains(&model))
            }
        }
    }

    /// Reads the topology.
    ///
    /// # Errors
    /// A file exists but cannot be read or makes no sense, or not even one CPU can be found.
    pub fn inspect(host: &dyn Host) -> Result<Topology, ReadError> {
        let info = CpuInfo::read(host)?;
        let CpuTopology { possible, present, online, online_is_listed, positions } =
            CpuTopology::read(host, &info)?;
        let cpus = positions
            .into_iter()
            .map(|(number, Position { package, die, core })| {
                let online = online.contains(number);
                (number, Cpu { number, online, package, die, core, ..Cpu::default() })
            })
            .collect();
        let mut topology = Topology {
            possible,
            offline: present.difference(&online),
            present,
            online,
            online_is_listed,
            vendor: info.vendor(),
            family: info.family,
            model: info.model,
            stepping: info.stepping,
            model_name: info.model_name.map(|name| name.split_whitespace().collect::<Vec<_>>().join(" ")),
            microcode: info.microcode,
            words_by_kind: false,
            flags: info.flags,
            cpus,
            kind_evidence: None,
            caches: None,
            policies: Vec::new(),
            has_policies_below_cpus: false,
            nodes: BTreeMap::new(),
        };
        // Before the policies: core types and nodes exist even without cpufreq.
        topology.core_types(host)?;
        topology.nodes(host)?;
        topology.policies(host)?;
        let is_zen6 = (topology.vendor, topology.family) == (Vendor::Amd, Some(0x1a))
            && matches!(topology.model, Some(0x80 | 0x81 | 0x84 | 0x85 | 0xe0));
        // Read for these models only.
        topology.words_by_kind = is_zen6
            && kernel_release(host).is_some_and(|release| version(&release).is_some_and(|it| it >= (7, 4)));
        Ok(topology)
    }

    /// Returns the positions of the CPUs in the form that Speed Select needs.
    pub(crate) fn positions(&self) -> CpuTopology {
        let position = |cpu: &Cpu| Position { package: cpu.package, die: cpu.die, core: cpu.core };
        CpuTopology {
            possible: self.possible.clone(),
            present: self.present.clone(),
            online: self.online.clone(),
            online_is_listed: self.online_is_listed,
            positions: self.cpus.iter().map(|(number, cpu)| (*number, position(cpu))).collect(),
        }
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
        let mut numbers = numbered(host, &folder, "policy")?;
        if numbers.is_empty() && host.exists(&format!("{CPUS}/cpu0/cpufreq/scaling_driver")) {
            self.has_policies_below_cpus = true;
            let has_policy = |cpu: &u32| host.exists(&format!("{CPUS}/cpu{cpu}/cpufreq"));
            numbers = self.online.iter().filter(has_policy).collect();
        }
        // Policies are disjoint and not empty, and each contains the CPU that it is named after. So
        // if there are as many policies as CPUs, each has one CPU. That saves a large machine
        // reading related_cpus for every CPU.
        let one_each = !self.has_policies_below_cpus
            && numbers.len() == self.present.len()
            && numbers.iter().all(|&cpu| self.present.contains(cpu));
        for number in numbers {
            // This CPU belongs to another CPU's policy.
            if self.cpus.get(&number).is_some_and(|cpu| cpu.policy.is_some()) {
                continue;
            }
            let path = format!("{}/related_cpus", self.policy_folder(number));
            let text = if one_each { Ok(None) } else { host.read_optional(&path) };
            let cpus = match text {
                Ok(Some(text)) => CpuList::from_words(&text)
                    .map_err(|_| bad(&path, &text, "CPU numbers with blanks between"))?,
                // The policy is named after the CPU for which it was created.
                Ok(None) => CpuList::from_iter([number]),
                // All its CPUs are offline: show() in cpufreq.c returns EBUSY for every file of an
                // inactive policy, including related_cpus.
                Err(error) if error.errno == flyball_host::Errno::BUSY => CpuList::from_iter([number]),
                Err(error) => return Err(error.into()),
            };
            let cpus = if cpus.is_empty() { CpuList::from_iter([number]) } else { cpus };
            for cpu in cpus.iter() {
                if let Some(cpu) = self.cpus.get_mut(&cpu) {
                    cpu.policy = Some(number);
                }
            }
            // Use the kernel's list of online CPUs instead of affected_cpus: it agrees, and saves a
            // read per policy.
            let online = cpus.intersection(&self.online);
            self.policies.push(Policy { number, cpus, online });
        }
        Ok(())
    }

    pub fn packages(&self) -> BTreeMap<u32, CpuList> {
        self.grouped(|cpu| cpu.package)
    }

    /// Returns the dies, by (package, die), and their CPUs.
    pub fn dies(&self) -> BTreeMap<(u32, u32), CpuList> {
        self.grouped(|cpu| Some((cpu.package?, cpu.die?)))
    }

    /// Returns the cores, by (package, die, core), and their threads.
    pub fn cores(&self) -> BTreeMap<(u32, u32, u32), CpuList> {
        self.grouped(|cpu| Some((cpu.package?, cpu.die?, cpu.core?)))
    }

    /// Returns the CPUs of each core type; empty if all cores are of one type.
    pub fn core_kinds(&self) -> BTreeMap<CoreType, CpuList> {
        self.grouped(|cpu| cpu.core_type)
    }

    /// Returns the NUMA nodes per package, if all packages have the same number of nodes and more
    /// than one.
    pub fn nodes_per_package(&self) -> Option<usize> {
        let of = |package: &CpuList| self.nodes.values().filter(|node| node.intersects(package)).count();
        let packages = self.packages();
        let nodes = of(packages.values().next()?);
        (nodes > 1 && packages.values().all(|package| of(package) == nodes)).then_some(nodes)
    }

    /// Returns the folder of a policy's files.
    pub fn policy_folder(&self, number: u32) -> String {
        if self.has_policies_below_cpus {
            format!("{CPUS}/cpu{number}/cpufreq")
        } else {
            format!("{CPUS}/cpufreq/policy{number}")
        }
    }

    /// Returns a policy whose files can be read: the first with an online CPU.
    pub fn any_policy(&self) -> Option<&Policy> {
        self.policies.iter().find(|policy| !policy.online.is_empty())
    }

    pub fn policy(&self, number: u32) -> Option<&Policy> {
        let index = self.policies.binary_search_by_key(&number, |policy| policy.number).ok()?;
        self.policies.get(index)
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
