//! Counts of two samples.

use statrs::distribution::{Discrete as _, Hypergeometric};

/// Fisher's exact test: the two-sided p-value of two shares, each as a count of how many.
pub fn fisher([count, of]: [usize; 2], [other, of_other]: [usize; 2]) -> Option<f64> {
    let (all, marked) = ((of + of_other) as u64, (count + other) as u64);
    let tables = Hypergeometric::new(all, marked, of as u64).ok()?;
    let observed = tables.pmf(count as u64);
    // Tables as probable as the observed one may differ from it in the last digits.
    let is_as_rare = |chance: &f64| *chance <= observed * (1.0 + 1e-7);
    let least = marked.saturating_sub(of_other as u64);
    let p: f64 = (least..=marked.min(of as u64)).map(|one| tables.pmf(one)).filter(is_as_rare).sum();
    Some(p.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rarer_tables_are_summed() {
        for (one, other, expected) in [
            ([6, 15], [0, 15], 0.016_858_237_547_892_72),
            ([3, 15], [0, 15], 0.224_137_931_034_482_76),
            ([0, 8], [5, 20], 0.280_830_280_830_280_8),
            ([15, 15], [0, 15], 1.289_345_007_578_77e-8),
            ([1, 16], [1, 16], 1.0),
            ([0, 0], [0, 5], 1.0),
        ] {
            let found = fisher(one, other).expect("a p-value");
            assert!((found - expected).abs() < 1e-9, "{one:?} {other:?}: {found}");
        }
    }
}
