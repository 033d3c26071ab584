//! What a user asks for: the text after `KNOB=`, read without a machine at hand, and resolved on one later.
//!
//! Two stages. [`Wanted::parse`] checks the syntax and the type with the table alone, so that a mistyped profile fails
//! before a machine is touched; [`crate::Machine::resolve`] gives words such as `max` their value at a place.

use std::fmt;

use flyball_host::{CpuList, Epb, Epp, KiloHertz, MicroWatts, Micros, Percent, Perf};
use serde::{Deserialize, Serialize};

use crate::{Form, Id, Knob, Value};

/// A wanted value of a knob.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    /// This value.
    Exactly(Value),
    /// The lowest that the hardware allows there.
    Min,
    /// The highest that the hardware allows there.
    Max,
    /// The guaranteed frequency.
    Base,
    /// The nominal frequency of CPPC.
    Nominal,
    /// Of idle states: allow those up to the state of this name or number, forbid the deeper ones.
    UpTo(String),
    /// Of idle states: allow those with at most this exit latency.
    WithinLatency(Micros),
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Exactly(value) => value.fmt(f),
            Wanted::Min => f.write_str("min"),
            Wanted::Max => f.write_str("max"),
            Wanted::Base => f.write_str("base"),
            Wanted::Nominal => f.write_str("nominal"),
            Wanted::UpTo(state) => f.write_str(state),
            Wanted::WithinLatency(time) => time.fmt(f),
        }
    }
}

/// The text is not a value of the knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedError {
    /// The knob.
    pub knob: Id,
    /// The text as given.
    pub text: String,
    /// What would be accepted.
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

/// The value is well-formed, but not one that this machine takes at this place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolveError {
    /// The value itself is refused.
    Refused {
        /// The knob.
        knob: Id,
        /// The value as asked for.
        wanted: String,
        /// Where.
        place: String,
        /// What is accepted there.
        accepted: String,
    },
    /// What the decision needs cannot be read.
    Read(crate::ReadError),
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResolveError::Refused { knob, wanted, place, accepted } => {
                write!(f, "{knob}={wanted} is not possible on {place}: {accepted}")
            }
            ResolveError::Read(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResolveError {}

impl From<crate::ReadError> for ResolveError {
    fn from(error: crate::ReadError) -> ResolveError {
        ResolveError::Read(error)
    }
}

fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" | "1" | "enabled" | "enable" => Some(true),
        "off" | "no" | "false" | "0" | "disabled" | "disable" => Some(false),
        _ => None,
    }
}

impl Wanted {
    /// Reads `text` as a value of `knob`.
    ///
    /// # Errors
    /// Naming the accepted values, where the text is none of them or the row is a fact.
    pub fn parse(knob: &Knob, text: &str) -> Result<Wanted, WantedError> {
        let text = text.trim();
        let refuse = |accepted: String| WantedError { knob: knob.id, text: text.to_owned(), accepted };
        if knob.control().is_none() {
            return Err(refuse(String::new()));
        }
        let error = || refuse(knob.accepts().to_owned());
        let lower = text.to_ascii_lowercase();
        if text.is_empty() || text.len() > 200 || text.contains(char::is_control) {
            return Err(error());
        }
        let exactly = |value: Value| Ok(Wanted::Exactly(value));
        if knob.id == Id::IdleState {
            return match (switch(text), text.parse::<Micros>()) {
                (Some(on), _) if !matches!(text, "0" | "1") => exactly(Value::Switch(on)),
                (None, Ok(latency)) => Ok(Wanted::WithinLatency(latency)),
                _ if lower == "all" => exactly(Value::Switch(true)),
                _ => Ok(Wanted::UpTo(text.to_owned())),
            };
        }
        if knob.id == Id::SstApart {
            return match text.parse::<CpuList>() {
                _ if lower == "none" => exactly(Value::Word(lower)),
                Ok(cpus) if !cpus.is_empty() => exactly(Value::Word(cpus.to_string())),
                _ => Err(error()),
            };
        }
        match knob.form() {
            Form::KHz | Form::MHz | Form::Ratio => match lower.as_str() {
                "min" => Ok(Wanted::Min),
                "max" => Ok(Wanted::Max),
                "base" if !is_uncore(knob.id) => Ok(Wanted::Base),
                "nominal" if !is_uncore(knob.id) => Ok(Wanted::Nominal),
                _ => match text.parse::<KiloHertz>() {
                    Ok(frequency) => exactly(Value::Frequency(frequency)),
                    Err(_) => Err(error()),
                },
            },
            Form::Percent => match lower.as_str() {
                "min" => Ok(Wanted::Min),
                "max" => Ok(Wanted::Max),
                _ => match lower.trim_end_matches('%').trim_end().parse::<u32>() {
                    Ok(percent @ 0..=100) => exactly(Value::Percent(Percent(percent))),
                    _ => Err(error()),
                },
            },
            Form::Switch | Form::InvertedSwitch | Form::Enabled => match switch(text) {
                Some(on) => exactly(Value::Switch(on)),
                None => Err(error()),
            },
            Form::Micros => match text.parse::<Micros>() {
                Ok(time) => exactly(Value::Time(time)),
                Err(_) => Err(error()),
            },
            Form::LatencyLimit => match lower.as_str() {
                "no-limit" | "none" | "any" | "max" => exactly(Value::Word("no-limit".to_owned())),
                "n/a" | "min" => exactly(Value::Word("n/a".to_owned())),
                // A file content of 0 means no limit: 0us would turn into its opposite.
                _ => match text.parse::<Micros>() {
                    Ok(Micros(0)) => exactly(Value::Word("n/a".to_owned())),
                    Ok(Micros(time)) if time < 2_147_483_647 => exactly(Value::Time(Micros(time))),
                    _ => Err(error()),
                },
            },
            Form::MicroWatts => match lower.as_str() {
                "max" => Ok(Wanted::Max),
                _ => match text.parse::<MicroWatts>() {
                    Ok(power) => exactly(Value::Power(power)),
                    Err(_) => Err(error()),
                },
            },
            Form::Epp => match lower.parse::<u64>() {
                Ok(number @ 0..=255) => exactly(Value::Epp(Epp(number as u8))),
                Ok(_) => Err(error()),
                // `balance-performance` is how EPB and x86_energy_perf_policy spell it.
                Err(_) if is_plain_word(&lower) => exactly(Value::Word(lower.replace('-', "_"))),
                Err(_) => Err(error()),
            },
            Form::Epb => match Epb::named(&lower.replace('_', "-")) {
                Some(bias) => exactly(Value::Epb(bias)),
                None => Err(error()),
            },
            Form::Perf => match lower.parse::<u8>() {
                Ok(level) => exactly(Value::Perf(Perf(level))),
                Err(_) => Err(error()),
            },
            Form::Count => match lower.parse::<u64>() {
                Ok(count) => exactly(Value::Count(count)),
                Err(_) => Err(error()),
            },
            Form::Word if is_plain_word(text) => exactly(Value::Word(text.to_owned())),
            _ => Err(error()),
        }
    }
}

pub(crate) fn is_uncore(id: Id) -> bool {
    id.knob().scope == crate::Scope::Uncore
}

fn is_plain_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/'))
}
