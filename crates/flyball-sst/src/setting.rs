//! One setting of Speed Select as a location that can be read, written, remembered and put back.
//!
//! A [`Setting`] has a text form of its own (`sst:tpmi3:0.1:level`), so that a journal can name it after the process
//! that changed it is gone, and its content is text: a number, `1` or `0`, a frequency in MHz. It carries how it is
//! reached, so that putting back asks nothing first.

use std::{fmt, str::FromStr};

use flyball_host::{CpuList, Errno, Host, HostError, MegaHertz, Op, isst};

use crate::{
    access::{Access, CpuModel, Dump, Mailbox, Place, Qos, Tpmi},
    apart::{self, Apart},
    cpus::{CpuMap, TopologyCache},
};

/// How the firmware is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Via {
    /// Power domains' registers, with the version of the interface.
    Tpmi(u16),
    /// Mailbox, with classes of service in MMIO registers.
    Mailbox,
    /// Mailbox for everything (Skylake servers).
    MailboxAlone,
    /// No driver: registers as debugfs shows them, to read alone.
    Dump,
}

impl Via {
    fn access(self, host: &dyn Host) -> Result<Box<dyn Access + '_>, HostError> {
        let mailbox = |model| Mailbox::new(host, &CpuModel { model, ..CpuModel::default() });
        Ok(match self {
            Via::Tpmi(api) => Box::new(Tpmi::new(host, api)),
            Via::Mailbox => Box::new(mailbox(0x6a)),
            Via::MailboxAlone => Box::new(mailbox(0x55)),
            Via::Dump => Box::new(Dump::read(host)?),
        })
    }
}

/// What is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// SST-PP: the performance level.
    Level,
    /// SST-BF.
    BaseFreq,
    /// SST-TF.
    TurboFreq,
    /// SST-CP.
    CorePower,
    /// SST-CP: `ordered` or `proportional`.
    Priority,
    /// Lowest frequency of a class in MHz.
    ClosMin(u8),
    /// Highest frequency of a class in MHz.
    ClosMax(u8),
    /// Proportional priority of a class.
    ClosWeight(u8),
    /// Energy preference of a class.
    ClosEpp(u8),
    /// The class of a core.
    Class(u16),
    /// Turbo ratio limits: eight bytes in hexadecimal.
    TurboLimits,
    /// CPUs set apart in a cgroup v2 partition: a list, `none`, or `ready` (none, but cpusets are given to groups).
    Apart,
    /// The highest level; a fact.
    Highest,
    /// Whether firmware locks the level; a fact.
    Locked,
}

impl Field {
    /// Its name, as the text form has it.
    pub fn name(self) -> &'static str {
        match self {
            Field::Level => "level",
            Field::BaseFreq => "base-freq",
            Field::TurboFreq => "turbo-freq",
            Field::CorePower => "core-power",
            Field::Priority => "priority",
            Field::ClosMin(_) => "clos-min",
            Field::ClosMax(_) => "clos-max",
            Field::ClosWeight(_) => "clos-weight",
            Field::ClosEpp(_) => "clos-epp",
            Field::Class(_) => "class",
            Field::TurboLimits => "trl",
            Field::Apart => "apart",
            Field::Highest => "highest",
            Field::Locked => "locked",
        }
    }

    fn index(self) -> Option<u16> {
        match self {
            Field::ClosMin(class)
            | Field::ClosMax(class)
            | Field::ClosWeight(class)
            | Field::ClosEpp(class) => Some(class.into()),
            Field::Class(core) => Some(core),
            _ => None,
        }
    }

    fn of(name: &str, index: Option<u16>) -> Option<Field> {
        let class = || index.and_then(|index| u8::try_from(index).ok()).filter(|&class| class < 4);
        Some(match (name, index) {
            ("level", None) => Field::Level,
            ("base-freq", None) => Field::BaseFreq,
            ("turbo-freq", None) => Field::TurboFreq,
            ("core-power", None) => Field::CorePower,
            ("priority", None) => Field::Priority,
            ("trl", None) => Field::TurboLimits,
            ("apart", None) => Field::Apart,
            ("highest", None) => Field::Highest,
            ("locked", None) => Field::Locked,
            ("clos-min", _) => Field::ClosMin(class()?),
            ("clos-max", _) => Field::ClosMax(class()?),
            ("clos-weight", _) => Field::ClosWeight(class()?),
            ("clos-epp", _) => Field::ClosEpp(class()?),
            ("class", Some(core)) => Field::Class(core),
            _ => return None,
        })
    }
}

/// One setting of one power domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setting {
    /// How it is reached.
    pub via: Via,
    /// Where.
    pub place: Place,
    /// What.
    pub field: Field,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { cpu, package, domain } = self.place;
        match self.via {
            Via::Tpmi(api) => write!(f, "sst:tpmi{api}:{package}.{domain}")?,
            Via::Mailbox => write!(f, "sst:mailbox:{package}.{domain}")?,
            Via::MailboxAlone => write!(f, "sst:mailbox-alone:{package}.{domain}")?,
            Via::Dump => write!(f, "sst:dump:{package}.{domain}")?,
        }
        if let Some(cpu) = cpu {
            write!(f, "@{cpu}")?;
        }
        write!(f, ":{}", self.field.name())?;
        self.field.index().map_or(Ok(()), |index| write!(f, ":{index}"))
    }
}

impl FromStr for Setting {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Setting, &'static str> {
        const FORM: &str = "not of the form sst:VIA:PACKAGE.DOMAIN@CPU:FIELD";
        fn read(text: &str) -> Option<Setting> {
            let mut parts = text.strip_prefix("sst:")?.split(':');
            let via = match parts.next()? {
                "tpmi2" => Via::Tpmi(2),
                "tpmi3" => Via::Tpmi(3),
                "mailbox" => Via::Mailbox,
                "mailbox-alone" => Via::MailboxAlone,
                "dump" => Via::Dump,
                _ => return None,
            };
            let place = parts.next()?;
            let (place, cpu) = match place.split_once('@') {
                Some((place, cpu)) => (place, Some(cpu.parse().ok()?)),
                None => (place, None),
            };
            let (package, domain) = place.split_once('.')?;
            let place = Place { cpu, package: package.parse().ok()?, domain: domain.parse().ok()? };
            let name = parts.next()?;
            let index = parts.next().map(str::parse).transpose().ok()?;
            let field = Field::of(name, index)?;
            parts.next().is_none().then_some(Setting { via, place, field })
        }
        read(text).ok_or(FORM)
    }
}

impl Setting {
    /// Reads the content.
    ///
    /// # Errors
    /// What the driver answered.
    pub fn read(&self, host: &dyn Host) -> Result<String, HostError> {
        if self.field == Field::Apart {
            return Ok(match apart::read(host, &self.folder())? {
                Apart::None => "none".to_owned(),
                Apart::Ready => "ready".to_owned(),
                Apart::Cpus(cpus) => cpus.to_string(),
            });
        }
        let access = self.via.access(host)?;
        let at = &self.reachable(host);
        let switch = |on: bool| u8::from(on).to_string();
        let features = || access.features(at, access.levels(at)?.current);
        Ok(match self.field {
            Field::Level => access.levels(at)?.current.to_string(),
            Field::Highest => access.levels(at)?.highest.to_string(),
            Field::Locked => switch(access.levels(at)?.locked),
            // Done above.
            Field::Apart => String::new(),
            Field::BaseFreq => switch(features()?.base_freq_on),
            Field::TurboFreq => switch(features()?.turbo_freq_on),
            Field::CorePower => {
                let (power, qos) = (access.pm_config(at)?.enabled, access.qos(at)?.enabled);
                // Two switches on mailbox parts; they can stand differently.
                match (power, qos) {
                    (true, false) => "pm-only".to_owned(),
                    (false, true) => "qos-only".to_owned(),
                    (_, on) => switch(on),
                }
            }
            Field::Priority => if access.qos(at)?.ordered { "ordered" } else { "proportional" }.to_owned(),
            Field::ClosMin(class) => access.clos(at, class)?.min.0.to_string(),
            Field::ClosMax(class) => access.clos(at, class)?.max.0.to_string(),
            Field::ClosWeight(class) => access.clos(at, class)?.weight.to_string(),
            Field::ClosEpp(class) => access.clos(at, class)?.epp.to_string(),
            Field::Class(core) => access.class_of(at, core)?.to_string(),
            Field::TurboLimits => {
                let cpu = self.cpu()?;
                format!(
                    "{:#018x}",
                    isst::legacy::read_msr(host, cpu, flyball_host::msr::MSR_TURBO_RATIO_LIMIT)?
                )
            }
        })
    }

    /// Writes a content in the form that [`Setting::read`] gives.
    ///
    /// # Errors
    /// What the driver answered; `EINVAL` for a content that is none.
    pub fn write(&self, host: &dyn Host, content: &str) -> Result<(), HostError> {
        let content = content.trim();
        let bad = || HostError::new(Op::Isst, format!("{self} as '{content}'"), Errno::INVAL);
        if self.field == Field::Apart {
            let wanted = match content {
                "none" => Apart::None,
                "ready" => Apart::Ready,
                list => {
                    Apart::Cpus(list.parse().ok().filter(|cpus: &CpuList| !cpus.is_empty()).ok_or_else(bad)?)
                }
            };
            return apart::write(host, &self.folder(), &wanted);
        }
        let access = self.via.access(host)?;
        let at = &self.reachable(host);
        let switch = match content {
            "1" => Ok(true),
            "0" => Ok(false),
            _ => Err(bad()),
        };
        let small = || content.parse::<u8>().map_err(|_| bad());
        match self.field {
            Field::Level => {
                let level = small()?;
                // The driver refuses the level that is already in force.
                if access.levels(at)?.current == level { Ok(()) } else { access.set_level(at, level) }
            }
            Field::BaseFreq => {
                let now = access.features(at, access.levels(at)?.current)?;
                access.set_features(at, switch?, now.turbo_freq_on)
            }
            Field::TurboFreq => {
                let now = access.features(at, access.levels(at)?.current)?;
                access.set_features(at, now.base_freq_on, switch?)
            }
            Field::CorePower => {
                let (power, enabled) = match content {
                    "pm-only" => (true, false),
                    "qos-only" => (false, true),
                    _ => switch.map(|on| (on, on))?,
                };
                let ordered = access.qos(at)?.ordered;
                access.set_pm_config(at, power)?;
                access.set_qos(at, Qos { enabled, ordered })
            }
            Field::Priority => {
                let ordered = match content {
                    "ordered" => true,
                    "proportional" => false,
                    _ => return Err(bad()),
                };
                let enabled = access.qos(at)?.enabled;
                access.set_qos(at, Qos { enabled, ordered })
            }
            Field::ClosMin(class)
            | Field::ClosMax(class)
            | Field::ClosWeight(class)
            | Field::ClosEpp(class) => {
                let mut clos = access.clos(at, class)?;
                match self.field {
                    Field::ClosMin(_) => clos.min = MegaHertz(content.parse().map_err(|_| bad())?),
                    Field::ClosMax(_) => clos.max = MegaHertz(content.parse().map_err(|_| bad())?),
                    Field::ClosWeight(_) => clos.weight = small()?,
                    _ => clos.epp = small()?,
                }
                access.set_clos(at, class, &clos)
            }
            // Apart is done above.
            Field::Highest | Field::Locked | Field::Apart => {
                Err(HostError::new(Op::Isst, self.to_string(), Errno::ACCES))
            }
            Field::Class(core) => access.associate(at, core, small()?),
            Field::TurboLimits => {
                let digits = content.trim_start_matches("0x");
                let limits = u64::from_str_radix(digits, 16).map_err(|_| bad())?;
                isst::legacy::write_msr(host, self.cpu()?, flyball_host::msr::MSR_TURBO_RATIO_LIMIT, limits)
            }
        }
    }

    /// The control group of [`Field::Apart`].
    fn folder(&self) -> String {
        apart::folder(self.place.package, self.place.domain)
    }

    /// The place through a CPU that is online: the one it was made with may have gone offline since.
    fn reachable(&self, host: &dyn Host) -> Place {
        let mut place = self.place;
        let online = |cpu: u32| crate::cpus::is_online(host, cpu);
        if let (Via::Mailbox | Via::MailboxAlone, Some(cpu)) = (self.via, place.cpu) {
            if !online(cpu) {
                let all: CpuList = host
                    .read("/sys/devices/system/cpu/online")
                    .ok()
                    .and_then(|text| text.parse().ok())
                    .unwrap_or_default();
                let package = |cpu: u32| {
                    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
                    host.read(&path).ok().and_then(|text| text.parse::<u8>().ok())
                };
                place.cpu = all.iter().find(|&cpu| package(cpu) == Some(place.package)).or(place.cpu);
            }
        }
        place
    }

    fn cpu(&self) -> Result<u32, HostError> {
        self.place
            .cpu
            .ok_or_else(|| HostError::new(Op::Isst, format!("{self}, which has no CPU"), Errno::NODEV))
    }
}

/// A power domain with its CPUs, offline ones included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Where; its CPU is the lowest online one.
    pub place: Place,
    /// The die, as sysfs numbers it.
    pub die: u32,
    /// Its CPUs.
    pub cpus: CpuList,
}

/// Where Speed Select is on a machine.
#[derive(Debug, Clone)]
pub struct Layout {
    /// What the drivers are.
    pub platform: isst::Platform,
    /// The CPU.
    pub model: CpuModel,
    /// How the firmware is reached.
    pub via: Via,
    /// The CPUs.
    pub map: CpuMap,
    /// The power domains that have registers.
    pub domains: Vec<Domain>,
}

impl Layout {
    /// Looks at a machine.
    ///
    /// # Errors
    /// The errno of asking the driver; `EOPNOTSUPP` for an interface version that is not known.
    pub fn read(host: &dyn Host, cache: &TopologyCache) -> Result<Layout, HostError> {
        let model = CpuModel::read(host);
        let (platform, access, dumped) = match crate::access::open(host, &model) {
            Ok((platform, access)) => (platform, access, false),
            // Without the driver, debugfs may still show the registers.
            Err(error) if error.is_absent() => {
                let Ok(dump) = Dump::read(host) else { return Err(error) };
                let platform = isst::Platform {
                    api_version: isst::HIGHEST_API,
                    driver_version: 0,
                    max_commands: 0,
                    mailbox: false,
                    mmio: false,
                };
                (platform, Box::new(dump) as Box<dyn Access>, true)
            }
            Err(error) => return Err(error),
        };
        let via = match platform.api_version {
            _ if dumped => Via::Dump,
            1 if model.is_skylake_based() => Via::MailboxAlone,
            1 => Via::Mailbox,
            version => Via::Tpmi(version),
        };
        let map = CpuMap::read(host, platform.is_tpmi(), cache);
        // Without the power unit's numbers every core would be taken for the first. A dump is only read.
        if let Some(error) = map.failure.as_ref().filter(|_| !dumped) {
            return Err(error.clone());
        }
        let online: CpuList = host
            .read("/sys/devices/system/cpu/online")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or_default();
        let mut domains = Vec::new();
        let packages: std::collections::BTreeSet<u32> = map.iter().map(|cpu| cpu.package).collect();
        for package in packages {
            let Ok(number) = u8::try_from(package) else { continue };
            // Dies share a domain number only on mailbox parts with several dies; each is a place of its own there.
            let dies: std::collections::BTreeSet<(u32, u8)> =
                map.iter().filter(|cpu| cpu.package == package).map(|cpu| (cpu.die, cpu.domain)).collect();
            let has_cpus = |domain: u8| dies.iter().any(|&(_, of)| of == domain);
            let mut found: Vec<(u32, u8)> = dies.iter().copied().collect();
            found.extend(
                access
                    .domains(number)
                    .into_iter()
                    .filter(|&domain| !has_cpus(domain))
                    .map(|domain| (0, domain)),
            );
            for (die, domain) in found {
                let cpus: CpuList = map
                    .iter()
                    .filter(|cpu| (cpu.package, cpu.die, cpu.domain) == (package, die, domain))
                    .map(|cpu| cpu.number)
                    .collect();
                let place = Place { cpu: cpus.intersection(&online).first(), package: number, domain };
                if access.has(&place) {
                    domains.push(Domain { place, die, cpus });
                }
            }
        }
        domains.sort_by_key(|domain| (domain.place.package, domain.place.domain, domain.die));
        Ok(Layout { platform, model, via, map, domains })
    }

    /// The interface.
    pub fn access<'h>(&self, host: &'h dyn Host) -> Box<dyn Access + 'h> {
        match self.via {
            // It was there when the layout was read; a dump that went away reads as one without registers.
            Via::Dump => Box::new(Dump::read(host).unwrap_or_default()),
            Via::Tpmi(api) => Box::new(Tpmi::new(host, api)),
            Via::Mailbox | Via::MailboxAlone => Box::new(Mailbox::new(host, &self.model)),
        }
    }

    /// The domain of a CPU.
    pub fn domain_of(&self, cpu: u32) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.cpus.contains(cpu))
    }

    /// A setting of a domain.
    pub fn setting(&self, place: Place, field: Field) -> Setting {
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
            .filter(|&cpu| self.map.get(cpu).is_some_and(|cpu| cpu.core < 64 && cores >> cpu.core & 1 != 0))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use flyball_sst_fake::FakeMachine;

    fn all_fields() -> Vec<(Field, [&'static str; 2])> {
        vec![
            (Field::ClosMin(1), ["0", "1200"]),
            (Field::ClosMax(1), ["25500", "2500"]),
            (Field::ClosWeight(2), ["0", "7"]),
            (Field::Class(5), ["0", "3"]),
            (Field::Priority, ["proportional", "ordered"]),
            (Field::CorePower, ["0", "1"]),
            (Field::TurboFreq, ["0", "1"]),
            (Field::BaseFreq, ["0", "1"]),
            (Field::TurboLimits, ["0x1f1f1f1f1f1f1f20", "0x1e1e1e1e1e1e1e1e"]),
            (Field::Level, ["0", "1"]),
            (Field::Apart, ["none", "26,27"]),
        ]
    }

    #[test]
    fn settings_read_what_was_written_on_both_interfaces() {
        for tpmi in [false, true] {
            let machine = FakeMachine::guide(tpmi);
            let layout = Layout::read(&machine, &TopologyCache::default()).unwrap();
            assert_eq!(layout.domains.len(), 2);
            assert_eq!(layout.domains[1].cpus.to_string(), "14-27,42-55");
            for (field, [before, after]) in all_fields() {
                let setting = layout.setting(layout.domains[1].place, field);
                assert_eq!(setting.read(&machine).unwrap(), before, "{setting}");
                setting.write(&machine, after).unwrap();
                assert_eq!(setting.read(&machine).unwrap(), after, "{setting}");
                assert_eq!(setting.to_string().parse(), Ok(setting));
                assert!(setting.write(&machine, "nonsense").is_err());
            }
            // The other package is as it was, and a level change switches features off.
            assert_eq!(machine.state(0, 0), FakeMachine::guide(tpmi).state(0, 0));
            assert!(!machine.state(1, 0).base_freq && !machine.state(1, 0).turbo_freq);
        }
    }

    #[test]
    fn the_two_switches_of_a_mailbox_part_are_kept_apart() {
        let machine = FakeMachine::guide(false);
        machine.set(|state| state.qos = true);
        let layout = Layout::read(&machine, &TopologyCache::default()).unwrap();
        let setting = layout.setting(layout.domains[0].place, Field::CorePower);
        assert_eq!(setting.read(&machine).unwrap(), "qos-only");
        setting.write(&machine, "1").unwrap();
        setting.write(&machine, "qos-only").unwrap();
        assert_eq!(machine.everything().1[&(0, 0)], machine.state(1, 0));
    }

    #[test]
    fn domains_without_cpus_are_places_too() {
        let machine = FakeMachine::guide(true).with_io_domains(2);
        let layout = Layout::read(&machine, &TopologyCache::default()).unwrap();
        let names: Vec<String> = layout
            .domains
            .iter()
            .map(|domain| format!("{}.{}", domain.place.package, domain.place.domain))
            .collect();
        assert_eq!(names, ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]);
        assert_eq!(layout.domains[1].place.cpu, None);
        assert!(layout.setting(layout.domains[1].place, Field::Level).read(&machine).is_ok());
    }

    proptest! {
        #[test]
        fn no_forged_journal_reaches_a_driver_unchecked(
            package in 0..3u8,
            domain in 0..8u8,
            field in "(level|base-freq|turbo-freq|core-power|priority|trl|clos-(min|max|weight|epp):[0-9]|class:[0-9]{1,4})",
            content in "(-?[0-9]{1,6}|ordered|proportional|pm-only|0x[0-9a-f]{1,17}|)",
        ) {
            let machine = FakeMachine::small(true).with_dead_domain().with_io_domains(1);
            if let Ok(setting) = format!("sst:tpmi3:{package}.{domain}@0:{field}").parse::<Setting>() {
                let _ = setting.read(&machine);
                let _ = setting.write(&machine, &content);
            }
            prop_assert_eq!(machine.hazards(), Vec::<String>::new());
        }

        #[test]
        fn no_text_panics(text in "sst:[a-z0-9:@.-]{0,30}") {
            if let Ok(setting) = text.parse::<Setting>() {
                prop_assert_eq!(setting.to_string().parse(), Ok(setting));
            }
        }
    }
}
