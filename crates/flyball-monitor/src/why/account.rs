//! Explanations over any length of time. Each interval's explanation is added up, so samples need
//! not be kept.

use std::{borrow::Cow, collections::BTreeMap};

use flyball_host::{CpuList, Vendor};

use super::{
    attribution::{Attribution, LEAST, Loss, RESTS, sibling_evidence},
    explanation::{Explanation, Step},
    package::{PackageState, is_fresh},
};
use crate::{
    Cap, Certainty, CpuInterval, Facts, Interval, Layout, Limiter, Proof, Quantity, Reason, Sample, State,
    facts::{BASE_FREQ, LOWERED_TURBO, PORT, PRIORITY, TURBO_FREQ},
};

/// Reasons for which no register shows the cause.
const UNSHOWN: &[Limiter] = &[Limiter::Firmware, Limiter::Unseen];

/// What happened to the CPUs of a machine over a run of samples.
#[derive(Debug)]
pub struct Account {
    /// In the order of the layout's CPUs.
    sums: Vec<Sum>,
    /// The highest power that any package has drawn, W.
    shown_watts: Option<f64>,
}

impl Account {
    pub fn new(layout: &Layout) -> Account {
        Account { sums: layout.cpus.iter().map(|_| Sum::default()).collect(), shown_watts: None }
    }

    /// Adds the interval between two samples.
    pub fn add(&mut self, layout: &Layout, facts: &Facts, from: &Sample, to: &Sample) {
        let interval = Interval::between(layout, from, to);
        // A broken interval has no rates to attribute. The next one is complete again.
        if !interval.is_broken {
            self.add_interval(layout, facts, &interval, from, to);
        }
    }

    /// Adds the limits of a single snapshot, which has no speed.
    pub(super) fn add_moment(&mut self, layout: &Layout, facts: &Facts, only: &Sample) {
        self.add_interval(layout, facts, &Interval::between(layout, only, only), only, only);
    }

    /// Adds an interval that was already computed from two samples.
    pub fn add_interval(
        &mut self,
        layout: &Layout,
        facts: &Facts,
        interval: &Interval,
        from: &Sample,
        to: &Sample,
    ) {
        let watts = interval.packages.iter().filter_map(|package| package.watts);
        self.shown_watts = watts.chain(self.shown_watts).reduce(f64::max);
        let packages: Vec<PackageState> = (0..layout.packages.len())
            .map(|index| PackageState::new(layout, facts, interval, from, to, index, self.shown_watts))
            .collect();
        for (index, cpu) in layout.cpus.iter().enumerate() {
            let found = &interval.cpus[index];
            let package = layout.package_of(cpu).and_then(|index| packages.get(index));
            // Register values of an earlier sample are repeated in this one. They say nothing about
            // this interval.
            let request =
                to.get(layout, Quantity::Request, index).filter(|_| is_fresh(layout, from, to, index));
            let sum = &mut self.sums[index];
            let limited = to.get(layout, Quantity::PerfLimited, index).map(|now| {
                let before = from.get(layout, Quantity::PerfLimited, index).unwrap_or(now);
                // A bit that somebody cleared in between counts as new when it is set again.
                let old = sum.limited.unwrap_or(before) & now;
                sum.limited = Some(old);
                (old, now)
            });
            let mut rise = None;
            let losses = facts.cpus.get(index).map(|facts| {
                let sibling = package.and_then(|package| package.sibling(cpu, found));
                let attribution =
                    Attribution { layout, facts, cpu: found, place: cpu, package, request, limited, sibling };
                // Those of the last interval: settings may change, and the current ones are of use.
                sum.limits = attribution.caps();
                sum.unheld = attribution.exceeded_for_sibling(&sum.limits);
                if let Some((place, sibling)) = sum.unheld.zip(sibling) {
                    let limit = &mut sum.limits[place];
                    // The value in the file, not the clock step below it.
                    limit.mhz = found.max.unwrap_or(limit.mhz);
                    limit.evidence = sibling_evidence(sibling, "");
                }
                let mut losses = attribution.losses();
                if sum.weight == 0.0
                    && let Some(at) = losses.iter().rposition(|loss| loss.reason.limiter == Limiter::Firmware)
                    && let Some(reason) = attribution.rise(&losses[at], interval.seconds)
                {
                    let Loss { mhz, .. } = losses.remove(at);
                    rise = Some(Loss { reason, mhz });
                }
                losses
            });
            sum.begin(interval, found, rise);
            sum.is_online = to.get(layout, Quantity::Online, index) == Some(1);
            sum.add(interval, found, losses);
        }
    }

    /// Explains what happened so far to all CPUs, or to those in `wanted`. CPUs limited in the same
    /// way are grouped.
    pub fn explain(&self, layout: &Layout, facts: &Facts, wanted: Option<&CpuList>) -> Vec<Explanation> {
        let mut found: Vec<Explanation> = Vec::new();
        for (index, cpu) in layout.cpus.iter().enumerate() {
            if wanted.is_some_and(|wanted| !wanted.contains(cpu.number)) {
                continue;
            }
            let one = self.sums[index].explanation(layout, facts, index);
            let package = |other: &Explanation| {
                let first = other.cpus.iter().next().and_then(|number| layout.index_of(number));
                first.map(|index| (layout.cpus[index].package, layout.cpus[index].core_type))
            };
            // Linear search: a machine has a handful of groups, however many CPUs it has.
            let like = found
                .iter_mut()
                .find(|other| other.is_like(&one) && package(other) == Some((cpu.package, cpu.core_type)));
            match like {
                Some(other) => other.join(&one),
                None => found.push(one),
            }
        }
        found
    }

    /// Explains all CPUs that ran, or those in `wanted`, as one. The numbers are means, weighted by
    /// the time in which each CPU ran. `None` if none ran, or if no speed is known.
    pub fn whole(&self, layout: &Layout, facts: &Facts, wanted: Option<&CpuList>) -> Option<Explanation> {
        let mut sum = Sum::default();
        let (mut cpus, mut highest, mut from, mut most) = (CpuList::new(), 0.0, String::new(), 0.0);
        for (index, cpu) in layout.cpus.iter().enumerate() {
            let own = &self.sums[index];
            if own.weight <= 0.0 || wanted.is_some_and(|wanted| !wanted.contains(cpu.number)) {
                continue;
            }
            let one = own.explanation(layout, facts, index);
            sum.merge(own);
            highest += own.weight * one.highest?;
            cpus.insert(cpu.number);
            // The source is that of the CPU that ran longest.
            if own.weight > most {
                (most, from) = (own.weight, one.highest_from);
            }
        }
        let top = Top { cpus, mhz: Some(highest / sum.weight), from, set_by: None };
        (sum.weight > 0.0).then(|| sum.waterfall(layout, facts, top))
    }
}

/// What happened to a CPU over several intervals, weighted by the time in which it ran.
#[derive(Debug, Default)]
struct Sum {
    weight: f64,
    mhz: f64,
    productive: f64,
    losses: BTreeMap<Limiter, Lost>,
    /// A loss at the beginning that a load-following governor may explain. If the firmware also
    /// limits later intervals, the loss is attributed to the firmware.
    rise: Option<Lost>,
    seconds: f64,
    busy: f64,
    knows_busy: bool,
    idle: Vec<f64>,
    /// The time over which [`Sum::idle`] was counted.
    idle_seconds: f64,
    limits: Vec<Cap>,
    /// The index in [`Sum::limits`] of the limit that a sibling's request outbids.
    unheld: Option<usize>,
    is_online: bool,
    /// The bits of perf_limited that were set from the beginning.
    limited: Option<u64>,
}

/// The start of a waterfall.
struct Top<'a> {
    cpus: CpuList,
    /// The highest frequency of the hardware, and where it was read.
    mhz: Option<f64>,
    from: String,
    /// Who set scaling_max_freq.
    set_by: Option<&'a str>,
}

/// How much frequency one limit cost.
#[derive(Debug, Clone, Default)]
struct Lost {
    /// MHz times weight.
    mhz: f64,
    /// The running time for which the limit applied.
    weight: f64,
    reason: Option<Reason>,
}

impl Sum {
    /// Records what the first interval lost to a load-following governor.
    fn begin(&mut self, interval: &Interval, cpu: &CpuInterval, rise: Option<Loss>) {
        if let (Some(Loss { reason, mhz }), Some(busy)) = (rise, cpu.busy) {
            let weight = busy * interval.seconds;
            self.rise = Some(Lost { mhz: weight * mhz, weight, reason: Some(reason) });
        }
    }

    fn add(&mut self, interval: &Interval, cpu: &CpuInterval, losses: Option<Vec<Loss>>) {
        self.seconds += interval.seconds;
        self.busy += cpu.busy.unwrap_or(0.0) * interval.seconds;
        self.knows_busy |= cpu.busy.is_some();
        self.idle.resize(cpu.idle.len(), 0.0);
        // Count only intervals in which the idle times were read. Sleeping CPUs are read in turns.
        if cpu.idle.iter().any(Option::is_some) {
            self.idle_seconds += interval.seconds;
        }
        for (sum, share) in self.idle.iter_mut().zip(&cpu.idle) {
            *sum += share.unwrap_or(0.0) * interval.seconds;
        }
        let (Some(mhz), Some(busy)) = (cpu.mhz, cpu.busy) else { return };
        // Weighted by running time: a CPU that ran briefly at a low frequency did not lose much.
        let weight = busy * interval.seconds;
        self.weight += weight;
        self.mhz += weight * mhz;
        self.productive += weight * cpu.productive.unwrap_or(0.0);
        for loss in losses.into_iter().flatten() {
            let sum = self.losses.entry(loss.reason.limiter).or_default();
            sum.mhz += weight * loss.mhz;
            sum.weight += weight;
            sum.reason = Some(loss.reason);
        }
        if let Some(firmware) = self.losses.get_mut(&Limiter::Firmware)
            && let Some(rise) = self.rise.take()
        {
            firmware.mhz += rise.mhz;
            firmware.weight += rise.weight;
        }
    }

    /// Adds the sums of another CPU.
    fn merge(&mut self, other: &Sum) {
        self.weight += other.weight;
        self.mhz += other.mhz;
        self.productive += other.productive;
        self.seconds += other.seconds;
        self.busy += other.busy;
        self.knows_busy |= other.knows_busy;
        self.is_online |= other.is_online;
        self.idle_seconds += other.idle_seconds;
        self.idle.resize(self.idle.len().max(other.idle.len()), 0.0);
        for (sum, idle) in self.idle.iter_mut().zip(&other.idle) {
            *sum += idle;
        }
        let rise = other.rise.iter().map(|rise| (&Limiter::Governor, rise));
        for (limiter, lost) in other.losses.iter().chain(rise) {
            let sum = self.losses.entry(*limiter).or_default();
            if sum.reason.is_none() {
                sum.reason.clone_from(&lost.reason);
            }
            sum.mhz += lost.mhz;
            sum.weight += lost.weight;
        }
    }

    fn explanation(&self, layout: &Layout, facts: &Facts, index: usize) -> Explanation {
        let cpu = facts.cpus.get(index);
        // A counter is more reliable than a table.
        let highest = cpu
            .map(|cpu| cpu.highest)
            .filter(|highest| *highest > 0.0)
            .map(|highest| highest.max(self.mean_mhz().unwrap_or(0.0)));
        let cpus = [layout.cpus[index].number].into_iter().collect();
        let from = cpu.map(|cpu| cpu.highest_from.clone()).unwrap_or_default();
        let set_by = cpu.and_then(|cpu| cpu.max_set_by.as_deref());
        self.waterfall(layout, facts, Top { cpus, mhz: highest, from, set_by })
    }

    /// Returns a limit that registers showed in some intervals of a CPU that sleeps in between. It
    /// also gets the loss of intervals without a visible limit: registers show one only at the
    /// moment of reading.
    fn caught(&self, losses: &BTreeMap<Limiter, Lost>) -> Option<(Limiter, Lost)> {
        let shown = losses.iter().filter(|(limiter, _)| limiter.is_shown());
        let (&limiter, shown) = shown.max_by(|one, other| one.1.mhz.total_cmp(&other.1.mhz))?;
        let unshown = UNSHOWN.iter().filter_map(|limiter| losses.get(limiter));
        let (mhz, weight) = unshown.fold((0.0, 0.0), |sum, lost| (sum.0 + lost.mhz, sum.1 + lost.weight));
        if mhz == 0.0 || self.busy >= RESTS * self.seconds {
            return None;
        }
        let mut lost = Lost { mhz: shown.mhz + mhz, weight: shown.weight + weight, ..shown.clone() };
        if let Some(reason) = lost.reason.as_mut().filter(|_| mhz > shown.mhz) {
            reason.certainty = Certainty::Inferred { fits: vec![limiter, Limiter::Firmware] };
        }
        Some((limiter, lost))
    }

    fn mean_mhz(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.mhz / self.weight)
    }

    /// Splits the difference between the highest and the mean frequency into steps.
    fn waterfall(&self, layout: &Layout, facts: &Facts, top: Top<'_>) -> Explanation {
        let Top { cpus, mhz: highest, from: highest_from, set_by } = top;
        let idle_states = &layout.machine.idle_states;
        let state = match (self.is_online, self.knows_busy) {
            (false, _) => State::Offline,
            (true, false) => State::Unknown,
            (true, true) if self.busy > 0.0 => State::Running,
            (true, true) => State::Asleep,
        };
        let mhz = self.mean_mhz();
        let mut steps = Vec::new();
        let mut rest = highest.zip(mhz).map_or(0.0, |(highest, mhz)| highest - mhz);
        let mut losses = Cow::Borrowed(&self.losses);
        if let Some(rise) = &self.rise {
            let governor = losses.to_mut().entry(Limiter::Governor).or_default();
            governor.mhz += rise.mhz;
            governor.weight += rise.weight;
            governor.reason = governor.reason.take().or_else(|| rise.reason.clone());
        }
        if let Some((limiter, lost)) = self.caught(&losses) {
            let losses = losses.to_mut();
            losses.retain(|limiter, _| !UNSHOWN.contains(limiter));
            losses.insert(limiter, lost);
        }
        for (limiter, lost) in losses.as_ref() {
            let mean = lost.mhz / self.weight.max(f64::MIN_POSITIVE);
            // Too small to list. It stays in `rest`, so that the numbers still add up.
            if mean < LEAST * highest.unwrap_or(0.0) {
                continue;
            }
            let Some(Reason { evidence, certainty, .. }) = lost.reason.clone() else { continue };
            rest -= mean;
            let by = match limiter {
                Limiter::MaxFreq => set_by.map(str::to_owned).or_else(|| {
                    (!facts.programs.is_empty())
                        .then(|| format!("{} runs and may have", facts.programs.join(", ")))
                }),
                _ => None,
            };
            steps.push(Step {
                limiter: *limiter,
                mhz: mean,
                share: lost.weight / self.weight,
                // Without a management port, only the firmware sets AMD's power limits.
                knob: feature(*limiter, &evidence).or_else(|| {
                    let knob = limiter.knob();
                    knob.filter(|_| *limiter != Limiter::Power || layout.machine.vendor == Vendor::Intel)
                        .filter(|_| {
                            *limiter != Limiter::TurboOff || !evidence.first().place.starts_with("MSR")
                        })
                }),
                evidence,
                certainty,
                by,
            });
        }
        let share = |time: &f64| time / self.seconds.max(f64::MIN_POSITIVE);
        let idle = |time: &f64| time / self.idle_seconds.max(f64::MIN_POSITIVE);
        Explanation {
            cpus,
            state,
            busy: self.knows_busy.then(|| share(&self.busy)),
            highest,
            highest_from,
            mhz,
            steps,
            rest,
            limits: self.limits.clone(),
            unheld: self.unheld,
            productive: (self.productive > 0.0).then(|| self.productive / self.weight),
            idle: idle_states.iter().cloned().zip(self.idle.iter().map(idle)).collect(),
        }
    }
}

/// Returns the knob to change for limits that have several: a Speed Select feature, the register of
/// turbo limits, or the management port's power limit.
fn feature(limiter: Limiter, evidence: &Proof) -> Option<&'static str> {
    let is_of = |place: &str| evidence.first().place == place;
    match limiter {
        Limiter::ActiveCores if is_of(LOWERED_TURBO) => Some("trl"),
        Limiter::SpeedSelect if is_of(TURBO_FREQ) => Some("sst-tf"),
        Limiter::SpeedSelect if is_of(BASE_FREQ) => Some("sst-bf"),
        Limiter::ClassOfService if is_of(PRIORITY) => Some("clos"),
        Limiter::Power if is_of(PORT) => Some("socket-power-limit"),
        _ => None,
    }
}
