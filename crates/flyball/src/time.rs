//! The wall clock, for names and numbers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flyball_host::Host;
use flyball_text::{date::Utc, span};

/// Returns an argument parser for time spans from `least` to `most`.
pub(crate) fn span_within(
    least: Duration,
    most: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| {
        let time = span::parse(text).map_err(|error| error.to_string())?;
        let (from, to) = (span::Compact(least), span::Compact(most));
        if (least..=most).contains(&time) {
            Ok(time)
        } else {
            Err(format!("give a time from {from} to {to}"))
        }
    }
}

/// The wall clock, for records of when something was done.
pub(crate) fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Returns a seed from the clock. Five digits are enough, and easy to type again.
pub(crate) fn arbitrary_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64 % 100_000)
}

/// Returns a number that distinguishes a recording of `host` from others. On a simulated machine it
/// is constant, so that the same workload makes the same file.
pub(crate) fn trace_id(host: &dyn Host) -> u64 {
    if host.software().is_some() {
        // 'sim' in ASCII.
        return 0x73_696d;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    // Different processes may start a recording in the same nanosecond.
    now ^ (u64::from(std::process::id()) << 40)
}

/// Returns date and time for a directory name, in UTC: `20260131-235959`.
pub(crate) fn stamp() -> String {
    Utc::from_seconds(seconds_since_1970()).stamp()
}
