//! The facts for conditions, read from the machine's files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use flyball_host::{Host, watch::LocalTime};
use flyball_process::User;

use super::{
    Condition,
    parts::{Limit, Power},
};

/// The facts against which conditions are checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// `None` if the machine has no known power supply.
    pub power: Option<Power>,
    /// Minutes since midnight.
    pub minutes: u32,
    /// The running watched programs, each with its processes.
    pub running: BTreeMap<PathBuf, BTreeSet<u32>>,
    /// The groups that have processes, as conditions spell them.
    pub populated: BTreeSet<String>,
    /// The hottest sensor of the processors, in thousandths of a degree.
    pub temperature: Option<i32>,
    /// How often each limit was reached since boot, over all packages.
    pub limits: BTreeMap<Limit, u64>,
    /// The texts of conditions that the service considers met. Only the service sees how long
    /// something lasts.
    pub lasting: BTreeSet<String>,
}

/// Possible paths of the unified hierarchy of control groups: alone, or beside version 1 (systemd's
/// hybrid mode).
const HIERARCHIES: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

impl Facts {
    /// Reads only the facts that `conditions` need.
    pub fn look<'c>(
        host: &dyn Host,
        now: LocalTime,
        conditions: impl Iterator<Item = &'c Condition> + Clone,
    ) -> Facts {
        let mut facts = Facts { minutes: now.minutes, ..Facts::default() };
        if conditions.clone().any(|condition| condition.power.is_some()) {
            facts.power = power(host);
        }
        let programs: BTreeSet<&PathBuf> =
            conditions.clone().filter_map(|condition| condition.program.as_ref()).collect();
        if !programs.is_empty() {
            facts.running = running(host, &programs);
        }
        for condition in conditions {
            for (called, paths) in condition.groups() {
                if groups(host, &paths).iter().any(|group| is_populated(host, group)) {
                    facts.populated.insert(called);
                }
            }
            // Read it once for all conditions: a sensor may be behind a slow bus.
            if condition.temperature.is_some() && facts.temperature.is_none() {
                facts.temperature = temperature(host);
            }
            if let Some(limit) = condition.limit {
                facts.limits.entry(limit).or_insert_with(|| times_limited(host, limit));
            }
        }
        facts
    }
}

/// Returns the processes of these programs.
fn running(host: &dyn Host, programs: &BTreeSet<&PathBuf>) -> BTreeMap<PathBuf, BTreeSet<u32>> {
    let mut running: BTreeMap<PathBuf, BTreeSet<u32>> = BTreeMap::new();
    // Called at start and after events about programs, not periodically: fanotify reports starts, a
    // pidfd the end.
    let processes = host.list("/proc").unwrap_or_default();
    for pid in processes.iter().filter_map(|name| name.parse::<u32>().ok()) {
        // Kernel threads have no program, and a process may end at any time.
        let Ok(program) = host.link(&format!("/proc/{pid}/exe")) else { continue };
        if let Some(program) = programs.iter().find(|known| known.as_os_str() == program.as_str()) {
            running.entry((*program).clone()).or_default().insert(pid);
        }
    }
    running
}

/// Returns the paths that a group may have on this machine, whether it exists or not. Empty without
/// a unified hierarchy.
pub(crate) fn groups(host: &dyn Host, paths: &[String]) -> Vec<String> {
    let hierarchy = HIERARCHIES.iter().find(|root| host.exists(&format!("{root}/cgroup.procs")));
    // With version 1 only, there is no cgroup.events, so such a condition is never met and nothing
    // is watched.
    let place = |root: &&str| paths.iter().map(|path| format!("{root}/{path}")).collect();
    hierarchy.map(place).unwrap_or_default()
}

/// Returns whether the group or a descendant has a process (`populated` in
/// Documentation/admin-guide/cgroup-v2.rst).
fn is_populated(host: &dyn Host, group: &str) -> bool {
    let events = host.read(&format!("{group}/cgroup.events")).unwrap_or_default();
    events.lines().any(|line| line == "populated 1")
}

/// Returns the number of a user's slice. A name is looked up, a number is used unchanged.
pub(super) fn number_of_user(user: &str) -> Option<u32> {
    user.parse().ok().or_else(|| User::by_name(user).ok().flatten().map(|user| user.uid))
}

/// Returns the power supply in use: the mains if one is online, else a battery if there is one.
fn power(host: &dyn Host) -> Option<Power> {
    const SUPPLIES: &str = "/sys/class/power_supply";
    let (mut has_mains, mut has_battery) = (false, false);
    for name in host.list(SUPPLIES).ok()? {
        let read = |file: &str| host.read(&format!("{SUPPLIES}/{name}/{file}")).unwrap_or_default();
        // Skip batteries of mice and keyboards, whose scope is `Device` (power_supply_sysfs.c).
        if read("scope") == "Device" {
            continue;
        }
        match read("type").as_str() {
            // USB-C chargers are USB supplies (power_supply_type_text in
            // drivers/power/supply/power_supply_sysfs.c).
            "Mains" | "USB" => {
                has_mains = true;
                if read("online") == "1" {
                    return Some(Power::Ac);
                }
            }
            // A desktop runs on its UPS when no mains are online.
            "Battery" | "UPS" => has_battery = true,
            _ => {}
        }
    }
    (has_mains || has_battery).then_some(Power::Battery)
}

/// Returns the temperature of the hottest processor sensor.
fn temperature(host: &dyn Host) -> Option<i32> {
    const SENSORS: &str = "/sys/class/hwmon";
    let mut hottest = None;
    for device in host.list(SENSORS).unwrap_or_default() {
        let folder = format!("{SENSORS}/{device}");
        let name = host.read(&format!("{folder}/name")).unwrap_or_default();
        // Other drivers measure disks, boards and supplies.
        if !matches!(name.as_str(), "coretemp" | "k10temp" | "zenpower" | "cpu_thermal") {
            continue;
        }
        for file in host.list(&folder).unwrap_or_default() {
            if file.starts_with("temp") && file.ends_with("_input") {
                let now = host.read(&format!("{folder}/{file}")).ok().and_then(|text| text.parse().ok());
                hottest = hottest.max(now);
            }
        }
    }
    hottest
}

/// Returns how often packages ran into a limit: the sum over all CPUs, although CPUs of a package
/// show the same count (therm_throt_device_add in drivers/thermal/intel/therm_throt.c). Only an
/// increase matters.
fn times_limited(host: &dyn Host, limit: Limit) -> u64 {
    const CPUS: &str = "/sys/devices/system/cpu";
    let file = match limit {
        Limit::Thermal => "package_throttle_count",
        Limit::Power => "package_power_limit_count",
    };
    let cpus = host.list(CPUS).unwrap_or_default();
    let counts = cpus.iter().filter(|name| name.starts_with("cpu")).filter_map(|cpu| {
        host.read(&format!("{CPUS}/{cpu}/thermal_throttle/{file}")).ok()?.parse::<u64>().ok()
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mains_count_before_a_battery_and_mice_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join("sys/class/power_supply").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        std::fs::create_dir_all(folder.path().join("sys")).unwrap();
        let host = flyball_host::Plain::open(folder.path()).unwrap();
        assert_eq!(power(&host), None);
        put("mouse/type", "Battery\n");
        put("mouse/scope", "Device\n");
        assert_eq!(power(&host), None);
        put("BAT0/type", "Battery\n");
        assert_eq!(power(&host), Some(Power::Battery));
        put("AC/type", "Mains\n");
        put("AC/online", "1\n");
        assert_eq!(power(&host), Some(Power::Ac));
        put("AC/online", "0\n");
        assert_eq!(power(&host), Some(Power::Battery));
    }

    #[test]
    fn groups_sensors_and_limits_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join("sys").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("fs/cgroup/cgroup.procs", "");
        put("fs/cgroup/system.slice/a.service/cgroup.events", "populated 1\nfrozen 0\n");
        put("fs/cgroup/system.slice/b.service/cgroup.events", "populated 0\nfrozen 0\n");
        put("fs/cgroup/user.slice/user-1000.slice/cgroup.events", "populated 1\n");
        put("class/hwmon/hwmon0/name", "k10temp\n");
        put("class/hwmon/hwmon0/temp1_input", "71250\n");
        put("class/hwmon/hwmon0/temp3_input", "64000\n");
        put("class/hwmon/hwmon1/name", "nvme\n");
        put("class/hwmon/hwmon1/temp1_input", "90000\n");
        put("devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "3\n");
        put("devices/system/cpu/cpu1/thermal_throttle/package_throttle_count", "4\n");
        let host = flyball_host::Plain::open(folder.path()).unwrap();
        let of = |parts: &[(&str, &str)]| {
            let mut condition = Condition::default();
            for (key, value) in parts {
                condition.add(key, value).unwrap();
            }
            condition
        };
        let conditions = [
            of(&[("unit", "a.service"), ("temperature", "70C")]),
            of(&[("unit", "b.service"), ("limit", "thermal")]),
            of(&[("user", "1000"), ("cgroup", "system.slice/a.service")]),
            of(&[("unit", "none.service")]),
        ];
        let facts = Facts::look(&host, LocalTime { minutes: 0, seconds: 0 }, conditions.iter());
        let populated: Vec<&str> = facts.populated.iter().map(String::as_str).collect();
        assert_eq!(populated, ["cgroup=system.slice/a.service", "unit=a.service", "user=1000"]);
        assert_eq!((facts.temperature, facts.limits[&Limit::Thermal]), (Some(71_250), 7));
    }
}
