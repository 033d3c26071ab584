//! The CPUs of a machine, which of them are online, and the package, die and core of each.
//!
//! Most of this comes from few files: lists contain many CPUs at once, and /proc/cpuinfo has a
//! block per online CPU. Only the remaining values are read per CPU. Every file may be missing; its
//! value is then `None`.

mod stored;

use std::collections::BTreeMap;

use crate::{CpuInfo, CpuList, Host, HostError};

pub use stored::TopologyFile;

/// The kernel's folder of CPUs.
pub const CPUS: &str = "/sys/devices/system/cpu";
/// The folder of cpufreq's policies and their shared files.
pub const POLICIES: &str = "/sys/devices/system/cpu/cpufreq";

/// Reads the list of online CPUs; `None` if the kernel has none.
pub fn online_cpus(host: &dyn Host) -> Option<CpuList> {
    host.read("/sys/devices/system/cpu/online").ok()?.parse().ok()
}

/// A file of the topology that cannot be read, or that contains something else than the kernel
/// prints.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{path} holds '{found}'; expected {expected}")]
    Content {
        path: String,
        /// The content, shortened.
        found: String,
        expected: &'static str,
    },
}

impl TopologyError {
    fn content(path: &str, found: &str, expected: &'static str) -> TopologyError {
        TopologyError::Content { path: path.to_owned(), found: found.chars().take(60).collect(), expected }
    }
}

/// Requested CPUs that a machine does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no CPU {absent} on this machine, which has CPUs {present}")]
pub struct AbsentCpus {
    absent: CpuList,
    present: CpuList,
}

/// Checks that a machine has all these CPUs. The kernel silently drops nonexistent CPUs from an
/// affinity. If the kernel lists no CPUs, none counts as absent.
///
/// # Errors
/// The CPUs that the machine does not have.
pub fn must_be_present(host: &dyn Host, cpus: &CpuList) -> Result<(), AbsentCpus> {
    let present = host.read(&format!("{CPUS}/present")).ok().and_then(|text| text.parse::<CpuList>().ok());
    let Some(present) = present else { return Ok(()) };
    let absent = cpus.difference(&present);
    if absent.is_empty() { Ok(()) } else { Err(AbsentCpus { absent, present }) }
}

/// Package, die and core of a CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// `physical_package_id`.
    pub package: Option<u32>,
    /// `die_id`; 0 in a known package if the kernel does not number dies.
    pub die: Option<u32>,
    /// `core_id`, which another die may use too. If it repeats within a die, the core's first CPU.
    pub core: Option<u32>,
}

/// The CPUs of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuTopology {
    /// CPUs that could ever be plugged in.
    pub possible: CpuList,
    pub present: CpuList,
    pub online: CpuList,
    /// True if the kernel lists the online CPUs. Otherwise all present CPUs count as online.
    pub online_is_listed: bool,
    /// Every present CPU. The kernel provides positions only for online CPUs.
    pub positions: BTreeMap<u32, Position>,
}

impl CpuTopology {
    /// Reads the topology.
    ///
    /// # Errors
    /// A file exists but cannot be read or makes no sense, or there is no CPU at all.
    pub fn read(host: &dyn Host, info: &CpuInfo) -> Result<CpuTopology, TopologyError> {
        let list = |name: &str| read_list(host, &format!("{CPUS}/{name}"));
        let (online, present, possible) = (list("online")?, list("present")?, list("possible")?);
        let present = match present.or_else(|| online.clone()) {
            Some(present) => present,
            None => numbered(host, CPUS, "cpu")?.into_iter().collect(),
        };
        let online_is_listed = online.is_some();
        let online = online.unwrap_or_else(|| present.clone());
        // A recording's online CPUs may be missing from its `present` list.
        let present = present.union(&online);
        if present.is_empty() {
            // If listing fails, its error names the folder that is missing.
            host.list(CPUS)?;
            return Err(TopologyError::content(&format!("{CPUS}/present"), "", "a CPU list such as 0-3,7"));
        }
        let positions = present.iter().map(|cpu| (cpu, position_in_cpuinfo(info, cpu))).collect();
        let mut topology = CpuTopology {
            possible: possible.unwrap_or_else(|| present.clone()),
            present,
            online,
            online_is_listed,
            positions,
        };
        topology.read_positions(host)?;
        Ok(topology)
    }

    /// Reads the package, die and core of each online CPU, unless /proc/cpuinfo has them.
    fn read_positions(&mut self, host: &dyn Host) -> Result<(), TopologyError> {
        let mut dies_known = true;
        let mut cores_read = CpuList::default();
        for cpu in self.online.iter() {
            let path = |file: &str| format!("{CPUS}/cpu{cpu}/topology/{file}");
            let mut position = self.positions.get(&cpu).copied().unwrap_or_default();
            if position.package.is_none() {
                position.package = read_number(host, &path("physical_package_id"))?;
            }
            if position.core.is_none() {
                position.core = read_number(host, &path("core_id"))?;
                cores_read.insert(cpu);
            }
            if position.die.is_none() && dies_known {
                position.die = read_number(host, &path("die_id"))?;
                // One die list contains every CPU of the die, so one read is enough for all of
                // them.
                match position.die {
                    Some(_) => {
                        let siblings = read_list(host, &path("die_cpus_list"))?.unwrap_or_default();
                        for sibling in siblings.intersection(&self.online).iter() {
                            if let Some(other) = self.positions.get_mut(&sibling) {
                                other.die = position.die;
                            }
                        }
                    }
                    // Kernels before 5.2 have no die_id. Either all CPUs have it or none.
                    None => dies_known = false,
                }
            }
            // Do this after the reads: if the kernel does not number dies, each package has one.
            position.die = position.die.or(position.package.map(|_| 0));
            self.positions.insert(cpu, position);
        }
        self.tell_cores_apart(host, &cores_read)
    }

    /// Numbers cores by their first CPU if `core_id` repeats within a die: with a device tree it
    /// starts from 0 in each cluster (parse_cluster() in drivers/base/arch_topology.c).
    fn tell_cores_apart(&mut self, host: &dyn Host, cpus: &CpuList) -> Result<(), TopologyError> {
        let mut alike: BTreeMap<_, CpuList> = BTreeMap::new();
        for (cpu, Position { package, die, core }) in &self.positions {
            if core.is_some() && cpus.contains(*cpu) {
                alike.entry((package, die, core)).or_default().insert(*cpu);
            }
        }
        let siblings = |cpu: u32| read_list(host, &format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list"));
        let mut repeats = false;
        for cpus in alike.values().filter(|cpus| cpus.len() > 1) {
            let first = cpus.first().unwrap_or(0);
            repeats |= siblings(first)?.is_some_and(|threads| !cpus.difference(&threads).is_empty());
        }
        if repeats {
            for cpu in cpus.iter() {
                let first = siblings(cpu)?.and_then(|threads| threads.first()).unwrap_or(cpu);
                self.positions.entry(cpu).or_default().core = Some(first);
            }
        }
        Ok(())
    }
}

fn position_in_cpuinfo(info: &CpuInfo, cpu: u32) -> Position {
    let ids = info.cpus.get(&cpu).copied().unwrap_or_default();
    Position { package: ids.package, core: ids.core, die: None }
}

/// Reads a file that holds a CPU list; `None` if there is none.
///
/// # Errors
/// The file exists but cannot be read, or contains something else.
pub fn read_list(host: &dyn Host, path: &str) -> Result<Option<CpuList>, TopologyError> {
    let Some(text) = host.read_optional(path)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| TopologyError::content(path, &text, "a CPU list such as 0-3,7"))
}

/// Reads a file that holds a number; `None` if there is none.
///
/// # Errors
/// The file exists but cannot be read, or contains something else.
pub fn read_number(host: &dyn Host, path: &str) -> Result<Option<u32>, TopologyError> {
    let Some(text) = host.read_optional(path)? else { return Ok(None) };
    match text.parse::<i64>() {
        // The kernel prints -1 for an id that the firmware did not provide.
        Ok(number) => Ok(u32::try_from(number).ok()),
        Err(_) => Err(TopologyError::content(path, &text, "a number")),
    }
}

/// Returns the cpufreq driver, from the first policy with an online CPU; `None` without a driver.
pub fn scaling_driver(host: &dyn Host) -> Option<String> {
    let folder = format!("{CPUS}/cpufreq");
    let policies = numbered(host, &folder, "policy").unwrap_or_default();
    let driver = |policy: u32| host.read(&format!("{folder}/policy{policy}/scaling_driver")).ok();
    // Kernels before 4.3 have a policy's files below its CPU.
    let below = || host.read(&format!("{CPUS}/cpu0/cpufreq/scaling_driver")).ok();
    policies.into_iter().find_map(driver).or_else(below)
}

/// Returns the numbers of the entries of `folder` whose names are `stem` and a number; none if
/// there is no such folder.
///
/// # Errors
/// The folder exists but cannot be listed.
pub fn numbered(host: &dyn Host, folder: &str, stem: &str) -> Result<Vec<u32>, TopologyError> {
    match host.list(folder) {
        Ok(names) => Ok(names.iter().filter_map(|name| name.strip_prefix(stem)?.parse().ok()).collect()),
        Err(error) if error.is_absent() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}
