//! conservative (drivers/cpufreq/cpufreq_conservative.c): one step up or down at a time.

use super::{Bounds, CpuTimes, DbsCommon, Relation, Request};

/// The files of the `conservative` directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConservativeTunables {
    /// Microseconds between samples.
    pub sampling_rate: u64,
    /// Load in percent above which the governor steps up.
    pub up_threshold: u32,
    /// Load in percent below which the governor steps down.
    pub down_threshold: u32,
    /// Samples between steps down.
    pub sampling_down_factor: u32,
    /// Count the time of nice tasks as idle.
    pub ignore_nice_load: bool,
    /// Step in percent of the policy's maximum; 0 never moves.
    pub freq_step: u32,
}

impl ConservativeTunables {
    /// The kernel's defaults for a policy with this transition delay, on a kernel with this tick.
    pub fn new(transition_delay_us: u32, tick_us: u64) -> ConservativeTunables {
        ConservativeTunables {
            // cpufreq_dbs_governor_init(): two ticks (CPUFREQ_DBS_MIN_SAMPLING_INTERVAL), or the
            // driver's delay if that is longer.
            sampling_rate: (2 * tick_us).max(u64::from(transition_delay_us)),
            // DEF_FREQUENCY_UP_THRESHOLD and its neighbours in cpufreq_conservative.c.
            up_threshold: 80,
            down_threshold: 20,
            sampling_down_factor: 1,
            ignore_nice_load: false,
            freq_step: 5,
        }
    }
}

/// The governor's state for one policy.
#[derive(Debug, Clone)]
pub struct Conservative {
    /// The sampling state.
    pub common: DbsCommon,
    requested: u32,
    skipped: u32,
    /// 6.1 steps down for idle periods regardless of later load.
    unconditional: bool,
}

impl Conservative {
    /// Starts the governor at the policy's current frequency.
    pub fn start(
        now: u64,
        current: u32,
        unconditional: bool,
        times: impl Iterator<Item = CpuTimes>,
    ) -> Conservative {
        Conservative { common: DbsCommon::start(now, times), requested: current, skipped: 0, unconditional }
    }

    /// Called when the policy's limits change: stepping restarts from the current frequency.
    pub fn limits_changed(&mut self, current: u32) {
        self.requested = current;
    }

    /// Takes a sample if one is due.
    pub fn update(
        &mut self,
        now: u64,
        tunables: &ConservativeTunables,
        bounds: Bounds,
        times: impl Iterator<Item = CpuTimes>,
    ) -> Option<Request> {
        if !self.common.due(now, tunables.sampling_rate) {
            return None;
        }
        let load = self.common.sample(now, tunables.sampling_rate, false, tunables.ignore_nice_load, times);
        // Only after the sample, so that the next one does not cover this period too.
        if tunables.freq_step == 0 {
            return None;
        }
        if self.requested > bounds.max || self.requested < bounds.min {
            // cs_dbs_update(): new limits made the governor's last request invalid.
            self.requested = bounds.current;
        }
        // Divide last, so that the step is not 0 below 100 kHz.
        let step = match (u64::from(tunables.freq_step) * u64::from(bounds.max) / 100) as u32 {
            0 => 5,
            step => step,
        };
        // If the load requires no step, the decrease for time asleep is dropped again.
        let mut request = self.requested;
        if let Some(periods) = self.common.idle_periods
            && (self.unconditional || self.common.measured < tunables.down_threshold)
        {
            request = down(request, step.saturating_mul(periods), bounds.min);
        }
        if load > tunables.up_threshold {
            self.skipped = 0;
            self.requested = request.saturating_add(step).min(bounds.max);
            return Some(Request::Frequency(self.requested, Relation::High));
        }
        // sampling_down_factor delays only steps down; each step up restarts the count.
        self.skipped += 1;
        if self.skipped < tunables.sampling_down_factor {
            return None;
        }
        self.skipped = 0;
        if load < tunables.down_threshold {
            self.requested = down(request, step, bounds.min);
            return Some(Request::Frequency(self.requested, Relation::Low));
        }
        None
    }
}

/// Steps down, but not below `least`.
fn down(khz: u32, step: u32, least: u32) -> u32 {
    if khz > least.saturating_add(step) { khz - step } else { least }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn steps_of_a_twentieth() {
        let tunables = ConservativeTunables::new(15, 4000);
        let bounds =
            Bounds { min: 800_000, max: 2_000_000, lowest: 800_000, highest: 2_000_000, current: 800_000 };
        let mut governor = Conservative::start(0, 800_000, false, [CpuTimes::default()].into_iter());
        let mut asked = Vec::new();
        for sample in 1..=3 {
            let times = CpuTimes::default();
            asked.push(governor.update(sample * 8 * MS, &tunables, bounds, [times].into_iter()));
        }
        assert_eq!(
            asked,
            [900_000, 1_000_000, 1_100_000].map(|khz| Some(Request::Frequency(khz, Relation::High)))
        );
        let idle = CpuTimes { idle: 8 * MS, ..CpuTimes::default() };
        let down = governor.update(32 * MS, &tunables, bounds, [idle].into_iter());
        assert_eq!(down, Some(Request::Frequency(1_000_000, Relation::Low)));
    }

    #[test]
    fn no_step_no_change() {
        let tunables = ConservativeTunables { freq_step: 0, ..ConservativeTunables::new(15, 4000) };
        let bounds =
            Bounds { min: 800_000, max: 2_000_000, lowest: 800_000, highest: 2_000_000, current: 800_000 };
        let mut governor = Conservative::start(0, 800_000, false, [CpuTimes::default()].into_iter());
        assert_eq!(governor.update(8 * MS, &tunables, bounds, [CpuTimes::default()].into_iter()), None);
    }
}
