//! What a watch found: one value for each condition that the machine can report.

use serde::{Deserialize, Serialize};

/// What the machine did during one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Mean frequency of the watched CPUs in MHz, over the samples.
    pub frequency_mhz: Option<f64>,
    /// Highest less lowest of the samples, in MHz.
    pub frequency_range_mhz: Option<f64>,
    /// Highest temperature of any sensor, in degrees Celsius.
    pub temperature_c: Option<f64>,
    /// Throttle events during the run.
    pub throttles: Option<u64>,
    /// Share of the watched CPUs' time that was busy, 0 to 1.
    pub busy: Option<f64>,
    /// Share of the watched CPUs' time that a hypervisor gave to others, 0 to 1.
    pub steal: Option<f64>,
    /// Interrupts a second, over the whole machine.
    pub interrupts_per_s: Option<f64>,
    /// Context switches a second, over the whole machine.
    pub switches_per_s: Option<f64>,
    /// Share of the time in which some task waited for memory, 0 to 1.
    pub memory_pressure: Option<f64>,
    /// Load average of one minute at the end.
    pub load: Option<f64>,
}

impl Conditions {
    /// Whether the run was watched at all: of a run of less than some hundredths of a second the kernel's counters say nothing
    /// about other programs, and the frequency is sampled once.
    pub fn is_watched(&self) -> bool {
        self.busy.is_some() || self.steal.is_some() || self.frequency_range_mhz.is_some()
    }
}
