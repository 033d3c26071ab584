//! The common part of ondemand and conservative (drivers/cpufreq/cpufreq_governor.c): sampling, and
//! load from idle time.

/// A CPU's accounted time since boot, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Idle time, including waiting for IO.
    pub idle: u64,
    /// Idle time while a task waited for IO.
    pub iowait: u64,
    /// Time of tasks with positive niceness.
    pub nice: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct PerCpu {
    seen: CpuTimes,
    at: u64,
    load: u32,
}

/// The sampling state of one policy.
#[derive(Debug, Clone)]
pub struct DbsCommon {
    cpus: Vec<PerCpu>,
    sampled: u64,
    /// The next update samples even if no sample is due.
    soon: bool,
    /// The highest load in the last sample as measured, in percent: without the old load that a CPU
    /// keeps once after a long sleep.
    pub measured: u32,
    /// Sampling periods in the shortest idle time of CPUs that were idle for more than two; `None`
    /// if no CPU was.
    pub idle_periods: Option<u32>,
}

impl DbsCommon {
    /// Starts sampling at `now`; `times` are the CPUs' times at that moment.
    pub fn start(now: u64, times: impl Iterator<Item = CpuTimes>) -> DbsCommon {
        let cpus = times.map(|seen| PerCpu { seen, at: now, load: 0 }).collect();
        DbsCommon { cpus, sampled: now, soon: false, measured: 0, idle_periods: None }
    }

    /// Returns whether a sample is due.
    pub fn due(&self, now: u64, period_us: u64) -> bool {
        self.soon || now.saturating_sub(self.sampled) >= period_us * 1000
    }

    /// gov_update_sample_delay(policy_dbs, 0), after a change of limits or of the sampling rate:
    /// the next update samples.
    pub fn sample_soon(&mut self) {
        self.soon = true;
    }

    /// Returns whether [`DbsCommon::sample_soon`] asked for the next sample.
    pub fn is_soon(&self) -> bool {
        self.soon
    }

    /// Discards what CPUs did before `now`, because a tunable changed the definition of idle.
    pub fn rebase(&mut self, now: u64, times: impl Iterator<Item = CpuTimes>) {
        for (cpu, seen) in self.cpus.iter_mut().zip(times) {
            cpu.seen = seen;
            cpu.at = now;
        }
    }

    /// Takes a sample and returns the highest load of the CPUs in percent.
    pub fn sample(
        &mut self,
        now: u64,
        period_us: u64,
        io_is_busy: bool,
        ignore_nice: bool,
        times: impl Iterator<Item = CpuTimes>,
    ) -> u32 {
        self.sampled = now;
        self.soon = false;
        let period = period_us.max(1) * 1000;
        let mut highest = 0;
        (self.idle_periods, self.measured) = (None, 0);
        for (cpu, times) in self.cpus.iter_mut().zip(times) {
            let elapsed = now.saturating_sub(cpu.at);
            let mut idle = times.idle.saturating_sub(cpu.seen.idle);
            if io_is_busy {
                idle = idle.saturating_sub(times.iowait.saturating_sub(cpu.seen.iowait));
            }
            // Time of low-priority tasks counts as idle, so that they do not raise the frequency.
            if ignore_nice {
                idle += times.nice.saturating_sub(cpu.seen.nice);
            }
            cpu.at = now;
            cpu.seen = times;
            let busy = 100 * elapsed.saturating_sub(idle);
            // Two samples at one time have no load between them, so the last load stands
            // (dbs_update).
            let measured = busy.checked_div(elapsed).map_or(cpu.load, |load| load as u32);
            self.measured = self.measured.max(measured);
            let load = if elapsed == 0 {
                cpu.load
            } else if idle > 2 * period && cpu.load > 0 {
                // The CPU slept through its samples: its earlier load counts once more, and then no
                // longer.
                std::mem::take(&mut cpu.load)
            } else {
                cpu.load = measured;
                measured
            };
            if idle > 2 * period {
                let periods = (idle / period) as u32;
                self.idle_periods = Some(self.idle_periods.map_or(periods, |least: u32| least.min(periods)));
            }
            highest = highest.max(load);
        }
        highest
    }
}
