//! Energy performance preferences as the kernel shows them. The number of a word depends on driver,
//! kernel, model and kind of core, so words and numbers cannot be compared with each other.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

/// A preference: a word of the driver, or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize)]
#[serde(untagged)]
pub enum Preference {
    /// 0 to 255.
    Number(u8),
    Word(PreferenceWord),
}

/// The words of both drivers, from performance to power saving.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    JsonSchema,
    Serialize,
    strum::Display,
    strum::EnumString,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PreferenceWord {
    Performance,
    BalancePerformance,
    BalancePower,
    Power,
}

/// In samples, codes of words follow the numbers.
const FIRST_WORD: u64 = 256;

impl Preference {
    /// Parses the content of a driver's file. `None` for other words, such as `default`.
    pub(crate) fn parse(text: &str) -> Option<Preference> {
        let number = text.parse().ok().map(Preference::Number);
        number.or_else(|| text.parse().ok().map(Preference::Word))
    }

    /// Returns the preference's code in samples.
    pub(crate) fn code(self) -> u64 {
        match self {
            Preference::Number(number) => number.into(),
            Preference::Word(word) => FIRST_WORD + word as u64,
        }
    }

    /// Returns the preference with this code in samples.
    pub fn from_code(code: u64) -> Option<Preference> {
        match u8::try_from(code) {
            Ok(number) => Some(Preference::Number(number)),
            Err(_) => {
                let words = <PreferenceWord as strum::VariantArray>::VARIANTS;
                words.get((code - FIRST_WORD) as usize).copied().map(Preference::Word)
            }
        }
    }

    /// Returns whether a CPU that runs all the time gets the full speed. This holds up to
    /// `balance_performance`, whose number is at most 128.
    pub(crate) fn is_eager(self) -> bool {
        match self {
            Preference::Number(number) => number <= 128,
            Preference::Word(word) => word <= PreferenceWord::BalancePerformance,
        }
    }

    /// Returns whether it gives up no speed for energy.
    pub(crate) fn is_performance(self) -> bool {
        matches!(self, Preference::Number(0) | Preference::Word(PreferenceWord::Performance))
    }

    /// Returns whether the other preference is known to favor speed more.
    pub(crate) fn is_behind(self, other: Preference) -> bool {
        match (self, other) {
            (Preference::Number(own), Preference::Number(other)) => other < own,
            (Preference::Word(own), Preference::Word(other)) => other < own,
            _ => false,
        }
    }
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Preference::Number(number) => number.fmt(f),
            Preference::Word(word) => word.fmt(f),
        }
    }
}
