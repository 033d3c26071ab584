//! Exactly what a write would do: which file gets which bytes, or which bits of which register change.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The end of the way from a wanted value to the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Write `bytes` to `path` in one write(2).
    File {
        /// The attribute.
        path: String,
        /// The bytes, without a line end.
        bytes: Vec<u8>,
    },
    /// Make a Speed Select call.
    SpeedSelect {
        /// The setting, in its text form.
        setting: String,
        /// What it becomes.
        content: String,
    },
    /// Change the bits of `mask` in a register to those of `value`.
    Msr {
        /// The CPU.
        cpu: u32,
        /// The register's number.
        register: u32,
        /// Which bits change.
        mask: u64,
        /// What they change to; zero outside `mask`.
        value: u64,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::File { path, bytes } => write!(f, "{path} = {}", String::from_utf8_lossy(bytes)),
            Target::SpeedSelect { setting, content } => write!(f, "{setting} = {content}"),
            Target::Msr { cpu, register, mask, value } => {
                write!(f, "MSR {register:#x} of CPU {cpu}, bits {mask:#x} = {value:#x}")
            }
        }
    }
}

/// Why there is no way to write a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetError {
    /// The row is a fact.
    ReadOnly(&'static str),
    /// Nothing on this machine takes a write of the knob there.
    Nowhere {
        /// The knob.
        knob: &'static str,
        /// The place.
        place: String,
        /// The reason.
        why: String,
    },
    /// The mechanism cannot carry a value of this type.
    WrongType {
        /// The knob.
        knob: &'static str,
        /// The value.
        value: String,
    },
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetError::ReadOnly(knob) => write!(f, "{knob} is a fact of the machine and cannot be set"),
            TargetError::Nowhere { knob, place, why } => write!(f, "{knob} cannot be set on {place}: {why}"),
            TargetError::WrongType { knob, value } => write!(f, "{knob} cannot take the value {value}"),
        }
    }
}

impl std::error::Error for TargetError {}
