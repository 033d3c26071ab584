//! Quantities with their units in the type. Kernel files contain bare integers, which only this
//! crate handles.

use std::{fmt, str::FromStr};

/// Why a text is not a quantity of the requested unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read '{text}': {accepted}")]
pub struct ParseUnitError {
    /// The text as given.
    pub text: String,
    /// The accepted form.
    pub accepted: &'static str,
}

macro_rules! integer_units {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default,
                 schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);
    )*};
}

integer_units! {
    /// Frequency in kHz, as in cpufreq files.
    KiloHertz(u64);
    /// Frequency in MHz, as in Speed Select.
    MegaHertz(u32);
    /// Energy in microjoules, as in powercap files.
    MicroJoules(u64);
    /// Power in microwatts, as in powercap files.
    MicroWatts(u64);
    /// Time in microseconds, as in QoS files.
    Micros(u64);
    /// Energy performance bias, 0 (performance) to 15 (power).
    Epb(u8);
    /// Energy performance preference as in the register, 0 (performance) to 255 (power).
    Epp(u8);
    /// An abstract performance level of CPPC or HWP, 0 to 255.
    Perf(u8);
    /// A whole percentage.
    Percent(u32);
}

impl Epb {
    /// The words of arch/x86/kernel/cpu/intel_epb.c that have the same number on all models.
    const WORDS: [(&'static str, u8); 4] =
        [("performance", 0), ("balance-performance", 4), ("balance-power", 8), ("power", 15)];

    /// Returns the bias that the kernel calls `normal` on a model of family 6 (`intel_epb_normal`,
    /// which differs on Alder Lake-L, Raptor Lake-P and Gracemont).
    pub fn normal(model: u32) -> Epb {
        Epb(if matches!(model, 0x9a | 0xba | 0xbe) { 7 } else { 6 })
    }

    /// Returns the bias for a number from 0 to 15 or for a word other than `normal`.
    pub fn named(text: &str) -> Option<Epb> {
        let word = Epb::WORDS.iter().find(|(word, _)| *word == text).map(|(_, number)| *number);
        word.or_else(|| text.parse().ok()).filter(|number| *number <= 15).map(Epb)
    }

    /// Returns the kernel's word for it on a model; `None` between the named values.
    pub fn word(self, model: u32) -> Option<&'static str> {
        if self == Epb::normal(model) {
            return Some("normal");
        }
        Epb::WORDS.iter().find(|(_, known)| *known == self.0).map(|(word, _)| *word)
    }
}

macro_rules! float_units {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);
    )*};
}

float_units! {
    /// Temperature in degrees Celsius.
    Celsius;
    /// Energy in joules.
    Joules;
    /// Power in watts.
    Watts;
}

/// Splits `2.6GHz` into the exact decimal number and the unit in lower case.
fn split_unit(text: &str) -> Option<(&str, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    if digits.is_empty() || digits.matches('.').count() > 1 || digits == "." {
        return None;
    }
    Some((digits, unit.trim().to_ascii_lowercase()))
}

/// Returns `digits` times `scale`, exactly; `None` if a fraction remains or the value does not fit.
fn scaled(digits: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut value = whole.checked_mul(scale)?;
    let mut place = scale;
    for digit in fraction.bytes() {
        let digit = u64::from(digit - b'0');
        // Refuse what is not exact: 0.0000001GHz is not a number of kHz.
        if digit != 0 && !place.is_multiple_of(10) {
            return None;
        }
        place /= 10;
        value = value.checked_add(digit.checked_mul(place)?)?;
    }
    Some(value)
}

/// Parses a number with one of these units.
fn parse(text: &str, scales: [(&str, u64); 3], accepted: &'static str) -> Result<u64, ParseUnitError> {
    let value = || {
        let (digits, unit) = split_unit(text)?;
        let (_, scale) = scales.into_iter().find(|(name, _)| *name == unit)?;
        scaled(digits, scale)
    };
    value().ok_or_else(|| ParseUnitError { text: text.to_owned(), accepted })
}

impl FromStr for KiloHertz {
    type Err = ParseUnitError;

    /// Parses a frequency with its unit. A bare number is refused: cpupower reads it as kHz, pepc
    /// as Hz and PerfSpect as GHz.
    fn from_str(text: &str) -> Result<KiloHertz, ParseUnitError> {
        const ACCEPTED: &str = "give the frequency with its unit: 2.6GHz, 2600MHz or 2600000kHz";
        parse(text, [("khz", 1), ("mhz", 1_000), ("ghz", 1_000_000)], ACCEPTED).map(KiloHertz)
    }
}

impl FromStr for MicroWatts {
    type Err = ParseUnitError;

    /// Parses a power with its unit: `65W`, `1500mW`.
    fn from_str(text: &str) -> Result<MicroWatts, ParseUnitError> {
        const ACCEPTED: &str = "give the power with its unit: 65W, 12.5W or 500mW";
        parse(text, [("uw", 1), ("mw", 1_000), ("w", 1_000_000)], ACCEPTED).map(MicroWatts)
    }
}

impl FromStr for Micros {
    type Err = ParseUnitError;

    /// Parses a time with its unit: `20us`, `1ms`, `0.5s`.
    fn from_str(text: &str) -> Result<Micros, ParseUnitError> {
        const ACCEPTED: &str = "give the time with its unit: 20us, 1ms or 0.5s";
        parse(text, [("us", 1), ("ms", 1_000), ("s", 1_000_000)], ACCEPTED).map(Micros)
    }
}

/// Formats `value / scale` exactly, without trailing zeros.
fn decimal(value: u64, scale: u64) -> String {
    // Use integers: a float would not print every value exactly.
    let width = scale.ilog10() as usize;
    let fraction = format!("{:0width$}", value % scale);
    match fraction.trim_end_matches('0') {
        "" => (value / scale).to_string(),
        digits => format!("{}.{digits}", value / scale),
    }
}

macro_rules! printed {
    ($($(#[$doc:meta])* $name:ident($value:ident) => $text:expr;)*) => {$(
        impl fmt::Display for $name {
            $(#[$doc])*
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $value = self.0;
                f.pad(&$text)
            }
        }
    )*};
}

printed! {
    /// Formats GHz with as many digits as the value has, at least one: `2.6 GHz`, `4.679 GHz`;
    /// below 1 GHz in MHz.
    KiloHertz(value) => {
        let (scale, unit) = if value >= 1_000_000 { (1_000_000, "GHz") } else { (1_000, "MHz") };
        format!("{} {unit}", decimal(value, scale))
    };
    MegaHertz(value) => format!("{value} MHz");
    MicroWatts(value) => format!("{} W", decimal(value, 1_000_000));
    MicroJoules(value) => format!("{} J", decimal(value, 1_000_000));
    Micros(value) => format!("{value} us");
    Celsius(value) => format!("{value:.1} C");
    Joules(value) => format!("{value:.3} J");
    Watts(value) => format!("{value:.2} W");
}

impl From<MegaHertz> for KiloHertz {
    fn from(frequency: MegaHertz) -> KiloHertz {
        KiloHertz(u64::from(frequency.0) * 1_000)
    }
}

impl From<MicroJoules> for Joules {
    fn from(energy: MicroJoules) -> Joules {
        Joules(energy.0 as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_need_a_unit() {
        assert_eq!("2.6GHz".parse(), Ok(KiloHertz(2_600_000)));
        assert_eq!("2600 MHz".parse(), Ok(KiloHertz(2_600_000)));
        assert_eq!("423077khz".parse(), Ok(KiloHertz(423_077)));
        for bad in
            ["2600000", "2.6", "GHz", "", "-1GHz", "2.6.1GHz", "1.5kHz", "99999999999999999GHz", "2,6GHz"]
        {
            assert!(bad.parse::<KiloHertz>().is_err(), "{bad}");
        }
    }

    #[test]
    fn quantities_print_exactly() {
        assert_eq!(KiloHertz(2_600_000).to_string(), "2.6 GHz");
        assert_eq!(KiloHertz(4_679_000).to_string(), "4.679 GHz");
        assert_eq!(KiloHertz(800_000).to_string(), "800 MHz");
        assert_eq!(MicroWatts(12_500_000).to_string(), "12.5 W");
        assert_eq!("12.5W".parse(), Ok(MicroWatts(12_500_000)));
        assert_eq!("0.5s".parse(), Ok(Micros(500_000)));
    }
}
