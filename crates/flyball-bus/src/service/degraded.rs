//! Reasons why a machine does not reach the chosen performance, from the kernel's counters.
//! `no_turbo` is not one of them: a user may set it, so it is a setting.

use std::time::{Duration, Instant};

use flyball_host::Host;

use crate::Degraded;

const CPUS: &str = "/sys/devices/system/cpu";

/// When a ThinkPad is on a lap, its firmware lowers the limits (thinkpad_acpi.c, dytc_lapmode).
const LAP: &str = "/sys/devices/platform/thinkpad_acpi/dytc_lapmode";

/// How long heat counts after the kernel has counted it. The service checks at least once a minute,
/// so two checks in a row without heat end it.
const LASTS: Duration = Duration::from_secs(90);

/// The counters of the packages (therm_throt.c), and when one last rose.
pub(super) struct Heat {
    counters: Vec<(String, u64)>,
    last: Option<Instant>,
}

impl Heat {
    /// Reads one CPU of each package, since the counter belongs to the package.
    pub(super) fn new(host: &dyn Host) -> Heat {
        let mut packages = std::collections::BTreeSet::new();
        let mut counters = Vec::new();
        for name in host.list(CPUS).unwrap_or_default() {
            let package = host.read(&format!("{CPUS}/{name}/topology/physical_package_id"));
            let counter = format!("{CPUS}/{name}/thermal_throttle/package_throttle_count");
            if package.is_ok_and(|package| packages.insert(package))
                && let Some(count) = read(host, &counter)
            {
                counters.push((counter, count));
            }
        }
        Heat { counters, last: None }
    }

    pub(super) fn degraded(&mut self, host: &dyn Host) -> Degraded {
        if host.read(LAP).is_ok_and(|lap| lap == "1") {
            return Degraded::LapDetected;
        }
        for (counter, last) in &mut self.counters {
            if let Some(now) = read(host, counter) {
                if now > *last {
                    self.last = Some(Instant::now());
                }
                *last = now;
            }
        }
        let is_hot = self.last.is_some_and(|last| last.elapsed() < LASTS);
        if is_hot { Degraded::HighOperatingTemperature } else { Degraded::No }
    }
}

fn read(host: &dyn Host, counter: &str) -> Option<u64> {
    host.read(counter).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use flyball_control::{At, Id, Topology};
    use flyball_host::Plain;

    use super::*;

    #[test]
    fn the_reasons_are_those_of_the_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (cpu, package) in [(0, 0), (1, 0), (2, 1)] {
            put(
                &format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"),
                &format!("{package}\n"),
            );
            put(&format!("sys/devices/system/cpu/cpu{cpu}/thermal_throttle/package_throttle_count"), "7\n");
        }
        // A user's setting is not a reason.
        let turbo = Id::Turbo.knob().path(&Topology::default(), &At::Machine).unwrap();
        put(turbo.trim_start_matches('/'), "1\n");
        let host = Plain::open(folder.path()).unwrap();
        let mut heat = Heat::new(&host);
        assert_eq!(heat.counters.len(), 2, "one CPU per package");
        assert_eq!(heat.degraded(&host), Degraded::No, "throttled before the service started");
        put("sys/devices/system/cpu/cpu2/thermal_throttle/package_throttle_count", "8\n");
        assert_eq!(heat.degraded(&host), Degraded::HighOperatingTemperature);
        assert_eq!(heat.degraded(&host), Degraded::HighOperatingTemperature, "it lasts for a while");
        put("sys/devices/platform/thinkpad_acpi/dytc_lapmode", "1\n");
        assert_eq!(heat.degraded(&host), Degraded::LapDetected);
        put("sys/devices/platform/thinkpad_acpi/dytc_lapmode", "0\n");
        heat.last = Instant::now().checked_sub(LASTS);
        assert_eq!(heat.degraded(&host), Degraded::No);
    }
}
