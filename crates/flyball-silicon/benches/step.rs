//! Measures the speed of the silicon model: microseconds per step of a millisecond, and simulated
//! seconds per second.

use flyball_silicon::{Activity, MachineSpec, Silicon};
use std::time::Instant;

fn main() {
    for name in MachineSpec::names() {
        let Ok(mut chip) = MachineSpec::builtin(name).and_then(|s| Silicon::new(s, 1)) else { continue };
        // A mixed load: a third busy, a third partly, a third asleep.
        let load: Vec<Activity> = (0..chip.cpus())
            .map(|c| match c % 3 {
                0 => Activity::busy(),
                1 => Activity::partly(300_000, 20, 1),
                _ => Activity::idle(2),
            })
            .collect();
        chip.advance(100_000_000, &load);
        let steps = 20_000;
        let start = Instant::now();
        for _ in 0..steps {
            chip.advance(1_000_000, &load);
        }
        let us = start.elapsed().as_secs_f64() * 1e6 / f64::from(steps);
        println!(
            "{name:>14} {:>4} CPUs  {us:>7.2} us a step  {:>8.1} times real time",
            chip.cpus(),
            1000.0 / us
        );
    }
}
