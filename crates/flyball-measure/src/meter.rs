//! Meters: the readings of the machine around and during a round.
//!
//! [`Meters::find`] finds the meters once; a [`Recording`] reads them at a round's start, now and
//! then, and at its end, and keeps the raw readings. Joules and hertz are computed later, from the
//! record ([`Readings`] has the arithmetic), so a report can be made again.

mod clock;
mod command;
mod energy;
mod heat;
#[cfg(test)]
mod tests;
mod wakes;

pub use clock::Effective;
pub use command::{PowerCommand, PowerCommandError, PowerFault};
pub use energy::{Domain, EnergySource};
pub use wakes::{Exits, WakeNote};

use std::time::{Duration, Instant};

use flyball_host::{CpuInfo, CpuList, Host, Kind};

/// A series of readings: seconds since the round's start, and the number that the file held.
pub type Series = Vec<(f64, u64)>;

/// The meters of a boot, as the manifest lists them.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
pub struct MeterList {
    /// Energy meters; the order is that of [`Readings::energy`].
    pub energy: Vec<EnergySource>,
    /// Why there is no energy meter, if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_energy: Option<String>,
    /// Frequency files read during a round, by CPU; the order is that of [`Readings::frequency`].
    pub frequency: Vec<(u32, String)>,
    /// Why no frequency can be read during a round, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_frequency: Option<String>,
    /// CPUs whose APERF, MPERF and TSC registers are read at both ends of a round.
    pub registers: Vec<u32>,
    /// Temperature files, in thousandths of a degree; the order is that of
    /// [`Readings::temperature`].
    pub temperature: Vec<(String, String)>,
    /// Whether the kernel counts thermal throttling.
    pub throttle: bool,
    /// Names and exit latencies, us, of the idle states whose exits are counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle_states: Vec<(String, u64)>,
    /// Whether the processor's counters are read for programs.
    #[serde(default)]
    pub counters: bool,
    /// Why they are not read, on a real machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_counters: Option<String>,
}

/// The raw readings of one round.
#[derive(Debug, Clone, PartialEq, Default, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
pub struct Readings {
    /// Per energy source: counts of a counter, or microwatts of a power meter.
    #[serde(default)]
    pub energy: Vec<Series>,
    /// Per CPU: kHz.
    #[serde(default)]
    pub frequency: Vec<Series>,
    /// Per CPU: registers at both ends.
    #[serde(default)]
    pub registers: Vec<Option<Effective>>,
    /// Per sensor: thousandths of a degree Celsius.
    #[serde(default)]
    pub temperature: Vec<Series>,
    /// How often cores and packages were throttled during the round, by the kernel's count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<u64>,
    /// Context switches of the whole machine during the round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<u64>,
    /// Exits from idle states. Rounds that are too short for it have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exits: Option<Exits>,
}

/// The meters that a machine has.
pub struct Meters {
    list: MeterList,
    energy: energy::EnergyMeters,
    clock: clock::Clocks,
    heat: heat::Heat,
    wakes: wakes::Wakes,
    /// The user's power command. Its source is the last in the list.
    command: Option<PowerCommand>,
}

impl Meters {
    /// Finds what `host` has. Frequencies are followed on `cpus`, those that the workload may use.
    pub fn find(host: &dyn Host, cpus: Option<&CpuList>) -> Meters {
        let (energy, no_energy) = energy::EnergyMeters::find(host);
        let (clock, no_frequency) = clock::Clocks::find(host, cpus);
        let heat = heat::Heat::find(host);
        let wakes = wakes::Wakes::find(host, cpus);
        let is_live = host.kind() == Kind::Live;
        let no_counters = is_live.then(|| crate::counters::why_not(host)).flatten();
        let list = MeterList {
            energy: energy.sources(),
            no_energy,
            frequency: clock.files(),
            no_frequency,
            registers: clock.registers(),
            temperature: heat.sensors(),
            throttle: heat.counts_throttling(),
            idle_states: wakes.states(),
            counters: is_live && no_counters.is_none(),
            no_counters,
        };
        Meters { list, energy, clock, heat, wakes, command: None }
    }

    /// Adds the user's power command, which replaces other meters of the whole machine: both
    /// together would count it twice.
    #[must_use]
    pub fn with_power_command(mut self, command: PowerCommand) -> Meters {
        self.energy.leave_out(Domain::Platform);
        self.list.energy = self.energy.sources();
        self.list.energy.push(command.source());
        self.list.no_energy = None;
        self.command = Some(command);
        self
    }

    /// Returns what went wrong with the user's command, if anything.
    pub fn complaint(&self) -> Option<String> {
        self.command.as_ref().and_then(PowerCommand::complaint)
    }

    /// The meters that were found.
    pub fn list(&self) -> &MeterList {
        &self.list
    }

    /// The lowest temperature at which a sensor's processor throttles.
    pub fn temperature_limit_c(&self) -> Option<f64> {
        self.heat.limit().map(|milli| milli as f64 / 1000.0)
    }

    /// Reads everything for the first time.
    pub fn start<'a>(&'a self, host: &'a dyn Host) -> Recording<'a> {
        let mut readings = Readings {
            energy: vec![Series::new(); self.list.energy.len()],
            frequency: vec![Series::new(); self.list.frequency.len()],
            registers: Vec::new(),
            temperature: vec![Series::new(); self.list.temperature.len()],
            throttled: None,
            switches: None,
            exits: None,
        };
        // Slow readings first (registers of all CPUs cost an interrupt each), so that they are
        // outside of what energy covers.
        let exits = self.wakes.read(host);
        let throttled = self.heat.throttle_count(host);
        // The kernel accounts for the switches of a real workload's processes, and [`Counting`] for
        // those of the machine.
        let switches = (host.kind() != Kind::Live).then(|| context_switches(host)).flatten();
        self.heat.read(host, 0.0, &mut readings.temperature);
        let registers = self.clock.read_registers(host);
        // Energy last, so that what it counts begins with the work.
        let (started, began) = (host.now(), Instant::now());
        self.energy.read(host, 0.0, &mut readings.energy);
        Recording { meters: self, host, started, began, readings, registers, throttled, switches, exits }
    }
}

/// A round that is being metered.
pub struct Recording<'a> {
    meters: &'a Meters,
    host: &'a dyn Host,
    started: Duration,
    /// The start on the clock of the user's power command.
    began: Instant,
    readings: Readings,
    registers: Vec<Option<clock::Registers>>,
    throttled: Option<u64>,
    switches: Option<u64>,
    exits: Option<wakes::Counts>,
}

impl Recording<'_> {
    fn seconds(&self) -> f64 {
        self.host.now().saturating_sub(self.started).as_secs_f64()
    }

    /// Reads what changes during a round: energy, frequencies, temperatures.
    pub fn tick(&mut self) {
        let at = self.seconds();
        self.meters.energy.read(self.host, at, &mut self.readings.energy);
        self.meters.clock.read(self.host, at, &mut self.readings.frequency);
        self.meters.heat.read(self.host, at, &mut self.readings.temperature);
    }

    /// Returns whether a tick has read a frequency.
    pub(crate) fn has_frequency(&self) -> bool {
        self.readings.frequency.iter().flatten().any(|(at, _)| *at > 0.0)
    }

    /// Reads everything for the last time.
    pub fn finish(mut self) -> Readings {
        let at = self.seconds();
        self.meters.energy.read(self.host, at, &mut self.readings.energy);
        // A meter that did not answer at both ends did not cover the whole round.
        for series in &mut self.readings.energy {
            let whole = series.first().is_some_and(|first| first.0 == 0.0)
                && series.last().is_some_and(|last| last.0 == at);
            if !whole {
                series.clear();
            }
        }
        // Not read in ticks: its thread records the times itself, even if nothing may be read
        // during a round.
        if let (Some(command), Some(series)) = (&self.meters.command, self.readings.energy.last_mut()) {
            *series = command.series(self.began, Instant::now());
        }
        let after = self.meters.clock.read_registers(self.host);
        self.readings.registers = self
            .registers
            .iter()
            .zip(after)
            .map(|(before, after)| clock::Registers::difference(before.as_ref()?, &after?))
            .collect();
        self.meters.heat.read(self.host, at, &mut self.readings.temperature);
        // Smaller than before: CPUs went offline meanwhile, and their counts with them.
        let difference = |before: Option<u64>, after: Option<u64>| after?.checked_sub(before?);
        self.readings.throttled = difference(self.throttled, self.meters.heat.throttle_count(self.host));
        let switches = self.switches.and_then(|_| context_switches(self.host));
        self.readings.switches = difference(self.switches, switches);
        let exits = self.exits.and_then(|before| Some((before, self.meters.wakes.read(self.host)?)));
        self.readings.exits = exits.and_then(|(before, after)| self.meters.wakes.difference(before, after));
        self.readings
    }
}

impl Readings {
    /// Energy of a domain over the round in joules: the sum of its sources. `None` if there is no
    /// such source or one of them has no usable readings.
    pub fn joules(&self, sources: &[EnergySource], domain: Domain) -> Option<f64> {
        let mut sum = None;
        for (source, series) in sources.iter().zip(&self.energy).filter(|(source, _)| source.domain == domain)
        {
            *sum.get_or_insert(0.0) += source.joules(series)?;
        }
        sum
    }

    /// Returns what the wake-ups cost, in words, if exits from the meters' idle states can have
    /// taken enough time to matter.
    pub fn wakes(&self, idle_states: &[(String, u64)]) -> Option<String> {
        WakeNote::mean(idle_states, self.exits.iter())?.words()
    }

    /// Mean power of a domain in watts, over the time between its own first and last reading: that
    /// is a little more than the work took. `None` as [`Readings::joules`].
    pub fn watts(&self, sources: &[EnergySource], domain: Domain) -> Option<f64> {
        let joules = self.joules(sources, domain)?;
        let series =
            // All sources of a domain are read in the same ticks, so the first one's times are
            // those of all.
            sources.iter().zip(&self.energy).find(|(source, _)| source.domain == domain).map(|(_, s)| s)?;
        Some(joules / (series.last()?.0 - series.first()?.0)).filter(|watts| watts.is_finite())
    }

    /// Reorders the energy series from `found` to `known`, a list that was made earlier in the same
    /// boot. Another user or a newly loaded module may find other meters. Meters that are gone have
    /// empty series.
    pub(crate) fn in_order_of(mut self, known: &[EnergySource], found: &[EnergySource]) -> Readings {
        if known != found {
            self.energy = known
                .iter()
                .map(|source| {
                    let place = found.iter().position(|other| other == source);
                    place.and_then(|place| self.energy.get(place).cloned()).unwrap_or_default()
                })
                .collect();
        }
        self
    }

    /// Mean frequency while running, in kHz: APERF over MPERF, weighted by how long each CPU ran,
    /// else the mean of the frequency files' readings.
    pub fn mean_khz(&self) -> Option<f64> {
        clock::effective(&self.registers).or_else(|| {
            let all: Vec<f64> = self.frequency.iter().flatten().map(|(_, khz)| *khz as f64).collect();
            crate::stats::mean(&all)
        })
    }

    /// Share of time that the metered CPUs were not idle, 0 to 1, if the registers were read.
    pub fn busy(&self) -> Option<f64> {
        clock::busy(&self.registers)
    }

    /// The highest temperature of the round in degrees Celsius.
    pub fn peak_celsius(&self) -> Option<f64> {
        self.temperature.iter().flatten().map(|(_, milli)| *milli as f64 / 1000.0).max_by(f64::total_cmp)
    }
}

/// Context switches since boot, from /proc/stat.
fn context_switches(host: &dyn Host) -> Option<u64> {
    let text = host.read("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("ctxt ")?.trim().parse().ok())
}

/// Returns whether the machine is a virtual one: the host decides about idle states and registers.
fn is_virtual(host: &dyn Host) -> bool {
    CpuInfo::read(host).is_ok_and(|info| info.is_virtual())
}

/// Reads a file that holds one number.
pub(crate) fn read_number(host: &dyn Host, path: &str) -> Option<u64> {
    host.read(path).ok()?.trim().parse().ok()
}
