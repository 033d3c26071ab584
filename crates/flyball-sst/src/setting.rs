//! A setting of Speed Select that can be read, written, remembered and restored.
//!
//! A [`Setting`] has its own text form (`sst:tpmi3:0.1:level`), so that a journal can name it after
//! the process that changed it has ended. Its content is text: a number, `1` or `0`, a frequency in
//! MHz. It includes the way to reach the firmware, so that restoring it needs no detection first.

use std::{fmt, str::FromStr};

use flyball_host::{
    CpuList, Errno, Host, HostError, MegaHertz, Op, isst::legacy, msr::MSR_TURBO_RATIO_LIMIT, online_cpus,
};

use crate::{
    access::{Access, CpuModel, DomainAddress, Dump, Features, ICELAKE_X, Mailbox, Qos, SKYLAKE_X, Tpmi},
    partition::Partition,
};

/// How to reach the firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Via {
    /// Registers of power domains, with the version of the interface.
    Tpmi(u16),
    /// Mailbox, with classes of service in MMIO registers.
    Mailbox,
    /// Mailbox for everything (Skylake servers).
    MailboxAlone,
    /// No driver: registers from debugfs, read-only.
    Dump,
}

impl Via {
    fn access(self, host: &dyn Host) -> Result<Box<dyn Access + '_>, HostError> {
        // A journal does not name the processor model. For settings, mailbox parts differ only in
        // the location of the classes, so one model represents each kind.
        let mailbox = |model| Mailbox::new(host, &CpuModel { model, ..CpuModel::default() });
        Ok(match self {
            Via::Tpmi(api) => Box::new(Tpmi::new(host, api)),
            Via::Mailbox => Box::new(mailbox(ICELAKE_X)),
            Via::MailboxAlone => Box::new(mailbox(SKYLAKE_X)),
            Via::Dump => Box::new(Dump::read(host)?),
        })
    }
}

/// A field that can be read and possibly set.
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
    /// The class of a core, by the power unit's number of the core.
    Class(u16),
    /// Turbo ratio limits: eight bytes in hexadecimal.
    TurboLimits,
    /// The CPUs of a cgroup v2 partition: a list, `none`, or `ready` (no partition, but cpusets are
    /// enabled for groups).
    Partition,
    /// The highest level; read-only.
    Highest,
    /// The firmware's lock of the level; read-only.
    Locked,
}

impl Field {
    /// Returns whether the field belongs to a whole domain, not to a class or a core.
    pub fn is_of_domain(self) -> bool {
        !matches!(
            self,
            Field::ClosMin(_)
                | Field::ClosMax(_)
                | Field::ClosWeight(_)
                | Field::ClosEpp(_)
                | Field::Class(_)
        )
    }

    /// Returns the field's name in the text form.
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
            Field::Partition => "apart",
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

    fn from_name(name: &str, index: Option<u16>) -> Option<Field> {
        // Journals are files: a class that no processor has must not reach the firmware.
        let class = || index.and_then(|index| u8::try_from(index).ok()).filter(|&class| class < 4);
        Some(match (name, index) {
            ("level", None) => Field::Level,
            ("base-freq", None) => Field::BaseFreq,
            ("turbo-freq", None) => Field::TurboFreq,
            ("core-power", None) => Field::CorePower,
            ("priority", None) => Field::Priority,
            ("trl", None) => Field::TurboLimits,
            ("apart", None) => Field::Partition,
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
    pub via: Via,
    pub place: DomainAddress,
    pub field: Field,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DomainAddress { cpu, package, domain } = self.place;
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
            let place = DomainAddress { cpu, package: package.parse().ok()?, domain: domain.parse().ok()? };
            let name = parts.next()?;
            let index = parts.next().map(str::parse).transpose().ok()?;
            let field = Field::from_name(name, index)?;
            parts.next().is_none().then_some(Setting { via, place, field })
        }
        read(text).ok_or(FORM)
    }
}

fn switch(on: bool) -> String {
    u8::from(on).to_string()
}

impl Setting {
    /// Reads the content.
    pub fn read(&self, host: &dyn Host) -> Result<String, HostError> {
        self.read_through(host, None)
    }

    /// Reads the content through `access`, or through its own access.
    pub(crate) fn read_through(
        &self,
        host: &dyn Host,
        access: Option<&dyn Access>,
    ) -> Result<String, HostError> {
        // A partition is in files; everything else needs the driver.
        if self.field == Field::Partition {
            return Ok(match Partition::read(host, self.place.package, self.place.domain)? {
                Partition::None => "none".to_owned(),
                Partition::Ready => "ready".to_owned(),
                Partition::Cpus(cpus) => cpus.to_string(),
            });
        }
        let at = self.reachable(host);
        match access {
            Some(access) => self.read_field(host, access, &at),
            None => self.read_field(host, self.via.access(host)?.as_ref(), &at),
        }
    }

    fn read_field(
        &self,
        host: &dyn Host,
        access: &dyn Access,
        at: &DomainAddress,
    ) -> Result<String, HostError> {
        // Without the domain's number, so that equal errors are reported once.
        let lacks = |name: &str| {
            HostError::new(Op::Isst, format!("{name}, which the power domain lacks"), Errno::OPNOTSUPP)
        };
        // A feature that no level has is missing, not off.
        let feature = |name: &str, is_on: fn(&Features) -> bool, offered: fn(&Features) -> bool| {
            let levels = access.levels(at)?;
            let is_on = is_on(&access.features(at, levels.current)?);
            let is_offered = |level| access.features(at, level).is_ok_and(|level| offered(&level));
            if is_on || (0..=levels.highest).any(is_offered) { Ok(switch(is_on)) } else { Err(lacks(name)) }
        };
        let core_power = || {
            let power = access.pm_config(at)?;
            if power.supported { Ok(power.enabled) } else { Err(lacks("core-power")) }
        };
        Ok(match self.field {
            Field::Level => access.levels(at)?.current.to_string(),
            Field::Highest => access.levels(at)?.highest.to_string(),
            Field::Locked => switch(access.levels(at)?.locked),
            // `read` has handled this field.
            Field::Partition => String::new(),
            Field::BaseFreq => feature("base-freq", |level| level.base_freq_on, |level| level.base_freq)?,
            Field::TurboFreq => feature("turbo-freq", |level| level.turbo_freq_on, |level| level.turbo_freq)?,
            Field::CorePower => {
                let (power, qos) = (core_power()?, access.qos(at)?.enabled);
                // Mailbox parts have two switches, SST-CP's and the classes', which can differ.
                match (power, qos) {
                    (true, false) => "pm-only".to_owned(),
                    (false, true) => "qos-only".to_owned(),
                    // The classes' switch decides if both agree, and on TPMI, where it is the only
                    // one.
                    (_, on) => switch(on),
                }
            }
            Field::Priority => {
                core_power()?;
                if access.qos(at)?.ordered { "ordered" } else { "proportional" }.to_owned()
            }
            Field::ClosMin(class) => access.clos(at, class)?.min.0.to_string(),
            Field::ClosMax(class) => access.clos(at, class)?.max.0.to_string(),
            Field::ClosWeight(class) => access.clos(at, class)?.weight.to_string(),
            Field::ClosEpp(class) => access.clos(at, class)?.epp.to_string(),
            Field::Class(core) => access.class_of(at, core)?.to_string(),
            Field::TurboLimits => {
                format!("{:#018x}", legacy::read_msr(host, self.cpu(at)?, MSR_TURBO_RATIO_LIMIT)?)
            }
        })
    }

    /// Writes a content in the form of [`Setting::read`].
    ///
    /// # Errors
    /// Returns the driver's error; `EINVAL` for a content of another form.
    pub fn write(&self, host: &dyn Host, content: &str) -> Result<(), HostError> {
        let content = content.trim();
        if self.field == Field::Partition {
            let target = match content {
                "none" => Partition::None,
                "ready" => Partition::Ready,
                list => Partition::Cpus(
                    list.parse()
                        .ok()
                        .filter(|cpus: &CpuList| !cpus.is_empty())
                        .ok_or_else(|| self.bad(content))?,
                ),
            };
            return target.write(host, self.place.package, self.place.domain);
        }
        let access = self.via.access(host)?;
        self.write_field(host, access.as_ref(), &self.reachable(host), content)
    }

    /// Writes one field. Each arm reads the other fields of the register and writes them back
    /// unchanged.
    fn write_field(
        &self,
        host: &dyn Host,
        access: &dyn Access,
        at: &DomainAddress,
        content: &str,
    ) -> Result<(), HostError> {
        match self.field {
            Field::Level => {
                let level = self.number(content)?;
                // Drivers reject the level that is already set.
                if access.levels(at)?.current == level { Ok(()) } else { access.set_level(at, level) }
            }
            // One register field holds both switches, so each is written with the other's current
            // value.
            Field::BaseFreq => {
                let on = self.on_or_off(content)?;
                let now = access.features(at, access.levels(at)?.current)?;
                access.set_features(at, on, now.turbo_freq_on)
            }
            Field::TurboFreq => {
                let on = self.on_or_off(content)?;
                let now = access.features(at, access.levels(at)?.current)?;
                access.set_features(at, now.base_freq_on, on)
            }
            Field::CorePower => {
                let (power, enabled) = match content {
                    "pm-only" => (true, false),
                    "qos-only" => (false, true),
                    _ => self.on_or_off(content).map(|on| (on, on))?,
                };
                let ordered = access.qos(at)?.ordered;
                // SST-CP before the classes, like the tool; on TPMI the first call does nothing.
                access.set_pm_config(at, power)?;
                access.set_qos(at, Qos { enabled, ordered })
            }
            Field::Priority => {
                let ordered = match content {
                    "ordered" => true,
                    "proportional" => false,
                    _ => return Err(self.bad(content)),
                };
                let enabled = access.qos(at)?.enabled;
                access.set_qos(at, Qos { enabled, ordered })
            }
            Field::ClosMin(class)
            | Field::ClosMax(class)
            | Field::ClosWeight(class)
            | Field::ClosEpp(class) => {
                // All four values share one register.
                let mut clos = access.clos(at, class)?;
                match self.field {
                    Field::ClosMin(_) => clos.min = MegaHertz(self.number(content)?),
                    Field::ClosMax(_) => clos.max = MegaHertz(self.number(content)?),
                    Field::ClosWeight(_) => clos.weight = self.number(content)?,
                    _ => clos.epp = self.number(content)?,
                }
                access.set_clos(at, class, &clos)
            }
            Field::Class(core) => access.associate(at, core, self.number(content)?),
            Field::TurboLimits => {
                let digits = content.trim_start_matches("0x");
                let limits = u64::from_str_radix(digits, 16).map_err(|_| self.bad(content))?;
                // Through the Speed Select driver, which repeats the write after a resume;
                // /dev/cpu/N/msr does not.
                legacy::write_msr(host, self.cpu(at)?, MSR_TURBO_RATIO_LIMIT, limits)
            }
            // Read-only; `write` has handled the partition.
            Field::Highest | Field::Locked | Field::Partition => {
                Err(HostError::new(Op::Isst, self.to_string(), Errno::ACCES))
            }
        }
    }

    fn bad(&self, content: &str) -> HostError {
        HostError::new(Op::Isst, format!("{self} as '{content}'"), Errno::INVAL)
    }

    fn on_or_off(&self, content: &str) -> Result<bool, HostError> {
        match content {
            "1" => Ok(true),
            "0" => Ok(false),
            _ => Err(self.bad(content)),
        }
    }

    fn number<T: FromStr>(&self, content: &str) -> Result<T, HostError> {
        content.parse().map_err(|_| self.bad(content))
    }

    /// The address with an online CPU: the original one may have gone offline.
    fn reachable(&self, host: &dyn Host) -> DomainAddress {
        let mut place = self.place;
        let online = |cpu: u32| crate::cpus::is_online(host, cpu);
        // TPMI needs no CPU, but the turbo ratio limits are an MSR on all parts.
        let through_cpu =
            matches!(self.via, Via::Mailbox | Via::MailboxAlone) || self.field == Field::TurboLimits;
        if let Some(cpu) = place.cpu.filter(|_| through_cpu) {
            if !online(cpu) {
                let all = online_cpus(host).unwrap_or_default();
                let package = |cpu: u32| {
                    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
                    host.read(&path).ok().and_then(|text| text.parse::<u8>().ok())
                };
                // Any CPU of the package reaches its mailbox. If none is online, the old number
                // gives the driver's own error.
                place.cpu = all.iter().find(|&cpu| package(cpu) == Some(place.package)).or(place.cpu);
            }
        }
        place
    }

    fn cpu(&self, at: &DomainAddress) -> Result<u32, HostError> {
        at.cpu.ok_or_else(|| HostError::new(Op::Isst, format!("{self}, which has no CPU"), Errno::NODEV))
    }
}

#[cfg(test)]
mod tests;
