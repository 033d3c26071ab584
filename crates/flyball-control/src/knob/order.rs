//! The order in which locations are written, which follows the kernel's dependencies.
//!
//! Planning and restoring use the same order. Each row of the knob table, and each auxiliary
//! location, states its [`Turn`]. The journal stores the step with each entry, so that restoring
//! needs no table.

use derive_more::Display;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray as _;

/// The steps of a change, in the order in which they are made. Their names are part of the
/// journal's format.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    JsonSchema,
    Serialize,
    Deserialize,
    Display,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// The driver and its mode. A change recreates everything below.
    #[display("driver mode")]
    DriverMode,
    /// Speed Select: base-freq and turbo-freq switched off, before the settings that they depend on
    /// change.
    #[display("base-freq and turbo-freq off")]
    SpeedSelectOff,
    /// Speed Select: the performance level, which determines the CPUs that may run.
    #[display("performance level")]
    Level,
    /// CPUs brought online, and SMT. Their policies can be written only after that.
    #[display("CPUs online")]
    Online,
    /// Speed Select: classes of service, and the class of each core.
    #[display("classes of service")]
    Classes,
    /// Speed Select: the switch that puts classes into effect.
    #[display("core-power")]
    CorePower,
    /// Speed Select: base-freq and turbo-freq switched on.
    #[display("base-freq and turbo-freq on")]
    SpeedSelectOn,
    /// Maxima at or below the base frequency, before turbo goes off. After that, the file shows the
    /// base frequency whatever was requested.
    #[display("limits that outlast turbo")]
    LowLimit,
    /// Turbo and boost: they move the hardware limits that frequency limits are checked against.
    /// This step follows Speed Select, because intel_pstate reads the base frequencies for turbo
    /// off at the moment of the switch (since kernel 6.12).
    #[display("turbo")]
    Turbo,
    /// The governor: it resets preferences and makes its tunables appear.
    #[display("governor")]
    Governor,
    /// Settings that belong to the governor: its tunables, and the speed that `userspace` holds.
    #[display("governor's tunables")]
    Tunable,
    /// Energy preferences: EPP and EPB.
    #[display("preference")]
    Preference,
    /// Frequency and performance limits.
    #[display("limits")]
    Limit,
    /// Idle states and latency limits.
    #[display("idle states and latency")]
    Idle,
    /// Uncore frequency and power limits.
    #[display("uncore and power")]
    Power,
    /// CPUs taken offline: last, because a policy without CPUs can no longer be written.
    #[display("CPUs offline")]
    Offline,
}

impl Step {
    /// All steps in order.
    pub const ALL: &[Step] = Step::VARIANTS;
}

/// Returns whether a change of the driver's mode leaves the policies as they are: between passive
/// and guided amd-pstate only switches autonomous selection
/// (amd_pstate_change_mode_without_dvr_change in amd-pstate.c).
pub fn keeps_policies(old: &str, new: &str) -> bool {
    let is_kept = |mode: &str| matches!(mode.trim(), "passive" | "guided");
    old.trim() == new.trim() || (is_kept(old) && is_kept(new))
}

/// The step in which a location is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Always in this step.
    In(Step),
    /// A step that depends on the value: a CPU comes online before everything else, and goes
    /// offline after it.
    Switch {
        /// The step of `0`, `off`, `forceoff` and `none`.
        off: Step,
        /// The step of everything else.
        on: Step,
    },
}

impl Turn {
    /// Returns the step in which the location gets the content `new`.
    pub fn step(self, new: &str) -> Step {
        match self {
            Turn::In(step) => step,
            // `none` and `ready` are contents of CPU sets, which take no CPU offline.
            Turn::Switch { off, on } => match new.trim() {
                // The words for off that the files of CPU hotplug, SMT, base-freq and turbo-freq
                // print or accept.
                "0" | "off" | "forceoff" | "n" | "N" | "none" | "ready" => off,
                _ => on,
            },
        }
    }

    /// Returns the step under which the knob is listed.
    pub fn listed(self) -> Step {
        match self {
            Turn::In(step) => step,
            // The earlier of the two: an ordered list shows the knob at the first step that may
            // write it.
            Turn::Switch { off, on } => off.min(on),
        }
    }
}

/// Which end of a range a location holds, if two locations form one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Not the end of a range.
    #[default]
    None,
    Lower,
    Upper,
}

impl Bound {
    pub(crate) fn is_none(&self) -> bool {
        *self == Bound::None
    }

    /// Returns the position of a write within its step. A rising maximum goes before minima, a
    /// falling maximum after them, so that minimum and maximum never cross. If they did, some files
    /// (min_perf_pct and max_perf_pct) would clamp silently. Frequency limits would recover later,
    /// but a reader in between would see the wrong value.
    pub fn rank(self, old: &str, new: &str) -> u8 {
        if self != Bound::Upper {
            return 1;
        }
        match (old.trim().parse::<u64>(), new.trim().parse::<u64>()) {
            (Ok(old), Ok(new)) if new < old => 2,
            // Treat an unknown change as rising: a range that is too wide for a moment is harmless,
            // but a crossed pair is clamped.
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::subject::Subject;

    fn step(path: &str, new: &str) -> Step {
        let location = crate::Location::file(format!("{}/{path}", flyball_host::topology::CPUS));
        Subject::from_location(&location).unwrap().handling(new).unwrap().step
    }

    #[test]
    fn every_kind_of_file_has_its_step() {
        assert_eq!(step("amd_pstate/status", "active"), Step::DriverMode);
        assert_eq!(step("cpu3/online", "1\n"), Step::Online);
        assert_eq!(step("cpu3/online", "0\n"), Step::Offline);
        assert_eq!(step("smt/control", "off"), Step::Offline);
        assert_eq!(step("cpufreq/policy3/boost", "0"), Step::Turbo);
        assert_eq!(step("cpufreq/schedutil/rate_limit_us", "10"), Step::Tunable);
        assert_eq!(step("cpufreq/policy0/ondemand/up_threshold", "10"), Step::Tunable);
        assert_eq!(step("cpu0/power/energy_perf_bias", "6"), Step::Preference);
        assert_eq!(step("intel_pstate/max_perf_pct", "6"), Step::Limit);
        assert_eq!(step("cpu0/cpuidle/state2/disable", "1"), Step::Idle);
        assert_eq!(step("intel_uncore_frequency/package_00_die_00/max_freq_khz", "800000"), Step::Power);
        let bias = crate::Location::Msr { cpu: 0, register: 0x1b0, mask: 15 };
        assert_eq!(Subject::from_location(&bias).unwrap().handling("0x6").unwrap().step, Step::Preference);
    }

    #[test]
    fn maxima_rise_first_and_fall_last() {
        assert!(Bound::Upper.rank("1000", "2000") < Bound::Lower.rank("1", "2"));
        assert!(Bound::Upper.rank("2000", "1000\n") > Bound::Lower.rank("1", "2"));
    }
}
