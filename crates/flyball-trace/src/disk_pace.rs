//! Measures whether a disk keeps up with writes that bypass the page cache.

use std::time::{Duration, Instant};

/// Sums up times spent waiting for a disk.
#[derive(Debug)]
pub(crate) struct Pace {
    since: Instant,
    waited: Duration,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace { since: Instant::now(), waited: Duration::ZERO }
    }

    /// Adds time spent waiting for the disk. Returns `false` once it makes up a quarter of the last
    /// second: then the page cache, which returns at once, is worth its cost.
    pub(crate) fn keeps_up(&mut self, waited: Duration) -> bool {
        self.judge(waited, self.since.elapsed())
    }

    fn judge(&mut self, waited: Duration, passed: Duration) -> bool {
        self.waited += waited;
        // A single slow write is not significant.
        if passed < Duration::from_secs(1) {
            return true;
        }
        let keeps_up = self.waited * 4 <= passed;
        *self = Pace::new();
        keeps_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_a_second_is_too_much() {
        let ms = Duration::from_millis;
        let mut pace = Pace::new();
        assert!(pace.judge(ms(900), ms(999)), "one slow write says nothing");
        assert!(!pace.judge(ms(1), ms(1_100)));
        assert!(pace.judge(ms(200), ms(1_000)), "what was before is forgotten");
    }
}
