//! A cpufreq policy: the CPUs that change frequency together, their limits, and their governor.

use crate::governor::{Bounds, Conservative, Ondemand, Relation, Schedutil};

/// What decides a policy's frequency.
#[derive(Debug, Clone, Default, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Governor {
    /// The highest frequency, or (setpolicy drivers) the driver's performance policy.
    #[default]
    Performance,
    /// The lowest frequency, or (setpolicy drivers) the driver's own algorithm.
    Powersave,
    /// The frequency that was written to scaling_setspeed, kHz.
    Userspace(u32),
    /// Full speed above a load threshold.
    Ondemand(Ondemand),
    /// Steps up or down with load.
    Conservative(Conservative),
    /// Follows the scheduler's utilisation.
    Schedutil(Schedutil),
}

impl Governor {
    pub(crate) fn name(&self) -> &'static str {
        self.into()
    }

    /// CPUFREQ_GOV_DYNAMIC_SWITCHING: the governor changes the frequency by itself.
    pub(crate) fn is_dynamic(&self) -> bool {
        // The flag is in CPUFREQ_DBS_GOVERNOR_INITIALIZER and in schedutil_gov.
        matches!(self, Governor::Ondemand(_) | Governor::Conservative(_) | Governor::Schedutil(_))
    }
}

/// Limits while they are being computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) min: u32,
    pub(crate) max: u32,
}

impl Limits {
    /// cpufreq_verify_within_limits().
    pub(crate) fn clip(&mut self, low: u32, high: u32) {
        // clamp() of both, then min below max: in this order a minimum above the maximum gives way.
        self.min = self.min.max(low).min(high);
        self.max = self.max.max(low).min(high);
        self.min = self.min.min(self.max);
    }
}

/// Time and transitions for the `stats` directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stats {
    /// Nanoseconds at each table entry.
    pub(crate) time: Vec<u64>,
    /// Transitions from (row) to (column).
    pub(crate) table: Vec<Vec<u32>>,
    pub(crate) last: u64,
    pub(crate) index: usize,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    /// The lowest CPU number: the N of policyN.
    pub(crate) number: u32,
    /// The CPUs of the policy, online or not.
    pub(crate) cpus: Vec<u32>,
    /// The policy's online CPUs.
    pub(crate) online: Vec<u32>,
    pub(crate) lowest: u32,
    pub(crate) highest: u32,
    pub(crate) latency_ns: u32,
    /// Transition delay set by the driver; otherwise it follows from the latency.
    pub(crate) delay_us: Option<u32>,
    /// Limits written to scaling_min_freq and scaling_max_freq, kHz.
    pub(crate) request: (i32, i32),
    /// Limits that the driver or firmware requests (intel_pstate's percentages, _PPC).
    pub(crate) driver_request: (i32, i32),
    /// The maximum that another part of the kernel requests, such as a cooling device
    /// (freq_qos_add_request()).
    pub(crate) cooling_request: i32,
    /// The highest P-state that firmware allows (_PPC), kHz.
    pub(crate) bios_limit: Option<u32>,
    pub(crate) min: u32,
    pub(crate) max: u32,
    /// The frequency last requested from the driver.
    pub(crate) current: u32,
    pub(crate) governor: Governor,
    /// The driver's table, descending; empty without one.
    pub(crate) table: Vec<u32>,
    pub(crate) boost: bool,
    /// Time when the work item that applies changed requests runs, in nanoseconds.
    pub(crate) settles: Option<u64>,
    pub(crate) stats: Option<Stats>,
    /// The governor to return to when the last CPU comes online again.
    pub(crate) remembered: Option<&'static str>,
    /// intel_pstate without HWP: time of the last P-state decision, and the driver's own IO boost.
    pub(crate) sampled: u64,
    pub(crate) io_boost: u32,
    /// The CPU's busy time at the last decision, ns.
    pub(crate) seen_busy: u64,
}

impl Policy {
    pub(crate) fn new(number: u32, cpus: Vec<u32>, online: Vec<u32>) -> Policy {
        Policy {
            number,
            cpus,
            online,
            // FREQ_QOS_MIN_DEFAULT_VALUE and FREQ_QOS_MAX_DEFAULT_VALUE (include/linux/pm_qos.h).
            request: (0, i32::MAX),
            driver_request: (0, i32::MAX),
            cooling_request: i32::MAX,
            ..Policy::default()
        }
    }

    /// The CPU that acts for the policy.
    pub(crate) fn leader(&self) -> u32 {
        self.online.first().copied().unwrap_or(self.number)
    }

    pub(crate) fn is_active(&self) -> bool {
        !self.online.is_empty()
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            min: self.min,
            max: self.max,
            lowest: self.lowest,
            highest: self.highest,
            current: self.current,
        }
    }

    /// The aggregated requests: the highest minimum, the lowest maximum (kernel/power/qos.c).
    pub(crate) fn requested(&self) -> Limits {
        let bios = self.bios_limit.map_or(i32::MAX, |khz| khz as i32);
        Limits {
            // Requests are signed in the kernel, but it accepts none below 0, so the cast loses
            // nothing.
            min: self.request.0.max(self.driver_request.0).max(0) as u32,
            max: self.request.1.min(self.driver_request.1).min(self.cooling_request).min(bios).max(0) as u32,
        }
    }

    /// Clamps a target to the limits, and resolves it to a table entry if there is a table
    /// (cpufreq_frequency_table_target).
    pub(crate) fn resolve(&self, target: u32, relation: Relation) -> u32 {
        let max = self.max;
        self.resolve_within(target, self.min.min(max), max, relation)
    }

    pub(crate) fn resolve_within(&self, target: u32, min: u32, max: u32, relation: Relation) -> u32 {
        // Not clamp(), which panics if min is above max (see cpufreq_driver_resolve_freq()).
        let target = target.max(min).min(max);
        let Some((&first, &last)) = self.table.first().zip(self.table.last()) else {
            return target;
        };
        // The table is sorted from high to low.
        // Relations as in cpufreq_table_find_index_dl() and its siblings.
        let below = self.table.iter().copied().find(|&khz| khz <= target);
        let above = self.table.iter().rev().copied().find(|&khz| khz >= target);
        match relation {
            // Beyond the table's ends, use the nearest entry.
            Relation::Low => above.unwrap_or(first),
            Relation::High => below.unwrap_or(last),
            Relation::Close => match (below, above) {
                // A tie goes to the lower entry: cpufreq_table_find_index_dc() moves up only if it
                // is strictly closer.
                (Some(below), Some(above)) if above - target < target - below => above,
                (Some(below), _) => below,
                (None, above) => above.unwrap_or(last),
            },
        }
    }

    /// cpufreq_policy_transition_delay_us(): microseconds that governors leave between changes.
    pub(crate) fn transition_delay_us(&self, old: bool) -> u32 {
        // A driver's own transition_delay_us wins over anything derived from its latency.
        if let Some(delay) = self.delay_us {
            return delay;
        }
        // NSEC_PER_USEC: a latency below a microsecond counts as none.
        let latency = self.latency_ns / 1000;
        match (latency, old) {
            (0, _) => 1000,
            // Up to 6.1 LATENCY_MULTIPLIER, at most 10 ms; later 1.5 times the latency.
            (latency, true) => latency.saturating_mul(1000).min(10_000),
            (latency, false) => latency + latency / 2,
        }
    }

    /// Accounts the time at the current table entry, and a change of entry.
    pub(crate) fn account(&mut self, now: u64, to: u32) {
        // A frequency that is not in the table is not counted (cpufreq_stats_record_transition()).
        let Some(index) = self.table.iter().position(|&khz| khz == to) else { return };
        if let Some(stats) = &mut self.stats {
            let spent = now.saturating_sub(stats.last);
            if let Some(time) = stats.time.get_mut(stats.index) {
                *time += spent;
            }
            stats.last = now;
            if stats.index != index {
                if let Some(count) = stats.table.get_mut(stats.index).and_then(|row| row.get_mut(index)) {
                    *count += 1;
                }
                stats.index = index;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acpi() -> Policy {
        let mut policy = Policy::new(0, vec![0], vec![0]);
        policy.table = vec![3_301_000, 2_400_000, 1_600_000];
        (policy.min, policy.max) = (1_600_000, 3_301_000);
        policy
    }

    #[test]
    fn relations() {
        let policy = acpi();
        assert_eq!(policy.resolve(2_000_000, Relation::Low), 2_400_000);
        assert_eq!(policy.resolve(2_000_000, Relation::High), 1_600_000);
        assert_eq!(policy.resolve(2_100_000, Relation::Close), 2_400_000);
        assert_eq!(policy.resolve(2_000_000, Relation::Close), 1_600_000);
        assert_eq!(policy.resolve(99_999_999, Relation::Low), 3_301_000);
        assert_eq!(policy.resolve(1, Relation::High), 1_600_000);
    }

    #[test]
    fn clipping_pulls_min_down_to_max() {
        let mut limits = Limits { min: 3_000_000, max: 2_000_000 };
        limits.clip(800_000, 4_000_000);
        assert_eq!(limits, Limits { min: 2_000_000, max: 2_000_000 });
    }
}
