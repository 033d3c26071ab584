//! The wall clock, for what is named or numbered by it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flyball_host::Host;
use flyball_text::{date::Utc, span};

/// A parser of time spans from `least` to `most`, for arguments.
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

/// A seed from the clock: five digits are enough, and can be typed again.
pub(crate) fn arbitrary_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64 % 100_000)
}

/// What distinguishes a recording of `host` from others. The same machine in software and the same
/// workload make the same file.
pub(crate) fn trace_id(host: &dyn Host) -> u64 {
    if host.software().is_some() {
        // 'sim' in ASCII.
        return 0x73_696d;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    // Two recordings that start in the same nanosecond are of different processes.
    now ^ (u64::from(std::process::id()) << 40)
}

/// Date and time for a directory's name, in UTC: `20260131-235959`.
pub(crate) fn stamp() -> String {
    Utc::from_seconds(seconds_since_1970()).stamp()
}
