//! Checks whether the wanted settings are in effect, and if not, which programs may have changed
//! them.

use flyball_host::CpuList;
use serde::Serialize;

use crate::{
    Id, Snapshot,
    intent::Intent,
    owners::Owner,
    plan::{Change, Note, PlanError, differences},
};

/// A hold that keeps a drifted setting at a value other than the wanted one.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct HeldBy {
    pub hold: String,
    pub knob: Id,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// The value that the hold sets, in the knob's own terms.
    pub value: String,
    pub cpus: CpuList,
}

/// The result of checking an intent.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct Verdict {
    /// The settings that are not in effect, with the present (`old`) and the wanted (`new`)
    /// content.
    pub drifted: Vec<Change>,
    /// Programs that run on the machine and write the knobs that drifted; see
    /// [`Verdict::set_owners`].
    pub owners: Vec<Owner>,
    /// Holds that set the knobs that drifted; see [`Verdict::set_holds`].
    pub held_by: Vec<HeldBy>,
    /// Further notes.
    pub notes: Vec<Note>,
}

impl Verdict {
    /// Returns whether every setting is in effect.
    pub fn holds(&self) -> bool {
        self.drifted.is_empty()
    }

    /// Sets the owners to the programs in `running` that write the knobs that drifted.
    pub fn set_owners(&mut self, running: Vec<Owner>) {
        self.owners = running;
        self.owners.retain(|owner| self.drifted.iter().any(|change| owner.writes.contains(&change.knob)));
    }

    /// Sets the holds to those in `held` that set a drifted knob.
    pub fn set_holds(&mut self, held: Vec<HeldBy>) {
        self.held_by = held;
        self.held_by.retain(|one| {
            let is_same = |change: &Change| change.knob == one.knob && change.instance == one.instance;
            // A place without CPUs is the whole machine.
            let is_whole = |change: &Change| change.cpus.is_empty() || one.cpus.is_empty();
            let is_here = |change: &Change| is_whole(change) || change.cpus.intersects(&one.cpus);
            self.drifted.iter().any(|change| is_same(change) && is_here(change))
        });
    }
}

/// Compares a machine as `snapshot` shows it (see [`Snapshot::for_intent`]) with the intent.
///
/// # Errors
/// Same as [`crate::plan::plan`], except for settings that are refused only because of the present
/// state: those have drifted.
pub fn verify(snapshot: &Snapshot, intent: &Intent) -> Result<Verdict, PlanError> {
    let plan = differences(snapshot, intent)?;
    // Skip `epp=default`, which has no value to compare: the kernel reads it back as the firmware's
    // choice. Skip settings that are in effect and would only be written again after another
    // change.
    let drifted: Vec<Change> = plan
        .changes
        .into_iter()
        .filter(|change| {
            change.new != "default"
                && !(change.provisional && change.old.as_deref().map(str::trim) == Some(&change.new))
        })
        .collect();
    Ok(Verdict { drifted, owners: Vec::new(), held_by: Vec::new(), notes: plan.notes })
}
