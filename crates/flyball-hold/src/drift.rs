//! Drift: which setting changed, from and to which value, when, who caused it, and what flyball did
//! about it.

use std::{collections::HashMap, fmt, time::Duration};

use derive_more::Display;
use flyball_control::{Id, Location, Scope, Setting};
use flyball_host::{CpuList, watch::Writer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::HoldName;

/// Limit on corrections of one place in a minute. Otherwise two services could correct each other
/// forever.
pub const MAX_CORRECTIONS: usize = 5;

const MINUTE: Duration = Duration::from_secs(60);

/// The longest pause before correcting a place again that another writer keeps changing. The first
/// pause is a minute, and each is twice as long as the one before.
const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// Why something changed.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A process wrote it, according to the kernel.
    Written(Writer),
    /// A process wrote another setting, which usually resets this one.
    After { path: String, by: Writer },
    /// The machine was asleep.
    Resume,
    /// A CPU or another device appeared or disappeared.
    Device(String),
    /// Nothing was reported: the cause is firmware, the kernel itself, or a writer that is
    /// invisible here. `perhaps` guesses: running programs that write this knob.
    NotSeen { perhaps: Vec<String> },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Written(by) => write!(f, "written by {by}"),
            Cause::After { path, by } => write!(f, "after {by} wrote {path}"),
            Cause::Resume => f.write_str("after the machine was asleep"),
            Cause::Device(path) => write!(f, "after {path} changed"),
            Cause::NotSeen { perhaps } if perhaps.is_empty() => {
                f.write_str("by firmware, the kernel or a writer that is not seen from here")
            }
            Cause::NotSeen { perhaps } => {
                write!(f, "by a writer that was not seen; {} runs and writes this knob", perhaps.join(", "))
            }
        }
    }
}

/// The reaction to a drift.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    #[display("corrected")]
    Corrected,
    #[display("reported")]
    Reported,
    #[display("yielded")]
    Yielded,
    /// It was corrected too often.
    #[display("left for a while, because it was corrected too often")]
    GaveWay,
    /// It could not be corrected.
    #[display("not corrected: {_0}")]
    Failed(String),
}

/// A setting that changed.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Drift {
    /// Time, in seconds since 1970.
    pub at: u64,
    pub hold: HoldName,
    pub knob: Id,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    pub cpus: CpuList,
    /// The wanted value, in the knob's own terms.
    pub wanted: String,
    /// The value found; `None` if it could not be read.
    pub found: Option<String>,
    pub cause: Cause,
    pub action: Action,
    /// Time from the kernel's report to the end of the correction, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
}

impl Drift {
    /// Merges a drift that differs only in its CPUs. Returns whether it did.
    pub(crate) fn join(&mut self, other: &Drift) -> bool {
        // Durations differ by microseconds, although the cause is the same.
        let same = Drift { cpus: self.cpus.clone(), took_us: self.took_us, ..other.clone() } == *self;
        if same {
            self.cpus = self.cpus.union(&other.cpus);
        }
        same
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Drift { hold, knob, instance, cpus, wanted, found, cause, action, .. } = self;
        let colon = if instance.is_empty() { "" } else { ":" };
        write!(f, "{knob}{colon}{instance}")?;
        if knob.knob().scope != Scope::Machine {
            write!(f, " of CPU{} {cpus}", if cpus.len() == 1 { "" } else { "s" })?;
        }
        let found = found.as_deref().unwrap_or("absent");
        write!(f, " is {found} instead of {wanted}, {cause}; {action} (hold {hold})")
    }
}

/// Why a place is not set although a hold wants it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize, Display)]
#[serde(rename_all = "kebab-case")]
pub enum LeftBecause {
    /// The hold only reports drift.
    #[display("reported, not corrected")]
    Reported,
    /// The hold yields to drift.
    #[display("left to the other writer")]
    Yielded,
    /// It was corrected too often.
    #[display("another writer keeps changing it; flyball will try again")]
    Contended,
    /// The kernel changes the written value.
    #[display("the kernel does not take that value")]
    Clamped,
    /// The kernel refuses the write.
    #[display("not in force: {_0}; flyball will try again")]
    Refused(String),
}

/// A place that is left alone until the hold is added again or released, or the pause is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exemption {
    pub hold: HoldName,
    pub knob: Id,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    pub cpus: CpuList,
    pub location: Location,
    /// The value at that time. A drift to another value is a new drift.
    pub found: Option<String>,
    pub because: LeftBecause,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The time since boot at which it is corrected again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Duration>,
}

impl Exemption {
    /// Returns the place with the time of the next try, which only a refused write has.
    pub(crate) fn with_retry_time(self, now: Duration) -> Exemption {
        let is_refused = matches!(self.because, LeftBecause::Refused(_));
        Exemption { until: is_refused.then_some(now + MINUTE), ..self }
    }

    /// Returns whether a setting includes this place.
    pub fn concerns(&self, setting: &Setting) -> bool {
        let same = |instance: &String| instance.eq_ignore_ascii_case(&self.instance);
        setting.knob() == self.knob && setting.name.instance.as_ref().is_none_or(same)
    }
}

/// How often each place was corrected recently.
#[derive(Debug, Default)]
pub(crate) struct Corrections(HashMap<Location, Attempts>);

#[derive(Debug, Default)]
struct Attempts {
    /// Times of the corrections in the last minute.
    times: Vec<Duration>,
    /// The last pause, and when it ends.
    pause: Duration,
    until: Duration,
}

impl Attempts {
    fn pause(&mut self, now: Duration) -> Duration {
        self.pause = (2 * self.pause).clamp(MINUTE, MAX_PAUSE);
        self.until = now + self.pause;
        self.until
    }

    /// Returns whether a place has been quiet for twice as long as its pause, so that it counts as
    /// new.
    fn is_quiet(&self, now: Duration) -> bool {
        let last = self.times.last().copied().unwrap_or_default();
        now.saturating_sub(last) >= MINUTE && now >= self.until + 2 * self.pause
    }
}

impl Corrections {
    /// Counts a correction of a place.
    ///
    /// # Errors
    /// The place was corrected too often. The error is the time at which it may be corrected again.
    pub(crate) fn allow(&mut self, location: &Location, now: Duration) -> Result<(), Duration> {
        // Drop places that are quiet again, to free memory.
        self.0.retain(|_, attempts| !attempts.is_quiet(now));
        // Use the last 60 seconds, not the clock's minute, around whose end twice as many
        // corrections would be possible.
        let attempts = self.0.entry(location.clone()).or_default();
        attempts.times.retain(|time| now.saturating_sub(*time) < MINUTE);
        // A writer that continues after a pause gets only one correction.
        let max = if attempts.pause.is_zero() { MAX_CORRECTIONS } else { 1 };
        if attempts.times.len() < max {
            attempts.times.push(now);
            return Ok(());
        }
        Err(attempts.pause(now))
    }

    /// Begins the next pause before a place is tried again, whatever was counted. Returns its end.
    pub(crate) fn pause(&mut self, location: &Location, now: Duration) -> Duration {
        self.0.entry(location.clone()).or_default().pause(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrections_are_counted_per_place_and_minute() {
        let mut corrections = Corrections::default();
        let (a, b) = (Location::file("/sys/a"), Location::file("/sys/b"));
        let at = Duration::from_secs;
        for second in 0..5 {
            assert_eq!(corrections.allow(&a, at(second)), Ok(()));
        }
        assert_eq!(corrections.allow(&a, at(5)), Err(at(65)));
        assert_eq!(corrections.allow(&b, at(59)), Ok(()));
        assert_eq!(corrections.allow(&b, at(500)), Ok(()));
        assert_eq!(corrections.0.len(), 1, "places that are quiet are forgotten");
    }

    #[test]
    fn pauses_grow_while_the_other_writer_goes_on_and_end_when_it_does() {
        let mut corrections = Corrections::default();
        let place = Location::file("/sys/a");
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        while pauses.len() < 8 {
            match corrections.allow(&place, now) {
                // The other program writes a second after each correction.
                Ok(()) => now += Duration::from_secs(1),
                Err(until) => {
                    pauses.push((until - now).as_secs() / 60);
                    now = until;
                }
            }
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        now += Duration::from_secs(3 * 3600);
        let count = (0..9).filter(|_| corrections.allow(&place, now).is_ok()).count();
        assert_eq!(count, MAX_CORRECTIONS);
    }
}
