//! A machine for a guest: one of flyball-silicon's, reduced to the guest's number of CPUs.
//!
//! An emulated CPU costs host time, so a guest of a 160-CPU machine usually gets four CPUs.
//! Firmware, power and heat stay those of the full machine. Cores are removed from the end, and a
//! reduced package keeps all of its uncore.

use flyball_silicon::{
    MachineSpec,
    spec::{InterfaceSpec, Numbering, SstClass},
};

use crate::{error::MachineError, layout::MAX_CPUS, punit};

/// A machine file's content, and how to reduce it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduction {
    /// The text of the machine's file.
    pub toml: String,
    /// Number of CPUs; 0 for all.
    pub cpus: u32,
    /// The registers for performance requests, instead of the machine's own.
    pub interface: Option<Interface>,
}

/// Interfaces for performance requests that a guest can have instead of its machine's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    /// AMD CPPC in registers.
    CppcMsr,
    /// AMD CPPC in memory.
    CppcMailbox,
    /// P-state registers only, of either vendor.
    PStates,
    /// Intel HWP that the firmware has not enabled, so that a driver can leave it off.
    HwpOff,
}

impl Interface {
    /// Its name on command lines.
    pub fn word(self) -> &'static str {
        match self {
            Interface::CppcMsr => "cppc-msr",
            Interface::CppcMailbox => "cppc-mailbox",
            Interface::PStates => "p-states",
            Interface::HwpOff => "hwp-off",
        }
    }

    pub fn parse(word: &str) -> Option<Interface> {
        [Interface::CppcMsr, Interface::CppcMailbox, Interface::PStates, Interface::HwpOff]
            .into_iter()
            .find(|i| i.word() == word)
    }
}

/// Threads, cores and packages for QEMU's topology. CPU n of the guest is CPU n of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub packages: u32,
    /// Cores per package.
    pub cores: u32,
    /// Threads per core.
    pub threads: u32,
}

impl Layout {
    pub fn cpus(self) -> u32 {
        self.packages * self.cores * self.threads
    }
}

impl Reduction {
    /// Makes the reduced machine.
    pub fn make(&self) -> Result<(MachineSpec, Layout), MachineError> {
        let mut spec = MachineSpec::from_toml(&self.toml)?;
        if spec.identity.vendor == flyball_silicon::spec::Vendor::Arm {
            return Err(MachineError::Arm(spec.name));
        }
        let all = spec.cpus() as u32;
        let wanted = if self.cpus == 0 { all } else { self.cpus };
        if wanted > all || wanted > MAX_CPUS {
            let most = all.min(MAX_CPUS);
            return Err(MachineError::TooManyCpus { machine: spec.name, all, most, requested: wanted });
        }
        let layout = cut(&mut spec, wanted)?;
        let packages = spec.topology.packages as usize;
        if let Some(sst) = &mut spec.sst {
            // The functions' locations in the guest, which are also the values of MSR 128h and
            // TPMI's INFO.
            let tpmi = sst.class == SstClass::Tpmi;
            sst.pci_bus = (0..packages).map(|package| if tpmi { 0 } else { punit::bus(package) }).collect();
        }
        if let Some(interface) = self.interface {
            let intel = spec.identity.vendor == flyball_silicon::spec::Vendor::Intel;
            spec.firmware.interface = match interface {
                Interface::CppcMsr | Interface::CppcMailbox if intel => {
                    return Err(MachineError::NotAmd(spec.name));
                }
                Interface::HwpOff if spec.firmware.interface != InterfaceSpec::Hwp => {
                    return Err(MachineError::NoHwp(spec.name));
                }
                Interface::HwpOff => {
                    spec.firmware.on_at_boot = false;
                    InterfaceSpec::Hwp
                }
                Interface::CppcMsr => InterfaceSpec::CppcMsr,
                Interface::CppcMailbox => InterfaceSpec::CppcShared,
                Interface::PStates if intel => InterfaceSpec::PerfCtl,
                Interface::PStates => InterfaceSpec::AmdPstate,
            };
        }
        // Check again: the rest of the machine may refer to removed parts.
        spec.check().map_err(|source| MachineError::Reduced { cpus: wanted, source })?;
        Ok((spec, layout))
    }
}

/// Removes packages, then threads, then cores, until `wanted` CPUs are left.
fn cut(spec: &mut MachineSpec, wanted: u32) -> Result<Layout, MachineError> {
    // QEMU numbers the threads of a core consecutively, whatever the machine does.
    spec.topology.numbering = Numbering::SiblingsAdjacent;
    let per_package = spec.cpus() as u32 / spec.topology.packages;
    let hybrid = spec.core.len() > 1;
    if hybrid && wanted != spec.cpus() as u32 {
        return cut_hybrid(spec, wanted);
    }
    if hybrid {
        let mixed = spec.core.iter().any(|core| core.threads != spec.core[0].threads);
        if mixed {
            return Err(MachineError::MixedThreads(spec.name.clone()));
        }
    }
    let mut packages = 1;
    if wanted.is_multiple_of(per_package) {
        packages = wanted / per_package;
    } else if wanted > per_package {
        return Err(MachineError::PartOfPackage { cpus: wanted, per_package });
    }
    let cores_in_package: u32 = spec.core.iter().map(|core| core.count).sum::<u32>() * spec.topology.dies;
    let mut threads = spec.core[0].threads;
    let mut cores = cores_in_package;
    if packages * cores * threads != wanted {
        // Several cores are a better test of a governor than several threads of one core.
        threads = if wanted <= cores_in_package { 1 } else { threads };
        if !wanted.is_multiple_of(threads) {
            return Err(MachineError::PartOfCore { cpus: wanted, threads });
        }
        cores = wanted / threads;
        let dies = spec.topology.dies;
        // Keep dies that are power domains of Speed Select if each still has a core.
        if spec.topology.dies_are_power_domains && cores.is_multiple_of(dies) {
            set_cores(spec, &[cores / dies]);
        } else {
            // The same number for all dies: such a machine has one kind of core (hybrid machines
            // are reduced elsewhere).
            set_cores(spec, &[cores]);
            spec.topology.dies = 1;
        }
    }
    spec.topology.packages = packages;
    for core in &mut spec.core {
        core.threads = threads;
    }
    Ok(Layout { packages, cores, threads })
}

/// Reduces a hybrid machine. It keeps both kinds of cores, with one thread each; an odd CPU goes to
/// the big cores.
fn cut_hybrid(spec: &mut MachineSpec, wanted: u32) -> Result<Layout, MachineError> {
    let kinds = spec.core.len() as u32;
    let all: u32 = spec.core.iter().map(|core| core.count).sum();
    if wanted < kinds || wanted > all {
        return Err(MachineError::Hybrid { machine: spec.name.clone(), least: kinds, most: all });
    }
    let mut counts: Vec<u32> =
        spec.core.iter().map(|core| (core.count * wanted / all).clamp(1, core.count)).collect();
    let mut at = 0;
    // This terminates because `wanted` is between one core of each kind and all of them.
    while counts.iter().sum::<u32>() != wanted {
        let total: u32 = counts.iter().sum();
        let kind = at % counts.len();
        if total < wanted && counts[kind] < spec.core[kind].count {
            counts[kind] += 1;
        } else if total > wanted && counts[kind] > 1 {
            counts[kind] -= 1;
        }
        at += 1;
    }
    set_cores(spec, &counts);
    spec.topology.packages = 1;
    spec.topology.dies = 1;
    for core in &mut spec.core {
        core.threads = 1;
    }
    Ok(Layout { packages: 1, cores: wanted, threads: 1 })
}

/// Reduces the machine to `counts` cores of each kind, and removes all references to other cores.
fn set_cores(spec: &mut MachineSpec, counts: &[u32]) {
    let total: u32 = counts.iter().sum();
    for (core, count) in spec.core.iter_mut().zip(counts) {
        core.count = *count;
        core.better.retain(|(number, _)| number < count);
        core.ranking.truncate(total as usize);
    }
    let topology = &mut spec.topology;
    topology.core_ids.clear();
    topology.caches_kb.clear();
    topology.unit_cores.clear();
    topology.cores_per_cache = topology.cores_per_cache.min(total);
    // Power domains that are not dies share the remaining cores.
    let mut largest = total;
    if !topology.power_domains.is_empty() {
        let domains = total.min(topology.power_domains.len() as u32).max(1);
        topology.power_domains =
            (0..domains).map(|domain| total / domains + u32::from(domain < total % domains)).collect();
        largest = topology.power_domains[0];
    }
    if let Some(sst) = &mut spec.sst {
        let domains = sst.domain.iter_mut().map(|domain| &mut domain.level);
        for level in domains.chain([&mut sst.level]).flatten() {
            level.cores.retain(|core| *core < largest);
            if let Some(bf) = &mut level.bf {
                bf.cores.retain(|core| *core < largest);
                if bf.cores.is_empty() {
                    // Without any high-priority core, SST-BF would have no effect.
                    bf.cores.push(largest - 1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: &str, cpus: u32) -> Result<(MachineSpec, Layout), MachineError> {
        let toml = MachineSpec::builtin_text(name).unwrap().to_owned();
        Reduction { toml, cpus, interface: None }.make()
    }

    #[test]
    fn every_machine_can_be_cut_down() {
        for name in MachineSpec::names() {
            if matches!(name, "altra" | "grace") {
                assert!(matches!(wanted(name, 2), Err(MachineError::Arm(_))));
                continue;
            }
            for cpus in [1, 2, 3, 4, 8] {
                let made = wanted(name, cpus);
                let hybrid = MachineSpec::builtin(name).unwrap().core.len() > 1;
                let all = MachineSpec::builtin(name).unwrap().cpus();
                if cpus as usize > all || (hybrid && cpus == 1) {
                    assert!(made.is_err());
                    continue;
                }
                match made {
                    Ok((spec, layout)) => {
                        assert_eq!(spec.cpus() as u32, cpus, "{name}");
                        assert_eq!(layout.cpus(), cpus, "{name}");
                        assert!(flyball_silicon::Silicon::new(spec, 0).is_ok());
                    }
                    Err(why) => assert!(
                        matches!(
                            why,
                            MachineError::PartOfPackage { .. }
                                | MachineError::PartOfCore { .. }
                                | MachineError::Hybrid { .. }
                        ),
                        "{name} {cpus}: {why}"
                    ),
                }
            }
        }
    }

    #[test]
    fn power_domains_share_what_is_left() {
        let mut spec = MachineSpec::builtin("tpmi-large").unwrap();
        let cores = spec.cores_per_package() as u32;
        spec.core[0].count = cores;
        spec.topology.dies = 1;
        spec.topology.power_domains = vec![cores / 3, cores / 3, cores - 2 * (cores / 3)];
        for (cpus, shares) in [(6, &[2, 2, 2][..]), (4, &[2, 1, 1]), (2, &[1, 1])] {
            let wanted = Reduction { toml: spec.to_toml().unwrap(), cpus, interface: None };
            let (made, _) = wanted.make().unwrap();
            assert_eq!(made.topology.power_domains, shares);
            assert!(flyball_silicon::Silicon::new(made, 0).is_ok());
        }
    }

    #[test]
    fn too_much_is_refused() {
        assert!(matches!(wanted("ryzen-5750g", 17), Err(MachineError::TooManyCpus { all: 16, .. })));
        let toml = MachineSpec::builtin_text("sst-guide").unwrap().to_owned();
        let error = Reduction { toml, cpus: 4, interface: Some(Interface::CppcMsr) }.make().unwrap_err();
        assert!(matches!(error, MachineError::NotAmd(_)), "{error}");
    }
}
