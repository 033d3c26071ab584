//! The result of a watch: one value for each condition that the machine can report.

use std::time::Duration;

use flyball_host::{Host, Kind};
use serde::{Deserialize, Serialize};

/// What the machine did during one run.
#[derive(Debug, Clone, Default, PartialEq, schemars::JsonSchema, Serialize, Deserialize)]
pub struct Conditions {
    /// Mean frequency of the watched CPUs in MHz, over the samples.
    pub frequency_mhz: Option<f64>,
    /// Highest minus lowest sample, in MHz.
    pub frequency_range_mhz: Option<f64>,
    /// Highest temperature of any sensor, in degrees Celsius.
    pub temperature_c: Option<f64>,
    /// The lowest temperature of any sensor at which the processor throttles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_limit_c: Option<f64>,
    /// The minimum that was set for the watched CPUs in MHz, if that is above the hardware's
    /// lowest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_mhz: Option<f64>,
    /// The start of the run.
    #[serde(default, flatten)]
    pub moment: Moment,
    /// Throttle events during the run.
    pub throttles: Option<u64>,
    /// Share of the watched CPUs' time that was busy, 0 to 1.
    pub busy: Option<f64>,
    /// Share of the watched CPUs' time that a hypervisor gave to others, 0 to 1.
    pub steal: Option<f64>,
    /// Interrupts per second, over the whole machine.
    pub interrupts_per_s: Option<f64>,
    /// Context switches per second, over the whole machine.
    pub switches_per_s: Option<f64>,
    /// Share of the time in which some task waited for memory, 0 to 1.
    pub memory_pressure: Option<f64>,
    /// Load average of one minute at the end.
    pub load: Option<f64>,
}

impl Conditions {
    /// Whether the run was watched at all. If it is shorter than a few hundredths of a second, the
    /// kernel's counters say nothing about other programs, and the frequency is sampled once.
    pub fn is_watched(&self) -> bool {
        self.busy.is_some() || self.steal.is_some() || self.frequency_range_mhz.is_some()
    }
}

/// A moment of the machine, by its own clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, schemars::JsonSchema, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_s: Option<f64>,
    /// The wall clock, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_s: Option<f64>,
    /// Load average of one minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_before: Option<f64>,
}

/// Returns moments. Between short rounds it extrapolates from its last reading: /proc/stat has a
/// line for each CPU and a number for each interrupt.
#[derive(Debug, Default)]
pub struct Clock {
    /// The last reading, and its time on the host's clock.
    read: Option<(Moment, Duration)>,
}

impl Clock {
    /// Returns the current moment.
    pub fn moment(&mut self, host: &dyn Host) -> Moment {
        // Short, because a sleep of the machine in between makes the extrapolation wrong.
        const FRESH: Duration = Duration::from_secs(1);
        let now = host.now();
        let is_fresh = |at: Duration| host.kind() == Kind::Live && now.saturating_sub(at) < FRESH;
        if let Some((moment, at)) = self.read.filter(|(_, at)| is_fresh(*at)) {
            let later = |then: Option<f64>| Some(then? + now.saturating_sub(at).as_secs_f64());
            return Moment { uptime_s: later(moment.uptime_s), unix_s: later(moment.unix_s), ..moment };
        }
        let moment = Moment::read(host);
        self.read = Some((moment, now));
        moment
    }
}

impl Moment {
    /// Reads the current moment.
    pub fn read(host: &dyn Host) -> Moment {
        let first = |path: &str| host.read(path).ok()?.split_whitespace().next()?.parse::<f64>().ok();
        let uptime_s = first("/proc/uptime");
        // The wall clock at boot. A host has no wall clock, and a simulated machine has its own.
        let boot = host.read("/proc/stat").ok().and_then(|text| {
            text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok())
        });
        let unix_s = boot.zip(uptime_s).map(|(boot, uptime)| boot + uptime);
        Moment { uptime_s, unix_s, load_before: first("/proc/loadavg") }
    }
}
