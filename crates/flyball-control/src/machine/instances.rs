//! Things that a machine has by name: idle states, uncore domains, powercap zones and constraints, sensors.

use std::sync::OnceLock;

use flyball_host::CpuList;

use crate::{At, Machine, Place, Scope, topology::CPUS};

/// What is looked up once, when first asked for.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    idle_states: OnceLock<Vec<String>>,
    places: [OnceLock<Vec<Place>>; 13],
}

impl Instances {
    pub(crate) fn places_of(&self, scope: Scope, find: impl FnOnce() -> Vec<Place>) -> &[Place] {
        self.places[scope as usize].get_or_init(find)
    }
}

const POWERCAP: &str = "/sys/class/powercap";
const HWMON: &str = "/sys/class/hwmon";

impl Machine<'_> {
    /// The names of the idle states, lightest first. x86 has one cpuidle driver for all CPUs
    /// (drivers/cpuidle/driver.c without CPU_IDLE_MULTIPLE_DRIVERS), so one CPU tells for all.
    pub fn idle_states(&self) -> &[String] {
        self.instances.idle_states.get_or_init(|| {
            for cpu in self.topology().online.iter() {
                let folder = format!("{CPUS}/cpu{cpu}/cpuidle");
                let Ok(names) = self.host().list(&folder) else { continue };
                let count = names.iter().filter(|name| name.starts_with("state")).count();
                let name = |state: usize| {
                    let name = self.host().read(&format!("{folder}/state{state}/name")).unwrap_or_default();
                    // An empty or missing name still leaves the state's number to call it by.
                    if name.is_empty() || name.starts_with('<') { format!("state{state}") } else { name }
                };
                return (0..count).map(name).collect();
            }
            Vec::new()
        })
    }

    pub(super) fn idle_places(&self) -> Vec<Place> {
        let names = self.idle_states();
        let mut places = Vec::with_capacity(names.len() * self.topology().online.len());
        for cpu in self.topology().online.iter() {
            for (state, name) in names.iter().enumerate() {
                let at = At::IdleState { cpu, state: state as u32 };
                places.push(Place::named(at, name.as_str(), CpuList::from_iter([cpu])));
            }
        }
        places
    }

    pub(super) fn find_uncore(&self) -> Vec<Place> {
        let folder = format!("{CPUS}/intel_uncore_frequency");
        let names = self.host().list(&folder).unwrap_or_default();
        let domain = |name: &String| {
            let number =
                |file: &str| self.host().read(&format!("{folder}/{name}/{file}")).ok()?.parse::<u32>().ok();
            let (package, die) = match name.strip_prefix("package_") {
                Some(rest) => {
                    let (package, die) = rest.split_once("_die_")?;
                    (package.parse().ok()?, die.parse::<u32>().ok())
                }
                None if name.starts_with("uncore") => (number("package_id")?, number("die_id")),
                None => return None,
            };
            let topology = self.topology();
            let whole = topology.packages().remove(&package).unwrap_or_default();
            // The root entry of the TPMI driver is called die 0 and covers the package.
            let root_of_clusters =
                name.starts_with("package_") && names.iter().any(|n| n.starts_with("uncore"));
            let cpus = match die
                .filter(|_| !root_of_clusters)
                .and_then(|die| topology.dies().remove(&(package, die)))
            {
                Some(cpus) => cpus,
                None => whole,
            };
            Some(Place::named(At::Uncore(name.clone()), name.as_str(), cpus))
        };
        names.iter().filter_map(domain).collect()
    }

    pub(super) fn find_zones(&self) -> Vec<Place> {
        let folders = self.host().list(POWERCAP).unwrap_or_default();
        let zone = |folder: &String| {
            // A zone has a colon; its control type (`intel-rapl`) has none.
            let (control, _) = folder.split_once(':')?;
            let own = self.host().read(&format!("{POWERCAP}/{folder}/name")).ok()?;
            let name = match folder.rsplit_once(':') {
                // A child is called by its parent too: `package-0 core`.
                Some((parent, _)) if parent.contains(':') => {
                    let parent = self.host().read(&format!("{POWERCAP}/{parent}/name")).unwrap_or_default();
                    format!("{parent} {own}")
                }
                _ => own.clone(),
            };
            let cpus = self.zone_cpus(name.split(' ').next().unwrap_or_default());
            // The same package may be there a second time through memory-mapped registers.
            let name = if control == "intel-rapl" { name } else { format!("{name} ({control})") };
            Some(Place::named(At::Zone(folder.clone()), name, cpus))
        };
        folders.iter().filter_map(zone).collect()
    }

    /// The CPUs of `package-0` or `package-0-die-1`; all for a zone of the platform.
    fn zone_cpus(&self, name: &str) -> CpuList {
        let topology = self.topology();
        let cpus = name.strip_prefix("package-").and_then(|rest| match rest.split_once("-die-") {
            Some((package, die)) => topology.dies().remove(&(package.parse().ok()?, die.parse().ok()?)),
            None => topology.packages().remove(&rest.parse().ok()?),
        });
        cpus.unwrap_or_else(|| topology.present.clone())
    }

    pub(super) fn find_constraints(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for zone in self.places_of(Scope::Zone) {
            let At::Zone(folder) = &zone.at else { continue };
            for constraint in 0..8 {
                let path = format!("{POWERCAP}/{folder}/constraint_{constraint}_name");
                let Ok(name) = self.host().read(&path) else { break };
                let at = At::Constraint { zone: folder.clone(), constraint };
                places.push(Place::named(at, format!("{} {name}", zone.name), zone.cpus.clone()));
            }
        }
        places
    }

    pub(super) fn find_sensors(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for hwmon in self.host().list(HWMON).unwrap_or_default() {
            let folder = format!("{HWMON}/{hwmon}");
            let driver = self.host().read(&format!("{folder}/name")).unwrap_or_default();
            if !matches!(driver.as_str(), "coretemp" | "k10temp" | "zenpower") {
                continue;
            }
            let files = self.host().list(&folder).unwrap_or_default();
            let mut numbers: Vec<u32> = files
                .iter()
                .filter_map(|file| file.strip_prefix("temp")?.strip_suffix("_input")?.parse().ok())
                .collect();
            numbers.sort_unstable();
            let labels: Vec<String> = numbers
                .iter()
                .map(|sensor| {
                    let label = self.host().read(&format!("{folder}/temp{sensor}_label")).unwrap_or_default();
                    if label.is_empty() { format!("temp{sensor}") } else { label }
                })
                .collect();
            let package =
                labels.iter().find_map(|label| label.strip_prefix("Package id ")?.parse::<u32>().ok());
            for (sensor, label) in numbers.into_iter().zip(labels) {
                let cpus = self.sensor_cpus(package, &label);
                let name = match package {
                    Some(package) if label.starts_with("Core ") => format!("package {package} {label}"),
                    Some(package) => format!("package {package}"),
                    None => format!("{hwmon} {label}"),
                };
                places.push(Place::named(At::Sensor { hwmon: hwmon.clone(), sensor }, name, cpus));
            }
        }
        places
    }

    /// The CPUs that a sensor of coretemp measures; all for one of AMD's, whose device is not tied to a package by name.
    fn sensor_cpus(&self, package: Option<u32>, label: &str) -> CpuList {
        let topology = self.topology();
        let Some(package) = package else { return topology.present.clone() };
        let core = label.strip_prefix("Core ").and_then(|core| core.parse::<u32>().ok());
        let on = |cpu: &&crate::Cpu| cpu.package == Some(package) && (core.is_none() || cpu.core == core);
        topology.cpus.values().filter(on).map(|cpu| cpu.number).collect()
    }
}
