//! Per-entity load tracking (kernel/sched/pelt.c): a geometric series over periods of 1024 microseconds in which
//! what happened 32 periods ago counts half.

/// Length of a period in nanoseconds.
const PERIOD: f64 = 1024.0 * 1024.0;

/// The decay over a span of time, computed once for all CPUs of a step.
#[derive(Debug, Clone, Copy)]
pub struct Decay {
    span: u64,
    keep: f64,
}

impl Decay {
    /// The decay over `span` nanoseconds: `y^(span / 1024 us)` with `y^32 = 0.5`.
    pub fn over(span: u64) -> Decay {
        Decay { span, keep: (-(span as f64) / PERIOD / 32.0).exp2() }
    }

    /// The span that this decay is for, in nanoseconds.
    pub fn span(self) -> u64 {
        self.span
    }
}

/// A utilisation average on the capacity scale of 0 to 1024.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pelt(f64);

impl Pelt {
    /// Lets time pass during which the entity ran for `running` (0 to 1) of the time on a CPU that gave `speed`
    /// (0 to 1) of full capacity: frequency and core type together, as frequency invariance scales it.
    pub fn run(&mut self, decay: Decay, running: f64, speed: f64) {
        let goal = 1024.0 * (running * speed).clamp(0.0, 1.0);
        let value = goal + (self.0 - goal) * decay.keep;
        // What is left of it in the end is nothing, and must not become numbers that processors are slow with.
        self.0 = if value < 1e-9 { 0.0 } else { value };
    }

    /// A new process of unknown size joins, and the one before it has gone with what it had: half of the capacity
    /// (kernel/sched/fair.c, post_init_entity_util_avg), and a sixth of the rest for the parent that waits (estimated).
    pub fn fork(&mut self) {
        let begun = 512.0 + 512.0 / 6.0;
        self.0 = if self.0 > begun { self.0 } else { begun };
    }

    /// Whether nothing is left of what ran.
    pub fn is_zero(self) -> bool {
        self.0 == 0.0
    }

    /// The utilisation, 0 to 1024, truncated as the kernel's integers are.
    pub fn utilisation(self) -> u32 {
        // A hair above, so that the limit of the series counts as reached.
        (self.0 + 1e-6) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_life_is_32_periods() {
        let mut pelt = Pelt::default();
        let decay = Decay::over(32 * 1024 * 1024);
        for expected in [512, 768, 896, 960] {
            pelt.run(decay, 1.0, 1.0);
            assert_eq!(pelt.utilisation(), expected);
        }
    }

    #[test]
    fn steps_of_any_length_agree() {
        let (mut fine, mut coarse) = (Pelt::default(), Pelt::default());
        for _ in 0..64 {
            fine.run(Decay::over(1_000_000), 0.5, 0.8);
        }
        coarse.run(Decay::over(64_000_000), 0.5, 0.8);
        assert_eq!(fine.utilisation(), coarse.utilisation());
    }
}
