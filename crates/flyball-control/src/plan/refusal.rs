//! Why a setting is refused before the first write.

use flyball_host::{CpuList, KiloHertz};

use super::{absences, list};
use crate::{Evidence, Id, KnobName, Place, SelectError};

/// A setting that is refused. `from` is the setting as the user wrote it, or its line in the
/// profile.
#[derive(Debug, Clone, PartialEq, derive_more::Display)]
#[allow(missing_docs, reason = "fields are named as in the messages")]
pub enum Refusal {
    /// The setting's CPU selector selects nothing.
    #[display("{from}: {error}")]
    Selector { from: String, error: SelectError },
    /// The knob is machine-wide, and only some CPUs were selected.
    #[display(
        "{from}: {knob} applies to the whole machine and cannot be set for CPUs {cpus} only{}",
        instead.map(|other| other.to_string()).unwrap_or_default()
    )]
    WholeMachine { from: String, knob: Id, cpus: CpuList, instead: Option<Alternative> },
    /// The knob has no instance of this name, but has `instances`.
    #[display("{from}: this machine has no {name}; it has {}", list(instances, ", "))]
    NoInstance { from: String, name: KnobName, instances: Vec<String> },
    /// These places do not accept the value.
    #[display(
        "{} is not possible on {}: {accepted}{}",
        setting(from, *knob, wanted),
        absences::places(&places.iter().collect::<Vec<_>>()),
        hint.map(|hint| hint.to_string()).unwrap_or_default()
    )]
    Value { from: String, knob: Id, wanted: String, places: Vec<Place>, accepted: String, hint: Option<Hint> },
    /// intel_pstate cannot be switched off while HWP is on.
    #[display(
        "driver-mode=off: intel_pstate cannot be switched off while hardware P-states (HWP) are on \
         (EBUSY); boot with intel_pstate=no_hwp, or with intel_pstate=disable for another driver"
    )]
    DriverOffUnderHwp,
    /// With the driver off or disabled there are no policies.
    #[display("{from}: with driver-mode={mode} there are no policies")]
    NoPolicies { from: String, mode: String },
    /// A governor that does not exist in active mode.
    #[display("{from}: in driver-mode=active the governors are performance and powersave")]
    GovernorOfActiveMode { from: String },
    /// A preference in a mode of amd-pstate without preferences.
    #[display("{from}: amd-pstate has a preference only in driver-mode=active")]
    PreferenceNeedsActiveMode { from: String },
    /// A preference that an active-mode driver refuses under governor performance.
    #[display(
        "{from}: under governor performance the driver refuses every preference except performance \
         (EBUSY); set governor=powersave as well"
    )]
    PreferenceUnderPerformance { from: String },
    /// A minimum above the maximum of the same intent.
    #[display("{low} {} is above {high} {} ({}, {})", lower.wanted, upper.wanted, lower.from, upper.from)]
    Crossed { low: Id, high: Id, lower: Side, upper: Side },
    /// A minimum above the present maximum, or vice versa.
    #[display(
        "{from}: {knob} would be {} the present {other} ({present}) of {}; set {other} as well",
        if *is_above { "above" } else { "below" },
        absences::places(&places.iter().collect::<Vec<_>>())
    )]
    CrossesPresent { from: String, knob: Id, is_above: bool, other: Id, present: String, places: Vec<Place> },
    /// A speed under a governor that accepts none.
    #[display(
        "{from}: only the userspace governor accepts a speed, and the governor is {governor}; set \
         governor=userspace as well"
    )]
    SpeedNeedsUserspace { from: String, governor: String },
    /// Turbo that the firmware has switched off.
    #[display(
        "{from}: the firmware has turbo switched off, or the processor has none ({}); switch it on in the \
         BIOS setup",
        list(seen, "; ")
    )]
    TurboOffInFirmware { from: String, seen: Vec<Evidence> },
    /// Turbo on a processor without turbo.
    #[display("{from}: the processor has no frequency above its nominal one ({})", list(seen, "; "))]
    NoTurbo { from: String, seen: Vec<Evidence> },
    /// A policy's boost while turbo is off.
    #[display("{from}: a policy cannot boost while turbo is off (EINVAL); set turbo=on as well")]
    BoostUnderTurboOff { from: String },
    /// The level lacks the feature, which `levels` have.
    #[display("{from}: level {level} of {place} does not have it; {}", levels_with(levels))]
    LevelLacksFeature { from: String, level: usize, place: Place, levels: Vec<usize> },
    /// Turbo-freq while turbo is off.
    #[display("{from}: turbo-freq needs turbo, which is off; set turbo=on as well")]
    TurboFreqNeedsTurbo { from: String },
    /// A feature together with core-power off.
    #[display("{from}: it needs classes of service, and sst-cp=off is set for {place} as well")]
    FeatureNeedsCorePower { from: String, place: Place },
    /// Core-power off while turbo-freq is on.
    #[display("{from}: turbo-freq of {place} is on and needs core-power; set sst-tf=off as well")]
    CorePowerUnderTurboFreq { from: String, place: Place },
    /// Firmware has locked the level.
    #[display(
        "{from}: firmware has locked the level of {place}; unlock it in the BIOS setup (dynamic SST-PP)"
    )]
    LevelLocked { from: String, place: Place },
    /// A class whose minimum would be above its maximum.
    #[display("{from}: the minimum {min} of {place} would be above its maximum {max}")]
    ClassRange { from: String, place: Place, min: KiloHertz, max: KiloHertz },
}

/// The knob or value to use for a part of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum Alternative {
    #[display("; '{_0}' can be set for some CPUs")]
    Knob(Id),
    #[display("; max-freq=base keeps some CPUs out of turbo")]
    MaxFreqBase,
}

/// Advice after a refused value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum Hint {
    /// Turbo is off, which lowers the limit.
    #[display(" (turbo is off)")]
    TurboIsOff,
    /// Passive mode has the kernel's governors.
    #[display("; driver-mode=passive has the kernel's governors")]
    PassiveMode,
}

/// One side of a pair of limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// The wanted value.
    pub wanted: String,
    pub from: String,
}

impl Refusal {
    /// Returns the settings that it is about, as the user wrote them.
    pub fn settings(&self) -> Vec<&str> {
        match self {
            Refusal::DriverOffUnderHwp => Vec::new(),
            Refusal::Crossed { lower, upper, .. } => vec![&lower.from, &upper.from],
            Refusal::Selector { from, .. }
            | Refusal::WholeMachine { from, .. }
            | Refusal::NoInstance { from, .. }
            | Refusal::Value { from, .. }
            | Refusal::NoPolicies { from, .. }
            | Refusal::GovernorOfActiveMode { from }
            | Refusal::PreferenceNeedsActiveMode { from }
            | Refusal::PreferenceUnderPerformance { from }
            | Refusal::CrossesPresent { from, .. }
            | Refusal::SpeedNeedsUserspace { from, .. }
            | Refusal::TurboOffInFirmware { from, .. }
            | Refusal::NoTurbo { from, .. }
            | Refusal::BoostUnderTurboOff { from }
            | Refusal::LevelLacksFeature { from, .. }
            | Refusal::TurboFreqNeedsTurbo { from }
            | Refusal::FeatureNeedsCorePower { from, .. }
            | Refusal::CorePowerUnderTurboFreq { from, .. }
            | Refusal::LevelLocked { from, .. }
            | Refusal::ClassRange { from, .. } => vec![from],
        }
    }

    /// Adds the places of `other` if both are about the same setting and differ only in the places.
    pub(super) fn join(&mut self, other: &Refusal) -> bool {
        // Compare without the places. There may be hundreds, so move them out instead of copying.
        let mut theirs = other.clone();
        let (Some(places), Some(more)) = (self.places(), theirs.places()) else { return false };
        let (mut own, more) = (std::mem::take(places), std::mem::take(more));
        let is_same = *self == theirs;
        if is_same {
            own.extend(more.into_iter().filter(|place| !own.contains(place)).collect::<Vec<_>>());
        }
        if let Some(places) = self.places() {
            *places = own;
        }
        is_same
    }

    fn places(&mut self) -> Option<&mut Vec<Place>> {
        match self {
            Refusal::Value { places, .. } | Refusal::CrossesPresent { places, .. } => Some(places),
            _ => None,
        }
    }
}

/// The setting of a knob. An argument already names the knob and the value; a line of a profile
/// does not.
fn setting(from: &str, knob: Id, wanted: &str) -> String {
    if from.starts_with(&format!("{knob}=")) { from.to_owned() } else { format!("{from}: {knob}={wanted}") }
}

fn levels_with(levels: &[usize]) -> String {
    if levels.is_empty() {
        return "no level has it".to_owned();
    }
    format!("levels with it: {}", list(levels, ", "))
}
