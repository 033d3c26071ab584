//! Finds the part of an intent that a machine accepts, if the intent has lists of values or
//! optional settings. The planner does not know about these. This module calls it again without the
//! refused settings, until it returns a plan or refuses a setting that has no alternative.

use std::collections::BTreeMap;

use super::{Absence, Note, Obstacle, Plan, PlanError, Remark};
use crate::{
    Evidence, Id, Snapshot, Why,
    intent::{Intent, Setting},
};

/// Limits on rounds, each of which plans the whole intent. Lists have fewer values in practice. A
/// client's profile must not keep the planner busy, so an intent with many settings gets fewer
/// rounds.
const ROUNDS: std::ops::RangeInclusive<usize> = 10..=20;

/// Number of settings that all rounds together may plan, within the limits of [`ROUNDS`].
const MAX_PLANNED: usize = 2000;

/// Returns a plan for the part of `intent` that the machine accepts, and that part.
///
/// # Errors
/// The errors of `plan` for settings that are not optional and have no other value. If no setting
/// remains, the obstacles.
pub(super) fn choose(
    intent: &Intent,
    snapshot: &Snapshot,
    plan: impl Fn(&Intent) -> Result<Plan, PlanError>,
) -> Result<(Plan, Intent), PlanError> {
    let mut intent = intent.clone();
    // Why each setting did not get its first value, by the setting's name.
    let mut first: BTreeMap<String, Obstacle> = BTreeMap::new();
    let mut left_out = Vec::new();
    let max_rounds = (MAX_PLANNED / intent.settings.len().max(1)).clamp(*ROUNDS.start(), *ROUNDS.end());
    // Each round removes a value or a setting, so the loop ends.
    let mut rounds = 0;
    loop {
        rounds += 1;
        let error = match plan(&intent) {
            Ok(mut plan) => {
                plan.notes.extend(notes_of(snapshot, left_out));
                plan.notes.extend(instead(&intent, snapshot, &first));
                return Ok((plan, intent));
            }
            Err(error) => error,
        };
        let obstacles: Vec<Obstacle> = match error {
            PlanError::Refused(refusals) => refusals.into_iter().map(Obstacle::Refused).collect(),
            PlanError::NotHere(absences) => absences.into_iter().map(Obstacle::Absent).collect(),
            error @ PlanError::Read(_) => return Err(error),
        };
        // In one round a setting may be refused at several places, each for a different reason. It
        // gives way only once. Only one reason is given for an absent knob.
        let mut gave_way: BTreeMap<usize, Option<Obstacle>> = BTreeMap::new();
        let mut stands = Vec::new();
        for obstacle in obstacles {
            let names = obstacle.settings();
            // If two settings contradict each other, the later one gives way if possible.
            let way_out = intent
                .settings
                .iter()
                .rposition(|setting| setting.is_flexible() && names.contains(&setting.from.as_str()));
            match way_out {
                Some(at) => {
                    if matches!(obstacle, Obstacle::Absent(_)) {
                        let alike = |other: &Setting| {
                            let this = &intent.settings[at];
                            other.is_flexible() && other.name == this.name && other.on == this.on
                        };
                        let settings = intent.settings.iter().enumerate();
                        for (other, _) in settings.filter(|(_, setting)| alike(setting)) {
                            gave_way.entry(other).or_insert(None);
                        }
                    }
                    let reason = gave_way.entry(at).or_insert(None);
                    *reason = reason.take().or(Some(obstacle));
                }
                // This counts absences that are not listed. They get their own round.
                None if matches!(obstacle, Obstacle::Absent(Absence::More(_))) => {}
                None => stands.push(obstacle),
            }
        }
        if rounds == max_rounds {
            stands.extend(std::mem::take(&mut gave_way).into_values().flatten());
        }
        if !stands.is_empty() || gave_way.is_empty() {
            return Err(refused(stands));
        }
        // Go from the last to the first, so that removing a setting does not move the others.
        for (at, because) in gave_way.into_iter().rev() {
            let setting = &mut intent.settings[at];
            if setting.otherwise.is_empty() {
                left_out.extend(because.map(|because| (because, setting.knob())));
                intent.settings.remove(at);
            } else {
                setting.wanted = setting.otherwise.remove(0);
                if let Some(because) = because {
                    first.entry(setting.from.clone()).or_insert(because);
                }
            }
        }
        if intent.settings.is_empty() {
            return Err(refused(left_out.into_iter().map(|(because, _)| because).collect()));
        }
    }
}

/// Notes the settings that were dropped. Settings for another vendor's processors share a note.
fn notes_of(snapshot: &Snapshot, left_out: Vec<(Obstacle, Id)>) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for (because, knob) in left_out.into_iter().rev() {
        let (remark, evidence) = match &because {
            Obstacle::Absent(
                Absence::Nowhere { from, why: why @ Why::OtherVendor(vendor), .. }
                | Absence::AtPlaces { from, why: why @ Why::OtherVendor(vendor), .. },
            ) => {
                let setting = (from.clone(), knob);
                let known = notes.iter_mut().find_map(|note| match &mut note.remark {
                    Remark::OfOtherVendor { vendor: of, settings } if of == vendor => Some(settings),
                    _ => None,
                });
                if let Some(settings) = known {
                    settings.push(setting);
                    continue;
                }
                let evidence = vec![snapshot.absence_evidence(knob, why)];
                (Remark::OfOtherVendor { vendor: *vendor, settings: vec![setting] }, evidence)
            }
            _ => (Remark::LeftOut { because }, first_read(snapshot, knob)),
        };
        notes.push(Note { remark, evidence });
    }
    notes
}

/// Notes the settings that got a later value from their list.
fn instead(intent: &Intent, snapshot: &Snapshot, first: &BTreeMap<String, Obstacle>) -> Vec<Note> {
    let note = |setting: &Setting| {
        let because = first.get(&setting.from)?.clone();
        let (knob, chosen) = (setting.knob(), setting.wanted.clone());
        // The kernel's list is the evidence for a governor. Other reasons name their source.
        let evidence = if knob == Id::Governor { first_read(snapshot, knob) } else { Vec::new() };
        Some(Note { remark: Remark::Instead { knob, chosen, because }, evidence })
    };
    intent.settings.iter().filter_map(note).collect()
}

/// Returns the value of a knob at its first place, or the reason why the machine lacks the knob.
fn first_read(snapshot: &Snapshot, knob: Id) -> Vec<Evidence> {
    // The kernel's list decides about a governor.
    let knob = if knob == Id::Governor { Id::AvailableGovernors } else { knob };
    let place = snapshot.places(knob).ok().and_then(|places| places.first());
    let absent = || snapshot.absent_everywhere(knob).map(|why| snapshot.absence_evidence(knob, why));
    let nowhere = || Evidence { place: knob.to_string(), value: "no file or register".to_owned() };
    vec![match place {
        Some(place) => snapshot.evidence(knob, place),
        None => absent().unwrap_or_else(nowhere),
    }]
}

/// Turns obstacles into an error, with refusals first, as the planner does.
fn refused(obstacles: Vec<Obstacle>) -> PlanError {
    let (mut refusals, mut absences) = (Vec::new(), Vec::new());
    for obstacle in obstacles {
        match obstacle {
            Obstacle::Refused(refusal) => refusals.push(refusal),
            Obstacle::Absent(absence) => absences.push(absence),
        }
    }
    if absences.is_empty() { PlanError::Refused(refusals) } else { PlanError::NotHere(absences) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::plan::Refusal;

    #[test]
    fn rounds_are_bounded_and_a_short_list_is_tried_to_its_end() {
        let rounds_of = |values: usize| {
            let mut intent = Intent::from_arguments(&["governor=performance"], None).unwrap();
            let setting = &mut intent.settings[0];
            setting.optional = true;
            setting.otherwise = vec![setting.wanted.clone(); values];
            let refused = vec![Refusal::GovernorOfActiveMode { from: setting.from.clone() }];
            let rounds = Cell::new(0);
            let plan = |_: &Intent| {
                rounds.set(rounds.get() + 1);
                Err(PlanError::Refused(refused.clone()))
            };
            let snapshot = Snapshot::empty("", flyball_host::Kind::Recorded, crate::Topology::default());
            assert!(choose(&intent, &snapshot, plan).is_err());
            rounds.get()
        };
        assert_eq!((rounds_of(0), rounds_of(7), rounds_of(10_000)), (1, 8, *ROUNDS.end()));
    }
}
