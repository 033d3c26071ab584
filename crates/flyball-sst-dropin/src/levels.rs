//! Reads levels and their features with the checks and messages of the tool.

use flyball_host::{
    CpuList, MegaHertz,
    isst::legacy,
    msr::{MSR_TURBO_RATIO_LIMIT, MSR_TURBO_RATIO_LIMIT1},
};
use flyball_sst::access::{BaseFreq, LevelData, TurboFreq, TurboLimits};

use crate::{
    display::Id,
    session::{Code, Control, Ended, FAILED, Session},
};

/// Everything of one level.
pub(super) struct LevelInfo {
    pub number: u8,
    pub control: Control,
    pub data: LevelData,
    pub cores: Option<CpuList>,
    pub buckets: [u32; 8],
    pub limits: TurboLimits,
    pub base_freq: (BaseFreq, CpuList),
    pub turbo_freq: TurboFreq,
}

impl LevelInfo {
    /// A level before its data is read.
    pub(super) fn new(number: u8, control: Control) -> LevelInfo {
        LevelInfo {
            number,
            control,
            data: LevelData::default(),
            cores: None,
            buckets: [0; 8],
            limits: TurboLimits::default(),
            base_freq: (BaseFreq::default(), CpuList::new()),
            turbo_freq: TurboFreq::default(),
        }
    }

    /// The one level of a Cascade Lake N part.
    pub(super) fn bios_set(
        control: Control,
        ratio: u32,
        cores: CpuList,
        base: BaseFreq,
        high: CpuList,
    ) -> LevelInfo {
        let mut level = LevelInfo::new(0, control);
        level.data.tdp_ratio = ratio;
        level.cores = Some(cores);
        level.base_freq = (base, high);
        level
    }
}

/// Reads a level's SST-BF, with the tool's checks and messages.
pub(super) fn base_freq(
    session: &mut Session<'_>,
    id: &Id,
    level: u32,
) -> Result<Result<(BaseFreq, CpuList), Code>, Ended> {
    let control = answered!(feature_level(session, id, level)?);
    if !control.features.base_freq {
        session.error(&format!("base-freq feature is not present at this level {level}"));
        return Ok(Err(FAILED));
    }
    // The level is at most the highest level, which is a byte.
    let answer = session.at(id, |access, place| access.base_freq(place, level as u8));
    Ok(session.ask(answer)?.map(|base| (base, session.of_cores(id, base.cores))))
}

/// Reads a level's SST-TF, with the tool's checks and messages.
pub(super) fn turbo_freq(
    session: &mut Session<'_>,
    id: &Id,
    level: u32,
    bucket: Option<u32>,
) -> Result<Result<TurboFreq, Code>, Ended> {
    let control = answered!(feature_level(session, id, level)?);
    if !control.features.turbo_freq {
        session.error(&format!("turbo-freq feature is not present at this level {level}"));
        return Ok(Err(FAILED));
    }
    let answer = session.at(id, |access, place| access.turbo_freq(place, level as u8));
    let answer = session.ask(answer)?;
    if let Ok(turbo) = &answer {
        if !session.platform.is_tpmi() && !has_bucket(turbo, bucket, true) {
            session.error("Invalid bucket");
            return Ok(Err(FAILED));
        }
    }
    Ok(answer)
}

fn feature_level(session: &mut Session<'_>, id: &Id, level: u32) -> Result<Result<Control, Code>, Ended> {
    let levels = answered!(session.levels(id)?, session, "Failed to get number of levels");
    if level > u32::from(levels.highest) {
        session.error(&format!("Invalid level {level}"));
        return Ok(Err(FAILED));
    }
    session.control(id, level as u8)
}

/// Returns whether the requested bucket (or any) exists: the first bucket without cores ends the
/// list.
pub(super) fn has_bucket(turbo: &TurboFreq, bucket: Option<u32>, needs_cores: bool) -> bool {
    for (index, cores) in turbo.bucket_cores.iter().enumerate() {
        if bucket.is_some_and(|bucket| bucket != index as u32) {
            continue;
        }
        return *cores != 0 || !needs_cores;
    }
    false
}

/// Reads all levels, or one. Which data is missing differs by part and by level, and the tool has a
/// separate message for each case, so the requests are in the order of `isst_get_process_ctdp`
/// (isst-core.c). A level without features is skipped; a later error fails the command.
pub(super) fn read_levels(
    session: &mut Session<'_>,
    id: &Id,
    only: Option<u32>,
) -> Result<Result<Vec<LevelInfo>, Code>, Ended> {
    let levels = answered!(session.levels(id)?);
    if only.is_some_and(|only| only > u32::from(levels.highest)) {
        session.error("Invalid level");
        return Ok(Err(FAILED));
    }
    if !levels.enabled {
        let text = "perf-profile feature is not supported, just base-config level 0 is valid";
        session.display.message(false, text);
    }
    let mut found = Vec::new();
    for number in 0..=levels.highest {
        if only.is_some_and(|only| only != u32::from(number)) {
            continue;
        }
        let Ok(control) = session.control(id, number)? else { continue };
        let mut level = LevelInfo::new(number, control);
        if control.features.base_freq {
            // Like in isst_get_process_ctdp(), an error is ignored here, but fails the command for
            // turbo-freq below.
            if let Ok(base) = base_freq(session, id, number.into())? {
                level.base_freq = base;
            }
        }
        if control.features.turbo_freq {
            level.turbo_freq = answered!(turbo_freq(session, id, number.into(), None)?);
        }
        if !levels.enabled && session.model.is_skylake_based() {
            without_levels(session, id, &mut level)?;
            found.push(level);
            continue;
        }
        let data = session.at(id, |access, place| access.level_data(place, number));
        level.data = match session.ask(data)? {
            Ok(data) => data,
            Err(code) => {
                if !session.platform.is_tpmi() {
                    session.error(&format!("Invalid level, Can't get TDP information at level {number}"));
                }
                return Ok(Err(code));
            }
        };
        let cores = session.at(id, |access, place| access.level_cores(place, number));
        let cores = answered!(session.ask(cores)?);
        level.cores = Some(session.of_cores(id, cores));
        let buckets = session.at(id, |access, place| access.bucket_cores(place, number));
        level.buckets = if session.platform.is_tpmi() {
            answered!(session.ask(buckets)?)
        } else {
            session.ask_msr(id, MSR_TURBO_RATIO_LIMIT1, false, buckets)?.unwrap_or_default()
        };
        let limits = session.at(id, |access, place| access.turbo_limits(place, number));
        level.limits = answered!(session.ask(limits)?);
        found.push(level);
    }
    if found.is_empty() {
        let text = "Invalid level, Can't get TDP control information at specified levels on cpu";
        session.display.message(false, &format!("{text} {}", id.cpu));
    }
    Ok(Ok(found))
}

/// Fills in a Skylake part without levels from cpufreq and the turbo MSRs.
fn without_levels(session: &mut Session<'_>, id: &Id, level: &mut LevelInfo) -> Result<(), Ended> {
    let base =
        session.number(false, &format!("/sys/devices/system/cpu/cpu{}/cpufreq/base_frequency", id.cpu))?;
    if base > 0 {
        // Rounded down to 100 MHz, the unit of ratios.
        level.data.base[0] = MegaHertz((base / 100_000 * 100) as u32);
        level.data.tdp_ratio = (base / 100_000) as u32;
    }
    let cpu = id.cpu.unsigned_abs();
    let limits = legacy::read_msr(session.host, cpu, MSR_TURBO_RATIO_LIMIT);
    if let Ok(limits) = session.ask_msr(id, MSR_TURBO_RATIO_LIMIT, false, limits)? {
        // Eight ratios, bucket 0 in the lowest byte (SDM vol. 4, MSR_TURBO_RATIO_LIMIT).
        level.limits[0] = limits.to_le_bytes().map(|ratio| MegaHertz(u32::from(ratio) * 100));
    }
    let buckets = session.at(id, |access, place| access.bucket_cores(place, level.number));
    level.buckets = session.ask_msr(id, MSR_TURBO_RATIO_LIMIT1, false, buckets)?.unwrap_or_default();
    Ok(())
}
