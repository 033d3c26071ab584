//! The time, as holds need it.

use std::time::Duration;

use flyball_host::watch::{LocalTime, local_time, since_boot};

/// A moment, by the clocks that conditions and ends are judged by.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Since boot, sleep included.
    pub now: Duration,
    /// Seconds since 1970, for records.
    pub unix: u64,
    pub local: LocalTime,
}

impl Moment {
    /// Now, on this machine.
    pub fn here() -> Moment {
        // A clock before 1970 is one that was not set yet; the record then says 0.
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Moment { now: since_boot(), unix: since_1970.map_or(0, |time| time.as_secs()), local: local_time() }
    }
}
