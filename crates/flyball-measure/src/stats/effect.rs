//! Effect size without assumptions, and the price of asking several questions at once.

/// Cliff's delta: how much more often a value of `b` is above one of `a` than below, -1 to 1.
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    // All pairs (Cliff 1993): equals 2 U / (m n) - 1 of the Mann-Whitney U. Rounds are tens, so m x
    // n is cheap.
    let mut sum = 0.0;
    for x in a {
        for y in b {
            sum += match y.total_cmp(x) {
                std::cmp::Ordering::Less => -1.0,
                std::cmp::Ordering::Equal => 0.0,
                std::cmp::Ordering::Greater => 1.0,
            };
        }
    }
    Some(sum / (a.len() * b.len()) as f64)
}

/// Holm's step-down correction: p values as if each were the only question, in the given order.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut corrected = vec![1.0; p.len()];
    // The smallest p is multiplied by m, the next by m - 1, and so on (Holm 1979); no result may be
    // below one of a smaller p, hence the running maximum. Equals `multipletests(method="holm")` of
    // statsmodels.
    let mut floor: f64 = 0.0;
    for (step, &index) in order.iter().enumerate() {
        floor = floor.max((p[index] * (p.len() - step) as f64).min(1.0));
        corrected[index] = floor;
    }
    corrected
}

/// Corrected p values: of those up to q, on average at most a share q are false (Benjamini and
/// Hochberg 1995). Equals `multipletests(method="fdr_bh")` of statsmodels.
pub fn false_discovery(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[b].total_cmp(&p[a]));
    let mut corrected = vec![1.0; p.len()];
    let mut ceiling: f64 = 1.0;
    for (step, &index) in order.iter().enumerate() {
        ceiling = ceiling.min(p[index] * p.len() as f64 / (p.len() - step) as f64);
        corrected[index] = ceiling;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_counts_dominance() {
        assert_eq!(cliffs_delta(&[1.0, 2.0], &[3.0, 4.0]), Some(1.0));
        assert_eq!(cliffs_delta(&[3.0, 4.0], &[1.0, 2.0]), Some(-1.0));
        assert_eq!(cliffs_delta(&[1.0, 2.0], &[1.0, 2.0]), Some(0.0));
    }

    #[test]
    fn false_discovery_as_statsmodels() {
        // multipletests([0.001, 0.04, 0.03, 0.6], method="fdr_bh")[1]
        let corrected = false_discovery(&[0.001, 0.04, 0.03, 0.6]);
        for (got, want) in corrected.iter().zip([0.004, 0.16 / 3.0, 0.16 / 3.0, 0.6]) {
            assert!((got - want).abs() < 1e-12, "{corrected:?}");
        }
    }

    #[test]
    fn holm_never_reverses_the_order() {
        let corrected = holm(&[0.01, 0.04, 0.03]);
        for (got, want) in corrected.iter().zip([0.03, 0.06, 0.06]) {
            assert!((got - want).abs() < 1e-12, "{corrected:?}");
        }
    }
}
