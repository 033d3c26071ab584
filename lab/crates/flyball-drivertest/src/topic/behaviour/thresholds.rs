//! A file of thresholds: changes from the baseline above which CI fails.

use super::figures::Quantity;

/// The thresholds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thresholds(Vec<Threshold>);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Threshold {
    quantity: Quantity,
    /// Signed limit: a rise beyond a positive limit or a fall beyond a negative one exceeds it.
    limit: f64,
}

impl Thresholds {
    /// Parses lines `QUANTITY = +N UNIT`; `#` begins a comment.
    pub fn parse(text: &str) -> Result<Thresholds, String> {
        let mut all = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let at = |why: String| format!("line {}: {why}", number + 1);
            let (word, value) =
                line.split_once('=').ok_or_else(|| at(format!("'{line}' is not QUANTITY = +N UNIT")))?;
            let quantity = Quantity::ALL.into_iter().find(|quantity| quantity.word() == word.trim());
            let quantity = quantity.ok_or_else(|| {
                let words = Quantity::ALL.map(Quantity::word).join(", ");
                at(format!("unknown quantity '{}' (expected {words})", word.trim()))
            })?;
            let unit = quantity.change_unit();
            let value = value.trim();
            let signed = value.starts_with(['+', '-']);
            let limit = value.strip_suffix(unit).and_then(|number| number.trim().parse::<f64>().ok());
            let limit = limit.filter(|limit| signed && limit.is_finite());
            let limit = limit.ok_or_else(|| at(format!("'{value}' is not +N {unit} or -N {unit}")))?;
            all.push(Threshold { quantity, limit });
        }
        if all.is_empty() {
            return Err("it has no threshold".to_owned());
        }
        Ok(Thresholds(all))
    }

    /// The threshold of a quantity that a change exceeds with significance: the whole interval is
    /// beyond it.
    pub fn exceeded(&self, quantity: Quantity, low: f64, high: f64) -> Option<f64> {
        let own = self.0.iter().filter(|threshold| threshold.quantity == quantity);
        let mut beyond = own.filter(|threshold| {
            if threshold.limit.is_sign_negative() { high < threshold.limit } else { low > threshold.limit }
        });
        beyond.next().map(|threshold| threshold.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_read() {
        let read =
            Thresholds::parse("# CI\nenergy = +3 %  # per work\nfrequency=-2%\nreach = +1.5 ms\n").unwrap();
        assert_eq!(read.exceeded(Quantity::Energy, 3.1, 9.0), Some(3.0));
        // Not significant; in the other direction; of another quantity.
        assert_eq!(read.exceeded(Quantity::Energy, 2.9, 9.0), None);
        assert_eq!(read.exceeded(Quantity::Energy, -9.0, -4.0), None);
        assert_eq!(read.exceeded(Quantity::Time, 50.0, 60.0), None);
        assert_eq!(read.exceeded(Quantity::Frequency, -9.0, -2.5), Some(-2.0));
        assert_eq!(read.exceeded(Quantity::Frequency, -9.0, -1.5), None);
    }

    #[test]
    fn what_is_not_a_threshold_is_refused() {
        for (text, why) in [
            ("", "no threshold"),
            ("energy", "line 1: 'energy' is not"),
            ("\npower = +3 %", "line 2: unknown quantity 'power' (expected time, energy,"),
            ("energy = 3 %", "'3 %' is not +N %"),
            ("energy = +3 J", "is not +N %"),
            ("reach = +inf ms", "is not +N ms"),
            ("heat = + K", "is not +N K"),
        ] {
            assert!(Thresholds::parse(text).unwrap_err().contains(why), "{text}");
        }
    }
}
