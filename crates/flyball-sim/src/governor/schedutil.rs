//! schedutil (kernel/sched/cpufreq_schedutil.c): the frequency follows the scheduler's utilisation
//! with a quarter of headroom. A CPU that is 80 % busy at full speed thus requests full speed.

use super::{Bounds, Relation, Request};

const CAPACITY: u32 = 1024;
/// Boost of the first wakeup from IO.
// SCHED_CAPACITY_SCALE / 8: an occasional wait for IO must not raise the frequency to the maximum.
const IOWAIT_MIN: u32 = CAPACITY / 8;

/// The demand of one CPU of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Utilisation of all classes on the scale of `capacity`.
    pub util: u32,
    /// The CPU's capacity; 1024 except for smaller cores.
    pub capacity: u32,
    /// True if the CPU went idle at least once since the last update.
    pub idled: bool,
    /// True if a task woke from waiting for IO since the last update.
    pub woke_from_io: bool,
    /// Lower bound: an RT task without uclamp requests the whole capacity.
    pub floor: u32,
    /// Upper bound (uclamp).
    pub ceiling: u32,
}

/// The kind of request that the driver accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedutilMode {
    /// `cpufreq_driver_fast_switch` or a work item: a frequency for the policy.
    Frequency,
    /// `cpufreq_driver_adjust_perf`: minimum, target and capacity, for policies of one CPU.
    AdjustPerf,
}

#[derive(Debug, Clone, Copy, Default)]
struct Boost {
    value: u32,
    pending: bool,
    updated: u64,
    /// True if the CPU went idle since the last update that the rate limit let through
    /// (sugov_hold_freq).
    idled: bool,
}

/// The governor's state for one policy.
#[derive(Debug, Clone)]
pub struct Schedutil {
    mode: SchedutilMode,
    boosts: Vec<Boost>,
    changed: Option<u64>,
    limits_changed: bool,
    raw: u32,
    next: u32,
}

impl Schedutil {
    /// A governor for a policy of `cpus` CPUs.
    pub fn new(mode: SchedutilMode, cpus: usize) -> Schedutil {
        Schedutil {
            mode,
            boosts: vec![Boost::default(); cpus],
            changed: None,
            limits_changed: true,
            raw: 0,
            next: 0,
        }
    }

    /// Returns whether limits have changed since the last update.
    pub fn has_new_limits(&self) -> bool {
        self.limits_changed
    }

    /// Called when the policy's limits change: the next update ignores the rate limit.
    pub fn limits_changed(&mut self) {
        self.limits_changed = true;
    }

    /// A scheduler update at `now` nanoseconds with the CPUs' demands. `tick` is the length of the
    /// scheduler tick in nanoseconds. Returns the request, or `None` if the rate limit forbids one
    /// or nothing changed.
    pub fn update(
        &mut self,
        now: u64,
        tick: u64,
        rate_limit_us: u32,
        bounds: Bounds,
        demands: impl Iterator<Item = Demand>,
    ) -> Option<Request> {
        let due = self.limits_changed
            || self
                .changed
                .is_none_or(|changed| now.saturating_sub(changed) >= u64::from(rate_limit_us) * 1000);
        // sugov_next_freq_shared(): the busiest CPU decides for the policy.
        let mut best = (0u64, 0, CAPACITY, 0);
        let mut busy_single = self.boosts.len() == 1;
        for (boost, demand) in self.boosts.iter_mut().zip(demands) {
            // Even within the rate limit: the boost counts wakeups, not updates
            // (sugov_update_shared).
            boost.wake(now, tick, demand.woke_from_io);
            boost.idled |= demand.idled;
            if !due {
                continue;
            }
            let boosted = boost.apply(now, tick, demand.capacity);
            let capacity = demand.capacity.max(1);
            let util = demand.util.max(boosted).min(capacity);
            // map_util_perf(): adds a quarter, so that 80 % busy requests full speed.
            let wanted = (util + (util >> 2)).min(demand.ceiling).max(demand.floor);
            busy_single &= !std::mem::take(&mut boost.idled) && demand.ceiling >= CAPACITY;
            let share = u64::from(wanted) * 1024 / u64::from(capacity);
            if share >= best.0 {
                best = (share, wanted, capacity, demand.floor);
            }
        }
        if !due {
            return None;
        }
        let forced = std::mem::take(&mut self.limits_changed);
        let (_, wanted, capacity, floor) = best;
        if self.mode == SchedutilMode::AdjustPerf {
            // A CPU that has not been idle may only seem less loaded, so the frequency does not
            // fall (sugov_hold_freq).
            let held = busy_single && !forced && wanted < self.raw;
            if !held {
                self.raw = wanted;
            }
            self.changed = Some(now);
            return Some(Request::Performance { min: floor, target: self.raw, capacity });
        }
        // get_next_freq(): relative to the highest frequency, since utilisation is
        // frequency-invariant on x86.
        let frequency = (u64::from(bounds.highest) * u64::from(wanted) / u64::from(capacity)) as u32;
        // cached_raw_freq: compared before clamping, so that a request above the limit is not sent
        // at each update.
        if frequency == self.raw && !forced {
            return None;
        }
        let held = busy_single && !forced && frequency < self.next;
        if held {
            return None;
        }
        // Remember the raw request only if it was sent: a held request must be compared again at
        // the next update.
        self.raw = frequency;
        self.next = frequency.clamp(bounds.min, bounds.max.max(bounds.min));
        self.changed = Some(now);
        Some(Request::Frequency(self.next, Relation::Low))
    }
}

impl Boost {
    /// `sugov_iowait_boost`: doubles with each wakeup from IO, and resets after an idle gap of more
    /// than a tick.
    fn wake(&mut self, now: u64, tick: u64, from_io: bool) {
        if self.value > 0 && now.saturating_sub(self.updated) > tick {
            self.value = if from_io { IOWAIT_MIN } else { 0 };
            self.pending = from_io;
        } else if from_io && !self.pending {
            self.pending = true;
            self.value = if self.value == 0 { IOWAIT_MIN } else { (self.value * 2).min(CAPACITY) };
        }
        if from_io {
            self.updated = now;
        }
    }

    /// `sugov_iowait_apply`: returns the boost as utilisation; halves it at an update without a
    /// wakeup from IO.
    fn apply(&mut self, now: u64, tick: u64, capacity: u32) -> u32 {
        if self.value == 0 {
            return 0;
        }
        if !self.pending {
            self.value /= 2;
            if self.value < IOWAIT_MIN {
                self.value = 0;
                return 0;
            }
            // A CPU that still decays has been updated, so the idle gap starts here.
            self.updated = self.updated.max(now.saturating_sub(tick));
        }
        self.pending = false;
        self.value * capacity / CAPACITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds =
        Bounds { min: 800_000, max: 4_000_000, lowest: 800_000, highest: 4_000_000, current: 800_000 };
    const TICK: u64 = 4_000_000;

    fn demand(util: u32) -> Demand {
        Demand { util, capacity: 1024, idled: true, woke_from_io: false, floor: 0, ceiling: 1024 }
    }

    fn ask(governor: &mut Schedutil, now: u64, demand: Demand) -> Option<u32> {
        match governor.update(now, TICK, 1000, BOUNDS, [demand].into_iter()) {
            Some(Request::Frequency(khz, Relation::Low)) => Some(khz),
            Some(other) => panic!("{other:?}"),
            None => None,
        }
    }

    #[test]
    fn full_speed_from_four_fifths() {
        let mut governor = Schedutil::new(SchedutilMode::Frequency, 1);
        assert_eq!(ask(&mut governor, 0, demand(512)), Some(2_500_000));
        assert_eq!(ask(&mut governor, 2_000_000, demand(820)), Some(4_000_000));
    }

    #[test]
    fn rate_limit_and_unchanged_answers() {
        let mut governor = Schedutil::new(SchedutilMode::Frequency, 1);
        assert!(ask(&mut governor, 0, demand(512)).is_some());
        assert_eq!(ask(&mut governor, 999_999, demand(900)), None);
        assert_eq!(ask(&mut governor, 1_000_000, demand(900)), Some(4_000_000));
        assert_eq!(ask(&mut governor, 3_000_000, demand(900)), None);
        governor.limits_changed();
        assert_eq!(ask(&mut governor, 3_000_001, demand(900)), Some(4_000_000));
    }

    #[test]
    fn a_cpu_that_did_not_idle_keeps_its_speed() {
        let mut governor = Schedutil::new(SchedutilMode::Frequency, 1);
        assert_eq!(ask(&mut governor, 0, demand(900)), Some(4_000_000));
        assert_eq!(ask(&mut governor, 2_000_000, Demand { idled: false, ..demand(100) }), None);
        assert_eq!(ask(&mut governor, 4_000_000, demand(100)), Some(800_000));
    }

    #[test]
    fn iowait_doubles_and_halves() {
        let mut governor = Schedutil::new(SchedutilMode::Frequency, 1);
        let io = Demand { woke_from_io: true, ..demand(0) };
        let asked: Vec<_> = (0..5).map(|n| ask(&mut governor, n * 2_000_000, io)).collect();
        // 128, 256, 512 and 1024 of 1024, plus headroom, clamped to full; the fifth request equals
        // the fourth.
        assert_eq!(asked, [Some(800_000), Some(1_250_000), Some(2_500_000), Some(4_000_000), None]);
        assert_eq!(ask(&mut governor, 10_000_000, demand(0)), Some(2_500_000));
    }

    #[test]
    fn adjust_perf_passes_the_utilisation() {
        let mut governor = Schedutil::new(SchedutilMode::AdjustPerf, 1);
        let request = governor.update(0, TICK, 1000, BOUNDS, [demand(400)].into_iter());
        assert_eq!(request, Some(Request::Performance { min: 0, target: 500, capacity: 1024 }));
    }
}
