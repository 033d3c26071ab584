//! Who runs when: blocks in which every arm runs once, in a new random order for each block.
//!
//! Machines warm up, clocks drift, neighbours come and go. When arms take turns in one block, such
//! changes hit all of them equally, and only differences inside a block are compared.
//!
//! A round can also slow the next one: heat, a cache that it fills, a power budget that it uses up.
//! If blocks ran one after the other, an arm could follow itself only across a block border. An arm
//! that slows the next round would hardly ever be slowed itself. It would look faster than an equal
//! arm, with two arms by half of the slowdown. So two blocks are interleaved: after each round of
//! one comes a round of the other, whose order is independent. Each round then follows any arm, its
//! own included, with equal probability.

use std::time::Duration;

use rand::{Rng as _, SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;

/// The default number of rounds: the exact test of 15 pairs reaches p = 2/2^15, enough for 99 %
/// with dozens of arms.
pub const USUAL_ROUNDS: usize = 15;

/// When to stop.
#[derive(Debug, Clone, Copy, PartialEq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// This many blocks.
    Rounds(usize),
    /// Until the confidence interval of every arm's difference from the first is at most this
    /// half-width, as a fraction (0.01 is 1 %), within bounds.
    Until {
        /// The half-width wanted.
        half_width: f64,
        /// End earlier if each arm is known to differ: intervals remain valid under repeated looks.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        decided: bool,
        /// Minimum number of blocks.
        least: usize,
        /// Maximum number of blocks.
        most: usize,
    },
    /// Until a search ends, which chooses the arms of each block.
    Search {
        /// Maximum number of rounds.
        most: usize,
        /// A round is cut off after this many times the first arm's median time, and counts as
        /// failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut: Option<f64>,
    },
}

/// How a comparison is run.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema, serde::Serialize, serde::Deserialize)]
pub struct Schedule {
    /// The seed of all random choices.
    pub seed: u64,
    /// When to stop.
    pub length: Length,
    /// Rounds of each arm that are run first and not counted.
    pub warm_up: usize,
    /// Pause before each round, for heat and turbo budget to come back, in seconds.
    pub cool_down: f64,
    /// Time between two readings of the meters inside a round, in seconds.
    pub interval: f64,
    /// The confidence of intervals and verdicts: 0.99.
    pub confidence: f64,
    /// Meters are read before and after a round, never during it: a reading can wake the CPUs that
    /// are measured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unobserved: bool,
    /// Each round of a program gets an environment of a different size, which moves its stack. The
    /// answer is then not about one alignment only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub random_layout: bool,
    /// A round that takes longer than this, in seconds, is ended and fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// Run at least this long, in seconds. After the warm-up, its duration gives the number of
    /// blocks, and this field is cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_seconds: Option<f64>,
    /// A session ends with the last block that fits into this time, in seconds from its first
    /// round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_seconds: Option<f64>,
    /// `most_seconds` was used up, so there are fewer blocks than planned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended_by_time: bool,
    /// Limits as typed. A comparison that runs until it is decided (`Length::Until`) decides these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
}

impl Schedule {
    /// Returns whether blocks go on until enough is known. Its tests hold under repeated looks, and
    /// are about the mean of the logarithms of ratios.
    pub fn is_until(&self) -> bool {
        matches!(self.length, Length::Until { .. })
    }

    /// Fixes the number of blocks if `least_seconds` is set. This happens before any round counts,
    /// so that tests for a fixed number hold. `block_seconds` is how long a block of the warm-up
    /// took.
    pub fn fix_rounds(&mut self, block_seconds: Option<f64>) {
        const MAX_ROUNDS: usize = 200;
        if let (Some(least), Length::Rounds(rounds)) = (self.least_seconds.take(), &mut self.length) {
            let wanted = block_seconds.map_or(0, |seconds| (least / seconds).ceil() as usize);
            *rounds = wanted.min(MAX_ROUNDS).max(*rounds);
        }
    }

    /// How many blocks of `block` seconds fit into the time limit after `spent` seconds.
    pub fn room(&self, spent: f64, block: f64) -> usize {
        self.most_seconds.map_or(usize::MAX, |most| ((most - spent) / block) as usize)
    }

    /// Returns whether the time limit has no room for another block, and if so, makes the `done`
    /// blocks the final number. Only the times of whole blocks decide, to which all arms contribute
    /// alike, so sign tests remain exact.
    pub fn end_if_time_up(&mut self, room: usize, done: usize) -> bool {
        if done == 0 || room > 0 {
            return false;
        }
        if let Length::Rounds(most) | Length::Until { most, .. } = &mut self.length {
            self.ended_by_time |= done < *most;
            *most = done.min(*most);
        }
        true
    }

    /// The pause before each round.
    pub fn pause(&self) -> Duration {
        // from_secs_f64 panics on what does not fit; manifests are read from files.
        Duration::from_secs_f64(self.cool_down.clamp(0.0, 86_400.0))
    }

    /// The time after which a hanging round is ended.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout.and_then(|timeout| Duration::try_from_secs_f64(timeout).ok())
    }

    /// The longest time between two readings of the meters, in seconds. A package's energy counter
    /// wraps after 65 kJ with the unit of many servers, and a package uses less than 1 kW: the
    /// counter must not wrap twice between readings.
    pub const LONGEST_INTERVAL: f64 = 60.0;

    /// Time between two readings of the meters.
    pub fn tick(&self) -> Duration {
        // Ctrl-C ends a wait too.
        if self.unobserved {
            return Duration::from_secs_f64(Schedule::LONGEST_INTERVAL);
        }
        // A millisecond at least: reading the meters takes tens of microseconds and must not become
        // the workload.
        Duration::from_secs_f64(self.interval.clamp(0.001, Schedule::LONGEST_INTERVAL))
    }

    /// The order of `arms` arms in a block. It depends only on the seed and the block's number, so
    /// that a comparison can be resumed.
    pub fn order(&self, block: usize, arms: &[usize]) -> Vec<usize> {
        let mut order = arms.to_vec();
        let mut random =
            // The odd constant is 2^64 divided by the golden ratio (the step of SplitMix64):
            // neighbouring blocks get seeds that differ in about half of their bits. Each block has
            // its own generator, so that a resumed comparison needs no replay.
            Pcg64Mcg::seed_from_u64(self.seed ^ (block as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        order.shuffle(&mut random);
        order
    }

    /// Returns how many blocks from this one on, before the block `end`, are interleaved: two, or
    /// the last three, if there is time for `room` blocks. The first two run in any case.
    pub fn together(&self, block: usize, end: usize, room: usize) -> usize {
        let wanted = match end.saturating_sub(block) {
            3 => 3,
            left => left.clamp(1, 2),
        };
        wanted.min(room.max(if block == 0 { 2 } else { 1 }))
    }

    /// Returns by how many bytes the environment grows in one round. Less than a page: alignment
    /// effects depend on the stack's position in a page, and address space randomisation moves it
    /// by multiples of 16 bytes.
    pub fn padding(&self, block: usize, place: usize) -> usize {
        if !self.random_layout {
            return 0;
        }
        self.layout(block, place).random_range(0..4096)
    }

    /// A number from which an arm's build of one block can draw its layout.
    pub fn build_seed(&self, block: usize, place: usize) -> u32 {
        self.layout(block, place).random()
    }

    fn layout(&self, block: usize, place: usize) -> Pcg64Mcg {
        let number = (block as u64) << 16 | place as u64;
        Pcg64Mcg::seed_from_u64(!self.seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The maximum number of blocks.
    pub fn most(&self) -> usize {
        match self.length {
            Length::Rounds(rounds) => rounds,
            // No block has less than one round.
            Length::Until { most, .. } | Length::Search { most, .. } => most,
        }
    }

    /// The maximum number of blocks that replace disturbed ones. Comparisons that end when they
    /// know enough need no replacements.
    pub fn repeats(&self) -> usize {
        match self.length {
            Length::Rounds(rounds) => rounds.div_ceil(2),
            Length::Until { .. } | Length::Search { .. } => 0,
        }
    }

    /// The maximum number of rounds, including the warm-up but no replacements.
    pub fn rounds(&self, arms: usize) -> usize {
        match self.length {
            // Only the first arm warms the machine up for a search: it has many arms, and runs few
            // of them often.
            Length::Search { most, .. } => most + self.warm_up,
            _ => (self.most() + self.warm_up) * arms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(seed: u64) -> Schedule {
        Schedule {
            seed,
            length: Length::Rounds(10),
            warm_up: 1,
            cool_down: 0.0,
            interval: 0.25,
            confidence: 0.99,
            unobserved: false,
            random_layout: false,
            timeout: None,
            least_seconds: None,
            most_seconds: None,
            ended_by_time: false,
            limits: Vec::new(),
        }
    }

    #[test]
    fn every_arm_runs_once_a_block() {
        let arms = [0, 2, 3, 5];
        for block in 0..50 {
            let mut order = schedule(42).order(block, &arms);
            assert_eq!(order, schedule(42).order(block, &arms));
            order.sort_unstable();
            assert_eq!(order, arms);
        }
        assert_eq!(schedule(1).rounds(3), 33);
    }

    #[test]
    fn short_blocks_are_many() {
        for (least, seconds, rounds) in
            [(3.0, Some(0.05), 60), (3.0, Some(0.001), 200), (3.0, Some(2.0), 10), (3.0, None, 10)]
        {
            let mut schedule = Schedule { least_seconds: Some(least), ..schedule(1) };
            schedule.fix_rounds(seconds);
            assert_eq!((schedule.length, schedule.least_seconds), (Length::Rounds(rounds), None));
        }
        let mut fixed = schedule(1);
        fixed.fix_rounds(Some(0.05));
        assert_eq!(fixed.length, Length::Rounds(10));
    }

    #[test]
    fn a_block_that_does_not_fit_is_not_begun() {
        let mut schedule = Schedule { most_seconds: Some(10.0), ..schedule(1) };
        let room = |schedule: &Schedule, spent, done| schedule.together(done, 10, schedule.room(spent, 2.5));
        assert!(!schedule.end_if_time_up(0, 0), "only the warm-up is over");
        assert_eq!(room(&schedule, 9.0, 0), 2, "the first two run");
        assert_eq!([4.9, 5.0, 5.1, 7.5].map(|spent| room(&schedule, spent, 4)), [2, 2, 1, 1]);
        assert_eq!([2.4, 2.6, 5.1].map(|spent| room(&schedule, spent, 7)), [3, 2, 1]);
        assert!(!schedule.end_if_time_up(schedule.room(7.5, 2.5), 3));
        assert!(schedule.end_if_time_up(schedule.room(7.6, 2.5), 3));
        assert_eq!((schedule.length, schedule.ended_by_time), (Length::Rounds(3), true));
        schedule.most_seconds = None;
        assert!(!schedule.end_if_time_up(schedule.room(1e9, 1.0), 3));
    }

    #[test]
    fn orders_are_fair() {
        // Over many blocks each of the six orders of three arms appears about as often.
        let mut counts = std::collections::BTreeMap::new();
        for block in 0..6000 {
            *counts.entry(schedule(7).order(block, &[0, 1, 2])).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        for (order, count) in counts {
            assert!((880..1120).contains(&count), "{order:?} {count}");
        }
    }
}
