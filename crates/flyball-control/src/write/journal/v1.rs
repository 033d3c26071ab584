//! Journals of format 1, which flyball 0.1.0 wrote: entries have no step and spelling, and `spot`
//! instead of a location.
//!
//! Step and spelling are derived from the names of the files that flyball 0.1.0 wrote, and only for
//! its journals. Nothing here is to be extended for a new knob: format 2 stores both.

use flyball_sst::setting::Field;
use serde::Deserialize;

use super::record::{Purpose, Record};
use crate::{
    Content, Location,
    knob::{
        order::{Bound, Step},
        spelling::{Handling, Spelling},
    },
    table::pattern::GOVERNORS,
};

/// Derives the purpose of a transaction of flyball 0.1.0, which recorded only its command line.
pub(super) fn purpose(command: &str) -> Option<Purpose> {
    let words: Vec<&str> = command.split_whitespace().collect();
    words.windows(2).any(|pair| pair == ["quiet", "on"]).then_some(Purpose::QuietOn)
}

/// The records that format 2 changed.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RecordV1 {
    Was {
        spot: Location,
        content: Content,
        #[serde(default)]
        late: bool,
    },
    Write {
        spot: Location,
        old: Content,
        new: Content,
    },
}

/// Parses a line of format 1.
pub(super) fn record(json: &[u8]) -> Option<Record> {
    Some(match serde_json::from_slice(json).ok()? {
        RecordV1::Was { spot: location, content, late } => {
            let handling = handling(&location, content.trimmed());
            Record::Was { location, content, handling, late, lost: false, seen_late: false }
        }
        RecordV1::Write { spot: location, old, new } => {
            let handling = handling(&location, old.trimmed());
            Record::Write { location, old, new, handling, kept: false }
        }
    })
}

/// Returns how flyball 0.1.0 wrote `content` back at `location`.
fn handling(location: &Location, content: &str) -> Handling {
    let name = match location {
        Location::File(path) => path.rsplit('/').next().unwrap_or_default(),
        Location::SpeedSelect(setting) => setting.field.name(),
        Location::Partition(_) | Location::Msr { .. } | Location::Command(_) => "",
    };
    let bound = match name {
        // A minimum ranks as a file without a pair does (`Bound::rank`): only maxima have to be
        // known.
        "scaling_max_freq" | "max_perf_pct" | "max_freq_khz" | "clos-max" => Bound::Upper,
        _ => Bound::None,
    };
    Handling { step: step(location, content), spelling: spelling(location, name), bound }
}

fn step(location: &Location, new: &str) -> Step {
    let path = match location {
        Location::File(path) => path,
        Location::SpeedSelect(setting) => return speed_select(setting.field, new),
        Location::Partition(_) => return Step::Idle,
        // It knew no commands.
        Location::Command(_) => return Step::Power,
        // The only register that it wrote was IA32_ENERGY_PERF_BIAS.
        Location::Msr { .. } => return Step::Preference,
    };
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = folder.rsplit('/').next().unwrap_or_default();
    // The step depends on the content: 0 in `online` takes the CPU offline, 1 brings it online.
    let off = |word: &str| matches!(word.trim(), "0" | "off" | "forceoff" | "n" | "N");
    match name {
        "cgroup.subtree_control" => Step::Offline,
        "status" | "dynamic_epp" => Step::DriverMode,
        "online" | "control" if off(new) => Step::Offline,
        "online" | "control" => Step::Online,
        "no_turbo" | "boost" | "cpb" => Step::Turbo,
        "scaling_governor" => Step::Governor,
        "scaling_setspeed" => Step::Tunable,
        "energy_performance_preference" | "energy_perf_bias" | "hwp_dynamic_boost" | "energy_efficiency" => {
            Step::Preference
        }
        "scaling_min_freq"
        | "scaling_max_freq"
        | "min_perf_pct"
        | "max_perf_pct"
        | "amd_pstate_floor_freq" => Step::Limit,
        "disable" | "pm_qos_resume_latency_us" | "current_governor" | "intel_c1_demotion" => Step::Idle,
        _ if GOVERNORS.contains(&parent) => Step::Tunable,
        _ => Step::Power,
    }
}

fn speed_select(field: Field, new: &str) -> Step {
    match field {
        Field::Level | Field::Highest | Field::Locked => Step::Level,
        Field::BaseFreq | Field::TurboFreq if new.trim() == "0" => Step::SpeedSelectOff,
        Field::BaseFreq | Field::TurboFreq => Step::SpeedSelectOn,
        Field::CorePower | Field::Priority => Step::CorePower,
        Field::TurboLimits => Step::Turbo,
        Field::Partition if matches!(new.trim(), "none" | "ready") => Step::Online,
        Field::Partition => Step::Offline,
        _ => Step::Classes,
    }
}

fn spelling(location: &Location, name: &str) -> Spelling {
    if location.path().is_some_and(|path| path.starts_with("/proc/irq/")) {
        return Spelling::Interrupt;
    }
    match name {
        "energy_performance_preference" => Spelling::Preference,
        "cgroup.subtree_control" => Spelling::CpusetController,
        "scaling_governor" => Spelling::AnyCase,
        "scaling_setspeed" => Spelling::Speed,
        "scaling_min_freq" | "scaling_max_freq" => Spelling::FrequencyLimit,
        "energy_perf_bias" => Spelling::Bias,
        "boost" | "cpb" | "no_turbo" | "online" | "disable" | "hwp_dynamic_boost" | "energy_efficiency"
        | "dynamic_epp" => Spelling::Switch,
        "elc_low_threshold_percent" | "elc_high_threshold_percent" => Spelling::PercentOf127,
        "trl" => Spelling::Hexadecimal,
        "control" => Spelling::SmtControl,
        _ => Spelling::Number,
    }
}
