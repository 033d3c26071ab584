//! Watches the emulator: its time and memory, and whether the guest still makes progress.
//!
//! A command may run silently for as long as its caller's limit allows. But a kernel that has used
//! minutes of CPU time without reaching its init, or an emulator that uses no CPU time at all, is
//! stuck. CPU time is counted instead of elapsed time, so that a busy host makes no difference.

use std::{
    process::Child,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::error::GuestError;

/// When to end a guest that makes no progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressLimits {
    /// CPU time of the emulator until the guest's init runs. The slowest boot seen took 40 s.
    pub boot: Duration,
    /// Time in which the emulator uses no CPU time at all. Even an idle kernel has timers.
    pub still: Duration,
}

impl Default for ProgressLimits {
    fn default() -> ProgressLimits {
        ProgressLimits { boot: Duration::from_secs(240), still: Duration::from_secs(120) }
    }
}

/// Why a guest counts as stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    #[error("the kernel did not reach its init in {} s of processor time", .0.as_secs())]
    NoInit(Duration),
    #[error("the emulator used no processor time for {} s", .0.as_secs())]
    Still(Duration),
}

/// How the wait for the emulator ended.
#[derive(Debug, Default)]
pub struct Watched {
    /// True if the time limit was reached.
    pub timed_out: bool,
    /// Why the emulator was ended earlier.
    pub stuck: Option<Stuck>,
    /// Peak memory in bytes.
    pub memory: Option<u64>,
}

/// Waits until the emulator ends; kills it at the time limit or if it is stuck. `up` is set once
/// init has reported.
pub fn wait(
    child: &mut Child,
    limit: Option<Duration>,
    progress_limits: ProgressLimits,
    up: &AtomicBool,
) -> Result<Watched, GuestError> {
    let pid = child.id();
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut watched = Watched::default();
    // Short at first, because an emulator that rejects its arguments ends within milliseconds.
    let mut pause = Duration::from_millis(5);
    let (mut used, mut since) = (Duration::ZERO, Instant::now());
    loop {
        let ended =
            child.try_wait().map_err(|e| GuestError::Emulator(format!("cannot wait for QEMU: {e}")))?;
        if ended.is_some() {
            return Ok(watched);
        }
        // Read each time, because a zombie has no memory.
        watched.memory = peak_memory(pid).or(watched.memory);
        if let Some((stopped, now)) =
            std::fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(|t| usage(&t))
        {
            // An emulator that a debugger or job control has stopped is not stuck.
            if now != used || stopped {
                (used, since) = (now, Instant::now());
            }
            if used >= progress_limits.boot && !up.load(Ordering::Relaxed) {
                watched.stuck = Some(Stuck::NoInit(progress_limits.boot));
            } else if since.elapsed() >= progress_limits.still {
                watched.stuck = Some(Stuck::Still(progress_limits.still));
            }
        }
        watched.timed_out = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if watched.timed_out || watched.stuck.is_some() {
            // It may have ended by itself meanwhile; waiting reaps it in any case.
            let _ = child.kill();
            let _ = child.wait();
            return Ok(watched);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// The unit of times in /proc, independent of the kernel's own tick (include/asm-generic/param.h).
const USER_HZ: u64 = 100;

/// Returns whether a process is stopped, and the CPU time of all its threads, from its `stat`
/// (proc(5)).
fn usage(stat: &str) -> Option<(bool, Duration)> {
    // The name in brackets may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // utime and stime, fields 14 and 15 in proc(5), counted from the end of the name.
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some((matches!(*fields.first()?, "T" | "t"), Duration::from_millis(ticks.saturating_mul(1000 / USER_HZ))))
}

/// `VmHWM` of a process, bytes.
fn peak_memory(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn watched(program: &str, progress_limits: ProgressLimits, up: bool) -> Watched {
        let mut child = Command::new("sh").args(["-c", program]).stdin(Stdio::null()).spawn().unwrap();
        wait(&mut child, None, progress_limits, &AtomicBool::new(up)).unwrap()
    }

    #[test]
    fn a_name_may_hold_brackets() {
        let stat = "7 (a) R (b)) S 1 7 7 0 -1 4194304 1 0 0 0 150 50 0 0 20 0 1 0";
        assert_eq!(usage(stat), Some((false, Duration::from_secs(2))));
        for bad in ["", "7 (x", "7 (x) S 1 2", "7 (x) S a b c d e f g h i j k l m"] {
            assert_eq!(usage(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_gets_nowhere_is_ended() {
        let minute = Duration::from_secs(60);
        let still = watched(
            "exec sleep 600",
            ProgressLimits { boot: minute, still: Duration::from_millis(300) },
            true,
        );
        assert!(matches!(still.stuck, Some(Stuck::Still(_))));
        let spins = ProgressLimits { boot: Duration::from_millis(200), still: minute };
        let boots = watched("while :; do :; done", spins, false);
        assert!(matches!(boots.stuck, Some(Stuck::NoInit(_))));
        // A guest that has reached its init may compute for as long as it likes.
        let ends = watched("i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done", spins, true);
        assert!(ends.stuck.is_none() && !ends.timed_out);
    }
}
