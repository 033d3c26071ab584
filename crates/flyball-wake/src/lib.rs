//! Wake-ups: how often CPUs and threads wake, from which idle state, what woke them, and how much
//! time the exits from idle states can have cost.
//!
//! A [`Watch`] reads counters in kernel memory at both ends of an interval. It needs no privileges
//! and interrupts no CPU: the CPU that reads a file also answers it (show_state_usage() in
//! drivers/cpuidle/sysfs.c, show_interrupts() in kernel/irq/proc.c).
//!
//! With a [`Tracing`], it also knows for each wake-up what caused it.
//!
//! A [`probe`] measures how long a wake-up from each state takes.

mod interrupts;
mod probe;
mod report;
mod sources;
mod threads;
mod tracing;
mod watch;

pub use interrupts::{Interrupts, SourceKind, parse_interrupts};
pub use probe::{Distance, KernelPath, Measured, NotReached, ProbeReport, ProbeRow, WakeBy, probe};
pub use report::{
    CheckVerdict, WakeAdvice, WakeCause, WakeCheck, WakeCpu, WakeReport, WakeSource, WakeSources, WakeState,
    WakeThread, WakeWorkload,
};
pub use threads::Target;
pub use tracing::Tracing;
pub use watch::Watch;

use flyball_host::HostError;

/// Why nothing can be watched.
#[derive(Debug, thiserror::Error)]
pub enum WakeError {
    /// The machine is a single snapshot.
    #[error("{0} is a recording: it holds one moment, and wake-ups are counted over time")]
    OneMoment(String),
    #[error("no process {0} on {1}")]
    NoProcess(u32, String),
    #[error("no control group {0}: neither below /sys/fs/cgroup nor below /sys/fs/cgroup/unified")]
    NoGroup(String),
    #[error("control group {0} has no processes")]
    EmptyGroup(String),
    #[error("none of CPUs {0} is online")]
    Offline(flyball_host::CpuList),
    #[error(
        "the probe report has none of this machine's idle states: it comes from another machine or cpuidle driver"
    )]
    OtherMachine,
    /// The machine is a directory of files.
    #[error("{0} has no processor that could be measured")]
    NoProcessor(String),
    #[error("{1} has no event {0}: what wakes its CPUs cannot be traced")]
    NoEvent(&'static str, String),
    #[error("one CPU has to wake another one, and this process may use only CPU {0}")]
    OneCpu(flyball_host::CpuList),
    #[error(transparent)]
    Read(#[from] HostError),
}
