//! Rules of Speed Select: what stands on what, what firmware refuses, what a setting costs.
//!
//! core-power is under base-freq and turbo-freq; all of them are the level's; turbo-freq needs turbo. What follows from
//! a setting is added to the plan with its reason; what contradicts is refused before the first write.

use std::collections::BTreeMap;

use flyball_host::KiloHertz;
use flyball_sst::{access::Place as Domain, cost};

use super::{Planner, Want};
use crate::{At, Id, Place, Scope, Value, Wanted};

/// What a power domain will be like.
#[derive(Debug, Clone, Default)]
struct Coming {
    level: u8,
    level_changes: bool,
    base_freq: bool,
    turbo_freq: bool,
    core_power: bool,
    ordered: bool,
}

impl Planner<'_, '_> {
    /// Applies every rule of Speed Select.
    pub(super) fn speed_select(&mut self) {
        let touched = self.wants.values().any(|want| is_of_speed_select(want.knob));
        if !touched || self.machine.speed_select().is_err() {
            return;
        }
        for place in self.machine.places_of(Scope::PowerDomain).to_vec() {
            let Some(coming) = self.coming(&place) else { continue };
            self.features(&place, &coming);
            self.switches(&place, &coming);
        }
        self.class_ranges();
        self.class_of_cores();
    }

    fn want_at(&self, knob: Id, place: &Place) -> Option<Want> {
        self.wants.get(&(knob, place.at.clone())).cloned()
    }

    /// The value that a knob will have: the wanted one, else the present one.
    fn then(&self, knob: Id, place: &Place) -> Option<Value> {
        match self.want_at(knob, place) {
            Some(want) => want.value,
            None => self.machine.value(knob, place).ok().flatten(),
        }
    }

    fn coming(&self, place: &Place) -> Option<Coming> {
        let on = |knob: Id| self.then(knob, place).and_then(|value| value.switch()).unwrap_or(false);
        let number = |value: Option<Value>| match value {
            Some(Value::Count(number)) => u8::try_from(number).ok(),
            _ => None,
        };
        let now = number(self.machine.value(Id::SstLevel, place).ok().flatten())?;
        let level = number(self.then(Id::SstLevel, place))?;
        let ordered = self.then(Id::SstCpPriority, place);
        // A level change switches features off: only those that are asked for come after it.
        let level_changes = level != now;
        let kept = |knob: Id| !level_changes || self.want_at(knob, place).is_some();
        Some(Coming {
            level,
            level_changes,
            base_freq: on(Id::SstBf) && kept(Id::SstBf),
            turbo_freq: on(Id::SstTf) && kept(Id::SstTf),
            core_power: on(Id::SstCp),
            ordered: ordered.is_some_and(|word| word == Value::Word("ordered".to_owned())),
        })
    }

    fn domain(&self, place: &Place) -> Option<Domain> {
        self.machine.domain_at(&place.at).map(|domain| domain.place)
    }

    /// Which levels have a feature, in words.
    fn levels_with(&self, place: &Place, base: bool) -> String {
        let (Some(at), Ok(layout)) = (self.domain(place), self.machine.speed_select()) else {
            return "none".to_owned();
        };
        let access = layout.access(self.machine.host());
        let highest = access.levels(&at).map_or(0, |levels| levels.highest);
        let has = |level: &u8| {
            access
                .features(&at, *level)
                .is_ok_and(|found| if base { found.base_freq } else { found.turbo_freq })
        };
        let levels: Vec<String> = (0..=highest).filter(has).map(|level| level.to_string()).collect();
        if levels.is_empty() {
            "no level has it".to_owned()
        } else {
            format!("levels with it: {}", levels.join(", "))
        }
    }

    /// What features need of the level, of turbo and of core-power, and what they cost.
    fn features(&mut self, place: &Place, coming: &Coming) {
        let (Some(at), Ok(layout)) = (self.domain(place), self.machine.speed_select()) else { return };
        let host = self.machine.host();
        let access = layout.access(host);
        let Ok(found) = access.features(&at, coming.level) else { return };
        let domain = self.machine.domain_at(&place.at).cloned();
        for (knob, on, has, base) in [
            (Id::SstBf, coming.base_freq, found.base_freq, true),
            (Id::SstTf, coming.turbo_freq, found.turbo_freq, false),
        ] {
            let Some(want) = self.want_at(knob, place).filter(|_| on) else { continue };
            if !has {
                let levels = self.levels_with(place, base);
                self.refuse(format!(
                    "{}: level {} of {place} does not have it; {levels}",
                    want.from, coming.level
                ));
                continue;
            }
            if want.now.as_ref() == want.value.as_ref() && !coming.level_changes {
                continue;
            }
            if let Some(domain) = &domain {
                let cost = if base {
                    cost::base_freq(layout, access.as_ref(), domain, coming.level)
                } else {
                    cost::turbo_freq(access.as_ref(), domain, coming.level)
                };
                if let Some(cost) = cost {
                    self.note(format!("{} on {place}: {cost}", want.from));
                }
            }
            if knob == Id::SstTf {
                self.needs_turbo(&want);
            }
            self.needs_core_power(place, coming, &want);
        }
        if coming.level_changes {
            self.level_change(place, coming);
        }
    }

    fn needs_turbo(&mut self, want: &Want) {
        let everywhere = Place::new(At::Machine, self.machine.topology().present.clone());
        if self.then(Id::Turbo, &everywhere) == Some(Value::Switch(false)) {
            self.refuse(format!("{}: turbo-freq needs turbo, which is off; set turbo=on as well", want.from));
        }
    }

    /// Adds core-power, with ordered priority, where a feature needs it and nobody asked.
    fn needs_core_power(&mut self, place: &Place, coming: &Coming, feature: &Want) {
        let wanted = self.want_at(Id::SstCp, place).and_then(|want| want.value);
        if wanted == Some(Value::Switch(false)) {
            return self.refuse(format!(
                "{}: it works on classes of service, and sst-cp=off is wanted for {place} as well",
                feature.from
            ));
        }
        // The other feature may have added it.
        if !coming.core_power && wanted.is_none() {
            let because = format!("{} needs classes of service to count", feature.from);
            self.add(Id::SstCp, place, Value::Switch(true), because);
        }
        if !coming.ordered && self.want_at(Id::SstCpPriority, place).is_none() {
            let because = format!("{} shares power in the order of the classes", feature.from);
            self.add(Id::SstCpPriority, place, Value::Word("ordered".to_owned()), because);
        }
    }

    fn add(&mut self, knob: Id, place: &Place, value: Value, because: String) {
        let now = self.machine.value(knob, place).ok().flatten();
        let want = Want {
            knob,
            place: place.clone(),
            wanted: Wanted::Exactly(value.clone()),
            from: because,
            value: Some(value),
            now,
        };
        self.wants.insert((knob, place.at.clone()), want);
    }

    fn level_change(&mut self, place: &Place, coming: &Coming) {
        let Some(want) = self.want_at(Id::SstLevel, place) else { return };
        if self.machine.value(Id::SstLocked, place).ok().flatten() == Some(Value::Switch(true)) {
            return self.refuse(format!(
                "{}: firmware has locked the level of {place}; unlock it in the BIOS setup (dynamic SST-PP)",
                want.from
            ));
        }
        for (knob, name) in [(Id::SstBf, "base-freq"), (Id::SstTf, "turbo-freq")] {
            let on = self.machine.value(knob, place).ok().flatten() == Some(Value::Switch(true));
            if on && self.want_at(knob, place).is_none() {
                self.note(format!(
                    "{}: {name} of {place} is on and goes off with the level; restore brings it back",
                    want.from
                ));
            }
        }
        let (Some(domain), Ok(layout)) = (self.machine.domain_at(&place.at), self.machine.speed_select())
        else {
            return;
        };
        let access = layout.access(self.machine.host());
        if let Some(cost) = cost::level(layout, access.as_ref(), domain, coming.level) {
            self.note(format!("{} on {place}: {cost}", want.from));
        }
        let Some(inside) = cost::cpus_of_level(layout, access.as_ref(), domain, coming.level) else { return };
        let apart = match self.then(Id::SstApart, place) {
            Some(Value::Word(list)) => list.parse().unwrap_or_default(),
            _ => flyball_host::CpuList::new(),
        };
        let staying: Vec<String> = domain
            .cpus
            .difference(&inside)
            .difference(&apart)
            .iter()
            .filter(|&cpu| {
                let place = Place::new(At::Cpu(cpu), flyball_host::CpuList::from_iter([cpu]));
                self.then(Id::Online, &place) != Some(Value::Switch(false))
            })
            .map(|cpu| cpu.to_string())
            .collect();
        if !staying.is_empty() {
            let list: flyball_host::CpuList = staying.iter().filter_map(|cpu| cpu.parse().ok()).collect();
            self.note(format!(
                "{}: the level's base frequency holds only with CPUs {list} offline or set apart, which this plan leaves \
                 at work ('flyball sst perf-profile set-config-level' takes them along with -o or --cgroup)",
                want.from
            ));
        }
    }

    /// core-power cannot go off under turbo-freq.
    fn switches(&mut self, place: &Place, coming: &Coming) {
        let Some(want) = self.want_at(Id::SstCp, place) else { return };
        if want.value == Some(Value::Switch(false)) && coming.turbo_freq {
            self.refuse(format!(
                "{}: turbo-freq of {place} is on and stands on core-power; set sst-tf=off as well",
                want.from
            ));
        }
        if want.value == Some(Value::Switch(true)) && want.now != want.value {
            self.limits_against_classes(place, &want);
        }
    }

    /// cpufreq's limits and the classes' should not fight: the narrower one wins, silently.
    fn limits_against_classes(&mut self, place: &Place, want: &Want) {
        let mut low: BTreeMap<KiloHertz, u32> = BTreeMap::new();
        for policy in self.machine.places_on(Id::MaxFreq, &place.cpus) {
            let limit = self.then(Id::MaxFreq, &policy).and_then(|value| value.frequency());
            let hardware =
                self.machine.value(Id::HwMaxFreq, &policy).ok().flatten().and_then(|value| value.frequency());
            if let (Some(limit), Some(hardware)) = (limit, hardware) {
                if limit < hardware {
                    *low.entry(limit).or_default() += policy.cpus.len() as u32;
                }
            }
        }
        if let Some((limit, count)) = low.first_key_value() {
            self.note(format!(
                "{}: cpufreq limits {count} of the CPUs of {place} to {limit}; where a class allows more, cpufreq's \
                 limit is the one that counts",
                want.from
            ));
        }
    }

    /// A class whose minimum is above its maximum.
    fn class_ranges(&mut self) {
        for place in self.machine.places_of(Scope::Clos).to_vec() {
            let (low, high) = (self.want_at(Id::ClosMin, &place), self.want_at(Id::ClosMax, &place));
            let Some(want) = low.or(high) else { continue };
            let frequency = |knob: Id| self.then(knob, &place).and_then(|value| value.frequency());
            if let (Some(min), Some(max)) = (frequency(Id::ClosMin), frequency(Id::ClosMax)) {
                if min > max {
                    self.refuse(format!(
                        "{}: {place} would have its minimum {min} above its maximum {max}",
                        want.from
                    ));
                }
            }
        }
    }

    /// All threads of a core are of one class.
    fn class_of_cores(&mut self) {
        let wants: Vec<Want> = self.wants.values().filter(|want| want.knob == Id::Clos).cloned().collect();
        for want in &wants {
            if let Some(Value::Count(class)) = &want.value {
                if *class > 3 {
                    self.refuse(format!("{}: there are the classes 0 to 3", want.from));
                }
            }
        }
    }
}

fn is_of_speed_select(knob: Id) -> bool {
    matches!(knob.knob().scope, Scope::PowerDomain | Scope::Clos) || matches!(knob, Id::Clos | Id::Trl)
}
