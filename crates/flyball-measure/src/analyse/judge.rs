//! Two arms compared: estimate, interval, test, and the verdict.

use std::collections::BTreeMap;

use super::{
    quantity::{Quantity, has_logarithm},
    report::{ArmReport, Comparison, Steadiness, Summary, Verdict},
    sift::mark_partial,
    values::{is_uneven, step},
};
use crate::{
    metric::{Better, Metric},
    run_directory::Manifest,
    schedule::{Length, Schedule},
    stats::{self, Interval, NORMAL_MEDIAN_DISTANCE, Test},
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
            let counts = has_logarithm(point.value) && has_logarithm(base);
            counts.then(|| (key, (base.ln(), point.value.ln())))
        })
        .collect();
    // Rounds of a resumed comparison are not in the order of blocks.
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

/// The medians' share of the error. Steadiness, which is seldom the question, has the other tenth:
/// with half of the error, it would cost every fourth slowdown of a disturbed machine.
const MEDIAN_SHARE: f64 = 0.9;

/// How strictly each question of a report is answered, so that all answers hold together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Correction {
    /// Questions: each arm against the first in each quantity that is judged, and in steadiness.
    pub questions: usize,
    /// The factor by which p-values are multiplied and the error of intervals is divided.
    pub medians: f64,
    /// The factor for steadiness.
    pub steadiness: f64,
}

impl Correction {
    /// The correction for this many questions about medians.
    pub(super) fn for_questions(questions: usize) -> Correction {
        Correction { questions, medians: questions.max(1) as f64, steadiness: 1.0 }
    }

    /// The correction for a comparison of this many arms. One that ends when it knows enough
    /// (`until`) does not judge steadiness.
    pub fn new(arms: usize, has_energy: bool, metric: &Metric, until: bool) -> Correction {
        let of_energy = match (has_energy && !metric.is_suite(), metric.is_per_watt_of_energy()) {
            (false, _) => 0,
            // Energy and performance per watt are inverse, so both have one answer.
            (true, true) => 1,
            (true, false) => 2,
        };
        let others = arms.saturating_sub(1).max(1);
        let judged = others * (1 + of_energy);
        // The cases of a suite have the other half of the error.
        let all = if metric.is_suite() { 0.5 } else { 1.0 };
        let share = if until { all } else { all * MEDIAN_SHARE };
        Correction {
            questions: judged + if until { 0 } else { others },
            medians: judged as f64 / share,
            steadiness: others as f64 / (all * (1.0 - MEDIAN_SHARE)),
        }
    }

    /// The correction for this many cases of a suite, which share half of the error.
    pub(super) fn for_cases(cases: usize) -> Correction {
        Correction::for_questions(2 * cases)
    }

    /// The correction for arms that have run.
    pub(super) fn for_arms(manifest: &Manifest, arms: &[ArmReport]) -> Correction {
        let is_of_energy = |one: &Summary| one.is_judged && one.quantity != Quantity::Performance;
        let has_energy = arms.iter().flat_map(|arm| &arm.summaries).any(is_of_energy);
        let until = manifest.schedule.is_until();
        Correction::new(arms.len(), has_energy, &manifest.workload.metric, until)
    }
}

/// Judges steadiness, corrected like the medians. The verdict follows the tested estimate. If the
/// printed spreads contradict it, no difference is claimed. Nothing is known if rounding can make
/// or hide a difference: a spread is below the step of the values, and the estimate below two
/// steps.
fn judge_steadiness(comparisons: &mut [Comparison], alpha: f64, correction: f64) {
    for comparison in comparisons {
        let test = if comparison.paired { Test::Pairs } else { Test::Ranks };
        let needed = stats::rounds_needed(alpha / correction, test);
        let Some(found) = &mut comparison.steadiness else { continue };
        found.p_corrected = (found.p * correction).min(1.0);
        let (base, other) = found.spreads;
        let change = found.change;
        let is_fine = |step: f64| step <= base.min(other) || change.abs() > 2.0 * step;
        found.verdict = match found.p_corrected <= alpha {
            false if comparison.pairs < needed => Verdict::TooFewRounds,
            _ if !comparison.step.is_some_and(is_fine) => {
                comparison.steadiness = None;
                continue;
            }
            true if change > 0.0 && other > base => Verdict::Worse,
            true if change < 0.0 && other < base => Verdict::Better,
            _ => Verdict::NoDifferenceShown,
        };
    }
}

/// Compares every arm with the first in one quantity, as strictly as its report needs.
pub(super) fn compare(
    manifest: &Manifest,
    arms: &[ArmReport],
    quantity: Quantity,
    correction: Correction,
) -> Vec<Comparison> {
    let summaries: Vec<Option<&Summary>> = arms.iter().map(|arm| arm.summary(quantity)).collect();
    let mut found = compare_summaries(manifest, &summaries, correction);
    for comparison in &mut found {
        mark_partial(comparison, arms, quantity);
    }
    found
}

/// How arms of a schedule are compared.
pub(crate) fn test(paired: bool, schedule: &Schedule) -> Test {
    match schedule.length {
        _ if !paired => Test::Ranks,
        Length::Until { .. } => Test::Looks,
        Length::Rounds(_) | Length::Search { .. } => Test::Pairs,
    }
}

/// Compares every arm's summary with the first.
pub(super) fn compare_summaries(
    manifest: &Manifest,
    arms: &[Option<&Summary>],
    correction: Correction,
) -> Vec<Comparison> {
    let alpha = 1.0 - manifest.schedule.confidence;
    // The same level for interval and test, so that words and intervals agree.
    let level = 1.0 - alpha / correction.medians;
    let until = manifest.schedule.is_until();
    let Some(base) = arms.first().copied().flatten() else { return Vec::new() };
    let others = arms.iter().enumerate().skip(1).filter_map(|(index, arm)| Some((index, (*arm)?)));
    let mut found: Vec<Comparison> = others
        .filter(|(_, other)| base.has_ratios() && other.has_ratios())
        .filter_map(|(index, other)| compare_two(base, other, index, level, until))
        .collect();
    let better = base.metric.better;
    for comparison in &mut found {
        let p = (comparison.p * correction.medians).min(1.0);
        comparison.p_corrected = p;
        // Ties make the smallest p larger; then the verdict is only less definite.
        let rounds = if comparison.paired {
            [comparison.pairs; 2]
        } else {
            [base, arms[comparison.arm].unwrap_or(base)].map(|summary| summary.points.len())
        };
        let smallest = test(comparison.paired, &manifest.schedule).smallest_p(rounds);
        // With ties, test and interval can differ by a hair. Both must agree.
        let is_same = |one: Interval| one.low >= -EQUIVALENT && one.high <= EQUIVALENT;
        let differs = comparison.interval.is_some_and(|interval| !interval.contains(0.0));
        // Rounding of one factor can reverse the change of a product.
        let is_computed = base.is_computed() || arms[comparison.arm].is_some_and(Summary::is_computed);
        let stays = || comparison.with_steps(false).is_some_and(|interval| !interval.contains(0.0));
        let is_shown = p <= alpha && differs && (!is_computed || stays());
        comparison.interval = comparison.with_steps(is_shown);
        comparison.verdict = if is_shown {
            let more = comparison.change > 0.0;
            if more == (better == Better::Higher) { Verdict::Better } else { Verdict::Worse }
        } else if smallest * correction.medians > alpha {
            Verdict::TooFewRounds
        } else if comparison.interval.is_some_and(is_same) {
            Verdict::Equivalent
        } else {
            Verdict::NoDifferenceShown
        };
        // This number is for fixed numbers of pairs and normal noise. Slow rounds widen the
        // interval, although typical rounds then need fewer pairs than normal noise of that width.
        let is_uneven = [Some(base), arms[comparison.arm]].into_iter().flatten().any(is_uneven);
        if !comparison.paired || until || is_uneven {
            comparison.rounds_for_one_percent = None;
        }
        // Costs two hundred simulated comparisons, so only if the answer is read.
        let other = arms[comparison.arm].filter(|other| other.is_judged && comparison.paired && !until);
        if let (Verdict::NoDifferenceShown, Some(other)) = (comparison.verdict, other) {
            // Slow rounds of one arm can hide changes on their side only, far beyond the interval.
            // Without far rounds, this is less than twice half of its width.
            let width = comparison.interval.map_or(f64::INFINITY, Interval::half_width);
            let shown = stats::shift_shown(&log_ratios(base, other), alpha / correction.medians)
                .filter(|shift| *shift > 0.0 && !(is_uneven && *shift > 4.0 * width));
            comparison.shows = shown.zip(comparison.step).map(|(shift, step)| match shift.exp_m1() {
                // One step for the measured value, and one for the interval.
                shift if is_computed && comparison.is_coarse() => (1.0 + shift) * (1.0 + step).powi(2) - 1.0,
                shift => shift.max(step),
            });
        }
    }
    if base.quantity == Quantity::Performance {
        judge_steadiness(&mut found, alpha, correction.steadiness);
    }
    found
}

/// Differences up to this do not matter: half a percent to either side.
pub const EQUIVALENT: f64 = 0.005;

/// Compares two arms, with an interval of this level.
pub(super) fn compare_two(
    base: &Summary,
    other: &Summary,
    arm: usize,
    level: f64,
    until: bool,
) -> Option<Comparison> {
    let logs = |summary: &Summary| {
        summary
            .points
            .iter()
            .map(|point| point.value.ln())
            .filter(|log| log.is_finite())
            .collect::<Vec<f64>>()
    };
    let delta = stats::cliffs_delta(&base.values(), &other.values())?;
    let ratios = log_ratios(base, other);
    let percent = |interval: Interval| interval.map(f64::exp_m1);
    // Logarithms: ratios multiply, and 2 % faster and 2 % slower become symmetric, as the
    // signed-rank test assumes.
    let (change, interval, p, pairs, paired) = if ratios.is_empty() {
        let (a, b) = (logs(base), logs(other));
        (
            stats::shift(&a, &b)?,
            stats::shift_interval(&a, &b, level),
            stats::rank_sum(&a, &b)?,
            a.len().min(b.len()),
            false,
        )
    } else if let (true, Some(p)) = (until, stats::always_p(&ratios)) {
        (stats::mean(&ratios)?, stats::always_interval(&ratios, level), p, ratios.len(), true)
    } else {
        (
            stats::hodges_lehmann(&ratios)?,
            stats::walsh_interval(&ratios, level),
            stats::signed_rank(&ratios).p,
            ratios.len(),
            true,
        )
    };
    let alpha = 1.0 - level;
    let step = step(&[base, other]);
    // The deviation of normal noise that gives an interval of this width. A few rounds far from the
    // others do not widen it. Equal ratios in all blocks (a simulated machine without variation)
    // have none.
    let spread = interval
        .map(|interval| stats::spread_of_interval(interval.half_width(), pairs, alpha))
        .filter(|spread| *spread > 0.0);
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
        partial: false,
        // The test of steadiness needs a fixed number of rounds.
        steadiness: (base.quantity == Quantity::Performance && !until)
            .then(|| steadiness(base, other))
            .flatten(),
        shows: None,
        // 0.01 as a logarithm is 1 % to four digits. Power 0.9 is the usual choice if a missed
        // difference costs another run.
        rounds_for_one_percent: spread
            .filter(|_| step.is_some_and(|step| step < 0.01))
            .map(|spread| stats::rounds_to_show(0.01, spread, alpha, 0.9)),
        step,
    })
}
