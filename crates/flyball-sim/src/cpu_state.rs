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
        // get_cpu_idle_time() adds iowait unless that counts as busy, and DbsCommon::sample() takes
        // it off then. No model has nice tasks.
        CpuTimes { idle: self.idle + self.iowait, iowait: self.iowait, nice: 0 }
    }
}

/// The scheduler's call to the governor (cpufreq_update_util): when a task comes or goes, and at
/// each tick of a CPU that runs. A CPU that rests makes none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UtilUpdate {
    /// When, ns.
    pub(crate) at: u64,
    /// The utilisation then.
    util: u32,
    /// The accounted time then.
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
    /// How long it has rested, ns.
    pub(crate) rested: u64,
    /// True if it went idle since the governor last looked.
    pub(crate) idled: bool,
    /// True if it was running when the last step ended.
    pub(crate) running: bool,
    /// True if a task of the workload ran last, not one of the kernel's own.
    pub(crate) task: bool,
    /// A task went to sleep in the last step.
    pub(crate) slept: bool,
    /// Speed against that of full capacity, as frequency invariance last saw it; 0 not yet.
    pub(crate) speed: f64,
    /// A task woke from waiting for IO since the governor last looked.
    pub(crate) woke_from_io: bool,
    /// Share of the last step that it was busy.
    pub(crate) busy: f64,
    /// Frequency measured from APERF and MPERF at the last busy step, kHz, and when.
    pub(crate) measured: (u32, u64),
    /// cpuidle's counters; index 0 is POLL.
    pub(crate) idle: Vec<IdleCount>,
    /// Idle states that were disabled, by bit as in `idle`.
    pub(crate) disabled: u32,
    /// pm_qos_resume_latency_us: -1 is n/a, 0 no constraint.
    pub(crate) resume_latency_us: i32,
}

/// A step of the scheduler, the same for all CPUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuStep {
    /// The time at its end, ns.
    pub(crate) now: u64,
    /// Its length, ns, and the decay over it.
    pub(crate) span: u64,
    pub(crate) decay: Decay,
    /// The tick's length, ns, and whether one falls on the step's end.
    pub(crate) tick: u64,
    pub(crate) is_tick: bool,
}

/// The speed of a CPU, and the speed that the kernel takes for its full speed, in kHz.
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

    /// The demand that schedutil sees. Clears what counts since the last look.
    pub(crate) fn take_demand(&mut self) -> Demand {
        // As it was at the scheduler's last call: the governor is called then, not at the step's
        // end.
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
        // Estimates are those of the workload's tasks.
        if !self.task {
            return;
        }
        self.estimate = if last > self.estimate { last } else { self.estimate - (self.estimate - last) / 4 };
    }

    /// A step of which a share `busy` ran at `speed`.
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
            // Nothing ran and nothing decays: most CPUs of a large machine take this way in most
            // steps.
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
            // Once per tick, and at once on the first run, where no tick has measured yet.
            if self.speed == 0.0 || is_tick {
                // arch_scale_freq_tick()
                self.speed = (f64::from(khz) / f64::from(full.max(1))).min(1.0);
            }
        }
        // From the truncated time, so that running and resting add up to the span.
        let share = if ran == span { 1.0 } else { ran as i64 as f64 / span as i64 as f64 };
        // The idle loop gives the tick up, which schedutil counts (tick_nohz_idle_stop_tick), only
        // if it expects to sleep for longer than a tick. After a process has ended it has nothing
        // to expect by: the next one comes when it comes.
        let stays = u64::from(work.gap_us) * 1000 >= tick || work.fork;
        // What ran at the end of the last step runs at the beginning of this one; otherwise the
        // work comes at its end. The order decides whether the scheduler's call sees the load
        // before or after the work.
        if self.running {
            // It runs on, and then sleeps unless the step was too short for that.
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
        // Without a tick for that long the idle loop has stopped it (tick_nohz_idle_stop_tick()).
        self.idled |= self.rested >= tick;
        if ran > 0 {
            self.rested = 0;
            self.running = true;
            self.record_update(now - ran);
            self.run(ran, decay.part(share, known), known);
        }
    }

    /// The scheduler calls the governor.
    fn record_update(&mut self, at: u64) {
        self.update = Some(UtilUpdate { at, util: self.load.utilisation(), times: self.times });
    }

    fn run(&mut self, ran: u64, decay: Decay, known: &mut Decays) {
        // An estimate that only /proc/stat shows.
        let system = ran / 8;
        self.times.user += ran - system;
        self.times.system += system;
        self.load.run(decay, self.speed, known);
    }

    fn rest(&mut self, rested: u64, waits_for_io: bool, decay: Decay, known: &mut Decays) {
        self.rested += rested;
        if waits_for_io {
            // The scheduler books idle time as iowait while a task of the CPU's queue waits for a
            // device.
            self.times.iowait += rested;
        } else {
            self.times.idle += rested;
        }
        self.load.rest(decay, known);
    }
}
