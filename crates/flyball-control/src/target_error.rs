//! Why a value cannot be written.

use crate::{ReadError, Why};

/// Why a value cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The row is a fact.
    #[error("{0} is a fact of the machine and cannot be set")]
    ReadOnly(&'static str),
    /// No file or register on this machine accepts a write of the knob there.
    #[error("{knob} cannot be set on {place}: {why}")]
    Nowhere { knob: &'static str, place: String, why: Why },
    /// The knob's file or register cannot hold a value of this type.
    #[error("{knob} cannot take the value {value}")]
    WrongType { knob: &'static str, value: String },
    /// The snapshot does not have the knob.
    #[error(transparent)]
    Read(#[from] ReadError),
}
