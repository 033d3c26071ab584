//! Drift: what changed, from what to what, when and by whom, and what was done about it.

use std::{collections::HashMap, fmt, time::Duration};

use derive_more::Display;
use flyball_control::{Id, Location, Scope, Setting};
use flyball_host::{CpuList, watch::Writer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::HoldName;

/// Corrections of one place in a minute. Two services that correct each other would otherwise never
/// end.
pub const MAX_CORRECTIONS: usize = 5;

const MINUTE: Duration = Duration::from_secs(60);

/// The longest pause before a place that another writer keeps changing is corrected again. The
/// first one is a minute, and each is twice as long as the one before.
const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// Why something changed.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A process wrote it: known from the kernel.
    Written(Writer),
    /// A process wrote another setting, which resets this one as a rule.
    After { path: String, by: Writer },
    /// The machine was asleep.
    Resume,
    /// A CPU came or went, or another device.
    Device(String),
    /// Nothing was reported: firmware, the kernel itself, or a writer that cannot be seen from
    /// here. The programs that run and write this knob are a guess.
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

/// What was done about a drift.
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
    /// In seconds since 1970.
    pub at: u64,
    pub hold: HoldName,
    pub knob: Id,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    pub cpus: CpuList,
    /// In the knob's own terms.
    pub wanted: String,
    /// What was found; `None` if it could not be read.
    pub found: Option<String>,
    pub cause: Cause,
    pub action: Action,
    /// From the kernel's report to the end of the correction, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
}

impl Drift {
    /// Joins another one that differs in its CPUs only.
    pub(crate) fn join(&mut self, other: &Drift) -> bool {
        // Their times differ by microseconds and say nothing about the one cause.
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
    /// The hold's policy is to report.
    #[display("reported, not corrected")]
    Reported,
    /// The hold's policy is to yield.
    #[display("left to the other writer")]
    Yielded,
    /// It was corrected too often.
    #[display("another writer keeps changing it; flyball will try again")]
    Contended,
    /// The kernel makes another value of it.
    #[display("the kernel does not take that value")]
    Clamped,
    /// The kernel refuses the write.
    #[display("not in force: {_0}; flyball will try again")]
    Refused(String),
}

/// A place that is left alone, until the hold is added again or released, or the pause is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exemption {
    pub hold: HoldName,
    pub knob: Id,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    pub cpus: CpuList,
    pub location: Location,
    /// What it held then: a drift to another value is a new one.
    pub found: Option<String>,
    pub because: LeftBecause,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// When it is corrected again, by the time since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Duration>,
}

impl Exemption {
    /// Sets when a refused write is tried again, if nothing else sets it.
    pub(crate) fn tried_again(self, now: Duration) -> Exemption {
        let is_refused = matches!(self.because, LeftBecause::Refused(_));
        Exemption { until: is_refused.then_some(now + MINUTE), ..self }
    }

    /// Whether a setting is for this place, among others.
    pub fn concerns(&self, setting: &Setting) -> bool {
        let same = |instance: &String| instance.eq_ignore_ascii_case(&self.instance);
        setting.knob() == self.knob && setting.name.instance.as_ref().is_none_or(same)
    }
}

/// How often each place was corrected lately.
#[derive(Debug, Default)]
pub(crate) struct Corrections(HashMap<Location, Attempts>);

#[derive(Debug, Default)]
struct Attempts {
    /// The corrections of the last minute.
    times: Vec<Duration>,
    /// The pause that was made last, and when it ends.
    pause: Duration,
    until: Duration,
}

impl Attempts {
    fn pause(&mut self, now: Duration) -> Duration {
        self.pause = (2 * self.pause).clamp(MINUTE, MAX_PAUSE);
        self.until = now + self.pause;
        self.until
    }

    /// After a pause, a place that is quiet for twice as long counts as new.
    fn is_quiet(&self, now: Duration) -> bool {
        let last = self.times.last().copied().unwrap_or_default();
        now.saturating_sub(last) >= MINUTE && now >= self.until + 2 * self.pause
    }
}

impl Corrections {
    /// Counts a correction of a place.
    ///
    /// # Errors
    /// It was corrected too often: the time at which it may be corrected again.
    pub(crate) fn allow(&mut self, location: &Location, now: Duration) -> Result<(), Duration> {
        // Places that are quiet again take no memory.
        self.0.retain(|_, attempts| !attempts.is_quiet(now));
        // The last minute, not the minute of the clock: bursts before and after its turn would be
        // corrected twice as often.
        let attempts = self.0.entry(location.clone()).or_default();
        attempts.times.retain(|time| now.saturating_sub(*time) < MINUTE);
        // A writer that was there before the pause has shown that it goes on.
        let max = if attempts.pause.is_zero() { MAX_CORRECTIONS } else { 1 };
        if attempts.times.len() < max {
            attempts.times.push(now);
            return Ok(());
        }
        Err(attempts.pause(now))
    }

    /// Makes the next pause before a place is tried again, whatever was counted; when it ends.
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
