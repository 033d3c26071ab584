//! Two arms compared: estimate, interval, test, and the verdict.

use std::collections::BTreeMap;

use super::{
    quantity::Quantity,
    report::{ArmReport, Comparison, Steadiness, Summary, Verdict},
};
use crate::{
    metric::Better,
    run_directory::Manifest,
    schedule::Length,
    stats::{self, Interval, NORMAL_MEDIAN_DISTANCE},
};

/// The logarithms of `other` over `base`, block by block, in the order of blocks.
pub(super) fn log_ratios(base: &Summary, other: &Summary) -> Vec<f64> {
    log_pairs(base, other).into_iter().map(|(base, other)| other - base).collect()
}

/// The logarithms of both, block by block, in the order of blocks.
fn log_pairs(base: &Summary, other: &Summary) -> Vec<(f64, f64)> {
    let known: BTreeMap<(usize, usize), f64> =
        base.points.iter().map(|point| ((point.boot, point.block), point.value)).collect();
    let mut pairs: Vec<((usize, usize), (f64, f64))> = other
        .points
        .iter()
        .filter_map(|point| {
            let key = (point.boot, point.block);
            let base = *known.get(&key)?;
            // Of two negative numbers the ratio would be a number, and say the opposite.
            let positive = point.value > 0.0 && base > 0.0;
            let logs = (base.ln(), point.value.ln());
            (positive && logs.0.is_finite() && logs.1.is_finite()).then_some((key, logs))
        })
        .collect();
    // Rounds of a resumed comparison are not in the order of blocks, and the bootstrap depends on
    // the order.
    pairs.sort_by_key(|(key, _)| *key);
    pairs.into_iter().map(|(_, pair)| pair).collect()
}

/// Compares the scatter of two arms. The caller corrects `p` and gives the verdict.
fn steadiness(base: &Summary, other: &Summary) -> Option<Steadiness> {
    let away = |logs: Vec<f64>| -> Option<Vec<f64>> {
        let middle = stats::median(&logs)?;
        Some(logs.into_iter().map(|log| (log - middle).abs()).collect())
    };
    let pairs = log_pairs(base, other);
    let paired = !pairs.is_empty();
    let (a, b): (Vec<f64>, Vec<f64>) = if paired {
        pairs.into_iter().unzip()
    } else {
        let logs = |summary: &Summary| summary.points.iter().map(|point| point.value.ln()).collect();
        (logs(base), logs(other))
    };
    let (a, b) = (away(a)?, away(b)?);
    let (p, change) = if paired {
        let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b - a).collect();
        (stats::signed_rank(&differences).p, stats::hodges_lehmann(&differences)?)
    } else {
        (stats::rank_sum(&a, &b)?, stats::shift(&a, &b)?)
    };
    let spread = |distances: &[f64]| Some(stats::median(distances)? / NORMAL_MEDIAN_DISTANCE);
    Some(Steadiness {
        spreads: (spread(&a)?, spread(&b)?),
        change: change / NORMAL_MEDIAN_DISTANCE,
        p,
        p_corrected: p,
        verdict: Verdict::NoDifferenceShown,
    })
}

/// Judges steadiness, corrected for the number of arms like the medians. The word follows the
/// tested estimate. If the printed spreads contradict it, no difference is claimed.
fn judge_steadiness(comparisons: &mut [Comparison], alpha: f64) {
    let p: Vec<f64> = comparisons.iter().filter_map(|one| Some(one.steadiness?.p)).collect();
    let mut corrected = stats::holm(&p).into_iter();
    for comparison in comparisons {
        let decided = !matches!(comparison.verdict, Verdict::TooFewRounds);
        let Some(found) = &mut comparison.steadiness else { continue };
        found.p_corrected = corrected.next().unwrap_or(found.p);
        let (base, other) = found.spreads;
        found.verdict = match found.p_corrected <= alpha {
            true if found.change > 0.0 && other > base => Verdict::Worse,
            true if found.change < 0.0 && other < base => Verdict::Better,
            // As many rounds are needed as for the medians: both tests have the same smallest p.
            false if !decided => Verdict::TooFewRounds,
            _ => Verdict::NoDifferenceShown,
        };
    }
}

/// Compares every arm with the first in one quantity.
pub(super) fn compare(manifest: &Manifest, arms: &[ArmReport], quantity: Quantity) -> Vec<Comparison> {
    let level = manifest.schedule.confidence;
    // The same level for interval and test, so that an interval that excludes 0 and a verdict agree
    // before correction.
    let alpha = 1.0 - level;
    let until = matches!(manifest.schedule.length, Length::Until { .. });
    let Some(base) = arms.first().and_then(|arm| arm.summary(quantity)) else { return Vec::new() };
    let others: Vec<(usize, &Summary)> = arms
        .iter()
        .enumerate()
        .skip(1)
        .filter_map(|(index, arm)| Some((index, arm.summary(quantity)?)))
        .filter(|(_, other)| base.has_ratios() && other.has_ratios())
        .collect();
    let mut found: Vec<Comparison> = others
        .iter()
        .filter_map(|(index, other)| compare_two(base, other, *index, level, others.len(), until))
        .collect();
    let corrected = stats::holm(&found.iter().map(|comparison| comparison.p).collect::<Vec<_>>());
    // Only comparisons that can be made count as questions: an arm without energy readings costs
    // the others nothing.
    let questions = found.len();
    let better = quantity.metric(&manifest.workload.metric).better;
    for (comparison, p) in found.iter_mut().zip(corrected) {
        comparison.p_corrected = p;
        let smallest = if comparison.paired && until {
            // It had no fixed number of pairs: as many as were needed, or as many as were allowed.
            0.0
        } else if comparison.paired {
            // All ratios on one side: 2 / 2^n. Ties of zero make it larger; then the verdict is
            // only less definite.
            2.0_f64.powi(1 - comparison.pairs as i32)
        } else {
            let sizes =
                [base, arms[comparison.arm].summary(quantity).unwrap_or(base)].map(|s| s.points.len());
            stats::smallest_rank_sum_p(sizes[0], sizes[1])
        };
        comparison.verdict = if p <= alpha {
            let more = comparison.change > 0.0;
            if more == (better == Better::Higher) { Verdict::Better } else { Verdict::Worse }
        } else if smallest * questions as f64 > alpha {
            Verdict::TooFewRounds
        } else {
            Verdict::NoDifferenceShown
        };
    }
    if quantity == Quantity::Performance {
        judge_steadiness(&mut found, alpha);
    }
    found
}

/// Compares two arms, one of `questions` pairs that are asked about.
fn compare_two(
    base: &Summary,
    other: &Summary,
    arm: usize,
    level: f64,
    questions: usize,
    until: bool,
) -> Option<Comparison> {
    let values = |summary: &Summary| summary.points.iter().map(|point| point.value).collect::<Vec<f64>>();
    let logs = |summary: &Summary| {
        summary
            .points
            .iter()
            .map(|point| point.value.ln())
            .filter(|log| log.is_finite())
            .collect::<Vec<f64>>()
    };
    // What Holm's correction may ask of the surest of them.
    let alpha = (1.0 - level) / questions.max(1) as f64;
    let delta = stats::cliffs_delta(&values(base), &values(other))?;
    let ratios = log_ratios(base, other);
    let percent = |interval: Interval| interval.map(f64::exp_m1);
    // Logarithms: ratios multiply, and 2 % faster and 2 % slower become symmetric, as the
    // signed-rank test assumes.
    let (change, interval, p, pairs, paired, spread) = if ratios.is_empty() {
        let (a, b) = (logs(base), logs(other));
        // The deviation of a difference of two independent rounds.
        let spread = (stats::standard_deviation(&a)?.powi(2) + stats::standard_deviation(&b)?.powi(2)).sqrt();
        (
            stats::shift(&a, &b)?,
            stats::shift_interval(&a, &b, level),
            stats::rank_sum(&a, &b)?,
            a.len().min(b.len()),
            false,
            Some(spread),
        )
    } else if let (true, Some(p)) = (until, stats::always_p(&ratios)) {
        (
            stats::mean(&ratios)?,
            stats::always_interval(&ratios, level),
            p,
            ratios.len(),
            true,
            stats::standard_deviation(&ratios),
        )
    } else {
        (
            stats::hodges_lehmann(&ratios)?,
            stats::walsh_interval(&ratios, level),
            stats::signed_rank(&ratios).p,
            ratios.len(),
            true,
            stats::standard_deviation(&ratios),
        )
    };
    // Equal ratios in all blocks (a simulated machine without variation): power is not defined
    // without spread.
    let spread = spread.filter(|spread| *spread > 0.0);
    Some(Comparison {
        quantity: base.quantity,
        base: 0,
        arm,
        paired,
        pairs,
        change: change.exp_m1(),
        interval: interval.map(percent),
        p,
        p_corrected: p,
        delta,
        verdict: Verdict::NoDifferenceShown,
        steadiness: (base.quantity == Quantity::Performance).then(|| steadiness(base, other)).flatten(),
        shows: spread.and_then(|spread| stats::mean_shift_shown(pairs, spread, alpha, 0.9)).map(f64::exp_m1),
        // 0.01 as a logarithm is 1 % to four digits. Power 0.9, the usual choice where a missed
        // difference costs another run.
        rounds_for_one_percent: spread.map(|spread| stats::rounds_to_show(0.01, spread, alpha, 0.9)),
    })
}
