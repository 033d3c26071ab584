//! Clocks: time since boot, time asleep, wall clock. Also the kernel's report that the wall clock
//! was set or the machine woke up.

#![allow(unsafe_code, reason = "localtime_r(3)")]

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

fn now(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the time since the machine booted, including sleep.
pub fn since_boot() -> Duration {
    now(ClockId::Boottime)
}

/// Returns the time that the machine has been asleep since boot.
pub fn asleep() -> Duration {
    now(ClockId::Boottime).saturating_sub(now(ClockId::Monotonic))
}

/// A local time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    /// Minutes since midnight.
    pub minutes: u32,
    /// Seconds of the minute.
    pub seconds: u32,
}

/// Returns the present time of day, in the machine's time zone.
pub fn local_time() -> LocalTime {
    let seconds = now(ClockId::Realtime).as_secs() as libc::time_t;
    // SAFETY: all zeros is a value of tm, a structure of integers and a pointer that may be null.
    let mut time: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of their types; the call keeps neither.
    if unsafe { libc::localtime_r(&raw const seconds, &raw mut time) }.is_null() {
        // A year does not fit, so return midnight.
        return LocalTime { minutes: 0, seconds: 0 };
    }
    LocalTime { minutes: (time.tm_hour * 60 + time.tm_min) as u32, seconds: time.tm_sec as u32 }
}

/// A timer that never expires. The kernel cancels it when the wall clock is set, and at resume
/// (timerfd_resume, called by timekeeping_resume in kernel/time/timekeeping.c, since 5.15). So a
/// wake-up is noticed without logind and without polling.
#[derive(Debug)]
pub(super) struct WallClock(OwnedFd);

impl WallClock {
    pub(super) fn new() -> io::Result<WallClock> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let clock = WallClock(timerfd_create(TimerfdClockId::Realtime, flags)?);
        clock.arm()?;
        Ok(clock)
    }

    fn arm(&self) -> io::Result<()> {
        let never = Timespec { tv_sec: i64::from(u32::MAX) * 4, tv_nsec: 0 };
        let time = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: never };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        match timerfd_settime(&self.0, flags, &time) {
            // The clock was set in between. The timer is armed nevertheless (do_timerfd_settime).
            Ok(_) | Err(rustix::io::Errno::CANCELED) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes the report, and arms the timer for the next one.
    pub(super) fn rearm(&self) -> io::Result<()> {
        // The read fails with ECANCELED, which is the report.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
        self.arm()
    }
}

impl AsFd for WallClock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
