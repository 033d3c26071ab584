//! From raw rounds to a report: pure, so that the same run directory always gives the same report.
//!
//! Arms are compared with the first one. Rounds of one block ran close together, so their ratios
//! are compared, not their values: a change over hours affects both. The test is Wilcoxon's on the
//! logarithms of these ratios, with exact probabilities; the estimate and its interval belong to
//! the test. Probabilities and intervals are corrected after Bonferroni for all questions that a
//! report answers (arms, quantities and steadiness): an interval excludes 0 exactly if a difference
//! is claimed, and all claims hold together. Arms that ran in different boots have no common
//! blocks; they are compared by the rank-sum test, and the report says so. A comparison that ended
//! when it knew enough (`--until`) has looked at its rounds again and again: its intervals and
//! probabilities are those of `stats::always_interval`, which allow that.

mod cases;
mod gate;
mod interaction;
mod judge;
mod notes;
mod programs;
mod quantity;
mod report;
mod sift;
mod values;

use std::collections::BTreeSet;

pub use self::{
    gate::{Limit, LimitError, gate},
    judge::{Correction, EQUIVALENT},
    quantity::{Quantity, has_logarithm},
    report::{
        ArmReport, CaseReport, Comparison, Drift, GateAnswer, GateVerdict, Grades, LeftOut, NoInterval,
        Point, ProgramEffect, Report, Steadiness, Summary, Verdict, with_step,
    },
    sift::disturbance,
};
pub(crate) use self::{
    interaction::{questions, settings},
    judge::test,
    notes::{rounding, without_ratio},
    report::is_coarse,
};
use self::{
    judge::{compare, compare_summaries, log_ratios},
    notes::notes,
    sift::{report_arm, report_points},
};
pub(crate) use self::{
    notes::is_first,
    sift::{are_unlike, disturbed_blocks},
    values::{is_uneven, two_levels},
};
use crate::{
    run_directory::{Manifest, Round},
    schedule::Length,
    stats,
};

pub fn analyse(manifest: &Manifest, rounds: &[Round]) -> Report {
    let all = rounds;
    let rounds = &*cases::common(all);
    let named = cases::named(all, manifest);
    let manifest = named.as_ref().unwrap_or(manifest);
    let counted: Vec<&Round> = rounds.iter().filter(|round| !round.warm_up).collect();
    let mut arms: Vec<ArmReport> =
        (0..manifest.arms.len()).map(|arm| report_arm(manifest, &counted, arm)).collect();
    cases::mark_lost(all, &mut arms);
    let mut comparisons = Vec::new();
    let correction = Correction::for_arms(manifest, &arms);
    for quantity in Quantity::judged(&manifest.workload.metric) {
        comparisons.extend(compare(manifest, &arms, *quantity, correction));
    }
    // The case that does not count may differ, however equal the others are.
    for comparison in comparisons.iter_mut().filter(|one| arms[one.arm].lacks_case) {
        comparison.without_same();
    }
    let reason = |get: fn(&crate::meter::MeterList) -> &Option<String>| {
        manifest.boots.iter().find_map(|boot| get(&boot.meters).clone())
    };
    let resources = programs::resources(manifest, &arms);
    let cases = cases::cases(manifest, &counted, &arms);
    let mut report = Report {
        machine: manifest.machine.clone(),
        workload: manifest.workload.clone(),
        schedule: manifest.schedule.clone(),
        quiet: manifest.quiet.clone(),
        arms,
        comparisons,
        questions: correction.questions + cases.len(),
        correction: correction.medians,
        cases,
        resources,
        effects: Vec::new(),
        withheld: Vec::new(),
        gate: Vec::new(),
        no_energy: reason(|meters| &meters.no_energy),
        no_frequency: reason(|meters| &meters.no_frequency),
        no_counters: None,
        notes: Vec::new(),
    };
    // The list of meters gives no reason for a meter that was found but stands still. Only the
    // rounds show that.
    report.no_energy = report.no_energy.or_else(|| notes::still(manifest, &counted));
    report.effects = interaction::effects(manifest, &report.arms);
    if !report.resources.is_empty() {
        report.no_counters = reason(|meters| &meters.no_counters);
    }
    report.notes = notes::slow_warm_up(manifest, rounds).into_iter().collect();
    report.notes.extend(cases::note(all, &report.arms));
    report.notes.extend(notes::busy(manifest, rounds, &report.arms));
    report.notes.extend(notes::fixed_time(&report));
    if notes::runs_for_fixed_time(&report.workload, &report.arms) {
        // Arms that did different work in equal time are not 'the same'.
        for comparison in &mut report.comparisons {
            comparison.without_same();
        }
    }
    report.notes.extend(notes::partial(&report));
    report.notes.extend(notes::carry_over(rounds, &report.arms, &report.comparisons));
    let withheld = programs::withhold(&mut report);
    report.notes.extend(withheld);
    report.notes.extend(programs::cpu_time(&report));
    report.notes.extend(programs::notes(manifest, &counted));
    report.notes.extend(programs::zeros(&report.arms));
    let changed = notes::changed_differences(&report);
    report.notes.extend(changed.iter().map(|(.., note)| note.clone()));
    // The difference changed, so rounds could not have shown a single one.
    for comparison in &mut report.comparisons {
        if changed.iter().any(|(quantity, arm, _)| (*quantity, *arm) == (comparison.quantity, comparison.arm))
        {
            comparison.shows = None;
            comparison.rounds_for_one_percent = None;
        }
    }
    report.notes.extend(notes(manifest, &counted, &report, &changed));
    report
}

/// Compares every arm with the first in one quantity like [`analyse`], but as one of this many
/// questions.
pub fn judge(manifest: &Manifest, rounds: &[Round], quantity: Quantity, questions: usize) -> Vec<Comparison> {
    let rounds = &*cases::common(rounds);
    let counted: Vec<&Round> = rounds.iter().filter(|round| !round.warm_up).collect();
    let arms: Vec<ArmReport> =
        (0..manifest.arms.len()).map(|arm| report_arm(manifest, &counted, arm)).collect();
    compare(manifest, &arms, quantity, Correction::for_questions(questions))
}

/// The rounding step of arms' values, as a fraction of the smallest value. None if it is not known:
/// then nothing is known of differences below the values.
pub fn step(manifest: &Manifest, rounds: &[&Round], quantity: Quantity, arms: &[usize]) -> Option<f64> {
    let counts =
        |round: &&Round| arms.contains(&round.arm) && !round.warm_up && round.outcome.failure.is_none();
    let rounds: Vec<&Round> = rounds.iter().copied().filter(counts).collect();
    let of = |arm: usize| {
        let own: Vec<&Round> = rounds.iter().copied().filter(|round| round.arm == arm).collect();
        sift::summary_of(manifest, &own, quantity)
    };
    let all: Option<Vec<Summary>> = arms.iter().map(|arm| of(*arm)).collect();
    values::step(&all?.iter().collect::<Vec<_>>())
}

/// Returns the note of [`analyse`] on rounds of an arm that lie far from the others, or on two
/// levels.
pub fn odd_rounds(manifest: &Manifest, rounds: &[Round], arm: usize, quantity: Quantity) -> Option<String> {
    let counted: Vec<&Round> = rounds.iter().filter(|round| !round.warm_up).collect();
    let arms = [0, arm].map(|arm| report_arm(manifest, &counted, arm));
    notes::odd_rounds(&arms, usize::from(arm > 0), quantity, &manifest.schedule)
}

/// The logarithms of each arm over the first, block by block, in each quantity that is judged.
#[derive(Debug)]
pub(crate) struct Differences {
    pub(crate) quantity: Quantity,
    pub(crate) arm: usize,
    /// Empty if a value of either arm is zero or negative.
    pub(crate) logs: Vec<f64>,
    /// The rounding step of the values.
    pub(crate) step: Option<f64>,
    /// Whether the values are computed from others that come in steps.
    pub(crate) is_computed: bool,
    /// Blocks with both arms.
    pub(crate) pairs: usize,
    /// Why there are no logarithms, although there are blocks with both arms.
    pub(crate) why_none: Option<String>,
    /// Whether it is the first arm again and seems to differ from it.
    pub(crate) is_unlike_itself: bool,
}

/// The arms with the rounds that count, and their differences.
pub(crate) fn differences(manifest: &Manifest, rounds: &[Round]) -> (Vec<ArmReport>, Vec<Differences>) {
    let rounds = &*cases::common(rounds);
    let counted: Vec<&Round> = rounds.iter().filter(|round| !round.warm_up).collect();
    let arms: Vec<ArmReport> =
        (0..manifest.arms.len()).map(|arm| report_points(manifest, &counted, arm)).collect();
    let correction = Correction::for_arms(manifest, &arms);
    let of = |quantity: Quantity, arm: usize| {
        let (base, other) = (arms[0].summary(quantity)?, arms[arm].summary(quantity)?);
        let step = values::step(&[base, other]);
        let is_computed = base.is_computed() || other.is_computed();
        let key = |point: &Point| (point.boot, point.block);
        let blocks: BTreeSet<_> = base.points.iter().map(key).collect();
        let pairs = other.points.iter().filter(|point| blocks.contains(&key(point))).count();
        let why_none: Vec<String> = [(0, base), (arm, other)]
            .iter()
            .filter_map(|(arm, of)| without_ratio(&arms[*arm].name, of))
            .collect();
        let why_none = (!why_none.is_empty()).then(|| why_none.join(", "));
        let logs = if why_none.is_none() { log_ratios(base, other) } else { Vec::new() };
        let is_unlike_itself = arms[arm].control && {
            let mut pair = vec![None; arms.len()];
            (pair[0], pair[arm]) = (Some(base), Some(other));
            compare_summaries(manifest, &pair, correction).iter().any(|one| one.verdict.is_difference())
        };
        Some(Differences { quantity, arm, logs, step, is_computed, pairs, why_none, is_unlike_itself })
    };
    let each = Quantity::judged(&manifest.workload.metric)
        .iter()
        .flat_map(|quantity| (1..arms.len()).map(move |arm| (*quantity, arm)));
    let found = each.filter_map(|(quantity, arm)| of(quantity, arm)).collect();
    (arms, found)
}

/// Minimum number of blocks before a comparison ends because arms are the same. With fewer, a slow
/// round in ten has often not happened yet.
const LEAST_FOR_SAME: usize = 15;

/// Returns whether a boot's arms, each against the first, are known as well as [`Length::Until`]
/// requires.
pub(crate) fn is_known(manifest: &Manifest, rounds: &[Round], boot: usize) -> bool {
    let Length::Until { half_width, decided, .. } = manifest.schedule.length else { return false };
    let rounds = &*cases::common(rounds);
    // Other boots share no blocks with this one, so more rounds here do not narrow their intervals.
    let counted: Vec<&Round> = rounds.iter().filter(|round| !round.warm_up && round.boot == boot).collect();
    let Some(arms) = manifest.boots.get(boot).map(|boot| &boot.arms) else { return false };
    let reports: Vec<ArmReport> = arms.iter().map(|arm| report_points(manifest, &counted, *arm)).collect();
    let level = manifest.schedule.confidence;
    // As strict as the report.
    let level = 1.0 - (1.0 - level) / Correction::for_arms(manifest, &reports).medians;
    let limits = manifest.schedule.limits.iter().filter_map(|limit| limit.parse().ok());
    let limits: Vec<Limit> = limits.filter(|_| decided).collect();
    if !limits.is_empty() {
        let of_cases = limits.iter().any(Limit::is_of_cases);
        let cases = if of_cases { cases::cases(manifest, &counted, &reports) } else { Vec::new() };
        let is_early = counted.iter().filter(|round| round.arm == arms[0]).count() < LEAST_FOR_SAME;
        return gate::answers(manifest, &reports, &cases, &[], &limits).iter().all(|answer| {
            match answer.verdict {
                GateVerdict::Over => true,
                GateVerdict::Within => !is_early,
                // More rounds will not give an interval either.
                GateVerdict::CannotTell => answer.reason.is_some_and(|reason| !reason.is_of_rounds()),
            }
        });
    }
    let Some((base, others)) = reports.split_first() else { return false };
    let Some(base) = base.summary(Quantity::Performance) else { return false };
    let is_narrow = |values: &[f64], step: Option<f64>| {
        stats::always_interval(values, level).is_some_and(|found| {
            if decided {
                let ends = found.map(f64::exp_m1);
                let is_same = step.is_some_and(|step| {
                    let half_width = half_width - step;
                    ends.low >= -half_width && ends.high <= half_width
                });
                is_same && values.len() >= LEAST_FOR_SAME || !found.contains(0.0)
            } else {
                found.half_width() <= half_width
            }
        })
    };
    if others.is_empty() {
        // An arm alone in its boot: its own precision counts. Centred, because it is compared with
        // nothing.
        let logs: Vec<f64> = base.points.iter().map(|p| p.value.ln()).collect();
        let middle = stats::mean(&logs).unwrap_or_default();
        return is_narrow(&logs.iter().map(|log| log - middle).collect::<Vec<_>>(), Some(0.0));
    }
    others.iter().all(|other| {
        let other = other.summary(Quantity::Performance);
        other.is_some_and(|other| is_narrow(&log_ratios(base, other), values::step(&[base, other])))
    })
}

#[cfg(test)]
mod tests;
