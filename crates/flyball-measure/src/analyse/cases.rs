//! The cases of benchmark suites: which ones every round has, and a verdict for each.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use flyball_text::counted;

use super::{
    judge::{Correction, compare_summaries},
    quantity::Quantity,
    report::{ArmReport, CaseReport, Comparison, Summary, Verdict},
    sift::{case_summaries, mark_partial},
};
use crate::{
    run_directory::{Manifest, Round},
    workload::suite::geometric_mean,
};

/// Names the cases that have a value in a round.
fn names(round: &Round) -> BTreeSet<&str> {
    round.outcome.cases.iter().filter(|(_, value)| **value > 0.0).map(|(name, _)| name.as_str()).collect()
}

/// The rounds that determine which cases there are.
fn measured(rounds: &[Round]) -> impl Iterator<Item = &Round> {
    let is_suite = |round: &&Round| !round.outcome.cases.is_empty();
    rounds.iter().filter(is_suite).filter(|round| !round.warm_up && round.outcome.failure.is_none())
}

/// Keeps the cases that every round has, and makes their mean the rounds' value: builds that have
/// different cases are compared by those that they share.
pub(super) fn common(rounds: &[Round]) -> Cow<'_, [Round]> {
    let shared = measured(rounds).map(names).reduce(|all, own| &all & &own);
    let Some(shared) = shared.filter(|shared| measured(rounds).any(|round| names(round) != *shared)) else {
        return Cow::Borrowed(rounds);
    };
    let mut kept = rounds.to_vec();
    for round in kept.iter_mut().filter(|round| !round.outcome.cases.is_empty()) {
        round.outcome.cases.retain(|name, _| shared.contains(name.as_str()));
        round.outcome.value = geometric_mean(round.outcome.cases.values().copied());
    }
    Cow::Owned(kept)
}

fn all_names(rounds: &[Round]) -> BTreeSet<&str> {
    measured(rounds).flat_map(|round| round.outcome.cases.keys().map(String::as_str)).collect()
}

/// The cases that do not count. Each has the arms whose rounds lack the case, or have no time for
/// it, with the number of these rounds.
fn lost(rounds: &[Round]) -> BTreeMap<&str, BTreeMap<usize, usize>> {
    let all = all_names(rounds);
    let mut lost: BTreeMap<&str, BTreeMap<usize, usize>> = BTreeMap::new();
    for round in measured(rounds) {
        for name in all.difference(&names(round)) {
            *lost.entry(name).or_default().entry(round.arm).or_default() += 1;
        }
    }
    lost
}

/// The manifest with a metric that says how many cases count, if some do not.
pub(super) fn named(rounds: &[Round], manifest: &Manifest) -> Option<Manifest> {
    let (lost, all) = (lost(rounds).len(), all_names(rounds).len());
    let mut named = (lost > 0 && manifest.workload.metric.is_suite()).then(|| manifest.clone())?;
    named.workload.metric = named.workload.metric.for_cases(all - lost, all);
    Some(named)
}

/// Marks the arms that lost a case of the first arm, or that have one which the first arm lost.
/// They cannot be compared in it, so a limit cannot be decided. A case that the first arm never had
/// does not count here, unless it is 0 there.
pub(super) fn mark_lost(rounds: &[Round], arms: &mut [ArmReport]) {
    let values = |case: &str, is: fn(f64) -> bool| -> BTreeSet<usize> {
        let has = |round: &&Round| round.outcome.cases.get(case).is_some_and(|value| is(*value));
        measured(rounds).filter(has).map(|round| round.arm).collect()
    };
    for (case, without) in lost(rounds) {
        let (positive, zero) = (values(case, |value| value > 0.0), values(case, |value| value == 0.0));
        let had = positive.contains(&0);
        let has_lost = without.keys().filter(|_| had);
        let has_alone = positive.iter().filter(|_| without.contains_key(&0) && (had || zero.contains(&0)));
        for arm in has_lost.chain(has_alone).filter(|arm| **arm != 0) {
            arms[*arm].lacks_case = true;
        }
    }
}

/// Names the cases that do not count; `None` if all do.
pub(super) fn note(all: &[Round], arms: &[ArmReport]) -> Option<String> {
    const NAMED: usize = 5;
    let lost = lost(all);
    let of_arm = |(arm, count): (&usize, &usize)| {
        let name = &arms[*arm].name;
        let is_whole = *count == measured(all).filter(|round| round.arm == *arm).count();
        if is_whole { name.clone() } else { format!("{} of {name}", counted(*count, "round")) }
    };
    let name = |(case, without): (&&str, &BTreeMap<usize, usize>)| {
        format!("{case} (none or 0 in {})", without.iter().map(of_arm).collect::<Vec<_>>().join(", "))
    };
    let first = lost.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ");
    let (count, more) = (lost.len(), if lost.len() > NAMED { ", ..." } else { "" });
    (count > 0).then(|| {
        format!("Only cases that have a value in every round count; left out ({count}): {first}{more}.")
    })
}

/// Compares each case of each arm with that of the first arm. The most certain and the largest
/// differences come first.
pub(super) fn cases(manifest: &Manifest, rounds: &[&Round], reports: &[ArmReport]) -> Vec<CaseReport> {
    let count = rounds.iter().map(|round| round.outcome.cases.len()).max().unwrap_or(0);
    if count == 0 {
        return Vec::new();
    }
    // By chance, one report in a hundred says that a case drifts.
    let least = 0.01 / (count * manifest.arms.len()) as f64;
    let of_arm = |(index, arm)| case_summaries(manifest, rounds, arm, index, least);
    let arms: Vec<BTreeMap<String, Summary>> = reports.iter().enumerate().map(of_arm).collect();
    let correction = Correction::for_cases(count * (arms.len() - 1));
    let mut found = Vec::new();
    for (name, base) in &arms[0] {
        let own: Vec<Option<&Summary>> = arms.iter().map(|arm| arm.get(name)).collect();
        let mut comparisons = compare_summaries(manifest, &own, correction);
        let is_odd =
            comparisons.iter().any(|one| manifest.arms[one.arm].control && one.verdict.is_difference());
        comparisons.retain(|one| !manifest.arms[one.arm].control);
        for mut comparison in comparisons {
            // Steadiness is judged for the whole suite, not for each case.
            comparison.steadiness = None;
            if is_odd {
                comparison.verdict = Verdict::NoDifferenceShown;
            }
            mark_partial(&mut comparison, reports, Quantity::Performance);
            let Some(other) = own[comparison.arm] else { continue };
            let marks = marks(&[(base, 0), (other, comparison.arm)], manifest);
            found.push(CaseReport {
                name: name.clone(),
                medians: [base.median, other.median],
                withheld: is_odd,
                marks,
                comparison,
            });
        }
    }
    found.sort_by(|a, b| {
        let [(first, one), (second, other)] = [a, b].map(|case| rank(&case.comparison));
        first.cmp(&second).then(other.total_cmp(&one)).then_with(|| a.name.cmp(&b.name))
    });
    found
}

/// The order of certainty, and the size.
fn rank(comparison: &Comparison) -> (u8, f64) {
    let certainty = match comparison.verdict {
        Verdict::Better | Verdict::Worse => 0,
        Verdict::NoDifferenceShown => 1,
        Verdict::TooFewRounds => 2,
        Verdict::Equivalent => 3,
    };
    (certainty, comparison.change.ln_1p().abs())
}

/// Says what disturbed a case's values.
fn marks(arms: &[(&Summary, usize)], manifest: &Manifest) -> Vec<String> {
    let of_arm = |(summary, arm): &(&Summary, usize)| {
        let name = &manifest.arms[*arm].name;
        let drift =
            summary.drift.map(|drift| format!("{name} moves by {}", crate::numbers::percent(drift.change)));
        let far = summary.outliers.len();
        let disturbed =
            (far > 0).then(|| format!("{name} disturbed in {far} of {} rounds", summary.points.len()));
        drift.into_iter().chain(disturbed).collect::<Vec<_>>()
    };
    arms.iter().flat_map(of_arm).collect()
}
