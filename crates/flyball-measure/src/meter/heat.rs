//! Temperatures, and how often the processor throttled itself.

use flyball_host::{Host, topology::CPUS};

use super::{Series, read_number};

/// Temperature sensors and throttle counters.
pub(super) struct Heat {
    /// Name and file.
    sensors: Vec<(String, String)>,
    counters: Vec<String>,
    limit: Option<u64>,
}

impl Heat {
    pub(super) fn find(host: &dyn Host) -> Heat {
        let sensors = sensors(host);
        // coretemp's tempN_crit is TjMax, where the processor throttles (drivers/hwmon/coretemp.c).
        // Other drivers' limits are the board's, or missing.
        let limit = |(name, path): &(String, String)| {
            let path = name.starts_with("coretemp").then(|| path.replace("_input", "_crit"))?;
            read_number(host, &path)
        };
        Heat { limit: sensors.iter().filter_map(limit).min(), counters: counters(host), sensors }
    }

    pub(super) fn sensors(&self) -> Vec<(String, String)> {
        self.sensors.clone()
    }

    /// The temperature at which the processor throttles, in thousandths of a degree.
    pub(super) fn limit(&self) -> Option<u64> {
        self.limit
    }

    pub(super) fn counts_throttling(&self) -> bool {
        !self.counters.is_empty()
    }

    pub(super) fn read(&self, host: &dyn Host, at: f64, into: &mut [Series]) {
        for ((_, path), series) in self.sensors.iter().zip(into) {
            // Below zero is a broken sensor, not a cold one.
            if let Some(milli) = read_number(host, path) {
                series.push((at, milli));
            }
        }
    }

    pub(super) fn throttle_count(&self, host: &dyn Host) -> Option<u64> {
        if self.counters.is_empty() {
            return None;
        }
        Some(self.counters.iter().filter_map(|path| read_number(host, path)).sum())
    }
}

/// The package sensors of coretemp and k10temp, else the kernel's thermal zone of the package.
fn sensors(host: &dyn Host) -> Vec<(String, String)> {
    const HWMON: &str = "/sys/class/hwmon";
    const THERMAL: &str = "/sys/class/thermal";
    let mut found = Vec::new();
    for device in host.list(HWMON).unwrap_or_default() {
        let root = format!("{HWMON}/{device}");
        let driver = host.read(&format!("{root}/name")).unwrap_or_default();
        // Other hwmon devices are disks, boards and network adapters: their heat is not the
        // processor's.
        if !matches!(driver.as_str(), "coretemp" | "k10temp" | "zenpower") {
            continue;
        }
        let mut own = Vec::new();
        for file in host.list(&root).unwrap_or_default() {
            let Some(stem) = file.strip_prefix("temp").and_then(|rest| rest.strip_suffix("_input")) else {
                continue;
            };
            let label = host.read(&format!("{root}/temp{stem}_label")).unwrap_or_default();
            // Cores one by one would be hundreds of files; the package's sensor is the hottest of
            // them.
            let package = label.starts_with("Package id") || label == "Tctl" || label == "Tdie";
            // k10temp of older kernels has one sensor without a label.
            if package || (label.is_empty() && stem == "1") {
                own.push((format!("{driver} {label}").trim().to_owned(), format!("{root}/{file}")));
            }
        }
        // If there is a Tdie, Tctl is that temperature with up to 27 degrees added, for fans
        // (tctl_offset_table in drivers/hwmon/k10temp.c).
        if own.iter().any(|(name, _)| name.ends_with(" Tdie")) {
            own.retain(|(name, _)| !name.ends_with(" Tctl"));
        }
        found.extend(own);
    }
    if found.is_empty() {
        for zone in host.list(THERMAL).unwrap_or_default() {
            let path = format!("{THERMAL}/{zone}/temp");
            let kind = host.read(&format!("{THERMAL}/{zone}/type")).unwrap_or_default();
            if kind == "x86_pkg_temp" && host.exists(&path) {
                found.push((kind, path));
            }
        }
    }
    found
}

/// `cpuN/thermal_throttle/core_throttle_count` of each core and `package_throttle_count` of each
/// package (Intel only; arch/x86's therm_throt.c). All CPUs of a package show the package's count,
/// so one of them is read.
fn counters(host: &dyn Host) -> Vec<String> {
    let mut found = Vec::new();
    let mut packages = std::collections::BTreeSet::new();
    let mut cores = std::collections::BTreeSet::new();
    for name in host.list(CPUS).unwrap_or_default() {
        let Some(number) = name.strip_prefix("cpu").filter(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
        else {
            continue;
        };
        if number.is_empty() {
            continue;
        }
        let folder = format!("{CPUS}/{name}/thermal_throttle");
        let topology = |file: &str| host.read(&format!("{CPUS}/{name}/topology/{file}")).unwrap_or_default();
        let core = format!("{folder}/core_throttle_count");
        if !host.exists(&core) {
            continue;
        }
        let package = topology("physical_package_id");
        if cores.insert((package.clone(), topology("die_id"), topology("core_id"))) {
            found.push(core);
        }
        let path = format!("{folder}/package_throttle_count");
        if packages.insert(package) && host.exists(&path) {
            found.push(path);
        }
    }
    found
}
