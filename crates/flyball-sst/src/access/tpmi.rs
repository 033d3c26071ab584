//! API 2 and 3: power domains' registers through the TPMI calls.
//!
//! Every rejected call returns `ENOTTY` (isst_if_common.c drops the back-end's errno). Drivers
//! check few arguments: 6.12.117 compares a level with the highest one, and a class's frequencies
//! and priority with their fields; the first 6.12 did not. Values that are too large spill into
//! neighbouring fields. So every value is checked here. Two arguments make kernels fault:
//!
//! * a level above the highest in the core-mask calls (the first 6.12): only [`Tpmi::level`]
//!   returns a [`Level`];
//! * an association call for a domain without registers (7.2): only [`Tpmi::domain`], which reads
//!   the mask of usable ones, returns a [`DomainIndex`].

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use flyball_host::{
    Errno, Host, HostError, MegaHertz, Op,
    isst::{self, bad_argument, number, wire},
};

use super::interface::{
    Access, BaseFreq, Clos, DomainAddress, Features, LevelData, Levels, PmConfig, Qos, TurboFreq, TurboLimits,
};

/// Number of classes of service.
const CLOSES: u8 = 4;

/// The TPMI interface of a machine.
pub struct Tpmi<'h> {
    host: &'h dyn Host,
    api: u16,
    /// Mask of the usable domains of each package.
    domains: RefCell<BTreeMap<u8, u16>>,
}

/// A power domain with registers: the package's number in sysfs, and the domain's number in the
/// package.
#[derive(Clone, Copy)]
struct DomainIndex {
    package: u8,
    domain: u8,
}

/// An existing performance level of a domain.
#[derive(Clone, Copy)]
struct Level {
    place: DomainIndex,
    number: u8,
}

/// isst_perf_level_info.
struct PerfLevels {
    levels: Levels,
    /// Mask of existing levels.
    mask: u8,
    /// Bit 0: SST-BF is on; bit 1: SST-TF is on.
    features: u8,
    /// API 3: mask of levels with SST-TF. API 2: one flag for all levels.
    turbo_freq: u8,
    /// The corresponding value for SST-BF.
    base_freq: u8,
}

/// How often, and at which interval, to read back a switch before firmware counts as ignoring it:
/// the driver returns before the power unit has acted.
const FOLLOW_TRIES: u32 = 5;
const FOLLOW_PAUSE: Duration = Duration::from_millis(1);

impl<'h> Tpmi<'h> {
    /// These parts have numbers instead of names for the sets of turbo frequencies.
    pub(super) const KINDS: &'static [&'static str] =
        &["level-0", "level-1", "level-2", "level-3", "level-4", "level-5"];

    /// The interface in version `api`.
    pub fn new(host: &'h dyn Host, api: u16) -> Tpmi<'h> {
        Tpmi { host, api, domains: RefCell::default() }
    }

    /// Mask of a package's usable domains; 0 for a package that does not exist.
    fn usable(&self, package: u8) -> Result<u16, HostError> {
        // Cached per package: every request needs it, and domains do not change while the driver is
        // loaded.
        if let Some(&known) = self.domains.borrow().get(&package) {
            return Ok(known);
        }
        let mut argument = [package, 0, 0, 0];
        let mask = match self.host.isst(number::COUNT_TPMI_INSTANCES, &mut argument) {
            // `valid_mask` of isst_tpmi_instance_count has 16 bits.
            Ok(_) => wire::u16_at(&argument, 2),
            // The answer for a package without registers.
            Err(error) if error.errno == Errno::NOTTY => 0,
            Err(error) => return Err(error),
        };
        self.domains.borrow_mut().insert(package, mask);
        Ok(mask)
    }

    fn domain(&self, at: &DomainAddress) -> Result<DomainIndex, HostError> {
        let &DomainAddress { package, domain, .. } = at;
        if domain < 16 && self.usable(package)? >> domain & 1 != 0 {
            return Ok(DomainIndex { package, domain });
        }
        let what = format!("package {package} power domain {domain}, which has no registers");
        Err(HostError::new(Op::Isst, what, Errno::NODEV))
    }

    /// Makes a call on a domain, and returns the argument as the driver changed it.
    fn call<const SIZE: usize>(
        &self,
        number: u32,
        DomainIndex { package, domain }: DomainIndex,
        what: &str,
        mut argument: [u8; SIZE],
    ) -> Result<[u8; SIZE], HostError> {
        let what = || format!("{what} of package {package} power domain {domain}");
        isst::call(self.host, number, &mut argument, what)?;
        Ok(argument)
    }

    /// Makes a call whose argument begins with the domain and a level. If the level has 16 bits,
    /// the 0 after it is its high byte.
    fn call_level<const SIZE: usize>(
        &self,
        number: u32,
        level: Level,
        what: &str,
    ) -> Result<[u8; SIZE], HostError> {
        let mut argument = [0; SIZE];
        argument[..3].copy_from_slice(&[level.place.package, level.place.domain, level.number]);
        self.call(number, level.place, what, argument)
    }

    /// Reads struct isst_core_power: get_set, socket_id, power_domain_id, enable, supported,
    /// priority_type.
    fn core_power(&self, at: DomainIndex) -> Result<[u8; 6], HostError> {
        let argument = [0, at.package, at.domain, 0, 0, 0];
        self.call(number::CORE_POWER_STATE, at, "core-power state", argument)
    }

    fn perf_levels(&self, at: DomainIndex) -> Result<PerfLevels, HostError> {
        let mut argument = [0; 11];
        argument[..2].copy_from_slice(&[at.package, at.domain]);
        let [_, _, highest, version, mask, current, features, locked, enabled, turbo_freq, base_freq] =
            self.call(number::PERF_LEVELS, at, "performance levels", argument)?;
        let levels = Levels { version, highest, current, locked: locked != 0, enabled: enabled != 0 };
        Ok(PerfLevels { levels, mask, features, turbo_freq, base_freq })
    }

    fn level(&self, at: &DomainAddress, number: u8) -> Result<(PerfLevels, Level), HostError> {
        let place = self.domain(at)?;
        let known = self.perf_levels(place)?;
        // Compare here, because not every kernel does. The mask can have gaps, and drivers have
        // registers for five levels.
        if number < 5 && number <= known.levels.highest && known.mask >> number & 1 != 0 {
            return Ok((known, Level { place, number }));
        }
        let what = format!("level {number} of package {} power domain {}", at.package, at.domain);
        Err(HostError::new(Op::Isst, what, Errno::INVAL))
    }

    /// Reads isst_perf_level_data_info.
    fn level_info(&self, level: Level) -> Result<[u8; 154], HostError> {
        self.call_level(number::GET_PERF_LEVEL_INFO, level, "level's numbers")
    }

    /// Reads isst_perf_level_cpu_mask: a mask of cores by the power unit's numbers.
    fn core_mask(&self, number: u32, level: Level, what: &str) -> Result<u64, HostError> {
        let mut argument = [0; 24];
        // The last byte selects the power unit's core numbers; the driver supports no others.
        argument[..4].copy_from_slice(&[level.place.package, level.place.domain, level.number, 1]);
        Ok(wire::u64_at(&self.call(number, level.place, what, argument)?, 8))
    }

    /// Reads the class of a core, or writes it.
    fn association(&self, at: &DomainAddress, core: u16, write: Option<u8>) -> Result<u8, HostError> {
        let place = self.domain(at)?;
        if core > 63 {
            return Err(bad_argument(format_args!("core {core} of power domain {}", at.domain)));
        }
        // struct isst_if_clos_assoc_cmds with a single element: with several, the driver stops at
        // the first that fails without saying which. It identifies cores only by the power unit's
        // numbers, which the third field selects.
        let mut argument =
            [1, 0, u8::from(write.is_some()), 0, 1, 0, place.package, place.domain, 0, 0, 0, 0];
        wire::put(&mut argument, 8, &core.to_le_bytes());
        argument[10] = write.unwrap_or(0);
        Ok(self.call(number::CLOS_ASSOC, place, "class of a core", argument)?[10])
    }

    /// Waits until the firmware has followed a switch, because drivers do not wait.
    fn follow(
        &self,
        at: &DomainAddress,
        what: &str,
        done: impl Fn() -> Result<bool, HostError>,
    ) -> Result<(), HostError> {
        for _ in 0..FOLLOW_TRIES {
            self.host.sleep(FOLLOW_PAUSE);
            if done()? {
                return Ok(());
            }
        }
        let what =
            format!("{what} of package {} power domain {} (firmware did not follow)", at.package, at.domain);
        Err(HostError::new(Op::Isst, what, Errno::TIMEDOUT))
    }
}

/// Rejects a class that does not exist. The driver returns ENOTTY for everything, so a wrong
/// argument is described here.
fn check_class(class: u8) -> Result<(), HostError> {
    if class < CLOSES { Ok(()) } else { Err(bad_argument(format_args!("class of service {class}"))) }
}

/// Returns the 16-bit fields at `offsets` as frequencies in MHz.
fn mhz_at<const N: usize>(argument: &[u8], offsets: [usize; N]) -> [MegaHertz; N] {
    offsets.map(|offset| MegaHertz(wire::u16_at(argument, offset).into()))
}

/// Returns the first `buckets` of eight counts from `offset` on.
fn counts_at(argument: &[u8], offset: usize, buckets: u16) -> [u32; 8] {
    std::array::from_fn(|bucket| {
        if bucket < buckets.into() { wire::u16_at(argument, offset + 2 * bucket).into() } else { 0 }
    })
}

/// Returns the first `buckets` of the first `levels` rows of frequencies from `offset` on. The
/// driver states how many it filled; the structures' arrays end at these bounds in any case.
fn limits_at(argument: &[u8], offset: usize, levels: u16, buckets: u16) -> TurboLimits {
    std::array::from_fn(|level| {
        let buckets = if level < levels.into() { buckets } else { 0 };
        counts_at(argument, offset + 16 * level, buckets).map(MegaHertz)
    })
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
        let usable = self.usable(package).unwrap_or(0);
        (0..16).filter(|domain| usable >> domain & 1 != 0).collect()
    }

    fn pm_config(&self, at: &DomainAddress) -> Result<PmConfig, HostError> {
        let state = self.core_power(self.domain(at)?)?;
        Ok(PmConfig { supported: state[4] != 0, enabled: state[3] & 1 != 0 })
    }

    // A single switch: `set_qos` writes it together with the priority (isst_if_core_power_state).
    fn set_pm_config(&self, _at: &DomainAddress, _enabled: bool) -> Result<(), HostError> {
        Ok(())
    }

    fn qos(&self, at: &DomainAddress) -> Result<Qos, HostError> {
        let state = self.core_power(self.domain(at)?)?;
        Ok(Qos { enabled: state[3] & 1 != 0, ordered: state[5] & 1 != 0 })
    }

    fn set_qos(&self, at: &DomainAddress, qos: Qos) -> Result<(), HostError> {
        let place = self.domain(at)?;
        let argument = [1, place.package, place.domain, u8::from(qos.enabled), 0, u8::from(qos.ordered)];
        self.call(number::CORE_POWER_STATE, place, "core-power state", argument)?;
        // Wait, because the driver reads the status register, which firmware updates some time
        // after a write to the control register.
        self.follow(at, "core-power state", || Ok(self.qos(at)?.enabled == qos.enabled))
    }

    fn levels(&self, at: &DomainAddress) -> Result<Levels, HostError> {
        Ok(self.perf_levels(self.domain(at)?)?.levels)
    }

    fn features(&self, at: &DomainAddress, level: u8) -> Result<Features, HostError> {
        let (known, level) = self.level(at, level)?;
        // Version 2 has one flag for all levels, version 3 a mask of levels.
        let has = |mask: u8| if self.api > 2 { mask >> level.number & 1 != 0 } else { mask != 0 };
        Ok(Features {
            base_freq: has(known.base_freq),
            turbo_freq: has(known.turbo_freq),
            base_freq_on: known.features & 1 != 0,
            turbo_freq_on: known.features & 2 != 0,
        })
    }

    fn set_features(&self, at: &DomainAddress, base_freq: bool, turbo_freq: bool) -> Result<(), HostError> {
        let place = self.domain(at)?;
        let features = u8::from(base_freq) | u8::from(turbo_freq) << 1;
        let argument = [place.package, place.domain, features];
        self.call(number::PERF_SET_FEATURE, place, "base-freq and turbo-freq", argument)?;
        // isst_if_set_perf_feature writes the control register without checking the status.
        self.follow(at, "base-freq and turbo-freq", || Ok(self.perf_levels(place)?.features & 3 == features))
    }

    fn set_level(&self, at: &DomainAddress, level: u8) -> Result<(), HostError> {
        let (_, level) = self.level(at, level)?;
        // Do not wait here: the driver waits for firmware itself, up to 20 ms, and switches SST-BF
        // and SST-TF off (isst_if_set_perf_level, SST_PP_LEVEL_CHANGE_RETRY_COUNT).
        self.call_level::<3>(number::PERF_SET_LEVEL, level, "performance level").map(|_| ())
    }

    fn level_data(&self, at: &DomainAddress, level: u8) -> Result<LevelData, HostError> {
        let (_, level) = self.level(at, level)?;
        let info = self.level_info(level)?;
        let [tdp_ratio, tdp_w, tjunction_c, cooling] =
            [4, 14, 16, 20].map(|offset| u32::from(wire::u16_at(&info, offset)));
        // isst_perf_level_fabric_info: three arrays of eight from byte 6 on, by mesh, each with the
        // second mesh second. Kernels before 7.x lack the call; 0 means unknown.
        let second_uncore =
            match self.call_level::<54>(number::GET_PERF_LEVEL_FABRIC_INFO, level, "mesh frequencies") {
                Ok(answer) => mhz_at(&answer, [8, 24, 40]),
                Err(error) if error.errno == Errno::NOTTY => [MegaHertz(0); 3],
                Err(error) => return Err(error),
            };
        let [memory] = mhz_at(&info, [18]);
        let (base, uncore) = (mhz_at(&info, [6, 8, 10, 12]), fabric(&info));
        Ok(LevelData { tdp_ratio, tdp_w, tjunction_c, base, uncore, second_uncore, memory, cooling })
    }

    fn uncore(&self, at: &DomainAddress, level: u8) -> Result<[MegaHertz; 3], HostError> {
        Ok(fabric(&self.level_info(self.level(at, level)?.1)?))
    }

    fn level_cores(&self, at: &DomainAddress, level: u8) -> Result<u64, HostError> {
        let (_, level) = self.level(at, level)?;
        self.core_mask(number::GET_PERF_LEVEL_CPU_MASK, level, "cores of a level")
    }

    fn turbo_limits(&self, at: &DomainAddress, level: u8) -> Result<TurboLimits, HostError> {
        let info = self.level_info(self.level(at, level)?.1)?;
        Ok(limits_at(&info, 58, wire::u16_at(&info, 40), wire::u16_at(&info, 38)))
    }

    fn bucket_cores(&self, at: &DomainAddress, level: u8) -> Result<[u32; 8], HostError> {
        let info = self.level_info(self.level(at, level)?.1)?;
        Ok(counts_at(&info, 42, wire::u16_at(&info, 38)))
    }

    fn base_freq(&self, at: &DomainAddress, level: u8) -> Result<BaseFreq, HostError> {
        let (_, level) = self.level(at, level)?;
        // struct isst_base_freq_info.
        let info: [u8; 12] = self.call_level(number::GET_BASE_FREQ_INFO, level, "base-freq")?;
        let [high, low] = mhz_at(&info, [4, 6]);
        Ok(BaseFreq {
            high,
            low,
            cores: self.core_mask(number::GET_BASE_FREQ_CPU_MASK, level, "base-freq's cores")?,
            tjunction_c: wire::u16_at(&info, 8).into(),
            tdp_w: wire::u16_at(&info, 10).into(),
        })
    }

    fn turbo_freq(&self, at: &DomainAddress, level: u8) -> Result<TurboFreq, HostError> {
        let (_, level) = self.level(at, level)?;
        // struct isst_turbo_freq_info.
        let info: [u8; 134] = self.call_level(number::GET_TURBO_FREQ_INFO, level, "turbo-freq")?;
        let [clips, buckets, levels] = [4, 6, 8].map(|offset| wire::u16_at(&info, offset));
        let mut clip = mhz_at(&info, [10, 12, 14, 16, 18, 20]);
        clip.iter_mut().skip(clips.into()).for_each(|clip| *clip = MegaHertz(0));
        Ok(TurboFreq {
            clip,
            bucket_cores: counts_at(&info, 22, buckets),
            limits: limits_at(&info, 38, levels, buckets),
        })
    }

    fn clos(&self, at: &DomainAddress, class: u8) -> Result<Clos, HostError> {
        let place = self.domain(at)?;
        check_class(class)?;
        // struct isst_clos_param; the frequencies are at 4 and 6, the priority at 8.
        let argument = [0, place.package, place.domain, class, 0, 0, 0, 0, 0, 0];
        let answer = self.call(number::CLOS_PARAM, place, "class of service", argument)?;
        let [min, max] = mhz_at(&answer, [4, 6]);
        // TPMI's registers have no energy preference.
        Ok(Clos { min, max, weight: answer[8], ..Clos::default() })
    }

    fn set_clos(&self, at: &DomainAddress, class: u8, clos: &Clos) -> Result<(), HostError> {
        let place = self.domain(at)?;
        check_class(class)?;
        let (min, max, priority) = (clos.min.0, clos.max.0, clos.weight);
        // The registers hold eight bits of 100 MHz; the driver drops higher bits.
        if min / 100 > 0xff || max / 100 > 0xff || priority > 15 {
            return Err(bad_argument(format_args!(
                "class of service {class} with {min} to {max} MHz and priority {priority}"
            )));
        }
        let mut argument = [1, place.package, place.domain, class, 0, 0, 0, 0, priority, 0];
        wire::put(&mut argument, 4, &(min as u16).to_le_bytes());
        wire::put(&mut argument, 6, &(max as u16).to_le_bytes());
        self.call(number::CLOS_PARAM, place, "class of service", argument).map(|_| ())
    }

    fn class_of(&self, at: &DomainAddress, core: u16) -> Result<u8, HostError> {
        self.association(at, core, None)
    }

    fn associate(&self, at: &DomainAddress, core: u16, class: u8) -> Result<(), HostError> {
        check_class(class)?;
        self.association(at, core, Some(class)).map(|_| ())
    }
}

/// A level's mesh frequencies: highest, base, lowest. Offset 34 is Pn, which the driver does not
/// fill.
fn fabric(info: &[u8; 154]) -> [MegaHertz; 3] {
    mhz_at(info, [30, 32, 36])
}

#[cfg(test)]
mod tests;
