//! What came of a change: what was made, what the kernel made of it, or why nothing was changed.

use std::{fmt, io};

use flyball_host::HostError;
use serde::Serialize;

use super::{journal::JournalError, reasons::Reason, restore::Restoration, state::LockError};
use crate::{
    Id, Intent,
    plan::{Change, Note, PlanError},
};

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The value was read back.
    Applied,
    /// The kernel accepted the write and made this of it.
    Clamped(String),
    /// The kernel accepted the write, and the location still holds this, which it held before.
    Lost(String),
    /// The value was read back, and something changed it to this before the work was done.
    Overridden(String),
}

impl Outcome {
    /// What the location holds, where that is not what was written.
    pub fn other(&self) -> Option<&str> {
        match self {
            Outcome::Applied => None,
            Outcome::Clamped(to) | Outcome::Lost(to) | Outcome::Overridden(to) => Some(to),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Applied => f.write_str("applied"),
            Outcome::Clamped(to) => write!(f, "the kernel clamped it to {to}"),
            Outcome::Lost(old) => write!(f, "the kernel accepted the write and kept {old}"),
            Outcome::Overridden(to) => write!(f, "something changed it to {to} afterwards"),
        }
    }
}

/// What the kernel made of a write that was made to see just that.
#[derive(Debug)]
pub enum Probed {
    /// The value was read back.
    Held,
    /// It was taken, and this is read.
    Reads(String),
    /// It was refused.
    Refused(HostError),
}

/// A change that was made.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct AppliedChange {
    /// The change, with what was there before it.
    pub change: Change,
    /// What became of it.
    pub outcome: Outcome,
}

impl fmt::Display for AppliedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { knob, new, place, .. } = &self.change;
        write!(f, "{knob}={new} on {place}: {}", self.outcome)
    }
}

/// What applying an intent came to.
#[derive(Debug, Clone, PartialEq, Default, schemars::JsonSchema, Serialize)]
pub struct Applied {
    /// The changes in the order in which they were made.
    pub made: Vec<AppliedChange>,
    /// The changes that were planned at first and turned out not to be needed: others had had their
    /// effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_needed: Vec<Change>,
    /// What else there is to know.
    pub notes: Vec<Note>,
    /// The part of the intent that the machine could have.
    #[serde(skip)]
    pub intent: Intent,
}

impl Applied {
    /// Notes which changes do not hold any more, given those that a plan would make again. The plan
    /// is the judge: a write of a number that was lost still reads as a word, which might have been
    /// that number's.
    pub(super) fn compare(&mut self, again: &[Change]) {
        for change in again.iter().filter(|change| !change.provisional) {
            // What the firmware had chosen has no value to compare: such a change is planned every
            // time.
            if change.knob == Id::Epp && change.new == "default" {
                continue;
            }
            let Some(now) = &change.old else { continue };
            // The last write of a location is the one whose value is there.
            let made = self.made.iter_mut().rfind(|made| made.change.location == change.location);
            if let Some(made) = made.filter(|made| made.outcome == Outcome::Applied) {
                // Everything else that was lost had been seen when it was read back.
                let is_number = change.knob == Id::Epp && change.new.parse::<u8>().is_ok();
                made.outcome = if is_number && made.change.old.as_ref() == Some(now) {
                    Outcome::Lost(now.clone())
                } else {
                    Outcome::Overridden(now.clone())
                };
            }
        }
    }

    /// The changes whose location holds another value than was written.
    pub fn clamped(&self) -> impl Iterator<Item = &AppliedChange> {
        self.made.iter().filter(|made| made.outcome.other().is_some())
    }
}

/// Why an intent was not applied. What had been written by then has been restored, except for what
/// `restoration` names.
#[derive(Debug)]
pub enum ApplyError {
    /// Planning failed; nothing was written.
    Plan(PlanError),
    /// The kernel refused a write.
    Refused {
        change: Box<Change>,
        /// What the kernel said.
        error: HostError,
        /// The likely reason, with the remedy.
        reason: Option<Reason>,
        /// The changes before that did not hold: the write may depend on them.
        not_held: Vec<AppliedChange>,
        /// How restoring went.
        restoration: Box<Restoration>,
    },
    /// After the driver or its policies had changed, the rest could not be planned.
    Replan {
        error: PlanError,
        /// The changes before that did not hold: as a rule the reason.
        not_held: Vec<AppliedChange>,
        /// How restoring went.
        restoration: Box<Restoration>,
    },
    /// The journal cannot be written, so the machine was not either.
    Journal {
        error: JournalError,
        /// How restoring went.
        restoration: Box<Restoration>,
    },
    /// The user interrupted.
    Interrupted {
        /// How restoring went.
        restoration: Box<Restoration>,
    },
}

impl ApplyError {
    /// How restoring went; `None` where nothing had been written.
    pub fn restoration(&self) -> Option<&Restoration> {
        match self {
            ApplyError::Plan(_) => None,
            ApplyError::Refused { restoration, .. }
            | ApplyError::Replan { restoration, .. }
            | ApplyError::Journal { restoration, .. }
            | ApplyError::Interrupted { restoration } => Some(restoration),
        }
    }
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApplyError::Plan(error) => return error.fmt(f),
            ApplyError::Refused { change, error, reason, not_held, .. } => {
                for made in not_held {
                    writeln!(f, "{made}")?;
                }
                write!(f, "{}={} on {}: {error}", change.knob, change.new, change.place)?;
                if let Some(reason) = reason {
                    write!(f, "\n  {reason}")?;
                }
            }
            ApplyError::Replan { error, not_held, .. } => {
                for made in not_held {
                    writeln!(f, "{made}")?;
                }
                write!(f, "after the first changes the rest cannot be made: {error}")?;
            }
            ApplyError::Journal { error, .. } => error.fmt(f)?,
            ApplyError::Interrupted { .. } => f.write_str("interrupted")?,
        }
        if let Some(restoration) = self.restoration() {
            write!(f, "\n{restoration}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ApplyError {}

/// Why a machine cannot be held.
#[derive(Debug, thiserror::Error)]
pub enum TransactionError {
    /// Another flyball has it, or the state directory cannot be used.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The journal cannot be used, or an earlier transaction has to be restored first.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The guardian could not be started.
    #[error("cannot start the guardian process: {0}")]
    Guardian(io::Error),
}
