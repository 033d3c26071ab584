//! Scheduler state per CPU: whether it is online, how it spent its time and how busy it has been.

use crate::{
    governor::{CpuTimes, Decay, Decays, Demand, Pelt},
    load::CpuWork,
};

/// Time since boot by kind, in nanoseconds, as /proc/stat has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) user: u64,
    pub(crate) system: u64,
    pub(crate) idle: u64,
    pub(crate) iowait: u64,
}

impl Times {
    /// Returns the times as the sampling governors count them: idle includes waiting for IO.
    pub(crate) fn dbs(self) -> CpuTimes {
        // get_cpu_idle_time() adds iowait to idle time unless iowait counts as busy;
        // DbsCommon::sample() then subtracts it again. No model has nice tasks.
        CpuTimes { idle: self.idle + self.iowait, iowait: self.iowait, nice: 0 }
    }
}

/// The scheduler's call to the governor (cpufreq_update_util). It comes when a task wakes or
/// sleeps, and at each tick of a running CPU. An idle CPU makes no calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UtilUpdate {
    /// Time of the call, ns.
    pub(crate) at: u64,
    /// Utilisation at the time of the call.
    util: u32,
    /// Accounted time at the time of the call.
    times: Times,
}

/// Counters of one idle state of one CPU.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IdleCount {
    pub(crate) usage: u64,
    pub(crate) time_ns: u64,
    pub(crate) above: u64,
    pub(crate) below: u64,
    pub(crate) rejected: u64,
}

/// One CPU as the kernel sees it.
#[expect(clippy::struct_excessive_bools, reason = "independent flags of the scheduler")]
#[derive(Debug, Clone, Default)]
pub(crate) struct Cpu {
    pub(crate) online: bool,
    pub(crate) times: Times,
    pub(crate) load: Pelt,
    /// Utilisation of the tasks when they last went to sleep (kernel/sched/fair.c, util_est).
    pub(crate) estimate: u32,
    /// The scheduler's last call to the governor in this step, if any.
    pub(crate) update: Option<UtilUpdate>,
    /// Time since the CPU went idle, ns.
    pub(crate) rested: u64,
    /// True if the CPU went idle since the governor's last update.
    pub(crate) idled: bool,
    /// True if it was running when the last step ended.
    pub(crate) running: bool,
    /// True if a task of the workload ran last, not a task of the kernel.
    pub(crate) task: bool,
    /// True if a task went to sleep in the last step.
    pub(crate) slept: bool,
    /// Speed relative to full capacity, as frequency invariance last saw it; 0 until then.
    pub(crate) speed: f64,
    /// True if a task woke from waiting for IO since the governor's last update.
    pub(crate) woke_from_io: bool,
    /// Busy share of the last step.
    pub(crate) busy: f64,
    /// Frequency measured from APERF and MPERF at the last busy step, kHz, and the time of that
    /// step.
    pub(crate) measured: (u32, u64),
    /// cpuidle's counters; index 0 is POLL.
    pub(crate) idle: Vec<IdleCount>,
    /// Mask of disabled idle states, with the indexes of `idle`.
    pub(crate) disabled: u32,
    /// pm_qos_resume_latency_us: -1 is `n/a`, 0 means no constraint.
    pub(crate) resume_latency_us: i32,
}

/// A step of the scheduler. All CPUs share it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuStep {
    /// Time at the step's end, ns.
    pub(crate) now: u64,
    /// Length of the step, ns, and the decay over it.
    pub(crate) span: u64,
    pub(crate) decay: Decay,
    /// Length of the tick, ns, and whether a tick falls on the step's end.
    pub(crate) tick: u64,
    pub(crate) is_tick: bool,
}

/// A CPU's speed, and the speed that the kernel regards as full speed, in kHz.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speed {
    pub(crate) khz: u32,
    pub(crate) full: u32,
}

impl Cpu {
    /// Accounted time as the sampling governors see it.
    pub(crate) fn dbs_times(&self) -> CpuTimes {
        self.update.map_or(self.times, |update| update.times).dbs()
    }

    /// The demand that schedutil sees. Clears the flags that accumulate between updates.
    pub(crate) fn take_demand(&mut self) -> Demand {
        // Use the utilisation at the scheduler's last call, since the governor runs then and not at
        // the step's end.
        let util = self.update.map_or_else(|| self.load.utilisation(), |update| update.util);
        Demand {
            // Estimates count while the tasks are on the run queue; util_est_dequeue() comes before
            // the call.
            util: if self.running && self.task { util.max(self.estimate) } else { util },
            capacity: 1024,
            idled: std::mem::take(&mut self.idled),
            woke_from_io: std::mem::take(&mut self.woke_from_io),
            // No task here has uclamp or runs in a real-time or deadline class.
            floor: 0,
            ceiling: 1024,
        }
    }

    /// util_est_update() when the tasks go to sleep: up at once, down by a quarter of the way.
    fn sleep(&mut self) {
        (self.running, self.rested) = (false, 0);
        let last = self.load.utilisation();
        // Only the workload's tasks have estimates.
        if !self.task {
            return;
        }
        self.estimate = if last > self.estimate { last } else { self.estimate - (self.estimate - last) / 4 };
    }

    /// Advances by a step, of which the share `busy` ran at `speed`.
    pub(crate) fn step(
        &mut self,
        step: CpuStep,
        known: &mut Decays,
        busy: f64,
        work: &CpuWork,
        speed: Speed,
    ) {
        let Speed { khz, full } = speed;
        let CpuStep { now, span, decay, tick, is_tick } = step;
        let waits_for_io = work.io;
        // Each step makes its own calls to the governor, or none.
        self.update = None;
        if busy == 0.0 && !waits_for_io && self.busy == 0.0 && self.load.is_zero() {
            // Nothing ran and nothing decays: the fast path, which most CPUs of a large machine
            // take in most steps.
            self.times.idle += span;
            self.idled = true;
            return;
        }
        let ran = if busy >= 1.0 { span } else { (span as i64 as f64 * busy.max(0.0)) as i64 as u64 };
        self.idled |= std::mem::take(&mut self.slept);
        self.busy = busy;
        if ran > 0 {
            self.measured = (khz, now);
            self.task = !work.kernel;
            // Once per tick, and also on the first run, before any tick has measured.
            if self.speed == 0.0 || is_tick {
                // arch_scale_freq_tick()
                self.speed = (f64::from(khz) / f64::from(full.max(1))).min(1.0);
            }
        }
        // Use the truncated time, so that busy and idle time add up to the span.
        let share = if ran == span { 1.0 } else { ran as i64 as f64 / span as i64 as f64 };
        // The idle loop stops the tick, which schedutil counts (tick_nohz_idle_stop_tick), only if
        // it expects to sleep for longer than a tick. After a process has ended, nothing tells when
        // the next one starts.
        let stays = u64::from(work.gap_us) * 1000 >= tick || work.fork;
        // Work that ran at the end of the last step runs at the beginning of this one; other work
        // runs at its end. The order decides whether the scheduler's call sees the load before or
        // after the work.
        if self.running {
            // It keeps running, and then sleeps unless the step was too short.
            self.run(ran, decay.part(share, known), known);
            if ran < span {
                self.record_update(now - (span - ran));
                self.sleep();
                self.rest(span - ran, waits_for_io, decay.part(1.0 - share, known), known);
                self.slept = stays;
            } else if is_tick {
                self.record_update(now);
            }
            return;
        }
        self.rest(span - ran, waits_for_io, decay.part(1.0 - share, known), known);
        // The idle loop stops the tick if the CPU sleeps for that long
        // (tick_nohz_idle_stop_tick()).
        self.idled |= self.rested >= tick;
        if ran > 0 {
            self.rested = 0;
            self.running = true;
            self.record_update(now - ran);
            self.run(ran, decay.part(share, known), known);
        }
    }

    /// Records the scheduler's call to the governor.
    fn record_update(&mut self, at: u64) {
        self.update = Some(UtilUpdate { at, util: self.load.utilisation(), times: self.times });
    }

    fn run(&mut self, ran: u64, decay: Decay, known: &mut Decays) {
        // An estimate, visible in /proc/stat only.
        let system = ran / 8;
        self.times.user += ran - system;
        self.times.system += system;
        self.load.run(decay, self.speed, known);
    }

    fn rest(&mut self, rested: u64, waits_for_io: bool, decay: Decay, known: &mut Decays) {
        self.rested += rested;
        if waits_for_io {
            // The scheduler counts idle time as iowait while a task of the CPU's queue waits for a
            // device.
            self.times.iowait += rested;
        } else {
            self.times.idle += rested;
        }
        self.load.rest(decay, known);
    }
}
