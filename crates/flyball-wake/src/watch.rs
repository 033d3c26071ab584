//! A watch reads counters at both ends of an interval.

use std::{collections::BTreeMap, time::Duration};

use flyball_control::Topology;
use flyball_host::{
    CpuList, Host, Kind, Usage,
    cpuidle::{self, Count, CpuCounts, IdleState, lost_ms},
};

use crate::{
    Interrupts, SourceKind, Tracing, WakeCause, WakeCpu, WakeError, WakeReport, WakeSource, WakeSources,
    WakeState, WakeThread, WakeWorkload,
    interrupts::Counted,
    probe::Measured,
    sources::Cause,
    threads::{Target, Threads},
    tracing::{Outcome, monotonic_ns},
};

const MAX_THREADS: usize = 20;
/// Maximum causes in a report.
const MAX_CAUSES: usize = 100;

/// A running watch.
pub struct Watch<'h> {
    host: &'h dyn Host,
    cpus: CpuList,
    /// Wanted, and offline from the start.
    offline: CpuList,
    is_virtual: bool,
    table: Vec<IdleState>,
    threads: Option<Threads>,
    tracing: Option<Tracing>,
    before: Readings,
    /// CPU time of all readings so far.
    cost: Duration,
}

/// Counters at one end of the interval.
struct Readings {
    /// When reading began. On a large machine it takes a while, equally long at both ends.
    at: Duration,
    cpus: Vec<CpuCounts>,
    interrupts: Interrupts,
    softirqs: Interrupts,
    /// Stolen and total time of the watched CPUs, in hundredths of a second.
    stolen: (u64, u64),
}

impl Readings {
    fn take(host: &dyn Host, cpus: &CpuList, states: usize) -> Readings {
        Readings {
            at: host.now(),
            cpus: cpuidle::counts(host, cpus, states),
            interrupts: Interrupts::read(host),
            softirqs: Interrupts::read_soft(host),
            stolen: stolen(&host.read("/proc/stat").unwrap_or_default(), cpus),
        }
    }
}

/// Returns the stolen and the total time of CPUs in /proc/stat.
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
    /// Starts to watch `wanted` CPUs. With a workload, only those that it may use.
    ///
    /// With `tracing`, which must be running, the watch also finds what wakes the CPUs.
    ///
    /// # Errors
    /// There is nothing to watch, or `measured` has none of the machine's states.
    pub fn start(
        host: &'h dyn Host,
        topology: &Topology,
        wanted: &CpuList,
        target: Target,
        measured: Option<&Measured>,
        mut tracing: Option<Tracing>,
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
        if let Some(tracing) = &mut tracing {
            // drivers/cpuidle/poll_state.c.
            let polls = table.iter().map(|state| state.name == "POLL").collect();
            tracing.read(polls, times(host, &cpus, &before))?;
        }
        Ok(Watch {
            host,
            is_virtual: topology.flags.contains("hypervisor"),
            table,
            threads,
            tracing,
            before,
            cost: flyball_process::thread_time().saturating_sub(began),
            offline: wanted.difference(&topology.online),
            cpus,
        })
    }

    /// How long to wait before the next [`Watch::look`]; `None` if no threads are watched.
    pub fn pause(&self) -> Option<Duration> {
        self.threads.as_ref().map(Threads::pause)
    }

    /// Reads the threads, so that short-lived ones are not missed. Returns whether any thread is
    /// left.
    pub fn look(&mut self) -> bool {
        let began = flyball_process::thread_time();
        let is_left = self.threads.as_mut().is_none_or(|threads| threads.look(self.host));
        self.cost += flyball_process::thread_time().saturating_sub(began);
        is_left
    }

    /// Ends the watch. `usage` is the kernel's account of an ended command, which includes threads
    /// that lived between two readings.
    pub fn finish(mut self, usage: Option<&Usage>) -> WakeReport {
        let began = flyball_process::thread_time();
        let after = Readings::take(self.host, &self.cpus, self.table.len());
        let seconds = after.at.saturating_sub(self.before.at).as_secs_f64().max(1e-9);
        let traced = self.tracing.take().map(|tracing| tracing.finish(times(self.host, &self.cpus, &after)));
        self.look();
        let (by_cpu, mut states, seen) = self.exits(&after);
        let mut unseen = self.unseen(traced.is_some());
        let sources = match traced {
            Some(Ok(outcome)) => Some(self.sources(outcome, seconds, &mut states)),
            Some(Err(error)) => {
                unseen.push(format!("what woke the CPUs: {error}"));
                None
            }
            None => None,
        };
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
        let mut left_out = self.offline.clone();
        if has_states {
            left_out = left_out.union(&self.cpus.difference(&seen));
        }
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
            left_out,
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
            unseen,
            sources,
            cpus: self.cpus.clone(),
            reading_ms: (self.cost + flyball_process::thread_time().saturating_sub(began)).as_secs_f64()
                * 1e3,
        };
        report.sentence = report.answer(&self.table);
        report.advice = report.advise();
        report
    }

    /// Returns exits by CPU and by state, and the CPUs that have counts at both ends.
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
        // The CPUs' intervals are about equally long, so use their mean.
        let each = time / by_cpu.len().max(1) as f64;
        let rate = |count: Option<u64>| (each > 0.0).then_some(count? as f64 / each);
        let states = self.table.iter().zip(&sums).zip(&rates).map(|((state, sum), wakes)| WakeState {
            name: state.name.clone(),
            exit_latency_us: state.latency_us,
            measured_exit_us: state.measured_us,
            target_residency_us: state.residency_us,
            exits: sum.usage,
            wakes: *wakes,
            of_workload: None,
            share: if all > 0.0 { wakes / all } else { 0.0 },
            mean_residency_us: (sum.usage > 0).then(|| sum.time_us as f64 / sum.usage as f64),
            residency: if time > 0.0 { sum.time_us as f64 * 1e-6 / time } else { 0.0 },
            above: rate(sum.above),
            below: rate(sum.below),
            rejected: rate(sum.rejected),
        });
        (by_cpu, states.collect(), seen)
    }

    /// Returns the causes with names. Puts the workload's exits by state into `states` if the trace
    /// has all exits.
    fn sources(&self, outcome: Outcome, seconds: f64, states: &mut [WakeState]) -> WakeSources {
        let counted: u64 = states.iter().map(|state| state.exits).sum();
        let each = outcome.rate_of_each(counted, seconds);
        let Outcome { attribution, names, records, lost, sampled, cost } = outcome;
        let is_ours = |thread: Option<i32>| {
            thread.zip(self.threads.as_ref()).is_some_and(|(pid, threads)| threads.has(pid as u32))
        };
        let thread = |pid: i32| {
            names
                .threads
                .get(&pid)
                .map_or_else(|| "a thread whose name is not known".to_owned(), ToString::to_string)
        };
        let rates = |counts: &[u64]| -> Vec<f64> {
            (0..states.len()).map(|at| counts.get(at).copied().unwrap_or(0) as f64 * each).collect()
        };
        let (mut attributed, mut ours) = (0, vec![0; states.len()]);
        let mut causes: Vec<WakeCause> = attribution
            .exits
            .iter()
            .map(|((cause, woken), counts)| {
                let count: u64 = counts.iter().sum();
                attributed += if *cause == Cause::NotSeen { 0 } else { count };
                if is_ours(*woken) {
                    ours.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
                }
                let (kind, name) = match cause {
                    Cause::Interrupt(index) => names
                        .interrupts
                        .get(usize::from(*index))
                        .cloned()
                        .unwrap_or((SourceKind::Other, "?".to_owned())),
                    Cause::Thread(pid) => (SourceKind::Thread, thread(*pid)),
                    Cause::EndOfPolling => (SourceKind::EndOfPolling, "end of polling".to_owned()),
                    Cause::NotSeen => (SourceKind::NotSeen, "not seen".to_owned()),
                };
                WakeCause {
                    kind,
                    name,
                    tid: if let Cause::Thread(pid) = cause { Some(*pid as u32) } else { None },
                    woken: woken.map(thread),
                    woken_tid: woken.map(|pid| pid as u32),
                    of_workload: is_ours(*woken),
                    wakes: count as f64 * each,
                    wakes_error: sampled
                        .and_then(|_| attribution.windows.error((*cause, *woken)))
                        .map(|error| error * attribution.seen as f64 * each),
                    by_state: rates(counts),
                }
            })
            .collect();
        causes.sort_by(|one, other| {
            other
                .wakes
                .total_cmp(&one.wakes)
                .then_with(|| (&one.name, one.woken_tid).cmp(&(&other.name, other.woken_tid)))
        });
        let all_causes = causes.len();
        causes.truncate(MAX_CAUSES);
        let ours = self.threads.as_ref().map(|_| rates(&ours));
        let of_workload = ours.as_ref().map(|ours| ours.iter().sum());
        // Allow a thousandth for differences at the edges of the interval.
        if lost == 0 && attribution.seen.abs_diff(counted) * 1000 <= counted {
            for (state, rate) in states.iter_mut().zip(ours.into_iter().flatten()) {
                state.of_workload = Some(rate);
            }
        }
        WakeSources {
            exits: attribution.seen,
            counted,
            attributed,
            records,
            lost,
            sampled_seconds: sampled.map(|time| time.as_secs_f64()),
            reading_ms: cost.as_secs_f64() * 1e3,
            of_workload,
            causes,
            all_causes,
        }
    }

    fn unseen(&self, is_traced: bool) -> Vec<String> {
        let mut unseen = Vec::new();
        let mut say = |is_so: bool, what: &str| {
            if is_so {
                unseen.push(what.to_owned());
            }
        };
        say(
            self.threads.is_some() && !self.table.is_empty() && !is_traced,
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
        say(
            !is_traced,
            "what woke a CPU: an interrupt may have arrived while it ran (root can trace it: --sources)",
        );
        unseen
    }
}

/// Returns when each CPU's counters were read, on the trace's clock.
fn times(host: &dyn Host, cpus: &CpuList, readings: &Readings) -> Vec<(u32, u64)> {
    let (now, here) = (monotonic_ns(), host.now());
    let at = |number: u32| {
        let counts = readings.cpus.iter().find(|counts| counts.cpu == number);
        let ago = counts.map_or(Duration::ZERO, |counts| here.saturating_sub(counts.at));
        (number, now.saturating_sub(ago.as_nanos() as u64))
    };
    cpus.iter().map(at).collect()
}

/// Returns what the threads did.
fn workload(threads: &Threads, seconds: f64, usage: Option<&Usage>) -> WakeWorkload {
    let woken = threads.woken();
    let ms = |ns: u64| ns as f64 * 1e-6 / seconds;
    // The kernel's account of an ended command includes all of its threads.
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
