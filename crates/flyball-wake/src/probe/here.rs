//! Measures with pinned threads that sleep and wake each other, on the live machine.

use std::{
    num::NonZeroU64,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use flyball_host::{Errno, Host, HostError, KeptFile, Op};

use super::{LeftState, Pair, Sample};
use crate::WakeError;

/// Maximum wake-ups per idle length.
const MAX_SAMPLES: usize = 2000;

/// Exit counts of each state of one CPU, in files that stay open.
struct Exits(Vec<Box<dyn KeptFile>>);

impl Exits {
    fn open(host: &dyn Host, cpu: u32, states: usize) -> Result<Exits, HostError> {
        let open = |index: usize| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{index}/usage");
            host.keep_open(&path)?.ok_or_else(|| HostError::new(Op::Read, path, Errno::MFILE))
        };
        Ok(Exits((0..states).map(open).collect::<Result<_, _>>()?))
    }

    fn read(&self) -> Vec<u64> {
        let mut exits = Vec::with_capacity(self.0.len());
        for file in &self.0 {
            let mut buffer = [0; 24];
            let length = file.read_at(0, &mut buffer).unwrap_or(0);
            let text = std::str::from_utf8(&buffer[..length]).unwrap_or_default();
            exits.push(text.trim().parse().unwrap_or(0));
        }
        exits
    }
}

/// Wakes the sleeping CPU of a pair repeatedly: after each of `lengths`, for `budget` each.
pub(super) fn run(
    host: &dyn Host,
    pair: Pair,
    states: usize,
    lengths: &[Duration],
    budget: Duration,
) -> Result<Vec<Sample>, WakeError> {
    let exits = Exits::open(host, pair.sleeper, states)?;
    let pin = |cpu: u32| {
        flyball_process::pin_thread(cpu)
            .map_err(|error| HostError::new(Op::Write, format!("affinity to CPU {cpu}"), Errno::from(&error)))
    };
    let samples = thread::scope(|scope| match pair.waker {
        None => scope.spawn(move || pin(pair.sleeper).map(|()| by_timer(exits, lengths, budget))).join(),
        Some(waker) => scope
            .spawn(move || pin(waker).and_then(|()| by_futex(exits, pair.sleeper, &pin, lengths, budget)))
            .join(),
    });
    Ok(samples.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
}

/// A thread sleeps until a set time, and measures how much later it runs.
fn by_timer(exits: Exits, lengths: &[Duration], budget: Duration) -> Vec<Sample> {
    // Otherwise the kernel may delay the timer by 50 us (timer slack).
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let mut samples = Vec::new();
    for length in lengths {
        let end = Instant::now() + budget;
        for _ in 0..MAX_SAMPLES {
            if Instant::now() >= end {
                break;
            }
            let before = exits.read();
            let due = now() + length.as_nanos() as u64;
            let request = rustix::time::Timespec {
                tv_sec: (due / 1_000_000_000) as i64,
                tv_nsec: (due % 1_000_000_000) as i64,
            };
            while rustix::thread::clock_nanosleep_absolute(rustix::time::ClockId::Monotonic, &request)
                .is_err()
            {}
            let woke = now();
            let state = LeftState::between(&before, &exits.read());
            samples.push(Sample { state, us: woke.saturating_sub(due) as f64 * 1e-3 });
        }
    }
    samples
}

/// This thread wakes another one, which reports when it ran. std's parking uses a futex.
fn by_futex(
    exits: Exits,
    sleeper: u32,
    pin: &(dyn Fn(u32) -> Result<(), HostError> + Sync),
    lengths: &[Duration],
    budget: Duration,
) -> Result<Vec<Sample>, HostError> {
    let base = Instant::now();
    let ns = || base.elapsed().as_nanos() as u64;
    let (asked, answered, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let ready = Barrier::new(2);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let pinned = pin(sleeper);
            ready.wait();
            let mut turn = 0;
            while pinned.is_ok() && !over.load(Ordering::Acquire) {
                // park() may return spuriously.
                if asked.load(Ordering::Acquire) == turn {
                    thread::park();
                    continue;
                }
                turn += 1;
                answered.store(ns().max(1), Ordering::Release);
            }
            pinned
        });
        ready.wait();
        let mut samples = Vec::new();
        for length in lengths {
            let end = Instant::now() + budget;
            for _ in 0..MAX_SAMPLES {
                if Instant::now() >= end || other.is_finished() {
                    break;
                }
                pause(*length);
                let before = exits.read();
                answered.store(0, Ordering::Release);
                let started = ns();
                asked.fetch_add(1, Ordering::Release);
                other.thread().unpark();
                let woke = loop {
                    match answered.load(Ordering::Acquire) {
                        // Give up if the sleeping thread does not get its CPU.
                        0 if ns() - started > 100_000_000 => break None,
                        0 => std::hint::spin_loop(),
                        woke => break Some(woke),
                    }
                };
                let Some(woke) = woke else { continue };
                let state = LeftState::between(&before, &exits.read());
                samples.push(Sample { state, us: woke.saturating_sub(started) as f64 * 1e-3 });
            }
        }
        over.store(true, Ordering::Release);
        other.thread().unpark();
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(|()| samples)
    })
}

/// Leaves the other CPU alone. Spins for short times, because a sleep would take longer.
fn pause(length: Duration) {
    let started = Instant::now();
    if length > Duration::from_millis(1) {
        thread::sleep(length);
    }
    while started.elapsed() < length {
        std::hint::spin_loop();
    }
}
