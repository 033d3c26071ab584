//! Turns a want into the write that it needs: checks whether the knob exists, determines the value,
//! and checks whether it is already in effect. Some of this is known only when the step is reached.

use super::{
    Absence, Change, Hint, KERNEL_GOVERNORS, PlanError, Planner, Refusal, Remark, Want, absences, driver,
    frequency_limits,
};
use crate::{
    At, Content, Id, Location, Place, ReadError, Reading, ResolveError, Scope, TargetError, Value, Wanted,
    Why,
    knob::{AppearsWith, order::Step},
};

impl Planner<'_> {
    /// Returns whether an earlier change in the plan may create the knob, which is absent now.
    fn may_appear(&self, knob: Id, place: &Place) -> bool {
        let changes = |with: &AppearsWith| match *with {
            AppearsWith::Cpu => place.cpus.iter().any(|cpu| self.ahead.online.contains(cpu)),
            AppearsWith::DriverMode => self.ahead.mode.is_some(),
            // For tunables shared by policies, one policy with the governor is enough.
            AppearsWith::Governor(name) => self.ahead.governor_changes.iter().any(|number| {
                self.ahead.governors.get(number).is_some_and(|governor| governor == name)
                    && (place.at == At::Machine || place.at == At::Policy(*number))
            }),
            AppearsWith::Level => self.ahead.level,
        };
        knob.knob().control().is_some_and(|control| control.appears_with.iter().any(changes))
    }

    /// Returns whether the limits for this knob's value will have changed by its step.
    pub(super) fn is_open(&self, knob: Id, place: &Place) -> bool {
        self.may_appear(knob, place)
            || (self.ahead.capacity
                && matches!(knob, Id::MinFreq | Id::MaxFreq | Id::Setspeed | Id::FloorFreq | Id::Boost))
            || matches!(&place.at, At::Policy(number) if knob == Id::Epp && self.ahead.governor_changes.contains(number))
    }

    /// Adds the change that a want needs, if any.
    pub(super) fn change(&mut self, want: &Want) -> Result<(), PlanError> {
        // A setting of a fact is refused when it is parsed.
        let Some(control) = want.knob.knob().control() else { return Ok(()) };
        let is_early = self.outlasts_turbo(want)?;
        let open = self.is_open(want.knob, &want.place) && !is_early;
        if let Some(why) = self.absence(want)? {
            return self.absent_now(want, why);
        }
        let Some((value, because)) = self.judged_value(want, open)? else { return Ok(()) };
        let (location, new) = match self.snapshot.target(want.knob, &want.place, &value) {
            Ok(write) => write,
            Err(TargetError::Read(error)) => return Err(error.into()),
            Err(_) if self.may_appear(want.knob, &want.place) => {
                // There is no slot now, but an earlier change creates the file.
                self.provisional(want, Some(&value), "its file may appear only when its turn has come")?;
                return Ok(());
            }
            Err(error) => {
                // No write is possible, and none is needed: CPU 0 has no switch and is online.
                if want.now.as_ref() == Some(&value) {
                    return Ok(());
                }
                let asked = (want.from.as_str(), want.knob);
                match error {
                    TargetError::Nowhere { why, .. } => {
                        absences::add(self.snapshot, &mut self.absent, asked, &want.place, why, true)?;
                    }
                    error => self.absent.push(Absence::NotWritable { from: want.from.clone(), error }),
                }
                return Ok(());
            }
        };
        let old = match self.snapshot.slot(want.knob, &want.place)? {
            Some(slot) => slot.content.clone(),
            None => Content::Text(String::new()),
        };
        // `default` is a request to the firmware, not a value. The firmware's choice is unknown, so
        // it cannot be compared.
        let always = want.knob == Id::Epp && new == "default";
        let shown_as = if want.knob == Id::Epp { self.snapshot.shown_as(&want.place, &new) } else { None };
        // Compare a number with the register: the file shows a word if the driver has one for it.
        let same = match value {
            Value::Epp(number) => self.snapshot.preference_is(&want.place, number, old.trimmed())?,
            _ => control.writing.spelling.agrees(&new, old.trimmed()) || shown_as == Some(old.trimmed()),
        };
        let holds = (same || want.now.as_ref() == Some(&value)) && !always;
        // A level change switches features off, so one that is wanted off needs no second write.
        let reset =
            self.resets(want)?.filter(|_| !matches!(location, Location::SpeedSelect(_)) || new != "0");
        let because = match (holds, reset) {
            (true, None) => return Ok(()),
            (true, Some(reset)) => format!("{because}; it holds now, but {reset}"),
            (false, _) => because,
        };
        self.changes.push(Change {
            knob: want.knob,
            instance: want.place.name.clone(),
            place: want.place.to_string(),
            cpus: want.place.own_cpus().clone(),
            step: if is_early { Step::LowLimit } else { control.writing.turn.step(&new) },
            location,
            old: Some(old.to_string()),
            through: None,
            shown_as,
            new,
            was: want.now.as_ref().map(ToString::to_string),
            value: value.to_string(),
            from: want.from.clone(),
            because,
            provisional: holds || open,
        });
        Ok(())
    }

    /// Handles a want whose knob is absent now: leaves it to its step, notes that its CPUs are
    /// offline, or refuses it.
    fn absent_now(&mut self, want: &Want, why: Why) -> Result<(), PlanError> {
        // An inactive policy refuses every access with EBUSY (cpufreq.c, policy_is_inactive), so
        // other changes do not help.
        let comes_online = want.place.cpus.iter().any(|cpu| self.ahead.online.contains(cpu));
        if self.may_appear(want.knob, &want.place) && (comes_online || !matches!(why, Why::Offline)) {
            self.provisional(want, None, "can be read and judged only when its turn has come")?;
        } else if matches!(why, Why::Offline) {
            let known = self.notes.iter_mut().find_map(|note| match &mut note.remark {
                Remark::Offline { knob, cpus } if *knob == want.knob => Some(cpus),
                _ => None,
            });
            let cpus = want.place.cpus.clone();
            match known {
                Some(known) => known.extend(cpus.iter()),
                None => {
                    let seen = self.snapshot.absence_evidence(want.knob, &why);
                    self.note_seen(Remark::Offline { knob: want.knob, cpus }, vec![seen]);
                }
            }
        } else {
            let asked = (want.from.as_str(), want.knob);
            absences::add(self.snapshot, &mut self.absent, asked, &want.place, why, false)?;
        }
        Ok(())
    }

    /// Returns the value of a want at its place, if it can be checked now, with the reason for the
    /// change. `None` if it was refused or left to its step.
    fn judged_value(&mut self, want: &Want, open: bool) -> Result<Option<(Value, String)>, PlanError> {
        let mut value = match self.resolve(want) {
            Ok(Some(value)) => value,
            Err(ResolveError::Read(error @ ReadError::NotTaken(_))) => return Err(error.into()),
            Err(error) if !self.may_appear(want.knob, &want.place) => {
                return self.unresolved(want, error).map(|()| None);
            }
            Ok(None) | Err(_) => {
                self.provisional(want, None, "its number is known only when its turn has come")?;
                return Ok(None);
            }
        };
        let mut because = want.from.clone();
        // Apply turbo's cap before the table: the capped frequency need not be a table entry.
        if let Some((cut, words)) = self.under_turbo_off(want, &value)? {
            value = cut;
            because = format!("{because}; {words}");
        }
        if let Some((rounded, words)) = frequency_limits::in_table(self.snapshot, want, &value)? {
            value = rounded;
            because = format!("{because}; {words}");
        }
        if let Some((cut, words)) = self.under_bios_limit(want, &value)? {
            let remark = Remark::FirmwareLimits { from: want.from.clone(), limit: cut.clone() };
            self.note(remark, &[(Id::BiosLimit, &want.place)]);
            value = cut;
            because = format!("{because}; {words}");
        }
        if let Some((limit, percentage)) = self.under_percentage(want, &value)? {
            because = format!("{because}; {percentage} is narrower than {value}");
            let remark =
                Remark::PercentageLimits { from: want.from.clone(), percentage, limit: limit.clone() };
            self.note(remark, &[(percentage, &Place::machine())]);
            value = limit;
        }
        match self.snapshot.check(want.knob, &want.place, &value) {
            Ok(()) => {}
            Err(ResolveError::Read(error @ ReadError::NotTaken(_))) => return Err(error.into()),
            Err(_) if open => {
                // store_energy_performance_preference refuses other preferences with EBUSY while
                // the governor is performance.
                let words = if want.knob == Id::Epp && self.ahead.mode.is_none() {
                    "the present governor would refuse it, so it comes after the governor"
                } else {
                    "is judged again when its turn has come"
                };
                self.provisional(want, Some(&value), words)?;
                return Ok(None);
            }
            Err(ResolveError::Refused { .. }) if self.may_be_loaded(want.knob, &value)? => {
                let remark = Remark::LoadsGovernor { governor: value.clone() };
                // There is one list for the machine: read at a policy, it would seem absent.
                self.note(remark, &[(Id::AvailableGovernors, &Place::machine())]);
            }
            Err(error) => return self.unresolved(want, error).map(|()| None),
        }
        Ok(Some((value, because)))
    }

    /// Returns why the knob is absent at the place; `None` if it exists.
    fn absence(&self, want: &Want) -> Result<Option<Why>, PlanError> {
        Ok(match self.snapshot.read(want.knob, &want.place)? {
            Reading::Value { .. } => None,
            // Some knobs can be written although they cannot be read now: a preference that has no
            // word, or a speed without its governor.
            Reading::Absent(Why::NotNow(_)) if matches!(want.knob, Id::Epp | Id::Setspeed) => None,
            Reading::Absent(why) => Some(why),
        })
    }

    fn unresolved(&mut self, want: &Want, error: ResolveError) -> Result<(), PlanError> {
        let ResolveError::Refused { knob, wanted, accepted, .. } = error else {
            return match error {
                ResolveError::Read(error) => Err(error.into()),
                ResolveError::Refused { .. } => Ok(()),
            };
        };
        let capped = matches!(knob, Id::MinFreq | Id::MaxFreq)
            && self.snapshot.machine_value(Id::Turbo)? == Some(Value::Switch(false));
        let hint = match (&want.wanted, knob) {
            // Check this first: with turbo off cpuinfo_max_freq is the base frequency, and the
            // range in the refusal ends there.
            _ if capped => Some(Hint::TurboIsOff),
            // The user asks for cpufreq's own governor, but the driver has its own two.
            (Wanted::Exactly(Value::Word(word)), Id::Governor)
                if KERNEL_GOVERNORS.contains(&word.as_str()) && driver::chooses_by_itself(self.snapshot)? =>
            {
                Some(Hint::PassiveMode)
            }
            _ => None,
        };
        let (from, places) = (want.from.clone(), vec![want.place.clone()]);
        self.refuse(Refusal::Value { from, knob, wanted, places, accepted, hint });
        Ok(())
    }

    /// Returns why a setting that is in effect now may be reset before its step.
    fn resets(&self, want: &Want) -> Result<Option<&'static str>, ReadError> {
        if self.ahead.level && matches!(want.knob, Id::SstBf | Id::SstTf) {
            return Ok(Some("the change of level switches it off: written again after that"));
        }
        if self.ahead.mode.is_some() && want.knob.knob().scope == Scope::Policy {
            return Ok(Some("the driver recreates its policies: written again if that changes it"));
        }
        let is_boost_off = want.knob == Id::Boost && want.value == Some(Value::Switch(false));
        if is_boost_off && self.switches_on(Id::Turbo, &Place::machine())? {
            return Ok(Some("turbo=on switches it on: written again after that"));
        }
        if self.may_be_cut(want)? {
            return Ok(Some("turbo may raise it: written again if it did"));
        }
        if self.may_be_hidden(want) {
            return Ok(Some("a higher max-freq may bring an earlier minimum back: written again if it did"));
        }
        Ok(match &want.place.at {
            At::Policy(number) if want.knob == Id::Epp && self.ahead.governor_changes.contains(number) => {
                Some("the change of governor may reset it: written again if it did")
            }
            _ => None,
        })
    }

    /// Adds a change whose file, old value or number is known only when its step is reached.
    fn provisional(&mut self, want: &Want, value: Option<&Value>, words: &str) -> Result<(), ReadError> {
        let Some(control) = want.knob.knob().control() else { return Ok(()) };
        // The file may not exist yet. The row's pattern gives the path for the plan.
        let Some(location) = self.snapshot.future_location(want.knob, &want.place)? else { return Ok(()) };
        let new = match value {
            Some(value) => self
                .snapshot
                .target(want.knob, &want.place, value)
                // Without a slot the spelling is unknown, so the plan shows the value in the knob's
                // own terms.
                .map_or_else(|_| value.to_string(), |(_, content)| content),
            None => want.wanted.to_string(),
        };
        // A driver switch replaces the policies and their values.
        let slot = match self.ahead.mode {
            Some(_) => None,
            None => self.snapshot.slot(want.knob, &want.place)?,
        };
        let old = slot.map(|slot| &slot.content).filter(|old| !matches!(old, Content::Unreadable(_)));
        self.changes.push(Change {
            knob: want.knob,
            instance: want.place.name.clone(),
            place: want.place.to_string(),
            cpus: want.place.own_cpus().clone(),
            step: control.writing.turn.step(&new),
            location,
            old: old.map(ToString::to_string),
            through: None,
            shown_as: None,
            new,
            was: want.now.as_ref().map(ToString::to_string),
            value: value.map_or_else(|| want.wanted.to_string(), ToString::to_string),
            from: want.from.clone(),
            because: format!("{}; {words}", want.from),
            provisional: true,
        });
        Ok(())
    }

    /// Returns whether the kernel may load the governor. Governors are modules. The kernel lists
    /// loaded governors, and loads another when its name is written, unless the driver chooses
    /// frequencies by itself.
    fn may_be_loaded(&self, knob: Id, value: &Value) -> Result<bool, ReadError> {
        Ok(knob == Id::Governor
            && value.word().is_some_and(|word| KERNEL_GOVERNORS.contains(&word))
            && !driver::chooses_by_itself(self.snapshot)?)
    }
}
