//! Why a value cannot be written.

use crate::{ReadError, Why};

/// Why a value cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The row is a fact.
    #[error("{0} is a fact of the machine and cannot be set")]
    ReadOnly(&'static str),
    /// Nothing on this machine takes a write of the knob there.
    #[error("{knob} cannot be set on {place}: {why}")]
    Nowhere { knob: &'static str, place: String, why: Why },
    /// The knob's file or register cannot carry a value of this type.
    #[error("{knob} cannot take the value {value}")]
    WrongType { knob: &'static str, value: String },
    /// The snapshot does not have the knob.
    #[error(transparent)]
    Read(#[from] ReadError),
}
