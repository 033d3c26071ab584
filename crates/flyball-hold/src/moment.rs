//! The present time, on the clocks that holds need.

use std::time::Duration;

use flyball_host::watch::{LocalTime, local_time, since_boot};

/// A moment, on the clocks for conditions and ends.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Time since boot, including sleep.
    pub now: Duration,
    /// Seconds since 1970, for records.
    pub unix: u64,
    pub local: LocalTime,
}

impl Moment {
    /// Returns the present moment on this machine.
    pub fn here() -> Moment {
        // A time before 1970 means that the clock was not set yet. The record then says 0.
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Moment { now: since_boot(), unix: since_1970.map_or(0, |time| time.as_secs()), local: local_time() }
    }
}
