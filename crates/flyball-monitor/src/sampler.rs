//! Takes samples of a machine without waking its CPUs.
//!
//! From every CPU, flyball reads only what the kernel already knows: /proc/stat, idle times,
//! limits. To read counters, it interrupts each CPU that ran since the last sample once. It reads
//! the reason registers only on busy CPUs that run below their limit, a few per sample. So sleeping
//! CPUs stay asleep, and the firmware does not mistake the monitor for a workload.

mod counters;
mod discover;
mod file;
mod meter;
mod stat;

use std::time::Duration;

use flyball_control::{Id, LimitSource};
use flyball_host::{Host, msr, topology::CPUS};

use self::{
    counters::{Counters, Source},
    discover::Discovered,
    meter::Meter,
};
pub use self::{
    discover::{RaplZone, answers_at_once, rapl_zones},
    file::KeptAttribute,
};
use crate::{
    ABSENT, Cost, Layout, Preference, Quantity, Sample, interval::WAKING, layout::DEEP_US,
    places::ValueOffsets, shared,
};

/// Which CPUs may be interrupted for a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Touch {
    /// None: only values that the kernel keeps anyway.
    Nothing,
    /// CPUs that ran since the last sample, except isolated and nohz_full CPUs.
    #[default]
    Ran,
    /// All online CPUs.
    All,
}

#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub touch: Touch,
    /// How often limits, preferences and governors are read. On machines with more than 320 CPUs,
    /// [`RATE`] CPUs are read per second, in turn. With zero, every sample reads them from all
    /// CPUs, and also the idle times of sleeping CPUs.
    pub slow: Duration,
    /// Spread slow readings over several samples from the first one on, so that a screen appears
    /// sooner. Until its turn, a CPU lacks idle times, preference, governor and lowest frequency.
    pub is_staged: bool,
    pub reads: Reads,
}

/// Which counters of idle states are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleReads {
    /// Only entry counts, of a few CPUs that wakeups may have slowed down.
    Suspects,
    /// Also the residency of all CPUs: on a large machine, most of the files.
    Times,
    /// Entry counts and residency of all CPUs.
    All,
}

/// Quantities to read besides time and speed.
#[derive(Debug, Clone, Copy)]
pub struct Reads {
    pub idle: IdleReads,
    /// Limits, preferences and governors.
    pub requests: bool,
    /// The registers with reasons.
    pub reasons: bool,
    /// The energy of each core (AMD), which costs one more interrupt of each CPU that ran.
    pub core_energy: bool,
}

impl Default for Reads {
    fn default() -> Reads {
        Reads { idle: IdleReads::All, requests: true, reasons: true, core_energy: false }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            touch: Touch::default(),
            slow: Duration::from_secs(5),
            is_staged: false,
            reads: Reads::default(),
        }
    }
}

/// Busy CPUs whose reason registers are read in one sample. Each register costs an interrupt.
const MAX_REQUESTED: usize = 16;
/// Maximum number of CPUs whose wakeups are counted, unless all CPUs are counted.
const MAX_WAKING: usize = 8;
/// CPUs per second whose limits (and, if they sleep, idle times) are read. On a large machine these
/// files are most of a sample's cost, and few of them change.
const RATE: f64 = 64.0;
/// A tick of /proc/stat, ns (USER_HZ).
const TICK: u64 = 10_000_000;
/// Idle ticks that may go missing in rounding: both readings round down.
const ROUNDING: u64 = 2;
/// The reason is read from CPUs that run below this share of their limit.
const BELOW: f64 = 0.98;
/// How long the first sample waits between two readings, to learn which CPUs run.
const FIRST_LOOK: Duration = Duration::from_millis(20);

pub(crate) struct CpuFiles {
    number: u32,
    idle: Vec<KeptAttribute>,
    usage: Vec<KeptAttribute>,
    /// Wakeups may be the reason for this CPU's speed.
    wakes: bool,
    /// `above` of deep states and `below` of all but the deepest state. Filled at the first
    /// reading.
    wrong: Vec<(Quantity, KeptAttribute)>,
    /// core_throttle_count, core_throttle_total_time_ms, package_throttle_count,
    /// package_throttle_total_time_ms.
    throttle: Vec<(Quantity, KeptAttribute)>,
    frequency: Option<KeptAttribute>,
    counters: Counters,
}

pub(crate) struct PolicyFiles {
    /// Layout indices of the policy's CPUs.
    cpus: Vec<usize>,
    /// The files of [`REQUESTS`], in that order.
    files: Vec<KeptAttribute>,
}

/// Energy and limits of one package, or of the machine.
pub(crate) struct PowerFiles {
    quantity: Quantity,
    /// The index of the package.
    index: usize,
    meter: Meter,
    /// Value after which the counter wraps, uJ. 0 for a value that is not a counter.
    range: u64,
    last: Option<u64>,
    sum: u64,
    /// This is a limit, which is read as rarely as the requests.
    is_slow: bool,
}

/// Frequency limit and its sources, from the management port of a socket.
pub(crate) struct SocketFiles {
    /// The index of the package.
    index: usize,
    limit: KeptAttribute,
    sources: KeptAttribute,
}

pub struct Sampler<'h> {
    host: &'h dyn Host,
    options: Options,
    layout: Layout,
    places: ValueOffsets,
    source: Source,
    /// Quantities that the hold service reads for this user.
    shared: Vec<Quantity>,
    /// Registers with reasons: quantity, number.
    reasons: Vec<(Quantity, u32)>,
    stat: KeptAttribute,
    /// When the last reading of /proc/stat ended.
    stat_read: Duration,
    /// Ticks between the end of the previous reading of /proc/stat and the start of the current
    /// one: the least idle time of a CPU that slept all along.
    passed: u64,
    cpus: Vec<CpuFiles>,
    policies: Vec<PolicyFiles>,
    power: Vec<PowerFiles>,
    sockets: Vec<SocketFiles>,
    /// Which CPUs the last sample was allowed to interrupt. On simulated and recorded machines,
    /// all.
    may_interrupt: Vec<bool>,
    last: Option<Sample>,
    buffer: Vec<u8>,
    /// The policy and the CPU with which the next round of slow readings and of reasons begins.
    next_policy: usize,
    next_asked: usize,
    /// Sample counter, which gives sleeping CPUs their turns.
    turn: usize,
    /// Frequency of the time stamp counter, kHz. Set by the first measurement.
    tsc_khz: Option<f64>,
}

impl std::fmt::Debug for Sampler<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").field("machine", &self.layout.machine.name).finish_non_exhaustive()
    }
}

impl<'h> Sampler<'h> {
    /// Discovers what can be read on a machine.
    ///
    /// # Errors
    /// The host's CPUs cannot be listed.
    pub fn open(host: &'h dyn Host, options: Options) -> Result<Sampler<'h>, flyball_control::ReadError> {
        let Discovered { mut layout, source, reasons, mut cpus, mut policies, power, sockets } =
            discover::discover(host)?;
        if options.reads.idle == IdleReads::Suspects {
            for cpu in &mut cpus {
                cpu.idle.clear();
            }
            layout.fields.retain(|field| !matches!(field.quantity, Quantity::IdleTime(_)));
        }
        if !options.reads.requests {
            policies.clear();
            layout.fields.retain(|field| REQUESTS.iter().all(|(_, quantity)| *quantity != field.quantity));
        }
        if !options.reads.core_energy {
            layout.fields.retain(|field| field.quantity != Quantity::CoreEnergy);
        }
        let shared = shared::extend(host, &mut layout);
        let places = ValueOffsets::new(&layout);
        Ok(Sampler {
            host,
            options,
            places,
            source,
            shared,
            reasons,
            stat: KeptAttribute::new("/proc/stat".to_owned()),
            stat_read: Duration::ZERO,
            passed: 0,
            may_interrupt: vec![false; cpus.len()],
            cpus,
            policies,
            power,
            sockets,
            last: None,
            // Large enough for the whole /proc/stat.
            buffer: Vec::with_capacity(4096 + 128 * layout.cpus.len()),
            layout,
            next_policy: 0,
            next_asked: 0,
            turn: 0,
            tsc_khz: None,
        })
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns where each quantity stands in a sample.
    pub fn places(&self) -> &ValueOffsets {
        &self.places
    }

    /// Counts the wakeups of all CPUs from the next sample on, or only those of suspects.
    pub fn count_wakes(&mut self, all: bool) {
        self.options.reads.idle = if all { IdleReads::All } else { IdleReads::Times };
    }

    /// Returns whether quantities that only the CPU itself can read may be read now: it ran in the
    /// last interval, or the machine is not a live one.
    pub fn may_interrupt(&self, index: usize) -> bool {
        self.may_interrupt[index]
    }

    /// Takes a first reading without waiting. The next sample then has the speed of the CPUs that
    /// ran in between.
    pub fn begin(&mut self) {
        let look = self.look();
        self.last = Some(look);
    }

    /// Takes a sample. The first call reads twice, 20 ms apart, so that it knows which CPUs run.
    pub fn sample(&mut self) -> Sample {
        if self.last.is_none() {
            // A recorded machine does not change.
            if self.host.kind() != flyball_host::Kind::Recorded {
                self.begin();
                self.host.sleep(FIRST_LOOK);
            }
        }
        // CPU time of this thread, not wall time: on a loaded machine, other threads run in
        // between.
        let started = flyball_process::thread_time();
        let mut sample = self.look();
        self.read_counters(&mut sample);
        self.read_requests(&mut sample);
        if !self.shared.is_empty() {
            shared::fill(self.host, &self.layout, &self.shared, &mut sample);
        }
        self.ask_for_reasons(&mut sample);
        // Without the extra first reading, which no later sample repeats.
        sample.cost.cpu = (flyball_process::thread_time() - started).as_nanos() as u64;
        self.last = Some(sample.clone());
        sample
    }

    /// Reads what the kernel knows without asking a CPU and copies the rest from the last sample.
    fn look(&mut self) -> Sample {
        let at = self.host.now().as_nanos() as u64;
        let wall = match self.host.kind() {
            flyball_host::Kind::Live => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |time| time.as_nanos() as u64),
            _ => at,
        };
        let values = match &self.last {
            // A quantity that is not read this time keeps its old value and the time of that
            // reading.
            Some(last) => last.values.clone(),
            None => vec![ABSENT; self.layout.values()],
        };
        let mut sample = Sample { at, wall, cost: Cost::default(), values };
        // First, because the sample has the time of this reading. On a slow machine, the readings
        // after it take milliseconds, and not always equally many.
        self.read_power(&mut sample);
        self.read_stat(&mut sample);
        self.turn = self.turn.wrapping_add(1);
        let turns = self.idle_turns(&sample);
        for index in 0..self.cpus.len() {
            self.read_idle(&mut sample, index, turns);
        }
        sample
    }

    /// Returns whether every quantity is read in every sample.
    fn reads_all(&self) -> bool {
        self.options.slow.is_zero() || self.cpus.len() as f64 <= RATE
    }

    /// Returns the number of samples after which every sleeping CPU has had its turn.
    fn idle_turns(&self, sample: &Sample) -> usize {
        if self.reads_all() {
            return 1;
        }
        let Some(last) = &self.last else { return if self.options.is_staged { usize::MAX } else { 1 } };
        let seconds = sample.at.saturating_sub(last.at) as f64 * 1e-9;
        // At least one CPU per sample, however short the interval.
        let per_sample = (RATE * seconds).max(1.0);
        (self.cpus.len() as f64 / per_sample).ceil().max(1.0) as usize
    }

    fn read_stat(&mut self, sample: &mut Sample) {
        let places = &self.places;
        let count = self.cpus.len();
        for quantity in [Quantity::Online, Quantity::Busy, Quantity::Idle, Quantity::Steal] {
            // Offline CPUs have no line in the file. Clear their counts: a stale count would become
            // a delta when the CPU returns.
            let blank = if quantity == Quantity::Online { 0 } else { ABSENT };
            sample.values[places.range(quantity, count)].fill(blank);
        }
        let before = self.host.now();
        let is_read = self.stat.read_into(self.host, &mut self.buffer);
        self.passed = (before.saturating_sub(self.stat_read).as_nanos() as u64) / TICK;
        self.stat_read = self.host.now();
        if !is_read {
            // Recordings may lack /proc/stat. The CPUs that the kernel listed are online.
            for (index, cpu) in self.layout.cpus.iter().enumerate() {
                places.put(sample, Quantity::Online, index, u64::from(cpu.package.is_some()));
            }
            return;
        }
        for times in stat::cpus(&self.buffer) {
            // A CPU that was plugged in after the layout was made. It appears after the next start.
            let Some(index) = self.layout.index_of(times.cpu) else { continue };
            places.put(sample, Quantity::Online, index, 1);
            places.put(sample, Quantity::Busy, index, times.busy);
            places.put(sample, Quantity::Idle, index, times.idle);
            places.put(sample, Quantity::Steal, index, times.steal);
        }
    }

    fn read_idle(&mut self, sample: &mut Sample, index: usize, turns: usize) {
        let is_online = self.places.get(sample, Quantity::Online, index) == Some(1);
        let was_online =
            self.last.as_ref().is_none_or(|last| self.places.get(last, Quantity::Online, index) == Some(1));
        let ticks = self.last.as_ref().map(|last| {
            let delta = |quantity| {
                let get = |sample| self.places.get(sample, quantity, index);
                Some(get(sample)?.saturating_sub(get(last)?))
            };
            (delta(Quantity::Busy), delta(Quantity::Idle))
        });
        let cpu = &mut self.cpus[index];
        // When a CPU goes offline, its thermal_throttle files are removed, and they are created
        // anew when it returns (thermal_throttle_offline() in drivers/thermal/intel/therm_throt.c).
        // Old descriptors return ENODEV.
        if is_online && !was_online {
            cpu.reopen();
        }
        // Skipped counters keep their value and time, so a later sample counts the difference.
        let is_skipped = is_online
            && was_online
            && match ticks {
                // It was busy all along: its idle times moved by less than a tick.
                Some((Some(busy), Some(0))) => busy > 0,
                // It slept, by its tick counts.
                Some((Some(0), Some(_))) => !(self.turn + index).is_multiple_of(turns),
                None => turns > 1,
                _ => false,
            };
        if !is_skipped {
            let at = if is_online { sample.at } else { ABSENT };
            self.places.put(sample, Quantity::IdleAt, index, at);
            for (state, file) in cpu.idle.iter_mut().enumerate() {
                let value = if is_online { file.short_number(self.host) } else { None };
                self.places.put(sample, Quantity::IdleTime(state as u8), index, value.unwrap_or(ABSENT));
            }
            let is_counted = is_online && (self.options.reads.idle == IdleReads::All || cpu.wakes);
            for (state, file) in cpu.usage.iter_mut().enumerate() {
                let value = if is_counted { file.short_number(self.host) } else { None };
                self.places.put(sample, Quantity::IdleUsage(state as u8), index, value.unwrap_or(ABSENT));
            }
        }
        // APERF and MPERF restart at 0 when a CPU comes back. Clearing the times prevents a
        // difference across the gap.
        if !is_online {
            for quantity in [Quantity::CountersAt, Quantity::ReasonsAt] {
                self.places.put(sample, quantity, index, ABSENT);
            }
            cpu.counters = Counters::Closed;
        }
        if !is_skipped {
            self.read_wrong(sample, index, is_online);
        }
    }

    /// Reads how often the governor chose the wrong idle state for this CPU. Only for CPUs that
    /// wakeups may have slowed down and that have used a deep state.
    fn read_wrong(&mut self, sample: &mut Sample, index: usize, is_online: bool) {
        if !self.places.has(Quantity::IdleAbove) {
            return;
        }
        let exits = &self.layout.machine.idle_exits_us;
        let usage = |state| self.places.get(sample, Quantity::IdleUsage(state as u8), index);
        let mut used = (0..exits.len()).filter(|state| usage(*state) > Some(0));
        let cpu = &mut self.cpus[index];
        let is_read = is_online && cpu.wakes && used.any(|state| exits[state] >= DEEP_US);
        if is_read && cpu.wrong.is_empty() {
            let file = |state: usize, name: &str| {
                KeptAttribute::new(format!("{CPUS}/cpu{}/cpuidle/state{state}/{name}", cpu.number))
            };
            let deep = (0..exits.len()).filter(|state| exits[*state] >= DEEP_US);
            let above = deep.map(|state| (Quantity::IdleAbove, file(state, "above")));
            let lighter = 0..exits.len().saturating_sub(1);
            let below = lighter.map(|state| (Quantity::IdleBelow, file(state, "below")));
            cpu.wrong = above.chain(below).collect();
        }
        for quantity in [Quantity::IdleAbove, Quantity::IdleBelow] {
            let files = cpu.wrong.iter_mut().filter(|(of, _)| is_read && *of == quantity);
            // `reduce`, not `sum`: without any file the count is absent, not 0.
            let sum =
                files.map(|(_, file)| file.short_number(self.host)).reduce(|sum, count| Some(sum? + count?));
            self.places.put(sample, quantity, index, sum.flatten().unwrap_or(ABSENT));
        }
    }

    /// Returns whether a CPU ran since the last sample for long enough to matter. Residency cannot
    /// tell: it excludes the current sleep of a CPU that woke briefly, and reading more would end
    /// that sleep.
    fn ran(&self, sample: &Sample, index: usize) -> bool {
        let get = |sample: &Sample, quantity| self.places.get(sample, quantity, index);
        if get(sample, Quantity::Online) != Some(1) {
            return false;
        }
        let Some(last) = &self.last else { return true };
        // A CPU that has just come online ran, and its counters have no earlier reading.
        if get(last, Quantity::Online) == Some(0) {
            return true;
        }
        let delta = |quantity| Some(get(sample, quantity)?.saturating_sub(get(last, quantity)?));
        // The tick samples busy time, so it can miss short, frequent bursts. Idle time is exact if
        // the tick stops, and includes the current sleep (get_idle_time() in fs/proc/stat.c).
        delta(Quantity::Busy).is_some_and(|busy| busy > 0)
            || delta(Quantity::Idle)
                .is_some_and(|idle| idle + delta(Quantity::Steal).unwrap_or(0) + ROUNDING < self.passed)
    }

    /// Interrupts the CPUs that ran, once each.
    fn read_counters(&mut self, sample: &mut Sample) {
        let is_software = self.host.kind() != flyball_host::Kind::Live;
        for index in 0..self.cpus.len() {
            let wanted = match self.options.touch {
                Touch::Nothing => false,
                Touch::Ran => !self.layout.cpus[index].is_isolated && self.ran(sample, index),
                Touch::All => self.places.get(sample, Quantity::Online, index) == Some(1),
            };
            // Additional readings never wake a CPU, even with Touch::All.
            self.may_interrupt[index] =
                is_software || wanted && (self.options.touch != Touch::All || self.ran(sample, index));
            let cpu = &mut self.cpus[index];
            if self.source.is_none() {
                if let Some(file) = &mut cpu.frequency {
                    let value = file.short_number(self.host).unwrap_or(ABSENT);
                    self.places.put(sample, Quantity::ReportedFrequency, index, value);
                }
            } else if wanted {
                // Each CPU gets its own time: at 512 CPUs the first and the last reading are
                // milliseconds apart, 1 % of a short interval.
                let at = self.host.now().as_nanos() as u64;
                let interrupts =
                    self.source.read(self.host, cpu.number, &mut cpu.counters, |quantity, value| {
                        self.places.put(sample, quantity, index, value);
                    });
                if let Some(interrupts) = interrupts {
                    self.places.put(sample, Quantity::CountersAt, index, at);
                    if self.places.has(Quantity::CoreEnergy) {
                        let energy = msr::MSR_AMD_CORE_ENERGY_STATUS;
                        let energy = cpu.counters.register(self.host, cpu.number, energy);
                        self.places.put(sample, Quantity::CoreEnergy, index, energy.unwrap_or(ABSENT));
                        sample.cost.interrupts += 1;
                    }
                    sample.cost.touched += 1;
                    sample.cost.interrupts += interrupts;
                }
            }
            if wanted {
                // Only a running CPU can be throttled by heat, so the counts of other CPUs do not
                // change.
                for (quantity, file) in &mut cpu.throttle {
                    if let Some(value) = file.short_number(self.host) {
                        self.places.put(sample, *quantity, index, value);
                    }
                }
            }
        }
    }

    /// Reads the policies whose turn it is. All of them have a turn within [`Options::slow`], and
    /// each sample reads about as many.
    fn read_requests(&mut self, sample: &mut Sample) {
        let span = self.last.as_ref().map_or(u64::MAX, |last| sample.at.saturating_sub(last.at));
        let all = self.policies.len();
        // Large machines take longer than `slow`: RATE policies per second.
        let slow = self.options.slow.as_secs_f64();
        let slow = if slow > 0.0 { slow.max(all as f64 / RATE) } else { 1e-9 };
        let share = span as f64 * 1e-9 / slow;
        let is_first = self.last.as_ref().is_none_or(|last| {
            self.places.range(Quantity::RequestMax, 1).all(|at| last.values[at] == ABSENT)
        });
        // Rounded up, so that a pass ends in time even if there are fewer policies than samples.
        let count = if is_first && (self.reads_all() || !self.options.is_staged) {
            all
        } else {
            ((all as f64 * share).ceil() as usize).min(all)
        };
        let (start, mut line, reads_all) = (self.next_policy, [0; file::SHORT], self.reads_all());
        self.next_policy = if all == 0 { 0 } else { (start + count) % all };
        for (index, policy) in self.policies.iter_mut().enumerate() {
            let is_due = (index + all - start) % all < count;
            let get = |sample, quantity, cpu| self.places.get(sample, quantity, cpu);
            // Both drivers read the preference from a register on the CPU, which is an interrupt
            // (show_energy_performance_preference() in intel_pstate.c and amd-pstate.c). So only
            // CPUs that ran are read.
            let may_interrupt = policy.cpus.iter().any(|&cpu| self.may_interrupt[cpu]);
            let is_known = policy.cpus.first().is_some_and(|&cpu| get(sample, Quantity::Epp, cpu).is_some());
            let reads_preference = (is_due || !is_known && reads_all) && may_interrupt;
            for ((_, quantity), file) in REQUESTS.iter().zip(&mut policy.files) {
                let is_wanted = match quantity {
                    Quantity::Epp => reads_preference,
                    // The first screen compares all CPUs with their limits, and a later report of
                    // perf_limited is known to be new only if the first sample has it.
                    Quantity::RequestMax | Quantity::PerfLimited => is_due || is_first,
                    _ => is_due,
                };
                if !is_wanted {
                    continue;
                }
                let text = file.line(self.host, &mut line);
                let value = text.and_then(|text| request(*quantity, text, &self.layout.machine.governors));
                // If all CPUs of a policy are offline, reads return EBUSY, and the files disappear
                // with the driver. Retry at the next turn.
                if text.is_none() {
                    file.reopen();
                }
                for &cpu in &policy.cpus {
                    self.places.put(sample, *quantity, cpu, value.unwrap_or(ABSENT));
                }
            }
        }
    }

    fn read_power(&mut self, sample: &mut Sample) {
        for power in &mut self.power {
            let known = self.places.get(sample, power.quantity, power.index);
            // Limits change only if somebody changes them, so one reading per pass over the
            // policies is enough.
            if power.is_slow && known.is_some() && self.next_policy != 0 {
                continue;
            }
            let Some(value) = power.read(self.host, &mut self.buffer) else { continue };
            sample.cost.interrupts += u32::from(!power.is_slow);
            self.places.put(sample, power.quantity, power.index, value);
        }
    }

    /// Returns the smallest value after which an energy counter wraps, uJ. `None` if none wraps.
    pub fn shortest_range(&self) -> Option<u64> {
        self.power.iter().map(|power| power.range).filter(|range| *range > 0).min()
    }

    /// Reads the energy counters that wrap, so that no wrap is missed between two samples that are
    /// far apart. This interrupts at most one sleeping CPU per package: the one on which the kernel
    /// reads the counter.
    pub fn follow_energy(&mut self) {
        for power in self.power.iter_mut().filter(|power| power.range > 0) {
            power.read(self.host, &mut self.buffer);
        }
    }

    /// Reads the reason registers of busy CPUs that run below their limit, in turn.
    fn ask_for_reasons(&mut self, sample: &mut Sample) {
        if self.options.touch == Touch::Nothing || !self.options.reads.reasons {
            return;
        }
        // A recording holds a single snapshot, and reading its registers interrupts no CPU.
        if self.host.kind() == flyball_host::Kind::Recorded {
            (0..self.cpus.len()).for_each(|index| self.read_reasons(sample, index));
            self.read_sockets(sample, &(0..self.cpus.len()).collect::<Vec<_>>());
            return;
        }
        let Some(last) = &self.last else { return };
        let (places, count) = (&self.places, self.cpus.len());
        let mut below = Vec::new();
        let mut waking = 0;
        for index in 0..count {
            self.cpus[index].wakes = false;
            let now = |quantity| places.get(sample, quantity, index);
            let delta = |quantity| Some(now(quantity)?.wrapping_sub(places.get(last, quantity, index)?));
            // Its counters were not read in this sample: it slept.
            if delta(Quantity::CountersAt).is_none_or(|span| span == 0) {
                continue;
            }
            let (Some(aperf), Some(mperf), Some(span)) =
                (delta(Quantity::Aperf), delta(Quantity::Mperf), delta(Quantity::CountersAt))
            else {
                continue;
            };
            let (khz, ran) = match (self.layout.cpus[index].reference, delta(Quantity::Tsc)) {
                // Measured once: the rate does not change, and a measurement per interval would
                // jitter.
                (_, Some(tsc)) => {
                    let khz = *self.tsc_khz.get_or_insert(tsc as f64 * 1e6 / span as f64);
                    (khz, mperf as f64 / tsc as f64)
                }
                (Some(reference), None) => {
                    let busy = delta(Quantity::Busy).unwrap_or(0) as f64;
                    let all = busy + delta(Quantity::Idle).unwrap_or(0) as f64;
                    (reference.0 as f64, if all > 0.0 { busy / all } else { 0.0 })
                }
                (None, None) => continue,
            };
            let got = aperf as f64 / mperf.max(1) as f64 * khz;
            let most = now(Quantity::RequestMax).map_or(f64::INFINITY, |most| most as f64);
            // A CPU that ran for less than 1 % is mostly waking up. Its registers say nothing about
            // a limit.
            if ran >= 0.01 && got < BELOW * most {
                below.push(index);
                let is_waking = ran < WAKING && waking < MAX_WAKING;
                self.cpus[index].wakes = is_waking;
                waking += usize::from(is_waking);
            }
        }
        self.read_sockets(sample, &below);
        // Continue after the last CPU of the previous sample, so that each CPU gets a turn.
        let start = below.partition_point(|&index| index < self.next_asked);
        for &index in below.iter().cycle().skip(start).take(below.len().min(MAX_REQUESTED)) {
            self.next_asked = index + 1;
            // Read the limit again: somebody may have lowered it since the policy's turn, which
            // would look like a firmware limit. This interrupts no CPU.
            let policy = self.policies.iter_mut().find(|policy| policy.cpus.contains(&index));
            if let Some(policy) = policy
                && let Some(most) = policy.files[MAX].short_number(self.host)
            {
                policy.cpus.iter().for_each(|cpu| self.places.put(sample, Quantity::RequestMax, *cpu, most));
                // perf_limited of the processor. The kernel reads it from firmware memory, not on
                // the CPU.
                if let Some(bits) =
                    policy.files.get_mut(LIMITED).and_then(|file| file.short_number(self.host))
                {
                    policy
                        .cpus
                        .iter()
                        .for_each(|cpu| self.places.put(sample, Quantity::PerfLimited, *cpu, bits));
                }
            }
            self.read_reasons(sample, index);
        }
    }

    /// Reads the management ports of sockets that have CPUs below their limit.
    fn read_sockets(&mut self, sample: &mut Sample, below: &[usize]) {
        for SocketFiles { index, limit, sources } in &mut self.sockets {
            let package = Some(self.layout.packages[*index].number);
            let is_asked = below.iter().any(|&cpu| self.layout.cpus[cpu].package == package);
            let mut khz = ABSENT;
            let mut bits = ABSENT;
            if is_asked
                && let Some(mhz) = limit.short_number(self.host)
                && sources.read_into(self.host, &mut self.buffer)
            {
                let named = String::from_utf8_lossy(&self.buffer);
                khz = mhz * 1000;
                bits = LimitSource::named_in(&named).fold(0, |bits, source| bits | 1 << source as u32);
            }
            self.places.put(sample, Quantity::SocketLimit, *index, khz);
            self.places.put(sample, Quantity::SocketSources, *index, bits);
        }
    }

    fn read_reasons(&mut self, sample: &mut Sample, index: usize) {
        if self.reasons.is_empty() {
            return;
        }
        sample.cost.asked += 1;
        // Later samples repeat these values; only this time shows which interval they belong to.
        let at = self.host.now().as_nanos() as u64;
        self.places.put(sample, Quantity::ReasonsAt, index, at);
        for &(quantity, register) in &self.reasons {
            let value = self.cpus[index].counters.register(self.host, self.cpus[index].number, register);
            sample.cost.interrupts += 1;
            self.places.put(sample, quantity, index, value.unwrap_or(ABSENT));
        }
    }
}

/// Policy knobs that hold what is requested of the CPU.
const REQUESTS: &[(Id, Quantity)] = &[
    (Id::MinFreq, Quantity::RequestMin),
    (Id::MaxFreq, Quantity::RequestMax),
    (Id::Epp, Quantity::Epp),
    (Id::Governor, Quantity::Governor),
    (Id::PerfLimited, Quantity::PerfLimited),
];

/// Index of max-freq in [`REQUESTS`].
const MAX: usize = 1;
/// Index of perf_limited in [`REQUESTS`]. Only cppc_cpufreq has it.
const LIMITED: usize = 4;

fn request(quantity: Quantity, text: &str, governors: &[String]) -> Option<u64> {
    match quantity {
        Quantity::Epp => Preference::parse(text).map(Preference::code),
        Quantity::Governor => governors.iter().position(|name| name == text).map(|index| index as u64),
        _ => text.parse().ok(),
    }
}

impl PowerFiles {
    /// Reads the value. For a counter, returns the sum since the first reading.
    fn read(&mut self, host: &dyn Host, buffer: &mut Vec<u8>) -> Option<u64> {
        let value = self.meter.read(host, buffer)?;
        if self.range == 0 {
            return Some(value);
        }
        // Summed up here, so that no other code needs the counter's width.
        let last = self.last.replace(value).unwrap_or(value);
        self.sum += if value >= last { value - last } else { self.range - last.min(self.range) + value };
        Some(self.sum)
    }
}

impl CpuFiles {
    fn reopen(&mut self) {
        self.idle.iter_mut().chain(&mut self.usage).for_each(KeptAttribute::reopen);
        self.wrong.clear();
        self.throttle.iter_mut().for_each(|(_, file)| file.reopen());
        self.frequency.iter_mut().for_each(KeptAttribute::reopen);
        self.counters = Counters::Closed;
    }
}
