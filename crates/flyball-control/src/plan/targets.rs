//! Places that an intent decides, whether or not they already have the wanted value. A hold watches
//! them, and they stay in effect when another hold is released.

use serde::Serialize;

use flyball_host::CpuList;

use super::{Plan, PlanError, Planner, Rules, choice};
use crate::{Id, Intent, Location, Snapshot};

/// A place that a setting decides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Target {
    pub knob: Id,
    /// The instance of the knob, if it has instances; else empty.
    pub instance: String,
    /// The place, in words.
    pub place: String,
    /// The CPUs that it governs.
    pub cpus: CpuList,
    /// The location of the value, now or once a driver has created it.
    pub location: Location,
    /// Wanted value, in the knob's own terms.
    pub value: String,
    /// Present value, in the same terms; `None` if it cannot be read.
    pub now: Option<String>,
    /// The setting that decides, as the user wrote it.
    pub from: String,
}

/// Returns the places that `intent` decides on a machine as `snapshot` shows it (see
/// [`Snapshot::for_intent`]). If several settings set one place, the last one wins. Optional
/// settings that the machine does not accept are skipped.
///
/// # Errors
/// Same as [`super::plan`], except for settings that are refused only because of the present state.
pub fn targets(snapshot: &Snapshot, intent: &Intent) -> Result<Vec<Target>, PlanError> {
    let plan = |intent: &Intent| super::with_rules(snapshot, intent, Rules::IntentOnly);
    let (_, chosen): (Plan, Intent) = choice::choose(intent, snapshot, plan)?;
    let mut planner = Planner::new(snapshot, Rules::IntentOnly);
    planner.place_all(&chosen)?;
    planner.read_and_resolve()?;
    planner.look_ahead()?;
    // Settings of Speed Select add further wants.
    planner.couple()?;
    let mut targets = Vec::with_capacity(planner.wants.len());
    for want in planner.wants.into_values() {
        let Some(location) = snapshot.future_location(want.knob, &want.place)? else { continue };
        targets.push(Target {
            knob: want.knob,
            instance: want.place.name.clone(),
            place: want.place.to_string(),
            cpus: want.place.cpus.clone(),
            location,
            value: want.value.map_or_else(|| want.wanted.to_string(), |value| value.to_string()),
            now: want.now.map(|value| value.to_string()),
            from: want.from,
        });
    }
    Ok(targets)
}
