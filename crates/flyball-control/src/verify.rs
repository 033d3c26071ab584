//! Do the wanted settings hold, and if not, who may have changed them?

use serde::Serialize;

use crate::{
    Machine,
    intent::Intent,
    owners::{Owner, owners},
    plan::{Change, PlanError, plan},
};

/// Whether an intent holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The settings that do not hold: what is there (`old`), and what should be (`new`).
    pub drifted: Vec<Change>,
    /// Programs that run on the machine and write the knobs that drifted.
    pub owners: Vec<Owner>,
    /// What else there is to know.
    pub notes: Vec<String>,
}

impl Verdict {
    /// Whether every setting holds.
    pub fn holds(&self) -> bool {
        self.drifted.is_empty()
    }
}

/// Compares the machine with what is wanted.
///
/// # Errors
/// As [`plan`].
pub fn verify(machine: &Machine<'_>, intent: &Intent) -> Result<Verdict, PlanError> {
    let plan = plan(machine, intent)?;
    // `epp=default` has no value to compare: the kernel reads it back as whatever the firmware had chosen. And what
    // would only be written again after another change holds now.
    let drifted: Vec<Change> = plan
        .changes
        .into_iter()
        .filter(|change| {
            change.new != "default"
                && !(change.provisional && change.old.as_deref().map(str::trim) == Some(&change.new))
        })
        .collect();
    let mut owners = if drifted.is_empty() { Vec::new() } else { owners(machine.host()) };
    owners.retain(|owner| drifted.iter().any(|change| owner.writes.contains(&change.knob)));
    Ok(Verdict { drifted, owners, notes: plan.notes })
}
