//! The cpufreq governors, as pure functions of time, load and limits.
//!
//! A governor depends on no driver and no file: its input is what its CPUs did since its last
//! update, and its output is a [`Request`]. The cpufreq core ([`crate::cpufreq`]) resolves the
//! request and sends it to the driver. Numbers are truncated wherever the kernel's integer
//! divisions truncate.

mod conservative;
mod dbs;
mod ondemand;
mod pelt;
mod schedutil;

pub use conservative::{Conservative, ConservativeTunables};
pub use dbs::{CpuTimes, DbsCommon};
pub use ondemand::{Ondemand, OndemandTunables};
pub use pelt::{Decay, Decays, Pelt};
pub use schedutil::{Demand, Schedutil, SchedutilMode};

/// How a target between two table entries is resolved (include/linux/cpufreq.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The lowest frequency at or above the target.
    Low,
    /// The highest frequency at or below the target.
    High,
    /// The closest frequency.
    Close,
}

/// A governor's request to the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// A frequency in kHz, to be resolved against limits and table.
    Frequency(u32, Relation),
    /// schedutil's request to drivers with adjust_perf, on a scale where `capacity` is the CPU's
    /// full capacity.
    Performance {
        /// At least this much (deadline and uclamp minimum).
        min: u32,
        /// The utilisation's demand, headroom included.
        target: u32,
        /// The CPU's capacity.
        capacity: u32,
    },
}

/// A policy's limits and current frequency, in kHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub min: u32,
    pub max: u32,
    /// The hardware's lowest frequency (cpuinfo_min_freq).
    pub lowest: u32,
    /// The hardware's highest frequency (cpuinfo_max_freq).
    pub highest: u32,
    /// The frequency last requested from the driver.
    pub current: u32,
}
