//! The settings to choose from: factors with levels, and how similar two settings are.

/// Something that is varied.
#[derive(Debug, Clone, PartialEq)]
pub struct Factor {
    pub name: String,
    pub levels: Levels,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Levels {
    /// Positions on a line, in any unit: neighbours are expected to behave similarly. Frequencies,
    /// watts, preferences.
    Ordered(Vec<f64>),
    /// A number of levels that are all equally unlike. Governors, drivers.
    Categories(usize),
}

/// Reasons why a space cannot be searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpaceError {
    /// The space has no second setting.
    Single,
    /// A setting's levels do not fit the factors.
    Levels { arm: usize },
    /// The base is not one of the settings.
    Base,
}

/// The settings of a search, called arms as in a comparison.
#[derive(Debug, Clone)]
pub struct Space {
    /// The index of each arm's level of each factor; `None` for an arm with unknown levels, such as
    /// the machine as it is.
    arms: Vec<Option<Vec<usize>>>,
    /// Likeness of each pair of levels by factor, row by row, and the number of levels.
    likeness: Vec<(Vec<f64>, usize)>,
    base: usize,
}

/// How similar two arms are, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Likeness {
    /// By each factor alone, averaged.
    pub single: f64,
    /// By each pair of factors at once, averaged.
    pub pair: f64,
}

/// The distance at which the levels of an ordered factor become independent, as a share of its
/// whole range.
const LENGTH: f64 = 0.5;

impl Space {
    /// A space of `arms`, each with its level of each factor. Limits and savings refer to the arm
    /// `base`.
    ///
    /// # Errors
    /// Fewer than two arms; levels that the factors lack; a base that is not an arm.
    pub fn new(factors: &[Factor], arms: Vec<Option<Vec<usize>>>, base: usize) -> Result<Space, SpaceError> {
        if arms.len() < 2 {
            return Err(SpaceError::Single);
        }
        if base >= arms.len() {
            return Err(SpaceError::Base);
        }
        let likeness: Vec<(Vec<f64>, usize)> = factors.iter().map(|factor| table(&factor.levels)).collect();
        for (arm, levels) in arms.iter().enumerate() {
            let Some(levels) = levels else { continue };
            let fits = levels.len() == factors.len()
                && levels.iter().zip(&likeness).all(|(level, (_, levels))| level < levels);
            if !fits {
                return Err(SpaceError::Levels { arm });
            }
        }
        Ok(Space { arms, likeness, base })
    }

    pub fn len(&self) -> usize {
        self.arms.len()
    }

    /// Never true: a space has at least two arms.
    pub fn is_empty(&self) -> bool {
        self.arms.is_empty()
    }

    /// The arm that limits and savings refer to.
    pub fn base(&self) -> usize {
        self.base
    }

    /// Returns, by factor, the share of the spread of `values` (one per arm, in order) that its
    /// levels explain alone. The rest up to 1 is due to combinations.
    pub(crate) fn shares(&self, values: &[f64]) -> Vec<f64> {
        let known: Vec<(&Vec<usize>, f64)> =
            self.arms.iter().zip(values).filter_map(|(arm, value)| Some((arm.as_ref()?, *value))).collect();
        let mean = known.iter().map(|(_, value)| value).sum::<f64>() / known.len().max(1) as f64;
        let total: f64 = known.iter().map(|(_, value)| (value - mean).powi(2)).sum();
        let share = |factor: usize, levels: usize| -> f64 {
            let (mut sums, mut counts) = (vec![0.0; levels], vec![0.0; levels]);
            for (arm, value) in &known {
                sums[arm[factor]] += value - mean;
                counts[arm[factor]] += 1.0;
            }
            // The sum of squares between levels, as in an analysis of variance.
            sums.iter()
                .zip(&counts)
                // Combinations that the machine refuses can leave a level without an arm.
                .filter(|(_, count)| **count > 0.0)
                .map(|(sum, count)| sum * sum / count)
                .sum()
        };
        let sums = self.likeness.iter().enumerate().map(|(factor, (_, levels))| share(factor, *levels));
        sums.map(|sum| if total > 0.0 { sum / total } else { 0.0 }).collect()
    }

    /// How similar two arms are. An arm with unknown levels is like no other.
    pub(crate) fn likeness(&self, a: usize, b: usize) -> Likeness {
        if a == b {
            return Likeness { single: 1.0, pair: 1.0 };
        }
        let (Some(a), Some(b)) = (&self.arms[a], &self.arms[b]) else {
            return Likeness { single: 0.0, pair: 0.0 };
        };
        let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
        for ((a, b), (table, levels)) in a.iter().zip(b).zip(&self.likeness) {
            let alike = table[a * levels + b];
            sum += alike;
            squares += alike * alike;
            count += 1.0;
        }
        // The sum over all pairs of factors, from the sums over factors.
        let pair = if count > 1.0 { (sum * sum - squares) / (count * (count - 1.0)) } else { 0.0 };
        Likeness { single: sum / count, pair }
    }

    /// `count` arms far from each other, the base first: each next one is the least similar to the
    /// arms chosen so far.
    pub(crate) fn spread(&self, count: usize) -> Vec<usize> {
        let mut chosen = vec![self.base];
        let mut nearest: Vec<f64> = (0..self.len()).map(|arm| self.nearness(self.base, arm)).collect();
        while chosen.len() < count.min(self.len()) {
            let next = (0..self.len())
                // The arm least like the chosen ones comes first; ties go to the first in the list,
                // so that no seed is needed.
                .filter(|arm| !chosen.contains(arm))
                .min_by(|a, b| nearest[*a].total_cmp(&nearest[*b]));
            let Some(next) = next else { break };
            chosen.push(next);
            for (arm, near) in nearest.iter_mut().enumerate() {
                *near = near.max(self.nearness(next, arm));
            }
        }
        chosen
    }

    fn nearness(&self, a: usize, b: usize) -> f64 {
        let alike = self.likeness(a, b);
        alike.single + alike.pair
    }
}

/// The likeness of each pair of levels of a factor, and the number of levels.
fn table(levels: &Levels) -> (Vec<f64>, usize) {
    match levels {
        Levels::Categories(count) => {
            let entries = (0..count * count).map(|entry| f64::from(u8::from(entry / count == entry % count)));
            (entries.collect(), *count)
        }
        Levels::Ordered(places) => {
            let low = places.iter().copied().fold(f64::INFINITY, f64::min);
            let high = places.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            // One level, or several with one position: they are equal to the model, and must not
            // divide by zero.
            let range = if high > low { high - low } else { 1.0 };
            let mut entries = Vec::with_capacity(places.len() * places.len());
            for a in places {
                entries.extend(places.iter().map(|b| matern((a - b).abs() / range / LENGTH)));
            }
            (entries, places.len())
        }
    }
}

/// The Matern correlation of smoothness 5/2: twice differentiable, so that it follows curves but
/// not straight through a corner (Rasmussen and Williams 2006, equation 4.17).
fn matern(distance: f64) -> f64 {
    let scaled = 5.0_f64.sqrt() * distance;
    (1.0 + scaled + scaled * scaled / 3.0) * (-scaled).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Space {
        let factors = [
            Factor { name: "max-freq".to_owned(), levels: Levels::Ordered(vec![1.0, 2.0, 3.0, 4.0]) },
            Factor { name: "governor".to_owned(), levels: Levels::Categories(2) },
        ];
        let arms = (0..8).map(|arm| Some(vec![arm % 4, arm / 4])).collect();
        Space::new(&factors, arms, 0).expect("a good space")
    }

    #[test]
    fn neighbours_are_alike() {
        let space = grid();
        assert_eq!(space.likeness(3, 3), Likeness { single: 1.0, pair: 1.0 });
        assert!(space.likeness(0, 1).single > space.likeness(0, 2).single);
        // Another governor: alike only in the frequency.
        assert!((space.likeness(0, 4).single - 0.5).abs() < 1e-12);
        assert!(space.likeness(0, 4).pair.abs() < 1e-12);
    }

    #[test]
    fn the_first_block_is_spread() {
        // The base, the far corner of the other governor, then the other two ends.
        assert_eq!(grid().spread(4), [0, 7, 3, 4]);
        assert_eq!(grid().spread(99).len(), 8);
    }

    #[test]
    fn wrong_spaces_are_refused() {
        let factors = [Factor { name: "x".to_owned(), levels: Levels::Categories(2) }];
        let make = |arms, base| Space::new(&factors, arms, base).map(|_| ());
        assert_eq!(make(vec![None], 0), Err(SpaceError::Single));
        assert_eq!(make(vec![None, Some(vec![2])], 0), Err(SpaceError::Levels { arm: 1 }));
        assert_eq!(make(vec![None, Some(vec![1, 0])], 0), Err(SpaceError::Levels { arm: 1 }));
        assert_eq!(make(vec![None, Some(vec![1])], 2), Err(SpaceError::Base));
    }
}
