//! Notes in a plan, besides its changes.

use std::fmt;

use flyball_host::{CpuList, KiloHertz};
use serde::{Serialize, Serializer};

use super::{Absence, Refusal, list};
use crate::{Evidence, Id, Place, Value, Vendor, Wanted};

/// A note about a plan, with its evidence.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema)]
#[schemars(with = "String")]
pub struct Note {
    pub remark: Remark,
    pub evidence: Vec<Evidence>,
}

/// The message of a note. `from` is the setting as the user wrote it.
#[derive(Debug, Clone, PartialEq, derive_more::Display)]
#[allow(missing_docs, reason = "fields are named as in the messages")]
pub enum Remark {
    /// A place has more CPUs than the selected ones.
    #[display("{from}: {place} has CPUs {}, so it is set for all of them", place.cpus)]
    SpansMore { from: String, place: Place },
    /// CPUs are offline and are not changed.
    #[display("{knob}: CPUs {} are offline and are not changed", cpus.short())]
    Offline { knob: Id, cpus: CpuList },
    /// CPUs are online, but the driver made no policy for them.
    #[display(
        "{knob}: CPUs {} have no cpufreq policy, so it is not set there (the kernel log may say why the \
         driver failed)", cpus.short()
    )]
    WithoutPolicy { knob: Id, cpus: CpuList },
    /// A governor that the kernel loads when its name is written.
    #[display("governor {governor} is not loaded; writing its name makes the kernel load it")]
    LoadsGovernor { governor: Value },
    /// The driver is switched off or disabled.
    #[display("driver-mode={mode}: no frequency driver remains; none takes over before the next boot")]
    NoDriverLeft { mode: String },
    /// A switch of the driver's mode makes new policies.
    #[display(
        "driver-mode={mode}: the driver recreates every policy; governors, preferences and limits that are \
         not set here get its defaults, and the rest is planned again after the switch ('flyball restore' \
         undoes all of it)"
    )]
    DriverModeResets { mode: String },
    /// A switch of the driver's mode removes policies that cannot be read because their CPUs are
    /// offline.
    #[display(
        "driver-mode={mode}: CPUs {cpus} are offline; the driver removes their policies and the settings \
         in them. These settings cannot be read now, so 'flyball restore' cannot restore them; bring the \
         CPUs online first ('flyball set online=on')"
    )]
    DriverModeLoses { mode: String, cpus: CpuList },
    /// Governor performance forces the preference.
    #[display(
        "while the governor is performance, the driver forces epp to performance and pins the minimum to \
         the maximum; the present epp comes back with the governor when flyball restores it"
    )]
    PerformanceForcesPreference,
    /// A maximum below the present minimum.
    #[display("{from}: below the present {low}; until that is lowered, the kernel uses it for both")]
    MaximumBelowMinimum { from: String, low: Id },
    #[display(
        "turbo=off: max-freq falls to the base (nominal) frequency, and so does hw-max-freq, with \
         intel_pstate since kernel 6.12"
    )]
    TurboOffLowersLimits,
    /// A maximum that is cut because the same intent switches turbo off.
    #[display("{from}: with turbo off it is {cap}; the limit is not kept, so set it again after turbo=on")]
    AboveTurboOff { from: String, cap: KiloHertz },
    /// A maximum that does not bound boost, because the driver boosts above its table.
    #[display(
        "{from}: turbo is on, and this driver's boost goes above that frequency; add turbo=off to bound it"
    )]
    BoostGoesAbove { from: String },
    /// A share of the highest frequency that is below the base frequency.
    #[display(
        "{from}: at most {limit}, which is below the base frequency of {base}{}",
        boosts_from.map(next_entry).unwrap_or_default()
    )]
    ShareBelowBase {
        from: String,
        limit: KiloHertz,
        base: KiloHertz,
        /// The last entry of the driver's table, if the limit had to stay below it.
        boosts_from: Option<KiloHertz>,
    },
    /// CPUs with different base frequencies.
    #[display(
        "{from}: not one frequency, because the CPUs have different base frequencies: {}",
        list(bases, ", ")
    )]
    SeveralBases { from: String, bases: Vec<KiloHertz> },
    /// The firmware's limit is below the wanted limit.
    #[display(
        "{from}: the firmware allows {limit} at most, whatever is set; once its limit is gone, set this \
         again"
    )]
    FirmwareLimits { from: String, limit: Value },
    /// A percentage of intel_pstate is narrower than the wanted limit.
    #[display("{from}: the kernel keeps {limit}, because {percentage} counts as well")]
    PercentageLimits { from: String, percentage: Id, limit: Value },
    /// SMT siblings with a higher maximum.
    #[display(
        "{from}: CPUs {} share cores with these CPUs and may ask for more; a core runs at the highest \
         request of its threads, so set them as well",
        siblings.short()
    )]
    SiblingsAskForMore { from: String, siblings: CpuList },
    /// Turbo that the firmware has switched off in some packages.
    #[display(
        "{from}: the firmware has turbo off, so cores stay at the base frequency on package {}",
        list(packages, ", ")
    )]
    TurboOffInFirmware { from: String, packages: Vec<u32> },
    /// The processor has both hints.
    #[display(
        "{from}: this processor also has epp, which steers the cores' frequency; epb still affects package \
         power decisions, so set both to the same"
    )]
    BothHints { from: String },
    /// A latency limit that every idle state keeps anyway.
    #[display("{from}: no idle state here takes longer to wake from, so it changes nothing")]
    NoSlowerState { from: String },
    /// The cost of a level or a feature of Speed Select.
    #[display("{from} on {place}: {cost}")]
    Cost { from: String, place: Place, cost: String },
    /// A feature that a change of level switches off.
    #[display("{from}: {feature} of {place} is on and goes off with the level; restore switches it on again")]
    FeatureGoesOff { from: String, feature: &'static str, place: Place },
    /// CPUs outside the level that the plan leaves online.
    #[display(
        "{from}: the level's base frequency holds only with CPUs {cpus} offline or set apart, and this \
         plan leaves them online ('flyball sst perf-profile set-config-level' includes them with -o or \
         --cgroup)"
    )]
    CpusStayOnline { from: String, cpus: CpuList },
    /// Classes of service while core-power is off.
    #[display("{from}: classes of service have no effect while core-power is off; set sst-cp=on")]
    ClassesNeedCorePower { from: String },
    /// cpufreq limits some CPUs of a power domain.
    #[display(
        "{from}: cpufreq limits {cpus} of the CPUs of {place} to {limit}; if a class allows more, the \
         limit of cpufreq applies"
    )]
    LimitedByCpufreq { from: String, place: Place, cpus: u32, limit: KiloHertz },
    /// An optional setting that the machine cannot have.
    #[display("left out: {because}")]
    LeftOut { because: Obstacle },
    /// Optional settings of knobs that only this vendor's processors have, by the setting's name.
    #[display(
        "left out, on {vendor} processors only: {}",
        list(&settings.iter().map(|(from, knob)| format!("{knob} ({from})")).collect::<Vec<_>>(), ", ")
    )]
    OfOtherVendor { vendor: Vendor, settings: Vec<(String, Id)> },
    /// The machine accepts only a later value of a list.
    #[display("{knob}={chosen} is set, because {because}")]
    Instead { knob: Id, chosen: Wanted, because: Obstacle },
    /// More notes of the same kinds.
    #[display("(and {_0} more like these)")]
    More(usize),
}

/// The obstacle to a setting.
#[derive(Debug, Clone, PartialEq, derive_more::Display)]
pub enum Obstacle {
    Refused(Refusal),
    Absent(Absence),
}

impl Obstacle {
    /// Returns the settings that it is about, as the user wrote them.
    pub fn settings(&self) -> Vec<&str> {
        match self {
            Obstacle::Refused(refusal) => refusal.settings(),
            Obstacle::Absent(absence) => absence.settings().into_iter().collect(),
        }
    }
}

fn next_entry(entry: KiloHertz) -> String {
    format!(": a limit of {entry}, the driver's next, would not keep it from boosting")
}

impl Note {
    /// Returns whether it reports the choice for an optional setting or a list of values.
    pub fn is_choice(&self) -> bool {
        matches!(self.remark, Remark::LeftOut { .. } | Remark::OfOtherVendor { .. } | Remark::Instead { .. })
    }

    /// Returns whether it names CPUs on which a setting is not set.
    pub fn leaves_cpus_out(&self) -> bool {
        matches!(self.remark, Remark::Offline { .. } | Remark::WithoutPolicy { .. })
    }
}

/// The words, and the evidence in brackets.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remark.fmt(f)?;
        for (number, evidence) in self.evidence.iter().enumerate() {
            write!(f, "{}{evidence}", if number == 0 { " [" } else { "; " })?;
        }
        f.write_str(if self.evidence.is_empty() { "" } else { "]" })
    }
}

impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
