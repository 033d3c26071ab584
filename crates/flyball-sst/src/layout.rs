//! A machine's Speed Select: its drivers, its power domains, and the CPUs of each domain.

use std::{collections::BTreeSet, sync::Arc};

use flyball_host::{CpuInfo, CpuList, CpuTopology, Host, HostError, isst, online_cpus};

use crate::{
    access::{self, Access, CpuModel, DomainAddress, Dump, Mailbox, Tpmi},
    cpus::CpuMap,
    setting::{Field, Setting, Via},
};

/// A power domain with its CPUs, including offline ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// The domain's address, with its lowest online CPU.
    pub place: DomainAddress,
    /// The die's number in sysfs.
    pub die: u32,
    pub cpus: CpuList,
}

/// A machine's Speed Select drivers and power domains.
#[derive(Debug, Clone)]
pub struct Layout {
    pub platform: isst::Platform,
    pub model: CpuModel,
    pub via: Via,
    pub map: CpuMap,
    /// The power domains with registers.
    pub domains: Vec<Domain>,
    /// The registers from debugfs, if there is no driver.
    dump: Option<Arc<Dump>>,
}

impl Layout {
    /// Detects Speed Select.
    ///
    /// # Errors
    /// The driver's errno; `EOPNOTSUPP` for an unknown interface version.
    pub fn read(host: &dyn Host) -> Result<Layout, HostError> {
        let (platform, dump) = match isst::Platform::read(host) {
            Ok(platform) => (platform, None),
            // Without the driver, debugfs may still show the registers.
            Err(error) if error.is_absent() => {
                let Ok(dump) = Dump::read(host) else { return Err(error) };
                let platform = isst::Platform {
                    // The dump does not tell its driver's version: the newest version describes all
                    // fields in it.
                    api_version: isst::HIGHEST_API,
                    driver_version: 0,
                    max_commands: 0,
                    mailbox: false,
                    mmio: false,
                };
                (platform, Some(Arc::new(dump)))
            }
            Err(error) => return Err(error),
        };
        // Only now: most machines have no Speed Select, and /proc/cpuinfo is long on a large
        // machine.
        let info = CpuInfo::read(host).unwrap_or_default();
        let model = CpuModel::new(&info);
        let dumped = dump.is_some();
        let opened = if dumped { None } else { Some(access::open(host, &platform, &model)?) };
        let via = match platform.api_version {
            _ if dumped => Via::Dump,
            // This is part of every setting's text in a journal, so that a restore knows where the
            // classes are.
            1 if model.is_skylake_based() => Via::MailboxAlone,
            1 => Via::Mailbox,
            version => Via::Tpmi(version),
        };
        let topology = CpuTopology::read(host, &info).unwrap_or_default();
        let map = CpuMap::read(host, topology, platform.is_tpmi());
        // Without the power unit's numbers every core would look like the first. This does no harm
        // to a dump, which is read-only.
        if let Some(error) = map.failure.as_ref().filter(|_| !dumped) {
            return Err(error.clone());
        }
        let access: Option<&dyn Access> = match &dump {
            Some(dump) => Some(dump.as_ref()),
            None => opened.as_deref(),
        };
        let domains = access.map(|access| domains(host, access, &map)).unwrap_or_default();
        Ok(Layout { platform, model, via, map, domains, dump })
    }

    pub fn access<'h>(&self, host: &'h dyn Host) -> Box<dyn Access + 'h> {
        match self.via {
            // The dump existed when the layout was read; a dump that has disappeared reads as one
            // without registers.
            Via::Dump => Box::new(Dump::read(host).unwrap_or_default()),
            Via::Tpmi(api) => Box::new(Tpmi::new(host, api)),
            Via::Mailbox | Via::MailboxAlone => Box::new(Mailbox::new(host, &self.model)),
        }
    }

    /// Reads a setting. Without a driver it returns the registers' content when the layout was
    /// read: parsing the dump again for each setting takes longer than all other files of a
    /// snapshot.
    pub fn read_setting(&self, host: &dyn Host, setting: &Setting) -> Result<String, HostError> {
        match &self.dump {
            Some(dump) if setting.via == Via::Dump => setting.read_through(host, Some(dump.as_ref())),
            _ => setting.read(host),
        }
    }

    pub fn domain_of(&self, cpu: u32) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.cpus.contains(cpu))
    }

    pub fn setting(&self, place: DomainAddress, field: Field) -> Setting {
        Setting { via: self.via, place, field }
    }

    /// The setting that holds the class of a CPU's core.
    pub fn class_setting(&self, cpu: u32) -> Option<Setting> {
        let core = self.map.get(cpu)?.core;
        Some(self.setting(self.domain_of(cpu)?.place, Field::Class(core)))
    }

    /// CPUs of a domain's core mask.
    pub fn of_cores(&self, domain: &Domain, cores: u64) -> CpuList {
        domain
            .cpus
            .iter()
            // Core masks have 64 bits on both interfaces, and a longer shift would overflow.
            .filter(|&cpu| self.map.get(cpu).is_some_and(|cpu| cpu.core < 64 && cores >> cpu.core & 1 != 0))
            .collect()
    }
}

/// Finds the power domains with registers: those of CPUs, and those without CPUs that the interface
/// lists.
fn domains(host: &dyn Host, access: &dyn Access, map: &CpuMap) -> Vec<Domain> {
    let online = online_cpus(host).unwrap_or_default();
    let mut domains = Vec::new();
    let packages: BTreeSet<u32> = map.iter().map(|cpu| cpu.package).collect();
    for package in packages {
        // The drivers' calls have eight bits for the package (include/uapi/linux/isst_if.h).
        let Ok(number) = u8::try_from(package) else { continue };
        // On mailbox parts with several dies, each die is a domain, and all have the number 0.
        let dies: BTreeSet<(u32, u8)> =
            map.iter().filter(|cpu| cpu.package == package).map(|cpu| (cpu.die, cpu.domain)).collect();
        let has_cpus = |domain: u8| dies.iter().any(|&(_, of)| of == domain);
        let without_cpus = access.domains(number).into_iter().filter(|&domain| !has_cpus(domain));
        for (die, domain) in dies.iter().copied().chain(without_cpus.map(|domain| (0, domain))) {
            let cpus: CpuList = map
                .iter()
                .filter(|cpu| (cpu.package, cpu.die, cpu.domain) == (package, die, domain))
                .map(|cpu| cpu.number)
                .collect();
            // The driver runs on the CPU through which a mailbox is reached, so that CPU must be
            // online.
            let place = DomainAddress { cpu: cpus.intersection(&online).first(), package: number, domain };
            if access.has(&place) {
                domains.push(Domain { place, die, cpus });
            }
        }
    }
    domains.sort_by_key(|domain| (domain.place.package, domain.place.domain, domain.die));
    domains
}
