//! How many cores of a package were awake while one of them ran. Turbo limits follow that number
//! from moment to moment, but an interval only has each core's share of time awake. Cores may wake
//! and sleep independently of each other, or together. Both cases are computed. The shares cannot
//! tell which of them, or what in between, happened.

use std::collections::BTreeMap;

use crate::layout::Cpu;

/// The kernel's core numbers are unique only within a die. A CPU without one counts as its own
/// core.
type Core = (Option<u32>, Option<u32>, u32);

/// The cores of a package, and how often each number of them was awake.
#[derive(Debug, Default)]
pub(super) struct Awake {
    /// Share of the interval in which each core was awake.
    shares: BTreeMap<Core, f64>,
    /// The probability of each number of awake cores, 0 to all (a Poisson binomial distribution).
    counts: Vec<f64>,
}

impl Awake {
    /// A core is awake if any of its CPUs is.
    pub(super) fn new<'a>(cpus: impl Iterator<Item = (&'a Cpu, f64)>) -> Awake {
        let mut shares: BTreeMap<Core, f64> = BTreeMap::new();
        for (cpu, share) in cpus {
            let most = shares.entry(core_of(cpu)).or_default();
            *most = most.max(share);
        }
        let mut counts = vec![1.0];
        for share in shares.values() {
            counts.push(0.0);
            for count in (0..counts.len()).rev() {
                let fewer = if count == 0 { 0.0 } else { counts[count - 1] };
                counts[count] = counts[count] * (1.0 - share) + fewer * share;
            }
        }
        Awake { shares, counts }
    }

    /// Returns how many cores were awake on average while this CPU's core was.
    pub(super) fn while_awake(&self, cpu: &Cpu) -> f64 {
        let all: f64 = self.shares.values().sum();
        all - self.share_of(cpu) + 1.0
    }

    /// The mean of `limit`, a function of the number of cores awake, over the time in which this
    /// CPU's core was awake.
    pub(super) fn mean_while_awake(&self, cpu: &Cpu, limit: impl Fn(u32) -> f64) -> f64 {
        self.others(self.share_of(cpu))
            .iter()
            .zip(1..)
            .map(|(probability, active)| probability * limit(active))
            .sum()
    }

    /// Returns the mean limit if cores overlap as much as their shares allow: while this core is
    /// awake, a core with half its share is awake half of the time.
    pub(super) fn mean_while_together(&self, cpu: &Cpu, limit: impl Fn(u32) -> f64) -> f64 {
        let own = self.share_of(cpu);
        let core = core_of(cpu);
        // How much of this core's time each other core was awake, the largest first.
        let mut parts: Vec<f64> = self
            .shares
            .iter()
            .filter(|(other, _)| **other != core)
            .map(|(_, share)| if *share < own { share / own } else { 1.0 })
            .collect();
        parts.sort_by(|one, other| other.total_cmp(one));
        parts.push(0.0);
        let mut last = 1.0;
        let mut mean = 0.0;
        for (part, active) in parts.into_iter().zip(1..) {
            mean += (last - part) * limit(active);
            last = part;
        }
        mean
    }

    fn share_of(&self, cpu: &Cpu) -> f64 {
        self.shares.get(&core_of(cpu)).copied().unwrap_or(0.0)
    }

    /// Returns the probabilities for the other cores, without one that was awake for this share.
    fn others(&self, share: f64) -> Vec<f64> {
        let cores = self.counts.len() - 1;
        let mut others = vec![0.0; cores.max(1)];
        if cores == 0 {
            others[0] = 1.0;
        } else if share <= 0.5 {
            // Divide from the end that keeps rounding errors small.
            for count in 0..cores {
                let fewer = if count == 0 { 0.0 } else { others[count - 1] };
                others[count] = (self.counts[count] - share * fewer) / (1.0 - share);
            }
        } else {
            for count in (0..cores).rev() {
                let more = others.get(count + 1).copied().unwrap_or(0.0);
                others[count] = (self.counts[count + 1] - (1.0 - share) * more) / share;
            }
        }
        others
    }
}

fn core_of(cpu: &Cpu) -> Core {
    (cpu.die, cpu.core, cpu.core.map_or(cpu.number, |_| 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(core: u32) -> Cpu {
        Cpu {
            number: core,
            package: Some(0),
            die: None,
            core: Some(core),
            core_type: None,
            policy: None,
            highest: None,
            base: None,
            reference: None,
            is_isolated: false,
        }
    }

    fn awake(shares: &[f64]) -> Awake {
        let cpus: Vec<Cpu> = (0..shares.len() as u32).map(cpu).collect();
        Awake::new(cpus.iter().zip(shares.iter().copied()))
    }

    #[test]
    fn cores_that_are_always_awake_or_never_are_a_whole_number() {
        let awake = awake(&[1.0, 1.0, 0.0, 1.0]);
        assert!((awake.mean_while_awake(&cpu(0), f64::from) - 3.0).abs() < 1e-12);
        assert!((awake.mean_while_awake(&cpu(2), f64::from) - 4.0).abs() < 1e-12);
        assert!((awake.while_awake(&cpu(0)) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_limit_is_the_mean_over_all_ways_to_be_awake() {
        let shares = [0.5, 0.2, 0.9, 0.97, 0.01, 1.0, 0.0];
        let limit = |active: u32| [0.0, 37.0, 37.0, 35.0, 34.0, 33.0, 33.0, 33.0][active as usize];
        let awake = awake(&shares);
        for own in 0..shares.len() {
            let mut mean = 0.0;
            for set in (0..1 << shares.len()).filter(|set| set >> own & 1 == 1) {
                let probability: f64 = (0..shares.len())
                    .filter(|core| *core != own)
                    .map(|core| if set >> core & 1 == 1 { shares[core] } else { 1.0 - shares[core] })
                    .product();
                mean += probability * limit(i32::count_ones(set));
            }
            assert!((awake.mean_while_awake(&cpu(own as u32), limit) - mean).abs() < 1e-9, "{own}");
        }
    }

    #[test]
    fn cores_that_are_awake_together_are_as_many_as_can_be() {
        let awake = awake(&[0.5, 0.5, 0.25, 1.0]);
        assert!((awake.mean_while_together(&cpu(0), f64::from) - 3.5).abs() < 1e-12);
        assert!((awake.mean_while_together(&cpu(2), f64::from) - 4.0).abs() < 1e-12);
        assert!((awake.mean_while_together(&cpu(3), f64::from) - 2.25).abs() < 1e-12);
    }

    #[test]
    fn many_cores_lose_no_precision() {
        let shares: Vec<f64> = (0..144).map(|core| f64::from(core) / 143.0).collect();
        let awake = awake(&shares);
        for own in [0, 1, 71, 72, 142, 143] {
            let expected = awake.while_awake(&cpu(own));
            assert!((awake.mean_while_awake(&cpu(own), f64::from) - expected).abs() < 1e-9, "{own}");
        }
    }

    #[test]
    fn threads_of_a_core_are_one() {
        let cpus = [cpu(0), Cpu { number: 7, ..cpu(0) }];
        let awake = Awake::new(cpus.iter().zip([0.3, 0.6]));
        assert_eq!(awake.counts.len(), 2);
        assert!((awake.counts[1] - 0.6).abs() < 1e-12);
    }
}
