//! The order in which locations are written, by what the kernel does with them.
//!
//! Both directions use it: a plan's changes are made in this order, and what was journaled is put back in it. The
//! order is by path alone, because a journal must be put back by a flyball that may know other knobs than the one
//! that wrote it.

use flyball_sst::setting::Field;

use crate::Location;

/// The steps of a change, in the order in which they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Which driver works, and how: everything below is made anew by it.
    DriverMode,
    /// Speed Select: base-freq and turbo-freq switched off, before what they stand on changes.
    SpeedSelectOff,
    /// Speed Select: the performance level, which says which CPUs there may be.
    Level,
    /// CPUs brought online, and SMT: their policies can be written only then.
    Online,
    /// Turbo and boost: they move the hardware limits that frequency limits are checked against.
    Turbo,
    /// Speed Select: classes of service, and which core is in which.
    Classes,
    /// Speed Select: whether classes count.
    CorePower,
    /// Speed Select: base-freq and turbo-freq switched on.
    SpeedSelectOn,
    /// The governor: it resets preferences and makes its tunables appear.
    Governor,
    /// What belongs to the governor: its tunables, the speed that `userspace` holds.
    Tunable,
    /// Energy preferences: EPP and EPB.
    Preference,
    /// Frequency and performance limits.
    Limit,
    /// Idle states and latency limits.
    Idle,
    /// Uncore frequency and power limits.
    Power,
    /// CPUs taken offline: last, because a policy without CPUs can no longer be written.
    Offline,
}

impl Step {
    /// All steps in order.
    pub const ALL: [Step; 15] = [
        Step::DriverMode,
        Step::SpeedSelectOff,
        Step::Level,
        Step::Online,
        Step::Turbo,
        Step::Classes,
        Step::CorePower,
        Step::SpeedSelectOn,
        Step::Governor,
        Step::Tunable,
        Step::Preference,
        Step::Limit,
        Step::Idle,
        Step::Power,
        Step::Offline,
    ];

    /// The step in which `location` gets the content `new`.
    pub fn of(location: &Location, new: &str) -> Step {
        let Some(path) = location.path() else {
            return match location {
                Location::SpeedSelect(setting) => speed_select(setting.field, new),
                Location::Partition(_) => Step::Idle,
                // Limits of IA32_HWP_REQUEST, uncore ratio and package power limits; other registers hold preferences.
                Location::Msr { register: 0x774 | 0x772 | 0xc001_02b3, mask, .. }
                    if mask & 0xff00_0000 == 0 =>
                {
                    Step::Limit
                }
                Location::Msr { register: 0x620 | 0x610 | 0x618, .. } => Step::Power,
                Location::Msr { register: 0x1a0 | 0xc001_0015, .. } => Step::Turbo,
                _ => Step::Preference,
            };
        };
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = folder.rsplit('/').next().unwrap_or_default();
        let off = |word: &str| matches!(word.trim(), "0" | "off" | "forceoff" | "n" | "N");
        match name {
            // A controller leaves after the groups that use it.
            "cgroup.subtree_control" => Step::Offline,
            "status" | "dynamic_epp" => Step::DriverMode,
            "online" | "control" if off(new) => Step::Offline,
            "online" | "control" => Step::Online,
            "no_turbo" | "boost" | "cpb" => Step::Turbo,
            "scaling_governor" => Step::Governor,
            "scaling_setspeed" => Step::Tunable,
            "energy_performance_preference"
            | "energy_perf_bias"
            | "hwp_dynamic_boost"
            | "energy_efficiency" => Step::Preference,
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
}

/// Features stand on core-power, core-power on classes, all of them on the level.
fn speed_select(field: Field, new: &str) -> Step {
    match field {
        Field::Level | Field::Highest | Field::Locked => Step::Level,
        Field::BaseFreq | Field::TurboFreq if new.trim() == "0" => Step::SpeedSelectOff,
        Field::BaseFreq | Field::TurboFreq => Step::SpeedSelectOn,
        Field::CorePower | Field::Priority => Step::CorePower,
        Field::TurboLimits => Step::Turbo,
        // As CPUs are brought online before anything else, and taken offline after everything.
        Field::Apart if matches!(new.trim(), "none" | "ready") => Step::Online,
        Field::Apart => Step::Offline,
        _ => Step::Classes,
    }
}

/// Governors that have tunables in a directory of their name.
pub const GOVERNORS: [&str; 4] = ["ondemand", "conservative", "schedutil", "interactive"];

/// Where a write stands among those of its step: maxima that rise come before minima, maxima that fall after them, so
/// that minimum and maximum never cross on the way. Some files (min_perf_pct against max_perf_pct) clamp silently when
/// they would; frequency limits would spring back later, but whoever looks in between sees the wrong value.
pub fn rank(location: &Location, old: &str, new: &str) -> u8 {
    if !location.name().contains("max") {
        return 1;
    }
    match (old.trim().parse::<u64>(), new.trim().parse::<u64>()) {
        (Ok(old), Ok(new)) if new < old => 2,
        _ => 0,
    }
}

/// What makes a policy's number, a CPU's number or any other sort by value: `policy10` after `policy9`.
pub fn natural(path: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(end);
        parts.push((text.to_owned(), number.parse().unwrap_or(u64::MAX)));
        rest = tail;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: &str = "/sys/devices/system/cpu";

    fn step(path: &str, new: &str) -> Step {
        Step::of(&Location::file(format!("{CPU}/{path}")), new)
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
        assert_eq!(Step::of(&Location::Msr { cpu: 0, register: 0x1b0, mask: 15 }, "0x6"), Step::Preference);
    }

    #[test]
    fn maxima_rise_first_and_fall_last() {
        let max = Location::file("/a/scaling_max_freq");
        let min = Location::file("/a/scaling_min_freq");
        assert!(rank(&max, "1000", "2000") < rank(&min, "1", "2"));
        assert!(rank(&max, "2000", "1000\n") > rank(&min, "1", "2"));
    }

    #[test]
    fn numbers_sort_by_value() {
        let mut paths = vec!["/policy10/x", "/policy9/x", "/policy9/a"];
        paths.sort_by_key(|path| natural(path));
        assert_eq!(paths, ["/policy9/a", "/policy9/x", "/policy10/x"]);
    }
}
