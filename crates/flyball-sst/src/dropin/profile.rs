//! perf-profile: levels, what each offers, and changing to one.

use flyball_host::{
    CpuList, MegaHertz,
    msr::{MSR_CONFIG_TDP_CONTROL, MSR_TURBO_RATIO_LIMIT, MSR_TURBO_RATIO_LIMIT1},
};

use super::{
    Ended, Options,
    display::{Id, Lines, list, mask},
    online,
    session::{Code, Control, FAILED, Session},
};
use crate::access::{BaseFreq, LevelData, Levels, TurboFreq, TurboLimits};

/// One of the commands that show a single number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Single {
    Levels,
    Version,
    Enabled,
    Current,
    Locked,
}

impl Single {
    /// The label; the current level's has an underscore.
    fn label(self) -> &'static str {
        match self {
            Single::Levels => "get-config-levels",
            Single::Version => "get-config-version",
            Single::Enabled => "get-config-enabled",
            Single::Current => "get-config-current_level",
            Single::Locked => "get-lock-status",
        }
    }

    fn value(self, levels: &Levels) -> String {
        let word = |value: bool, no: &str, yes: &str| if value { yes.to_owned() } else { no.to_owned() };
        match self {
            Single::Levels => levels.highest.to_string(),
            Single::Version => levels.version.to_string(),
            Single::Enabled => word(levels.enabled, "disabled", "enabled"),
            Single::Current => levels.current.to_string(),
            Single::Locked => word(levels.locked, "unlocked", "locked"),
        }
    }
}

pub(super) fn single(session: &mut Session<'_>, what: Single) -> Result<(), Ended> {
    session.display.start();
    session.each(|session, id| {
        match session.levels(id)? {
            Ok(levels) => session.display.record(id, |lines| lines.value(what.label(), what.value(&levels))),
            Err(_) => session.error("get_tdp_* failed"),
        }
        Ok(())
    })?;
    session.display.finish();
    Ok(())
}

/// Everything of one level.
pub(super) struct LevelInfo {
    number: u8,
    control: Control,
    data: LevelData,
    cores: Option<CpuList>,
    buckets: [u32; 8],
    limits: TurboLimits,
    base_freq: (BaseFreq, CpuList),
    turbo_freq: TurboFreq,
}

impl LevelInfo {
    /// A level of which only this is known.
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

/// SST-BF of a level, with the checks and messages that come before.
pub(super) fn base_freq(
    session: &mut Session<'_>,
    id: &Id,
    level: u32,
) -> Result<Result<(BaseFreq, CpuList), Code>, Ended> {
    let control = match feature_level(session, id, level)? {
        Ok(control) => control,
        Err(code) => return Ok(Err(code)),
    };
    if !control.features.base_freq {
        session.error(&format!("base-freq feature is not present at this level {level}"));
        return Ok(Err(FAILED));
    }
    let answer = session.at(id, |access, place| access.base_freq(place, level as u8));
    Ok(session.ask(answer)?.map(|base| (base, session.of_cores(id, base.cores))))
}

/// SST-TF of a level, with the checks and messages that come before.
pub(super) fn turbo_freq(
    session: &mut Session<'_>,
    id: &Id,
    level: u32,
    bucket: Option<u32>,
) -> Result<Result<TurboFreq, Code>, Ended> {
    let control = match feature_level(session, id, level)? {
        Ok(control) => control,
        Err(code) => return Ok(Err(code)),
    };
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
    let levels = match session.levels(id)? {
        Ok(levels) => levels,
        Err(code) => {
            session.error("Failed to get number of levels");
            return Ok(Err(code));
        }
    };
    if level > u32::from(levels.highest) {
        session.error(&format!("Invalid level {level}"));
        return Ok(Err(FAILED));
    }
    session.control(id, level as u8)
}

/// Whether the bucket asked for (or any) exists: buckets end at the first without cores.
fn has_bucket(turbo: &TurboFreq, bucket: Option<u32>, needs_cores: bool) -> bool {
    for (index, cores) in turbo.bucket_cores.iter().enumerate() {
        if bucket.is_some_and(|bucket| bucket != index as u32) {
            continue;
        }
        return *cores != 0 || !needs_cores;
    }
    false
}

/// `perf-profile info`.
pub(super) fn info(session: &mut Session<'_>, options: &Options) -> Result<(), Ended> {
    session.display.start();
    session.each(|session, id| {
        if session.is_bios_set() {
            return super::bios::info(session, id, options);
        }
        match read_levels(session, id, options.level)? {
            Ok(levels) => {
                show_levels(session, id, &levels);
                Ok(())
            }
            Err(_) => {
                session.error(&format!("Failed to get perf-profile info on cpu {}", id.cpu));
                session.display.finish();
                Err(Ended(1))
            }
        }
    })?;
    session.display.finish();
    Ok(())
}

fn read_levels(
    session: &mut Session<'_>,
    id: &Id,
    only: Option<u32>,
) -> Result<Result<Vec<LevelInfo>, Code>, Ended> {
    /// Takes an answer apart: the value goes on, a failure is this function's answer.
    macro_rules! answered {
        ($answer:expr) => {
            match $answer {
                Ok(value) => value,
                Err(code) => return Ok(Err(code)),
            }
        };
    }
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

/// A Skylake part without levels: what cpufreq and the turbo MSRs say.
fn without_levels(session: &mut Session<'_>, id: &Id, level: &mut LevelInfo) -> Result<(), Ended> {
    let base =
        session.number(false, &format!("/sys/devices/system/cpu/cpu{}/cpufreq/base_frequency", id.cpu))?;
    if base > 0 {
        level.data.base[0] = MegaHertz((base / 100_000 * 100) as u32);
        level.data.tdp_ratio = (base / 100_000) as u32;
    }
    let cpu = id.cpu.unsigned_abs();
    let limits = flyball_host::isst::legacy::read_msr(session.host, cpu, MSR_TURBO_RATIO_LIMIT);
    if let Ok(limits) = session.ask_msr(id, MSR_TURBO_RATIO_LIMIT, false, limits)? {
        level.limits[0] = limits.to_le_bytes().map(|ratio| MegaHertz(u32::from(ratio) * 100));
    }
    let buckets = session.at(id, |access, place| access.bucket_cores(place, level.number));
    level.buckets = session.ask_msr(id, MSR_TURBO_RATIO_LIMIT1, false, buckets)?.unwrap_or_default();
    Ok(())
}

/// Shows levels in one record. Without any, JSON closes what it did not open; scripts have seen that too.
pub(super) fn show_levels(session: &mut Session<'_>, id: &Id, levels: &[LevelInfo]) {
    if levels.is_empty() {
        session.display.end_record();
        return;
    }
    let cpus = session.domain_cpus(id).len();
    let shown = Shown {
        id: *id,
        cpus,
        room: session.map.room,
        kinds: session.access().turbo_kinds(),
        tpmi: session.platform.is_tpmi(),
        bios_set: session.is_bios_set(),
        plain_first: plain_first(session),
    };
    let mut bad_bucket = false;
    session.display.record(id, |lines| {
        for level in levels {
            lines.section(&format!("perf-profile-level-{}", level.number), |lines| {
                bad_bucket |= shown.level(lines, level);
            });
        }
    });
    if bad_bucket {
        session.warn("Invalid bucket\n");
    }
}

/// Whether the first turbo kind goes without its name: it was the only one once.
fn plain_first(session: &Session<'_>) -> bool {
    !session.platform.is_tpmi() && session.model.model != 0xcf
}

/// What the lines of a level need to know of the machine.
struct Shown {
    id: Id,
    cpus: usize,
    room: u32,
    kinds: &'static [&'static str],
    tpmi: bool,
    bios_set: bool,
    plain_first: bool,
}

fn state(supported: bool, on: bool) -> &'static str {
    match (supported, on) {
        (false, _) => "unsupported",
        (true, false) => "disabled",
        (true, true) => "enabled",
    }
}

impl Shown {
    /// The lines of one level; true where SST-TF has no bucket to show.
    fn level(&self, lines: &mut Lines<'_>, level: &LevelInfo) -> bool {
        if self.id.cpu >= 0 {
            lines.value("cpu-count", self.cpus);
            if let Some(cores) = &level.cores {
                if !cores.is_empty() {
                    lines.value("enable-cpu-count", cores.len());
                }
                lines.value("enable-cpu-mask", mask(cores, self.room));
                lines.value("enable-cpu-list", list(cores));
            }
        }
        let LevelData { tdp_ratio, base, uncore, second_uncore, memory, .. } = level.data;
        lines.value("thermal-design-power-ratio", tdp_ratio);
        let unit = if self.tpmi { 1 } else { 100 };
        let sse = if base[0].0 == 0 { tdp_ratio * unit } else { base[0].0 };
        lines.value("base-frequency(MHz)", sse);
        lines.value_unless_zero("base-frequency-avx2(MHz)", base[1].0);
        lines.value_unless_zero("base-frequency-avx512(MHz)", base[2].0);
        lines.value_unless_zero("uncore-frequency-min(MHz)", uncore[2].0);
        lines.value_unless_zero("uncore-frequency-max(MHz)", uncore[0].0);
        lines.value_unless_zero("base-frequency-amx(MHz)", base[3].0);
        lines.value_unless_zero("uncore-frequency-base(MHz)", uncore[1].0);
        lines.value_unless_zero("uncore-1-frequency-base(MHz)", second_uncore[1].0);
        lines.value_unless_zero("uncore-1-frequency-min(MHz)", second_uncore[2].0);
        lines.value_unless_zero("uncore-1-frequency-max(MHz)", second_uncore[0].0);
        lines.value_unless_zero("max-mem-frequency(MHz)", memory.0);
        if self.tpmi {
            lines.value("cooling_type", level.data.cooling);
        }
        let Control { features, core_power, core_power_on } = level.control;
        lines.value("speed-select-turbo-freq", state(features.turbo_freq, features.turbo_freq_on));
        lines.value("speed-select-base-freq", state(features.base_freq, features.base_freq_on));
        lines.value("speed-select-core-power", state(core_power, core_power_on));
        if self.bios_set {
            if features.base_freq {
                self.base_freq(lines, &level.base_freq);
            }
            return false;
        }
        lines.value_unless_zero("thermal-design-power(W)", level.data.tdp_w);
        lines.value_unless_zero("tjunction-max(C)", level.data.tjunction_c);
        for (kind, limits) in self.kinds.iter().zip(&level.limits) {
            if limits[0].0 == 0 {
                continue;
            }
            lines.section(&format!("turbo-ratio-limits-{kind}"), |lines| {
                for (index, limit) in limits.iter().enumerate() {
                    lines.section(&format!("bucket-{index}"), |lines| {
                        lines.value("core-count", level.buckets[index] & 0xff);
                        lines.value("max-turbo-frequency(MHz)", limit.0);
                    });
                }
            });
        }
        if features.base_freq {
            self.base_freq(lines, &level.base_freq);
        }
        features.turbo_freq && !self.turbo_freq(lines, &level.turbo_freq, None, None)
    }

    fn base_freq(&self, lines: &mut Lines<'_>, (base, high): &(BaseFreq, CpuList)) {
        lines.section("speed-select-base-freq-properties", |lines| {
            lines.value("high-priority-base-frequency(MHz)", base.high.0);
            lines.value("high-priority-cpu-mask", mask(high, self.room));
            lines.value("high-priority-cpu-list", list(high));
            lines.value("low-priority-base-frequency(MHz)", base.low.0);
            if !self.bios_set {
                lines.value("tjunction-temperature(C)", base.tjunction_c);
                lines.value("thermal-design-power(W)", base.tdp_w);
            }
        });
    }

    /// The lines of SST-TF; false, and none, where there is no bucket to show.
    fn turbo_freq(
        &self,
        lines: &mut Lines<'_>,
        turbo: &TurboFreq,
        bucket: Option<u32>,
        kinds: Option<u32>,
    ) -> bool {
        if !has_bucket(turbo, bucket, self.id.cpu >= 0) {
            return false;
        }
        let name = |kind: usize, which: &str| {
            if kind == 0 && self.plain_first {
                format!("{which}-priority-max-frequency(MHz)")
            } else {
                format!("{which}-priority-max-{}-frequency(MHz)", self.kinds[kind])
            }
        };
        lines.section("speed-select-turbo-freq-properties", |lines| {
            for (index, &cores) in turbo.bucket_cores.iter().enumerate() {
                if bucket.is_some_and(|bucket| bucket != index as u32) {
                    continue;
                }
                if cores == 0 {
                    break;
                }
                lines.section(&format!("bucket-{index}"), |lines| {
                    lines.value("high-priority-cores-count", cores);
                    for kind in 0..self.kinds.len() {
                        let wanted = kinds.is_none_or(|kinds| kinds >> kind & 1 != 0);
                        let limit = turbo.limits[kind][index].0;
                        if limit != 0 && wanted {
                            lines.value(&name(kind, "high"), limit);
                        }
                    }
                });
            }
            lines.section("speed-select-turbo-freq-clip-frequencies", |lines| {
                for kind in 0..self.kinds.len() {
                    lines.value_unless_zero(&name(kind, "low"), turbo.clip[kind].0);
                }
            });
        });
        true
    }
}

fn shown(session: &Session<'_>, id: &Id) -> Shown {
    Shown {
        id: *id,
        cpus: 0,
        room: session.map.room,
        kinds: session.access().turbo_kinds(),
        tpmi: session.platform.is_tpmi(),
        bios_set: session.is_bios_set(),
        plain_first: plain_first(session),
    }
}

/// The record of `base-freq info`.
pub(super) fn show_base_freq(session: &mut Session<'_>, id: &Id, base: &(BaseFreq, CpuList)) {
    let shown = shown(session, id);
    session.display.record(id, |lines| shown.base_freq(lines, base));
}

/// The record of `turbo-freq info`.
pub(super) fn show_turbo_freq(session: &mut Session<'_>, id: &Id, turbo: &TurboFreq, options: &Options) {
    let shown = shown(session, id);
    let mut good = true;
    session.display.record(id, |lines| good = shown.turbo_freq(lines, turbo, options.bucket, options.kinds));
    if !good {
        // The tool says so before the record's end, which is no line in text.
        session.warn("Invalid bucket\n");
        session.failed = true;
    }
}

/// `perf-profile set-config-level`.
pub(super) fn set_level(session: &mut Session<'_>, options: &Options) -> Result<(), Ended> {
    let Some(level) = options.level else {
        session.error("Invalid command: specify tdp_level");
        return Err(Ended(1));
    };
    session.display.start();
    session.each(|session, id| set_level_of(session, id, level, options))?;
    session.display.finish();
    Ok(())
}

fn set_level_of(session: &mut Session<'_>, id: &Id, level: u32, options: &Options) -> Result<(), Ended> {
    let Ok(levels) = session.levels(id)? else {
        session.error("Get TDP level failed");
        session.display.finish();
        return Err(Ended(1));
    };
    if u32::from(levels.current) != level && change(session, id, level)?.is_err() {
        session.error("Set TDP level failed");
        session.display.finish();
        return Err(Ended(1));
    }
    session.result(id, "perf-profile", "set_tdp_level", Ok(()));
    if options.online && id.cpu >= 0 {
        online::follow_level(session, id, level as u8)?;
    }
    Ok(())
}

fn change(session: &mut Session<'_>, id: &Id, level: u32) -> Result<Result<(), Code>, Ended> {
    // A number that does not fit the field would arrive as another.
    let Ok(number) = u8::try_from(level) else {
        if !session.platform.is_tpmi() {
            session.error(&format!("Set TDP level failed for level {level}"));
        }
        return Ok(Err(FAILED));
    };
    if session.platform.is_tpmi() {
        let answer = session.at(id, |access, place| access.set_level(place, number));
        return session.ask(answer);
    }
    let register = MSR_CONFIG_TDP_CONTROL;
    let lock = flyball_host::isst::legacy::read_msr(session.host, id.cpu.unsigned_abs(), register);
    let lock = session.ask_msr(id, register, false, lock)?;
    if lock.is_ok_and(|lock| lock >> 31 & 1 != 0) {
        session.error("TDP is locked");
        return Ok(Err(FAILED));
    }
    let answer = session.at(id, |access, place| access.set_level(place, number));
    let answer = session.ask(answer)?;
    if answer.is_err() {
        session.error(&format!("Set TDP level failed for level {level}"));
    }
    Ok(answer)
}
