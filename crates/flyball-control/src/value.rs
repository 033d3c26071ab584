//! Contents of knobs: typed values, readings with their source, and reasons for absence.

use std::fmt;

use flyball_host::{
    Celsius, CpuList, Epb, Epp, Errno, HostError, KiloHertz, MicroJoules, MicroWatts, Micros, Percent, Perf,
    Vendor,
};
use serde::{Deserialize, Serialize};

use crate::Location;

/// A typed value of a knob or fact.
///
/// A word that the table does not know (a driver mode of a later kernel) is still a
/// [`Value::Word`]: shown as text, never a failure.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Value {
    /// One of a set of words: a governor, a driver, a preference.
    Word(String),
    /// Several words: available governors.
    Words(Vec<String>),
    /// On or off. Inverted files (`no_turbo`, an idle state's `disable`) are already inverted: on
    /// means on.
    Switch(bool),
    /// A frequency in kHz.
    Frequency(KiloHertz),
    /// Several frequencies, as the driver orders them.
    Frequencies(Vec<KiloHertz>),
    /// A whole percentage.
    Percent(Percent),
    /// A time in microseconds.
    Time(Micros),
    /// A power in microwatts.
    Power(MicroWatts),
    /// An energy counter in microjoules.
    Energy(MicroJoules),
    /// A temperature in degrees Celsius.
    Temperature(Celsius),
    /// An energy performance bias, 0 to 15.
    Epb(Epb),
    /// An energy performance preference as the register's number, 0 to 255.
    Epp(Epp),
    /// An abstract performance level.
    Perf(Perf),
    /// A plain count.
    Count(u64),
    /// Named fields of one register, from bit 0 upwards.
    Fields(Vec<(String, u64)>),
    /// A set of CPUs.
    Cpus(CpuList),
}

impl Value {
    /// Returns the value as JSON users expect it: bare numbers in the knob's unit, words as
    /// strings, lists as arrays.
    pub fn plain(&self) -> Plain<'_> {
        Plain(self)
    }

    pub fn frequency(&self) -> Option<KiloHertz> {
        match self {
            Value::Frequency(frequency) => Some(*frequency),
            _ => None,
        }
    }

    pub fn word(&self) -> Option<&str> {
        match self {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Returns the words, if the value is a list of words.
    pub fn words(&self) -> Option<&[String]> {
        match self {
            Value::Words(words) => Some(words),
            _ => None,
        }
    }

    /// Returns the switch's position, if the value is a switch.
    pub fn switch(&self) -> Option<bool> {
        match self {
            Value::Switch(on) => Some(*on),
            _ => None,
        }
    }
}

/// Serialises a [`Value`] without its type tag.
#[derive(Debug)]
pub struct Plain<'a>(&'a Value);

/// The values of different knobs have little in common: each is a word, a number, a switch (`true`
/// is on), a list, or named fields.
impl schemars::JsonSchema for Plain<'_> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PlainValue".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A word, a number in the knob's unit, a switch (true is on), a list, or named fields.",
            "type": ["string", "number", "boolean", "array", "object"],
        })
    }
}

impl Serialize for Plain<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Word(word) => word.serialize(serializer),
            Value::Words(words) => words.serialize(serializer),
            Value::Switch(on) => on.serialize(serializer),
            Value::Frequency(value) => value.serialize(serializer),
            Value::Frequencies(values) => values.serialize(serializer),
            Value::Percent(value) => value.serialize(serializer),
            Value::Time(value) => value.serialize(serializer),
            Value::Power(value) => value.serialize(serializer),
            Value::Energy(value) => value.serialize(serializer),
            Value::Temperature(value) => value.serialize(serializer),
            Value::Epb(value) => value.serialize(serializer),
            Value::Epp(value) => value.serialize(serializer),
            Value::Perf(value) => value.serialize(serializer),
            Value::Count(value) => value.serialize(serializer),
            Value::Fields(fields) => serializer.collect_map(fields.iter().map(|(name, value)| (name, value))),
            Value::Cpus(cpus) => cpus.serialize(serializer),
        }
    }
}

/// Writes `items` with `separator` between them.
fn joined<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T>,
    separator: &str,
) -> fmt::Result {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            f.write_str(separator)?;
        }
        write!(f, "{item}")?;
    }
    Ok(())
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Word(word) => f.write_str(word),
            Value::Words(words) => joined(f, words, " "),
            Value::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            Value::Frequency(value) => value.fmt(f),
            Value::Frequencies(values) => joined(f, values, ", "),
            Value::Percent(value) => write!(f, "{} %", value.0),
            Value::Time(value) => value.fmt(f),
            Value::Power(value) => value.fmt(f),
            Value::Energy(value) => value.fmt(f),
            Value::Temperature(value) => value.fmt(f),
            Value::Epb(value) => value.0.fmt(f),
            Value::Epp(value) => value.0.fmt(f),
            Value::Perf(value) => value.0.fmt(f),
            Value::Count(value) => value.fmt(f),
            Value::Fields(fields) => {
                joined(f, fields.iter().map(|(name, value)| format!("{name} {value}")), ", ")
            }
            Value::Cpus(cpus) => cpus.fmt(f),
        }
    }
}

/// The result of reading a knob at a place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    Value {
        value: Value,
        source: Location,
    },
    /// The machine, or this place, does not have the knob.
    Absent(Why),
}

impl Reading {
    pub fn value(&self) -> Option<&Value> {
        match self {
            Reading::Value { value, .. } => Some(value),
            Reading::Absent(_) => None,
        }
    }

    /// Returns the source of the value, if there is one.
    pub fn source(&self) -> Option<&Location> {
        match self {
            Reading::Value { source, .. } => Some(source),
            Reading::Absent(_) => None,
        }
    }
}

/// One observation: a location and the value read there.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize, derive_more::Display)]
#[display("{}: {}", place, value)]
pub struct Evidence {
    /// A path, a register of a CPU, or a kernel parameter.
    pub place: String,
    /// The value read there.
    pub value: String,
}

/// The reason why a knob is absent.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display,
)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The file does not exist: the driver or the hardware lacks the feature.
    #[display("no {_0}")]
    NoFile(String),
    /// No cpufreq driver is loaded, as on nearly every virtual machine.
    #[display("no cpufreq driver")]
    NoCpufreq,
    /// The CPU, or every CPU of the policy, is offline.
    #[display("offline")]
    Offline,
    /// The driver is registered but switched off (`EAGAIN`).
    #[display("the driver is off ({_0} answers EAGAIN)")]
    DriverOff(String),
    /// The register cannot be read: no msr driver, or the CPU does not have it.
    #[display(
        "{}MSR {register:#x}{}",
        if *no_driver { "only in " } else { "" },
        if *no_driver { ", and there is no msr driver (modprobe msr)" } else { " is not there" }
    )]
    NoRegister {
        /// The register's number.
        register: u32,
        /// True if `/dev/cpu/N/msr` is missing altogether (`modprobe msr`).
        no_driver: bool,
    },
    /// It exists on this vendor's processors only.
    #[display("on {_0} processors only")]
    OtherVendor(Vendor),
    /// The register's bits mean something else on this processor, or are not documented for it.
    #[display("MSR {register:#x} is not known to hold it on this processor")]
    OtherModel {
        /// The register's number.
        register: u32,
    },
    /// The file contains 0, which firmware leaves in a field that it does not fill in.
    #[display("the firmware leaves it at 0 ({_0})")]
    Unset(String),
    /// The file exists, but the kernel reports that this machine lacks the feature (`EOPNOTSUPP`,
    /// `ENODATA`).
    #[display("not supported here ({_0})")]
    Unsupported(String),
    /// The kernel's own words for why it does not apply now.
    #[display("{_0}")]
    NotNow(String),
}

impl Why {
    /// Returns whether both are the same reason, ignoring the paths of files.
    pub fn is_like(&self, other: &Why) -> bool {
        match (self, other) {
            (Why::NoFile(_), Why::NoFile(_))
            | (Why::DriverOff(_), Why::DriverOff(_))
            | (Why::Unset(_), Why::Unset(_))
            | (Why::Unsupported(_), Why::Unsupported(_)) => true,
            _ => self == other,
        }
    }

    /// Returns the reason with `policyN` in its path replaced by every policy.
    pub(crate) fn for_every_policy(&self, policy: u32) -> Why {
        match self {
            Why::NoFile(path) => Why::NoFile(path.replacen(&format!("/policy{policy}/"), "/policy*/", 1)),
            _ => self.clone(),
        }
    }
}

/// A failure to read something that should exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// The kernel refused the read.
    Host(HostError),
    /// The content is nothing that the kernel prints.
    Content {
        /// The file or register.
        source: Location,
        /// The content, shortened.
        found: String,
        /// The expected form.
        expected: &'static str,
    },
    /// The snapshot was taken without this knob there, which is a bug in flyball.
    NotTaken(crate::Id),
}

impl ReadError {
    /// Returns the errno, if the kernel gave one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            ReadError::Host(error) => Some(error.errno),
            ReadError::Content { .. } | ReadError::NotTaken(_) => None,
        }
    }

    /// Returns whether root rights would help.
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(Errno::PERM | Errno::ACCES))
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Host(error) if error.errno == Errno::ILSEQ => {
                write!(f, "{} is not text (no valid UTF-8)", error.path)
            }
            ReadError::Host(error) if self.is_permission() => write!(f, "{error}; try as root"),
            ReadError::Host(error) => error.fmt(f),
            ReadError::Content { source, found, expected } if found.is_empty() => {
                write!(f, "{source} is empty; expected {expected}")
            }
            ReadError::Content { source, found, expected } => {
                write!(f, "{source} holds '{found}'; expected {expected}")
            }
            ReadError::NotTaken(knob) => {
                write!(f, "flyball did not read {knob} before it was needed; please report this")
            }
        }
    }
}

impl std::error::Error for ReadError {}

impl From<HostError> for ReadError {
    fn from(error: HostError) -> ReadError {
        ReadError::Host(error)
    }
}
