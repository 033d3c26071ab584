//! Time spans as users write them: `500ms`, `10s`, `1.5h`, `1min 30s`.

use std::{fmt, time::Duration};

/// A text that is not a time span.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is not a time; write 500ms, 10s, 5min, 1h 30min or 7d", .text)]
pub struct SpanError {
    /// As the user wrote it.
    pub text: String,
}

/// Reads a time span: one or more numbers with units, which add up. A single number without a unit
/// is in seconds, as for sleep(1). Fractions are allowed.
///
/// # Errors
/// The text is not a time span.
pub fn parse(text: &str) -> Result<Duration, SpanError> {
    sum(text.trim()).ok_or_else(|| SpanError { text: text.to_owned() })
}

fn sum(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        let number: f64 = number.parse().ok()?;
        let tail = tail.trim_start();
        let end = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let scale = match unit {
            "" if rest.len() == text.len() && tail.is_empty() => 1.0,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" | "sec" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number * scale).ok()?)?;
        rest = tail.trim_start();
        if rest.is_empty() {
            return Some(total);
        }
    }
}

/// A time span in its largest whole unit, as [`parse`] reads it: `30s`, `5min`, `2h`, `250ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compact(pub Duration);

impl fmt::Display for Compact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.as_secs(), self.0.subsec_nanos()) {
            (0, nanos) if nanos != 0 && nanos % 1_000_000 == 0 => write!(f, "{}ms", nanos / 1_000_000),
            (_, 1..) => write!(f, "{}s", self.0.as_secs_f64()),
            (seconds @ 1.., _) if seconds % 3600 == 0 => write!(f, "{}h", seconds / 3600),
            (seconds @ 1.., _) if seconds % 60 == 0 => write!(f, "{}min", seconds / 60),
            (seconds, _) => write!(f, "{seconds}s"),
        }
    }
}

/// A time span in words, rounded to the digits that matter: `1 h 5 min`, `3 min 20 s`.
pub fn words(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        // Tenths matter only for the shortest times.
        (0, 0, 0..3) => format!("{seconds:.1} s"),
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h @ ..48, m, _) => format!("{h} h {m} min"),
        (h, _, _) => format!("{} days", h / 24),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_read_and_add_up() {
        for (text, milliseconds) in [
            ("90", 90_000),
            ("0.25", 250),
            ("500ms", 500),
            ("1500us", 1),
            ("2s", 2000),
            ("2 sec", 2000),
            (" 1.5min ", 90_000),
            ("5m", 300_000),
            ("1h30min", 5_400_000),
            ("1 h 30 min", 5_400_000),
            ("7d", 604_800_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text).map(|span| span.as_millis()), Ok(milliseconds), "{text}");
        }
        let bad =
            ["", "s", "-5s", "+5s", "5x", "1e3s", "inf", "nan", "1h 30", "30 1h", "1..5s", "5é", "9e99d"];
        for text in bad {
            assert_eq!(parse(text), Err(SpanError { text: text.to_owned() }));
        }
        assert!(parse(&format!("{}d", "9".repeat(400))).is_err());
    }

    #[test]
    fn spans_are_rounded_to_what_matters() {
        assert_eq!(words(3725.0), "1 h 2 min");
        assert_eq!(words(61.4), "1 min 1 s");
        let texts = [0, 250, 1500, 30_000, 300_000, 7_200_000].map(|ms| Compact(Duration::from_millis(ms)));
        assert_eq!(texts.map(|text| text.to_string()), ["0s", "250ms", "1.5s", "30s", "5min", "2h"]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,20}") {
            let _ = parse(&text);
        }

        #[test]
        fn compact_spans_are_read_back(milliseconds in 0_u64..1_000_000_000) {
            let span = Duration::from_millis(milliseconds);
            prop_assert_eq!(parse(&Compact(span).to_string()).map(|span| span.as_millis()), Ok(span.as_millis()));
        }
    }
}
