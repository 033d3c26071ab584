//! Limits of a package in an interval: power, current, heat, and the number of awake cores.

use std::{collections::BTreeMap, ops::RangeInclusive};

use flyball_control::{CoreType, LimitReason, LimitReasons, LimitSource, ThermStatus};
use flyball_host::{
    Vendor,
    msr::{MSR_IA32_PACKAGE_THERM_STATUS, MSR_IA32_THERM_STATUS},
};

use super::awake::Awake;
use crate::{
    Cap, CpuInterval, Evidence, Facts, Interval, Layout, Limiter, Preference, Proof, Quantity, Reason,
    Sample, State,
    facts::{PORT, PackageFacts, is_shallow},
    layout::Cpu,
};

/// A package in an interval.
pub(super) struct PackageState<'a> {
    vendor: Vendor,
    watts: Option<f64>,
    /// Long-term and short-term power limit.
    limit: Option<f64>,
    short_limit: Option<f64>,
    celsius: Option<f64>,
    /// Degrees below the limit of the hottest CPU whose sensor was read.
    margin: Option<f64>,
    throttles: u64,
    /// Registers that were read in this interval, on any CPU of the package.
    reasons: Option<(LimitReasons, u64)>,
    therm: Option<u64>,
    package_therm: Option<u64>,
    /// Awake cores that the turbo limits count: on hybrids, P-cores.
    awake: Awake,
    /// Awake cores if every idle core could sleep deeply, and the setting that prevents deep sleep.
    could_sleep: Awake,
    kept_awake: Option<(Limiter, Evidence)>,
    /// The frequency limit that the management port reports, with its sources.
    port: Option<Cap>,
    /// Set if the package draws far less power than it or its twin has drawn before.
    unused: Option<Evidence>,
    /// Turbo limits. `None` for a single snapshot, which does not show which cores are awake.
    facts: Option<&'a PackageFacts>,
    /// The number of busy CPUs, and of those that run below what they may have.
    busy: usize,
    slow: usize,
    /// The highest measured frequency of busy CPUs, MHz, by core type, preference and the CPU's own
    /// highest frequency.
    fastest: BTreeMap<(Option<CoreType>, Option<Preference>, u32), f64>,
    /// The highest measured frequency of busy CPUs whose files allow the hardware's maximum, MHz,
    /// by core type.
    unlimited: BTreeMap<Option<CoreType>, f64>,
    maxima: Maxima,
}

/// By die and core: the CPU with the core's highest scaling_max_freq, and that frequency, MHz.
type Maxima = BTreeMap<(Option<u32>, u32), (u32, f64)>;

/// Power within these shares of a limit counts as at the limit, because the firmware controls an
/// average. Above the long-term limit, the package uses up budget saved before, and the short-term
/// limit applies.
const AT_LIMIT: RangeInclusive<f64> = 0.97..=1.15;
/// A busy CPU below this share of what it may have is slow. The next lower clock step is below it.
const SLOW: f64 = 0.99;
/// A CPU was not held by a limit if its mean frequency exceeds this multiple of the limit, and by
/// more than rounding.
pub(super) const HELD: f64 = 1.05;
/// The firmware starts to throttle this many degrees below the limit.
const HOT: f64 = 2.0;
/// A package that draws less than this share of another package's power at the same time is not
/// limited by power.
const LITTLE: f64 = 0.75;
/// Share of the power that the package drew before, below which power is not its limit: a
/// short-term limit is up to twice the long-term one.
const VERY_LITTLE: f64 = 0.3;
/// Bits of the limit reasons that mean a limit of current.
const CURRENT: [LimitReason; 2] = [LimitReason::Current, LimitReason::RegulatorCurrent];
/// The distance from a limit reason's bit to its log bit.
const LOG: u32 = 16;
/// AMD throttles at 89 to 100 degrees. No register reports the exact temperature.
const HOT_AMD: f64 = 93.0;

impl<'a> PackageState<'a> {
    pub(super) fn new(
        layout: &Layout,
        facts: &'a Facts,
        interval: &Interval,
        from: &Sample,
        to: &Sample,
        index: usize,
        shown: Option<f64>,
    ) -> PackageState<'a> {
        let package = &layout.packages[index];
        let power = &interval.packages[index];
        let mut state = PackageState {
            vendor: layout.machine.vendor,
            watts: power.watts,
            limit: power.limit,
            short_limit: power.short_limit,
            celsius: power.celsius,
            margin: None,
            throttles: 0,
            reasons: None,
            therm: None,
            package_therm: None,
            awake: Awake::default(),
            could_sleep: Awake::default(),
            kept_awake: None,
            port: port(layout, to, index),
            unused: power.watts.and_then(|watts| unused(interval, index, watts, shown)),
            facts: facts.packages.get(index).filter(|_| interval.seconds > 0.0),
            busy: 0,
            slow: 0,
            fastest: BTreeMap::new(),
            unlimited: BTreeMap::new(),
            maxima: maxima(layout, interval, package.number),
        };
        let is_deep: Vec<bool> = layout.machine.idle_states.iter().map(|name| !is_shallow(name)).collect();
        let (mut awake, mut could_sleep, mut reasons) = (Vec::new(), Vec::new(), None);
        for (number, cpu) in layout.cpus.iter().enumerate() {
            if cpu.package != Some(package.number) {
                continue;
            }
            let found = &interval.cpus[number];
            state.margin = match (state.margin, found.margin) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            state.throttles += found.throttles.unwrap_or(0) + found.package_throttles.unwrap_or(0);
            if is_fresh(layout, from, to, number) {
                let read = |quantity| to.get(layout, quantity, number);
                reasons = merge(reasons, read(Quantity::LimitReasons));
                state.therm = merge(state.therm, read(Quantity::ThermStatus));
                state.package_therm = merge(state.package_therm, read(Quantity::PackageThermStatus));
            }
            // A sleep in progress is not counted yet. A long sleep is in the deepest state.
            let share = match found.state {
                State::Running => {
                    let states = found.idle.iter().zip(&is_deep).filter(|(_, deep)| !**deep);
                    let shallow: f64 = states.filter_map(|(share, _)| *share).sum();
                    (found.busy.unwrap_or(0.0) + shallow).min(1.0)
                }
                _ => 0.0,
            };
            let kept = facts.cpus.get(number).and_then(|facts| facts.kept_awake.as_ref());
            let (share, deepest) = match kept.filter(|_| found.state != State::Offline) {
                // In C1 its core counts as active.
                Some(kept) => {
                    if kept.setting.is_some() && found.busy.unwrap_or(0.0) < 0.9 {
                        state.kept_awake.clone_from(&kept.setting);
                    }
                    (1.0, if kept.setting.is_some() { found.busy.unwrap_or(0.0) } else { 1.0 })
                }
                None => (share, share),
            };
            if is_counted(cpu) {
                awake.push((cpu, share));
                could_sleep.push((cpu, deepest));
            }
            if let Some(mhz) = found.mhz.filter(|_| found.busy.unwrap_or(0.0) > 0.2) {
                state.busy += 1;
                let highest = facts.cpus.get(number).map_or(0.0, |facts| facts.highest_under(found.max));
                let fastest = state.fastest.entry((cpu.core_type, found.epp, highest as u32)).or_default();
                *fastest = fastest.max(mhz);
                let scale = facts.cpus.get(number).and_then(|facts| facts.scale);
                state.compare(cpu, found, mhz, scale.map_or(1.0, |scale| scale.factor));
            }
        }
        state.reasons = layout.machine.limit_reasons().zip(reasons);
        state.awake = Awake::new(awake.into_iter());
        state.could_sleep = Awake::new(could_sleep.into_iter());
        state
    }

    /// Counts a busy CPU as slow or as having all that it may have. `scale`: MHz per MHz in the
    /// limit file.
    fn compare(&mut self, cpu: &Cpu, found: &CpuInterval, mhz: f64, scale: f64) {
        let sibling = self.sibling(cpu, found);
        let highest = cpu.highest.map_or(0.0, |highest| highest.0 as f64 / 1000.0);
        if sibling.is_none() && found.max.is_some_and(|max| max >= SLOW * highest) {
            let unlimited = self.unlimited.entry(cpu.core_type).or_default();
            *unlimited = unlimited.max(mhz);
        }
        // A CPU well above its files' limit is not bound by it, so it does not count as slow. An
        // SMT sibling with a higher limit raises the core.
        let got = sibling.map(|(_, max)| mhz / max).or(found.got()).map(|got| got / scale);
        self.slow += usize::from(got.is_some_and(|got| !(SLOW..HELD).contains(&got)));
    }

    /// Returns the limit that the socket's management port reports.
    pub(super) fn port(&self) -> Option<Cap> {
        self.port.clone()
    }

    /// Returns the SMT sibling with the highest scaling_max_freq and that frequency, MHz, if it is
    /// above the CPU's own.
    pub(super) fn sibling(&self, cpu: &Cpu, found: &CpuInterval) -> Option<(u32, f64)> {
        let own = found.max?;
        self.maxima.get(&(cpu.die, cpu.core?)).copied().filter(|(_, max)| *max > own)
    }

    /// Returns the turbo limits that apply to a CPU.
    fn counted(&self, cpu: &Cpu) -> Option<&PackageFacts> {
        self.facts.filter(|_| is_counted(cpu))
    }

    /// Returns the turbo limit for the number of cores that were awake while this CPU was. Cores
    /// that only a setting keeps awake do not count.
    pub(super) fn active_cores(&self, cpu: &Cpu) -> Option<Cap> {
        let facts = self.counted(cpu)?;
        let mhz = self.could_sleep.limit(&facts.turbo, cpu)?;
        let value = format!("{mhz:.0} MHz for {} active cores", count(&self.could_sleep, cpu));
        let evidence = Evidence::new(facts.turbo_from.clone(), value);
        Some(Cap { limiter: Limiter::ActiveCores, mhz, evidence })
    }

    /// Returns the turbo limit if cores that a setting keeps from sleeping deeply count as awake.
    pub(super) fn kept_awake(&self, cpu: &Cpu) -> Option<Cap> {
        let (limiter, setting) = self.kept_awake.as_ref()?;
        let mhz = self.awake.limit(&self.counted(cpu)?.turbo, cpu)?;
        let value = format!("{}; {mhz:.0} MHz for {} active cores", setting.value, count(&self.awake, cpu));
        Some(Cap { limiter: *limiter, mhz, evidence: Evidence::new(setting.place.clone(), value) })
    }

    /// Returns the setting that keeps idle cores from sleeping deeply, if no table says what that
    /// costs. E-cores have turbo limits by the number of active cores too, but no table.
    pub(super) fn kept_awake_without_table(&self, cpu: &Cpu) -> Option<Reason> {
        let (limiter, setting) = self.kept_awake.as_ref()?;
        self.facts.filter(|facts| facts.turbo.is_empty() || !is_counted(cpu))?;
        let evidence = self.registers().into_iter().fold(Proof::new(setting.clone()), Proof::and);
        Some(Reason::inferred(*limiter, evidence, &[*limiter, Limiter::Firmware]))
    }

    /// Returns the limit of the Speed Select level.
    pub(super) fn level(&self, cpu: &Cpu) -> Option<Cap> {
        let facts = self.facts?;
        let level = facts.level.as_ref()?;
        let (mhz, best) = (self.awake.limit(&level.turbo, cpu)?, self.awake.limit(&facts.turbo, cpu)?);
        let active = count(&self.awake, cpu);
        let value = format!(
            "level {}: {mhz:.0} MHz for {active} active cores (level {}: {best:.0})",
            level.number, level.best
        );
        Some(Cap { limiter: Limiter::SpeedSelect, mhz, evidence: Evidence::new("Speed Select", value) })
    }

    /// Returns the additional loss below `top`, MHz, if cores wake and sleep together.
    pub(super) fn together(&self, cpu: &Cpu, top: f64) -> Option<(f64, Evidence)> {
        self.more_together(&self.awake, cpu, top)
    }

    /// Like [`PackageState::together`], but does not count cores that only a setting keeps awake.
    pub(super) fn together_without_settings(&self, cpu: &Cpu) -> Option<(f64, Evidence)> {
        self.more_together(&self.could_sleep, cpu, f64::INFINITY)
    }

    fn more_together(&self, awake: &Awake, cpu: &Cpu, top: f64) -> Option<(f64, Evidence)> {
        let PackageFacts { turbo, turbo_from, .. } = self.counted(cpu)?;
        let apart = awake.limit(turbo, cpu)?;
        let together = awake.mean_while_together(cpu, |active| limit_of(turbo, active));
        let active = awake.mean_while_together(cpu, f64::from);
        let value = format!("{together:.0} MHz for {active:.1} active cores, if they run together");
        Some((apart.min(top) - together, Evidence::new(turbo_from.clone(), value)))
    }

    /// Returns the highest frequency of a busy CPU of this type: scaled as in
    /// [`PackageState::fastest_of`], and unscaled.
    pub(super) fn fastest(&self, core_type: Option<CoreType>, highest: f64) -> Option<(f64, f64)> {
        self.fastest_where(highest, |of, _| of == core_type)
    }

    /// Returns the highest frequency of a busy CPU of this type whose files limit nothing.
    pub(super) fn unlimited(&self, core_type: Option<CoreType>) -> Option<f64> {
        self.unlimited.get(&core_type).copied()
    }

    /// Returns whether a busy CPU of the package prefers performance more than this.
    pub(super) fn has_more_eager(&self, epp: Preference) -> bool {
        self.fastest.keys().any(|(_, other, _)| other.is_some_and(|other| epp.is_behind(other)))
    }

    /// Returns the highest frequency of busy CPUs of this type for which `is_meant` accepts the
    /// preference. `highest` is the highest frequency of the CPU to compare with. A core with a
    /// higher one (preferred cores) is scaled down in proportion: requests and preferences are
    /// levels of each core's own scale.
    pub(super) fn fastest_of(
        &self,
        core_type: Option<CoreType>,
        highest: f64,
        is_meant: impl Fn(Preference) -> bool,
    ) -> Option<f64> {
        let is_wanted = |of, epp: Option<Preference>| of == core_type && epp.is_some_and(&is_meant);
        self.fastest_where(highest, is_wanted).map(|(mhz, _)| mhz)
    }

    fn fastest_where(
        &self,
        highest: f64,
        is_wanted: impl Fn(Option<CoreType>, Option<Preference>) -> bool,
    ) -> Option<(f64, f64)> {
        let wanted = self.fastest.iter().filter(|((of, epp, _), _)| is_wanted(*of, *epp));
        let compared =
            wanted.map(|((_, _, own), mhz)| (mhz * (highest / f64::from(*own).max(1.0)).min(1.0), *mhz));
        compared.reduce(|one, other| if other.0 > one.0 { other } else { one })
    }

    /// Returns evidence that the processor itself reports this limit.
    fn shows(&self, wanted: LimitReason) -> Option<Evidence> {
        let (reasons, value) = self.reasons?;
        let (bit, reason) = reasons.shown(value).find(|(_, reason)| *reason == wanted)?;
        Some(Evidence::new(msr(reasons.register), format!("bit {bit}, {}", reason.words())))
    }

    /// Returns the limit that the hardware reports or that its sensors show, for a CPU that may
    /// have `top` MHz.
    pub(super) fn limit(&self, top: f64) -> Option<Reason> {
        // The port's limit changes within an interval, so it may leave a remainder.
        if let Some(Cap { limiter, mhz, evidence }) = &self.port
            && *mhz <= top
        {
            return Some(Reason::measured(*limiter, Proof::new(evidence.clone())));
        }
        let heat = self.heat();
        let power = self.power();
        // Both: cooling at its limit keeps power below the power limit, unless both are reached.
        let is_below =
            self.watts.zip(self.limit).is_some_and(|(watts, limit)| watts < AT_LIMIT.start() * limit);
        match (heat, power) {
            (Some(heat), Some(_)) if is_below => return Some(heat),
            (_, Some(power)) => return Some(Reason::measured(Limiter::Power, power)),
            (Some(heat), None) => return Some(heat),
            (None, None) => {}
        }
        // If nothing is hot, PROCHOT comes from outside.
        if self.is_prochot() {
            return Some(Reason::measured(Limiter::Prochot, Proof::from_evidence(self.registers())?));
        }
        let current = CURRENT.iter().find_map(|reason| self.shows(*reason))?;
        Some(Reason::measured(
            Limiter::Current,
            self.registers().into_iter().fold(Proof::new(current), Proof::and),
        ))
    }

    /// Returns current as a possible limit, if the limit reasons' log bits show it. The log holds
    /// every limit since somebody cleared it. A CPU that sleeps in between may not be limited at
    /// the moment of reading.
    pub(super) fn logged(&self) -> Option<Reason> {
        let (reasons, value) = self.reasons?;
        let (bit, reason) = reasons.shown(value >> LOG).find(|(_, reason)| CURRENT.contains(reason))?;
        let value = format!("bit {}, {} at some time, not now", bit + LOG, reason.words());
        let evidence = Proof::new(Evidence::new(msr(reasons.register), value));
        Some(Reason::inferred(Limiter::Unseen, evidence, &[Limiter::Current, Limiter::Firmware]))
    }

    /// Returns whether the thermal registers or the limit reasons show PROCHOT.
    fn is_prochot(&self) -> bool {
        self.shows(LimitReason::Prochot).is_some()
            || self.therms().any(|(_, therm)| therm.shows(ThermStatus::PROCHOT))
    }

    fn heat(&self) -> Option<Reason> {
        let limits = [LimitReason::Thermal, LimitReason::AverageThermal, LimitReason::RegulatorThermal];
        let mut evidence: Vec<Evidence> = limits.into_iter().filter_map(|limit| self.shows(limit)).collect();
        if self.therm.is_some_and(|therm| ThermStatus(therm).shows(ThermStatus::HOT)) {
            evidence.push(Evidence::new("MSR 0x19c", "bit 0, thermal"));
        }
        if self.throttles > 0 {
            evidence.push(Evidence::new("thermal_throttle", format!("{} more", self.throttles)));
        }
        let is_shown = !evidence.is_empty();
        // The firmware controls the temperature just below the limit, so the status bit is set only
        // for moments.
        if let Some(margin) = self.margin.filter(|margin| *margin <= HOT) {
            evidence.push(Evidence::new("thermal sensor", format!("{margin:.0} degrees below its limit")));
        }
        if let (Vendor::Amd, Some(celsius)) =
            (self.vendor, self.celsius.filter(|celsius| *celsius >= HOT_AMD))
        {
            evidence.push(Evidence::new("k10temp", format!("{celsius:.0} degrees Celsius")));
        }
        let evidence = Proof::from_evidence(evidence)?;
        // At the temperature limit, PROCHOT may come from the processor itself or from outside.
        if self.is_prochot() && !is_shown {
            let evidence = self.registers().into_iter().fold(evidence, Proof::and);
            return Some(Reason::inferred(Limiter::Heat, evidence, &[Limiter::Heat, Limiter::Prochot]));
        }
        Some(Reason::measured(Limiter::Heat, evidence))
    }

    fn power(&self) -> Option<Proof> {
        let mut evidence = Vec::new();
        for (limit, name) in [(self.limit, ""), (self.short_limit, " for a short time")] {
            if let (Some(watts), Some(limit)) = (self.watts, limit)
                && AT_LIMIT.contains(&(watts / limit))
            {
                let value = format!("{watts:.0} of {limit:.0} W{name}");
                evidence.push(Evidence::new("energy_uj, power_limit_uw", value));
                break;
            }
        }
        let limits = [
            LimitReason::LongPower,
            LimitReason::ShortPower,
            LimitReason::CorePower,
            LimitReason::PowerBudget,
        ];
        evidence.extend(limits.into_iter().filter_map(|limit| self.shows(limit)));
        let at_limit = self.therms().filter(|(_, therm)| therm.shows(ThermStatus::POWER));
        evidence.extend(at_limit.map(|(register, _)| Evidence::new(msr(register), "bit 10, power limit")));
        Proof::from_evidence(evidence)
    }

    /// The thermal registers that were read, of the package and of its cores.
    fn therms(&self) -> impl Iterator<Item = (u32, ThermStatus)> {
        let package = self.package_therm.map(|value| (MSR_IA32_PACKAGE_THERM_STATUS, value));
        let cores = self.therm.map(|value| (MSR_IA32_THERM_STATUS, value));
        package.into_iter().chain(cores).map(|(register, value)| (register, ThermStatus(value)))
    }

    fn registers(&self) -> Vec<Evidence> {
        let reasons = self.reasons.map(|(reasons, value)| (reasons.register, value));
        // Show the package's register only if it tells more than the core's.
        let therms = self.therms().filter(|(register, therm)| {
            *register == MSR_IA32_THERM_STATUS || therm.shows(ThermStatus::PROCHOT)
        });
        let values = reasons.into_iter().chain(therms.map(|(register, therm)| (register, therm.0)));
        values.map(|(register, value)| Evidence::new(msr(register), format!("{value:#x}"))).collect()
    }

    /// Returns a limit that all busy cores share and that no register shows: on AMD power, current
    /// or the firmware's own. `rests`: the CPU sleeps part of the time.
    pub(super) fn shared_limit(&self, rests: bool) -> Option<Reason> {
        // If a power limit can be read, power below it rules it out. One CPU alone shows no common
        // cause.
        if self.limit.is_some() || self.busy < 2 || self.slow * 4 < self.busy * 3 {
            return None;
        }
        let watts = self.watts?;
        let value =
            format!("{watts:.0} W; {} of {} busy CPUs are below what they may have", self.slow, self.busy);
        let mut evidence = Proof::new(Evidence::new("energy_uj", value));
        evidence = self.unused.iter().cloned().fold(evidence, Proof::and);
        if let Some(celsius) = self.celsius {
            evidence = evidence.and(Evidence::new("sensor", format!("{celsius:.0} degrees, not hot")));
        }
        let (limiter, mut fits) = if self.unused.is_some() {
            (Limiter::Firmware, vec![Limiter::Firmware, Limiter::Current])
        } else {
            (Limiter::Package, vec![Limiter::Power, Limiter::Current, Limiter::Firmware])
        };
        // A CPU that sleeps in between starts slowly, and so may all of them.
        fits.extend(rests.then_some(Limiter::WakeUp));
        Some(Reason::inferred(limiter, evidence, &fits))
    }

    /// Returns the firmware as the reason if all visible limits are ruled out, otherwise that the
    /// reason is unseen.
    pub(super) fn excluded(&self) -> Reason {
        let mut evidence = self.registers();
        if let Some(watts) = self.watts {
            let limit = self.limit.map_or_else(String::new, |limit| format!(" of {limit:.0}"));
            evidence.push(Evidence::new("energy_uj", format!("{watts:.0}{limit} W")));
        }
        if let Some(margin) = self.margin {
            evidence.push(Evidence::new("thermal sensor", format!("{margin:.0} degrees below its limit")));
        } else if let Some(celsius) = self.celsius {
            evidence.push(Evidence::new("sensor", format!("{celsius:.0} degrees Celsius")));
        }
        // Both power and temperature must be ruled out. If only one can be read, the other may be
        // the reason.
        let is_seen = evidence.len() >= 2;
        match Proof::from_evidence(evidence).filter(|_| is_seen) {
            // AMD has no registers for power and current limits.
            Some(evidence) if self.limit.is_none() => {
                let fits = [Limiter::Firmware, Limiter::Power, Limiter::Current];
                Reason::inferred(Limiter::Firmware, evidence, &fits)
            }
            // Without a register for it, a current limit looks the same.
            Some(evidence) => {
                let fits = [Limiter::Firmware, Limiter::Current];
                let count = if self.reasons.is_some() { 1 } else { 2 };
                Reason::inferred(Limiter::Firmware, evidence, &fits[..count])
            }
            None => Reason::unseen(Evidence::new("registers", "cannot be read, or power cannot")),
        }
    }
}

/// Merges the bits of two CPUs. Some registers are per core, so a bit of any CPU counts.
fn merge(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one | other),
        (one, other) => one.or(other),
    }
}

/// Returns whether the package's turbo limits apply to this CPU's kind of core: MSR 0x1ad is for
/// P-cores, 0x650 for E-cores.
fn is_counted(cpu: &Cpu) -> bool {
    cpu.core_type.is_none_or(|kind| kind == CoreType::P)
}

fn msr(register: u32) -> String {
    format!("MSR {register:#x}")
}

/// Returns the frequency limit of a socket, as its management port reports it, if it is below the
/// processor's rating.
fn port(layout: &Layout, to: &Sample, index: usize) -> Option<Cap> {
    let get = |quantity| to.get(layout, quantity, index);
    let (khz, bits) = (get(Quantity::SocketLimit)?, get(Quantity::SocketSources)?);
    let named = LimitSource::ALL.into_iter().filter(|source| bits >> *source as u32 & 1 == 1);
    let sources: Vec<LimitSource> = named.filter(|source| source.is_below_rating()).collect();
    // With several sources, or one that only tells who requested the limit, power, current and
    // firmware cannot be told apart.
    let limiter = match sources[..] {
        [] => return None,
        [LimitSource::Heat] | [LimitSource::Heat, LimitSource::Prochot] => Limiter::Heat,
        [LimitSource::Prochot] => Limiter::Prochot,
        [LimitSource::Current] => Limiter::Current,
        [LimitSource::Power] => Limiter::Power,
        _ => Limiter::Package,
    };
    let mhz = khz as f64 / 1000.0;
    let names: Vec<&str> = sources.iter().map(|source| source.name()).collect();
    let evidence = Evidence::new(PORT, format!("{mhz:.0} MHz, {}", names.join(", ")));
    Some(Cap { limiter, mhz, evidence })
}

/// Returns evidence that a package draws too little for power to be its limit. `shown` is the
/// highest power that a package has drawn so far.
fn unused(interval: &Interval, index: usize, watts: f64, shown: Option<f64>) -> Option<Evidence> {
    let others = interval.packages.iter().enumerate().filter(|(other, _)| *other != index);
    let twin = others.filter_map(|(_, package)| package.watts).reduce(f64::max);
    if let Some(twin) = twin.filter(|twin| watts < LITTLE * twin) {
        return Some(Evidence::new("energy_uj", format!("another package draws {twin:.0} W")));
    }
    let shown = shown.filter(|shown| watts < VERY_LITTLE * shown)?;
    Some(Evidence::new("energy_uj", format!("{shown:.0} W were drawn before")))
}

/// Returns whether a CPU's reason registers were read in an interval. In a single snapshot, they
/// were if they have a value.
pub(super) fn is_fresh(layout: &Layout, from: &Sample, to: &Sample, index: usize) -> bool {
    let at = |sample: &Sample| sample.get(layout, Quantity::ReasonsAt, index);
    at(to).is_some() && (at(to) != at(from) || from.at == to.at)
}

/// Finds the highest scaling_max_freq of each core of a package.
fn maxima(layout: &Layout, interval: &Interval, package: u32) -> Maxima {
    let mut found = Maxima::new();
    let own = layout.cpus.iter().zip(&interval.cpus).filter(|(cpu, _)| cpu.package == Some(package));
    for (cpu, max, core) in own.filter_map(|(cpu, found)| Some((cpu, found.max?, cpu.core?))) {
        let highest = found.entry((cpu.die, core)).or_insert((cpu.number, max));
        if max >= highest.1 {
            *highest = (cpu.number, max);
        }
    }
    found
}

/// The number of cores that were awake while a CPU was. Has a decimal if the number changed.
fn count(awake: &Awake, cpu: &Cpu) -> String {
    ((awake.while_awake(cpu) * 10.0).round() / 10.0).to_string()
}

impl Awake {
    /// The mean of a table's limits while a CPU was awake.
    fn limit(&self, turbo: &[(u32, f64)], cpu: &Cpu) -> Option<f64> {
        (!turbo.is_empty()).then(|| self.mean_while_awake(cpu, |active| limit_of(turbo, active)))
    }
}

/// Returns a table's limit for a number of cores. The buckets are upper bounds, and the last limit
/// also applies to more cores.
fn limit_of(turbo: &[(u32, f64)], active: u32) -> f64 {
    turbo.iter().find(|(cores, _)| active <= *cores).or(turbo.last()).map_or(0.0, |bucket| bucket.1)
}
