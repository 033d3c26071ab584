//! A watch: counters at both ends of an interval.

use std::{collections::BTreeMap, time::Duration};

use flyball_control::Topology;
use flyball_host::{
    CpuList, Host, Kind, Usage,
    cpuidle::{self, Count, CpuCounts, IdleState, lost_ms},
};

use crate::{
    Interrupts, WakeCpu, WakeError, WakeReport, WakeSource, WakeState, WakeThread, WakeWorkload,
    interrupts::Counted,
    probe::Measured,
    threads::{Target, Threads},
};

/// Threads of a report.
const MAX_THREADS: usize = 20;

/// A watch that has begun.
pub struct Watch<'h> {
    host: &'h dyn Host,
    cpus: CpuList,
    is_virtual: bool,
    table: Vec<IdleState>,
    threads: Option<Threads>,
    started: Duration,
    before: Readings,
    /// CPU time of this thread for all readings so far.
    cost: Duration,
}

/// Counters at one moment.
struct Readings {
    cpus: Vec<CpuCounts>,
    interrupts: Interrupts,
    softirqs: Interrupts,
    /// Of the watched CPUs: stolen, and all, in hundredths of a second.
    stolen: (u64, u64),
}

impl Readings {
    fn take(host: &dyn Host, cpus: &CpuList, states: usize) -> Readings {
        Readings {
            cpus: cpuidle::counts(host, cpus, states),
            interrupts: Interrupts::read(host),
            softirqs: Interrupts::read_soft(host),
            stolen: stolen(&host.read("/proc/stat").unwrap_or_default(), cpus),
        }
    }
}

/// Reads the stolen time and all time of CPUs in /proc/stat.
fn stolen(text: &str, cpus: &CpuList) -> (u64, u64) {
    let (mut stolen, mut all) = (0u64, 0u64);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
        if name.is_some_and(|cpu| cpus.contains(cpu)) {
            // user nice system idle iowait irq softirq steal (fs/proc/stat.c).
            let times: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
            stolen = stolen.saturating_add(times.get(7).copied().unwrap_or(0));
            all = times.iter().fold(all, |sum, time| sum.saturating_add(*time));
        }
    }
    (stolen, all)
}

impl<'h> Watch<'h> {
    /// Begins to watch `wanted` CPUs, or those of them that the workload may use.
    ///
    /// # Errors
    /// The reason why there is nothing to watch, or `measured` has none of the machine's states.
    pub fn start(
        host: &'h dyn Host,
        topology: &Topology,
        wanted: &CpuList,
        target: Target,
        measured: Option<&Measured>,
    ) -> Result<Watch<'h>, WakeError> {
        if host.kind() == Kind::Recorded {
            return Err(WakeError::OneMoment(host.name()));
        }
        let began = flyball_process::thread_time();
        let mut cpus = wanted.intersection(&topology.online);
        if cpus.is_empty() {
            return Err(WakeError::Offline(wanted.clone()));
        }
        let threads = match target {
            Target::Cpus => None,
            target => Some(Threads::find(host, target)?),
        };
        if let Some(allowed) = threads.as_ref().map(|threads| cpus.intersection(&threads.allowed))
            && !allowed.is_empty()
        {
            cpus = allowed;
        }
        let mut table = cpus.first().map(|cpu| cpuidle::table(host, cpu)).unwrap_or_default();
        if let Some(measured) = measured {
            for state in &mut table {
                state.measured_us = measured.exit_us(state);
            }
            if table.iter().all(|state| state.measured_us.is_none()) {
                return Err(WakeError::OtherMachine);
            }
        }
        let before = Readings::take(host, &cpus, table.len());
        Ok(Watch {
            host,
            is_virtual: topology.flags.contains("hypervisor"),
            table,
            threads,
            started: host.now(),
            before,
            cost: flyball_process::thread_time().saturating_sub(began),
            cpus,
        })
    }

    /// How long to wait before the next [`Watch::look`]; `None` if no threads are watched.
    pub fn pause(&self) -> Option<Duration> {
        self.threads.as_ref().map(Threads::pause)
    }

    /// Looks at the threads, so that what short-lived ones do is known. Returns whether any is
    /// left.
    pub fn look(&mut self) -> bool {
        let began = flyball_process::thread_time();
        let is_left = self.threads.as_mut().is_none_or(|threads| threads.look(self.host));
        self.cost += flyball_process::thread_time().saturating_sub(began);
        is_left
    }

    /// Ends the watch. `usage` is the kernel's account of a command that has ended, which has the
    /// threads that no look saw.
    pub fn finish(mut self, usage: Option<&Usage>) -> WakeReport {
        let began = flyball_process::thread_time();
        let after = Readings::take(self.host, &self.cpus, self.table.len());
        let seconds = self.host.now().saturating_sub(self.started).as_secs_f64().max(1e-9);
        self.look();
        let (by_cpu, states, seen) = self.exits(&after);
        let (interrupts, counted) = after.interrupts.since(&self.before.interrupts, &self.cpus);
        let (softirqs, _) = after.softirqs.since(&self.before.softirqs, &self.cpus);
        let rates = |sources: Vec<Counted>| -> Vec<WakeSource> {
            sources
                .into_iter()
                .map(|(kind, name, count)| WakeSource { kind, name, rate: count as f64 / seconds })
                .collect()
        };
        let by_cpu: Vec<WakeCpu> = by_cpu
            .into_iter()
            .map(|mut cpu| {
                cpu.interrupts = counted.get(&cpu.cpu).copied().unwrap_or(0) as f64 / seconds;
                cpu
            })
            .collect();
        let has_states = !self.table.is_empty();
        let is_measured = self.table.iter().any(|state| state.measured_us.is_some());
        let workload = self.threads.as_ref().map(|threads| workload(threads, seconds, usage));
        let exits: Vec<_> = states.iter().map(WakeState::exits).collect();
        let wakes = workload.as_ref().map_or(f64::INFINITY, |workload| workload.wakes);
        let stolen = (
            after.stolen.0.saturating_sub(self.before.stolen.0),
            after.stolen.1.saturating_sub(self.before.stolen.1),
        );
        let (driver, governor) = cpuidle::driver_and_governor(self.host, &self.table);
        let mut report = WakeReport {
            sentence: String::new(),
            seconds,
            left_out: self.cpus.difference(&seen),
            driver,
            governor,
            wakes: has_states.then(|| by_cpu.iter().map(|cpu| cpu.wakes).sum()),
            lost_ms_at_most: (has_states && (!self.is_virtual || is_measured))
                .then(|| lost_ms(wakes, &exits)),
            advice: None,
            check: None,
            wakes_without_interrupt: (has_states && after.interrupts.counts_wake_ups())
                .then(|| by_cpu.iter().map(|cpu| (cpu.wakes - cpu.interrupts).max(0.0)).sum()),
            states,
            by_cpu,
            interrupts: rates(interrupts),
            softirqs: rates(softirqs),
            workload,
            stolen: (self.is_virtual && stolen.1 > 0).then(|| stolen.0 as f64 / stolen.1 as f64),
            unseen: self.unseen(),
            cpus: self.cpus.clone(),
            reading_ms: (self.cost + flyball_process::thread_time().saturating_sub(began)).as_secs_f64()
                * 1e3,
        };
        report.sentence = report.answer(&self.table);
        report.advice = report.advise();
        report
    }

    /// Exits by CPU and by state, and the CPUs that they are known of.
    fn exits(&self, after: &Readings) -> (Vec<WakeCpu>, Vec<WakeState>, CpuList) {
        let before: BTreeMap<u32, &CpuCounts> = self.before.cpus.iter().map(|cpu| (cpu.cpu, cpu)).collect();
        let (mut by_cpu, mut seen) = (Vec::new(), CpuList::new());
        let (mut sums, mut rates) = (vec![Count::ZERO; self.table.len()], vec![0.0; self.table.len()]);
        let mut time = 0.0;
        for now in &after.cpus {
            let Some(then) = before.get(&now.cpu) else { continue };
            let counts: Option<Vec<Count>> =
                now.states.iter().zip(&then.states).map(|(now, then)| now.since(then)).collect();
            let Some(counts) = counts else { continue };
            let seconds = now.at.saturating_sub(then.at).as_secs_f64().max(1e-9);
            time += seconds;
            seen.insert(now.cpu);
            let by_state: Vec<f64> = counts.iter().map(|count| count.usage as f64 / seconds).collect();
            for (index, count) in counts.iter().enumerate() {
                sums[index].add(count);
                rates[index] += by_state[index];
            }
            let cost = self.table.iter().zip(&by_state).map(|(state, rate)| state.costs_us() * rate);
            by_cpu.push(WakeCpu {
                cpu: now.cpu,
                wakes: by_state.iter().sum(),
                lost_ms_at_most: cost.sum::<f64>() * 1e-3,
                by_state,
                interrupts: 0.0,
            });
        }
        by_cpu.sort_by(|one, other| other.wakes.total_cmp(&one.wakes).then(one.cpu.cmp(&other.cpu)));
        let all: f64 = rates.iter().sum();
        // Sums over CPUs whose intervals are about as long as each other.
        let each = time / by_cpu.len().max(1) as f64;
        let rate = |count: Option<u64>| (each > 0.0).then_some(count? as f64 / each);
        let states = self.table.iter().zip(&sums).zip(&rates).map(|((state, sum), wakes)| WakeState {
            name: state.name.clone(),
            exit_latency_us: state.latency_us,
            measured_exit_us: state.measured_us,
            target_residency_us: state.residency_us,
            exits: sum.usage,
            wakes: *wakes,
            share: if all > 0.0 { wakes / all } else { 0.0 },
            mean_residency_us: (sum.usage > 0).then(|| sum.time_us as f64 / sum.usage as f64),
            residency: if time > 0.0 { sum.time_us as f64 * 1e-6 / time } else { 0.0 },
            above: rate(sum.above),
            below: rate(sum.below),
            rejected: rate(sum.rejected),
        });
        (by_cpu, states.collect(), seen)
    }

    fn unseen(&self) -> Vec<String> {
        let mut unseen = Vec::new();
        let mut say = |is_so: bool, what: &str| {
            if is_so {
                unseen.push(what.to_owned());
            }
        };
        say(
            self.threads.is_some() && !self.table.is_empty(),
            "which wake-up of the workload left which state: the counters say how many, not whose, so the bound takes \
             the deepest ones",
        );
        say(
            self.threads.is_some(),
            "wake-ups of threads that began and ended between two looks, except in the sum of a command that has ended",
        );
        say(
            !self.table.is_empty() && !self.is_virtual,
            "what the processor made of a request: it may demote a deep state, or let the whole package sleep, which \
             takes longer to leave",
        );
        say(
            self.is_virtual,
            "how deep the processor slept: this is a virtual machine, and its host decides, polls before it sleeps, and \
             runs others meanwhile",
        );
        say(true, "whether an interrupt woke a CPU or arrived while it ran");
        unseen
    }
}

/// What the threads did.
fn workload(threads: &Threads, seconds: f64, usage: Option<&Usage>) -> WakeWorkload {
    let woken = threads.woken();
    let ms = |ns: u64| ns as f64 * 1e-6 / seconds;
    // The account of an ended command has all of its threads.
    let all = |seen: u64, counted: Option<u64>| seen.max(counted.unwrap_or(0)) as f64 / seconds;
    WakeWorkload {
        threads: threads.count(),
        ended: threads.ended(),
        wakes: all(woken.iter().map(|one| one.wakes).sum(), usage.map(|usage| usage.voluntary_switches)),
        preempted: all(
            woken.iter().map(|one| one.preempted).sum(),
            usage.map(|usage| usage.involuntary_switches),
        ),
        run_delay_ms: woken.iter().map(|one| Some(ms(one.times?.1))).sum(),
        busiest: woken
            .iter()
            .take(MAX_THREADS)
            .map(|one| WakeThread {
                tid: one.tid,
                name: one.name.clone(),
                wakes: one.wakes as f64 / seconds,
                preempted: one.preempted as f64 / seconds,
                running: one.times.map(|times| times.0 as f64 * 1e-9 / seconds),
                run_delay_ms: one.times.map(|times| ms(times.1)),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_that_of_the_watched_cpus() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 100 100\ncpu17 1 0 0 9\ncpux 1\nintr 5\n";
        assert_eq!(stolen(text, &"0".parse().unwrap()), (8, 36));
        assert_eq!(stolen(text, &"0-17".parse().unwrap()), (8, 46));
        assert_eq!(stolen("", &"0".parse().unwrap()), (0, 0));
    }
}
