//! Order statistics, means and ranks.

/// The arithmetic mean; `None` if empty.
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() { None } else { Some(values.iter().sum::<f64>() / values.len() as f64) }
}

/// The sample standard deviation (divisor n - 1); `None` for fewer than two values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let centre = mean(values)?;
    // Two passes: the shortcut of sum of squares less squared sum cancels when the spread is a
    // millionth of the value, as with energy counters.
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// The median; `None` if empty.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The `q` quantile (0 to 1), interpolated linearly between order statistics as NumPy does by
/// default.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let (below, part) = place(values.len(), q)?;
    let mut some = values.to_vec();
    let (_, low, rest) = some.select_nth_unstable_by(below, f64::total_cmp);
    let above = rest.iter().copied().min_by(f64::total_cmp).unwrap_or(*low);
    Some(*low + (above - *low) * part)
}

/// Where a quantile lies among sorted values: after which one, and what part of the way to the
/// next.
fn place(count: usize, q: f64) -> Option<(usize, f64)> {
    let last = count.checked_sub(1)?;
    // Type 7 of Hyndman and Fan (1996), the default of NumPy and R.
    let place = q.clamp(0.0, 1.0) * last as f64;
    Some((place.floor() as usize, place - place.floor()))
}

/// [`quantile`] of values that are sorted already.
pub(super) fn sorted_quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let (below, part) = place(sorted.len(), q)?;
    let above = (below + 1).min(sorted.len() - 1);
    Some(sorted[below] + (sorted[above] - sorted[below]) * part)
}

/// Twice the rank of each value, from 2; equal values share the mean of their ranks. Doubled, so
/// that shared ranks stay integers and null distributions can be counted exactly. The second result
/// is the tie term, the sum of `t^3 - t` over groups of `t` equal values.
pub fn midranks(values: &[f64]) -> (Vec<u32>, f64) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0; values.len()];
    let mut ties = 0.0;
    let mut start = 0;
    while start < order.len() {
        let mut end = start + 1;
        // Ties are exactly equal values: programs that print few digits give many of them.
        while end < order.len() && values[order[end]] == values[order[start]] {
            end += 1;
        }
        // Ranks start+1 ..= end; twice their mean is their sum of ends.
        for &index in &order[start..end] {
            ranks[index] = (start + 1 + end) as u32;
        }
        let count = (end - start) as f64;
        ties += count.powi(3) - count;
        start = end;
    }
    (ranks, ties)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.1), Some(1.4));
    }

    #[test]
    fn ties_share_ranks() {
        let (ranks, ties) = midranks(&[5.0, 1.0, 5.0, 9.0]);
        assert_eq!(ranks, [5, 2, 5, 8]);
        assert!((ties - 6.0).abs() < 1e-12);
    }
}
