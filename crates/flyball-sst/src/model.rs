//! A machine's Speed Select as data: its levels, features and classes.
//!
//! `flyball sst` prints text and JSON from this data, so that the two cannot differ.

use flyball_host::{CpuList, Host, HostError, MegaHertz};
use serde::Serialize;

use crate::{
    access::{Access, BaseFreq, Clos, Features, LevelData, Levels, PmConfig, Qos, TurboFreq},
    layout::{Domain, Layout},
};

/// One bucket of turbo limits: the highest frequency while at most this many cores are active, or
/// modules of four cores on a Xeon of E-cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct Bucket {
    pub cores: u32,
    pub mhz: MegaHertz,
}

/// Turbo limits for a class of instructions.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct Turbo {
    /// `sse`, `avx2`, `avx512`, or `level-0` on later parts.
    pub instructions: &'static str,
    /// Limits by number of active cores.
    pub buckets: Vec<Bucket>,
}

/// SST-BF of a level.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct BaseFreqOffer {
    /// High-priority CPUs.
    pub high_cpus: CpuList,
    /// Their base frequency.
    pub high_mhz: MegaHertz,
    /// The others' base frequency.
    pub low_mhz: MegaHertz,
    /// Highest temperature.
    pub tjunction_c: u32,
    /// Package power.
    pub tdp_w: u32,
}

/// SST-TF of a level.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct TurboFreqOffer {
    /// High-priority cores' turbo limits.
    pub high: Vec<Turbo>,
    /// Low-priority cores' highest frequency, by class of instructions.
    pub clip: Vec<(&'static str, MegaHertz)>,
}

#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct Level {
    pub level: u8,
    pub current: bool,
    /// The CPUs that run at this level.
    pub cpus: CpuList,
    /// Base frequency for SSE, AVX2, AVX-512 and AMX code; 0 is not given.
    pub base_mhz: [MegaHertz; 4],
    /// Package power in watts.
    pub tdp_w: u32,
    /// Highest temperature in degrees Celsius.
    pub tjunction_c: u32,
    /// Mesh: highest, base, lowest; 0 if unknown.
    pub uncore_mhz: [MegaHertz; 3],
    /// Second mesh; 0 is not given.
    pub second_uncore_mhz: [MegaHertz; 3],
    /// Memory speed; 0 is not given.
    pub memory_mhz: MegaHertz,
    /// The firmware's code for the required cooling.
    pub cooling_type: u32,
    pub turbo: Vec<Turbo>,
    /// `None` if the level has no SST-BF.
    pub base_freq: Option<BaseFreqOffer>,
    /// `None` if the level has no SST-TF.
    pub turbo_freq: Option<TurboFreqOffer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct ClassOfService {
    pub clos: u8,
    pub min_mhz: MegaHertz,
    /// `None` if there is no limit.
    pub max_mhz: Option<MegaHertz>,
    /// Proportional priority, 0 (highest) to 15.
    pub weight: u8,
    /// Energy preference; `None` on TPMI parts, whose classes have none.
    pub epp: Option<u8>,
}

/// The state of a power domain.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct DomainModel {
    pub package: u8,
    pub die: u32,
    /// Number in the package.
    pub domain: u8,
    /// CPUs of the domain; empty for an IO die.
    pub cpus: CpuList,
    pub levels: Levels,
    pub core_power: PmConfig,
    pub qos: Qos,
    pub features: Features,
}

fn turbo(
    kinds: &[&'static str],
    limits: &crate::access::TurboLimits,
    cores: &[u32; 8],
    ends_at_zero: bool,
) -> Vec<Turbo> {
    let row = |(kind, row): (&&'static str, &[MegaHertz; 8])| {
        let pairs = row.iter().zip(cores);
        let buckets: Vec<Bucket> = pairs
            // In turbo-freq a bucket without cores ends the list. Ordinary limits are shown even if
            // the counts could not be read.
            .take_while(|(_, cores)| !ends_at_zero || **cores != 0)
            .filter(|(mhz, _)| mhz.0 != 0)
            .map(|(mhz, cores)| Bucket { cores: *cores, mhz: *mhz })
            .collect();
        (!buckets.is_empty()).then_some(Turbo { instructions: kind, buckets })
    };
    kinds.iter().zip(limits).filter_map(row).collect()
}

/// The state of a domain.
pub fn domain(access: &dyn Access, domain: &Domain) -> Result<DomainModel, HostError> {
    let at = &domain.place;
    let levels = access.levels(at)?;
    Ok(DomainModel {
        package: at.package,
        die: domain.die,
        domain: at.domain,
        cpus: domain.cpus.clone(),
        levels,
        core_power: access.pm_config(at)?,
        qos: access.qos(at)?,
        features: access.features(at, levels.current)?,
    })
}

/// Everything about one level of a domain.
///
/// # Errors
/// Returns the driver's error; `EINVAL` for a level that the domain does not have.
pub fn level(layout: &Layout, access: &dyn Access, domain: &Domain, number: u8) -> Result<Level, HostError> {
    let at = &domain.place;
    let levels = access.levels(at)?;
    if number > levels.highest {
        let what = format!("level {number}, above the highest ({})", levels.highest);
        return Err(HostError::new(flyball_host::Op::Isst, what, flyball_host::Errno::INVAL));
    }
    let features = access.features(at, number)?;
    let LevelData { tdp_w, tjunction_c, base, uncore, second_uncore, memory, cooling, tdp_ratio } =
        access.level_data(at, number)?;
    let mut base_mhz = base;
    // Older firmware gives only the ratio.
    if base_mhz[0].0 == 0 {
        base_mhz[0] = MegaHertz(tdp_ratio * 100);
    }
    // The counts are in an MSR, which may be unreadable; the limits are useful without them.
    let cores = access.bucket_cores(at, number).unwrap_or_default();
    let base_freq = if features.base_freq {
        let BaseFreq { high, low, cores, tjunction_c, tdp_w } = access.base_freq(at, number)?;
        let high_cpus = layout.of_cores(domain, cores);
        Some(BaseFreqOffer { high_cpus, high_mhz: high, low_mhz: low, tjunction_c, tdp_w })
    } else {
        None
    };
    let turbo_freq = if features.turbo_freq {
        let TurboFreq { clip, bucket_cores, limits } = access.turbo_freq(at, number)?;
        let clip = access.turbo_kinds().iter().copied().zip(clip).filter(|(_, mhz)| mhz.0 != 0).collect();
        Some(TurboFreqOffer { high: turbo(access.turbo_kinds(), &limits, &bucket_cores, true), clip })
    } else {
        None
    };
    Ok(Level {
        level: number,
        current: number == levels.current,
        cpus: layout.of_cores(domain, access.level_cores(at, number)?),
        base_mhz,
        tdp_w,
        tjunction_c,
        uncore_mhz: uncore,
        second_uncore_mhz: second_uncore,
        memory_mhz: memory,
        cooling_type: cooling,
        turbo: turbo(access.turbo_kinds(), &access.turbo_limits(at, number)?, &cores, false),
        base_freq,
        turbo_freq,
    })
}

/// The numbers of a domain's levels: firmware may omit some below the highest.
pub fn level_numbers(access: &dyn Access, domain: &Domain) -> Result<Vec<u8>, HostError> {
    let highest = access.levels(&domain.place)?.highest;
    Ok((0..=highest).filter(|&level| access.features(&domain.place, level).is_ok()).collect())
}

pub fn class(access: &dyn Access, domain: &Domain, number: u8) -> Result<ClassOfService, HostError> {
    let Clos { min, max, epp, weight, .. } = access.clos(&domain.place, number)?;
    Ok(ClassOfService {
        clos: number,
        min_mhz: min,
        max_mhz: (max != Clos::NO_LIMIT).then_some(max),
        weight,
        epp: (!access.is_tpmi()).then_some(epp),
    })
}

/// The class of each CPU's core, in ascending order of CPUs. CPUs with an unknown domain are
/// skipped.
pub fn classes_of(layout: &Layout, host: &dyn Host, cpus: &CpuList) -> Result<Vec<(u32, u8)>, HostError> {
    let access = layout.access(host);
    let mut found = Vec::new();
    for cpu in cpus.iter() {
        if let (Some(domain), Some(known)) = (layout.domain_of(cpu), layout.map.get(cpu)) {
            found.push((cpu, access.class_of(&domain.place, known.core)?));
        }
    }
    Ok(found)
}
