//! Why a value cannot be written.

use std::fmt;

use crate::ReadError;

/// Why a value cannot be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetError {
    /// The row is a fact.
    ReadOnly(&'static str),
    /// Nothing on this machine takes a write of the knob there.
    Nowhere { knob: &'static str, place: String, why: String },
    /// The knob's file or register cannot carry a value of this type.
    WrongType { knob: &'static str, value: String },
    /// The snapshot does not have the knob.
    Read(ReadError),
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetError::ReadOnly(knob) => write!(f, "{knob} is a fact of the machine and cannot be set"),
            TargetError::Nowhere { knob, place, why } => write!(f, "{knob} cannot be set on {place}: {why}"),
            TargetError::WrongType { knob, value } => write!(f, "{knob} cannot take the value {value}"),
            TargetError::Read(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TargetError {}

impl From<ReadError> for TargetError {
    fn from(error: ReadError) -> TargetError {
        TargetError::Read(error)
    }
}
