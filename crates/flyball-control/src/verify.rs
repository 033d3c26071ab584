//! Do the wanted settings hold, and if not, who may have changed them?

use serde::Serialize;

use crate::{
    Snapshot,
    intent::Intent,
    owners::Owner,
    plan::{Change, Note, PlanError, differences},
};

/// Whether an intent holds.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct Verdict {
    /// The settings that do not hold: what is there (`old`), and what should be (`new`).
    pub drifted: Vec<Change>,
    /// Programs that run on the machine and write the knobs that drifted; see
    /// [`Verdict::set_owners`].
    pub owners: Vec<Owner>,
    /// What else there is to know.
    pub notes: Vec<Note>,
}

impl Verdict {
    /// Whether every setting holds.
    pub fn holds(&self) -> bool {
        self.drifted.is_empty()
    }

    /// Names those of `running` that write what drifted.
    pub fn set_owners(&mut self, running: Vec<Owner>) {
        self.owners = running;
        self.owners.retain(|owner| self.drifted.iter().any(|change| owner.writes.contains(&change.knob)));
    }
}

/// Compares a machine that is as in `snapshot` (see [`Snapshot::for_intent`]) with what is wanted.
///
/// # Errors
/// As [`crate::plan::plan`], but for what only the present state refuses: that has drifted.
pub fn verify(snapshot: &Snapshot, intent: &Intent) -> Result<Verdict, PlanError> {
    let plan = differences(snapshot, intent)?;
    // `epp=default` has no value to compare: the kernel reads it back as whatever the firmware had
    // chosen. And what would only be written again after another change holds now.
    let drifted: Vec<Change> = plan
        .changes
        .into_iter()
        .filter(|change| {
            change.new != "default"
                && !(change.provisional && change.old.as_deref().map(str::trim) == Some(&change.new))
        })
        .collect();
    Ok(Verdict { drifted, owners: Vec::new(), notes: plan.notes })
}
