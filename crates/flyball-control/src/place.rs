//! A place on a machine where a knob exists: one instance of a scope, with the CPUs that it
//! governs.

use std::fmt;

use derive_more::Display;
use flyball_host::CpuList;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Scope;

/// The identity of a place. Sorts by kind, then by number, for readable lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize, Display)]
#[serde(rename_all = "kebab-case")]
pub enum At {
    /// The whole machine.
    #[display("machine")]
    Machine,
    /// A package (socket), by `physical_package_id`.
    #[display("package {_0}")]
    Package(u32),
    /// A die of a package.
    #[display("die {package}:{die}")]
    Die {
        package: u32,
        /// `die_id` in the package.
        die: u32,
    },
    /// A core of a die.
    #[display("core {package}:{die}:{core}")]
    Core {
        package: u32,
        die: u32,
        /// `core_id`.
        core: u32,
    },
    /// A cpufreq policy, by the number in `policyN`.
    #[display("policy {_0}")]
    Policy(u32),
    /// A logical CPU.
    #[display("CPU {_0}")]
    Cpu(u32),
    /// An idle state of a CPU.
    #[display("CPU {cpu} state {state}")]
    IdleState {
        cpu: u32,
        /// The state's number in `stateN`: its depth, 0 the lightest.
        state: u32,
    },
    /// An uncore frequency domain, by its directory (`package_00_die_00`, `uncore03`).
    #[display("uncore {_0}")]
    Uncore(String),
    /// A powercap zone, by its directory below /sys/class/powercap (`intel-rapl:0:0`).
    #[display("zone {_0}")]
    Zone(String),
    /// A constraint of a powercap zone.
    #[display("zone {zone} constraint {constraint}")]
    Constraint {
        /// The zone's directory.
        zone: String,
        /// The constraint's number.
        constraint: u32,
    },
    /// A power domain of Speed Select.
    #[display("power domain {package}:{domain}")]
    PowerDomain {
        package: u32,
        /// The die, as sysfs numbers it; 0 for a domain without CPUs.
        die: u32,
        /// The domain in the package.
        domain: u32,
    },
    /// A class of service of a power domain.
    #[display("class {class} of power domain {package}:{domain}")]
    Clos {
        package: u32,
        die: u32,
        domain: u32,
        /// The class, 0 to 3.
        class: u32,
    },
    /// A device with platform profiles, by its directory (`platform-profile-0`).
    #[display("{}", _0)]
    ProfileDevice(String),
    /// A socket with a management port (HSMP).
    #[display("{port}")]
    Socket {
        /// The directory of its power sensor (`hwmon3`); empty if it has none.
        hwmon: String,
        /// The directory of its ACPI device (`AMDI0097:00`); empty with the driver amd_hsmp.
        port: String,
    },
    /// A temperature sensor of a hwmon device.
    #[display("{hwmon} temp{sensor}")]
    Sensor {
        /// The device's directory (`hwmon3`).
        hwmon: String,
        /// The sensor's number in `tempN_input`.
        sensor: u32,
    },
}

/// Returns whether an uncore directory is that of a cluster, below a package's entry. Only the TPMI
/// driver names directories uncoreNN (uncore_freq_add_entry in uncore-frequency-common.c).
pub(crate) fn is_uncore_cluster(directory: &str) -> bool {
    directory.starts_with("uncore")
}

impl At {
    /// Returns whether this is an uncore cluster.
    pub(crate) fn is_uncore_cluster(&self) -> bool {
        matches!(self, At::Uncore(name) if is_uncore_cluster(name))
    }

    /// Returns the scope that this is an instance of.
    pub fn scope(&self) -> Scope {
        match self {
            At::Machine => Scope::Machine,
            At::Package(_) => Scope::Package,
            At::Die { .. } => Scope::Die,
            At::Core { .. } => Scope::Core,
            At::Policy(_) => Scope::Policy,
            At::Cpu(_) => Scope::Cpu,
            At::IdleState { .. } => Scope::IdleState,
            At::Uncore(_) => Scope::Uncore,
            At::Zone(_) => Scope::Zone,
            At::Constraint { .. } => Scope::Constraint,
            At::PowerDomain { .. } => Scope::PowerDomain,
            At::Clos { .. } => Scope::Clos,
            At::ProfileDevice(_) => Scope::ProfileDevice,
            At::Socket { .. } => Scope::Socket,
            At::Sensor { .. } => Scope::Sensor,
        }
    }
}

/// Which CPUs a setting must include to apply to a place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub enum Belongs {
    /// Any of the place's CPUs.
    #[default]
    ToEach,
    /// All of the place's CPUs: it also covers dies that are separate places.
    ToAll,
    /// All CPUs of the package: an I/O die serves all of them.
    ToPackage,
}

/// One instance of a knob's scope on a machine.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Place {
    pub at: At,
    /// Name of the instance if the scope has named instances (`C6`, `package-0 long_term`,
    /// `package_00_die_00`, `Core 3`), as after the colon in `idle-state:C6`; empty for numbered
    /// scopes.
    pub name: String,
    /// The CPUs that the place governs, including offline ones.
    pub cpus: CpuList,
    #[serde(skip)]
    pub belongs: Belongs,
}

impl Place {
    /// Creates a place without a name.
    pub fn new(at: At, cpus: CpuList) -> Place {
        Place::named(at, "", cpus)
    }

    /// Returns the place of machine-wide knobs.
    pub(crate) fn machine() -> Place {
        Place::new(At::Machine, CpuList::new())
    }

    pub fn named(at: At, name: impl Into<String>, cpus: CpuList) -> Place {
        Place { at, name: name.into(), cpus, belongs: Belongs::ToEach }
    }

    #[must_use]
    pub(crate) fn belonging(self, belongs: Belongs) -> Place {
        Place { belongs, ..self }
    }

    /// Returns whether a selection of these CPUs selects the place.
    pub fn is_on(&self, cpus: &CpuList) -> bool {
        match self.belongs {
            Belongs::ToEach => self.cpus.intersects(cpus),
            // A setting for one die must not change a place that all dies of the package share.
            Belongs::ToAll | Belongs::ToPackage => !self.cpus.is_empty() && self.cpus.is_subset(cpus),
        }
    }

    /// Returns the place's own CPUs; an I/O die has none.
    pub fn own_cpus(&self) -> &CpuList {
        match self.belongs {
            Belongs::ToEach | Belongs::ToAll => &self.cpus,
            Belongs::ToPackage => const { &CpuList::new() },
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            At::IdleState { cpu, .. } => write!(f, "{} of CPU {cpu}", self.name),
            At::Zone(_)
            | At::Constraint { .. }
            | At::ProfileDevice(_)
            | At::Socket { .. }
            | At::Sensor { .. }
            | At::Uncore(_)
                if !self.name.is_empty() =>
            {
                f.write_str(&self.name)
            }
            at => at.fmt(f),
        }
    }
}
