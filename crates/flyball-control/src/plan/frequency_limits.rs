//! Frequency limits under drivers that have a table of frequencies.
//!
//! Since kernel 5.11 `cpufreq_set_policy` rounds limits to entries of the table: a minimum up, a
//! maximum down. The plan rounds them too, so that it shows the value that will be read back. With
//! boost on AMD, `cpuinfo_max_freq` of acpi-cpufreq lies above every entry, so the word `max`
//! stands for a frequency that no limit can hold.

use flyball_host::{KiloHertz, Percent};

use super::{Planner, Want, driver, turbo::TOLERANCE_KHZ};
use crate::{At, Id, Place, ReadError, ResolveError, Snapshot, Value, Wanted, knob::Ends};

const OFF: Value = Value::Switch(false);

impl Planner<'_> {
    /// Resolves a setting for the time of its step. `None` if the number is not known before:
    /// switching turbo on raises the highest frequency of drivers that lowered it with turbo off.
    pub(super) fn resolve(&self, want: &Want) -> Result<Option<Value>, ResolveError> {
        let ends = want.knob.knob().control().map(|control| control.ends);
        let by_highest = matches!(want.wanted, Wanted::Max | Wanted::Share(_))
            && matches!(ends, Some(Ends::Rows(_, Id::HwMaxFreq)));
        if by_highest
            && let Some((highest, base)) = self.ends_of_turbo_that_returns(&want.place)?
            && highest.0 < base.0 + TOLERANCE_KHZ
        {
            return Ok(None);
        }
        match want.wanted {
            Wanted::Share(share) => {
                let asked = |knob, at| Some(self.wants.get(&(knob, at))?.wanted == Wanted::Exactly(OFF));
                let at = want.place.at.clone();
                let is_turbo_off = match asked(Id::Boost, at).or_else(|| asked(Id::Turbo, At::Machine)) {
                    Some(is_off) => is_off,
                    None => self.snapshot.machine_value(Id::Turbo)? == Some(OFF),
                };
                self.snapshot.share_of_highest(want.knob, &want.place, share, is_turbo_off)
            }
            _ => self.snapshot.resolve(want.knob, &want.place, &want.wanted),
        }
        .map(Some)
    }

    /// Returns whether the intent switches a knob on that is off.
    pub(super) fn switches_on(&self, knob: Id, place: &Place) -> Result<bool, ReadError> {
        let is_wanted = self
            .wants
            .get(&(knob, place.at.clone()))
            .is_some_and(|want| want.wanted == Wanted::Exactly(Value::Switch(true)));
        Ok(is_wanted && self.snapshot.value_if_readable(knob, place)? == Some(OFF))
    }

    /// Returns the highest and the base (nominal) frequency of a policy for which the intent
    /// switches turbo on. With turbo off, all drivers except acpi-cpufreq, and except intel_pstate
    /// before 6.12, have lowered the highest frequency to the base.
    fn ends_of_turbo_that_returns(&self, place: &Place) -> Result<Option<(KiloHertz, KiloHertz)>, ReadError> {
        if !self.switches_on(Id::Turbo, &Place::machine())? && !self.switches_on(Id::Boost, place)? {
            return Ok(None);
        }
        let highest = self.snapshot.value_if_readable(Id::HwMaxFreq, place)?;
        let highest = highest.and_then(|value| value.frequency());
        let base = self.base_of(place)?;
        Ok(highest.zip(base).map(|(highest, (base, _))| (highest, base)))
    }

    /// Returns whether, while the intent switches turbo on, a limit may show the highest frequency
    /// without turbo instead of a higher request.
    pub(super) fn may_be_cut(&self, want: &Want) -> Result<bool, ReadError> {
        let now = want.now.as_ref().and_then(Value::frequency);
        let (Some(now), true) = (now, matches!(want.knob, Id::MinFreq | Id::MaxFreq)) else {
            return Ok(false);
        };
        let Some((highest, base)) = self.ends_of_turbo_that_returns(&want.place)? else { return Ok(false) };
        let cuts = highest.0 < base.0 + TOLERANCE_KHZ || self.turbo_is_intel_pstates()?;
        Ok(cuts && now.0 + TOLERANCE_KHZ > highest.min(base).0)
    }

    /// Returns whether a minimum may show the maximum, which the intent raises, instead of a higher
    /// request: cpufreq keeps both requests and uses the smaller for both (cpufreq_set_policy).
    pub(super) fn may_be_hidden(&self, want: &Want) -> bool {
        let Some(maximum) = self.wants.get(&(Id::MaxFreq, want.place.at.clone())) else { return false };
        let is_equal = want.knob == Id::MinFreq && want.now.is_some() && maximum.now == want.now;
        let khz = |value: &Option<Value>| value.as_ref().and_then(Value::frequency).map(|khz| khz.0);
        let is_raised =
            khz(&maximum.value).zip(khz(&want.now)).is_none_or(|(to, now)| to > now + TOLERANCE_KHZ);
        is_equal && is_raised
    }

    /// Returns the value to which drivers cut a limit above the base (nominal) frequency if turbo
    /// is off, or the same intent turns it off; `None` if they do not cut it. Newer drivers lower
    /// `cpuinfo_max_freq`, older ones cut silently. If turbo was already off and the intent does
    /// not set it, only the word `max` is cut; the check refuses a number. A minimum that is a
    /// number is refused before (`minimum_under_turbo_off`), unless base frequencies move.
    pub(super) fn under_turbo_off(
        &self,
        want: &Want,
        value: &Value,
    ) -> Result<Option<(Value, String)>, ReadError> {
        let speaks = self.wants.get(&(Id::Turbo, At::Machine)).is_some_and(|turbo| turbo.value.is_some());
        if !speaks && want.wanted != Wanted::Max {
            return Ok(None);
        }
        let cap = self.cap_of_turbo_off(want, value)?;
        Ok(cap.map(|cap| (Value::Frequency(cap), format!("{value} is above the maximum with turbo off"))))
    }

    /// Returns the highest frequency with turbo off, if turbo is or will be off and `value` exceeds
    /// it.
    pub(super) fn cap_of_turbo_off(
        &self,
        want: &Want,
        value: &Value,
    ) -> Result<Option<KiloHertz>, ReadError> {
        let Value::Frequency(frequency) = value else { return Ok(None) };
        if !matches!(want.knob, Id::MinFreq | Id::MaxFreq) {
            return Ok(None);
        }
        let now = self.snapshot.value(Id::Turbo, &Place::machine())?;
        let asked = self.wants.get(&(Id::Turbo, At::Machine)).and_then(|turbo| turbo.value.clone());
        if asked.or_else(|| now.clone()) != Some(OFF) {
            return Ok(None);
        }
        let is_off = now == Some(OFF);
        // While turbo is on, the hardware's limit includes turbo. After that it depends on the
        // driver. intel_pstate before 6.12 keeps the limit and cuts at the base frequency.
        // amd-pstate on a processor that it cannot boost reads `boost` 0 and cuts nothing.
        // acpi-cpufreq, which has a table, cuts nothing either, so a word keeps its number.
        let keeps = !matches!(want.wanted, Wanted::Exactly(_))
            && self.snapshot.value(Id::AvailableFreqs, &want.place)?.is_some();
        let by_base = (!is_off && !keeps) || self.turbo_is_intel_pstates()?;
        let mut sources = Vec::new();
        if by_base {
            sources.extend([Id::BaseFreq, Id::NominalFreq]);
        }
        if is_off {
            sources.push(Id::HwMaxFreq);
        }
        let mut cap: Option<KiloHertz> = None;
        for id in sources {
            let at = self.snapshot.place_like(id, &want.place)?;
            let found = at.map(|at| self.snapshot.value(id, &at)).transpose()?;
            if let Some(found) = found.flatten().and_then(|value| value.frequency()) {
                // Take the lowest known frequency: base and nominal may differ by rounding in the
                // firmware's tables.
                cap = Some(cap.map_or(found, |cap| cap.min(found)));
            }
        }
        Ok(cap.filter(|cap| cap < frequency))
    }

    /// Returns the firmware's limit (_PPC) if `value` exceeds it. The kernel combines it with the
    /// limit of the file, and the file shows the lower one (acpi_processor_ppc_init adds a QoS
    /// request). Without such a limit `bios_limit` is the table's highest frequency.
    pub(super) fn under_bios_limit(
        &self,
        want: &Want,
        value: &Value,
    ) -> Result<Option<(Value, String)>, ReadError> {
        let frequency = |value: Option<Value>| value.and_then(|value| value.frequency());
        let (Some(wanted), true) = (value.frequency(), matches!(want.knob, Id::MinFreq | Id::MaxFreq)) else {
            return Ok(None);
        };
        let Some(limit) = frequency(self.snapshot.value_if_readable(Id::BiosLimit, &want.place)?) else {
            return Ok(None);
        };
        let is_lower = match self.snapshot.value(Id::AvailableFreqs, &want.place)? {
            Some(Value::Frequencies(table)) => table.into_iter().max().is_some_and(|top| limit < top),
            _ => false,
        };
        let is_cut = is_lower && limit.0 > 0 && limit < wanted;
        Ok(is_cut.then(|| (Value::Frequency(limit), format!("the firmware allows {limit} at most"))))
    }

    /// Returns the limit that intel_pstate in passive mode has requested for its percentages, with
    /// the percentage's knob, if it is narrower than `value`. cpufreq combines the requests of
    /// driver and file, and the file shows the result (`update_cpu_qos_request` in intel_pstate.c).
    /// The percentage refers to a frequency that cannot be read while turbo is off.
    pub(super) fn under_percentage(
        &self,
        want: &Want,
        value: &Value,
    ) -> Result<Option<(Value, Id)>, ReadError> {
        let percentage = match want.knob {
            Id::MinFreq => Id::MinPerfPct,
            Id::MaxFreq => Id::MaxPerfPct,
            _ => return Ok(None),
        };
        if driver::name(self.snapshot)?.as_deref() != Some("intel_cpufreq")
            || self.ahead.mode.is_some()
            || self.snapshot.machine_value(Id::Turbo)? == Some(OFF)
        {
            return Ok(None);
        }
        let percent = match self.wants.get(&(percentage, At::Machine)) {
            Some(want) => want.value.clone(),
            None if !self.is_only_present(percentage, &At::Machine) => {
                self.snapshot.machine_value(percentage)?
            }
            // The driver's minimum, which on hybrids is above the lowest frequency.
            None if percentage == Id::MinPerfPct => {
                Some(Value::Percent(self.snapshot.lowest_percentage(&Place::machine())?))
            }
            None => None,
        };
        let end =
            |id| Ok::<_, ReadError>(self.snapshot.value(id, &want.place)?.and_then(|end| end.frequency()));
        let (lowest, highest) = (end(Id::HwMinFreq)?, end(Id::HwMaxFreq)?);
        let (Some(Value::Percent(Percent(percent))), Some(lowest), Some(highest), Some(wanted)) =
            (percent, lowest, highest, value.frequency())
        else {
            return Ok(None);
        };
        let share = highest.0 * u64::from(percent);
        let (limit, is_narrower) = if want.knob == Id::MinFreq {
            (share.div_ceil(100), share.div_ceil(100) > wanted.0)
        } else {
            (share / 100, share / 100 < wanted.0)
        };
        // The check that follows refuses a value outside the hardware's range.
        let counts = is_narrower && (lowest..=highest).contains(&wanted);
        Ok(counts.then_some((Value::Frequency(KiloHertz(limit)), percentage)))
    }

    /// Returns whether a maximum must be written before the intent switches turbo off. cpufreq
    /// shows the lower of the file's request and the hardware's limit, which turbo off lowers to
    /// the base frequency. After that, the file would already show the base frequency, so flyball
    /// would not write it, and the CPU would exceed it once turbo is on again.
    pub(super) fn outlasts_turbo(&self, want: &Want) -> Result<bool, ReadError> {
        let Some(value) = want.value.as_ref().filter(|_| want.knob == Id::MaxFreq) else { return Ok(false) };
        let turbo = self.wants.get(&(Id::Turbo, At::Machine)).and_then(|turbo| turbo.value.as_ref());
        let goes_off =
            turbo == Some(&OFF) && self.snapshot.machine_value(Id::Turbo)? == Some(Value::Switch(true));
        if !goes_off {
            return Ok(false);
        }
        let others = self.ahead.mode.is_some() || self.ahead.level || self.moves_base_frequencies();
        Ok(!others && self.cap_of_turbo_off(want, value)?.is_none())
    }

    /// Returns whether turbo is switched by intel_pstate's `no_turbo`.
    fn turbo_is_intel_pstates(&self) -> Result<bool, ReadError> {
        let slot = self.snapshot.slot(Id::Turbo, &Place::machine())?;
        Ok(slot.is_some_and(|slot| slot.location.name() == "no_turbo"))
    }
}

/// Returns the table entry to which the kernel will round a limit, with the reason; `None` if it
/// accepts the limit unchanged.
pub(super) fn in_table(
    snapshot: &Snapshot,
    want: &Want,
    value: &Value,
) -> Result<Option<(Value, String)>, ReadError> {
    let Value::Frequency(frequency) = value else { return Ok(None) };
    if matches!(want.knob, Id::ClosMin | Id::ClosMax) {
        // TPMI divides by 100 MHz and rounds down (isst_if_clos_param). The mailbox's field is a
        // ratio as well.
        let cut = Snapshot::cut_to_ratio(value);
        return Ok(cut.map(|cut| {
            (cut, format!("{frequency} cut to whole hundreds of MHz, as the register holds them"))
        }));
    }
    if !matches!(want.knob, Id::MinFreq | Id::MaxFreq) {
        return Ok(None);
    }
    let mut entries = Vec::new();
    for list in [Id::AvailableFreqs, Id::BoostFreqs] {
        if let Some(Value::Frequencies(frequencies)) = snapshot.value(list, &want.place)? {
            entries.extend(frequencies);
        }
    }
    // Only a limit inside the hardware's range is rounded. The next check refuses others.
    let limit = |id| Ok::<_, ReadError>(snapshot.value(id, &want.place)?.and_then(|value| value.frequency()));
    let (low, high) = (limit(Id::HwMinFreq)?, limit(Id::HwMaxFreq)?);
    // Rounding an impossible limit would turn a mistake of the user into a valid request.
    let inside = low.is_none_or(|low| *frequency >= low) && high.is_none_or(|high| *frequency <= high);
    let Some(rounded) = nearest(&mut entries, *frequency, want.knob == Id::MinFreq).filter(|_| inside) else {
        return Ok(None);
    };
    let direction = if rounded < *frequency { "at or below" } else { "at or above" };
    Ok((rounded != *frequency)
        .then(|| (Value::Frequency(rounded), format!("the driver's frequency {direction} {frequency}"))))
}

/// Returns the entry to which a limit is rounded; `None` without entries.
fn nearest(entries: &mut Vec<KiloHertz>, limit: KiloHertz, is_minimum: bool) -> Option<KiloHertz> {
    entries.sort_unstable();
    entries.dedup();
    if is_minimum {
        // __resolve_freq in cpufreq.c: CPUFREQ_RELATION_L for a minimum (at or above),
        // CPUFREQ_RELATION_H for a maximum (at or below), and the last entry if there is none on
        // that side.
        entries.iter().find(|entry| **entry >= limit).or(entries.last()).copied()
    } else {
        entries.iter().rfind(|entry| **entry <= limit).or(entries.first()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minima_round_up_and_maxima_down() {
        let mut table = [3_301_000, 2_400_000, 1_600_000].map(KiloHertz).to_vec();
        let mut at = |khz, minimum| nearest(&mut table, KiloHertz(khz), minimum).unwrap().0;
        assert_eq!(at(2_000_000, true), 2_400_000);
        assert_eq!(at(2_000_000, false), 1_600_000);
        assert_eq!(at(4_680_714, false), 3_301_000);
        assert_eq!(at(4_680_714, true), 3_301_000);
        assert_eq!(at(100, false), 1_600_000);
        assert_eq!(at(2_400_000, true), 2_400_000);
        assert_eq!(nearest(&mut vec![], KiloHertz(1), true), None);
    }
}
