//! Where Speed Select is on a machine: its drivers, its power domains, and which CPUs belong to
//! them.

use std::{collections::BTreeSet, sync::Arc};

use flyball_host::{CpuInfo, CpuList, CpuTopology, Host, HostError, isst, online_cpus};

use crate::{
    access::{self, Access, CpuModel, DomainAddress, Dump, Mailbox, Tpmi},
    cpus::CpuMap,
    setting::{Field, Setting, Via},
};

/// A power domain with its CPUs, offline ones included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// The domain's address. Its CPU is the domain's lowest online one.
    pub place: DomainAddress,
    /// The die, as sysfs numbers it.
    pub die: u32,
    pub cpus: CpuList,
}

/// Where Speed Select is on a machine.
#[derive(Debug, Clone)]
pub struct Layout {
    pub platform: isst::Platform,
    pub model: CpuModel,
    pub via: Via,
    pub map: CpuMap,
    /// The power domains that have registers.
    pub domains: Vec<Domain>,
    /// The registers as debugfs showed them, if there is no driver.
    dump: Option<Arc<Dump>>,
}

impl Layout {
    /// Detects it.
    ///
    /// # Errors
    /// The errno of the driver; `EOPNOTSUPP` for an interface version that is not known.
    pub fn read(host: &dyn Host) -> Result<Layout, HostError> {
        let (platform, dump) = match isst::Platform::read(host) {
            Ok(platform) => (platform, None),
            // Without the driver, debugfs may still show the registers.
            Err(error) if error.is_absent() => {
                let Ok(dump) = Dump::read(host) else { return Err(error) };
                let platform = isst::Platform {
                    // The dump does not say which version its driver would have: the newest
                    // describes all fields that it shows.
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
        // Only now: most machines have no Speed Select, and /proc/cpuinfo is long on a large one.
        let info = CpuInfo::read(host).unwrap_or_default();
        let model = CpuModel::new(&info);
        let dumped = dump.is_some();
        let opened = if dumped { None } else { Some(access::open(host, &platform, &model)?) };
        let via = match platform.api_version {
            _ if dumped => Via::Dump,
            // Part of every setting's text in a journal, so that a restore knows where the classes
            // are.
            1 if model.is_skylake_based() => Via::MailboxAlone,
            1 => Via::Mailbox,
            version => Via::Tpmi(version),
        };
        let topology = CpuTopology::read(host, &info).unwrap_or_default();
        let map = CpuMap::read(host, topology, platform.is_tpmi());
        // Without the power unit's numbers every core would look like the first. A dump is only
        // read, so that does no harm.
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
            // It was there when the layout was read; a dump that is gone since reads as one without
            // registers.
            Via::Dump => Box::new(Dump::read(host).unwrap_or_default()),
            Via::Tpmi(api) => Box::new(Tpmi::new(host, api)),
            Via::Mailbox | Via::MailboxAlone => Box::new(Mailbox::new(host, &self.model)),
        }
    }

    /// Reads a setting. Without a driver it is what the registers held when the layout was read:
    /// parsing the dump again for each setting takes longer than all other files of a snapshot.
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
            // Core masks have 64 bits on both interfaces; a shift by more would be an overflow.
            .filter(|&cpu| self.map.get(cpu).is_some_and(|cpu| cpu.core < 64 && cores >> cpu.core & 1 != 0))
            .collect()
    }
}

/// The power domains that have registers: those of CPUs, and those without CPUs that the interface
/// lists.
fn domains(host: &dyn Host, access: &dyn Access, map: &CpuMap) -> Vec<Domain> {
    let online = online_cpus(host).unwrap_or_default();
    let mut domains = Vec::new();
    let packages: BTreeSet<u32> = map.iter().map(|cpu| cpu.package).collect();
    for package in packages {
        // The calls of the drivers have eight bits for the package (include/uapi/linux/isst_if.h).
        let Ok(number) = u8::try_from(package) else { continue };
        // On mailbox parts with several dies, dies share the domain number 0 and are domains of
        // their own.
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
            // Mailboxes are reached through a CPU that must be online: the driver runs there.
            let place = DomainAddress { cpu: cpus.intersection(&online).first(), package: number, domain };
            if access.has(&place) {
                domains.push(Domain { place, die, cpus });
            }
        }
    }
    domains.sort_by_key(|domain| (domain.place.package, domain.place.domain, domain.die));
    domains
}
