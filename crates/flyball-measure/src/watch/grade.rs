//! Judges whether a run's conditions were good enough to trust its number.

use serde::{Deserialize, Serialize};

use schemars::JsonSchema;

use super::conditions::Conditions;
use crate::SpeedNote;

/// How good the conditions were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// The run was too short, or the machine shows too little, to see whether something disturbed
    /// it.
    #[serde(rename = "not watched")]
    NotWatched,
    /// Nothing disturbed the run.
    Good,
    /// Something disturbed the run a little: worth showing.
    Fair,
    /// The number says more about the disturbance than about the work.
    Bad,
}

/// The cause of a disturbance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Other guests of the host.
    Steal,
    /// The frequency moved.
    Frequency,
    /// Waiting for memory.
    Memory,
    /// Other tasks on the same CPUs.
    Load,
    /// Throttling for heat.
    Heat,
}

impl Source {
    /// Whether the work or its settings can cause this. If it happens in most of an arm's rounds,
    /// it is then part of the measurement.
    pub fn may_be_own(self) -> bool {
        matches!(self, Source::Frequency | Source::Memory | Source::Heat)
    }
}

/// One thing that disturbed a run.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Disturbance {
    /// Its cause.
    pub source: Source,
    pub grade: Grade,
    /// A description with its number.
    pub what: String,
}

/// The limits above which a disturbance makes a run fair, and bad.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Share of stolen time.
    pub steal: (f64, f64),
    /// Range of the frequency within a run, as a share of its mean.
    pub frequency_range: (f64, f64),
    /// Share of the time in which tasks waited for memory.
    pub memory_pressure: (f64, f64),
    /// Load beyond the tasks of the work itself, as a share of the watched CPUs.
    pub foreign_load: (f64, f64),
}

impl Default for Limits {
    /// A hundredth of a run's time can hide the differences that benchmarks look for; a twentieth
    /// is visible in most of them.
    fn default() -> Limits {
        Limits {
            steal: (0.01, 0.05),
            frequency_range: (0.03, 0.15),
            memory_pressure: (0.005, 0.05),
            foreign_load: (0.05, 0.25),
        }
    }
}

/// Judges a run. `own_busy` is the share of the watched CPUs' time that the work itself used, if
/// known: the other busy time belongs to other programs. `speed` explains the frequency.
pub fn grade(
    conditions: &Conditions,
    own_busy: Option<f64>,
    limits: &Limits,
    speed: Option<&SpeedNote>,
) -> (Grade, Vec<Disturbance>) {
    let mut found = Vec::new();
    let mut judge = |source, value: Option<f64>, (fair, bad): (f64, f64), words: &dyn Fn(f64) -> String| {
        if let Some(value) = value
            // A value at the limit is good: otherwise a limit of 0 would find everything disturbed.
            && value > fair
        {
            found.push(Disturbance {
                source,
                grade: if value > bad { Grade::Bad } else { Grade::Fair },
                what: words(value),
            });
        }
    };
    judge(Source::Steal, conditions.steal, limits.steal, &|share| {
        format!("{:.1} % of the time went to other guests of the host", share * 100.0)
    });
    let range =
        conditions.frequency_range_mhz.zip(conditions.frequency_mhz).map(|(range, mean)| range / mean);
    judge(Source::Frequency, range, limits.frequency_range, &|share| {
        format!(
            "the frequency moved by {:.0} % of {:.0} MHz",
            share * 100.0,
            conditions.frequency_mhz.unwrap_or(0.0)
        )
    });
    judge(Source::Memory, conditions.memory_pressure, limits.memory_pressure, &|share| {
        format!("tasks waited for memory in {:.1} % of the time", share * 100.0)
    });
    // The two counts end at slightly different times, so a small negative difference counts as 0.
    let foreign = conditions.busy.zip(own_busy).map(|(busy, own)| (busy - own).max(0.0));
    judge(Source::Load, foreign, limits.foreign_load, &|share| {
        format!("others used {:.0} % of the CPUs' time", share * 100.0)
    });
    if let Some(count) = conditions.throttles.filter(|&count| count > 0) {
        let what = format!("throttled {count} times for heat");
        // One event is enough: after it, the CPU did not run at the frequency that was set.
        found.push(Disturbance { source: Source::Heat, grade: Grade::Bad, what });
    }
    // The counter counts entries: a run within a throttled period has none.
    let hot = conditions.temperature_c.zip(conditions.temperature_limit_c);
    if let Some((peak, limit)) = hot.filter(|(peak, limit)| *peak >= limit - NEAR_LIMIT_C) {
        let grade = if peak >= limit { Grade::Bad } else { Grade::Fair };
        let what = format!("{peak:.0} C, at the temperature limit of {limit:.0} C");
        found.push(Disturbance { source: Source::Heat, grade, what });
    }
    let below = conditions.frequency_mhz.zip(conditions.floor_mhz).map(|(mean, floor)| 1.0 - mean / floor);
    judge_below(&mut found, below, conditions, speed);
    // A stable sort: within a grade, the order above remains, with causes by others first.
    found.sort_by_key(|disturbance| std::cmp::Reverse(disturbance.grade));
    let undisturbed = if conditions.is_watched() { Grade::Good } else { Grade::NotWatched };
    (found.first().map_or(undisturbed, |worst| worst.grade), found)
}

/// Sensors have steps of one degree, and processors begin to slow down at the last step before the
/// limit.
const NEAR_LIMIT_C: f64 = 1.0;

/// Judges a mean frequency below the configured minimum: the processor did not keep to it, because
/// of heat or power.
fn judge_below(
    found: &mut Vec<Disturbance>,
    below: Option<f64>,
    conditions: &Conditions,
    speed: Option<&SpeedNote>,
) {
    // A register's ratio and a file's kHz differ by less than this.
    let Some(share) = below.filter(|share| *share > 0.03) else { return };
    let grade = if share > 0.1 { Grade::Bad } else { Grade::Fair };
    let why = speed.and_then(SpeedNote::lost).unwrap_or_else(|| {
        "heat, power, current or firmware held it (`flyball why` names what can be seen)".to_owned()
    });
    let what = format!(
        "ran at {:.0} MHz, below the minimum of {:.0} MHz that its settings keep: {why}",
        conditions.frequency_mhz.unwrap_or(0.0),
        conditions.floor_mhz.unwrap_or(0.0)
    );
    found.push(Disturbance { source: Source::Heat, grade, what });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttling_is_bad_whatever_else() {
        let conditions = Conditions { throttles: Some(3), ..Conditions::default() };
        let (worst, why) = grade(&conditions, None, &Limits::default(), None);
        assert_eq!(worst, Grade::Bad);
        assert!(why[0].what.contains('3'));
    }

    #[test]
    fn hot_and_slow_runs_are_not_good() {
        let hot = |peak, limit| Conditions {
            temperature_c: Some(peak),
            temperature_limit_c: Some(limit),
            busy: Some(0.0),
            ..Conditions::default()
        };
        let slow = |mhz| Conditions {
            frequency_mhz: Some(mhz),
            floor_mhz: Some(3400.0),
            busy: Some(0.0),
            ..Conditions::default()
        };
        for (conditions, expected) in [
            (hot(98.0, 98.0), Grade::Bad),
            (hot(97.0, 98.0), Grade::Fair),
            (hot(91.0, 98.0), Grade::Good),
            (slow(2163.0), Grade::Bad),
            (slow(3200.0), Grade::Fair),
            (slow(3390.0), Grade::Good),
        ] {
            assert_eq!(grade(&conditions, None, &Limits::default(), None).0, expected, "{conditions:?}");
        }
    }

    #[test]
    fn conditions_that_cannot_be_measured_are_not_good() {
        assert_eq!(
            grade(&Conditions::default(), None, &Limits::default(), None),
            (Grade::NotWatched, Vec::new())
        );
        let calm = Conditions { busy: Some(0.0), ..Conditions::default() };
        assert_eq!(grade(&calm, None, &Limits::default(), None), (Grade::Good, Vec::new()));
    }

    #[test]
    fn foreign_load_is_what_is_busy_beyond_the_work() {
        let conditions = Conditions { busy: Some(0.9), ..Conditions::default() };
        assert_eq!(grade(&conditions, Some(0.88), &Limits::default(), None).0, Grade::Good);
        assert_eq!(grade(&conditions, Some(0.80), &Limits::default(), None).0, Grade::Fair);
        assert_eq!(grade(&conditions, Some(0.50), &Limits::default(), None).0, Grade::Bad);
    }
}
