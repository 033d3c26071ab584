//! Loads of a simulated machine: models of what each CPU does in each step.

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
    /// The processors: current frequencies and, with [`Silicon::delivered`], the work done in the
    /// last step.
    pub silicon: &'a Silicon,
    /// The idle state that cpuidle chose for each CPU in the last step (an index into the silicon's
    /// states).
    pub idle: &'a [u8],
}

/// A CPU's activity in a step.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a step")]
#[derive(Debug, Clone, Copy)]
pub struct CpuWork {
    /// Busy time, wakeups and intensity. Its idle state is ignored: cpuidle chooses one from
    /// `gap_us`.
    pub activity: Activity,
    /// Length in microseconds of the sleeps that end in this step or, if none does, of the one that
    /// begins. `u32::MAX`: as long as the CPU is idle.
    pub gap_us: u32,
    /// Sleeps of another length that end in this step: the length, and the number of wakeups from
    /// such sleeps.
    pub other: (u32, u16),
    /// True if timers that the kernel knew in advance end the sleeps.
    pub timer: bool,
    /// Time to the timer that ends the sleep that begins in this step, in microseconds; `u32::MAX`
    /// if unknown or without a timer.
    pub timer_us: u32,
    /// True if a task woke from waiting for a device.
    pub io: bool,
    /// True if a new process began. The scheduler knows nothing about it, and adds half of the
    /// remaining capacity to the CPU's utilisation (kernel/sched/fair.c,
    /// post_init_entity_util_avg).
    pub fork: bool,
    /// True if only the kernel's own work ran, and no task of the workload.
    pub kernel: bool,
}

impl Default for CpuWork {
    /// A CPU that stays idle.
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
    /// Ends a sleep of `us` microseconds. A third length counts as the nearer of the two recorded
    /// ones.
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
