//! In the guest: settings, then the schedule's pulses on every CPU. The beginning is told to the register log by a write
//! that the processor refuses.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt as _,
    thread,
    time::{Duration, Instant},
};

use flyball_host::process::pin_thread;

use super::{Case, schedule};

/// Runs all trials of a case.
pub fn run(case: &Case, seed: u64) {
    pin_thread(0).expect("CPU 0");
    for (number, trial) in case.trials.iter().enumerate() {
        for (path, value) in trial.writes() {
            if let Err(error) = fs::write(&path, &value) {
                println!("{}: {path} <- {value}: {error}", trial.name);
            }
        }
        thread::sleep(Duration::from_millis(super::SETTLE_MS));
        let plan = schedule::schedule(seed + number as u64);
        let marks = OpenOptions::new().write(true).open("/dev/cpu/0/msr").expect("the msr driver");
        // Refused by the processor, but the write has been seen: the answer does not matter.
        let _ = marks.write_at(&(number as u64).to_le_bytes(), case.mark().into());
        let begin = Instant::now();
        let loads: Vec<_> = plan
            .into_iter()
            .enumerate()
            .map(|(cpu, phases)| {
                thread::spawn(move || {
                    pin_thread(cpu as u32).expect("a CPU");
                    for (from, to) in schedule::pulses(&phases) {
                        let (from, to) = (Duration::from_micros(from), Duration::from_micros(to));
                        thread::sleep(from.saturating_sub(begin.elapsed()));
                        while begin.elapsed() < to {}
                    }
                })
            })
            .collect();
        for load in loads {
            load.join().expect("a load ends");
        }
        println!("played {} {}", trial.name, begin.elapsed().as_micros());
    }
}
