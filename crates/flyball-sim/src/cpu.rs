//! What the scheduler keeps per CPU: whether it is online, what it spent its time on, how busy it has been.

use crate::governor::{CpuTimes, Decay, Demand, Pelt};

/// Time since boot by kind, in nanoseconds, as /proc/stat has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) user: u64,
    pub(crate) system: u64,
    pub(crate) idle: u64,
    pub(crate) iowait: u64,
}

impl Times {
    /// As the sampling governors count: idle includes waiting for IO.
    pub(crate) fn dbs(self) -> CpuTimes {
        CpuTimes { idle: self.idle + self.iowait, iowait: self.iowait, nice: 0 }
    }
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
#[derive(Debug, Clone, Default)]
pub(crate) struct Cpu {
    pub(crate) online: bool,
    pub(crate) times: Times,
    pub(crate) load: Pelt,
    /// What the tasks were seen to need when they last went to sleep (kernel/sched/fair.c, util_est).
    pub(crate) estimate: u32,
    /// It went idle since the governor last looked.
    pub(crate) idled: bool,
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
    /// The last choice of an idle state, and what it followed from.
    pub(crate) chosen: (IdleWish, u8),
}

/// What an idle state is chosen by: the gap that is expected, the latency that the machine and the CPU allow, both in
/// microseconds, and the states that are disabled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct IdleWish {
    pub(crate) gap_us: u32,
    pub(crate) limit_us: i32,
    pub(crate) own_us: i32,
    pub(crate) disabled: u32,
}

impl Cpu {
    /// Idle for so long that nothing is left of what it did.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.busy == 0.0 && !self.woke_from_io && self.load.utilisation() == 0
    }

    /// The demand that schedutil sees. Clears what counts since the last look.
    pub(crate) fn take_demand(&mut self) -> Demand {
        Demand {
            // Estimates count while the tasks are on the run queue.
            util: if self.busy > 0.0 {
                self.load.utilisation().max(self.estimate)
            } else {
                self.load.utilisation()
            },
            capacity: 1024,
            idled: std::mem::take(&mut self.idled),
            woke_from_io: std::mem::take(&mut self.woke_from_io),
            floor: 0,
            ceiling: 1024,
        }
    }

    /// A step of `decay.span()` nanoseconds, `busy` of which it ran at `khz` of `highest`.
    pub(crate) fn step(
        &mut self,
        now: u64,
        decay: Decay,
        busy: f64,
        waits_for_io: bool,
        khz: u32,
        highest: u32,
    ) {
        let span = decay.span();
        if busy == 0.0 && !waits_for_io && self.busy == 0.0 && self.load.is_zero() {
            self.times.idle += span;
            self.idled = true;
            return;
        }
        let ran = (span as f64 * busy.clamp(0.0, 1.0)) as u64;
        let system = ran / 8;
        self.times.user += ran - system;
        self.times.system += system;
        if waits_for_io {
            self.times.iowait += span - ran;
        } else {
            self.times.idle += span - ran;
        }
        self.idled |= ran < span;
        if ran == 0 && self.busy > 0.0 {
            // util_est_update(): up at once, down by a quarter of the way.
            let last = self.load.utilisation();
            self.estimate =
                if last > self.estimate { last } else { self.estimate - (self.estimate - last) / 4 };
        }
        self.busy = busy;
        if ran > 0 {
            self.measured = (khz, now);
        }
        self.load.run(decay, busy, f64::from(khz) / f64::from(highest.max(1)));
    }
}
