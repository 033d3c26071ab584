//! ondemand (drivers/cpufreq/cpufreq_ondemand.c): full speed above a threshold, in proportion to
//! load below it.

use super::{Bounds, CpuTimes, DbsCommon, Relation, Request};

/// The files of the `ondemand` directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OndemandTunables {
    /// Microseconds between samples.
    pub sampling_rate: u64,
    /// Load in percent above which the governor requests full speed.
    pub up_threshold: u32,
    /// Number of sampling periods that full speed lasts.
    pub sampling_down_factor: u32,
    /// Count the time of nice tasks as idle.
    pub ignore_nice_load: bool,
    /// Per mille subtracted from every request.
    pub powersave_bias: u32,
    /// Count time waiting for IO as busy.
    pub io_is_busy: bool,
}

impl OndemandTunables {
    /// The kernel's defaults for a policy with this transition delay, on a kernel with this tick
    /// and exact idle accounting.
    pub fn new(transition_delay_us: u32, tick_us: u64, io_is_busy: bool) -> OndemandTunables {
        OndemandTunables {
            // cpufreq_dbs_governor_init(): two ticks (CPUFREQ_DBS_MIN_SAMPLING_INTERVAL), or the
            // driver's delay if that is longer.
            sampling_rate: (2 * tick_us).max(u64::from(transition_delay_us)),
            // MICRO_FREQUENCY_UP_THRESHOLD: 95 with exact idle times (NO_HZ), 80 without.
            up_threshold: 95,
            sampling_down_factor: 1,
            ignore_nice_load: false,
            powersave_bias: 0,
            io_is_busy,
        }
    }
}

/// The governor's state for one policy.
#[derive(Debug, Clone)]
pub struct Ondemand {
    /// The sampling state.
    pub common: DbsCommon,
    multiplier: u32,
    /// The lower frequency of a split period, and when to switch to it.
    low: Option<(u32, u64)>,
}

impl Ondemand {
    /// Starts the governor.
    pub fn start(now: u64, times: impl Iterator<Item = CpuTimes>) -> Ondemand {
        Ondemand { common: DbsCommon::start(now, times), multiplier: 1, low: None }
    }

    /// Called when `sampling_down_factor` was written: ends the stretched period.
    pub fn reset_multiplier(&mut self) {
        self.multiplier = 1;
    }

    /// Takes a sample if one is due. `table` holds the driver's frequencies, highest first, or is
    /// empty if the driver has no table.
    pub fn update(
        &mut self,
        now: u64,
        tunables: &OndemandTunables,
        bounds: Bounds,
        table: &[u32],
        times: impl Iterator<Item = CpuTimes>,
    ) -> Option<Request> {
        // od_dbs_update(): if the delay was set to 0 in the meantime, take a sample instead of the
        // period's second part.
        if let Some((low, at)) = self.low
            && now >= at
            && !self.common.is_soon()
        {
            self.low = None;
            return Some(Request::Frequency(low, Relation::High));
        }
        let period = tunables.sampling_rate * u64::from(self.multiplier);
        if !self.common.due(now, period) {
            return None;
        }
        let load = self.common.sample(now, period, tunables.io_is_busy, tunables.ignore_nice_load, times);
        self.low = None;
        if load > tunables.up_threshold {
            if bounds.current < bounds.max {
                // sampling_down_factor stretches the time at full speed only.
                self.multiplier = tunables.sampling_down_factor.max(1);
            }
            return Some(self.biased(now, tunables, bounds, table, bounds.max, Relation::High));
        }
        self.multiplier = 1;
        let span = u64::from(bounds.highest.saturating_sub(bounds.lowest));
        // od_update(): in proportion between the hardware's limits; the policy's limits clip the
        // result later.
        let target = bounds.lowest + (u64::from(load) * span / 100) as u32;
        Some(self.biased(now, tunables, bounds, table, target, Relation::Close))
    }

    /// `generic_powersave_bias_target`: lowers the request by the bias, by alternating between two
    /// table entries.
    fn biased(
        &mut self,
        now: u64,
        tunables: &OndemandTunables,
        bounds: Bounds,
        table: &[u32],
        target: u32,
        relation: Relation,
    ) -> Request {
        // powersave_bias_target needs a table of frequencies to alternate between.
        if tunables.powersave_bias == 0 || table.is_empty() {
            return Request::Frequency(target, relation);
        }
        let request = u64::from(target.clamp(bounds.min, bounds.max.max(bounds.min)));
        let average = (request - request * u64::from(tunables.powersave_bias.min(1000)) / 1000) as u32;
        let average = average.clamp(bounds.min, bounds.max.max(bounds.min));
        let below = table.iter().copied().find(|&khz| khz <= average).unwrap_or(table[table.len() - 1]);
        let above = table.iter().rev().copied().find(|&khz| khz >= average).unwrap_or(table[0]);
        if below == above {
            return Request::Frequency(above, Relation::Low);
        }
        let gap = u64::from(above - below);
        // Time at the upper frequency, rounded to nearest, so that the period's average is the
        // biased request.
        let high_us = (u64::from(average - below) * tunables.sampling_rate + gap / 2) / gap;
        self.low = Some((below, now + high_us * 1000));
        Request::Frequency(above, Relation::Low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds =
        Bounds { min: 1_600_000, max: 3_300_000, lowest: 1_600_000, highest: 3_300_000, current: 1_600_000 };

    fn busy(percent: u64, now: u64) -> CpuTimes {
        CpuTimes { idle: now * (100 - percent) / 100, ..CpuTimes::default() }
    }

    #[test]
    fn full_speed_above_the_threshold_and_in_proportion_below() {
        let tunables = OndemandTunables::new(15, 4000, false);
        assert_eq!(tunables.sampling_rate, 8000);
        for (load, target, relation) in [
            (96, 3_300_000, Relation::High),
            (95, 3_215_000, Relation::Close),
            (0, 1_600_000, Relation::Close),
        ] {
            let mut governor = Ondemand::start(0, [CpuTimes::default()].into_iter());
            assert_eq!(
                governor.update(7_999_999, &tunables, BOUNDS, &[], [busy(load, 7_999_999)].into_iter()),
                None
            );
            let request =
                governor.update(8_000_000, &tunables, BOUNDS, &[], [busy(load, 8_000_000)].into_iter());
            assert_eq!(request, Some(Request::Frequency(target, relation)), "{load}");
        }
    }

    #[test]
    fn changed_limits_are_sampled_at_once() {
        let tunables = OndemandTunables::new(15, 4000, false);
        let mut governor = Ondemand::start(0, [CpuTimes::default()].into_iter());
        governor.common.sample_soon();
        let mut at = |now| governor.update(now, &tunables, BOUNDS, &[], [busy(0, now)].into_iter());
        assert_eq!(at(1_000_000), Some(Request::Frequency(1_600_000, Relation::Close)));
        assert_eq!(at(8_999_999), None, "a whole period after the sample");
        assert!(at(9_000_000).is_some());
    }

    #[test]
    fn the_bias_splits_a_period() {
        let tunables = OndemandTunables { powersave_bias: 100, ..OndemandTunables::new(15, 4000, false) };
        let table = [3_300_000, 2_400_000, 1_600_000];
        let mut governor = Ondemand::start(0, [CpuTimes::default()].into_iter());
        // 3.3 GHz less a tenth is 2.97 GHz: 570/900 of 8 ms at 3.3 GHz, the rest at 2.4 GHz.
        let mut at = |now| governor.update(now, &tunables, BOUNDS, &table, [busy(100, now)].into_iter());
        assert_eq!(at(8_000_000), Some(Request::Frequency(3_300_000, Relation::Low)));
        assert_eq!(at(8_000_000 + 5_066_000), None);
        assert_eq!(at(8_000_000 + 5_067_000), Some(Request::Frequency(2_400_000, Relation::High)));
    }

    #[test]
    fn a_long_sleep_counts_the_old_load_once() {
        let tunables = OndemandTunables::new(15, 4000, false);
        let mut governor = Ondemand::start(0, [CpuTimes::default()].into_iter());
        let ms = 1_000_000;
        let slept = |now: u64| CpuTimes { idle: now.saturating_sub(8 * ms), ..CpuTimes::default() };
        let mut at = |now| governor.update(now, &tunables, BOUNDS, &[], [slept(now)].into_iter());
        assert_eq!(at(8 * ms), Some(Request::Frequency(3_300_000, Relation::High)));
        assert_eq!(at(108 * ms), Some(Request::Frequency(3_300_000, Relation::High)));
        assert_eq!(at(208 * ms), Some(Request::Frequency(1_600_000, Relation::Close)));
    }
}
