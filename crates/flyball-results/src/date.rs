//! Times as files and options write them.

use flyball_measure::render::civil;

/// The date of a time in milliseconds since 1970: `2026-01-31`.
pub fn date(milliseconds: u64) -> String {
    let (year, month, day) = civil(milliseconds / 86_400_000);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The month, as partitions are named: `2026-01`.
pub(crate) fn month(milliseconds: u64) -> String {
    let (year, month, _) = civil(milliseconds / 86_400_000);
    format!("{year:04}-{month:02}")
}

/// Date and time without separators, for file names: `20260131T235900`.
pub(crate) fn stamp(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let time = format!("{:02}{:02}{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{}T{time}", date(milliseconds).replace('-', ""))
}

/// Reads `2026-01-31`, `2026-01-31 12:00:00.5`, `2026-01-31T12:00:00+02:00` or `...Z` as
/// milliseconds since 1970. Without a zone it is UTC.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let is = |at: usize, bytes: &[u8]| text.as_bytes().get(at).is_some_and(|byte| bytes.contains(byte));
    if !is(4, b"-") || !is(7, b"-") || !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    if !(1..=31).contains(&day) {
        return None;
    }
    let mut seconds = days(year, month, day) * 86_400;
    let mut rest = text.get(10..)?;
    let mut milliseconds = 0;
    if !rest.is_empty() {
        if !is(10, b"T ") || !is(13, b":") || !is(16, b":") {
            return None;
        }
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        seconds += hour * 3600 + minute * 60 + second;
        rest = text.get(19..)?;
        if let Some(fraction) = rest.strip_prefix('.') {
            let count = fraction.bytes().take_while(u8::is_ascii_digit).count();
            milliseconds = format!("{:0<3}", fraction.get(..count.min(3))?).parse().ok()?;
            rest = fraction.get(count..)?;
        }
        match rest {
            "" | "Z" => {}
            zone => {
                let sign = if zone.starts_with('+') { 1 } else { -1 };
                let zone = zone.strip_prefix(['+', '-'])?.replace(':', "");
                let two = |from: usize| zone.get(from..from + 2)?.parse::<i64>().ok();
                if zone.len() != 4 || !zone.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                seconds -= sign * (two(0)? * 3600 + two(2)? * 60);
            }
        }
    }
    u64::try_from(seconds).ok()?.checked_mul(1000)?.checked_add(milliseconds)
}

/// Days since 1970 of a date; the inverse of [`civil`], by the same algorithm.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_era = year % 400;
    let from_march = (month + 9) % 12;
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    year / 400 * 146_097 + days - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for (text, expected) in [
            ("1970-01-01", Some(0)),
            ("2026-01-31", Some(1_769_817_600_000)),
            ("2026-01-31T12:00:00+02:00", Some(1_769_853_600_000)),
            ("2026-01-31T05:00:00-0500", Some(1_769_853_600_000)),
            ("2026-01-31 10:00:00.123456", Some(1_769_853_600_123)),
            ("2026-01-31T10:00:00Z", Some(1_769_853_600_000)),
            ("2026-13-01", None),
            ("2026-01-31T25:00:00", None),
            ("2026-01-31T10:00:00é", None),
            ("yesterday", None),
            ("1969-12-31", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
        for day in [0, 59, 11_016, 20_778, 40_000] {
            assert_eq!(parse(&date(day * 86_400_000)), Some(day * 86_400_000));
        }
        assert_eq!(stamp(1_769_853_600_123), "20260131T100000");
    }
}
