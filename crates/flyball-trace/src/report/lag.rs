//! Delay from request to frequency: how long until a changed request shows in the measured
//! frequency.
//!
//! Every request's record has the frequency of the time *before* it. A hold is the time between two
//! changes of the requested level. The lag is the time from a change to the first record whose
//! frequency has covered at least half the distance from the frequency at the change to the
//! frequency at the end of the hold. Holds that moved the frequency by less than 5 %, or in the
//! wrong direction (the load changed), are skipped.

use crate::histogram::Histogram;

/// Maximum number of records of one hold. If there are more, the frequency settled long ago.
const KEPT: usize = 64;

/// Follows the requests of one CPU.
#[derive(Debug, Clone, Default)]
pub(super) struct LagMeter {
    level: Option<u32>,
    /// The level before the change, and the time and frequency at the change.
    change: Option<(u32, u64, u64)>,
    since: Vec<(u64, u64)>,
    lags: Histogram,
}

impl LagMeter {
    /// Adds a record: the requested level, and the frequency up to now.
    #[inline]
    pub(super) fn add(&mut self, time: u64, level: u32, khz: u64) {
        let before = self.level.replace(level);
        if before != Some(level) && self.since.is_empty() {
            // The previous hold had only this record, which is not enough.
            self.change = before.map(|before| (before, time, khz));
            return;
        }
        if self.change.is_some() && self.since.len() < KEPT {
            self.since.push((time, khz));
        }
        let Some(before) = before.filter(|before| *before != level) else { return };
        self.settle(before);
        self.change = Some((before, time, khz));
        self.since.clear();
    }

    /// Handles missing records: the request and the time of its change are no longer known.
    pub(super) fn forget(&mut self) {
        (self.level, self.change) = (None, None);
        self.since.clear();
    }

    /// Ends the current hold, at level `level`.
    fn settle(&mut self, level: u32) {
        let Some((before, start, from)) = self.change.take() else { return };
        let Some((_, reached)) = self.since.last().copied() else { return };
        let rises = level > before;
        let moved = reached.abs_diff(from);
        // A single record cannot show where the frequency settled. 5 %, because frequencies are
        // measured with counters over some milliseconds, and vary by percents.
        if self.since.len() < 2 || (reached > from) != rises || moved * 20 < from.max(reached) {
            return;
        }
        let half =
            self.since.iter().find(|(_, khz)| (*khz > from) == rises && khz.abs_diff(from) * 2 >= moved);
        if let Some((time, _)) = half {
            self.lags.add(time.saturating_sub(start));
        }
    }

    /// The measured lags. A hold that has not ended is excluded, because its final frequency is
    /// unknown.
    pub(super) fn lags(&self) -> &Histogram {
        &self.lags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_ends_where_half_the_way_is_gone() {
        let mut meter = LagMeter::default();
        for (time, level, khz) in [
            (0, 50, 1_000_000),
            (1_000, 50, 1_000_000),
            // The request rises here; the frequency follows 2,000 ns later.
            (2_000, 150, 1_000_000),
            (3_000, 150, 1_200_000),
            (4_000, 150, 2_900_000),
            (5_000, 150, 3_000_000),
            (6_000, 50, 3_000_000),
        ] {
            meter.add(time, level, khz);
        }
        assert_eq!(meter.lags().count(), 1);
        let lag = meter.lags().quantile(0.5).unwrap();
        assert!((1_940..=2_000).contains(&lag), "{lag}");
    }

    #[test]
    fn holds_that_say_nothing_are_left_out() {
        let mut meter = LagMeter::default();
        // The request rises but the frequency falls; then a change without effect; then a hold of
        // one record.
        for (time, level, khz) in [
            (0, 50, 2_000_000),
            (1, 60, 2_000_000),
            (2, 60, 1_500_000),
            (3, 60, 1_000_000),
            (4, 70, 1_000_000),
            (5, 70, 1_010_000),
            (6, 70, 1_010_000),
            (7, 80, 1_010_000),
            (8, 90, 2_000_000),
        ] {
            meter.add(time, level, khz);
        }
        assert_eq!(meter.lags().count(), 0);
    }
}
