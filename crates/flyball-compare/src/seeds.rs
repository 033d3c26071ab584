//! Random numbers for simulated machines: every run gets a number derived from one seed.

/// Makes each run differ a little from the others, as on hardware: a number for each run, derived
/// from one seed. Equal seeds give equal series.
#[derive(Debug, Clone, Default)]
pub struct RunSeeds {
    seed: u64,
    number: u64,
}

impl RunSeeds {
    pub fn new(seed: u64) -> RunSeeds {
        RunSeeds { seed, number: 0 }
    }

    /// The seeds of a comparison with `done` earlier rounds. A resumed comparison continues with
    /// different numbers; otherwise it would repeat its first rounds.
    pub fn for_comparison(seed: u64, done: usize) -> RunSeeds {
        RunSeeds::new(mix(seed ^ mix(done as u64)))
    }

    /// The number of the next run.
    pub fn next_seed(&mut self) -> u64 {
        self.number += 1;
        mix(self.seed ^ self.number)
    }
}

/// A number for a text, equal on every machine and in every release (FNV-1a).
pub fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// One round of splitmix64.
fn mix(seed: u64) -> u64 {
    let sum = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let once = (sum ^ (sum >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let twice = (once ^ (once >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    twice ^ (twice >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // The first two numbers of the reference implementation for seed 0.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn a_resumed_comparison_has_other_numbers() {
        let (mut first, mut again) = (RunSeeds::for_comparison(7, 0), RunSeeds::for_comparison(7, 0));
        assert_eq!((first.next_seed(), first.next_seed()), (again.next_seed(), again.next_seed()));
        assert_ne!(RunSeeds::for_comparison(7, 4).next_seed(), RunSeeds::for_comparison(7, 0).next_seed());
    }
}
