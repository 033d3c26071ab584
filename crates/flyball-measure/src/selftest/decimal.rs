//! Decimal numbers as bc has them: digits and a scale, quotients cut off, never rounded.

use std::fmt;

/// A number that is exactly `digits / 10^scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    digits: i128,
    scale: u32,
}

impl Decimal {
    /// Reads `12`, `-0.5`, `.5`, at most 18 digits. No exponents: bc has none.
    pub fn parse(text: &str) -> Option<Decimal> {
        let text = text.trim();
        let (negative, plain) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, part) = plain.split_once('.').unwrap_or((plain, ""));
        let all = format!("{whole}{part}");
        // i128 holds 18 digits aligned to 18 decimals (`minus`); products and quotients are
        // checked.
        if all.is_empty() || all.len() > 18 || !all.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits: i128 = all.parse().ok()?;
        Some(Decimal { digits: if negative { -digits } else { digits }, scale: part.len() as u32 })
    }

    /// The nearest binary number.
    pub fn to_f64(self) -> f64 {
        // Via text: the division by a power of ten would round twice.
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    fn power(scale: u32) -> i128 {
        10_i128.pow(scale)
    }

    /// `self - other`, exact.
    #[must_use]
    pub fn minus(self, other: Decimal) -> Decimal {
        let scale = self.scale.max(other.scale);
        let at = |number: Decimal| number.digits * Decimal::power(scale - number.scale);
        Decimal { digits: at(self) - at(other), scale }
    }

    /// `self` times a whole number, exact; `None` of results that do not fit.
    pub fn times(self, factor: i64) -> Option<Decimal> {
        Some(Decimal { digits: self.digits.checked_mul(i128::from(factor))?, scale: self.scale })
    }

    /// `self / other` cut off after `scale` digits, as bc does; `None` of a division by zero.
    pub fn over(self, other: Decimal, scale: u32) -> Option<Decimal> {
        if other.digits == 0 {
            return None;
        }
        let (numerator, denominator) = match (scale + other.scale).checked_sub(self.scale) {
            Some(more) => (self.digits.checked_mul(Decimal::power(more))?, other.digits),
            None => {
                let less = self.scale - scale - other.scale;
                (self.digits, other.digits.checked_mul(Decimal::power(less))?)
            }
        };
        // Integer division cuts towards zero, for negative numbers too, as bc does.
        Some(Decimal { digits: numerator / denominator, scale })
    }

    /// Whether both are the same number, however written.
    pub fn equals(self, other: Decimal) -> bool {
        self.minus(other).digits == 0
    }

    /// The number with the other sign.
    #[must_use]
    pub fn negated(self) -> Decimal {
        Decimal { digits: -self.digits, scale: self.scale }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.digits < 0 { "-" } else { "" };
        let size = self.digits.unsigned_abs();
        if self.scale == 0 {
            return write!(f, "{sign}{size}");
        }
        let power = Decimal::power(self.scale).unsigned_abs();
        write!(f, "{sign}{}.{:0width$}", size / power, size % power, width = self.scale as usize)
    }
}

/// A number as awk prints it by default: `%.6g`.
pub fn six_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value.is_finite() { "0".to_owned() } else { value.to_string() };
    }
    // Rounded first: 999999.5 becomes 1e+06, and only then is the exponent known.
    let scientific = format!("{value:.5e}");
    let exponent: i32 = scientific.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
    // The bounds of %g with six digits (C standard, fprintf).
    if !(-4..6).contains(&exponent) {
        let (mantissa, _) = scientific.split_once('e').unwrap_or((&scientific, ""));
        let mantissa = trim(mantissa);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    trim(&format!("{value:.*}", (5 - exponent) as usize)).to_owned()
}

fn trim(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).expect("a number")
    }

    #[test]
    fn quotients_are_cut_not_rounded() {
        // echo "scale=4; 99 * 2504.05 / 1563.67" | bc
        let quotient = decimal("2504.05").times(99).and_then(|work| work.over(decimal("1563.67"), 4));
        assert_eq!(quotient.map(|q| q.to_string()).as_deref(), Some("158.5378"));
        // echo "scale=4; -2 / 3" | bc gives -.6666.
        assert_eq!(decimal("-2").over(decimal("3"), 4), Some(decimal("-0.6666")));
        assert_eq!(
            decimal("1").over(decimal("865.78"), 9).map(|q| q.to_string()).as_deref(),
            Some("0.001155027")
        );
        assert_eq!(decimal("1").over(decimal("0.00"), 4), None);
        // echo "scale=4; .0000123456 / .1" | bc
        assert_eq!(decimal("0.0000123456").over(decimal("0.1"), 4), Some(decimal("0.0001")));
    }

    #[test]
    fn numbers_are_read_and_compared_by_value() {
        assert!(decimal(".5").equals(decimal("0.50")));
        assert!(decimal("-.4245").equals(decimal("-0.4245")));
        for bad in ["", "-", ".", "1e5", "1.2.3", "nan", "12345678901234567890", "١"] {
            assert_eq!(Decimal::parse(bad), None, "{bad}");
        }
        assert_eq!(decimal("-0.05").to_string(), "-0.05");
    }

    #[test]
    fn six_digits_are_awks() {
        // awk 'BEGIN { print 2310.5233333, 165.7763, 0.00117127912, 1092280.4, 100000, 1e-5/3,
        // 425.61333, 47.5 }'
        for (value, expected) in [
            (2_310.523_333_3, "2310.52"),
            (165.776_3, "165.776"),
            (0.001_171_279_12, "0.00117128"),
            (1_092_280.4, "1.09228e+06"),
            (100_000.0, "100000"),
            (1e-5 / 3.0, "3.33333e-06"),
            (425.613_33, "425.613"),
            (47.5, "47.5"),
            (0.0, "0"),
        ] {
            assert_eq!(six_digits(value), expected);
        }
    }
}
