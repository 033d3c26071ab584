//! Why a setting is refused before the first write.

use std::fmt;

use flyball_host::{CpuList, KiloHertz};

use super::absences::places;
use crate::{Evidence, Id, KnobName, Place, SelectError};

/// A setting that is refused. `from` is the setting as the user wrote it, or its line in the
/// profile.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "fields are named as in the messages")]
pub enum Refusal {
    /// The setting's CPU selector selects nothing.
    Selector { from: String, error: SelectError },
    /// The knob is machine-wide, and only some CPUs were selected.
    WholeMachine { from: String, knob: Id, cpus: CpuList, instead: Option<Alternative> },
    /// The knob has no instance of this name; it has these.
    NoInstance { from: String, name: KnobName, instances: Vec<String> },
    /// The value is not one that these places accept.
    Value { from: String, knob: Id, wanted: String, places: Vec<Place>, accepted: String, hint: Option<Hint> },
    /// intel_pstate cannot be switched off while HWP is on.
    DriverOffUnderHwp,
    /// With the driver off or disabled there are no policies.
    NoPolicies { from: String, mode: String },
    /// A governor that active mode does not have.
    GovernorOfActiveMode { from: String },
    /// A preference in a mode of amd-pstate that has none.
    PreferenceNeedsActiveMode { from: String },
    /// A preference that an active-mode driver refuses under governor performance.
    PreferenceUnderPerformance { from: String },
    /// A minimum above the maximum of the same intent.
    Crossed { low: Id, high: Id, lower: Side, upper: Side },
    /// A minimum above the present maximum, or the other way round.
    CrossesPresent { from: String, knob: Id, is_above: bool, other: Id, present: String, places: Vec<Place> },
    /// A speed under a governor that accepts none.
    SpeedNeedsUserspace { from: String, governor: String },
    /// Turbo that the firmware has switched off.
    TurboOffInFirmware { from: String, seen: Vec<Evidence> },
    /// A policy's boost while turbo is off.
    BoostUnderTurboOff { from: String },
    /// The level does not have the feature; these do.
    LevelLacksFeature { from: String, level: usize, place: Place, levels: Vec<usize> },
    /// Turbo-freq while turbo is off.
    TurboFreqNeedsTurbo { from: String },
    /// A feature together with core-power off.
    FeatureNeedsCorePower { from: String, place: Place },
    /// Core-power off while turbo-freq is on.
    CorePowerUnderTurboFreq { from: String, place: Place },
    /// Firmware has locked the level.
    LevelLocked { from: String, place: Place },
    /// A class whose minimum would be above its maximum.
    ClassRange { from: String, place: Place, min: KiloHertz, max: KiloHertz },
}

/// The knob or value to use for a part of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alternative {
    Knob(Id),
    MaxFreqBase,
}

/// A hint at what helps after a value is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// Turbo is off, which lowers the limit.
    TurboIsOff,
    /// Passive mode has the kernel's governors.
    PassiveMode,
}

/// One side of a pair of limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// The value as wanted.
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
        // Compared without their places, which may be hundreds: they are taken out, not copied.
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

impl fmt::Display for Refusal {
    #[expect(clippy::too_many_lines, reason = "one arm per refusal, each with its words")]
    // One arm per variant: the messages stand side by side.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Selector { from, error } => write!(f, "{from}: {error}"),
            Refusal::WholeMachine { from, knob, cpus, instead } => {
                write!(f, "{from}: {knob} applies to the whole machine and cannot be set for CPUs {cpus} only")?;
                match instead {
                    Some(Alternative::Knob(knob)) => write!(f, "; '{knob}' can be set for some CPUs"),
                    Some(Alternative::MaxFreqBase) => f.write_str("; max-freq=base keeps some CPUs out of turbo"),
                    None => Ok(()),
                }
            }
            Refusal::NoInstance { from, name, instances } => {
                write!(f, "{from}: this machine has no {name}; it has ")?;
                super::write_list(f, instances, ", ")
            }
            Refusal::Value { from, knob, wanted, places: at, accepted, hint } => {
                // An argument already names the knob and the value; a line of a profile does not.
                if from.starts_with(&format!("{knob}=")) {
                    f.write_str(from)?;
                } else {
                    write!(f, "{from}: {knob}={wanted}")?;
                }
                write!(f, " is not possible on {}: {accepted}", places(&at.iter().collect::<Vec<_>>()))?;
                match hint {
                    Some(Hint::TurboIsOff) => f.write_str(" (turbo is off)"),
                    Some(Hint::PassiveMode) => f.write_str("; driver-mode=passive has the kernel's governors"),
                    None => Ok(()),
                }
            }
            Refusal::DriverOffUnderHwp => f.write_str(
                "driver-mode=off: intel_pstate cannot be switched off while hardware P-states (HWP) are on (EBUSY); \
                 boot with intel_pstate=no_hwp, or with intel_pstate=disable for another driver",
            ),
            Refusal::NoPolicies { from, mode } => {
                write!(f, "{from}: with driver-mode={mode} there are no policies")
            }
            Refusal::GovernorOfActiveMode { from } => {
                write!(f, "{from}: in driver-mode=active the governors are performance and powersave")
            }
            Refusal::PreferenceNeedsActiveMode { from } => {
                write!(f, "{from}: amd-pstate has a preference only in driver-mode=active")
            }
            Refusal::PreferenceUnderPerformance { from } => write!(
                f,
                "{from}: under governor performance the driver refuses every preference except performance (EBUSY); \
                 set governor=powersave as well"
            ),
            Refusal::Crossed { low, high, lower, upper } => write!(
                f,
                "{low} {} is above {high} {} ({}, {})",
                lower.wanted, upper.wanted, lower.from, upper.from
            ),
            Refusal::CrossesPresent { from, knob, is_above, other, present, places: at } => {
                let side = if *is_above { "above" } else { "below" };
                let places = places(&at.iter().collect::<Vec<_>>());
                write!(
                    f,
                    "{from}: {knob} would be {side} the present {other} ({present}) of {places}; set {other} as well"
                )
            }
            Refusal::SpeedNeedsUserspace { from, governor } => write!(
                f,
                "{from}: only the userspace governor accepts a speed, and the governor is {governor}; set \
                 governor=userspace as well"
            ),
            Refusal::TurboOffInFirmware { from, seen } => {
                write!(f, "{from}: the firmware has turbo switched off, or the processor has none (")?;
                super::write_list(f, seen, "; ")?;
                f.write_str("); switch it on in the BIOS setup")
            }
            Refusal::BoostUnderTurboOff { from } => {
                write!(f, "{from}: a policy cannot boost while turbo is off (EINVAL); set turbo=on as well")
            }
            Refusal::LevelLacksFeature { from, level, place, levels } => {
                write!(f, "{from}: level {level} of {place} does not have it; ")?;
                if levels.is_empty() {
                    return f.write_str("no level has it");
                }
                f.write_str("levels with it: ")?;
                super::write_list(f, levels, ", ")
            }
            Refusal::TurboFreqNeedsTurbo { from } => {
                write!(f, "{from}: turbo-freq needs turbo, which is off; set turbo=on as well")
            }
            Refusal::FeatureNeedsCorePower { from, place } => {
                write!(f, "{from}: it needs classes of service, and sst-cp=off is set for {place} as well")
            }
            Refusal::CorePowerUnderTurboFreq { from, place } => {
                write!(f, "{from}: turbo-freq of {place} is on and needs core-power; set sst-tf=off as well")
            }
            Refusal::LevelLocked { from, place } => write!(
                f,
                "{from}: firmware has locked the level of {place}; unlock it in the BIOS setup (dynamic SST-PP)"
            ),
            Refusal::ClassRange { from, place, min, max } => {
                write!(f, "{from}: the minimum {min} of {place} would be above its maximum {max}")
            }
        }
    }
}
