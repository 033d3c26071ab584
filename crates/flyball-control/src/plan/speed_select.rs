//! Rules of Speed Select: dependencies, firmware refusals, and the costs of settings.
//!
//! base-freq and turbo-freq need core-power. All of them belong to the level, and turbo-freq needs
//! turbo. Required settings are added to the plan with the reason; contradictions are refused
//! before the first write.

use std::collections::BTreeMap;

use flyball_host::{CpuList, KiloHertz};

use super::{Planner, Refusal, Remark, Want};
use crate::{
    At, Id, Place, ReadError, Scope, Value, Wanted,
    snapshot::{LEVEL_KNOBS, Level},
};

/// The planned state of a power domain.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "switches of one domain")]
struct PlannedDomain {
    level: usize,
    level_changes: bool,
    base_freq: bool,
    turbo_freq: bool,
    core_power: bool,
    ordered: bool,
}

impl Planner<'_> {
    /// Applies every rule of Speed Select.
    pub(super) fn speed_select(&mut self) -> Result<(), ReadError> {
        let touched = self.wants.values().any(|want| is_of_speed_select(want.knob));
        if !touched {
            return Ok(());
        }
        // Check every domain, not only those in the intent: a rule for one setting may add a want
        // to its domain.
        for place in self.snapshot.power_domain_places().to_vec() {
            // A domain without a readable level belongs to an IO die or to firmware that does not
            // answer. No rule can be checked there.
            let Some(planned) = self.planned(&place)? else { continue };
            self.features(&place, &planned)?;
            self.switches(&place, &planned)?;
            self.classes_without_core_power(&place)?;
        }
        self.class_ranges()
    }

    fn want_at(&self, knob: Id, place: &Place) -> Option<Want> {
        self.wants.get(&(knob, place.at.clone())).cloned()
    }

    /// Returns the value that a knob will have: the wanted one, else the present one.
    fn expected_value(&self, knob: Id, place: &Place) -> Result<Option<Value>, ReadError> {
        match self.want_at(knob, place) {
            Some(want) => Ok(want.value),
            None => self.snapshot.value_if_readable(knob, place),
        }
    }

    fn planned(&self, place: &Place) -> Result<Option<PlannedDomain>, ReadError> {
        let on = |knob: Id| {
            Ok::<_, ReadError>(
                self.expected_value(knob, place)?.and_then(|value| value.switch()).unwrap_or(false),
            )
        };
        // Without the present and the planned level, nothing is known about features.
        let number = |value: Option<Value>| match value {
            Some(Value::Count(number)) => usize::try_from(number).ok(),
            _ => None,
        };
        let now = number(self.snapshot.value_if_readable(Id::SstLevel, place)?);
        let (Some(now), Some(level)) = (now, number(self.expected_value(Id::SstLevel, place)?)) else {
            return Ok(None);
        };
        let ordered = self.expected_value(Id::SstCpPriority, place)?;
        // A level change switches features off. Only the requested ones are switched on after it.
        let level_changes = level != now;
        // Firmware clears base-freq and turbo-freq when the level changes.
        let kept = |knob: Id| !level_changes || self.want_at(knob, place).is_some();
        Ok(Some(PlannedDomain {
            level,
            level_changes,
            base_freq: on(Id::SstBf)? && kept(Id::SstBf),
            turbo_freq: on(Id::SstTf)? && kept(Id::SstTf),
            core_power: on(Id::SstCp)?,
            ordered: ordered.is_some_and(|word| word == Value::Word("ordered".to_owned())),
        }))
    }

    /// Returns a level of a power domain.
    fn level_at(&self, place: &Place, level: usize) -> Result<Option<Level>, ReadError> {
        Ok(self.snapshot.levels_at(&place.at)?.get(level).cloned().flatten())
    }

    /// Returns the levels that have a feature.
    fn levels_with(&self, place: &Place, base: bool) -> Result<Vec<usize>, ReadError> {
        let has = |level: &Level| if base { level.features.base_freq } else { level.features.turbo_freq };
        let all = self.snapshot.levels_at(&place.at)?.iter().enumerate();
        Ok(all.filter(|(_, level)| level.as_ref().is_some_and(has)).map(|(number, _)| number).collect())
    }

    /// Checks what features need from the level, turbo and core-power, and notes their costs.
    fn features(&mut self, place: &Place, planned: &PlannedDomain) -> Result<(), ReadError> {
        if !self.wants.keys().any(|(knob, _)| LEVEL_KNOBS.contains(knob)) {
            return Ok(());
        }
        // Use the planned level: features belong to the level at which they are switched on.
        let Some(level) = self.level_at(place, planned.level)? else { return Ok(()) };
        for (knob, on, has, base) in [
            (Id::SstBf, planned.base_freq, level.features.base_freq, true),
            (Id::SstTf, planned.turbo_freq, level.features.turbo_freq, false),
        ] {
            let Some(want) = self.want_at(knob, place).filter(|_| on) else { continue };
            if !has {
                let (level, levels) = (planned.level, self.levels_with(place, base)?);
                self.refuse(Refusal::LevelLacksFeature {
                    from: want.from,
                    level,
                    place: place.clone(),
                    levels,
                });
                continue;
            }
            // The feature is on and stays on, so it adds no cost and its requirements are met.
            if want.now.as_ref() == want.value.as_ref() && !planned.level_changes {
                continue;
            }
            let cost = if base { &level.base_freq_cost } else { &level.turbo_freq_cost };
            if let Some(cost) = cost {
                let remark =
                    Remark::Cost { from: want.from.clone(), place: place.clone(), cost: cost.clone() };
                self.note(remark, &[(knob, place), (Id::SstLevel, place)]);
            }
            if knob == Id::SstTf {
                self.needs_turbo(&want)?;
            }
            // Do as intel-speed-select does: set_pbf_core_power and set_fact_for_cpu enable
            // core-power with ordered priority (isst_pm_qos_config(id, 1, 1)) before the feature.
            self.needs_core_power(place, planned, &want)?;
        }
        if planned.level_changes {
            self.level_change(place, &level)?;
        }
        Ok(())
    }

    fn needs_turbo(&mut self, want: &Want) -> Result<(), ReadError> {
        if self.expected_value(Id::Turbo, &Place::machine())? == Some(Value::Switch(false)) {
            self.refuse(Refusal::TurboFreqNeedsTurbo { from: want.from.clone() });
        }
        Ok(())
    }

    /// Adds core-power with ordered priority if a feature needs it and no setting requests it.
    fn needs_core_power(
        &mut self,
        place: &Place,
        planned: &PlannedDomain,
        feature: &Want,
    ) -> Result<(), ReadError> {
        let wanted = self.want_at(Id::SstCp, place).and_then(|want| want.value);
        if wanted == Some(Value::Switch(false)) {
            let (from, place) = (feature.from.clone(), place.clone());
            self.refuse(Refusal::FeatureNeedsCorePower { from, place });
            return Ok(());
        }
        // The other feature may have added it already.
        if !planned.core_power && wanted.is_none() {
            let because = format!("{} needs classes of service to count", feature.from);
            self.add(Id::SstCp, place, Value::Switch(true), because)?;
        }
        if !planned.ordered && self.want_at(Id::SstCpPriority, place).is_none() {
            let because = format!("{} shares power in the order of the classes", feature.from);
            self.add(Id::SstCpPriority, place, Value::Word("ordered".to_owned()), because)?;
        }
        Ok(())
    }

    fn add(&mut self, knob: Id, place: &Place, value: Value, because: String) -> Result<(), ReadError> {
        let now = self.snapshot.value_if_readable(knob, place)?;
        let want = Want {
            knob,
            place: place.clone(),
            wanted: Wanted::Exactly(value.clone()),
            from: because,
            value: Some(value),
            now,
        };
        // Make it a want, which is resolved, checked and ordered like the user's own settings.
        self.wants.insert((knob, place.at.clone()), want);
        Ok(())
    }

    fn level_change(&mut self, place: &Place, level: &Level) -> Result<(), ReadError> {
        let Some(want) = self.want_at(Id::SstLevel, place) else { return Ok(()) };
        // The driver ignores the lock: it writes, waits for firmware to follow, and returns ENOTTY
        // (isst_if_set_perf_level behind isst_if_def_ioctl). A refusal here can state the reason.
        if self.snapshot.value_if_readable(Id::SstLocked, place)? == Some(Value::Switch(true)) {
            self.refuse(Refusal::LevelLocked { from: want.from, place: place.clone() });
            return Ok(());
        }
        // The driver and the firmware switch both off when the level changes
        // (isst_if_set_perf_level).
        for (knob, name) in [(Id::SstBf, "base-freq"), (Id::SstTf, "turbo-freq")] {
            let on = self.snapshot.value_if_readable(knob, place)? == Some(Value::Switch(true));
            if on && self.want_at(knob, place).is_none() {
                let remark =
                    Remark::FeatureGoesOff { from: want.from.clone(), feature: name, place: place.clone() };
                self.note(remark, &[(knob, place)]);
            }
        }
        let Some(domain) = self.snapshot.domain_at(&place.at) else { return Ok(()) };
        if let Some(cost) = &level.own_cost {
            let remark = Remark::Cost { from: want.from.clone(), place: place.clone(), cost: cost.clone() };
            self.note(remark, &[(Id::SstLevel, place)]);
        }
        // Mailbox processors may lack the mask. Then it is unknown which CPUs belong to the level.
        let Some(inside) = &level.cpus else { return Ok(()) };
        // CPUs in an isolated partition count as unused, as with the tool's --cgroup.
        let apart = match self.expected_value(Id::SstApart, place)? {
            Some(Value::Word(list)) => list.parse().unwrap_or_default(),
            _ => CpuList::new(),
        };
        let mut staying = CpuList::new();
        for cpu in domain.cpus.difference(inside).difference(&apart).iter() {
            let place = Place::new(At::Cpu(cpu), CpuList::from_iter([cpu]));
            if self.expected_value(Id::Online, &place)? != Some(Value::Switch(false)) {
                staying.insert(cpu);
            }
        }
        if !staying.is_empty() {
            let rests_on = [(Id::SstLevel, place)];
            self.note(Remark::CpusStayOnline { from: want.from, cpus: staying }, &rests_on);
        }
        Ok(())
    }

    /// Refuses to switch core-power off while turbo-freq is on.
    fn switches(&mut self, place: &Place, planned: &PlannedDomain) -> Result<(), ReadError> {
        let Some(want) = self.want_at(Id::SstCp, place) else { return Ok(()) };
        if want.value == Some(Value::Switch(false)) && planned.turbo_freq {
            let (from, place) = (want.from.clone(), place.clone());
            self.refuse(Refusal::CorePowerUnderTurboFreq { from, place });
        }
        if want.value == Some(Value::Switch(true)) && want.now != want.value {
            self.limits_against_classes(place, &want)?;
        }
        Ok(())
    }

    /// Notes settings of classes that have no effect while core-power is off.
    fn classes_without_core_power(&mut self, place: &Place) -> Result<(), ReadError> {
        if self.expected_value(Id::SstCp, place)? != Some(Value::Switch(false)) {
            return Ok(());
        }
        let is_of_class = |want: &&Want| {
            matches!(want.knob, Id::Clos | Id::ClosMin | Id::ClosMax | Id::ClosWeight)
                && want.place.cpus.intersects(place.own_cpus())
        };
        if let Some(want) = self.wants.values().find(is_of_class) {
            let remark = Remark::ClassesNeedCorePower { from: want.from.clone() };
            self.note(remark, &[(Id::SstCp, place)]);
        }
        Ok(())
    }

    /// Notes conflicts between the limits of cpufreq and of classes: the kernel silently uses the
    /// narrower one.
    fn limits_against_classes(&mut self, place: &Place, want: &Want) -> Result<(), ReadError> {
        let mut low: BTreeMap<KiloHertz, (u32, Place)> = BTreeMap::new();
        for policy in self.snapshot.places_on(Id::MaxFreq, place.own_cpus())? {
            let limit = self.expected_value(Id::MaxFreq, &policy)?.and_then(|value| value.frequency());
            let hardware = self.snapshot.value_if_readable(Id::HwMaxFreq, &policy)?;
            let hardware = hardware.and_then(|value| value.frequency());
            if let (Some(limit), Some(hardware)) = (limit, hardware) {
                if limit < hardware {
                    // Group by limit: the note shows the lowest limit and its number of CPUs.
                    let found = low.entry(limit).or_insert_with(|| (0, policy.clone()));
                    found.0 += policy.cpus.len() as u32;
                }
            }
        }
        if let Some((limit, (cpus, policy))) = low.first_key_value() {
            let (from, place) = (want.from.clone(), place.clone());
            let remark = Remark::LimitedByCpufreq { from, place, cpus: *cpus, limit: *limit };
            self.note(remark, &[(Id::MaxFreq, policy)]);
        }
        Ok(())
    }

    /// Refuses a class whose minimum is above its maximum.
    fn class_ranges(&mut self) -> Result<(), ReadError> {
        let of_classes = |want: &&Want| matches!(want.knob, Id::ClosMin | Id::ClosMax);
        let places: Vec<Place> =
            self.wants.values().filter(of_classes).map(|want| want.place.clone()).collect();
        for place in places {
            let (low, high) = (self.want_at(Id::ClosMin, &place), self.want_at(Id::ClosMax, &place));
            // If only one end is wanted, the other has its present value: one setting can cross it
            // as well as two.
            let Some(want) = low.or(high) else { continue };
            let frequency = |knob: Id| {
                Ok::<_, ReadError>(self.expected_value(knob, &place)?.and_then(|value| value.frequency()))
            };
            if let (Some(min), Some(max)) = (frequency(Id::ClosMin)?, frequency(Id::ClosMax)?)
                && min > max
            {
                self.refuse(Refusal::ClassRange { from: want.from, place, min, max });
            }
        }
        Ok(())
    }
}

fn is_of_speed_select(knob: Id) -> bool {
    matches!(knob.knob().scope, Scope::PowerDomain | Scope::Clos) || matches!(knob, Id::Clos | Id::Trl)
}
