//! Named objects of a machine: idle states, uncore domains, powercap zones and constraints,
//! sensors. Also the places of every scope.

use std::collections::BTreeMap;

use flyball_host::{CpuList, Host};
use flyball_sst::{cpus::CpuMap, layout::Layout};

use super::Snapshot;
use crate::{
    At, Belongs, Place, Scope, Topology, location::PORT_SENSOR, place::is_uncore_cluster, topology::CPUS,
};

const POWERCAP: &str = "/sys/class/powercap";
const PROFILE_DEVICES: &str = "/sys/class/platform-profile";
const PLATFORM: &str = "/sys/devices/platform";
const HWMON: &str = "/sys/class/hwmon";

/// Returns the places of a scope that follow from the topology alone; `None` for other scopes.
pub(super) fn from_topology(topology: &Topology, scope: Scope) -> Option<Vec<Place>> {
    Some(match scope {
        Scope::Machine => vec![Place::new(At::Machine, topology.present.clone())],
        Scope::Package => topology
            .packages()
            .into_iter()
            .map(|(package, cpus)| Place::new(At::Package(package), cpus))
            .collect(),
        Scope::Die => topology
            .dies()
            .into_iter()
            .map(|((package, die), cpus)| Place::new(At::Die { package, die }, cpus))
            .collect(),
        Scope::Core => topology
            .cores()
            .into_iter()
            .map(|((package, die, core), cpus)| Place::new(At::Core { package, die, core }, cpus))
            .collect(),
        Scope::Policy => topology
            .policies
            .iter()
            .map(|policy| Place::new(At::Policy(policy.number), policy.cpus.clone()))
            .collect(),
        Scope::Cpu => {
            topology.present.iter().map(|cpu| Place::new(At::Cpu(cpu), CpuList::from_iter([cpu]))).collect()
        }
        _ => return None,
    })
}

impl Snapshot {
    /// Finds every instance of `scope`, in order. Idle states, zones and power domains must have
    /// been found before.
    pub(super) fn places_of_host(&self, host: &dyn Host, scope: Scope) -> Vec<Place> {
        let topology = &self.topology;
        match scope {
            Scope::PowerDomain => self.power_domains(),
            Scope::Clos => self.classes(),
            Scope::IdleState => idle_places(topology, &self.idle_states),
            Scope::Uncore => find_uncore(host, topology, self.layout()),
            Scope::Zone => find_zones(host, topology),
            Scope::Constraint => find_constraints(host, self.places_in(Scope::Zone)),
            Scope::ProfileDevice => find_profile_devices(host, topology),
            Scope::Socket => find_sockets(host, topology),
            Scope::Sensor => find_sensors(host, topology),
            _ => from_topology(topology, scope).unwrap_or_default(),
        }
    }
}

/// Returns the names of the idle states, lightest first. x86 has one cpuidle driver for all CPUs
/// (drivers/cpuidle/driver.c without CPU_IDLE_MULTIPLE_DRIVERS), so one CPU's names apply to all.
pub(super) fn idle_states(host: &dyn Host, topology: &Topology) -> Vec<String> {
    for cpu in topology.online.iter() {
        let folder = format!("{CPUS}/cpu{cpu}/cpuidle");
        let Ok(names) = host.list(&folder) else { continue };
        let count = names.iter().filter(|name| name.starts_with("state")).count();
        let name = |state: usize| {
            let name = host.read(&format!("{folder}/state{state}/name")).unwrap_or_default();
            // Without a name, use the state's number.
            if name.is_empty() || name.starts_with('<') { format!("state{state}") } else { name }
        };
        return (0..count).map(name).collect();
    }
    Vec::new()
}

fn idle_places(topology: &Topology, names: &[String]) -> Vec<Place> {
    let mut places = Vec::with_capacity(names.len() * topology.online.len());
    for cpu in topology.online.iter() {
        for (state, name) in names.iter().enumerate() {
            let at = At::IdleState { cpu, state: state as u32 };
            places.push(Place::named(at, name.as_str(), CpuList::from_iter([cpu])));
        }
    }
    places
}

fn find_uncore(host: &dyn Host, topology: &Topology, layout: Option<&Layout>) -> Vec<Place> {
    let folder = format!("{CPUS}/intel_uncore_frequency");
    let names = host.list(&folder).unwrap_or_default();
    let tpmi = names.iter().any(|name| is_uncore_cluster(name));
    let power_domains = if tpmi { power_domains(host, topology, layout) } else { BTreeMap::new() };
    let (packages, dies) = (topology.packages(), topology.dies());
    let domain = |name: &String| {
        let number = |file: &str| host.read(&format!("{folder}/{name}/{file}")).ok()?.parse::<u32>().ok();
        let whole = |package: u32| packages.get(&package).cloned().unwrap_or_default();
        let place = |cpus| Place::named(At::Uncore(name.clone()), name.as_str(), cpus);
        if let Some(rest) = name.strip_prefix("package_") {
            let (package, die) = rest.split_once("_die_")?;
            let (package, die) = (package.parse().ok()?, die.parse::<u32>().ok());
            // The TPMI driver's root entry is called die 0 and covers the whole package, above the
            // entries of its dies.
            if tpmi {
                return Some(place(whole(package)).belonging(Belongs::ToAll));
            }
            let cpus = die.and_then(|die| dies.get(&(package, die)).cloned());
            return Some(place(cpus.unwrap_or_else(|| whole(package))));
        }
        if !is_uncore_cluster(name) {
            return None;
        }
        // domain_id is the index of the TPMI resource, which is the domain's number in the power
        // unit (uncore-frequency-tpmi.c, uncore_probe). Linux's die numbers may differ.
        let package = number("package_id")?;
        let id = number("domain_id");
        Some(match id.and_then(|id| power_domains.get(&(package, id))) {
            Some(cpus) => place(cpus.clone()),
            // The domain's CPUs are unknown, so use the package's.
            None if id.is_none() || power_domains.is_empty() => {
                place(whole(package)).belonging(Belongs::ToAll)
            }
            // A domain without CPUs belongs to an I/O die, which serves the whole package.
            None => place(whole(package)).belonging(Belongs::ToPackage),
        })
    };
    names.iter().filter_map(domain).collect()
}

/// Returns the CPUs of each power domain of a machine with TPMI, by package and domain. Empty if
/// their numbers cannot be read.
fn power_domains(
    host: &dyn Host,
    topology: &Topology,
    layout: Option<&Layout>,
) -> BTreeMap<(u32, u32), CpuList> {
    let read;
    let map = if let Some(layout) = layout.filter(|layout| layout.platform.is_tpmi()) {
        &layout.map
    } else {
        // Without /dev/isst_interface, the numbers come from MSR 0x54 of each CPU.
        read = CpuMap::read(host, topology.positions(), true);
        &read
    };
    let mut domains: BTreeMap<(u32, u32), CpuList> = BTreeMap::new();
    // A CPU without a number may belong to any domain.
    if map.unplaced || !map.unmapped.is_empty() {
        return domains;
    }
    for cpu in map.iter() {
        domains.entry((cpu.package, u32::from(cpu.domain))).or_default().insert(cpu.number);
    }
    domains
}

fn find_zones(host: &dyn Host, topology: &Topology) -> Vec<Place> {
    let folders = host.list(POWERCAP).unwrap_or_default();
    let zone = |folder: &String| {
        // The folder of a zone has a colon, that of its control type (`intel-rapl`) has none.
        let (control, _) = folder.split_once(':')?;
        let own = host.read(&format!("{POWERCAP}/{folder}/name")).ok()?;
        let name = match folder.rsplit_once(':') {
            // The name of a child includes its parent's: `package-0 core`.
            Some((parent, _)) if parent.contains(':') => {
                let parent = host.read(&format!("{POWERCAP}/{parent}/name")).unwrap_or_default();
                format!("{parent} {own}")
            }
            _ => own.clone(),
        };
        let cpus = zone_cpus(topology, name.split(' ').next().unwrap_or_default());
        // The package may also have a zone through memory-mapped registers.
        let name = if control == "intel-rapl" { name } else { format!("{name} ({control})") };
        Some(Place::named(At::Zone(folder.clone()), name, cpus))
    };
    folders.iter().filter_map(zone).collect()
}

/// Returns the CPUs of `package-0` or `package-0-die-1`, or all CPUs for a platform zone.
fn zone_cpus(topology: &Topology, name: &str) -> CpuList {
    let cpus = name.strip_prefix("package-").and_then(|rest| match rest.split_once("-die-") {
        Some((package, die)) => topology.dies().remove(&(package.parse().ok()?, die.parse().ok()?)),
        None => topology.packages().remove(&rest.parse().ok()?),
    });
    cpus.unwrap_or_else(|| topology.present.clone())
}

fn find_constraints(host: &dyn Host, zones: &[Place]) -> Vec<Place> {
    let mut places = Vec::new();
    for zone in zones {
        let At::Zone(folder) = &zone.at else { continue };
        // RAPL has three (NR_POWER_LIMITS in intel_rapl.h), powercap at most 10
        // (MAX_CONSTRAINTS_PER_ZONE).
        for constraint in 0..8 {
            let path = format!("{POWERCAP}/{folder}/constraint_{constraint}_name");
            // Constraints are numbered without gaps (powercap_register_zone), so the first missing
            // name is the end.
            let Ok(name) = host.read(&path) else { break };
            let at = At::Constraint { zone: folder.clone(), constraint };
            places.push(Place::named(at, format!("{} {name}", zone.name), zone.cpus.clone()));
        }
    }
    places
}

/// Returns the devices with platform profiles (since kernel 6.14), by the names that their drivers
/// gave them. The numbers in directory names are reused.
fn find_profile_devices(host: &dyn Host, topology: &Topology) -> Vec<Place> {
    let folders = host.list(PROFILE_DEVICES).unwrap_or_default();
    let place = |folder: &String| {
        let name = host.read(&format!("{PROFILE_DEVICES}/{folder}/name")).unwrap_or_default();
        Place::named(At::ProfileDevice(folder.clone()), name, topology.present.clone())
    };
    folders.iter().map(place).collect()
}

/// Returns the sockets with a management port. Both of its drivers create the sensors in the order
/// of the sockets, and hsmp_acpi binds one device per socket (drivers/platform/x86/amd/hsmp).
fn find_sockets(host: &dyn Host, topology: &Topology) -> Vec<Place> {
    let is_port = |name: &String| name.starts_with("AMDI0097:");
    let ports: Vec<String> = host.list(PLATFORM).unwrap_or_default().into_iter().filter(is_port).collect();
    let is_sensor =
        |name: &String| host.read(&format!("{HWMON}/{name}/name")).is_ok_and(|driver| driver == PORT_SENSOR);
    let hwmons: Vec<String> = host.list(HWMON).unwrap_or_default().into_iter().filter(is_sensor).collect();
    let packages = topology.packages();
    let place = |socket: usize| {
        let of = |names: &[String]| names.get(socket).cloned().unwrap_or_default();
        let at = At::Socket { hwmon: of(&hwmons), port: of(&ports) };
        let cpus = packages.get(&(socket as u32)).unwrap_or(&topology.present);
        Place::named(at, format!("socket-{socket}"), cpus.clone())
    };
    (0..ports.len().max(hwmons.len())).map(place).collect()
}

fn find_sensors(host: &dyn Host, topology: &Topology) -> Vec<Place> {
    let mut places = Vec::new();
    for hwmon in host.list(HWMON).unwrap_or_default() {
        let folder = format!("{HWMON}/{hwmon}");
        let driver = host.read(&format!("{folder}/name")).unwrap_or_default();
        // Drives, boards and memory have sensors too. Only these three are for processors.
        if !matches!(driver.as_str(), "coretemp" | "k10temp" | "zenpower") {
            continue;
        }
        let files = host.list(&folder).unwrap_or_default();
        let mut numbers: Vec<u32> = files
            .iter()
            .filter_map(|file| file.strip_prefix("temp")?.strip_suffix("_input")?.parse().ok())
            .collect();
        // Directory order is not sensor order.
        numbers.sort_unstable();
        let labels: Vec<String> = numbers
            .iter()
            .map(|sensor| {
                let label = host.read(&format!("{folder}/temp{sensor}_label")).unwrap_or_default();
                if label.is_empty() { format!("temp{sensor}") } else { label }
            })
            .collect();
        // coretemp has one device per package. Only this label has the package's number.
        let package = labels.iter().find_map(|label| label.strip_prefix("Package id ")?.parse::<u32>().ok());
        for (sensor, label) in numbers.into_iter().zip(labels) {
            let cpus = sensor_cpus(topology, package, &label);
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

/// Returns the CPUs that a coretemp sensor measures. For an AMD sensor, whose device does not name
/// its package, returns all CPUs.
fn sensor_cpus(topology: &Topology, package: Option<u32>, label: &str) -> CpuList {
    let Some(package) = package else { return topology.present.clone() };
    let core = label.strip_prefix("Core ").and_then(|core| core.parse::<u32>().ok());
    let on = |cpu: &&crate::Cpu| cpu.package == Some(package) && (core.is_none() || cpu.core == core);
    topology.cpus.values().filter(on).map(|cpu| cpu.number).collect()
}
