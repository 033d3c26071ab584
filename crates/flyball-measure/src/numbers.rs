//! Numbers as text: probabilities, percentages, and values with enough digits.

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

/// A time in seconds since 1970 as date and time of day: `2026-01-31 23:59 UTC`.
pub fn date(seconds: u64) -> String {
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", seconds / 3600 % 24, seconds / 60 % 60)
}

/// The date of a day since 1970, counting years from March so that leap days come last.
pub fn civil(days: u64) -> (u64, u64, u64) {
    // The days from 0000-03-01 to 1970-01-01; eras are 400 years of 146097 days (Howard Hinnant,
    // chrono-compatible low-level date algorithms). Written out, because a date in a directory's
    // name is not worth a dependency.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // From March on the months repeat 31, 30, 31, 30, 31 days: 153 in five.
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// A number with four significant digits at least, grouped in no way.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        "-".to_owned()
    } else if size >= 1e7 || (size > 0.0 && size < 1e-4) {
        format!("{value:.3e}")
    } else {
        // Capped at eight: below 1e-4 the form with an exponent is used in any case.
        let digits = if size == 0.0 { 0 } else { (3 - size.log10().floor() as i32).clamp(0, 8) as usize };
        format!("{value:.digits$}")
    }
}

/// A fraction as a signed percentage: `+2.04 %`. What is not zero does not look like zero.
pub fn percent(fraction: f64) -> String {
    let value = fraction * 100.0;
    let size = value.abs();
    if !value.is_finite() {
        return "-".to_owned();
    }
    if size < 1e-7 {
        return "+0.00 %".to_owned();
    }
    let digits = match size {
        10.0.. => 1,
        0.01.. => 2,
        _ => (1 - size.log10().floor() as i32) as usize,
    };
    format!("{value:+.digits$} %")
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
        assert_eq!(percent(f64::INFINITY), "-");
        assert_eq!(["0.99", "0.995", "0.9999"].map(|c| level(c.parse().unwrap())), ["99", "99.5", "99.99"]);
        assert_eq!(probability(0.000_01), "<0.0001");
        assert_eq!(probability(0.001_953), "0.002");
        assert_eq!(probability(0.43), "0.43");
        assert_eq!([p_value(0.000_01), p_value(0.43)], ["p < 0.0001", "p = 0.43"]);
    }

    #[test]
    fn dates_are_right() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_778), (2026, 11, 21));
        assert_eq!(date(86_399), "1970-01-01 23:59 UTC");
    }
}
