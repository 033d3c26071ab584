//! cpuidle: the table of idle states, each CPU's counters, and the cost of exits.

use std::{collections::BTreeMap, time::Duration};

use crate::{CpuList, Host, topology::CPUS};

/// An idle state, as the cpuidle driver describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct IdleState {
    pub index: u32,
    pub name: String,
    /// The advertised exit latency, us.
    pub latency_us: u64,
    /// The shortest stay that saves energy, us. Kernels before 4.19 do not show it.
    pub residency_us: Option<u64>,
    /// The exit latency that a probe measured, us.
    pub measured_us: Option<f64>,
}

impl IdleState {
    /// Returns the cost of an exit, us: the measured value if there is one, else the advertised
    /// one.
    pub fn costs_us(&self) -> f64 {
        self.measured_us.unwrap_or(self.latency_us as f64)
    }
}

/// Exits that take this much of a CPU's time are worth reporting, ms per second.
pub const WORTH_MS: f64 = 10.0;

/// How often a state was left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExitRate<'a> {
    pub name: &'a str,
    /// The cost of an exit, us.
    pub cost_us: f64,
    /// Exits per second.
    pub rate: f64,
}

/// Returns the upper limit on the cost of exits for `wakes` wake-ups a second, in ms per second. It
/// assumes that they came from the deepest states that were left in the same time.
pub fn lost_ms(wakes: f64, exits: &[ExitRate]) -> f64 {
    let mut exits = exits.to_vec();
    exits.sort_by(|one, other| other.cost_us.total_cmp(&one.cost_us));
    let mut left = wakes;
    let mut lost = 0.0;
    for exit in exits {
        let taken = exit.rate.min(left);
        lost += taken * exit.cost_us;
        left -= taken;
    }
    lost * 1e-3
}

/// Returns the state whose exits cost most; `None` if no exit cost time.
pub fn costliest<'a>(exits: &[ExitRate<'a>]) -> Option<ExitRate<'a>> {
    let cost = |exit: &ExitRate| exit.rate * exit.cost_us;
    let costly = exits.iter().filter(|exit| cost(exit) > 0.0);
    costly.max_by(|one, other| cost(one).total_cmp(&cost(other))).copied()
}

/// Counters of one idle state, of one CPU or summed over several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Exits from the state.
    pub usage: u64,
    /// Time in the state, us.
    pub time_us: u64,
    /// Exits before the target residency although a lighter state was allowed. This and the next
    /// two counters need Linux 5.10.
    pub above: Option<u64>,
    /// Exits after which a deeper state would have been better.
    pub below: Option<u64>,
    /// Requests that the processor rejected.
    pub rejected: Option<u64>,
}

impl Count {
    pub const ZERO: Count = Count { usage: 0, time_us: 0, above: Some(0), below: Some(0), rejected: Some(0) };

    /// Returns the difference of two readings. `None` if a counter went backwards, because the
    /// CPU's counters were reset.
    pub fn since(&self, before: &Count) -> Option<Count> {
        let optional = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        Some(Count {
            usage: self.usage.checked_sub(before.usage)?,
            time_us: self.time_us.checked_sub(before.time_us)?,
            above: optional(self.above, before.above),
            below: optional(self.below, before.below),
            rejected: optional(self.rejected, before.rejected),
        })
    }

    pub fn add(&mut self, other: &Count) {
        let sum = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(one, other)| one + other);
        self.usage += other.usage;
        self.time_us += other.time_us;
        self.above = sum(self.above, other.above);
        self.below = sum(self.below, other.below);
        self.rejected = sum(self.rejected, other.rejected);
    }
}

/// Counters of one CPU, lightest state first.
#[derive(Debug, Clone)]
pub struct CpuCounts {
    pub cpu: u32,
    /// Time of reading, on the machine's clock. On a large machine the first and the last CPU are
    /// read milliseconds apart.
    pub at: Duration,
    pub states: Vec<Count>,
}

fn number(host: &dyn Host, path: &str) -> Option<u64> {
    host.read(path).ok()?.parse().ok()
}

/// Returns the states of a CPU; none without cpuidle. x86 has one driver, and so one table for all
/// CPUs (drivers/cpuidle/driver.c without CPU_IDLE_MULTIPLE_DRIVERS).
pub fn table(host: &dyn Host, cpu: u32) -> Vec<IdleState> {
    let state = |index: u32| {
        let file = |name: &str| format!("{CPUS}/cpu{cpu}/cpuidle/state{index}/{name}");
        Some(IdleState {
            index,
            name: host.read(&file("name")).ok()?,
            latency_us: number(host, &file("latency"))?,
            residency_us: number(host, &file("residency")),
            measured_us: None,
        })
    };
    // CPUIDLE_STATE_MAX is 10 (include/linux/cpuidle.h).
    (0..10).map_while(state).collect()
}

/// Reads one CPU's counters of `states` states. `None` if it has none because it is offline.
pub fn read_cpu(host: &dyn Host, cpu: u32, states: usize) -> Option<CpuCounts> {
    let at = host.now();
    let count = |index: usize| {
        let value = |name: &str| number(host, &format!("{CPUS}/cpu{cpu}/cpuidle/state{index}/{name}"));
        Some(Count {
            usage: value("usage")?,
            time_us: value("time")?,
            above: value("above"),
            below: value("below"),
            rejected: value("rejected"),
        })
    };
    let states = (0..states).map(count).collect::<Option<Vec<_>>>()?;
    Some(CpuCounts { cpu, at, states })
}

/// Reads the counters of all `cpus` that have any.
pub fn counts(host: &dyn Host, cpus: &CpuList, states: usize) -> Vec<CpuCounts> {
    if states == 0 {
        return Vec::new();
    }
    cpus.iter().filter_map(|cpu| read_cpu(host, cpu, states)).collect()
}

/// Exits from idle states since this was created, summed over CPUs, which may go offline or online.
#[derive(Debug)]
pub struct Exits {
    cpus: CpuList,
    table: Vec<IdleState>,
    last: BTreeMap<u32, CpuCounts>,
    sums: Vec<Count>,
}

impl Exits {
    /// Reads the counters of `cpus` for the first time.
    pub fn open(host: &dyn Host, cpus: CpuList) -> Exits {
        let table = cpus.iter().map(|cpu| table(host, cpu)).find(|table| !table.is_empty());
        let table = table.unwrap_or_default();
        let last = counts(host, &cpus, table.len()).into_iter().map(|cpu| (cpu.cpu, cpu)).collect();
        Exits { cpus, sums: vec![Count::ZERO; table.len()], table, last }
    }

    /// Reads the counters again. A CPU whose counters were reset adds nothing this time.
    pub fn follow(&mut self, host: &dyn Host) {
        for now in counts(host, &self.cpus, self.table.len()) {
            let then = self.last.get(&now.cpu);
            let states = self.sums.iter_mut().zip(&now.states).zip(then.iter().flat_map(|then| &then.states));
            for ((sum, now), then) in states {
                now.since(then).inspect(|count| sum.add(count));
            }
            self.last.insert(now.cpu, now);
        }
    }

    /// Returns the names of the states, lightest first, and their sums.
    pub fn sums(&self) -> impl Iterator<Item = (&str, &Count)> {
        self.table.iter().map(|state| state.name.as_str()).zip(&self.sums)
    }
}

/// Returns the cpuidle driver and governor, if there are idle states.
pub fn driver_and_governor(host: &dyn Host, table: &[IdleState]) -> (Option<String>, Option<String>) {
    if table.is_empty() {
        return (None, None);
    }
    let global = |name: &str| host.read(&format!("/sys/devices/system/cpu/cpuidle/{name}")).ok();
    (global("current_driver"), global("current_governor").or_else(|| global("current_governor_ro")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_takes_the_deepest_exits_first() {
        let exit = |(name, cost_us, rate)| ExitRate { name, cost_us, rate };
        let exits = [("C1", 1.0, 1000.0), ("C6", 170.0, 100.0), ("C1E", 4.0, 50.0)].map(exit);
        // If there are more wake-ups than exits, each exit counts once.
        assert_eq!(lost_ms(1e6, &exits), (1000.0 + 17_000.0 + 200.0) * 1e-3);
        assert_eq!(lost_ms(120.0, &exits), (17_000.0 + 80.0) * 1e-3);
        assert_eq!(lost_ms(0.0, &exits), 0.0);
        assert_eq!(lost_ms(5.0, &[]), 0.0);
        assert_eq!(costliest(&exits), Some(exits[1]));
        assert_eq!(costliest(&[exit(("POLL", 0.0, 9.0)), exit(("C6", 170.0, 0.0))]), None);
    }
}
