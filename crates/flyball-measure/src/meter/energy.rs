//! Energy: powercap zones, the perf PMU `power`, hwmon meters; the first that can be read wins.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use flyball_host::{CpuInfo, CpuList, EventCounter, Host, HostError, Vendor};

use super::{Series, read_number};

/// What a meter measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Domain {
    /// A processor package: cores, uncore, integrated graphics.
    Package,
    Dram,
    /// The whole platform.
    Platform,
    /// Cores of a package: a part of its energy, never added to it.
    Cores,
}

impl Domain {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Domain::Package => "package",
            Domain::Dram => "DRAM",
            Domain::Platform => "platform",
            Domain::Cores => "cores",
        }
    }

    /// Upper bound of the watts of one meter: several times the design power of the largest
    /// hardware (packages of 1 kW, machines of 6 kW).
    fn most_watts(self) -> f64 {
        if self == Domain::Platform { 20_000.0 } else { 3_000.0 }
    }
}

/// The name of the meter that runs the user's command.
pub(super) const POWER_COMMAND: &str = "power command";

/// One energy meter, and how its numbers become joules.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct EnergySource {
    /// What it measures.
    pub domain: Domain,
    /// The kernel's name for it: `package-0`, `power/energy-pkg/`.
    pub name: String,
    /// The file, or the CPU of a perf counter.
    pub place: String,
    /// Joules of one count; for a power meter, joules of one reading held for a second.
    pub unit: f64,
    /// The value after which a counter restarts from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wraps_after: Option<u64>,
    /// Whether readings are power (to be summed over time), not a count of energy.
    #[serde(default)]
    pub is_power: bool,
}

impl EnergySource {
    /// Returns the energy of a series of readings in joules. `None` for fewer than two readings,
    /// and for a counter that stands still: nothing that runs uses no energy. Also `None` if a
    /// counter went back and no wrap at a possible power explains it. Then it was set to 0 in
    /// between (a driver loaded again, a suspend), and its earlier count is lost.
    pub fn joules(&self, series: &[(f64, u64)]) -> Option<f64> {
        // A meter that never moves would report 0 J, and performance per watt would be infinite.
        if series.len() < 2 || self.stands_still(series) {
            return None;
        }
        let mut sum = 0.0;
        for pair in series.windows(2) {
            let ((start, before), (end, after)) = (pair[0], pair[1]);
            if self.is_power {
                // The trapezoidal rule: the readings are instants, or averages over the driver's
                // own interval.
                sum += f64::midpoint(before as f64, after as f64) * (end - start);
            } else {
                sum += match (after.checked_sub(before), self.wraps_after) {
                    (Some(count), _) => count as f64,
                    // Readings are so close together that the counter wrapped only once. Its steps
                    // are tens of microjoules, so it does not matter whether the range itself is a
                    // value.
                    (None, Some(range))
                        if before <= range && self.possible(range - before + after, end - start) =>
                    {
                        (range - before + after) as f64
                    }
                    (None, _) => return None,
                };
            }
        }
        Some(sum * self.unit)
    }

    /// Whether it is a command of the user's, which flyball cannot find again by itself.
    pub fn is_command(&self) -> bool {
        self.name == POWER_COMMAND
    }

    /// Returns whether `counts` are possible in `seconds`. Counters are updated only now and then,
    /// so at least a second is assumed.
    fn possible(&self, counts: u64, seconds: f64) -> bool {
        counts as f64 * self.unit <= self.domain.most_watts() * seconds.max(1.0)
    }

    /// Whether a counter counted nothing between its readings, as those of some virtual machines
    /// and the DRAM zone of many client processors do. `false` for fewer than two readings.
    pub fn stands_still(&self, series: &[(f64, u64)]) -> bool {
        !self.is_power && series.len() > 1 && series.windows(2).all(|pair| pair[0].1 == pair[1].1)
    }
}

enum Access {
    File(String),
    Counter(Box<dyn EventCounter>),
    /// A reading of the hold service: the quantity's name, and the package.
    Shared(&'static str, u32),
}

/// The energy meters in use.
pub(super) struct EnergyMeters {
    meters: Vec<(EnergySource, Access)>,
}

impl EnergyMeters {
    /// Finds the meters, or says why there are none.
    pub(super) fn find(host: &dyn Host) -> (EnergyMeters, Option<String>) {
        let mut reasons = Vec::new();
        // powercap first: it names its zones and their range. The PMU counts the same registers,
        // for machines whose powercap files only root may read. Meters are never mixed: the same
        // package would count twice.
        for find in [powercap, event, hwmon, shared] {
            match find(host) {
                Ok(mut meters) if meters.iter().any(|(source, _)| source.domain != Domain::Cores) => {
                    // The power of the whole machine is another quantity than the packages' energy.
                    // ACPI's power meter adds it.
                    if meters.iter().all(|(source, _)| source.domain != Domain::Platform) {
                        let whole = hwmon(host).unwrap_or_default().into_iter();
                        meters.extend(whole.filter(|(source, _)| source.domain == Domain::Platform));
                    }
                    return (EnergyMeters { meters }, None);
                }
                Ok(_) => {}
                Err(reason) => reasons.push(reason),
            }
        }
        (EnergyMeters { meters: Vec::new() }, Some(reasons.join("; ")))
    }

    /// Removes the meters of a domain.
    pub(super) fn leave_out(&mut self, domain: Domain) {
        self.meters.retain(|(source, _)| source.domain != domain);
    }

    pub(super) fn sources(&self) -> Vec<EnergySource> {
        self.meters.iter().map(|(source, _)| source.clone()).collect()
    }

    pub(super) fn read(&self, host: &dyn Host, at: f64, into: &mut [Series]) {
        let is_shared = self.meters.iter().any(|(_, access)| matches!(access, Access::Shared(..)));
        // Ask the service once: its answer has the samples of all meters.
        let readings = is_shared.then(|| host.shared_readings().ok()).flatten();
        for ((_, access), series) in self.meters.iter().zip(into) {
            let value = match access {
                Access::Shared(name, number) => readings.as_ref().and_then(|readings| {
                    let mut values = readings.values.iter();
                    values
                        .find(|reading| reading.name == *name && reading.number == *number)
                        .map(|reading| reading.value)
                }),
                Access::File(path) => read_number(host, path),
                Access::Counter(counter) => counter.read().ok(),
            };
            if let Some(value) = value {
                series.push((at, value));
            }
        }
    }
}

type Found = Result<Vec<(EnergySource, Access)>, String>;

/// `/sys/class/powercap/intel-rapl:N` (drivers/powercap/intel_rapl_common.c; AMD's counters too):
/// packages, `psys`, and below a package `core`, `uncore`, `dram`.
fn powercap(host: &dyn Host) -> Found {
    const CLASS: &str = "/sys/class/powercap";
    // The driver exists only on x86.
    let is_loaded = || match CpuInfo::read(host).map(|info| info.vendor()) {
        Ok(Vendor::Other) => "",
        _ => "; is intel_rapl_msr loaded?",
    };
    let names = host.list(CLASS).map_err(|_| format!("no powercap zones ({CLASS}{})", is_loaded()))?;
    let mut zones: Vec<(EnergySource, Access)> = Vec::new();
    let mut refused: Option<HostError> = None;
    let mut incomplete = Vec::new();
    for name in names {
        // intel-rapl-mmio repeats the packages.
        if !name.starts_with("intel-rapl:") {
            continue;
        }
        let zone = format!("{CLASS}/{name}");
        let Ok(title) = host.read(&format!("{zone}/name")) else { continue };
        let depth = name.matches(':').count();
        let domain = match title.as_str() {
            // A package of several dies has a zone for each, `package-0-die-1`; the sum over all
            // zones is what counts.
            title if title.starts_with("package") && depth == 1 => Domain::Package,
            title if title.strip_prefix("psys").is_some_and(platform) => Domain::Platform,
            "dram" => Domain::Dram,
            "core" => Domain::Cores,
            // `uncore` is the integrated graphics: a part of the package.
            _ => continue,
        };
        let path = format!("{zone}/energy_uj");
        if let Err(error) = host.read(&path) {
            refused.get_or_insert(error);
            incomplete.push(domain);
            continue;
        }
        let source = EnergySource {
            domain,
            name: title,
            place: path.clone(),
            unit: 1e-6,
            wraps_after: read_number(host, &format!("{zone}/max_energy_range_uj")),
            is_power: false,
        };
        zones.push((source, Access::File(path)));
    }
    // The kernel lists a platform counter for each package that has one. Each counts the whole
    // platform, so only the first is used.
    let mut platforms = 0;
    zones.retain(|(source, _)| {
        platforms += usize::from(source.domain == Domain::Platform);
        source.domain != Domain::Platform || platforms == 1
    });
    // Use all zones of a domain or none: one of two packages would pass for the sum of both.
    zones.retain(|(source, _)| !incomplete.contains(&source.domain));
    let measures = zones.iter().any(|(source, _)| source.domain != Domain::Cores);
    match refused {
        Some(error) if !measures => {
            let why = if error.errno == flyball_host::Errno::ACCES || error.errno == flyball_host::Errno::PERM
            {
                " (only root may read it, since Linux 5.10)"
            } else {
                ""
            };
            Err(format!("{error}{why}"))
        }
        _ if zones.is_empty() => Err(format!("no energy zones ({CLASS}{})", is_loaded())),
        _ => Ok(zones),
    }
}

/// Whether this is the end of a platform zone's name after `psys`: nothing for package 0, `-N` for
/// package N (intel_rapl_common.c, `rapl_init_domains`).
fn platform(rest: &str) -> bool {
    rest.is_empty() || rest.strip_prefix('-').is_some_and(|number| number.parse::<u32>().is_ok())
}

/// The PMU `power` (arch/x86/events/rapl.c): one CPU of each package counts for it.
fn event(host: &dyn Host) -> Found {
    const PMU: &str = "/sys/bus/event_source/devices/power";
    let kind = host
        .read(&format!("{PMU}/type"))
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| "no perf PMU 'power'".to_owned())?;
    let cpus: CpuList = host
        .read(&format!("{PMU}/cpumask"))
        .map_err(|error| error.to_string())?
        .parse()
        .map_err(|error| format!("{PMU}/cpumask: {error}"))?;
    let mut meters = Vec::new();
    let mut refused = None;
    for (file, domain) in
        [("energy-pkg", Domain::Package), ("energy-ram", Domain::Dram), ("energy-psys", Domain::Platform)]
    {
        let Ok(description) = host.read(&format!("{PMU}/events/{file}")) else { continue };
        let Some(config) = event_config(&description) else { continue };
        let scale = host.read(&format!("{PMU}/events/{file}.scale")).ok().and_then(|text| text.parse().ok());
        // The driver's scale is 2^-32 J for every event (rapl.c, RAPL_EVENT_ATTR_STR).
        let unit = scale.unwrap_or(2.0_f64.powi(-32));
        for cpu in cpus.iter() {
            match host.event_counter(kind, config, cpu) {
                Ok(counter) => {
                    let source = EnergySource {
                        domain,
                        name: format!("power/{file}/"),
                        place: format!("CPU {cpu}"),
                        unit,
                        wraps_after: None,
                        is_power: false,
                    };
                    meters.push((source, Access::Counter(counter)));
                }
                Err(error) => refused = Some(error),
            }
        }
    }
    match refused {
        // A package missing would make the sum wrong: all or none.
        Some(error) => Err(format!("{error} (needs CAP_PERFMON or kernel.perf_event_paranoid <= 0)")),
        None if meters.is_empty() => Err("the perf PMU 'power' has no energy events".to_owned()),
        None => Ok(meters),
    }
}

/// Parses `event=0x02`.
fn event_config(description: &str) -> Option<u64> {
    let value = description.trim().split(',').find_map(|part| part.trim().strip_prefix("event="))?;
    u64::from_str_radix(value.strip_prefix("0x")?, 16).ok()
}

/// hwmon: energy counters of processors (amd_energy), else power meters of the whole machine or of
/// processors.
fn hwmon(host: &dyn Host) -> Found {
    const CLASS: &str = "/sys/class/hwmon";
    let mut counters = Vec::new();
    let mut powers = Vec::new();
    for device in host.list(CLASS).unwrap_or_default() {
        let root = format!("{CLASS}/{device}");
        let driver = host.read(&format!("{root}/name")).unwrap_or_default();
        for file in host.list(&root).unwrap_or_default() {
            let path = format!("{root}/{file}");
            let label = |kind: &str| {
                let stem = file.split_once('_').map_or("", |(stem, _)| stem);
                host.read(&format!("{root}/{stem}_{kind}")).unwrap_or_default()
            };
            // From model 60h on, fam15h_power has both files for one supply
            // (drivers/hwmon/fam15h_power.c).
            let twice = file.strip_suffix("_input").is_some_and(|stem| {
                stem.starts_with("power") && read_number(host, &format!("{root}/{stem}_average")).is_some()
            });
            let is_energy = driver == "amd_energy" && file.starts_with("energy") && file.ends_with("_input");
            // acpi_power_meter and fam15h_power report an average; others an instant.
            let is_power = file.starts_with("power")
                && (file.ends_with("_average") || file.ends_with("_input"))
                && !twice
                && matches!(
                    driver.as_str(),
                    "power_meter" | "fam15h_power" | "zenpower" | "ina2xx" | "xgene"
                );
            if !(is_energy || is_power) || read_number(host, &path).is_none() {
                continue;
            }
            let label = label("label");
            let domain = match driver.as_str() {
                "amd_energy" if label.starts_with("Esocket") => Domain::Package,
                "amd_energy" => Domain::Cores,
                "power_meter" => Domain::Platform,
                _ => Domain::Package,
            };
            let source = EnergySource {
                domain,
                name: if label.is_empty() { driver.clone() } else { format!("{driver} {label}") },
                place: path.clone(),
                unit: 1e-6,
                wraps_after: None,
                is_power,
            };
            if is_energy { &mut counters } else { &mut powers }.push((source, Access::File(path)));
        }
    }
    let found = if counters.is_empty() { powers } else { counters };
    if found.is_empty() { Err("no hwmon power meter".to_owned()) } else { Ok(found) }
}

/// The hold service's readings, for users who may not read meters. The service adds up the energy
/// itself, at most once a second.
fn shared(host: &dyn Host) -> Found {
    let readings = host.shared_readings().map_err(|error| {
        // Membership of the group helps only if the service runs.
        if error.errno == flyball_host::Errno::ACCES {
            format!("{error}: usermod -aG {} USER", flyball_process::readings::GROUP)
        } else {
            format!("{error}; flyball-hold.service, which shares its readings there, does not run")
        }
    })?;
    let mut meters = Vec::new();
    for (name, domain) in [
        ("package_energy", Domain::Package),
        ("dram_energy", Domain::Dram),
        ("platform_energy", Domain::Platform),
    ] {
        for reading in readings.values.iter().filter(|reading| reading.name == name) {
            let source = EnergySource {
                domain,
                name: format!("hold service, {name}"),
                place: flyball_process::readings::SOCKET.to_owned(),
                unit: 1e-6,
                wraps_after: None,
                is_power: false,
            };
            meters.push((source, Access::Shared(name, reading.number)));
        }
    }
    if meters.is_empty() { Err("the hold service has no energy meter".to_owned()) } else { Ok(meters) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(wraps_after: Option<u64>) -> EnergySource {
        EnergySource {
            domain: Domain::Package,
            name: "package-0".to_owned(),
            place: String::new(),
            unit: 1e-6,
            wraps_after,
            is_power: false,
        }
    }

    #[test]
    fn counters_wrap() {
        let range = 262_143_328_850;
        let series = [(0.0, range - 1_000_000), (1.0, 500_000), (2.0, 2_500_000), (400.0, range), (401.0, 0)];
        let joules = counter(Some(range)).joules(&series).expect("two wraps");
        assert!((joules - (1.5 + 2.0 + (range - 2_500_000) as f64 / 1e6)).abs() < 1e-6, "{joules}");
        assert_eq!(counter(None).joules(&series), None);
        assert_eq!(counter(Some(10)).joules(&[(0.0, 20), (1.0, 5)]), None);
        assert_eq!(counter(None).joules(&[(0.0, 20)]), None);
        assert_eq!(counter(None).joules(&[(0.0, 20), (1.0, 20), (2.0, 20)]), None, "it stands still");
    }

    #[test]
    fn a_counter_that_was_set_to_0_is_no_wrap() {
        let range = 262_143_328_850;
        let series = [(0.0, 100_000_000_000), (10.0, 101_000_000_000), (20.0, 500_000_000)];
        assert_eq!(counter(Some(range)).joules(&series), None, "16 kW");
        // A machine as a whole may draw that.
        let platform = EnergySource { domain: Domain::Platform, ..counter(Some(range)) };
        assert!(platform.joules(&series).is_some());
        // And 1 kW for ten seconds is a package's.
        let series = [(0.0, range - 5_000_000_000), (10.0, 5_000_000_000)];
        assert_eq!(counter(Some(range)).joules(&series).map(f64::round), Some(10_000.0));
    }

    #[test]
    fn platforms_are_known_by_name() {
        assert!(platform("") && platform("-1") && !platform("x") && !platform("-"));
    }

    #[test]
    fn power_is_summed_over_time() {
        let meter = EnergySource { is_power: true, ..counter(None) };
        let joules = meter.joules(&[(0.0, 10_000_000), (2.0, 20_000_000), (3.0, 20_000_000)]);
        assert_eq!(joules, Some(50.0));
    }

    #[test]
    fn event_descriptions_are_read() {
        assert_eq!(event_config("event=0x02"), Some(2));
        assert_eq!(event_config("umask=0x1,event=0x10\n"), Some(16));
        assert_eq!(event_config("event=2"), None);
        assert_eq!(event_config(""), None);
    }
}
