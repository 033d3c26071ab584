//! A wanted value: the text after `KNOB=`. It is parsed without a machine and later resolved on
//! one.
//!
//! There are two stages. [`Wanted::parse`] checks the syntax and the type with the table alone, so
//! a mistyped profile fails before flyball touches a machine. [`crate::Snapshot::resolve`] gives
//! words such as `max` their value at a place.

use std::fmt;

use flyball_host::{CpuList, Epb, Epp, Micros, Percent, Perf};
use serde::{Deserialize, Serialize};

use crate::{Form, Id, Knob, Value, table::is_idle_state};

/// A wanted value of a knob.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, Serialize, Deserialize, derive_more::Display)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    #[display("{_0}")]
    Exactly(Value),
    /// The lowest that the hardware allows there.
    #[display("min")]
    Min,
    /// The highest that the hardware allows there.
    #[display("max")]
    Max,
    /// The guaranteed frequency.
    #[display("base")]
    Base,
    /// The nominal frequency of CPPC.
    #[display("nominal")]
    Nominal,
    /// The frequency below which running slower saves no energy for the same work, if the driver
    /// knows it (amd-pstate).
    #[display("efficient")]
    Efficient,
    /// The energy bias that the kernel calls normal on the processor's model.
    #[display("normal")]
    Normal,
    /// For idle states: whether the driver allows the state by itself.
    #[display("default")]
    Default,
    /// A share of the highest frequency of the hardware.
    #[display("{}%", _0.0)]
    Share(Percent),
    /// For idle states: allow the states up to this one (name or number), forbid the deeper ones.
    /// For a latency limit: the exit latency of the state of this name.
    #[display("{}", _0)]
    UpTo(String),
    /// For idle states: allow states with at most this exit latency.
    #[display("{_0}")]
    WithinLatency(Micros),
}

/// An error for text that is not a value of the knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedError {
    pub knob: Id,
    /// The text as given.
    pub text: String,
    /// The accepted values.
    pub accepted: String,
}

impl fmt::Display for WantedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.accepted.is_empty() {
            return write!(f, "{} is a fact of the machine and cannot be set", self.knob);
        }
        write!(f, "'{}' is not a value of {}; it takes {}", self.text, self.knob, self.accepted)
    }
}

impl std::error::Error for WantedError {}

/// An error for a well-formed value that this machine does not accept at this place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The value itself is refused.
    #[error("{knob}={wanted} is not possible on {place}: {accepted}")]
    Refused {
        knob: Id,
        /// The requested value.
        wanted: String,
        place: String,
        /// The values accepted at the place.
        accepted: String,
    },
    /// A value that is needed to resolve it cannot be read.
    #[error(transparent)]
    Read(#[from] crate::ReadError),
}

fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" | "1" | "enabled" | "enable" => Some(true),
        "off" | "no" | "false" | "0" | "disabled" | "disable" => Some(false),
        _ => None,
    }
}

impl Wanted {
    /// Parses `text` as a value of `knob`.
    ///
    /// # Errors
    /// The accepted values, if the text is none of them or the row is a fact.
    pub fn parse(knob: &Knob, text: &str) -> Result<Wanted, WantedError> {
        let text = text.trim();
        let refuse = |accepted: &str| WantedError {
            knob: knob.id,
            text: text.to_owned(),
            accepted: accepted.to_owned(),
        };
        if knob.control().is_none() {
            return Err(refuse(""));
        }
        // Check this before the form: no value is longer, and refusals are printed.
        let is_plausible = !text.is_empty() && text.len() <= 200 && !text.contains(char::is_control);
        let wanted = is_plausible.then(|| match knob.id {
            Id::IdleState => Some(idle_state(text)),
            Id::SstApart => partition_cpus(text),
            _ => Wanted::parse_form(knob, text),
        });
        wanted.flatten().ok_or_else(|| refuse(knob.accepts()))
    }

    /// Parses `text` in the form of the knob.
    fn parse_form(knob: &Knob, text: &str) -> Option<Wanted> {
        let lower = text.to_ascii_lowercase();
        let value = match (knob.form(), lower.as_str()) {
            (Form::KHz | Form::MHz | Form::Ratio | Form::Percent, "min") => return Some(Wanted::Min),
            (Form::KHz | Form::MHz | Form::Ratio | Form::Percent | Form::MicroWatts, "max") => {
                return Some(Wanted::Max);
            }
            // The uncore has a range, but no base frequency.
            (Form::KHz | Form::MHz | Form::Ratio, "base") if !is_uncore(knob.id) => {
                return Some(Wanted::Base);
            }
            (Form::KHz | Form::MHz | Form::Ratio, "nominal") if !is_uncore(knob.id) => {
                return Some(Wanted::Nominal);
            }
            (Form::KHz, "efficient") if is_limit(knob.id) => return Some(Wanted::Efficient),
            (Form::KHz, share) if is_limit(knob.id) && share.ends_with('%') => {
                return percent(share).filter(|share| share.0 > 0).map(Wanted::Share);
            }
            (Form::KHz | Form::MHz | Form::Ratio, _) => Value::Frequency(text.parse().ok()?),
            (Form::Percent, _) => Value::Percent(percent(&lower)?),
            (Form::Switch | Form::InvertedSwitch | Form::Enabled, _) => Value::Switch(switch(text)?),
            (Form::Micros, _) => Value::Time(text.parse().ok()?),
            (Form::LatencyLimit, "no-limit" | "none" | "any" | "max") => Value::Word("no-limit".to_owned()),
            (Form::LatencyLimit, "n/a" | "min") => Value::Word("n/a".to_owned()),
            // The exit latency of that idle state.
            (Form::LatencyLimit, state) if is_idle_state(state) => {
                return Some(Wanted::UpTo(text.to_owned()));
            }
            (Form::LatencyLimit, _) => match text.parse().ok()? {
                // In the file 0 means no limit, the opposite of 0us.
                Micros(0) => Value::Word("n/a".to_owned()),
                // The file holds an s32, and PM_QOS_RESUME_LATENCY_NO_CONSTRAINT is its largest
                // value (include/linux/pm_qos.h). pm_qos_resume_latency_us_store refuses that
                // number.
                Micros(time) if time < 2_147_483_647 => Value::Time(Micros(time)),
                Micros(_) => return None,
            },
            (Form::MicroWatts, _) => Value::Power(text.parse().ok()?),
            (Form::Epp, _) => match lower.parse::<u64>() {
                Ok(number) => Value::Epp(Epp(u8::try_from(number).ok()?)),
                // EPB and x86_energy_perf_policy spell it `balance-performance`.
                Err(_) if is_plain_word(&lower) => Value::Word(lower.replace('-', "_")),
                Err(_) => return None,
            },
            (Form::Epb, "normal") => return Some(Wanted::Normal),
            (Form::Epb, _) => Value::Epb(Epb::named(&lower.replace('_', "-"))?),
            (Form::Perf, _) => Value::Perf(Perf(lower.parse().ok()?)),
            (Form::Count, _) => Value::Count(lower.parse().ok()?),
            (Form::Word, _) if is_plain_word(text) => Value::Word(text.to_owned()),
            _ => return None,
        };
        Some(Wanted::Exactly(value))
    }
}

/// Parses a percentage of at most 100, with or without `%`.
fn percent(text: &str) -> Option<Percent> {
    let percent: u32 = text.strip_suffix('%').unwrap_or(text).trim_end().parse().ok()?;
    (percent <= 100).then_some(Percent(percent))
}

/// Returns whether the knob limits the frequencies of a policy.
fn is_limit(id: Id) -> bool {
    matches!(id, Id::MinFreq | Id::MaxFreq)
}

/// Parses wanted idle states: a switch for the named instance, or a depth. A bare 0 or 1 is a
/// state's number.
fn idle_state(text: &str) -> Wanted {
    match (switch(text), text.parse::<Micros>()) {
        // cpuidle's states have numbers, so 0 and 1 are not a switch here.
        (Some(on), _) if !matches!(text, "0" | "1") => Wanted::Exactly(Value::Switch(on)),
        (None, Ok(latency)) => Wanted::WithinLatency(latency),
        _ if text.eq_ignore_ascii_case("all") => Wanted::Exactly(Value::Switch(true)),
        _ if text.eq_ignore_ascii_case("default") => Wanted::Default,
        _ => Wanted::UpTo(text.to_owned()),
    }
}

fn partition_cpus(text: &str) -> Option<Wanted> {
    let word = match text.parse::<CpuList>() {
        _ if text.eq_ignore_ascii_case("none") => "none".to_owned(),
        Ok(cpus) if !cpus.is_empty() => cpus.to_string(),
        _ => return None,
    };
    Some(Wanted::Exactly(Value::Word(word)))
}

pub(crate) fn is_uncore(id: Id) -> bool {
    id.knob().scope == crate::Scope::Uncore
}

fn is_plain_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/'))
}
