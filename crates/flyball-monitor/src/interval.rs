//! The interval between two samples: each CPU's load, its frequency while busy, and its request.

use flyball_host::cpuidle::{ExitRate, costliest, lost_ms};
use serde::Serialize;

use crate::{Layout, Machine, Preference, Quantity, Sample, places::ValueOffsets};

/// Wakeups may decide the speed of a CPU that ran for a smaller share of the time.
pub(crate) const WAKING: f64 = 0.2;

/// The machine between two samples.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct Interval {
    /// Length, s.
    pub seconds: f64,
    /// The clock was set, or the machine was suspended, so nothing below is a rate.
    pub is_broken: bool,
    /// In the layout's order, as the packages.
    pub cpus: Vec<CpuInterval>,
    pub packages: Vec<PackageInterval>,
    /// Power of the whole machine, if it is metered, W.
    pub platform_watts: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The CPU did not run, or for less than a thousandth of the time.
    Asleep,
    Running,
    Offline,
    Unknown,
}

/// A CPU between two samples. Unknown values are `None`. A sleeping CPU has no frequency.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct CpuInterval {
    pub state: State,
    /// Share of the time in which it ran, 0 to 1.
    pub busy: Option<f64>,
    /// Share of the time that a hypervisor gave to other guests.
    pub steal: Option<f64>,
    /// Mean frequency while it ran, MHz.
    pub mhz: Option<f64>,
    /// `mhz` is what the kernel last measured or requested, not the mean of the interval.
    pub is_reported: bool,
    /// The request: limits, MHz; preference; governor, by its number in the layout.
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub epp: Option<Preference>,
    pub governor: Option<usize>,
    /// Share of the time in each idle state since the previous reading, without a sleep in
    /// progress. `None` for a sleeping CPU that was not read: on large machines, sleeping CPUs are
    /// read in turns.
    pub idle: Vec<Option<f64>>,
    /// Exits from each idle state per second since the previous reading. Empty if they were not
    /// read at both ends.
    pub wakes: Vec<f64>,
    /// Exits per second before the target residency, from states that take 10 us or more to leave,
    /// and exits after which a deeper state would have been better. Counted only on CPUs that
    /// wakeups may slow down.
    pub above: Option<f64>,
    pub below: Option<f64>,
    /// Share of cycles that did not wait for memory (Intel), or instructions per cycle (AMD).
    pub productive: Option<f64>,
    /// Degrees Celsius below the temperature at which the processor throttles, and the temperature
    /// itself.
    pub margin: Option<f64>,
    pub celsius: Option<f64>,
    /// How often heat throttled the core, and the package.
    pub throttles: Option<u64>,
    pub package_throttles: Option<u64>,
    /// System management interrupts.
    pub smi: Option<u64>,
    /// Power of its core since the previous reading, W (AMD).
    pub core_watts: Option<f64>,
}

impl CpuInterval {
    /// Returns the measured frequency as a share of the CPU's frequency limit.
    pub fn got(&self) -> Option<f64> {
        Some(self.mhz? / self.max.filter(|max| *max > 0.0)?)
    }

    /// Returns the wakeups of this CPU, if they were counted.
    pub fn waking(&self, machine: &Machine) -> Option<Waking> {
        let mut waking = Waking::new(machine, &self.wakes)?;
        (waking.above, waking.below) = (self.above, self.below);
        let stay = |(name, rate): &(String, f64)| {
            let state = machine.idle_states.iter().position(|state| state == name)?;
            Some((*self.idle.get(state)?)? * 1e6 / rate)
        };
        waking.stay_us = waking.state.as_ref().and_then(stay);
        Some(waking)
    }
}

/// Wakeups from idle states.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize, derive_more::Display)]
#[display("{}", self.words())]
pub struct Waking {
    /// Wakeups per second.
    pub wakes: f64,
    /// The state whose exits cost most, and wakeups from it per second. `null` if no exit cost
    /// time, or the cost is not known.
    pub state: Option<(String, f64)>,
    /// The mean time per entry into that state, us.
    pub stay_us: Option<f64>,
    /// The same counts as in [`CpuInterval`].
    pub above: Option<f64>,
    pub below: Option<f64>,
    /// An upper bound for the share of time that the exits took, from the latencies that the driver
    /// advertises. `null` in a virtual machine, where the host decides.
    pub lost_at_most: Option<f64>,
}

impl Waking {
    /// `None` without rates of the machine's idle states.
    pub fn new(machine: &Machine, rates: &[f64]) -> Option<Waking> {
        let names = &machine.idle_states;
        if rates.is_empty() || rates.len() != names.len() {
            return None;
        }
        let exits: Vec<ExitRate> = (names.iter().zip(&machine.idle_exits_us).zip(rates))
            .map(|((name, us), rate)| ExitRate { name, cost_us: *us as f64, rate: *rate })
            .collect();
        Some(Waking {
            wakes: rates.iter().sum(),
            state: costliest(&exits).map(|exit| (exit.name.to_owned(), exit.rate)),
            stay_us: None,
            above: None,
            below: None,
            lost_at_most: (!exits.is_empty()).then(|| (lost_ms(f64::INFINITY, &exits) * 1e-3).min(1.0)),
        })
    }

    fn words(&self) -> String {
        match (&self.state, self.lost_at_most) {
            (Some((name, rate)), Some(lost)) => {
                format!(
                    "{rate:.0} wake-ups a second out of {name}; exits took at most {:.1} % of its time",
                    lost * 100.0
                )
            }
            (_, Some(_)) => format!("{:.0} wake-ups a second, none of which cost time", self.wakes),
            (_, None) => format!("{:.0} wake-ups a second, whose cost is not known", self.wakes),
        }
    }

    /// Returns what the kernel counted and, separately, what follows from the driver's latencies.
    pub(crate) fn evidence(&self) -> (String, Option<String>) {
        let (Some((name, rate)), Some(lost)) = (&self.state, self.lost_at_most) else {
            return (self.words(), None);
        };
        let stay = self.stay_us.map_or_else(String::new, |stay| format!(" after {stay:.0} us"));
        let wrong = |what: &str, rate: Option<f64>| {
            rate.map_or_else(String::new, |rate| format!(", {rate:.0} a second {what}"))
        };
        let (above, below) = (wrong("too deep", self.above), wrong("too light", self.below));
        let counted = format!("{rate:.0} wake-ups a second out of {name}{stay}{above}{below}");
        let lost = lost * 100.0;
        (counted, Some(format!("exits took at most {lost:.1} % of its time, by the advertised latencies")))
    }
}

#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize)]
pub struct PackageInterval {
    /// Power, W.
    pub watts: Option<f64>,
    pub dram_watts: Option<f64>,
    /// Long-term and short-term power limit, W.
    pub limit: Option<f64>,
    pub short_limit: Option<f64>,
    /// The highest temperature of its sensors, degrees Celsius.
    pub celsius: Option<f64>,
}

/// Two samples of one machine.
struct Pair<'a> {
    layout: &'a Layout,
    places: ValueOffsets,
    from: &'a Sample,
    to: &'a Sample,
    /// Length, ns.
    span: u64,
}

impl Interval {
    /// Returns whether the clock was set or the machine was suspended.
    pub(crate) fn has_jumped(from: &Sample, to: &Sample) -> bool {
        let wall = to.wall as i128 - from.wall as i128;
        // The monotonic clock stands still while the machine is suspended, the wall clock does not.
        // NTP slews by at most 500 ppm, which is less than this in any interval of some minutes.
        (wall - i128::from(to.at.saturating_sub(from.at))).abs() > 500_000_000
    }

    /// Computes the interval between two samples of a layout.
    pub fn between(layout: &Layout, from: &Sample, to: &Sample) -> Interval {
        let span = to.at.saturating_sub(from.at);
        let is_broken = to.at <= from.at || Interval::has_jumped(from, to);
        let pair = Pair { layout, places: ValueOffsets::new(layout), from, to, span: span.max(1) };
        let cpus: Vec<CpuInterval> = (0..layout.cpus.len()).map(|index| pair.cpu(index, is_broken)).collect();
        let packages =
            (0..layout.packages.len()).map(|index| pair.package(index, &cpus, is_broken)).collect();
        let platform_watts = if is_broken { None } else { pair.watts(Quantity::PlatformEnergy, 0) };
        Interval { seconds: span as f64 * 1e-9, is_broken, cpus, packages, platform_watts }
    }
}

impl Pair<'_> {
    fn now(&self, quantity: Quantity, index: usize) -> Option<u64> {
        self.places.get(self.to, quantity, index)
    }

    fn delta(&self, quantity: Quantity, index: usize) -> Option<u64> {
        self.places.delta(self.from, self.to, quantity, index)
    }

    /// Returns the mean power. The hold service's readings have their own time. `None` if there is
    /// no newer reading.
    fn watts(&self, quantity: Quantity, index: usize) -> Option<f64> {
        let span = if self.places.has(Quantity::EnergyAt) {
            self.delta(Quantity::EnergyAt, 0).filter(|span| *span > 0)?
        } else {
            self.span
        };
        Some(self.delta(quantity, index)? as f64 * 1e3 / span as f64)
    }

    fn cpu(&self, index: usize, is_broken: bool) -> CpuInterval {
        let now = |quantity| self.now(quantity, index);
        let delta = |quantity| if is_broken { None } else { self.delta(quantity, index) };
        let states = self.layout.machine.idle_states.len();
        // Since the previous reading, which was before the previous sample if the CPU slept.
        // Recordings of older versions have no time of reading.
        let idle_span = if self.places.has(Quantity::IdleAt) {
            delta(Quantity::IdleAt).filter(|span| *span > 0)
        } else {
            Some(self.span)
        };
        // A sleep that began before the interval is counted as a whole at its end, so it may exceed
        // the interval.
        let share = |micros: u64, span: u64| (micros as f64 * 1e3 / span as f64).min(1.0);
        let (busy_ticks, idle_ticks, steal_ticks) =
            (delta(Quantity::Busy), delta(Quantity::Idle), delta(Quantity::Steal));
        // As a share of all ticks in /proc/stat, so that the shares add up to 1.
        let of_ticks = |part: Option<u64>| {
            let all = busy_ticks? + idle_ticks? + steal_ticks.unwrap_or(0);
            (all > 0).then(|| part.unwrap_or(0) as f64 / all as f64)
        };
        let wrong = |quantity| Some(delta(quantity)? as f64 * 1e9 / idle_span? as f64);
        let speed = self.speed(index, is_broken);
        let reported = now(Quantity::ReportedFrequency).map(|khz| khz as f64 / 1000.0);
        let was_read = delta(Quantity::CountersAt).is_some_and(|span| span > 0);
        // MPERF counts cycles in C0, which is finer than the ticks in /proc/stat, a hundred per
        // second.
        let busy = speed.as_ref().and_then(|speed| speed.busy).or_else(|| of_ticks(busy_ticks));
        let state = match now(Quantity::Online) {
            Some(0) => State::Offline,
            None => State::Unknown,
            Some(_) if is_broken => State::Unknown,
            Some(_) => match busy {
                Some(busy) if busy > 0.0 || was_read => State::Running,
                Some(_) => State::Asleep,
                None => State::Unknown,
            },
        };
        let is_running = state == State::Running;
        let mhz = speed.as_ref().and_then(|speed| speed.mhz);
        // A margin from an earlier sample is outdated.
        let margin =
            now(Quantity::ThermalMargin).filter(|_| is_running && was_read).map(|margin| margin as f64);
        CpuInterval {
            state,
            busy: if state == State::Asleep { Some(0.0) } else { busy },
            steal: of_ticks(steal_ticks),
            mhz: mhz.or(reported).filter(|_| is_running),
            is_reported: mhz.is_none() && reported.is_some() && is_running,
            min: now(Quantity::RequestMin).map(|khz| khz as f64 / 1000.0),
            max: now(Quantity::RequestMax).map(|khz| self.meant(index, khz) as f64 / 1000.0),
            epp: now(Quantity::Epp).and_then(Preference::from_code),
            governor: now(Quantity::Governor).map(|number| number as usize),
            idle: (0..states)
                .map(|state| {
                    let micros = delta(Quantity::IdleTime(state as u8))?;
                    match idle_span {
                        Some(span) => Some(share(micros, span)),
                        // Not read because the CPU was busy all along: it spent no time in any
                        // state.
                        None => (idle_ticks == Some(0) && busy_ticks > Some(0)).then_some(0.0),
                    }
                })
                .collect(),
            wakes: idle_span
                .and_then(|span| {
                    let rate =
                        |state| Some(delta(Quantity::IdleUsage(state as u8))? as f64 * 1e9 / span as f64);
                    (0..states).map(rate).collect()
                })
                .unwrap_or_default(),
            above: wrong(Quantity::IdleAbove),
            below: wrong(Quantity::IdleBelow),
            productive: speed.and_then(|speed| speed.productive),
            margin,
            celsius: margin
                .and_then(|margin| Some(f64::from(self.layout.machine.throttle_temperature?) - margin)),
            throttles: delta(Quantity::CoreThrottles),
            package_throttles: delta(Quantity::PackageThrottles),
            smi: delta(Quantity::Smi),
            core_watts: delta(Quantity::CountersAt)
                .filter(|span| *span > 0)
                .zip(delta(Quantity::CoreEnergy))
                .map(|(span, energy)| energy as f64 / 65_536.0 * 1e9 / span as f64),
        }
    }

    /// Returns the frequency that a maximum request allows, kHz. The highest P-state of
    /// acpi-cpufreq includes boost.
    fn meant(&self, index: usize, khz: u64) -> u64 {
        let cpu = &self.layout.cpus[index];
        match (self.layout.machine.driver.as_deref(), cpu.highest, cpu.base) {
            (Some("acpi-cpufreq"), Some(highest), Some(base)) if khz >= base.0 => khz.max(highest.0),
            _ => khz,
        }
    }

    /// Returns how busy and fast a CPU was, if its counters were read in this sample and once
    /// before. Counters do not advance while a CPU sleeps, so the earlier reading may be older than
    /// the interval.
    fn speed(&self, index: usize, is_broken: bool) -> Option<Speed> {
        if is_broken {
            return None;
        }
        let delta = |quantity| self.delta(quantity, index);
        let read_span = delta(Quantity::CountersAt).filter(|span| *span > 0)?;
        let (aperf, mperf) = (delta(Quantity::Aperf)?, delta(Quantity::Mperf)?);
        let ratio = |mhz: f64| (mperf > 0).then(|| aperf as f64 / mperf as f64 * mhz);
        if let Some(reference) = self.layout.cpus[index].reference {
            // ACPI does not specify the rate of the reference counter, so it does not tell busy
            // time.
            return Some(Speed { busy: None, mhz: ratio(reference.0 as f64 / 1000.0), productive: None });
        }
        let tsc = delta(Quantity::Tsc)?;
        let tsc_mhz = tsc as f64 * 1e3 / read_span as f64;
        // The readings may be further apart than the samples: if the CPU slept, the previous one
        // may be minutes old. But it ran only between the samples.
        let span = read_span.min(self.span.max(1)) as f64;
        let busy = if tsc_mhz > 0.0 { mperf as f64 * 1e3 / (tsc_mhz * span) } else { 0.0 };
        Some(Speed {
            busy: Some(busy.min(1.0)),
            mhz: ratio(tsc_mhz),
            productive: delta(Quantity::Productive)
                .filter(|_| aperf > 0)
                .map(|productive| productive as f64 / aperf as f64),
        })
    }

    fn package(&self, index: usize, cpus: &[CpuInterval], is_broken: bool) -> PackageInterval {
        let now = |quantity| self.now(quantity, index).map(|value| value as f64);
        let watts = |quantity| if is_broken { None } else { self.watts(quantity, index) };
        let own = self.layout.packages[index].number;
        let members = self.layout.cpus.iter().zip(cpus).filter(|(cpu, _)| cpu.package == Some(own));
        // Reading Intel's package sensor would cost one more register. The hottest core that ran is
        // what throttles.
        let hottest = members.filter_map(|(_, cpu)| cpu.celsius).reduce(f64::max);
        PackageInterval {
            watts: watts(Quantity::PackageEnergy),
            dram_watts: watts(Quantity::DramEnergy),
            limit: now(Quantity::PowerLimit).map(|limit| limit * 1e-6),
            short_limit: now(Quantity::ShortPowerLimit).map(|limit| limit * 1e-6),
            celsius: now(Quantity::PackageTemperature).map(|degrees| degrees / 1000.0).or(hottest),
        }
    }
}

struct Speed {
    busy: Option<f64>,
    mhz: Option<f64>,
    productive: Option<f64>,
}
