//! The combined settings in force: all holds in the order of their priorities.

use std::collections::BTreeMap;

use flyball_control::{
    Id, Intent, KnobName, ONLY_PERFORMANCE, Setting, Snapshot, Topology,
    plan::{Target, targets},
    select,
};
use flyball_host::CpuList;

use crate::{Exemption, Facts, Hold, HoldName, LeftBecause};

/// The overlay of the active holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Effective {
    /// The settings, the strongest hold's last: for each place, the plan uses the last setting.
    pub intent: Intent,
    /// The active holds, the strongest last.
    pub holds: Vec<HoldName>,
    /// For each setting, the position of its hold in `holds`.
    of: Vec<usize>,
}

impl Effective {
    /// Builds the overlay of these holds, which are in the order in which they were added.
    pub fn new(holds: &[Hold], facts: &Facts) -> Effective {
        // Ends are not checked here: `Store::expire` removes ended holds under the lock, so that
        // they are released for good.
        let is_in_force =
            |hold: &&Hold| hold.condition.as_ref().is_none_or(|condition| condition.is_met(facts));
        let mut counting: Vec<&Hold> = holds.iter().filter(is_in_force).collect();
        // The sort is stable, so on equal priority the newer hold wins. The plan uses the last
        // setting of a place, so the strongest hold comes last.
        counting.sort_by_key(|hold| hold.priority);
        let mut effective = Effective::default();
        for (index, hold) in counting.into_iter().enumerate() {
            effective.holds.push(hold.name.clone());
            for setting in hold.intent().settings {
                effective.of.push(index);
                effective.intent.settings.push(setting);
            }
        }
        effective
    }

    /// Returns the hold whose setting a plan calls `from`.
    pub fn hold_of(&self, from: &str) -> Option<&HoldName> {
        // Search from the end: if two holds have the same text, the stronger hold decides.
        let index = self.intent.settings.iter().rposition(|setting| setting.from == from)?;
        self.holds.get(*self.of.get(index)?)
    }

    /// Returns the settings without the places that were left to others.
    pub fn without(&self, left: &[Exemption], snapshot: &Snapshot) -> Intent {
        let left = &[left, &refused_preferences(left, snapshot)].concat()[..];
        // Other instances matter only if a setting covers all instances and one of them was left.
        let splits = |setting: &Setting| {
            setting.name.instance.is_none()
                && left.iter().any(|left| left.concerns(setting) && !left.instance.is_empty())
        };
        let places = if self.intent.settings.iter().any(splits) {
            // If the planner refuses this, it reports that when it plans the remaining settings.
            targets(snapshot, &self.intent).unwrap_or_default()
        } else {
            Vec::new()
        };
        let mut settings = Vec::with_capacity(self.intent.settings.len());
        for setting in &self.intent.settings {
            settings.extend(remaining(setting, left, &places, snapshot.topology()));
        }
        Intent { settings }
    }
}

/// Returns the preferences that the kernel refuses because another writer has set the governor
/// performance there, and the governor is left alone. They must not prevent the rest of their
/// holds.
pub(crate) fn refused_preferences(left: &[Exemption], snapshot: &Snapshot) -> Vec<Exemption> {
    let is_performance = |cpus: &CpuList| {
        let places = snapshot.places_on(Id::Governor, cpus).unwrap_or_default();
        places.iter().any(|place| {
            let value = snapshot.value_if_readable(Id::Governor, place);
            value.is_ok_and(|value| value.is_some_and(|value| value.to_string() == "performance"))
        })
    };
    let governors = left.iter().filter(|left| left.knob == Id::Governor && is_performance(&left.cpus));
    let preferences = governors.flat_map(|left| {
        let places = snapshot.places_on(Id::Epp, &left.cpus).unwrap_or_default();
        places.into_iter().filter_map(|place| {
            let location = snapshot.slot(Id::Epp, &place).ok().flatten()?.location.clone();
            let because = LeftBecause::Refused(ONLY_PERFORMANCE.to_owned());
            let (knob, cpus) = (Id::Epp, place.cpus.clone());
            Some(Exemption { knob, cpus, location, because, found: None, cause: None, ..left.clone() })
        })
    });
    preferences.collect()
}

/// Returns the remaining part of a setting: the CPUs, or the CPUs of each instance, on which
/// nothing was left.
fn remaining(setting: &Setting, left: &[Exemption], places: &[Target], topology: &Topology) -> Vec<Setting> {
    let gone: Vec<&Exemption> = left.iter().filter(|left| left.concerns(setting)).collect();
    if gone.is_empty() {
        return vec![setting.clone()];
    }
    let cpus = match &setting.on {
        // The planner refuses an invalid selector.
        Some(selector) => match select(selector, topology) {
            Ok(cpus) => cpus,
            Err(_) => return vec![setting.clone()],
        },
        None => topology.present.clone(),
    };
    let of_knob = places.iter().filter(|place| place.knob == setting.knob() && !place.instance.is_empty());
    let mut instances: BTreeMap<Option<&str>, CpuList> = BTreeMap::new();
    if setting.name.instance.is_none() {
        for place in of_knob {
            instances.entry(Some(&place.instance)).or_default().add(&place.cpus);
        }
    }
    if instances.is_empty() {
        instances.insert(None, cpus.clone());
    }
    let remain = instances.into_iter().filter_map(|(instance, on)| {
        let is_gone =
            |left: &&&Exemption| instance.is_none_or(|instance| left.instance.eq_ignore_ascii_case(instance));
        let on =
            gone.iter().filter(is_gone).fold(on.intersection(&cpus), |on, left| on.difference(&left.cpus));
        let instance = instance.map(str::to_owned).or_else(|| setting.name.instance.clone());
        let name = KnobName { instance, ..setting.name.clone() };
        (!on.is_empty()).then(|| Setting { name, on: Some(on.to_string()), ..setting.clone() })
    });
    remain.collect()
}
