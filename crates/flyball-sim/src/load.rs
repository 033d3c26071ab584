//! Loads of a simulated machine: models that say, step by step, what each CPU does.

use flyball_silicon::{Activity, Silicon};

/// Length of one step of the simulation, in nanoseconds.
pub(crate) const STEP_NS: u64 = 1_000_000;

/// One step of the simulation, as a load sees it.
#[derive(Debug)]
pub struct Step<'a> {
    /// The machine's time at the step's end, in nanoseconds.
    pub now_ns: u64,
    /// The step's length in nanoseconds.
    pub span_ns: u64,
    /// The processors: frequencies now, and with [`Silicon::delivered`] the work that the last step
    /// got done.
    pub silicon: &'a Silicon,
    /// The idle state that cpuidle chose for each CPU in the last step (an index into the silicon's
    /// states).
    pub idle: &'a [u8],
}

/// What a CPU does in a step.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a step")]
#[derive(Debug, Clone, Copy)]
pub struct CpuWork {
    /// Busy time, wake-ups and intensity. The idle state in it is not used: cpuidle chooses from
    /// `gap_us`.
    pub activity: Activity,
    /// The length of the sleeps, in microseconds: of those that end in this step, or if none does,
    /// of the one that begins. `u32::MAX`: as long as the CPU rests.
    pub gap_us: u32,
    /// Sleeps of another length that end in this step: the length, and how many of the wake-ups are
    /// theirs.
    pub other: (u32, u16),
    /// The sleeps end by timers that the kernel knew of when they began.
    pub timer: bool,
    /// The timer that ends the sleep that begins in this step, in microseconds; `u32::MAX` if it is
    /// not known or no timer does.
    pub timer_us: u32,
    /// A task woke up from waiting for a device.
    pub io: bool,
    /// A new process began here: the scheduler, which has no history of it, adds half of the
    /// capacity that is left to the CPU's utilisation (kernel/sched/fair.c,
    /// post_init_entity_util_avg).
    pub fork: bool,
    /// Nothing but the kernel's own work: no task of the workload ran.
    pub kernel: bool,
}

impl Default for CpuWork {
    /// Idle for long.
    fn default() -> CpuWork {
        CpuWork {
            activity: Activity::idle(0),
            gap_us: u32::MAX,
            other: (0, 0),
            timer: false,
            timer_us: u32::MAX,
            io: false,
            fork: false,
            kernel: false,
        }
    }
}

impl CpuWork {
    /// A sleep of this length ends, in microseconds. A third length counts as the nearer one of
    /// two.
    pub fn end_sleep(&mut self, us: u32) {
        let wakes = &mut self.activity.wakes;
        if *wakes == 0 {
            self.gap_us = us;
        } else if us != self.gap_us {
            if self.other.1 == 0 {
                self.other.0 = us;
            }
            let is_other = us.abs_diff(self.other.0) <= us.abs_diff(self.gap_us);
            self.other.1 = self.other.1.saturating_add(u16::from(is_other));
        }
        *wakes = wakes.saturating_add(1);
    }
}

/// A model of something that runs.
pub trait Load: Send {
    /// Says what each CPU does in the step that begins. `work` has one entry per CPU, all idle;
    /// entries of offline CPUs are ignored.
    fn step(&mut self, step: &Step<'_>, work: &mut [CpuWork]);

    /// Returns the name of the load's tasks in a trace.
    #[expect(clippy::unnecessary_literal_bound, reason = "models have names of their own")]
    fn name(&self) -> &str {
        "work"
    }

    /// Returns whether the load has nothing more to do.
    fn is_done(&self) -> bool {
        false
    }
}

/// Constant activity on some CPUs, without end.
#[derive(Debug, Clone)]
pub struct Steady {
    /// Which CPUs, and how much of each step they are busy (0 to 1).
    pub cpus: Vec<(u32, f64)>,
}

impl Load for Steady {
    fn step(&mut self, step: &Step<'_>, work: &mut [CpuWork]) {
        for &(cpu, share) in &self.cpus {
            if let Some(work) = work.get_mut(cpu as usize) {
                let busy = (step.span_ns as f64 * share.clamp(0.0, 1.0)) as u32;
                let wakes = u16::from(share < 1.0);
                work.activity = Activity { busy_ns: busy, wakes, ..Activity::busy() };
                work.gap_us = ((step.span_ns - u64::from(busy)) / 1000) as u32;
            }
        }
    }
}
