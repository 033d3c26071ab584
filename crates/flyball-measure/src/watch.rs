//! Watches the machine while something runs: frequency, heat, throttling, load of other programs,
//! stolen time, interrupts, context switches, memory pressure.
//!
//! [`Watch::start`] reads the counters and starts the [`Meters`], [`Watch::tick`] may be called
//! while the work goes on, [`Watch::stop`] reads everything again and gives [`Conditions`], which
//! [`grade`] judges. What a machine does not have is absent, not zero.

mod conditions;
mod grade;

pub use conditions::{Clock, Conditions, Moment};
pub use grade::{Disturbance, Grade, Limits, Source, grade};

use flyball_host::{CpuList, Host};

use crate::meter::{Meters, Readings, Recording};

/// Cumulative counters of the machine at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counters {
    /// Jiffies of all watched CPUs that were not idle.
    busy: u64,
    /// Jiffies of all watched CPUs, idle included.
    total: u64,
    /// Jiffies that a hypervisor gave to others.
    steal: u64,
    /// Interrupts since boot, over the whole machine.
    interrupts: Option<u64>,
    /// Context switches since boot, over the whole machine.
    switches: Option<u64>,
    /// Microseconds in which some task waited for memory.
    memory_wait: Option<u64>,
}

/// Minimum jiffies per CPU. With fewer, a share of busy or stolen time could be off by more than a
/// tenth.
const SHORTEST_JIFFIES: u64 = 20;

/// A watch on the machine during one run.
pub struct Watch<'a> {
    counting: Counting<'a>,
    recording: Recording<'a>,
}

/// The part of a watch that no meter covers: counters of the kernel, read at both ends.
pub struct Counting<'a> {
    host: &'a dyn Host,
    cpus: CpuList,
    before: Counters,
    started: std::time::Duration,
    limit_c: Option<f64>,
    floor_mhz: Option<f64>,
    moment: Moment,
}

impl<'a> Watch<'a> {
    /// Starts watching. `cpus` are those on which the work runs; `meters` should follow the same
    /// CPUs.
    pub fn start(host: &'a dyn Host, meters: &'a Meters, cpus: CpuList) -> Watch<'a> {
        Watch { counting: Counting::start(host, cpus, meters), recording: meters.start(host) }
    }

    /// Reads the meters; cheap enough for ten times a second.
    pub fn tick(&mut self) {
        self.recording.tick();
    }

    /// Stops watching and says what happened.
    pub fn stop(mut self) -> Conditions {
        // A run shorter than a tick has no frequency yet. A longer one has, and its CPUs are idle
        // by now.
        if !self.recording.has_frequency() {
            self.recording.tick();
        }
        self.counting.stop(&mut self.recording.finish())
    }
}

impl<'a> Counting<'a> {
    /// Shorter runs cannot be watched: the kernel counts in hundredths of a second, or larger
    /// steps.
    pub const SHORTEST_SECONDS: f64 = SHORTEST_JIFFIES as f64 / 100.0;

    /// Starts counting on the CPUs on which the work runs, or on all if the list is empty.
    pub fn start(host: &'a dyn Host, cpus: CpuList, meters: &Meters) -> Counting<'a> {
        let (moment, floor_mhz, limit_c) =
            (Moment::read(host), floor_mhz(host, &cpus), meters.temperature_limit_c());
        Counting {
            host,
            before: counters(host, &cpus),
            started: host.now(),
            cpus,
            limit_c,
            floor_mhz,
            moment,
        }
    }

    /// Stops counting, and returns the conditions by these counts and the meters' readings. Adds
    /// the machine's context switches to the readings.
    pub fn stop(self, readings: &mut Readings) -> Conditions {
        let after = counters(self.host, &self.cpus);
        let seconds = self.host.now().saturating_sub(self.started).as_secs_f64();
        // Saturating: iowait may decrease (Documentation/filesystems/proc.rst), and a CPU may go
        // offline in between.
        let total = after.total.saturating_sub(self.before.total);
        // The kernel counts in hundredths of a second: a run of only a few of them says nothing.
        let long_enough = total >= SHORTEST_JIFFIES * self.cpus.len().max(1) as u64;
        let share = |now: u64, then: u64| long_enough.then(|| now.saturating_sub(then) as f64 / total as f64);
        let rate = |count: Option<u64>| (seconds > 0.0).then_some(count? as f64 / seconds);
        let difference = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        readings.switches = difference(after.switches, self.before.switches);
        Conditions {
            frequency_mhz: readings.mean_khz().map(|khz| khz / 1000.0),
            frequency_range_mhz: range_mhz(&readings.frequency),
            temperature_c: readings.peak_celsius(),
            temperature_limit_c: self.limit_c,
            floor_mhz: self.floor_mhz,
            moment: self.moment,
            throttles: readings.throttled,
            busy: share(after.busy, self.before.busy),
            steal: share(after.steal, self.before.steal),
            interrupts_per_s: rate(difference(after.interrupts, self.before.interrupts)),
            switches_per_s: rate(readings.switches),
            memory_pressure: rate(difference(after.memory_wait, self.before.memory_wait))
                // Microseconds of waiting per second: a share.
                .map(|micros| micros / 1e6),
            load: self
                .host
                .read("/proc/loadavg")
                .ok()
                .and_then(|text| text.split_whitespace().next()?.parse().ok()),
        }
    }
}

/// Returns the lowest minimum of the watched CPUs in MHz, if each of them has one above the
/// hardware's. Only the hardware itself can then run below it, because of heat or power.
fn floor_mhz(host: &dyn Host, cpus: &CpuList) -> Option<f64> {
    // Enough for most workloads: a run on all of 512 CPUs must not begin with a thousand reads.
    const LOOKED_AT: usize = 16;
    let khz = |cpu: u32, name: &str| {
        crate::meter::read_number(host, &format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}"))
    };
    // Governor performance requests the maximum at all times, whatever the file of the minimum
    // says. Turbo depends on more than the limit, so the base frequency counts.
    let pinned = |cpu: u32| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        host.read(&path).ok().filter(|governor| governor.trim() == "performance")?;
        let nominal = format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/nominal_freq");
        let nominal = || crate::meter::read_number(host, &nominal).map(|mhz| mhz * 1000);
        Some(khz(cpu, "base_frequency").or_else(nominal)?.min(khz(cpu, "scaling_max_freq")?))
    };
    let floors = cpus.iter().take(LOOKED_AT).map(|cpu| {
        let (floor, lowest) = (khz(cpu, "scaling_min_freq")?, khz(cpu, "cpuinfo_min_freq")?);
        let floor = floor.max(pinned(cpu).unwrap_or(0));
        (floor > lowest).then_some(floor as f64 / 1000.0)
    });
    floors.collect::<Option<Vec<f64>>>()?.into_iter().min_by(f64::total_cmp)
}

/// The widest range of one CPU's frequency, without the first sample, which may date from the idle
/// time before.
fn range_mhz(series: &[crate::meter::Series]) -> Option<f64> {
    series
        .iter()
        .filter_map(|samples| {
            let after_start = samples.iter().filter(|(at, _)| *at > 0.0).map(|(_, khz)| *khz);
            let low = after_start.clone().min()?;
            (after_start.clone().count() > 1).then_some((after_start.max()? - low) as f64 / 1000.0)
        })
        .max_by(f64::total_cmp)
}

fn counters(host: &dyn Host, cpus: &CpuList) -> Counters {
    let mut counters = parse_stat(&host.read("/proc/stat").unwrap_or_default(), cpus);
    counters.memory_wait = host.read("/proc/pressure/memory").ok().and_then(|text| parse_pressure(&text));
    counters
}

/// /proc/stat: `cpuN user nice system idle iowait irq softirq steal ...`, `intr TOTAL ...`.
fn parse_stat(text: &str, cpus: &CpuList) -> Counters {
    let mut counters = Counters::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        if let Some(cpu) = name.strip_prefix("cpu").and_then(|digits| digits.parse::<u32>().ok()) {
            if !cpus.is_empty() && !cpus.contains(cpu) {
                continue;
            }
            // guest and guest_nice (fields 9 and 10) are already part of user and nice.
            let fields: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
            let field = |index: usize| fields.get(index).copied().unwrap_or(0);
            let sum: u64 = fields.iter().sum();
            counters.total += sum;
            // idle, iowait and steal: a CPU that a hypervisor gave to others did not run this
            // machine's tasks.
            counters.busy += sum - field(3) - field(4) - field(7);
            counters.steal += field(7);
        } else if name == "intr" {
            counters.interrupts = words.next().and_then(|word| word.parse().ok());
        } else if name == "ctxt" {
            counters.switches = words.next().and_then(|word| word.parse().ok());
        }
    }
    counters
}

/// /proc/pressure/memory: `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345` in microseconds.
fn parse_pressure(text: &str) -> Option<u64> {
    // `some`: one task waiting is enough to disturb a run; `full` counts only when all of them wait
    // (Documentation/accounting/psi.rst). The total, because the averages reach back before the
    // run.
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn governor_performance_keeps_the_base_frequency() {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("sys/devices/system/cpu/cpu0/cpufreq");
        std::fs::create_dir_all(&policy).unwrap();
        let put = |name: &str, text: &str| std::fs::write(policy.join(name), text).unwrap();
        put("scaling_min_freq", "1000000");
        put("cpuinfo_min_freq", "1000000");
        put("scaling_max_freq", "3700000");
        put("base_frequency", "2000000");
        let floor = || {
            let host = flyball_host::Plain::open(folder.path()).unwrap();
            floor_mhz(&host, &"0".parse().unwrap())
        };
        put("scaling_governor", "powersave");
        assert_eq!(floor(), None);
        put("scaling_governor", "performance");
        assert_eq!(floor(), Some(2000.0));
        put("scaling_max_freq", "1500000");
        assert_eq!(floor(), Some(1500.0));
        put("scaling_min_freq", "2500000");
        assert_eq!(floor(), Some(2500.0));
    }

    #[test]
    fn the_kernels_counters_are_read() {
        let text = "cpu  9 9 9 9\ncpu0 100 0 50 800 20 5 5 20 7 0\ncpu1 1 1 1 1 1 1 1 1\nintr 12345 1 2 3\nctxt 678\n";
        let counters = parse_stat(text, &"0".parse().unwrap());
        assert_eq!((counters.total, counters.busy, counters.steal), (1000, 160, 20));
        assert_eq!((counters.interrupts, counters.switches), (Some(12345), Some(678)));
        let all = parse_stat(text, &CpuList::new());
        assert_eq!(all.total, 1008);
        assert_eq!(
            parse_pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=42\nfull total=1\n"),
            Some(42)
        );
        assert_eq!(parse_stat("cpu0 x\nintr\n", &CpuList::new()), Counters::default());
    }
}
