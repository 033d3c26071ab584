//! Numbers as text: probabilities, percentages, and values with enough digits.

use crate::stats::Interval;

/// A probability with as many digits as it deserves.
pub fn probability(p: f64) -> String {
    if p < 0.0001 {
        "<0.0001".to_owned()
    } else if p < 0.1 {
        if p < 0.001 { format!("{p:.4}") } else { format!("{p:.3}") }
    } else {
        format!("{p:.2}")
    }
}

/// A probability with its letter: `p = 0.002`, `p < 0.0001`.
pub fn p_value(p: f64) -> String {
    let text = probability(p);
    match text.strip_prefix('<') {
        Some(bound) => format!("p < {bound}"),
        None => format!("p = {text}"),
    }
}

/// An interval of changes: `-0.4 to +1.2 %`.
pub(crate) fn between(interval: Interval) -> String {
    format!("{} to {}", percent(interval.low).trim_end_matches(" %"), percent(interval.high))
}

/// Returns whether a number of this size is written with an exponent.
fn has_exponent(size: f64) -> bool {
    size >= 1e7 || (size > 0.0 && size < 1e-4)
}

/// A number with at least four significant digits, without grouping.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        "-".to_owned()
    } else if has_exponent(size) {
        format!("{value:.3e}")
    } else {
        // Capped at eight: below 1e-4 the form with an exponent is used in any case.
        let digits = if size == 0.0 { 0 } else { (3 - size.log10().floor() as i32).clamp(0, 8) as usize };
        format!("{value:.digits$}")
    }
}

/// A count of which only two digits are known.
pub fn two_digits(count: usize) -> usize {
    let unit = 10_usize.pow(count.max(10).ilog10() - 1);
    count.div_ceil(unit).saturating_mul(unit)
}

/// A fraction as a signed percentage: `+2.04 %`. Only zero looks like zero.
pub fn percent(fraction: f64) -> String {
    let value = fraction * 100.0;
    let size = value.abs();
    if !value.is_finite() {
        return "-".to_owned();
    }
    if size < 1e-7 {
        return "+0.00 %".to_owned();
    }
    if has_exponent(size) {
        return format!("{value:+.1e} %");
    }
    let digits = match size {
        10.0.. => 1,
        0.01.. => 2,
        _ => (1 - size.log10().floor() as i32) as usize,
    };
    format!("{value:+.digits$} %")
}

/// The size of a fraction as a percentage without a sign: `2.04 %`.
pub fn unsigned(fraction: f64) -> String {
    percent(fraction.abs()).trim_start_matches('+').to_owned()
}

/// Returns by which fraction a level changed. None unless both are above zero: otherwise a fraction
/// says nothing and can have the wrong sign.
pub fn relative(before: f64, after: f64) -> Option<f64> {
    let change = after / before - 1.0;
    (before > 0.0 && after > 0.0 && change.is_finite()).then_some(change)
}

/// A confidence as a percentage without its sign, `99` or `99.99`: never rounded to 100.
pub fn level(confidence: f64) -> String {
    // Display of f64 has no trailing zeros; the rounding removes what 0.99 * 100 adds in binary.
    ((confidence * 1e4).round() / 1e2).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits() {
        assert_eq!(number(1.23456), "1.235");
        assert_eq!(number(12345.6), "12346");
        assert_eq!(number(0.001_155_03), "0.001155");
        assert_eq!(number(0.0), "0");
        assert_eq!(number(2.5e-7), "2.500e-7");
        assert_eq!(number(f64::NAN), "-");
        assert_eq!(percent(0.0204), "+2.04 %");
        assert_eq!(percent(-0.347), "-34.7 %");
        assert_eq!(percent(-0.000_012), "-0.0012 %");
        assert_eq!(percent(-0.0), "+0.00 %");
        assert_eq!([3.4e-9, -3.4e189, 99_999.0].map(percent), ["+3.4e-7 %", "-3.4e191 %", "+9999900.0 %"]);
        assert_eq!(relative(2.0, 3.0), Some(0.5));
        let others =
            [(-0.948, 1.003), (-9.994, -8.018), (-1.0, -2.0), (0.0, 5.0), (5.0, 0.0), (1e-200, 1e200)];
        assert_eq!(others.map(|(before, after)| relative(before, after)), [None; 6]);
        assert_eq!(percent(f64::INFINITY), "-");
        assert_eq!(["0.99", "0.995", "0.9999"].map(|c| level(c.parse().unwrap())), ["99", "99.5", "99.99"]);
        assert_eq!(probability(0.000_01), "<0.0001");
        assert_eq!(probability(0.001_953), "0.002");
        assert_eq!(probability(0.43), "0.43");
        assert_eq!([p_value(0.000_01), p_value(0.43)], ["p < 0.0001", "p = 0.43"]);
    }
}
