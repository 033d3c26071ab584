//! API 2 and 3: power domains' registers through the TPMI calls.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use flyball_host::{
    Errno, Host, HostError, MegaHertz, Op,
    isst::tpmi::{self, Domain, Level, PerfLevels},
};

use super::interface::{
    Access, BaseFreq, Clos, DomainAddress, Features, LevelData, Levels, PmConfig, Qos, TurboFreq, TurboLimits,
};

/// The TPMI interface of a machine.
pub struct Tpmi<'h> {
    host: &'h dyn Host,
    api: u16,
    domains: RefCell<BTreeMap<u8, Vec<Domain>>>,
}

/// How often, and in which intervals, a switch is read back before firmware counts as not following
/// it: the driver returns before the power unit has acted.
const FOLLOW_TRIES: u32 = 5;
const FOLLOW_PAUSE: Duration = Duration::from_millis(1);

impl<'h> Tpmi<'h> {
    /// On these parts the sets of turbo frequencies have numbers instead of names.
    pub(super) const KINDS: &'static [&'static str] =
        &["level-0", "level-1", "level-2", "level-3", "level-4", "level-5"];

    /// The interface of version `api`.
    pub fn new(host: &'h dyn Host, api: u16) -> Tpmi<'h> {
        Tpmi { host, api, domains: RefCell::default() }
    }

    fn all(&self, package: u8) -> Result<Vec<Domain>, HostError> {
        // Asked once per package: every request looks its domain up first, and domains do not
        // change while the driver is loaded.
        if let Some(known) = self.domains.borrow().get(&package) {
            return Ok(known.clone());
        }
        let found = tpmi::domains(self.host, package)?;
        self.domains.borrow_mut().insert(package, found.clone());
        Ok(found)
    }

    fn domain(&self, at: &DomainAddress) -> Result<Domain, HostError> {
        self.all(at.package)?.into_iter().find(|domain| domain.id() == at.domain).ok_or_else(|| {
            let what = format!("package {} power domain {}, which has no registers", at.package, at.domain);
            HostError::new(Op::Isst, what, Errno::NODEV)
        })
    }

    fn level(&self, at: &DomainAddress, number: u8) -> Result<(Domain, PerfLevels, Level), HostError> {
        let domain = self.domain(at)?;
        let levels = PerfLevels::read(self.host, domain)?;
        let level = levels.level(number).ok_or_else(|| {
            let what = format!("level {number} of package {} power domain {}", at.package, at.domain);
            HostError::new(Op::Isst, what, Errno::INVAL)
        })?;
        Ok((domain, levels, level))
    }

    fn timed_out(at: &DomainAddress, what: &str) -> HostError {
        let what =
            format!("{what} of package {} power domain {} (firmware did not follow)", at.package, at.domain);
        HostError::new(Op::Isst, what, Errno::TIMEDOUT)
    }
}

fn mhz<const N: usize>(values: [u16; N]) -> [MegaHertz; N] {
    values.map(|value| MegaHertz(value.into()))
}

impl Access for Tpmi<'_> {
    fn is_tpmi(&self) -> bool {
        true
    }

    fn turbo_kinds(&self) -> &'static [&'static str] {
        Tpmi::KINDS
    }

    fn has(&self, place: &DomainAddress) -> bool {
        self.domain(place).is_ok()
    }

    fn domains(&self, package: u8) -> Vec<u8> {
        self.all(package).unwrap_or_default().into_iter().map(Domain::id).collect()
    }

    fn pm_config(&self, at: &DomainAddress) -> Result<PmConfig, HostError> {
        let state = tpmi::CorePower::read(self.host, self.domain(at)?)?;
        Ok(PmConfig { supported: state.supported, enabled: state.enabled })
    }

    // One switch: `set_qos` writes it together with the priority (isst_if_core_power_state).
    fn set_pm_config(&self, _at: &DomainAddress, _enabled: bool) -> Result<(), HostError> {
        Ok(())
    }

    fn qos(&self, at: &DomainAddress) -> Result<Qos, HostError> {
        let state = tpmi::CorePower::read(self.host, self.domain(at)?)?;
        Ok(Qos { enabled: state.enabled, ordered: state.ordered })
    }

    fn set_qos(&self, at: &DomainAddress, qos: Qos) -> Result<(), HostError> {
        let domain = self.domain(at)?;
        tpmi::CorePower::write(self.host, domain, qos.enabled, qos.ordered)?;
        for _ in 0..FOLLOW_TRIES {
            self.host.sleep(FOLLOW_PAUSE);
            // The driver reads the status register, which firmware updates after the control
            // register was written.
            if tpmi::CorePower::read(self.host, domain)?.enabled == qos.enabled {
                return Ok(());
            }
        }
        Err(Tpmi::timed_out(at, "core-power state"))
    }

    fn levels(&self, at: &DomainAddress) -> Result<Levels, HostError> {
        let levels = PerfLevels::read(self.host, self.domain(at)?)?;
        Ok(Levels {
            version: levels.revision,
            highest: levels.highest,
            current: levels.current,
            locked: levels.locked,
            enabled: levels.enabled,
        })
    }

    fn features(&self, at: &DomainAddress, level: u8) -> Result<Features, HostError> {
        let (_, levels, level) = self.level(at, level)?;
        // Version 2 has one flag for all levels, version 3 a bit for each.
        let has = |mask: u8| if self.api > 2 { mask >> level.number() & 1 != 0 } else { mask != 0 };
        Ok(Features {
            base_freq: has(levels.base_freq_support),
            turbo_freq: has(levels.turbo_freq_support),
            base_freq_on: levels.base_freq_on,
            turbo_freq_on: levels.turbo_freq_on,
        })
    }

    fn set_features(&self, at: &DomainAddress, base_freq: bool, turbo_freq: bool) -> Result<(), HostError> {
        let domain = self.domain(at)?;
        tpmi::set_features(self.host, domain, base_freq, turbo_freq)?;
        // isst_if_set_perf_feature writes the control register and does not look at the status.
        for _ in 0..FOLLOW_TRIES {
            self.host.sleep(FOLLOW_PAUSE);
            let levels = PerfLevels::read(self.host, domain)?;
            if (levels.base_freq_on, levels.turbo_freq_on) == (base_freq, turbo_freq) {
                return Ok(());
            }
        }
        Err(Tpmi::timed_out(at, "base-freq and turbo-freq"))
    }

    fn set_level(&self, at: &DomainAddress, level: u8) -> Result<(), HostError> {
        let (domain, _, level) = self.level(at, level)?;
        // No wait here: the driver waits for firmware itself (isst_if_set_perf_level,
        // SST_PP_LEVEL_CHANGE_RETRY_COUNT).
        tpmi::set_level(self.host, domain, level)
    }

    fn level_data(&self, at: &DomainAddress, level: u8) -> Result<LevelData, HostError> {
        let (domain, _, level) = self.level(at, level)?;
        let data = tpmi::LevelData::read(self.host, domain, level)?;
        // Kernels before the second fabric have no such call; not given is 0 in this form.
        let second = tpmi::second_fabric(self.host, domain, level)?.unwrap_or_default();
        Ok(LevelData {
            tdp_ratio: data.tdp_ratio.into(),
            tdp_w: data.tdp_w.into(),
            tjunction_c: data.tjunction_c.into(),
            base: mhz(data.base_mhz),
            uncore: mhz(data.fabric_mhz),
            second_uncore: mhz(second),
            memory: MegaHertz(data.memory_mhz.into()),
            cooling: data.cooling_type.into(),
        })
    }

    fn uncore(&self, at: &DomainAddress, level: u8) -> Result<[MegaHertz; 3], HostError> {
        let (domain, _, level) = self.level(at, level)?;
        Ok(mhz(tpmi::LevelData::read(self.host, domain, level)?.fabric_mhz))
    }

    fn level_cores(&self, at: &DomainAddress, level: u8) -> Result<u64, HostError> {
        let (domain, _, level) = self.level(at, level)?;
        tpmi::level_cores(self.host, domain, level)
    }

    fn turbo_limits(&self, at: &DomainAddress, level: u8) -> Result<TurboLimits, HostError> {
        let (domain, _, level) = self.level(at, level)?;
        Ok(tpmi::LevelData::read(self.host, domain, level)?.trl_mhz.map(mhz))
    }

    fn bucket_cores(&self, at: &DomainAddress, level: u8) -> Result<[u32; 8], HostError> {
        let (domain, _, level) = self.level(at, level)?;
        Ok(tpmi::LevelData::read(self.host, domain, level)?.bucket_cores.map(u32::from))
    }

    fn base_freq(&self, at: &DomainAddress, level: u8) -> Result<BaseFreq, HostError> {
        let (domain, _, level) = self.level(at, level)?;
        let base = tpmi::BaseFreq::read(self.host, domain, level)?;
        Ok(BaseFreq {
            high: MegaHertz(base.high_mhz.into()),
            low: MegaHertz(base.low_mhz.into()),
            cores: tpmi::base_freq_cores(self.host, domain, level)?,
            tjunction_c: base.tjunction_c.into(),
            tdp_w: base.tdp_w.into(),
        })
    }

    fn turbo_freq(&self, at: &DomainAddress, level: u8) -> Result<TurboFreq, HostError> {
        let (domain, _, level) = self.level(at, level)?;
        let turbo = tpmi::TurboFreq::read(self.host, domain, level)?;
        Ok(TurboFreq {
            clip: mhz(turbo.clip_mhz),
            bucket_cores: turbo.bucket_cores.map(u32::from),
            limits: turbo.trl_mhz.map(mhz),
        })
    }

    fn clos(&self, at: &DomainAddress, class: u8) -> Result<Clos, HostError> {
        let clos = tpmi::Clos::read(self.host, self.domain(at)?, class)?;
        Ok(Clos {
            min: MegaHertz(clos.min_mhz.into()),
            max: MegaHertz(clos.max_mhz.into()),
            weight: clos.priority,
            // The registers of TPMI have no energy preference.
            ..Clos::default()
        })
    }

    fn set_clos(&self, at: &DomainAddress, class: u8, clos: &Clos) -> Result<(), HostError> {
        // Saturated: cut to 16 bits it would be another frequency, and a valid one.
        let register = |frequency: MegaHertz| u16::try_from(frequency.0).unwrap_or(u16::MAX);
        let words =
            tpmi::Clos { min_mhz: register(clos.min), max_mhz: register(clos.max), priority: clos.weight };
        words.write(self.host, self.domain(at)?, class)
    }

    fn class_of(&self, at: &DomainAddress, core: u16) -> Result<u8, HostError> {
        tpmi::class_of(self.host, self.domain(at)?, core)
    }

    fn associate(&self, at: &DomainAddress, core: u16, class: u8) -> Result<(), HostError> {
        tpmi::associate(self.host, self.domain(at)?, core, class)
    }
}
