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

#[derive(Debug, Clone, Copy)]
pub struct CpuWork {
    /// Busy time, wake-ups and intensity. The idle state in it is not used: cpuidle chooses from
    /// `gap_us`.
    pub activity: Activity,
    /// How long the idle gaps are that the idle governor expects, in microseconds.
    pub gap_us: u32,
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
        CpuWork { activity: Activity::idle(0), gap_us: u32::MAX, io: false, fork: false, kernel: false }
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
