//! The wall clock, for what is named or numbered by it, and times as people read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flyball_host::Host;
use flyball_measure::render::civil;

/// A time in words: `1 h 5 min`, `3 min 20 s`.
pub fn words(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        // Tenths matter for the shortest times only.
        (0, 0, 0..3) => format!("{seconds:.1} s"),
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// The wall clock, for records of when something was done.
pub fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A seed from the clock: five digits are enough, and can be typed again.
pub fn arbitrary_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64 % 100_000)
}

/// Reads a time with its unit, as options take it.
///
/// # Errors
/// What is expected.
pub fn duration(text: &str) -> Result<Duration, String> {
    let error = || "give a time with its unit: 500ms, 10s or 5min".to_owned();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(error)?;
    let (number, unit) = text.split_at(split);
    // f64 accepts `inf` and `nan`, but those are letters and end up in the unit.
    let number: f64 = number.trim().parse().map_err(|_| error())?;
    let scale = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "min" | "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(error()),
    };
    Duration::try_from_secs_f64(number * scale).map_err(|_| error())
}

/// What distinguishes a recording of `host` from others. The same machine in software and the same
/// workload make the same file.
pub fn trace_id(host: &dyn Host) -> u64 {
    if host.software().is_some() {
        // 'sim' in ASCII.
        return 0x73_696d;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    // Two recordings that start in the same nanosecond are of different processes.
    now ^ (u64::from(std::process::id()) << 40)
}

/// Date and time for a directory's name, in UTC: `20260131-235959`.
pub fn stamp() -> String {
    let seconds = seconds_since_1970();
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_rounded_to_what_matters() {
        assert_eq!(words(3725.0), "1 h 2 min");
        assert_eq!(words(61.4), "1 min 1 s");
    }
}
