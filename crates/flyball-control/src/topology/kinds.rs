//! The core types of a processor. Only this module determines them, and it gives its evidence.
//! Without evidence a core has no type.

use std::{collections::BTreeMap, fmt};

use flyball_host::{CpuList, Host, Vendor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CPUS, Topology, read_list, read_number};
use crate::value::ReadError;

/// The type of a core on a hybrid processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
pub enum CoreType {
    P,
    /// Efficiency core (AMD: dense).
    E,
    /// Low-power core. Intel: an E-core without an L3, outside the compute tile.
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

/// How the core types are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KindEvidence {
    /// Intel's perf PMUs `cpu_core`, `cpu_atom` and `cpu_lowpower`; an E-core without an L3 is a
    /// low-power core.
    Pmu,
    /// The capacities that the kernel gave the CPUs (`cpu_capacity`) differ.
    Capacity,
    /// CPUID leaf 0x80000026 of each CPU, as the kernel read it at boot (debugfs, `x86/topo`).
    Cpuid,
    /// CPUID leaf 0x80000026 says that core types differ. The levels in `acpi_cppc/highest_perf`,
    /// and whether a core has an L3, identify the types.
    Levels,
}

impl fmt::Display for KindEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            KindEvidence::Pmu => "perf PMUs",
            KindEvidence::Capacity => "cpu_capacity",
            KindEvidence::Cpuid => "CPUID 0x80000026",
            KindEvidence::Levels => "highest_perf and L3",
        })
    }
}

/// The kernel's copy of each CPU's CPUID, read at boot (arch/x86/kernel/cpu/debugfs.c). Reading it
/// wakes no CPU.
const TOPO: &str = "/sys/kernel/debug/x86/topo/cpus";

impl Topology {
    /// Finds the core types.
    pub(super) fn core_types(&mut self, host: &dyn Host) -> Result<(), ReadError> {
        self.kind_evidence = if self.kinds_by_pmu(host)? {
            // On most models one PMU covers all E-cores, with or without an L3.
            self.low_power_cores(host);
            Some(KindEvidence::Pmu)
        } else if self.vendor == Vendor::Amd {
            self.kinds_of_amd(host)?
        } else {
            self.kinds_by_capacity(host)?.then_some(KindEvidence::Capacity)
        };
        Ok(())
    }

    fn set_kind(&mut self, number: u32, kind: CoreType) {
        if let Some(cpu) = self.cpus.get_mut(&number) {
            cpu.core_type = Some(kind);
        }
    }

    /// Finds the types by perf PMU: arch/x86/events/intel/core.c names them cpu_core, cpu_atom and
    /// cpu_lowpower.
    fn kinds_by_pmu(&mut self, host: &dyn Host) -> Result<bool, ReadError> {
        let kinds = [("cpu_core", CoreType::P), ("cpu_atom", CoreType::E), ("cpu_lowpower", CoreType::LP)];
        for (folder, kind) in kinds {
            for cpu in read_list(host, &format!("/sys/devices/{folder}/cpus"))?.unwrap_or_default().iter() {
                self.set_kind(cpu, kind);
            }
        }
        Ok(self.cpus.values().any(|cpu| cpu.core_type.is_some()))
    }

    /// Finds the types by capacity, which kernels since 6.12 show on hybrid processors without
    /// hyper-threading.
    fn kinds_by_capacity(&mut self, host: &dyn Host) -> Result<bool, ReadError> {
        let Some(capacities) = self.read_each(host, "cpu_capacity")? else { return Ok(false) };
        let highest = capacities.values().copied().max().unwrap_or(0);
        // The capacities of one type differ by a few percent of turbo, those of different types by
        // a third or more.
        let is_big = |value: u32| u64::from(value) * 4 >= u64::from(highest) * 3;
        if capacities.values().all(|&value| is_big(value)) {
            return Ok(false);
        }
        for (number, value) in capacities {
            self.set_kind(number, if is_big(value) { CoreType::P } else { CoreType::E });
        }
        Ok(true)
    }

    /// Reads a number of each online CPU; `None` if the first CPU has none. The first missing file
    /// decides for all CPUs, to save hundreds of failed opens.
    fn read_each(&self, host: &dyn Host, file: &str) -> Result<Option<BTreeMap<u32, u32>>, ReadError> {
        let mut numbers = BTreeMap::new();
        for cpu in self.online.iter() {
            match read_number(host, &format!("{CPUS}/cpu{cpu}/{file}"))? {
                Some(value) => _ = numbers.insert(cpu, value),
                None if numbers.is_empty() => return Ok(None),
                None => {}
            }
        }
        Ok(Some(numbers))
    }

    /// Returns whether a CPU has a level-3 cache; `None` if its caches are unknown.
    fn has_l3(host: &dyn Host, cpu: u32) -> Option<bool> {
        // CPUID enumerates both L1s, the L2 and the L3 in this order, so index3 is the L3. Some
        // containers and recordings have no cache folder, so nothing is known.
        let cache = |index: u32| host.exists(&format!("{CPUS}/cpu{cpu}/cache/index{index}"));
        cache(2).then(|| cache(3))
    }

    /// Finds E-cores without an L3, which are the low-power cores of Meteor Lake and later. Only on
    /// few models has the kernel a separate perf PMU for them (arch/x86/events/intel/core.c,
    /// cpu_lowpower). On others they are in cpu_atom.
    fn low_power_cores(&mut self, host: &dyn Host) {
        let online = |kind| {
            let cpus = self.cpus.values().filter(move |cpu| cpu.online && cpu.core_type == Some(kind));
            cpus.map(|cpu| cpu.number)
        };
        // If even the P-cores have no L3, its absence proves nothing about E-cores.
        if online(CoreType::P).next().is_none_or(|cpu| Self::has_l3(host, cpu) != Some(true)) {
            return;
        }
        let low: Vec<u32> =
            online(CoreType::E).filter(|&cpu| Self::has_l3(host, cpu) == Some(false)).collect();
        for cpu in low {
            self.set_kind(cpu, CoreType::LP);
        }
    }

    /// Finds the core types of an AMD processor. Reads nothing if CPUID says that all cores are
    /// equal.
    fn kinds_of_amd(&mut self, host: &dyn Host) -> Result<Option<KindEvidence>, ReadError> {
        let differ = flyball_host::has_core_kinds(host);
        if differ == Some(false) {
            return Ok(None);
        }
        let online = self.online.clone();
        let mut kinds = BTreeMap::new();
        for cpu in online.iter() {
            // Only root may read it, so a recording made by a user lacks it.
            let Ok(text) = host.read(&format!("{TOPO}/{cpu}")) else { break };
            kinds.extend(kind_of(&text).map(|kind| (cpu, kind)));
        }
        let is_mixed = kinds.values().any(|kind| Some(kind) != kinds.values().next());
        if is_mixed {
            for (cpu, kind) in kinds {
                self.set_kind(cpu, kind);
            }
            return Ok(Some(KindEvidence::Cpuid));
        }
        // Levels also differ among equal cores, by preference, so they alone prove nothing.
        if differ != Some(true) {
            return Ok(None);
        }
        let Some(levels) = self.read_each(host, "acpi_cppc/highest_perf")? else { return Ok(None) };
        let (big, small) = split(&levels);
        let without: CpuList = small.iter().filter(|&cpu| Self::has_l3(host, cpu) == Some(false)).collect();
        let dense = small.difference(&without);
        // If two types below the P-cores have an L3, it is unknown which is which.
        let of_dense: BTreeMap<u32, u32> =
            levels.into_iter().filter(|(cpu, _)| dense.contains(*cpu)).collect();
        let is_one_kind = split(&of_dense).1.is_empty();
        let known = [
            (CoreType::P, if small.is_empty() { CpuList::new() } else { big }),
            (CoreType::E, if is_one_kind { dense } else { CpuList::new() }),
            (CoreType::LP, without),
        ];
        for (kind, cpus) in &known {
            for cpu in cpus.iter() {
                self.set_kind(cpu, *kind);
            }
        }
        Ok(known.iter().any(|(_, cpus)| !cpus.is_empty()).then_some(KindEvidence::Levels))
    }
}

/// Reads the core type from the kernel's description of a CPU; `None` for `unknown`, and for types
/// added by later kernels.
fn kind_of(text: &str) -> Option<CoreType> {
    let word = text.lines().find_map(|line| line.strip_prefix("cpu_type:"))?;
    match word.trim() {
        "performance" => Some(CoreType::P),
        "efficiency" => Some(CoreType::E),
        "low_power" => Some(CoreType::LP),
        _ => None,
    }
}

/// Splits CPUs at the largest step between their levels, if it is at least a fifth of the higher
/// level. Steps between preferred cores of one type are smaller, steps between types are larger.
fn split(levels: &BTreeMap<u32, u32>) -> (CpuList, CpuList) {
    let mut sorted: Vec<u32> = levels.values().copied().collect();
    sorted.sort_unstable();
    let mut steps = sorted.windows(2).filter(|pair| u64::from(pair[0]) * 5 <= u64::from(pair[1]) * 4);
    let lowest_big = steps.next_back().map_or(0, |pair| pair[1]);
    let above = |is_big: bool| {
        levels.iter().filter(move |(_, level)| (**level >= lowest_big) == is_big).map(|(cpu, _)| *cpu)
    };
    (above(true).collect(), above(false).collect())
}
