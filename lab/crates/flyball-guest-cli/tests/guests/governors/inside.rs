//! The part that runs in the guest: changes the settings, then plays the schedule's pulses on every
//! CPU. A write that the processor rejects marks the start in the register log.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt as _,
    sync::{Arc, Barrier, OnceLock},
    thread,
    time::{Duration, Instant},
};

use flyball_process::pin_thread;

use super::{
    Case, SETTLE_MS,
    schedule::{self, CPUS},
};

/// Runs all trials of a case.
pub(super) fn run(case: &Case, seed: u64, all: bool) {
    pin_thread(0).expect("CPU 0");
    let marks = OpenOptions::new().write(true).open("/dev/cpu/0/msr").expect("the msr driver");
    for (number, trial) in case.trials(all).into_iter().enumerate() {
        for (path, value) in trial.writes() {
            if let Err(error) = fs::write(&path, &value) {
                println!("{}: {path} <- {value}: {error}", trial.name);
            }
        }
        // The scheduler assumes that a new thread uses half a CPU until it has measured it, so let
        // the threads run with little work for a while.
        let ready = Arc::new(Barrier::new(CPUS as usize + 1));
        let epoch = Instant::now();
        let begin = Arc::new(OnceLock::new());
        let loads: Vec<_> = schedule::schedule(seed + number as u64)
            .into_iter()
            .enumerate()
            .map(|(cpu, phases)| {
                let (ready, begin) = (Arc::clone(&ready), Arc::clone(&begin));
                thread::spawn(move || {
                    pin_thread(cpu as u32).expect("a CPU");
                    for turn in 1..=SETTLE_MS / 8 {
                        let at = Duration::from_millis(8 * turn);
                        thread::sleep(at.saturating_sub(epoch.elapsed()));
                        while epoch.elapsed() < at + Duration::from_micros(100) {}
                    }
                    ready.wait();
                    ready.wait();
                    let begin: Instant = *begin.get().expect("a beginning");
                    for (from, to) in schedule::pulses(&phases) {
                        let (from, to) = (Duration::from_micros(from), Duration::from_micros(to));
                        thread::sleep(from.saturating_sub(begin.elapsed()));
                        while begin.elapsed() < to {}
                    }
                })
            })
            .collect();
        ready.wait();
        // The processor rejects this write, but the log has it, so ignore the error.
        let _ = marks.write_at(&(number as u64).to_le_bytes(), case.mark().into());
        let begin = *begin.get_or_init(Instant::now);
        ready.wait();
        for load in loads {
            load.join().expect("a load ends");
        }
        println!("played {} {}", trial.name, begin.elapsed().as_micros());
    }
}
