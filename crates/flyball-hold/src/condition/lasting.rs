//! Conditions that must be met, or unmet, for some time before they count. The service keeps them,
//! because only it sees time pass.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Condition, Facts, parts::Limit};

/// The state of conditions with a time span, as observed by the service.
#[derive(Debug, Default)]
pub(crate) struct Lasting {
    /// Tracks by the condition's text.
    tracks: BTreeMap<String, Track>,
    /// When the kernel last reported a pressure, by its text.
    pressed: BTreeMap<String, Duration>,
    /// For each limit, its last count, and when it was last seen to rise.
    limits: BTreeMap<Limit, (u64, Option<Duration>)>,
}

#[derive(Debug)]
struct Track {
    /// Whether it is met now, and since when.
    is_met: bool,
    since: Duration,
    counts: bool,
}

impl Lasting {
    /// Records that the kernel reported this pressure.
    pub(crate) fn press(&mut self, pressure: &str, now: Duration) {
        self.pressed.insert(pressure.to_owned(), now);
    }

    /// Checks the conditions against the present facts. Returns the texts of those that count, and
    /// forgets all others.
    pub(crate) fn judge<'c>(
        &mut self,
        conditions: impl Iterator<Item = &'c Condition>,
        facts: &Facts,
        now: Duration,
    ) -> BTreeSet<String> {
        for (limit, count) in &facts.limits {
            let (before, rose) = self.limits.entry(*limit).or_insert((*count, None));
            // The first reading only shows the count since boot.
            if *count > *before {
                *rose = Some(now);
            }
            // If a count falls, the driver was reloaded and counts from 0.
            *before = *count;
        }
        let mut tracks = BTreeMap::new();
        for condition in conditions.filter(|condition| condition.lasts()) {
            let (text, is_met) = (condition.to_string(), self.is_met(condition, facts, now));
            let mut track = self.tracks.remove(&text).unwrap_or(Track { is_met, since: now, counts: false });
            if track.is_met != is_met {
                (track.is_met, track.since) = (is_met, now);
            }
            if now.saturating_sub(track.since) >= condition.time_to_last() {
                track.counts = is_met;
            }
            tracks.insert(text, track);
        }
        // This drops tracks of conditions that no hold has any more.
        self.tracks = tracks;
        self.tracks.iter().filter(|(_, track)| track.counts).map(|(text, _)| text.clone()).collect()
    }

    fn is_met(&self, condition: &Condition, facts: &Facts, now: Duration) -> bool {
        let is_recent = |at: &Duration, lasts: Duration| now.saturating_sub(*at) < lasts;
        let is_pressed = condition.pressure.as_ref().is_none_or(|pressure| {
            self.pressed.get(&pressure.to_string()).is_some_and(|at| is_recent(at, pressure.lasts()))
        });
        let is_limited = condition.limit.is_none_or(|limit| {
            let rose = self.limits.get(&limit).and_then(|(_, rose)| rose.as_ref());
            // Until the second reading after it: a limit that is reached only now and then has not
            // gone.
            rose.is_some_and(|at| is_recent(at, condition.sampled().unwrap_or_default() * 2))
        });
        is_pressed && is_limited && condition.unmet_now(facts).is_none()
    }

    /// Returns when one of these conditions must be checked again without a report.
    pub(crate) fn next<'c>(
        &self,
        conditions: impl Iterator<Item = &'c Condition>,
        now: Duration,
    ) -> Option<Duration> {
        let moments = conditions.filter(|condition| condition.lasts()).flat_map(|condition| {
            let track = self.tracks.get(&condition.to_string());
            let turns = track
                .filter(|track| track.counts != track.is_met)
                .map(|track| track.since + condition.time_to_last());
            let sampled = condition.sampled().map(|pause| now + pause);
            // The kernel reports pressure, but not its end.
            let relief = condition.pressure.as_ref().and_then(|pressure| {
                let at = self.pressed.get(&pressure.to_string())?;
                Some(*at + pressure.lasts()).filter(|_| track.is_some_and(|track| track.is_met))
            });
            [turns, sampled, relief]
        });
        moments.flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(parts: &[(&str, &str)]) -> Condition {
        let mut condition = Condition::default();
        for (key, value) in parts {
            condition.add(key, value).unwrap();
        }
        condition
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn heat_counts_after_a_time_and_is_gone_after_a_time() {
        let hot = condition(&[("temperature", "90C"), ("for", "30s")]);
        let mut lasting = Lasting::default();
        let facts = |degrees: i32| Facts { temperature: Some(degrees * 1000), ..Facts::default() };
        let mut counts =
            |degrees, now| !lasting.judge([&hot].into_iter(), &facts(degrees), at(now)).is_empty();
        assert!(!counts(95, 0) && !counts(95, 29) && counts(95, 30));
        assert!(counts(80, 40) && counts(91, 60), "a short pause");
        assert!(counts(80, 70) && counts(80, 99) && !counts(80, 100));
        assert_eq!(hot.sampled(), Some(at(15)));
        assert_eq!(lasting.next([&hot].into_iter(), at(100)), Some(at(115)));
    }

    #[test]
    fn pressure_ends_when_it_is_not_reported_any_more() {
        let busy = condition(&[("pressure", "cpu some 15% over 10s")]);
        let mut lasting = Lasting::default();
        let facts = Facts::default();
        assert!(lasting.judge([&busy].into_iter(), &facts, at(0)).is_empty());
        lasting.press("cpu some 15% over 10s", at(5));
        assert_eq!(lasting.judge([&busy].into_iter(), &facts, at(5)).len(), 1);
        assert_eq!(lasting.next([&busy].into_iter(), at(5)), Some(at(18)));
        assert!(lasting.judge([&busy].into_iter(), &facts, at(18)).is_empty());
        assert_eq!(lasting.next([&busy].into_iter(), at(18)), None, "nothing is polled");
    }

    #[test]
    fn a_limit_counts_while_its_count_rises() {
        let limited = condition(&[("limit", "thermal"), ("for", "20s")]);
        let mut lasting = Lasting::default();
        let mut counts = |count, now| {
            let facts = Facts { limits: [(Limit::Thermal, count)].into(), ..Facts::default() };
            !lasting.judge([&limited].into_iter(), &facts, at(now)).is_empty()
        };
        assert!(!counts(700, 0) && !counts(700, 10), "what was before does not matter");
        assert!(!counts(701, 20) && !counts(702, 30) && counts(702, 40));
        assert!(counts(702, 50) && !counts(702, 70));
    }
}
