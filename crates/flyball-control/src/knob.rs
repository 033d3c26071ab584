//! The row type of the knob table and its vocabulary: scopes, mechanisms, forms, and (in `control`)
//! what setting a knob takes.
//!
//! The rows are in [`crate::TABLE`], the only source for `show`, `get`, `set`, `save`, `restore`,
//! `explain`, the manual page, completions and tests. To add a knob, add a row to a file in
//! `table/` and a line to `knob/id.rs`.

mod control;
mod id;
pub mod order;
pub mod spelling;
pub mod subject;

use std::fmt;

use derive_more::Display;
use flyball_host::Vendor;
use flyball_sst::setting::Field;
use serde::{Deserialize, Serialize};

pub use self::control::{
    AppearsWith, Check, Control, Disturbs, Ends, Refusal, Role, Saved, Section, Visibility, When, Writing,
};
pub use self::id::Id;
pub(crate) use self::id::rows;
use self::order::Step;

/// The kind of object that has its own instance of a knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole machine.
    #[display("machine")]
    Machine,
    /// A package (socket).
    #[display("package")]
    Package,
    #[display("die")]
    Die,
    /// A power domain of Speed Select.
    #[display("power domain")]
    PowerDomain,
    /// A core with its threads.
    #[display("core")]
    Core,
    /// A cpufreq policy.
    #[display("policy")]
    Policy,
    /// A logical CPU.
    #[display("CPU")]
    Cpu,
    /// An idle state of a CPU.
    #[display("idle state")]
    IdleState,
    /// An uncore frequency domain.
    #[display("uncore domain")]
    Uncore,
    /// A powercap zone.
    #[display("energy zone")]
    Zone,
    /// A constraint of a powercap zone.
    #[display("power constraint")]
    Constraint,
    /// A device with platform profiles.
    #[display("profile device")]
    ProfileDevice,
    /// A socket of an EPYC with a management port (HSMP).
    #[display("socket")]
    Socket,
    /// A temperature sensor.
    #[display("sensor")]
    Sensor,
    /// A class of service of a power domain.
    #[display("class of service")]
    Clos,
}

/// Access to a row: read-only, or read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, Serialize, Deserialize)]
pub enum Access {
    #[serde(rename = "ro")]
    ReadOnly,
    #[serde(rename = "rw")]
    ReadWrite,
}

/// The unit that a value has in JSON and in the kernel's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unit {
    /// No unit: words, switches, counts.
    #[serde(rename = "")]
    None,
    #[serde(rename = "kHz")]
    KiloHertz,
    #[serde(rename = "%")]
    Percent,
    #[serde(rename = "us")]
    Micros,
    #[serde(rename = "uW")]
    MicroWatts,
    #[serde(rename = "uJ")]
    MicroJoules,
    #[serde(rename = "C")]
    Celsius,
}

impl Unit {
    /// Returns the unit's symbol, or an empty string if it has none.
    pub fn symbol(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::KiloHertz => "kHz",
            Unit::Percent => "%",
            Unit::Micros => "us",
            Unit::MicroWatts => "uW",
            Unit::MicroJoules => "uJ",
            Unit::Celsius => "C",
        }
    }
}

/// How a file or a register field spells a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Word,
    /// Words separated by blanks.
    Words,
    /// Lines of words, possibly none.
    Lines,
    /// `1` is on, `0` is off.
    Switch,
    /// `0` is on, any other number is off: `no_turbo`, an idle state's `disable`.
    InvertedSwitch,
    /// `enabled` or `disabled`.
    Enabled,
    /// A frequency in kHz.
    KHz,
    /// Frequencies in kHz separated by blanks.
    KHzList,
    /// A frequency in MHz.
    MHz,
    /// A ratio to the bus clock of Intel processors. The text assumes 100 MHz, which holds since
    /// Sandy Bridge.
    Ratio,
    Percent,
    Micros,
    Nanos,
    /// `pm_qos_resume_latency_us`: microseconds, `0` for no limit, `n/a` for no latency at all.
    LatencyLimit,
    MicroWatts,
    MicroJoules,
    /// Thousandths of a degree Celsius.
    MilliCelsius,
    /// An energy performance preference: a word or a number.
    Epp,
    /// An energy performance bias, 0 to 15.
    Epb,
    /// A performance level.
    Perf,
    /// A plain number.
    Count,
    /// Bit fields of a register: name, highest bit, lowest bit.
    Fields(&'static [(&'static str, u8, u8)]),
}

impl Form {
    /// Returns the unit that values of this form have.
    pub fn unit(self) -> Unit {
        match self {
            Form::KHz | Form::KHzList | Form::MHz | Form::Ratio => Unit::KiloHertz,
            Form::Percent => Unit::Percent,
            Form::Micros | Form::Nanos | Form::LatencyLimit => Unit::Micros,
            Form::MicroWatts => Unit::MicroWatts,
            Form::MicroJoules => Unit::MicroJoules,
            Form::MilliCelsius => Unit::Celsius,
            _ => Unit::None,
        }
    }
}

/// One way to read a knob, and in some cases to write it. A knob's mechanisms are tried in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// An attribute file.
    File {
        /// The path. `{cpu}`, `{policy}`, `{state}`, `{zone}`, `{constraint}`, `{uncore}`,
        /// `{hwmon}`, `{sensor}` and `{profile-device}` stand for the place's numbers,
        /// `{any-policy}` for the first online policy.
        path: &'static str,
        /// How the value is spelled.
        form: Form,
        /// True if flyball may write it.
        write: bool,
    },
    /// A field of a model-specific register, on the place's first online CPU.
    Msr {
        /// The vendor whose processors have it.
        vendor: Vendor,
        /// The processors that have it. On others the bits mean something else, or nothing.
        on: On,
        /// The register's number.
        register: u32,
        /// Highest and lowest bit of the field.
        bits: (u8, u8),
        /// How the value is spelled.
        form: Form,
        /// True if flyball may write it.
        write: bool,
    },
    /// A setting of Intel Speed Select. The place gives the number of a class or core.
    SpeedSelect {
        field: Field,
        /// How the value is spelled.
        form: Form,
        /// True if flyball may write it.
        write: bool,
    },
    /// Whether the file's list of CPUs contains the CPU.
    Member { path: &'static str },
}

/// The processors of a vendor on which a register's field has the meaning that its row states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    All,
    /// Processors with this flag in /proc/cpuinfo.
    Flag(&'static str),
    /// These models of family 6.
    Models(&'static [u32]),
}

impl Mechanism {
    /// Returns how this mechanism spells the value.
    pub fn form(&self) -> Form {
        match self {
            Mechanism::File { form, .. }
            | Mechanism::Msr { form, .. }
            | Mechanism::SpeedSelect { form, .. } => *form,
            Mechanism::Member { .. } => Form::Switch,
        }
    }

    /// Returns whether flyball may write it.
    pub fn writes(&self) -> bool {
        match self {
            Mechanism::File { write, .. }
            | Mechanism::Msr { write, .. }
            | Mechanism::SpeedSelect { write, .. } => *write,
            Mechanism::Member { .. } => false,
        }
    }
}

/// Returns the mask of the bits `high` to `low`.
pub(crate) fn mask((high, low): (u8, u8)) -> u64 {
    // `(1 << width) - 1` would overflow for bits 63:0.
    (u64::MAX >> (63 - high + low)) << low
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mechanism::File { path, .. } => f.write_str(path),
            Mechanism::Msr { register, bits: (63, 0), .. } => write!(f, "MSR {register:#x}"),
            Mechanism::Msr { register, bits: (high, low), .. } if high == low => {
                write!(f, "MSR {register:#x} bit {low}")
            }
            Mechanism::Msr { register, bits: (high, low), .. } => {
                write!(f, "MSR {register:#x} bits {high}:{low}")
            }
            Mechanism::SpeedSelect { field, .. } => {
                let name = format!("{field:?}");
                write!(f, "Speed Select ({})", name.split('(').next().unwrap_or_default())
            }
            Mechanism::Member { path } => write!(f, "the list in {path}"),
        }
    }
}

/// A knob or a read-only fact: its identity and its row of the table.
#[derive(Debug)]
pub struct Knob {
    /// Identity in code.
    pub id: Id,
    /// Name on the command line and in profiles.
    pub name: &'static str,
    pub(crate) row: Row,
}

impl std::ops::Deref for Knob {
    type Target = Row;

    fn deref(&self) -> &Row {
        &self.row
    }
}

/// The knob table's data about a knob.
#[derive(Debug)]
pub struct Row {
    /// Short description.
    pub title: &'static str,
    /// Kind of object that has its own instance.
    pub scope: Scope,
    /// The vendor, if only one vendor's processors have it.
    pub vendor: Option<Vendor>,
    /// The section in which `show` prints it, and when.
    pub shown: Visibility,
    /// Mechanisms, best first. Never empty.
    pub mechanisms: &'static [Mechanism],
    /// Description of the effect, in a paragraph.
    pub about: &'static str,
    /// Rows that it interacts with, and how.
    pub interacts: &'static [(Id, &'static str)],
    /// A fact, or a knob with everything that is needed to set it.
    pub role: Role,
}

impl Knob {
    /// Returns whether it can be set.
    pub fn access(&self) -> Access {
        if self.control().is_some() { Access::ReadWrite } else { Access::ReadOnly }
    }

    /// Returns how to set it; `None` for a fact.
    pub fn control(&self) -> Option<&Control> {
        match &self.role {
            Role::Fact => None,
            Role::Knob(control) => Some(control),
        }
    }

    /// Returns the accepted values, in words; empty for a fact.
    pub fn accepts(&self) -> &'static str {
        self.control().map_or("", |control| control.accepts)
    }

    /// Returns the step under which it is listed; `None` for a fact.
    pub fn step(&self) -> Option<Step> {
        self.control().map(|control| control.writing.turn.listed())
    }

    /// Returns the knob for a part of the machine, if this one is machine-wide.
    pub fn narrower(&self) -> Option<Id> {
        (self.id == Id::Turbo).then_some(Id::Boost)
    }

    /// Returns the unit of its values.
    pub fn unit(&self) -> Unit {
        self.form().unit()
    }

    /// Returns how its first mechanism spells the value.
    pub fn form(&self) -> Form {
        self.mechanisms.first().map_or(Form::Word, Mechanism::form)
    }
}

impl PartialEq for Knob {
    fn eq(&self, other: &Knob) -> bool {
        self.id == other.id
    }
}

impl Eq for Knob {}
