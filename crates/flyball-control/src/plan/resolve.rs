//! Resolves a wanted value for one place, and checks whether the place accepts it now.

use flyball_host::{CpuList, Epb, KiloHertz, MicroWatts, Micros, Percent};

use crate::{
    At, Id, Place, ReadError, Reading, ResolveError, Snapshot, Unit, Value, Vendor, Wanted,
    knob::{Check, Ends},
};

/// Register value of a class of service that has no highest frequency.
const NO_LIMIT: KiloHertz = KiloHertz(crate::table::sst::NO_LIMIT as u64);

/// The lowest plausible power limit. A lower value is probably a mistaken unit.
const LEAST_POWER: MicroWatts = MicroWatts(1_000_000);

/// The step of power limits, 1/8 W in microwatts. The few processors with finer steps accept these
/// steps too.
const POWER_STEP: u64 = 125_000;

/// The unit of power limits' time windows, 1/1024 s as the kernel rounds it. Only the first Atoms
/// differ.
const WINDOW_UNIT: u64 = 976;

impl Snapshot {
    /// Resolves `wanted` for `knob` at `place`: words such as `max` get their number, idle states
    /// their position. Does not check whether the kernel would accept it; [`Snapshot::check`] does.
    ///
    /// # Errors
    /// The word has no value there, or its value cannot be read.
    pub fn resolve(&self, knob: Id, place: &Place, wanted: &Wanted) -> Result<Value, ResolveError> {
        let refuse = |accepted: String| ResolveError::Refused {
            knob,
            wanted: wanted.to_string(),
            place: place.to_string(),
            accepted,
        };
        match wanted {
            // The kernel rounds down to a step (rapl_unit_xlate).
            Wanted::Exactly(Value::Power(MicroWatts(microwatts))) if knob == Id::PowerLimit => {
                Ok(Value::Power(MicroWatts(microwatts / POWER_STEP * POWER_STEP)))
            }
            // Not checked here: what the kernel accepts may change before the setting's step.
            Wanted::Exactly(value) => Ok(value.clone()),
            Wanted::UpTo(state) if knob == Id::LatencyLimit => self.latency_of(place, state)?.map_err(refuse),
            Wanted::UpTo(state) => self.up_to(place, state).map_err(refuse),
            Wanted::WithinLatency(limit) => {
                let latency = self.value(Id::IdleLatency, place)?;
                match latency {
                    Some(Value::Time(latency)) => Ok(Value::Switch(latency <= *limit)),
                    _ => Err(refuse("the state's latency is not known here".to_owned())),
                }
            }
            // Kernels before 5.6 have no such file, and no such states.
            Wanted::Default => {
                Ok(Value::Switch(self.value(Id::IdleDefault, place)? != Some(Value::Switch(false))))
            }
            Wanted::Min if knob == Id::MinPerfPct => Ok(Value::Percent(self.lowest_percentage(place)?)),
            Wanted::Normal => Ok(Value::Epb(Epb::normal(self.topology().model.unwrap_or(0)))),
            Wanted::Share(share) => {
                let is_turbo_off = self.machine_value(Id::Turbo)? == Some(Value::Switch(false));
                self.share_of_highest(knob, place, *share, is_turbo_off)
            }
            Wanted::Min | Wanted::Max | Wanted::Base | Wanted::Nominal | Wanted::Efficient => {
                let ends = knob.knob().control().map_or(Ends::None, |control| control.ends);
                // Rows with plain numbers as ends are percentages, or the class limits of Speed
                // Select in kHz.
                let number = |number: u32| match knob.knob().unit() {
                    Unit::Percent => Value::Percent(Percent(number)),
                    _ => Value::Frequency(KiloHertz(number.into())),
                };
                let source = match (wanted, ends) {
                    (Wanted::Min, Ends::Numbers(low, _)) => return Ok(number(low)),
                    (Wanted::Max, Ends::Numbers(_, high)) => return Ok(number(high)),
                    (Wanted::Min, Ends::Rows(low, _)) => low,
                    (Wanted::Max, Ends::Rows(_, high) | Ends::UpToRow(high)) => high,
                    (Wanted::Base, _) => Id::BaseFreq,
                    (Wanted::Nominal, _) => Id::NominalFreq,
                    (Wanted::Efficient, _) => Id::LowestNonlinearFreq,
                    _ => return Err(refuse(format!("it takes {}", knob.knob().accepts()))),
                };
                // One frequency has two names: Intel's base is ACPI's and AMD's nominal.
                let twin = match source {
                    Id::BaseFreq => Some(Id::NominalFreq),
                    Id::NominalFreq => Some(Id::BaseFreq),
                    _ => None,
                };
                // `place_like`: base_frequency is a file of the policy, nominal_freq one of the
                // CPU.
                let read =
                    |source: Id| self.place_like(source, place)?.map(|at| self.read(source, &at)).transpose();
                let found = read(source)?;
                if let (Some(Reading::Absent(_)) | None, Some(twin)) = (&found, twin)
                    && let Some(Reading::Value { value, .. }) = read(twin)?
                {
                    return Ok(value);
                }
                if let (Some(Reading::Absent(_)) | None, Id::LowestNonlinearFreq) = (&found, source)
                    && let Some(khz) = self.efficient_of_levels(place)
                {
                    return Ok(Value::Frequency(khz));
                }
                match found {
                    // Used as a limit, 0 would be the lowest of all.
                    Some(Reading::Value { value: Value::Power(MicroWatts(0)), .. }) => Err(refuse(
                        "the processor reports no maximum power (0); use a value such as 65W".to_owned(),
                    )),
                    Some(Reading::Value { value, .. }) => Ok(value),
                    // Omit the place's number, so that the refusals of all places are equal.
                    Some(Reading::Absent(why)) => Err(refuse(match place.at {
                        At::Policy(number) => {
                            format!("{source} is absent: {}", why.for_every_policy(number))
                        }
                        _ => format!("{source} is absent: {why}"),
                    })),
                    None => Err(refuse(format!("{source} is absent: {}", self.why_nowhere(source)))),
                }
            }
        }
    }

    /// Returns the frequency of CPPC's lowest nonlinear level, for drivers without a file for it.
    fn efficient_of_levels(&self, place: &Place) -> Option<KiloHertz> {
        let read = |knob: Id| {
            let at = self.place_like(knob, place).ok()??;
            self.value_if_readable(knob, &at).ok()?
        };
        let level = |knob: Id| match read(knob)? {
            Value::Perf(level) => Some(u64::from(level.0)).filter(|level| *level > 0),
            // Above 255.
            Value::Count(level) => Some(level),
            _ => None,
        };
        let nominal = read(Id::NominalFreq)?.frequency()?;
        Some(KiloHertz(nominal.0 * level(Id::CppcLowestNonlinear)? / level(Id::CppcNominal)?))
    }

    /// Returns the lowest percentage that intel_pstate takes, or the present one if it is no
    /// higher. The driver clamps the file to CPU 0's lowest ratio in percent of its highest
    /// (min_perf_pct_min). On hybrids it compares levels, which are rounded up from frequencies
    /// (intel_hybrid_scaling_factor). For models missing from its table, a level is at most 100
    /// MHz.
    pub(super) fn lowest_percentage(&self, place: &Place) -> Result<Percent, ReadError> {
        let topology = self.topology();
        let is_hybrid = topology.cpus.values().any(|cpu| cpu.core_type.is_some());
        let level = match topology.model.filter(|_| is_hybrid) {
            Some(0x97 | 0x9a | 0xb7 | 0xba | 0xbf) => Some(78_741),
            Some(0xaa) => Some(80_000),
            Some(0xbd) => Some(86_957),
            _ => None,
        };
        let mut lowest = 100;
        if let Some(policy) = self.places(Id::HwMinFreq)?.first() {
            let khz = |knob| {
                self.value_if_readable(knob, policy).map(|value| value.and_then(|value| value.frequency()))
            };
            if let (Some(KiloHertz(min)), Some(KiloHertz(max))) = (khz(Id::HwMinFreq)?, khz(Id::HwMaxFreq)?) {
                lowest = match level {
                    Some(level) => min.div_ceil(level) * 100 / max.div_ceil(level).max(1),
                    None => (min + if is_hybrid { 100_000 } else { 0 }) * 100 / max.max(1),
                };
            }
        }
        let lowest = Percent(lowest as u32);
        Ok(match self.value(Id::MinPerfPct, place)? {
            Some(Value::Percent(now)) => now.min(lowest),
            _ => lowest,
        })
    }

    /// Returns `share` of the hardware's highest frequency at `place`, in whole MHz. With turbo
    /// off, the highest is the base (nominal) frequency, even if the driver still shows more, or
    /// the last entry of the driver's table. The result is at least the processor's efficient
    /// frequency. Boost goes above the table's last entry (acpi-cpufreq on AMD), so a share that
    /// reaches this entry becomes the entry before it.
    pub(super) fn share_of_highest(
        &self,
        knob: Id,
        place: &Place,
        share: Percent,
        is_turbo_off: bool,
    ) -> Result<Value, ResolveError> {
        let highest = self.resolve(knob, place, &Wanted::Max)?;
        let Some(mut highest) = highest.frequency() else { return Ok(highest) };
        let of = |wanted| self.resolve(knob, place, &wanted).ok().and_then(|value| value.frequency());
        let entries = self.last_entries(place)?;
        if is_turbo_off && matches!(knob, Id::MinFreq | Id::MaxFreq) {
            let base = of(Wanted::Base).or(entries.map(|(_, last)| last));
            highest = base.map_or(highest, |base| base.min(highest));
        }
        let mut share = KiloHertz(highest.0 * u64::from(share.0) / 100 / 1000 * 1000);
        if let Some((before, last)) = entries
            && (last..highest).contains(&share)
        {
            share = before;
        }
        let efficient = of(Wanted::Efficient).unwrap_or_default();
        Ok(Value::Frequency(share.max(efficient).min(highest)))
    }

    /// Returns the last two entries of the driver's table of frequencies.
    pub(super) fn last_entries(&self, place: &Place) -> Result<Option<(KiloHertz, KiloHertz)>, ReadError> {
        let Some(Value::Frequencies(mut table)) = self.value(Id::AvailableFreqs, place)? else {
            return Ok(None);
        };
        table.sort_unstable();
        table.dedup();
        Ok(if let [.., before, last] = table[..] { Some((before, last)) } else { None })
    }

    /// Returns the place of `knob` that corresponds to `place`: `place` itself, or the first place
    /// that governs one of its CPUs.
    pub(crate) fn place_like(&self, knob: Id, place: &Place) -> Result<Option<Place>, ReadError> {
        if knob.knob().scope == place.at.scope() {
            return Ok(Some(place.clone()));
        }
        // An offline CPU has a policy directory whose files refuse to be read, so an online CPU
        // answers for both.
        let online = place.cpus.intersection(&self.topology().online);
        let cpus = if online.is_empty() { &place.cpus } else { &online };
        Ok(self.places(knob)?.iter().find(|place| place.cpus.intersects(cpus)).cloned())
    }

    fn up_to(&self, place: &Place, state: &str) -> Result<Value, String> {
        let by_number = || state.parse().ok().filter(|&depth: &usize| depth < self.idle_states().len());
        match (self.idle_state_named(state).or_else(by_number), &place.at) {
            (Some(depth), At::IdleState { state, .. }) => Ok(Value::Switch(*state as usize <= depth)),
            _ => Err(self.idle_states_here()),
        }
    }

    fn idle_state_named(&self, name: &str) -> Option<usize> {
        self.idle_states().iter().position(|known| known.eq_ignore_ascii_case(name))
    }

    /// Returns the sentence that lists the idle states which a setting can name.
    fn idle_states_here(&self) -> String {
        match self.idle_states() {
            [] => "there are no idle states here".to_owned(),
            names => format!("the idle states here are {}", names.join(" ")),
        }
    }

    /// Returns the limit that just allows the idle state of this name on the place's CPU, or why
    /// there is none.
    fn latency_of(&self, place: &Place, name: &str) -> Result<Result<Value, String>, ReadError> {
        let (Some(state), At::Cpu(cpu)) = (self.idle_state_named(name), &place.at) else {
            return Ok(Err(self.idle_states_here()));
        };
        // An offline CPU has no idle states. Another CPU of the same kind has the same ones.
        let (online, cpus) = (&self.topology().online, &self.topology().cpus);
        let kind = |cpu: &u32| cpus.get(cpu).and_then(|cpu| cpu.core_type);
        let twin = || online.iter().find(|other| kind(other) == kind(cpu)).or(online.first());
        let cpu = if online.contains(*cpu) { *cpu } else { twin().unwrap_or(*cpu) };
        let at = At::IdleState { cpu, state: state as u32 };
        let state = Place::named(at, self.idle_states()[state].as_str(), place.cpus.clone());
        Ok(match self.value(Id::IdleLatency, &state)? {
            // The file's 0 means no limit.
            Some(Value::Time(Micros(0))) => Ok(Value::Word("n/a".to_owned())),
            Some(latency @ Value::Time(_)) => Ok(latency),
            _ => Err("the state's latency is not known here".to_owned()),
        })
    }

    /// Checks whether `place` accepts `value` for `knob` as the machine is now: governors and
    /// preferences that are available, frequencies and powers inside the hardware's limits.
    ///
    /// # Errors
    /// The values accepted there, or the value that could not be read to decide.
    pub fn check(&self, knob: Id, place: &Place, value: &Value) -> Result<(), ResolveError> {
        let refuse = |accepted: String| {
            Err(ResolveError::Refused { knob, wanted: value.to_string(), place: place.to_string(), accepted })
        };
        let Some(control) = knob.knob().control() else { return Ok(()) };
        if self.chooses_preference(control.check, knob, place, value)? {
            return refuse(
                "none while dynamic-epp is enabled: write disabled to amd_pstate/dynamic_epp".to_owned(),
            );
        }
        if let Value::Word(word) = value
            && let Some(list) = control.check.list()
        {
            return self.check_listed(control.check, list, place, word)?.map_or(Ok(()), refuse);
        }
        match (control.check, value) {
            (Check::Preference, Value::Epp(_)) if !self.takes_preference_numbers(place)? => refuse(
                "this kernel's amd-pstate takes words, no numbers (they came with kernel 7)".to_owned(),
            ),
            (Check::DriverMode, Value::Word(mode)) => self.check_mode(mode)?.map_or(Ok(()), refuse),
            // The register counts in 100 MHz and the driver rounds down, so the value would read
            // back differently.
            (Check::BetweenEndsInSteps, Value::Frequency(frequency)) if frequency.0 % 100_000 != 0 => {
                refuse("uncore frequencies are multiples of 100MHz".to_owned())
            }
            (Check::BetweenEnds | Check::BetweenEndsInSteps, Value::Frequency(frequency)) => {
                self.check_range(place, control.ends, *frequency)?.map_or(Ok(()), refuse)
            }
            (Check::Power, Value::Power(power)) => {
                self.check_power(knob, place, *power)?.map_or(Ok(()), refuse)
            }
            // Checks the present value, not the new one: undo would have to write it.
            (Check::Window, Value::Time(_)) => match self.value(knob, place)? {
                Some(Value::Time(now)) if Value::Time(now) != *value && cannot_be_written(now) => {
                    refuse(format!(
                        "its present {now} could not be restored: the kernel shows quarters of its unit ({WINDOW_UNIT} us) \
                     and takes whole ones"
                    ))
                }
                _ => Ok(()),
            },
            // There is no `online` file for a CPU that the kernel does not let go, such as CPU 0 on
            // x86.
            (Check::Online, Value::Switch(false)) => match &place.at {
                At::Cpu(_) if self.slot(knob, place)?.is_none() => {
                    refuse("the kernel keeps this CPU online".to_owned())
                }
                _ => Ok(()),
            },
            (Check::ClassFrequency, Value::Frequency(frequency)) if *frequency > NO_LIMIT => {
                refuse(format!("the register ends at {NO_LIMIT}"))
            }
            (Check::UpTo(most), Value::Count(count)) if *count > most => {
                refuse(format!("it takes 0 to {most}"))
            }
            (Check::Smt, Value::Word(word)) => {
                let now = self.value(knob, place)?;
                smt_refusal(now.as_ref(), word).map_or(Ok(()), |why| refuse(why.to_owned()))
            }
            (Check::OneOf(words), Value::Word(word)) if !words.contains(&word.as_str()) => {
                refuse(format!("it takes {}", words.join(" or ")))
            }
            (Check::Level, Value::Count(level)) => {
                let all = self.levels_at(&place.at)?.iter().enumerate();
                // Numbers may have gaps: firmware enables levels by a mask (level_en_mask in
                // isst_tpmi_core.c).
                let levels: Vec<usize> = all.filter(|(_, level)| level.is_some()).map(|(n, _)| n).collect();
                // Without readable levels, firmware decides.
                if levels.is_empty() || levels.iter().any(|known| *known as u64 == *level) {
                    return Ok(());
                }
                let levels: Vec<String> = levels.iter().map(ToString::to_string).collect();
                refuse(format!("its levels are {}", levels.join(", ")))
            }
            (Check::PartitionCpus, Value::Word(word)) if word != "none" => {
                self.partition_refusal(place, word).map_or(Ok(()), refuse)
            }
            (Check::Ratios, Value::Word(word)) if trl(word).is_none() => {
                refuse("it takes 0x and up to 16 hexadecimal digits".to_owned())
            }
            (Check::ActivityWindow, Value::Time(time)) => window_refusal(*time).map_or(Ok(()), refuse),
            // pm_qos_resume_latency_us: the file's 0 means no constraint, the opposite of what 0us
            // asks for.
            (Check::NotZero, Value::Time(Micros(0))) => refuse("0 would mean no limit; use n/a".to_owned()),
            _ => Ok(()),
        }
    }

    /// Returns why these CPUs cannot be set apart from `place`.
    fn partition_refusal(&self, place: &Place, word: &str) -> Option<String> {
        // The word was parsed as a list when the setting was read.
        let cpus: CpuList = word.parse().unwrap_or_default();
        let outside = cpus.difference(&place.cpus);
        if !outside.is_empty() {
            return Some(format!("its CPUs are {}; {outside} are of others", place.cpus));
        }
        // Tasks outside of the partition would have nowhere to run; the kernel would make it
        // invalid.
        let is_whole = self.topology().online.is_subset(&cpus);
        is_whole.then(|| "at least one CPU must remain outside the partition".to_owned())
    }

    /// Returns whether the driver itself chooses preferences and refuses others with EBUSY
    /// (store_energy_performance_preference in amd-pstate.c of 7.0 to 7.2).
    fn chooses_preference(
        &self,
        check: Check,
        knob: Id,
        place: &Place,
        value: &Value,
    ) -> Result<bool, ReadError> {
        Ok(check == Check::Preference
            && self.machine_value(Id::DynamicEpp)? == Some(Value::Switch(true))
            && self.value(knob, place)?.as_ref() != Some(value))
    }

    /// Returns the words in the kernel's list if `word` is not one of them.
    fn check_listed(
        &self,
        check: Check,
        list: Id,
        place: &Place,
        word: &str,
    ) -> Result<Option<String>, ResolveError> {
        let at = self.place_like(list, place)?;
        let words = at.map(|at| self.value(list, &at)).transpose()?.flatten();
        Ok(match words.as_ref().and_then(Value::words) {
            // If the kernel gives no list, only a write can tell.
            Some([]) | None => None,
            // amd-pstate lists `custom` since it takes numbers, to show that a number is set.
            // Writing `custom` fails with EINVAL.
            Some(words)
                if check == Check::Preference && word == "custom" && words.contains(&word.to_owned()) =>
            {
                Some(format!("it takes 0 to 255, {}", words.join(", ").replace(", custom", "")))
            }
            Some(words) if words.iter().any(|other| other == word) => None,
            Some(words) => Some(format!("it takes {}", words.join(", "))),
        })
    }

    /// Returns the accepted powers if `power` is not one of them. The present power is always
    /// accepted, since it can be written back.
    fn check_power(
        &self,
        knob: Id,
        place: &Place,
        power: MicroWatts,
    ) -> Result<Option<String>, ResolveError> {
        if power < LEAST_POWER && self.value(knob, place)? != Some(Value::Power(power)) {
            return Ok(Some(format!("at least {LEAST_POWER}: with less the machine hardly runs")));
        }
        let Some(Ends::UpToRow(most)) = knob.knob().control().map(|control| control.ends) else {
            return Ok(None);
        };
        Ok(match self.value(most, place)? {
            // Many processors report 0 here: no maximum is known.
            Some(Value::Power(max)) if max.0 > 0 && power > max => Some(format!("at most {max}")),
            _ => None,
        })
    }

    /// Returns whether the preference accepts numbers. amd-pstate before kernel 7 refuses them with
    /// EINVAL. A driver that accepts them lists `custom` (amd-pstate.c, energy_perf_strings). The
    /// list is short while the governor is `performance`.
    fn takes_preference_numbers(&self, place: &Place) -> Result<bool, ResolveError> {
        if self.topology().vendor != Vendor::Amd {
            return Ok(true);
        }
        let words = self.value(Id::AvailableEpp, place)?;
        let words = words.as_ref().and_then(Value::words).unwrap_or_default();
        Ok(words.len() < 2 || words.iter().any(|word| word == "custom"))
    }

    /// Returns the available driver modes if `mode` is not one of them.
    fn check_mode(&self, mode: &str) -> Result<Option<String>, ReadError> {
        let modes: &[&str] = match self.is_amd_pstate()? {
            Some(true) => &["active", "passive", "guided", "disable"],
            Some(false) => &["active", "passive", "off"],
            None => return Ok(None),
        };
        Ok((!modes.contains(&mode)).then(|| format!("it takes {}", modes.join(", "))))
    }

    /// Returns whether the driver with modes is amd-pstate, judging by which `status` file exists;
    /// `None` if neither does.
    pub(crate) fn is_amd_pstate(&self) -> Result<Option<bool>, ReadError> {
        let slot = self.slot(Id::DriverMode, &Place::machine())?;
        Ok(slot.and_then(|slot| slot.location.path()).map(|path| path.contains("/amd_pstate/")))
    }

    /// Returns the accepted range if `frequency` is outside it.
    fn check_range(
        &self,
        place: &Place,
        ends: Ends,
        frequency: KiloHertz,
    ) -> Result<Option<String>, ResolveError> {
        // Ends that are numbers were already judged when the setting was parsed.
        let Ends::Rows(low, high) = ends else { return Ok(None) };
        let limit = |knob: Id| -> Result<Option<KiloHertz>, ResolveError> {
            Ok(self.value(knob, place)?.and_then(|value| value.frequency()))
        };
        let (low, high) = (limit(low)?, limit(high)?);
        let outside = low.is_some_and(|low| frequency < low) || high.is_some_and(|high| frequency > high);
        Ok(match (low, high) {
            (Some(low), Some(high)) if outside => Some(format!("it takes {low} to {high}")),
            _ if outside => Some("it is outside the hardware's limits".to_owned()),
            _ => None,
        })
    }
}

/// Returns whether the kernel can read a time window from the register but not write it there. A
/// window is 2^y (1 + f/4) units, and the kernel rounds a written value to whole units before it
/// looks for y and f (`rapl_compute_time_window_core` in intel_rapl_common.c). 2440 us, which many
/// processors have for short_term, is such a window.
fn cannot_be_written(window: Micros) -> bool {
    let of = |y: u32, f: u64| (4 + f) * WINDOW_UNIT * (1 << y) / 4;
    // From y = 2 on, a quarter of 2^y is a whole number of units, so rounding loses nothing.
    (0..2).any(|y| (1..4).any(|f| of(y, f) == window.0)) && !window.0.is_multiple_of(WINDOW_UNIT)
}

/// Why SMT's switch refuses a word while it shows `now` (__store_smt_control of kernel/cpu.c).
fn smt_refusal(now: Option<&Value>, word: &str) -> Option<&'static str> {
    match now {
        Some(Value::Word(now)) if now == "notsupported" => Some("its cores have one thread each"),
        Some(Value::Word(now)) if now == "notimplemented" => Some("the kernel was built without this switch"),
        _ if matches!(word, "on" | "off" | "forceoff") || matches!(word.parse(), Ok(1..=8u8)) => None,
        _ => Some("it takes on, off, forceoff, or a number of threads per core"),
    }
}

/// Returns why CPPC's activity window cannot be `time`.
fn window_refusal(time: Micros) -> Option<String> {
    let held = held_by_window(time);
    (held != time).then(|| format!("the nearest time that the register holds is {held}"))
}

/// Returns the time that CPPC's activity window register holds after a write of `time`: a number up
/// to 127 times a power of ten up to 10^7 (cppc_set_auto_act_window in cppc_acpi.c).
fn held_by_window(time: Micros) -> Micros {
    let (mut mantissa, mut power) = (time.0, 1);
    while mantissa > 129 && power < 10_000_000 {
        mantissa /= 10;
        power *= 10;
    }
    Micros(mantissa.min(127) * power)
}

/// Parses a word as turbo ratio limits.
fn trl(word: &str) -> Option<u64> {
    let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"))?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 128 and 129 become 127, digits below the second or third are dropped, and the register ends.
    #[test]
    fn the_activity_window_is_what_the_register_holds() {
        let held = |time| held_by_window(Micros(time)).0;
        for time in [0, 1, 127, 130, 1270, 20_000, 1_270_000_000] {
            assert_eq!(held(time), time);
        }
        assert_eq!([128, 129, 131, 1280, 12_345].map(held), [127, 127, 130, 1270, 12_300]);
        assert_eq!(held(2_000_000_000), 1_270_000_000);
    }

    #[test]
    fn a_switch_of_smt_that_cannot_switch_is_refused() {
        let refused = |now: &str, word| smt_refusal(Some(&Value::Word(now.to_owned())), word).is_some();
        for word in ["on", "off", "forceoff", "1", "2"] {
            assert!(!refused("on", word) && !refused("off", word), "{word}");
            assert!(refused("notsupported", word) && refused("notimplemented", word), "{word}");
        }
        assert!(refused("on", "banana") && refused("on", "0") && refused("on", "9"));
    }

    #[test]
    fn windows_that_the_kernel_only_reads_are_known() {
        // The kernel's conversions, in both directions.
        let read = |y: u32, f: u64| (1_u64 << y) * (4 + f) * WINDOW_UNIT / 4;
        let written = |window: u64| {
            let units = window / WINDOW_UNIT;
            let y = units.ilog2();
            read(y, 4 * (units - (1 << y)) / (1 << y))
        };
        for (y, f) in (0..24).flat_map(|y| (0..4).map(move |f| (y, f))) {
            let window = read(y, f);
            assert_eq!(cannot_be_written(Micros(window)), written(window) != window, "{window}");
        }
    }
}
