//! Per-entity load tracking (kernel/sched/pelt.c): a geometric series over periods of 1024
//! microseconds, in which the load of 32 periods ago counts half.

/// Length of a period in nanoseconds.
const PERIOD: f64 = 1024.0 * 1024.0;

/// A cache of decays by span. CPUs of one speed use equal spans, and powers of two are the most
/// expensive part of a step.
#[derive(Debug, Clone)]
pub struct Decays([(u64, f64); DECAYS]);

/// A power of two, because the upper bits of a span's hash are its index.
const DECAYS: usize = 256;

impl Default for Decays {
    fn default() -> Decays {
        // A span of 0 keeps everything.
        Decays([(0.0_f64.to_bits(), 1.0); DECAYS])
    }
}

impl Decays {
    /// Returns the share that remains after `span` nanoseconds: `y^(span / 1024 us)` with `y^32 =
    /// 0.5`.
    fn keep(&mut self, span: f64) -> f64 {
        let bits = span.to_bits();
        // Fibonacci hashing: a factor of 2^64 divided by the golden ratio.
        let place = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - DECAYS.trailing_zeros());
        let known = &mut self.0[place as usize % DECAYS];
        if known.0 != bits {
            *known = (bits, (-span / PERIOD / 32.0).exp2());
        }
        known.1
    }
}

/// The decay over a span of time.
#[derive(Debug, Clone, Copy)]
pub struct Decay {
    /// Whole nanoseconds.
    span: f64,
    keep: f64,
}

impl Decay {
    /// The decay over `span` nanoseconds: `y^(span / 1024 us)` with `y^32 = 0.5`.
    pub fn over(span: u64, known: &mut Decays) -> Decay {
        Decay { span: span as f64, keep: known.keep(span as f64) }
    }

    /// The decay over `share` of the span; `share` may exceed 1.
    #[must_use]
    pub fn part(self, share: f64, known: &mut Decays) -> Decay {
        if share == 1.0 {
            return self;
        }
        let span = self.span * share;
        // Through i64, because processors convert it in one instruction.
        Decay { span: span as i64 as f64, keep: known.keep(span) }
    }

    /// The span that this decay is for, in nanoseconds.
    pub fn span(self) -> u64 {
        self.span as u64
    }
}

/// Utilisation above which the kernel counts the extra time on a slower CPU as lost, since it
/// cannot know how long the work would have taken (update_idle_rq_clock_pelt; the series' limits
/// are 47742 and 1024).
const FULL: f64 = 1024.0 * (47742.0 - 1024.0 - 47.0) / (47742.0 - 512.0);

/// A utilisation average on the capacity scale of 0 to 1024.
///
/// On a CPU below full capacity the average's clock runs more slowly, so that the average reaches
/// 1024 on a CPU that never idles, whatever its speed. The clock catches up as soon as the CPU
/// idles (kernel/sched/pelt.h, update_rq_clock_pelt).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pelt {
    value: f64,
    /// Time by which the average's clock lags, ns.
    behind: f64,
}

impl Pelt {
    /// The CPU runs for `decay`'s span at `speed` (0 to 1) of full capacity, which combines
    /// frequency and core type, as in frequency invariance.
    pub fn run(&mut self, decay: Decay, speed: f64, known: &mut Decays) {
        let speed = speed.clamp(0.0, 1.0);
        self.behind += decay.span * (1.0 - speed);
        let keep = if speed < 1.0 { decay.part(speed, known).keep } else { decay.keep };
        self.value = 1024.0 + (self.value - 1024.0) * keep;
    }

    /// The CPU idles for `decay`'s span.
    pub fn rest(&mut self, decay: Decay, known: &mut Decays) {
        let keep = if self.behind == 0.0 || self.value >= FULL {
            decay.keep
        } else {
            decay.part(1.0 + self.behind / decay.span.max(1.0), known).keep
        };
        self.behind = 0.0;
        let value = self.value * keep;
        // Round a vanishing remainder to 0: denormal numbers are slow.
        self.value = if value < 1e-9 { 0.0 } else { value };
    }

    /// A new process of unknown size replaces the last one. It adds half of the capacity
    /// (kernel/sched/fair.c, post_init_entity_util_avg), and the waiting parent adds a sixth of the
    /// remainder (estimated).
    pub fn fork(&mut self) {
        let begun = 512.0 + 512.0 / 6.0;
        self.value = self.value.max(begun);
    }

    /// Returns whether the average has decayed to zero.
    pub fn is_zero(self) -> bool {
        self.value == 0.0
    }

    /// The utilisation, 0 to 1024, truncated as the kernel's integers are.
    pub fn utilisation(self) -> u32 {
        // Add a little, so that the limit of the series counts as reached.
        (self.value + 1e-6) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_life_is_32_periods() {
        let known = &mut Decays::default();
        let mut pelt = Pelt::default();
        let decay = Decay::over(32 * 1024 * 1024, known);
        for expected in [512, 768, 896, 960] {
            pelt.run(decay, 1.0, known);
            assert_eq!(pelt.utilisation(), expected);
        }
        pelt.rest(decay, known);
        assert_eq!(pelt.utilisation(), 480);
    }

    #[test]
    fn steps_of_any_length_agree() {
        let known = &mut Decays::default();
        let (mut fine, mut coarse) = (Pelt::default(), Pelt::default());
        for _ in 0..64 {
            fine.run(Decay::over(1_000_000, known), 0.8, known);
        }
        coarse.run(Decay::over(64_000_000, known), 0.8, known);
        assert_eq!(fine.utilisation(), coarse.utilisation());
    }

    #[test]
    fn a_slow_cpu_that_never_rests_is_full_and_one_that_rests_is_not() {
        let known = &mut Decays::default();
        let mut busy = Pelt::default();
        busy.run(Decay::over(2_000_000_000, known), 0.25, known);
        assert_eq!(busy.utilisation(), 1023);
        // Half busy at half speed is a quarter of the capacity, averaged over a period.
        let mut half = Pelt::default();
        let mut sum = 0;
        for step in 0..4000 {
            match step % 2 {
                0 => half.run(Decay::over(1_000_000, known), 0.5, known),
                _ => half.rest(Decay::over(1_000_000, known), known),
            }
            sum += if step >= 2000 { half.utilisation() } else { 0 };
        }
        assert!((250..=262).contains(&(sum / 2000)), "{}", sum / 2000);
    }
}
