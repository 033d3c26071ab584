//! Checks whether the wanted settings hold, and if not, which programs may have changed them.

use serde::Serialize;

use crate::{
    Snapshot,
    intent::Intent,
    owners::Owner,
    plan::{Change, Note, PlanError, differences},
};

/// The result of checking an intent.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct Verdict {
    /// The settings that do not hold, with the present (`old`) and the wanted (`new`) content.
    pub drifted: Vec<Change>,
    /// Programs that run on the machine and write the knobs that drifted; see
    /// [`Verdict::set_owners`].
    pub owners: Vec<Owner>,
    /// Further notes.
    pub notes: Vec<Note>,
}

impl Verdict {
    /// Returns whether every setting holds.
    pub fn holds(&self) -> bool {
        self.drifted.is_empty()
    }

    /// Sets the owners to the programs in `running` that write the knobs that drifted.
    pub fn set_owners(&mut self, running: Vec<Owner>) {
        self.owners = running;
        self.owners.retain(|owner| self.drifted.iter().any(|change| owner.writes.contains(&change.knob)));
    }
}

/// Compares a machine as `snapshot` shows it (see [`Snapshot::for_intent`]) with the intent.
///
/// # Errors
/// Same as [`crate::plan::plan`], except for settings that only the present state refuses: those
/// have drifted.
pub fn verify(snapshot: &Snapshot, intent: &Intent) -> Result<Verdict, PlanError> {
    let plan = differences(snapshot, intent)?;
    // `epp=default` has no value to compare: the kernel reads it back as the firmware's choice. And
    // a setting that would only be written again after another change holds now.
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
