//! The entry of a package above its uncore clusters. Writing it writes all of them. After that the
//! driver refuses a lower minimum or a higher maximum for a cluster (uncore_write_control_freq in
//! uncore-frequency-tpmi.c), and never lifts that bound.

use super::{Belongs, Bound, Id, Place, Planner, ReadError, Value, Wanted};

impl Planner<'_> {
    /// Gives a package's entry the widest limit wanted for its clusters, if one is wanted for all
    /// of them. Does not write an entry that is wide enough, so that its bound stays.
    pub(super) fn widen_uncore_entries(&mut self) -> Result<(), ReadError> {
        let is_entry = |place: &Place| place.belongs == Belongs::ToAll && !place.at.is_uncore_cluster();
        let mut narrow = Vec::new();
        for knob in [Id::UncoreMinFreq, Id::UncoreMaxFreq] {
            let bound = knob.knob().control().map_or(Bound::None, |control| control.writing.bound);
            let wider = |one: &Value, other: &Value| match (one, other, bound) {
                (Value::Frequency(one), Value::Frequency(other), Bound::Upper) => one.0 > other.0,
                (Value::Frequency(one), Value::Frequency(other), _) => one.0 < other.0,
                _ => false,
            };
            let of_knob = self.wants.values().filter(|want| want.knob == knob && is_entry(&want.place));
            let entries: Vec<Place> = of_knob.map(|want| want.place.clone()).collect();
            for entry in entries {
                let clusters = self.snapshot.places(knob)?.iter();
                let own = clusters
                    .filter(|place| place.at.is_uncore_cluster() && place.cpus.is_subset(&entry.cpus));
                let values: Option<Vec<Value>> =
                    own.map(|place| self.wants.get(&(knob, place.at.clone()))?.value.clone()).collect();
                let widest = values
                    .into_iter()
                    .flatten()
                    .reduce(|one, other| if wider(&other, &one) { other } else { one });
                let Some(want) = self.wants.get_mut(&(knob, entry.at)) else { continue };
                let Some(widest) = widest else { continue };
                if want.now.as_ref().is_some_and(|now| !wider(&widest, now)) {
                    narrow.push((knob, want.place.at.clone()));
                }
                want.wanted = Wanted::Exactly(widest.clone());
                want.value = Some(widest);
            }
        }
        self.wants.retain(|key, _| !narrow.contains(key));
        Ok(())
    }
}
