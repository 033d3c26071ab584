//! Dates and times in UTC.

/// A calendar time in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc {
    year: u64,
    month: u64,
    day: u64,
    second_of_day: u64,
}

impl Utc {
    /// From seconds since 1970.
    pub fn from_seconds(seconds: u64) -> Utc {
        // Howard Hinnant, chrono-compatible low-level date algorithms. Counted from 0000-03-01, so
        // that leap days come last; eras are 400 years of 146097 days.
        let shifted = seconds / 86_400 + 719_468;
        let (era, of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // From March on the months repeat 31, 30, 31, 30, 31 days: 153 in five.
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        Utc { year, month, day, second_of_day: seconds % 86_400 }
    }

    /// `2026-01`.
    pub fn month(self) -> String {
        format!("{:04}-{:02}", self.year, self.month)
    }

    /// `2026-01-31`.
    pub fn date(self) -> String {
        format!("{}-{:02}", self.month(), self.day)
    }

    /// `2026-01-31 23:59 UTC`, for people.
    pub fn minute(self) -> String {
        let (hour, minute, _) = self.clock();
        format!("{} {hour:02}:{minute:02} UTC", self.date())
    }

    /// `20260131-235959`, for names of files.
    pub fn stamp(self) -> String {
        let (hour, minute, second) = self.clock();
        format!("{}-{hour:02}{minute:02}{second:02}", self.date().replace('-', ""))
    }

    fn clock(self) -> (u64, u64, u64) {
        (self.second_of_day / 3600, self.second_of_day / 60 % 60, self.second_of_day % 60)
    }
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

/// Days since 1970 of a date: the inverse of [`Utc::from_seconds`], by the same algorithm.
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
            assert_eq!(parse(&Utc::from_seconds(day * 86_400).date()), Some(day * 86_400_000));
        }
        let time = Utc::from_seconds(1_769_853_659);
        assert_eq!(time.stamp(), "20260131-100059");
        assert_eq!(time.minute(), "2026-01-31 10:00 UTC");
        assert_eq!(time.month(), "2026-01");
    }
}
