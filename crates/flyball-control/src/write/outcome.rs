//! The outcome of a change: the writes that were made and their effect, or why nothing was changed.

use std::{fmt, io};

use flyball_host::HostError;
use serde::Serialize;

use super::{journal::JournalError, reasons::Reason, restore::Restoration, state::LockError};
use crate::{
    Id, Intent, Location,
    plan::{Change, Note, PlanError},
};

/// The effect of a change.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize, derive_more::Display)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The value was read back.
    #[display("applied")]
    Applied,
    /// The kernel accepted the write but turned it into this value.
    #[display("the kernel clamped it to {_0}")]
    Clamped(String),
    /// The kernel accepted the write, but the location still holds this earlier value.
    #[display("the kernel accepted the write and kept {_0}")]
    Lost(String),
    /// The value was read back, but something changed it to this before the work was done.
    #[display("something changed it to {_0} afterwards")]
    Overridden(String),
}

impl Outcome {
    /// Returns the content of the location, if it differs from what was written.
    pub fn other(&self) -> Option<&str> {
        match self {
            Outcome::Applied => None,
            Outcome::Clamped(to) | Outcome::Lost(to) | Outcome::Overridden(to) => Some(to),
        }
    }
}

/// The effect of a write that was made only to observe it.
#[derive(Debug)]
pub enum ProbeOutcome {
    /// The value was read back.
    Held,
    /// The kernel accepted the write, but the location reads back as this.
    Reads(String),
    /// The kernel refused the write.
    Refused(HostError),
}

/// A change that was made.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct AppliedChange {
    /// The change, including the earlier value.
    pub change: Change,
    /// The effect of the change.
    pub outcome: Outcome,
}

impl fmt::Display for AppliedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { knob, new, place, .. } = &self.change;
        write!(f, "{knob}={new} on {place}: {}", self.outcome)
    }
}

/// A write that the kernel refused while others were made.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusedChange {
    pub change: Change,
    /// The likely reason, or the meaning of the errno.
    pub why: String,
}

/// The result of applying an intent.
#[derive(Debug, Clone, PartialEq, Default, schemars::JsonSchema, Serialize)]
pub struct Applied {
    /// The changes in the order in which they were made.
    pub made: Vec<AppliedChange>,
    /// Changes of the first plan that were not needed later, because others had the same effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_needed: Vec<Change>,
    /// Further notes.
    pub notes: Vec<Note>,
    /// The writes that the kernel refused twice.
    #[serde(skip)]
    pub refused: Vec<RefusedChange>,
    /// The part of the intent that the machine accepted.
    #[serde(skip)]
    pub intent: Intent,
}

impl Applied {
    /// Marks changes that are no longer in effect, which are those that a new plan would make
    /// again. The plan must decide this: if the write of a number was lost, the location still
    /// reads as a word, and that might have been the word for the number.
    pub(super) fn compare(&mut self, again: &[Change]) {
        for change in again.iter().filter(|change| !change.provisional) {
            // The number of `default` is unknown, so such a change is planned every time.
            if change.knob == Id::Epp && change.new == "default" {
                continue;
            }
            let Some(now) = &change.old else { continue };
            // Only the last write of a location determines its value.
            let made = self.made.iter_mut().rfind(|made| made.change.location == change.location);
            if let Some(made) = made.filter(|made| made.outcome == Outcome::Applied) {
                // Other lost writes were already noticed when they were read back.
                let is_number = change.knob == Id::Epp && change.new.parse::<u8>().is_ok();
                made.outcome = if is_number && made.change.old.as_ref() == Some(now) {
                    Outcome::Lost(now.clone())
                } else {
                    Outcome::Overridden(now.clone())
                };
            }
        }
    }

    /// Adds the changes that cannot be planned any more.
    pub(super) fn refuse(&mut self, rest: Vec<Change>, error: &PlanError) {
        let refused = rest.into_iter().map(|change| RefusedChange { change, why: error.to_string() });
        self.refused.extend(refused);
    }

    /// Removes earlier attempts at changes that were made again.
    pub(super) fn forget(&mut self, again: &[AppliedChange]) {
        let is_again =
            |made: &AppliedChange| again.iter().any(|again| again.change.location == made.change.location);
        self.made.retain(|made| !is_again(made));
    }

    pub(super) fn was_refused(&self, location: &Location) -> bool {
        self.refused.iter().any(|refused| refused.change.location == *location)
    }

    /// Returns the changes whose location holds a value other than the one written.
    pub fn clamped(&self) -> impl Iterator<Item = &AppliedChange> {
        self.made.iter().filter(|made| made.outcome.other().is_some())
    }
}

/// Why an intent was not applied. All earlier writes have been restored, except those that
/// `restoration` lists.
#[derive(Debug)]
pub enum ApplyError {
    /// Planning failed; nothing was written.
    Plan(PlanError),
    /// The kernel refused a write.
    Refused {
        change: Box<Change>,
        /// The kernel's error.
        error: HostError,
        /// The likely reason, with the remedy.
        reason: Option<Reason>,
        /// Earlier changes that did not take effect: this write may depend on them.
        not_held: Vec<AppliedChange>,
        /// The result of restoring.
        restoration: Box<Restoration>,
    },
    /// After the driver or its policies had changed, the remaining changes could not be planned.
    Replan {
        error: PlanError,
        /// Earlier changes that did not take effect: usually the cause.
        not_held: Vec<AppliedChange>,
        /// The result of restoring.
        restoration: Box<Restoration>,
    },
    /// The journal cannot be written, so nothing was written to the machine either.
    Journal {
        error: JournalError,
        /// The result of restoring.
        restoration: Box<Restoration>,
    },
    /// The user interrupted the command.
    Interrupted {
        /// The result of restoring.
        restoration: Box<Restoration>,
    },
}

impl ApplyError {
    /// Returns the result of restoring; `None` if nothing had been written.
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
                write!(f, "{}={} on {}: {error}", change.knob, change.value, change.place)?;
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
        match (self, self.restoration()) {
            // flyball wrote nothing now. That says nothing about earlier writes.
            (ApplyError::Journal { .. }, Some(restoration)) if restoration.is_nothing() => {}
            (_, Some(restoration)) => write!(f, "\n{restoration}")?,
            (_, None) => {}
        }
        Ok(())
    }
}

impl std::error::Error for ApplyError {}

/// Why a transaction on the machine cannot begin or end.
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
    /// Settings were restored, but the file system refused to record it.
    #[error("{restoration}\n{error}, so flyball remembers these settings until the next restore")]
    Unrecorded { error: JournalError, restoration: Box<Restoration> },
}

impl TransactionError {
    /// Returns the error of a journal that could not be written after a restoration.
    pub(super) fn after(error: JournalError, restoration: &Restoration) -> TransactionError {
        match error {
            JournalError::Io { .. } => {
                TransactionError::Unrecorded { error, restoration: Box::new(restoration.clone()) }
            }
            other => other.into(),
        }
    }
}
