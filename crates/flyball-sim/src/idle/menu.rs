//! menu: predicts the typical length of the last eight sleeps. It caps this by the time to the next
//! timer, times the share of that time that earlier sleeps with a similar timer lasted.

use super::{SHORT_US, Sleep};

const INTERVALS: usize = 8;
/// Fixed-point representation of a factor of 1.
const UNITY: u32 = 1024 * FORGET;
/// Each sleep replaces one part in this many of a factor.
const FORGET: u32 = 8;
/// Sleeps that are longer count as correctly predicted, us.
const LONG_US: u32 = 50_000;

#[derive(Debug, Clone)]
pub(super) struct Menu {
    /// Ring buffer of the last sleeps, us.
    intervals: [u32; INTERVALS],
    next: u8,
    /// Share of the time to the next timer that sleeps lasted, by the timer's order of magnitude.
    factors: [u32; 6],
    /// The timer that the last prediction used, us; `None` if it ignored timers.
    timer_us: Option<u32>,
}

impl Default for Menu {
    fn default() -> Menu {
        Menu { intervals: [0; INTERVALS], next: 0, factors: [UNITY; 6], timer_us: None }
    }
}

/// Index of the factor for a timer `timer_us` ahead.
fn bucket(timer_us: Option<u32>) -> usize {
    let bounds = [10, 100, 1000, 10_000, 100_000];
    timer_us.map_or(5, |us| bounds.iter().filter(|bound| us >= **bound).count())
}

impl Menu {
    pub(super) fn learn(&mut self, sleep: Sleep) {
        let known = self.timer_us.map(|_| sleep.timer_us);
        // The tick shows that the prediction was too short, but not how long the sleep would have
        // been.
        let us = if sleep.by_tick { LONG_US / 10 * 9 } else { sleep.us };
        let us = us.min(known.unwrap_or(u32::MAX));
        let factor = &mut self.factors[bucket(known)];
        *factor -= *factor / FORGET;
        *factor += match known {
            _ if us >= LONG_US => UNITY / FORGET,
            Some(0) => UNITY / FORGET,
            Some(timer) => (u64::from(UNITY / FORGET) * u64::from(us) / u64::from(timer)) as u32,
            // The prediction ignored timers: the timer may be far away, so the sleep was a small
            // share.
            None => 0,
        };
        self.intervals[usize::from(self.next)] = us;
        self.next = (self.next + 1) % INTERVALS as u8;
    }

    /// Predicts the length of the next sleep, us.
    pub(super) fn predict(&mut self, timer_us: u32) -> u32 {
        let typical = typical(&self.intervals).unwrap_or(u32::MAX);
        self.timer_us = (typical > SHORT_US).then_some(timer_us);
        if self.timer_us.is_none() {
            return typical;
        }
        let factor = self.factors[bucket(self.timer_us)];
        let unity = u64::from(UNITY);
        let by_timer = (u64::from(timer_us) * u64::from(factor) + unity / 2) / unity;
        typical.min(by_timer as u32)
    }
}

/// The mean of the sleeps if they are alike. Ignores up to two outliers at either end, or more if
/// the other sleeps are almost equal.
fn typical(intervals: &[u32; INTERVALS]) -> Option<u32> {
    let (mut low, mut high) = (None, u32::MAX);
    loop {
        let kept = intervals.iter().copied().filter(|&us| us < high && low.is_none_or(|low| us > low));
        let (mut count, mut sum, mut squares) = (0, 0, 0);
        let (mut least, mut most) = (u32::MAX, 0);
        for us in kept {
            (count, sum, squares) = (count + 1, sum + u64::from(us), squares + u64::from(us) * u64::from(us));
            (least, most) = (least.min(us), most.max(us));
        }
        if most == 0 {
            return None;
        }
        let mean = sum / count;
        let variance = (squares / count).saturating_sub(mean * mean);
        // Standard deviation within a sixth of the mean, or 20 us.
        let is_most = count as usize * 4 >= INTERVALS * 3;
        if variance <= 400 || (is_most && mean * mean > variance.saturating_mul(36)) {
            return Some(mean as u32);
        }
        if count as usize * 4 <= INTERVALS * 3 {
            return None;
        }
        if mean - u64::from(least) > u64::from(most) - mean {
            low = Some(least);
        } else {
            high = most;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_typical_sleep_is_that_of_most() {
        assert_eq!(typical(&[0; 8]), None);
        assert_eq!(typical(&[700; 8]), Some(700));
        // Outliers above and below.
        assert_eq!(typical(&[700, 700, 700, 9000, 700, 700, 700, 700]), Some(700));
        assert_eq!(typical(&[700, 700, 700, 20, 700, 700, 700, 700]), Some(700));
        // Long and short sleeps: the short ones are alike.
        assert_eq!(typical(&[20, 700, 20, 700, 20, 700, 20, 700]), Some(20));
        // Nothing is typical.
        assert_eq!(typical(&[10, 100, 300, 900, 2700, 8000, 20_000, 60_000]), None);
    }

    #[test]
    fn a_timer_that_comes_to_pass_is_believed() {
        let mut menu = Menu::default();
        for _ in 0..100 {
            assert!(menu.predict(5000) >= 5000);
            menu.learn(Sleep { us: 5000, timer_us: 5000, by_tick: false });
        }
        // Sleeps that last a tenth of the time to the timer.
        for _ in 0..100 {
            menu.predict(50_000);
            menu.learn(Sleep { us: 5000, timer_us: 50_000, by_tick: false });
        }
        assert!((4900..=5100).contains(&menu.predict(50_000)), "{menu:?}");
    }
}
