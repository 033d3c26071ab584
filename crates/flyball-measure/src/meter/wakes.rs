//! Exits from idle states over a round.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use flyball_host::{
    CpuList, Host, Kind,
    cpuidle::{self, ExitRate, WORTH_MS, costliest, lost_ms},
    topology::CPUS,
};

use super::read_number;

/// The share of a round that reading the counters may take.
const AFFORDABLE: f64 = 0.01;

/// Exits from idle states of the metered CPUs between two readings.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
pub struct Exits {
    pub seconds: f64,
    /// The number of CPUs in the sum.
    pub cpus: usize,
    /// Exits per state, in the order of the boot's list of idle states.
    pub by_state: Vec<u64>,
}

/// Wake-ups of an arm's metered CPUs: means of its rounds.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
pub struct WakeNote {
    /// Wake-ups per second, summed over the CPUs.
    pub per_second: f64,
    /// The state whose exits can have cost most, and its share of the wake-ups. `null` if no exit
    /// cost time, or in a virtual machine, where the host decides.
    pub state: Option<(String, f64)>,
    /// The part of the CPUs' time that exits took at most, by the advertised latencies.
    pub lost_at_most: f64,
}

impl WakeNote {
    /// The mean of rounds; `None` without rounds. `states` are names and exit latencies, us.
    pub(crate) fn mean<'a>(
        states: &[(String, u64)],
        rounds: impl Iterator<Item = &'a Exits>,
    ) -> Option<WakeNote> {
        let (mut seconds, mut cpu_seconds, mut sums) = (0.0, 0.0, vec![0; states.len()]);
        for round in rounds.filter(|round| round.by_state.len() == states.len()) {
            seconds += round.seconds;
            cpu_seconds += round.seconds * round.cpus as f64;
            sums.iter_mut().zip(&round.by_state).for_each(|(sum, count)| *sum += count);
        }
        if states.is_empty() || seconds <= 0.0 {
            return None;
        }
        let exits: Vec<ExitRate> = states
            .iter()
            .zip(&sums)
            .map(|((name, us), sum)| ExitRate { name, cost_us: *us as f64, rate: *sum as f64 / seconds })
            .collect();
        let per_second: f64 = exits.iter().map(|exit| exit.rate).sum();
        Some(WakeNote {
            per_second,
            state: costliest(&exits).map(|exit| (exit.name.to_owned(), exit.rate / per_second)),
            lost_at_most: lost_ms(f64::INFINITY, &exits) * 1e-3 * seconds / cpu_seconds,
        })
    }

    /// In a sentence, if exits can have taken enough time to be worth a word.
    pub(crate) fn words(&self) -> Option<String> {
        let (name, share) = self.state.as_ref().filter(|_| self.lost_at_most * 1e3 >= WORTH_MS)?;
        Some(format!(
            "woke {:.0} times a second, {:.0} % out of {name}; exits took at most {:.1} % of its CPUs' time.",
            self.per_second,
            share * 100.0,
            self.lost_at_most * 100.0
        ))
    }
}

/// The CPUs whose exits are counted.
pub(super) struct Wakes {
    cpus: CpuList,
    /// Names and exit latencies, us; 0 in a virtual machine, where they say nothing.
    states: Vec<(String, u64)>,
    /// Reading took too much of a round, so later rounds are not read.
    is_too_costly: Cell<bool>,
}

/// A reading of every CPU that has counters.
pub(super) struct Counts {
    at: Duration,
    cost: Duration,
    by_cpu: Vec<(u32, Vec<u64>)>,
}

impl Wakes {
    pub(super) fn find(host: &dyn Host, cpus: Option<&CpuList>) -> Wakes {
        let online = || host.read(&format!("{CPUS}/online")).ok()?.parse().ok();
        let cpus: CpuList = cpus.cloned().or_else(online).unwrap_or_default();
        let table = cpus.first().map(|cpu| cpuidle::table(host, cpu)).unwrap_or_default();
        let is_virtual = super::is_virtual(host);
        let states =
            table.into_iter().map(|state| (state.name, if is_virtual { 0 } else { state.latency_us }));
        Wakes { cpus, states: states.collect(), is_too_costly: Cell::new(false) }
    }

    pub(super) fn states(&self) -> Vec<(String, u64)> {
        self.states.clone()
    }

    pub(super) fn read(&self, host: &dyn Host) -> Option<Counts> {
        if self.states.is_empty() || self.is_too_costly.get() {
            return None;
        }
        let (at, began) = (host.now(), Instant::now());
        let of_cpu = |cpu: u32| {
            let usage = |index| read_number(host, &format!("{CPUS}/cpu{cpu}/cpuidle/state{index}/usage"));
            Some((cpu, (0..self.states.len()).map(usage).collect::<Option<Vec<u64>>>()?))
        };
        let by_cpu = self.cpus.iter().filter_map(of_cpu).collect();
        // Watching a model costs its rounds nothing.
        let cost = if host.kind() == Kind::Live { began.elapsed() } else { Duration::ZERO };
        Some(Counts { at, cost, by_cpu })
    }

    /// `None` if a CPU went online or offline meanwhile, or if reading took too much of the round.
    pub(super) fn difference(&self, before: Counts, after: Counts) -> Option<Exits> {
        let seconds = after.at.saturating_sub(before.at).as_secs_f64();
        self.is_too_costly.set((before.cost + after.cost).as_secs_f64() > AFFORDABLE * seconds);
        if self.is_too_costly.get() || before.by_cpu.len() != after.by_cpu.len() {
            return None;
        }
        let mut by_state = vec![0; self.states.len()];
        for ((cpu, then), (same, now)) in before.by_cpu.iter().zip(&after.by_cpu) {
            for (sum, (then, now)) in by_state.iter_mut().zip(then.iter().zip(now)) {
                *sum += now.checked_sub(*then).filter(|_| cpu == same)?;
            }
        }
        Some(Exits { seconds, cpus: before.by_cpu.len(), by_state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_add_up_to_rates_and_what_they_cost() {
        let states = [("POLL".to_owned(), 0), ("C6".to_owned(), 100)];
        let round = |seconds, poll, c6| Exits { seconds, cpus: 2, by_state: vec![poll, c6] };
        let rounds = [round(1.0, 900, 300), round(3.0, 2700, 900)];
        let note = WakeNote::mean(&states, rounds.iter()).unwrap();
        assert_eq!(note.per_second, 1200.0);
        assert_eq!(note.state, Some(("C6".to_owned(), 0.25)));
        // 300 a second at 100 us, of two CPUs.
        assert!((note.lost_at_most - 0.015).abs() < 1e-12);
        assert_eq!(
            note.words().unwrap(),
            "woke 1200 times a second, 25 % out of C6; exits took at most 1.5 % of its CPUs' time."
        );
        assert_eq!(WakeNote::mean(&states, [round(1.0, 900, 30)].iter()).unwrap().words(), None);
        assert_eq!(WakeNote::mean(&[], rounds.iter()), None);
        assert_eq!(WakeNote::mean(&states, [].into_iter()), None);
    }

    #[test]
    fn a_cpu_that_comes_or_goes_and_a_dear_reading_leave_nothing() {
        let wakes = |cpus: &[u32]| Wakes {
            cpus: cpus.iter().copied().collect(),
            states: vec![("C1".to_owned(), 2)],
            is_too_costly: Cell::new(false),
        };
        let counts = |at, cost, by_cpu: &[(u32, u64)]| Counts {
            at: Duration::from_millis(at),
            cost: Duration::from_micros(cost),
            by_cpu: by_cpu.iter().map(|(cpu, count)| (*cpu, vec![*count])).collect(),
        };
        let found = |before, after| wakes(&[0, 1]).difference(before, after);
        let exits = found(counts(0, 50, &[(0, 5), (1, 7)]), counts(1000, 50, &[(0, 9), (1, 7)]));
        assert_eq!(exits, Some(Exits { seconds: 1.0, cpus: 2, by_state: vec![4] }));
        assert_eq!(found(counts(0, 50, &[(0, 5), (1, 7)]), counts(1000, 50, &[(0, 9)])), None);
        assert_eq!(found(counts(0, 50, &[(0, 5)]), counts(1000, 50, &[(0, 1)])), None);
        assert_eq!(found(counts(0, 50, &[(0, 5)]), counts(1000, 50, &[(1, 9)])), None);
        assert_eq!(found(counts(0, 6000, &[(0, 5)]), counts(1000, 6000, &[(0, 9)])), None);
    }
}
