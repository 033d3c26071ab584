//! Settings that depend on each other. Contradictions are refused before the first write, and
//! consequences are noted.
//!
//! Each rule names the kernel behaviour behind it. Rules check what the machine *will* have: the
//! wanted value if there is one, else the present one.

use std::collections::BTreeMap;

use flyball_host::{CpuList, Epp, KiloHertz, Micros};

use super::{
    Hint, Planner, Refusal, Remark, Rules, Side, Want,
    driver::{self, chooses_by_itself},
};
use crate::{
    At, Evidence, FirmwareTurbo, Id, Place, ReadError, Reading, ResolveError, Value, Vendor, Wanted, Why,
    knob::order::keeps_policies,
};

impl Planner<'_> {
    /// Applies every rule.
    pub(super) fn couple(&mut self) -> Result<(), ReadError> {
        // The mode comes first: it decides whether there are policies, and which governors they
        // have.
        self.driver_mode()?;
        self.preferences()?;
        self.minimum_under_turbo_off()?;
        self.pairs()?;
        self.setspeed();
        self.turbo_of_firmware()?;
        self.boost()?;
        self.turbo_and_limits()?;
        self.words_of_limits()?;
        self.requests_of_siblings()?;
        self.latency_limits()?;
        self.biases();
        self.speed_select()
    }

    fn wants_of(&self, knob: Id) -> Vec<Want> {
        self.wants.values().filter(|want| want.knob == knob).cloned().collect()
    }

    /// Applies the rules of a driver switch, which removes the policies and makes new ones.
    fn driver_mode(&mut self) -> Result<(), ReadError> {
        let Some(mode) = self.ahead.mode.clone() else { return Ok(()) };
        // intel_pstate_update_status in intel_pstate.c: with HWP, `off` returns EBUSY, because no
        // other driver can run the processor then. The processor's flags do not show whether HWP is
        // on: intel_pstate=no_hwp leaves it off, and firmware may have switched it on without EPP
        // (intel_pstate_init).
        if mode == "off" && self.has_preferences()? {
            self.refuse(Refusal::DriverOffUnderHwp);
            return Ok(());
        }
        self.lost_with_driver(&mode)?;
        let policy_settings: Vec<Want> =
            self.wants.values().filter(|want| matches!(want.place.at, At::Policy(_))).cloned().collect();
        if matches!(mode.as_str(), "off" | "disable") {
            for want in &policy_settings {
                self.refuse(Refusal::NoPolicies { from: want.from.clone(), mode: mode.clone() });
            }
            self.note(Remark::NoDriverLeft { mode }, &[(Id::DriverMode, &Place::machine())]);
            return Ok(());
        }
        let is_amd_pstate = self.snapshot.is_amd_pstate()? == Some(true);
        for want in &policy_settings {
            match (want.knob, &want.value) {
                // In active mode cpufreq knows two policies, not governors (cpufreq_parse_policy).
                (Id::Governor, Some(Value::Word(word)))
                    if mode == "active" && !matches!(word.as_str(), "performance" | "powersave") =>
                {
                    self.refuse(Refusal::GovernorOfActiveMode { from: want.from.clone() });
                }
                // amd_pstate_driver has no preference attribute; only amd_pstate_epp_driver does
                // (drivers/cpufreq/amd-pstate.c).
                (Id::Epp, _) if mode != "active" && is_amd_pstate => {
                    self.refuse(Refusal::PreferenceNeedsActiveMode { from: want.from.clone() });
                }
                _ => {}
            }
        }
        self.note(Remark::DriverModeResets { mode }, &[(Id::DriverMode, &Place::machine())]);
        Ok(())
    }

    /// Returns whether a policy has preferences; on intel_pstate, whether HWP is on
    /// (`hwp_cpufreq_attrs`).
    fn has_preferences(&self) -> Result<bool, ReadError> {
        let mut policies = self.snapshot.entries(Id::AvailableEpp)?;
        Ok(policies
            .any(|(_, entry)| entry.is_some_and(|entry| matches!(entry.reading, Ok(Reading::Value { .. })))))
    }

    /// Notes the policies that a driver switch removes before flyball can read them. A policy whose
    /// CPUs are offline refuses every read (`policy_is_inactive` in cpufreq.c), and
    /// cpufreq_unregister_driver removes inactive policies too, so their settings cannot be saved.
    /// Only the user can decide to bring the CPU online: it may be offline because of heat, faults
    /// or its Speed Select level.
    fn lost_with_driver(&mut self, mode: &str) -> Result<(), ReadError> {
        let present = match self.snapshot.machine_value(Id::DriverMode)? {
            Some(Value::Word(word)) => word,
            _ => String::new(),
        };
        let policies = self.snapshot.topology().policies.iter().filter(|policy| policy.online.is_empty());
        let cpus: CpuList = policies.flat_map(|policy| policy.cpus.iter().collect::<Vec<_>>()).collect();
        if !cpus.is_empty() && !keeps_policies(&present, mode) {
            let seen = self.snapshot.absence_evidence(Id::DriverMode, &Why::Offline);
            self.note_seen(Remark::DriverModeLoses { mode: mode.to_owned(), cpus }, vec![seen]);
        }
        Ok(())
    }

    /// Refuses preferences other than `performance` under the governor `performance`: an
    /// active-mode driver returns EBUSY.
    fn preferences(&mut self) -> Result<(), ReadError> {
        if !self.wants.keys().any(|(knob, _)| matches!(knob, Id::Epp | Id::Governor)) {
            return Ok(());
        }
        let active = match self.ahead.mode.as_deref() {
            Some(mode) => mode == "active",
            None => chooses_by_itself(self.snapshot)?,
        };
        let topology = self.snapshot.topology();
        // Without EPP intel_pstate writes the bias, under any governor
        // (intel_pstate_set_energy_pref_index).
        let writes_bias = topology.vendor == Vendor::Intel
            && !topology.flags.is_empty()
            && !topology.flags.contains("hwp_epp");
        for want in self.wants_of(Id::Epp) {
            let At::Policy(number) = want.place.at else { continue };
            let governor = self.ahead.governors.get(&number).cloned().unwrap_or_default();
            // `default` is the number that firmware had chosen (cpudata->epp_default): usually 128,
            // which both drivers refuse. If it is 0, it equals `performance`.
            let gentle = match &want.value {
                Some(Value::Word(word)) => word != "performance",
                Some(Value::Epp(Epp(number))) => *number > 0,
                _ => false,
            };
            let judged = !self.is_only_present(Id::Governor, &want.place.at);
            if active && governor == "performance" && gentle && judged && !writes_bias {
                self.contradicted.insert((want.knob, want.place.at.clone()));
                self.refuse(Refusal::PreferenceUnderPerformance { from: want.from });
            }
        }
        // Policies that switch to `performance` without a preference in the intent: the driver
        // writes EPP 0 there (intel_pstate_hwp_set, amd_pstate_epp_update_limit).
        let forced: Vec<u32> = self
            .ahead
            .governor_changes
            .iter()
            .copied()
            .filter(|number| {
                self.ahead.governors.get(number).is_some_and(|governor| governor == "performance")
            })
            .filter(|number| !self.wants.contains_key(&(Id::Epp, At::Policy(*number))))
            .collect();
        if active && !forced.is_empty() && self.has_preferences()? {
            self.note(Remark::PerformanceForcesPreference, &[(Id::Driver, &Place::machine())]);
        }
        Ok(())
    }

    /// Refuses a minimum that is impossible with turbo off. The kernel would cut it without an
    /// error, and kernels differ in how (see [`Planner::under_turbo_off`]).
    fn minimum_under_turbo_off(&mut self) -> Result<(), ReadError> {
        // Once the base frequencies have changed, these settings are planned again.
        if self.moves_base_frequencies() {
            return Ok(());
        }
        for want in self.wants_of(Id::MinFreq) {
            let (Wanted::Exactly(_), Some(value)) = (&want.wanted, want.value.clone()) else { continue };
            if self.is_only_present(Id::Turbo, &At::Machine) {
                continue;
            }
            let Some(cap) = self.cap_of_turbo_off(&want, &value)? else { continue };
            let lowest = self.snapshot.value(Id::HwMinFreq, &want.place)?;
            let accepted = match lowest.and_then(|value| value.frequency()) {
                Some(lowest) => format!("it takes {lowest} to {cap}"),
                None => format!("it takes at most {cap}"),
            };
            self.contradicted.insert((want.knob, want.place.at.clone()));
            self.refuse(Refusal::Value {
                from: want.from,
                knob: want.knob,
                wanted: value.to_string(),
                places: vec![want.place],
                accepted,
                hint: Some(Hint::TurboIsOff),
            });
        }
        Ok(())
    }

    /// Refuses a minimum above its maximum.
    fn pairs(&mut self) -> Result<(), ReadError> {
        for (low, high) in [
            (Id::MinFreq, Id::MaxFreq),
            (Id::MinPerfPct, Id::MaxPerfPct),
            (Id::UncoreMinFreq, Id::UncoreMaxFreq),
        ] {
            let wants: Vec<Want> = self.wants_of(low).into_iter().chain(self.wants_of(high)).collect();
            for want in wants {
                let side = |id: Id| self.wants.get(&(id, want.place.at.clone())).cloned();
                let (lower, upper) = (side(low), side(high));
                // If both sides are wanted, check the pair only once, for its lower side.
                if want.knob == high && lower.is_some() {
                    continue;
                }
                if self.contradicted.contains(&(low, want.place.at.clone())) {
                    continue;
                }
                let value = |side: &Option<Want>, id: Id| match side {
                    Some(want) => Ok(want.value.clone()),
                    None => self.snapshot.value_if_readable(id, &want.place),
                };
                // A side without a want has its present value.
                let (lower_value, upper_value) = (value(&lower, low)?, value(&upper, high)?);
                let (Some(min), Some(max)) = (number(lower_value.as_ref()), number(upper_value.as_ref()))
                else {
                    continue;
                };
                if min <= max {
                    continue;
                }
                let open = self.is_open(high, &want.place);
                let judged = self.rules == Rules::All;
                // Values that the hardware lacks are refused elsewhere.
                let possible = |want: &Want| {
                    let Some(value) = &want.value else { return Ok(true) };
                    match self.snapshot.check(want.knob, &want.place, value) {
                        Err(ResolveError::Read(error @ ReadError::NotTaken(_))) => Err(error),
                        judged => Ok(judged.is_ok()),
                    }
                };
                // `base` and `max` become other numbers once turbo or base-freq has been switched.
                let is_word = |want: &Want| !matches!(want.wanted, Wanted::Exactly(_));
                match (&lower, &upper) {
                    // Crossed numbers stay crossed whatever is switched. Only words must wait for
                    // their step.
                    (Some(lower), Some(upper)) if open && (is_word(lower) || is_word(upper)) => {}
                    (Some(lower), Some(upper)) => {
                        let side =
                            |want: &Want| Side { wanted: want.wanted.to_string(), from: want.from.clone() };
                        let (lower, upper) = (side(lower), side(upper));
                        self.refuse(Refusal::Crossed { low, high, lower, upper });
                    }
                    (Some(lower), None) if judged && !open && possible(lower)? => {
                        self.refuse(Refusal::CrossesPresent {
                            from: lower.from.clone(),
                            knob: low,
                            is_above: true,
                            other: high,
                            present: upper_value.map(|value| value.to_string()).unwrap_or_default(),
                            places: vec![want.place.clone()],
                        });
                    }
                    // cpufreq takes a maximum below the minimum: freq_qos keeps both requests, and
                    // the policy uses the smaller for both (cpufreq_set_policy). The files of
                    // percentages and of the uncore refuse or clamp instead.
                    (None, Some(upper)) if low == Id::MinFreq => {
                        let remark = Remark::MaximumBelowMinimum { from: upper.from.clone(), low };
                        self.note(remark, &[(low, &upper.place)]);
                    }
                    (None, Some(upper)) if judged && !open && possible(upper)? => {
                        self.refuse(Refusal::CrossesPresent {
                            from: upper.from.clone(),
                            knob: high,
                            is_above: false,
                            other: low,
                            present: lower_value.map(|value| value.to_string()).unwrap_or_default(),
                            places: vec![want.place.clone()],
                        });
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Refuses a speed unless the governor is userspace.
    fn setspeed(&mut self) {
        for want in self.wants_of(Id::Setspeed) {
            let At::Policy(number) = want.place.at else { continue };
            match self.ahead.governors.get(&number).map(String::as_str) {
                Some("userspace") | None => {}
                Some(_) if self.is_only_present(Id::Governor, &want.place.at) => {}
                Some(other) => {
                    let governor = other.to_owned();
                    self.refuse(Refusal::SpeedNeedsUserspace { from: want.from, governor });
                }
            }
        }
    }

    /// Refuses turbo that the firmware has switched off. The kernel would refuse the write (see the
    /// refusals of the row), and flyball would roll back the whole profile. On some of the packages
    /// the write succeeds and does nothing.
    ///
    /// Where no policy can boost, Linux 7.2 refuses both words, and its switch then shows the
    /// opposite of the refused one (`cpufreq_boost_trigger_state`).
    fn turbo_of_firmware(&mut self) -> Result<(), ReadError> {
        let Some(want) = self.wants.get(&(Id::Turbo, At::Machine)) else { return Ok(()) };
        let Want { from, now, value, .. } = want.clone();
        let is_change = now.is_some() && now != value;
        let is_on = value == Some(Value::Switch(true));
        match self.snapshot.firmware_turbo()? {
            (FirmwareTurbo::Absent, seen) if is_change => {
                self.contradicted.insert((Id::Turbo, At::Machine));
                self.refuse(Refusal::NoTurbo { from, seen });
            }
            (FirmwareTurbo::Off { packages, is_everywhere: false }, seen) if is_on => {
                self.note_seen(Remark::TurboOffInFirmware { from, packages }, seen);
            }
            (FirmwareTurbo::Off { .. } | FirmwareTurbo::NoFlag(_), seen) if is_on && is_change => {
                self.contradicted.insert((Id::Turbo, At::Machine));
                self.refuse(Refusal::TurboOffInFirmware { from, seen });
            }
            _ => {}
        }
        Ok(())
    }

    /// Refuses boost of a policy while boost is off for the machine (`EINVAL`). The machine-wide
    /// switch sets every policy.
    fn boost(&mut self) -> Result<(), ReadError> {
        let wants = self.wants_of(Id::Boost);
        if wants.is_empty() {
            return Ok(());
        }
        let turbo = match self.wants.get(&(Id::Turbo, At::Machine)) {
            Some(want) => want.value.clone(),
            None => self.snapshot.machine_value(Id::Turbo)?,
        };
        for want in wants {
            // store_local_boost in cpufreq.c tests the machine-wide switch
            // (cpufreq_driver->boost_enabled).
            let off = turbo == Some(Value::Switch(false)) && !self.is_only_present(Id::Turbo, &At::Machine);
            if off && want.value == Some(Value::Switch(true)) {
                self.refuse(Refusal::BoostUnderTurboOff { from: want.from });
            }
        }
        Ok(())
    }

    /// Compares turbo with max-freq. Turbo off limits the frequency too. With a driver that has a
    /// table of frequencies, boost goes above the end of the table, and so exceeds any max-freq
    /// that is not below that end.
    fn turbo_and_limits(&mut self) -> Result<(), ReadError> {
        let turbo = self.wants.get(&(Id::Turbo, At::Machine)).cloned();
        if turbo.is_none() && self.wants_of(Id::MaxFreq).is_empty() {
            return Ok(());
        }
        let now = self.snapshot.machine_value(Id::Turbo)?;
        match turbo.and_then(|want| want.value).or_else(|| now.clone()) {
            Some(Value::Switch(false)) => {
                for want in self.wants_of(Id::MaxFreq) {
                    let (Wanted::Exactly(_), Some(value)) = (&want.wanted, &want.value) else { continue };
                    if let Some(cap) = self.cap_of_turbo_off(&want, value)? {
                        let seen = self.base_of(&want.place)?.map(|(_, seen)| seen);
                        let remark = Remark::AboveTurboOff { from: want.from.clone(), cap };
                        self.note_seen(remark, seen.into_iter().collect());
                    }
                }
                // acpi-cpufreq switches a register and keeps its limits (set_boost).
                let lowers = now == Some(Value::Switch(true))
                    && driver::name(self.snapshot)?.as_deref() != Some("acpi-cpufreq");
                if lowers {
                    self.note(Remark::TurboOffLowersLimits, &[(Id::Turbo, &Place::machine())]);
                }
            }
            Some(Value::Switch(true)) => {
                for want in self.wants_of(Id::MaxFreq) {
                    let end = match self.snapshot.value(Id::AvailableFreqs, &want.place)? {
                        Some(Value::Frequencies(table)) => table.into_iter().max(),
                        _ => None,
                    };
                    // Intel's table ends with an entry that stands for all turbo frequencies (2.001
                    // GHz). A limit at the entry below it holds.
                    let limit = want.value.as_ref().and_then(Value::frequency);
                    let has_turbo_entry = want.wanted == Wanted::Max;
                    let is_limited = match &want.value {
                        Some(value) => self.under_bios_limit(&want, value)?.is_some(),
                        None => false,
                    };
                    if limit.is_some() && limit >= end && end.is_some() && !has_turbo_entry && !is_limited {
                        let remark = Remark::BoostGoesAbove { from: want.from.clone() };
                        let rests_on = [(Id::Turbo, &Place::machine()), (Id::AvailableFreqs, &want.place)];
                        self.note(remark, &rests_on);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Notes maxima that differ from what their words suggest: a share of the highest frequency
    /// that is below the base frequency, and a base frequency that is not the same on all CPUs.
    fn words_of_limits(&mut self) -> Result<(), ReadError> {
        let mut bases: BTreeMap<String, BTreeMap<KiloHertz, Place>> = BTreeMap::new();
        for want in self.wants_of(Id::MaxFreq) {
            let Some(limit) = want.value.as_ref().and_then(Value::frequency) else { continue };
            if want.wanted == Wanted::Base {
                bases.entry(want.from).or_default().entry(limit).or_insert(want.place);
            } else if let Wanted::Share(share) = want.wanted
                && let Some((base, evidence)) = self.base_of(&want.place)?
                && limit.0 * 100 < base.0 * 99
            {
                let highest = self.snapshot.value(Id::HwMaxFreq, &want.place)?;
                let highest = highest.and_then(|highest| highest.frequency()).unwrap_or(limit);
                // Boost goes above a table's last entry, so a share that reaches it became the
                // entry before it.
                let boosts_from = self.snapshot.last_entries(&want.place)?.and_then(|(before, last)| {
                    (limit == before && highest.0 * u64::from(share.0) / 100 >= last.0).then_some(last)
                });
                let remark = Remark::ShareBelowBase { from: want.from, limit, base, boosts_from };
                self.note_seen(remark, vec![evidence]);
            }
        }
        for (from, places) in bases.into_iter().filter(|(_, places)| places.len() > 1) {
            let evidence = places.values().map(|place| Ok(self.base_of(place)?.map(|(_, seen)| seen)));
            let evidence: Vec<_> =
                evidence.collect::<Result<Vec<_>, ReadError>>()?.into_iter().flatten().collect();
            self.note_seen(Remark::SeveralBases { from, bases: places.into_keys().collect() }, evidence);
        }
        Ok(())
    }

    /// Returns the base or nominal frequency of a policy, and where it was read.
    pub(super) fn base_of(&self, place: &Place) -> Result<Option<(KiloHertz, Evidence)>, ReadError> {
        for knob in [Id::BaseFreq, Id::NominalFreq] {
            let Some(at) = self.snapshot.place_like(knob, place)? else { continue };
            let value = self.snapshot.value_if_readable(knob, &at)?;
            if let Some(base) = value.as_ref().and_then(Value::frequency) {
                return Ok(Some((base, self.snapshot.evidence(knob, &at))));
            }
        }
        Ok(None)
    }

    /// Notes SMT siblings that may request more than the CPUs of the setting: a core runs at the
    /// highest request of its threads (intel_pstate_hwp_offline in intel_pstate.c).
    fn requests_of_siblings(&mut self) -> Result<(), ReadError> {
        let cores = self.snapshot.topology().cores();
        if cores.values().all(|core| core.len() == 1) {
            return Ok(());
        }
        let core_of: BTreeMap<u32, &CpuList> =
            cores.values().flat_map(|core| core.iter().map(move |cpu| (cpu, core))).collect();
        let mut higher: BTreeMap<String, (CpuList, Id, Place)> = BTreeMap::new();
        for knob in [Id::MaxFreq, Id::Governor, Id::Epp, Id::Boost] {
            let wants = self.wants_of(knob);
            if wants.is_empty() {
                continue;
            }
            // The request of each CPU after the plan.
            let mut asked: BTreeMap<u32, (Value, &Place)> = BTreeMap::new();
            for place in self.snapshot.places(knob)? {
                let value = match self.wants.get(&(knob, place.at.clone())) {
                    Some(want) => want.value.clone(),
                    None => self.snapshot.value_if_readable(knob, place)?,
                };
                if let Some(value) = value {
                    asked.extend(place.cpus.iter().map(|cpu| (cpu, (value.clone(), place))));
                }
            }
            for want in &wants {
                let Some(wanted) = &want.value else { continue };
                let own = &want.place.cpus;
                let siblings = own.iter().filter_map(|cpu| core_of.get(&cpu)).flat_map(|core| core.iter());
                let theirs = siblings.filter(|cpu| !own.contains(*cpu)).filter_map(|cpu| asked.get(&cpu));
                for (_, place) in theirs.filter(|(theirs, _)| asks_for_more(theirs, wanted)) {
                    let found = higher.entry(want.from.clone());
                    found.or_insert_with(|| (CpuList::new(), knob, (*place).clone())).0.add(&place.cpus);
                }
            }
        }
        for (from, (siblings, knob, place)) in higher {
            self.note(Remark::SiblingsAskForMore { from, siblings }, &[(knob, &place)]);
        }
        Ok(())
    }

    /// Notes a latency limit that no idle state exceeds: virtual machines often have none but
    /// polling and halting.
    fn latency_limits(&mut self) -> Result<(), ReadError> {
        let wants = self.wants_of(Id::LatencyLimit);
        let mut slowest: Option<(Micros, Place)> = None;
        for want in &wants {
            let Some(Value::Time(limit)) = want.value else { return Ok(()) };
            for place in self.snapshot.places_on(Id::IdleLatency, &want.place.cpus)? {
                match self.snapshot.value_if_readable(Id::IdleLatency, &place)? {
                    Some(Value::Time(latency)) if latency <= limit => {
                        if slowest.as_ref().is_none_or(|(known, _)| latency > *known) {
                            slowest = Some((latency, place));
                        }
                    }
                    _ => return Ok(()),
                }
            }
        }
        let Some(want) = wants.first() else { return Ok(()) };
        let remark = Remark::NoSlowerState { from: want.from.clone() };
        match slowest {
            Some((_, place)) => self.note(remark, &[(Id::IdleLatency, &place)]),
            None => {
                let why = self.snapshot.why_nowhere(Id::IdleLatency);
                let seen = self.snapshot.absence_evidence(Id::IdleLatency, &why);
                self.note_seen(remark, vec![seen]);
            }
        }
        Ok(())
    }

    /// Notes an EPB setting beside EPP, which it does not replace.
    fn biases(&mut self) {
        let biases = self.wants_of(Id::Epb);
        let any_preference = self.wants.keys().any(|(knob, _)| *knob == Id::Epp);
        if let (Some(bias), false) = (biases.first(), any_preference)
            && self.snapshot.topology().flags.contains("hwp_epp")
        {
            let flag = Evidence { place: "/proc/cpuinfo flags".to_owned(), value: "hwp_epp".to_owned() };
            self.note_seen(Remark::BothHints { from: bias.from.clone() }, vec![flag]);
        }
    }
}

/// Returns whether `theirs` asks for more speed than `own`. Words and numbers of `epp` cannot be
/// compared.
fn asks_for_more(theirs: &Value, own: &Value) -> bool {
    match (theirs, own) {
        (Value::Frequency(theirs), Value::Frequency(own)) => theirs > own,
        (Value::Switch(theirs), Value::Switch(own)) => theirs > own,
        (Value::Epp(theirs), Value::Epp(own)) => theirs.0 < own.0,
        (Value::Word(theirs), Value::Word(own)) => {
            speed_of(theirs).zip(speed_of(own)).is_some_and(|(theirs, own)| theirs > own)
        }
        _ => false,
    }
}

/// Returns the rank of a preference, or of a governor whose choice does not depend on load.
fn speed_of(word: &str) -> Option<u32> {
    match word {
        "performance" => Some(3),
        "balance_performance" => Some(2),
        "balance_power" => Some(1),
        "power" | "powersave" => Some(0),
        _ => None,
    }
}

/// Returns a value as a number, for comparisons.
fn number(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::Frequency(frequency) => Some(frequency.0),
        Value::Percent(percent) => Some(u64::from(percent.0)),
        _ => None,
    }
}
