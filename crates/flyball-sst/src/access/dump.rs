//! Reading without a driver: the TPMI register blocks as debugfs shows them
//! (`tpmi-BDF/tpmi-id-05/mem_dump`).
//!
//! For machines whose Speed Select driver is not loaded, and for recorded ones. It is read-only.

use flyball_host::{
    Errno, Host, HostError, MegaHertz, Op,
    isst::{
        memdump,
        registers::{Block, CorePower, Level, PerfProfile},
    },
};

use super::{
    interface::{
        Access, BaseFreq, Clos, DomainAddress, Features, LevelData, Levels, PmConfig, Qos, TurboFreq,
        TurboLimits,
    },
    tpmi::Tpmi,
};

const DEBUGFS: &str = "/sys/kernel/debug";

/// The register blocks of a machine.
#[derive(Debug, Default)]
pub struct Dump {
    /// Blocks by package, then domain.
    packages: Vec<Vec<Option<Block>>>,
}

fn ratio(value: u64) -> MegaHertz {
    // Ratios of 100 MHz in all TPMI blocks; eight bits, so the cast loses nothing.
    MegaHertz(value as u32 * 100)
}

impl Dump {
    /// Reads the dumps in debugfs. A device is a package; debugfs does not show its number, so
    /// devices are taken in the order of their PCI addresses.
    ///
    /// # Errors
    /// `ENOENT` without any dump.
    pub fn read(host: &dyn Host) -> Result<Dump, HostError> {
        let mut packages: Vec<Vec<_>> = Vec::new();
        for device in host.list(DEBUGFS).unwrap_or_default() {
            if !device.starts_with("tpmi-") {
                continue;
            }
            let mut bytes = Vec::new();
            let instances =
                match host.read_into(&format!("{DEBUGFS}/{device}/tpmi-id-05/mem_dump"), &mut bytes) {
                    // A damaged dump is a package without domains.
                    Ok(()) => memdump::parse(&bytes).unwrap_or_default(),
                    // A device without Speed Select.
                    Err(error) if error.errno == Errno::NOENT => continue,
                    Err(_) => Vec::new(),
                };
            // A package whose dump cannot be read keeps its place, or those after it would get its
            // number.
            packages.push(instances.iter().map(|instance| Block::decode(&instance.registers())).collect());
        }
        if packages.iter().all(Vec::is_empty) {
            let path = format!("{DEBUGFS}/tpmi-*/tpmi-id-05/mem_dump");
            return Err(HostError::new(Op::Read, path, Errno::NOENT));
        }
        Ok(Dump { packages })
    }

    fn block(&self, at: &DomainAddress) -> Result<&Block, HostError> {
        let found = self
            .packages
            .get(usize::from(at.package))
            .and_then(|domains| domains.get(usize::from(at.domain)));
        found.and_then(Option::as_ref).ok_or_else(|| {
            let what = format!("registers of package {} power domain {}", at.package, at.domain);
            HostError::new(Op::Read, what, Errno::NODEV)
        })
    }

    fn power(&self, at: &DomainAddress) -> Result<Option<&CorePower>, HostError> {
        Ok(self.block(at)?.core_power.as_ref())
    }

    fn profile(&self, at: &DomainAddress) -> Result<&PerfProfile, HostError> {
        let none = || HostError::new(Op::Read, "SST-PP, which this part does not have", Errno::OPNOTSUPP);
        self.block(at)?.perf_profile.as_ref().ok_or_else(none)
    }

    fn level(&self, at: &DomainAddress, number: u8) -> Result<&Level, HostError> {
        let none = || HostError::new(Op::Read, format!("level {number}"), Errno::INVAL);
        let level = self.profile(at)?.levels.get(usize::from(number));
        level.and_then(Option::as_ref).ok_or_else(none)
    }
}

fn refuse<T>() -> Result<T, HostError> {
    Err(HostError::new(
        Op::Isst,
        "registers shown by debugfs, which are read-only (load isst_tpmi to change them)",
        Errno::ROFS,
    ))
}

impl Access for Dump {
    fn is_tpmi(&self) -> bool {
        true
    }

    fn turbo_kinds(&self) -> &'static [&'static str] {
        Tpmi::KINDS
    }

    fn has(&self, place: &DomainAddress) -> bool {
        self.block(place).is_ok()
    }

    fn domains(&self, package: u8) -> Vec<u8> {
        let domains = self.packages.get(usize::from(package)).map_or(0, Vec::len) as u8;
        (0..domains).filter(|&domain| self.has(&DomainAddress { cpu: None, package, domain })).collect()
    }

    fn pm_config(&self, at: &DomainAddress) -> Result<PmConfig, HostError> {
        let power = self.power(at)?;
        Ok(PmConfig { supported: power.is_some(), enabled: power.is_some_and(|power| power.status & 1 != 0) })
    }

    fn set_pm_config(&self, _at: &DomainAddress, _enabled: bool) -> Result<(), HostError> {
        refuse()
    }

    fn qos(&self, at: &DomainAddress) -> Result<Qos, HostError> {
        let status = self.power(at)?.map_or(0, |power| power.status);
        Ok(Qos { enabled: status & 1 != 0, ordered: status & 2 != 0 })
    }

    fn set_qos(&self, _at: &DomainAddress, _qos: Qos) -> Result<(), HostError> {
        refuse()
    }

    fn levels(&self, at: &DomainAddress) -> Result<Levels, HostError> {
        let profile = self.profile(at)?;
        Ok(Levels {
            version: profile.revision as u8,
            // The highest bit of the level mask; `| 1`, because level 0 always exists and 0 has no
            // highest bit.
            highest: (u64::BITS - 1).saturating_sub((profile.enabled | 1).leading_zeros()) as u8,
            // Three bits of the status register: the cast loses nothing.
            current: profile.status[0] as u8,
            locked: profile.status[1] != 0,
            // A block has this part only if the header's capability has SST-PP, which is what
            // the driver reports here.
            enabled: true,
        })
    }

    fn features(&self, at: &DomainAddress, level: u8) -> Result<Features, HostError> {
        let level = self.level(at, level)?;
        let state = self.profile(at)?.status[2];
        Ok(Features {
            base_freq: level.base_freq.supported != 0,
            turbo_freq: level.turbo_freq.supported != 0,
            base_freq_on: state & 1 != 0,
            turbo_freq_on: state & 2 != 0,
        })
    }

    fn set_features(
        &self,
        _at: &DomainAddress,
        _base_freq: bool,
        _turbo_freq: bool,
    ) -> Result<(), HostError> {
        refuse()
    }

    fn set_level(&self, _at: &DomainAddress, _level: u8) -> Result<(), HostError> {
        refuse()
    }

    fn level_data(&self, at: &DomainAddress, level: u8) -> Result<LevelData, HostError> {
        let level = self.level(at, level)?;
        Ok(LevelData {
            tdp_ratio: level.base[0] as u32,
            // The register counts eighths of a watt (isst_tpmi_core.c).
            tdp_w: level.tdp as u32 / 8,
            tjunction_c: level.tjunction as u32,
            base: level.base.map(ratio),
            uncore: level.fabric.map(ratio),
            second_uncore: level.second_fabric.unwrap_or_default().map(ratio),
            memory: ratio(level.memory),
            cooling: level.cooling as u32,
        })
    }

    fn uncore(&self, at: &DomainAddress, level: u8) -> Result<[MegaHertz; 3], HostError> {
        Ok(self.level(at, level)?.fabric.map(ratio))
    }

    fn level_cores(&self, at: &DomainAddress, level: u8) -> Result<u64, HostError> {
        Ok(self.level(at, level)?.cores)
    }

    fn turbo_limits(&self, at: &DomainAddress, level: u8) -> Result<TurboLimits, HostError> {
        Ok(self.level(at, level)?.trl.map(|row| row.map(ratio)))
    }

    fn bucket_cores(&self, at: &DomainAddress, level: u8) -> Result<[u32; 8], HostError> {
        Ok(self.level(at, level)?.bucket_cores.map(|count| count as u32))
    }

    fn base_freq(&self, at: &DomainAddress, level: u8) -> Result<BaseFreq, HostError> {
        let base = &self.level(at, level)?.base_freq;
        Ok(BaseFreq {
            high: ratio(base.high),
            low: ratio(base.low),
            cores: base.cores,
            tjunction_c: base.tjunction as u32,
            tdp_w: base.tdp as u32 / 8,
        })
    }

    fn turbo_freq(&self, at: &DomainAddress, level: u8) -> Result<TurboFreq, HostError> {
        let turbo = &self.level(at, level)?.turbo_freq;
        Ok(TurboFreq {
            clip: turbo.clip.map(ratio),
            bucket_cores: turbo.high_priority_cores().map(|count| count as u32),
            limits: turbo.trl.map(|row| row.map(ratio)),
        })
    }

    fn clos(&self, at: &DomainAddress, class: u8) -> Result<Clos, HostError> {
        let none = || HostError::new(Op::Read, format!("class of service {class}"), Errno::INVAL);
        let clos = self.power(at)?.and_then(|power| power.clos.get(usize::from(class))).ok_or_else(none)?;
        Ok(Clos {
            min: ratio(clos.min),
            max: ratio(clos.max),
            weight: clos.priority as u8,
            ..Clos::default()
        })
    }

    fn set_clos(&self, _at: &DomainAddress, _class: u8, _clos: &Clos) -> Result<(), HostError> {
        refuse()
    }

    fn class_of(&self, at: &DomainAddress, core: u16) -> Result<u8, HostError> {
        let none = || HostError::new(Op::Read, format!("class of core {core}"), Errno::INVAL);
        let class = self.power(at)?.and_then(|power| power.assoc.get(usize::from(core))).ok_or_else(none)?;
        Ok(*class as u8)
    }

    fn associate(&self, _at: &DomainAddress, _core: u16, _class: u8) -> Result<(), HostError> {
        refuse()
    }
}
