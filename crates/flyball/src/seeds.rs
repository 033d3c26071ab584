//! Chance on machines in software: every run gets a number that follows from one seed.

/// What makes each run differ a little from the others, as runs on hardware do: a number for each,
/// derived from one seed. The same seed makes the same series.
#[derive(Debug, Clone, Default)]
pub struct RunSeeds {
    seed: u64,
    number: u64,
}

impl RunSeeds {
    pub fn new(seed: u64) -> RunSeeds {
        RunSeeds { seed, number: 0 }
    }

    /// Those of a comparison of which `done` rounds were run earlier. A comparison that is resumed
    /// continues with other numbers than it began with, or it would repeat its first rounds.
    pub fn of_comparison(seed: u64, done: usize) -> RunSeeds {
        RunSeeds::new(mix(seed ^ mix(done as u64)))
    }

    /// The number of the next run.
    pub fn next(&mut self) -> u64 {
        self.number += 1;
        mix(self.seed ^ self.number)
    }
}

/// A number for a text, the same on every machine and in every release (FNV-1a).
pub fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// One round of splitmix64.
fn mix(seed: u64) -> u64 {
    flyball_sim::workload::Noise::new(seed).next_u64()
}
