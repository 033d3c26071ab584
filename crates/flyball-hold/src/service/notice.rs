//! What a service reports, a line each.

use crate::{Drift, HoldName};

/// Something that is worth a line in the log.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    Drift(Box<Drift>),
    /// The holds that count now, the strongest last.
    InForce(Vec<HoldName>),
    /// A hold has ended by itself.
    Ended(HoldName),
    /// The holds cannot be brought about, or the configuration cannot be used.
    Failed(String),
    /// Another flyball has the machine; what is to be done is done when it ends.
    Waiting(String),
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notice::Drift(drift) => drift.fmt(f),
            Notice::InForce(holds) if holds.is_empty() => f.write_str("no hold is in force"),
            Notice::InForce(holds) => {
                let names: Vec<&str> = holds.iter().map(HoldName::as_str).collect();
                write!(f, "in force: {}", names.join(", "))
            }
            Notice::Ended(hold) => write!(f, "the hold {hold} has ended"),
            Notice::Failed(error) => f.write_str(error),
            Notice::Waiting(holder) => write!(f, "waiting: {holder}"),
        }
    }
}
