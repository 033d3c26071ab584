//! How often and how long each performance level was requested.

/// Higher levels are counted as this one, because damaged text may contain any number.
const MAX_LEVEL: u32 = 4095;

/// Bits of a packed word that count samples; the bits above count nanoseconds.
const SAMPLE_BITS: u32 = 20;
/// Set in a packed word before one of its two numbers overflows.
const NEARLY_FULL: u64 = 1 << 63 | 1 << (SAMPLE_BITS - 1);
/// Longer times are not added to a packed word.
const LONGEST: u64 = 1 << 40;

/// For each level, the number of samples and the total time until the next sample.
///
/// A request adds to any of some hundred levels of its CPU. With hundreds of CPUs these words are
/// most of an analysis's data in the core's cache. Both numbers therefore share one word, which is
/// emptied into wide ones every half million samples or two hours.
#[derive(Debug, Clone, Default)]
pub(super) struct Levels {
    packed: Vec<u64>,
    wide: Vec<(u64, u64)>,
}

impl Levels {
    /// Adds a sample of `level` that lasted for `time`.
    #[inline]
    pub(super) fn add(&mut self, level: u32, time: u64) {
        let level = level.min(MAX_LEVEL) as usize;
        match self.packed.get_mut(level) {
            Some(word) if time < LONGEST => {
                // Cannot overflow: bit 63 was clear, and `time` has at most 40 bits, 60 after the
                // shift.
                *word += time << SAMPLE_BITS | 1;
                if *word & NEARLY_FULL != 0 {
                    self.widen(level, 0, 0);
                }
            }
            // Also a level's first sample, whose word does not exist yet.
            _ => self.widen(level, 1, time),
        }
    }

    /// Empties a level's word into wide ones, and adds samples and time that are in no word.
    #[cold]
    fn widen(&mut self, level: usize, samples: u64, time: u64) {
        if self.packed.len() <= level {
            self.packed.resize(level + 1, 0);
            self.wide.resize(level + 1, (0, 0));
        }
        let word = std::mem::take(&mut self.packed[level]);
        let wide = &mut self.wide[level];
        wide.0 += samples + (word & ((1 << SAMPLE_BITS) - 1));
        wide.1 = wide.1.saturating_add(time).saturating_add(word >> SAMPLE_BITS);
    }

    /// Level, samples and time, for levels with samples.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        let all = self.packed.iter().zip(&self.wide).enumerate();
        all.map(|(level, (word, (samples, time)))| {
            let samples = samples + (word & ((1 << SAMPLE_BITS) - 1));
            (level as u32, samples, time.saturating_add(word >> SAMPLE_BITS))
        })
        .filter(|(_, samples, _)| *samples > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sample_and_no_time_is_lost_where_words_are_emptied() {
        let mut levels = Levels::default();
        for _ in 0..(1 << SAMPLE_BITS) + 3 {
            levels.add(7, 1);
        }
        for time in [LONGEST - 1, LONGEST, LONGEST - 1, LONGEST - 1, u64::MAX >> 1] {
            levels.add(200, time);
        }
        levels.add(u32::MAX, 5);
        let time = 3 * (LONGEST - 1) + LONGEST + (u64::MAX >> 1);
        let count = (1 << SAMPLE_BITS) + 3;
        assert_eq!(levels.iter().collect::<Vec<_>>(), [(7, count, count), (200, 5, time), (MAX_LEVEL, 1, 5)]);
    }
}
