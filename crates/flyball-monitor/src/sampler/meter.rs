//! Energy counters: a powercap file or, if only root may read that, a counter of the perf PMU
//! `power`, which CAP_PERFMON may open. Both read the same registers.

use flyball_host::{CpuList, EventCounter, Host};

use super::{PowerFiles, file::KeptAttribute};
use crate::{Layout, Quantity};

pub(super) enum Meter {
    File(KeptAttribute),
    /// A counter of the PMU `power`, and the microjoules of one count.
    Counter(Box<dyn EventCounter>, f64),
}

impl Meter {
    pub(super) fn read(&mut self, host: &dyn Host, buffer: &mut Vec<u8>) -> Option<u64> {
        match self {
            Meter::File(file) => file.number(host, buffer),
            // The kernel sums the register up to 64 bits itself (arch/x86/events/rapl.c,
            // rapl_event_update).
            Meter::Counter(counter, unit) => Some((counter.read().ok()? as f64 * *unit) as u64),
        }
    }
}

/// Opens the counters of the PMU `power`, which counts on one CPU of each package. `None` if any of
/// them cannot be opened.
pub(super) fn counters(host: &dyn Host, layout: &Layout) -> Option<Vec<PowerFiles>> {
    const PMU: &str = "/sys/bus/event_source/devices/power";
    let kind: u32 = host.read(&format!("{PMU}/type")).ok()?.parse().ok()?;
    let cpus: CpuList = host.read(&format!("{PMU}/cpumask")).ok()?.parse().ok()?;
    let mut found = Vec::new();
    for (event, quantity) in [
        ("energy-pkg", Quantity::PackageEnergy),
        ("energy-ram", Quantity::DramEnergy),
        ("energy-psys", Quantity::PlatformEnergy),
    ] {
        let Ok(description) = host.read(&format!("{PMU}/events/{event}")) else { continue };
        let config =
            description.trim().strip_prefix("event=0x").and_then(|text| u64::from_str_radix(text, 16).ok());
        let Some(config) = config else { continue };
        let scale =
            host.read(&format!("{PMU}/events/{event}.scale")).ok().and_then(|text| text.parse::<f64>().ok());
        // rapl.c exports 2^-32 J for every event (RAPL_EVENT_ATTR_STR).
        let unit = scale.unwrap_or(2.0_f64.powi(-32)) * 1e6;
        for cpu in cpus.iter() {
            let package = layout.index_of(cpu).and_then(|index| layout.package_of(&layout.cpus[index]));
            let is_platform = quantity == Quantity::PlatformEnergy;
            // All packages share the platform's counter.
            if is_platform && found.iter().any(|known: &PowerFiles| known.quantity == quantity) {
                continue;
            }
            let counter = host.event_counter(kind, config, cpu).ok()?;
            found.push(PowerFiles {
                quantity,
                index: if is_platform { 0 } else { package? },
                meter: Meter::Counter(counter, unit),
                range: 0,
                last: None,
                sum: 0,
                is_slow: false,
            });
        }
    }
    (!found.is_empty()).then_some(found)
}
