//! Energy performance preferences as the kernel shows them. The number that a word stands for
//! depends on driver, kernel, model and kind of core, so words and numbers are not compared with
//! each other.

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

/// The words of both drivers, the most eager first.
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

/// Words follow the numbers in samples.
const FIRST_WORD: u64 = 256;

impl Preference {
    /// Returns what a file of a driver shows; `None` for other words, as `default`.
    pub(crate) fn parse(text: &str) -> Option<Preference> {
        let number = text.parse().ok().map(Preference::Number);
        number.or_else(|| text.parse().ok().map(Preference::Word))
    }

    /// Returns its number in samples.
    pub(crate) fn code(self) -> u64 {
        match self {
            Preference::Number(number) => number.into(),
            Preference::Word(word) => FIRST_WORD + word as u64,
        }
    }

    /// Returns the preference of a number in samples.
    pub fn from_code(code: u64) -> Option<Preference> {
        match u8::try_from(code) {
            Ok(number) => Some(Preference::Number(number)),
            Err(_) => {
                let words = <PreferenceWord as strum::VariantArray>::VARIANTS;
                words.get((code - FIRST_WORD) as usize).copied().map(Preference::Word)
            }
        }
    }

    /// Returns whether a CPU that runs all the time gets all that there is: up to
    /// `balance_performance`, which is 128 where a number means the most for it.
    pub(crate) fn is_eager(self) -> bool {
        match self {
            Preference::Number(number) => number <= 128,
            Preference::Word(word) => word <= PreferenceWord::BalancePerformance,
        }
    }

    /// Returns whether it gives nothing up for energy.
    pub(crate) fn is_performance(self) -> bool {
        matches!(self, Preference::Number(0) | Preference::Word(PreferenceWord::Performance))
    }

    /// Returns whether another is known to prefer speed more.
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
