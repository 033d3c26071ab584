//! From raw rounds to a report: pure, so that the same run directory always gives the same report.
//!
//! Arms are compared with the first one. Rounds of one block ran close together, so their ratios are compared, not
//! their values: what changed over the hours changed for both. The test is Wilcoxon's on the logarithms of these
//! ratios, its probabilities exact, corrected after Holm for the number of arms; the estimate and its interval are
//! those that belong to the test. Arms that ran in different boots have no common blocks; they are compared by the
//! rank-sum test, and the report says so.

mod judge;
mod notes;
mod quantity;
mod report;
mod sift;

use self::{
    judge::{compare, log_ratios},
    notes::notes,
    sift::{report_arm, report_points},
};
pub use self::{
    quantity::Quantity,
    report::{ArmReport, Comparison, Drift, Grades, LeftOut, Point, Report, Steadiness, Summary, Verdict},
};
use crate::{
    run_directory::{Manifest, Round},
    stats::{self, Interval},
};

/// Makes the report.
pub fn analyse(manifest: &Manifest, rounds: &[Round]) -> Report {
    let counted: Vec<&Round> = rounds.iter().filter(|round| !round.warm_up).collect();
    let arms: Vec<ArmReport> =
        (0..manifest.arms.len()).map(|arm| report_arm(manifest, &counted, arm)).collect();
    let mut comparisons = Vec::new();
    // Each quantity is a question of its own; Holm's correction counts the arms within it, as the report says.
    for quantity in Quantity::JUDGED {
        comparisons.extend(compare(manifest, &arms, quantity));
    }
    let reason = |get: fn(&crate::meter::MeterList) -> &Option<String>| {
        manifest.boots.iter().find_map(|boot| get(&boot.meters).clone())
    };
    let mut report = Report {
        machine: manifest.machine.clone(),
        workload: manifest.workload.clone(),
        schedule: manifest.schedule.clone(),
        quiet: manifest.quiet.clone(),
        arms,
        comparisons,
        no_energy: reason(|meters| &meters.no_energy),
        no_frequency: reason(|meters| &meters.no_frequency),
        notes: Vec::new(),
    };
    // A meter that stands still was found, so the list of meters has no reason; only the rounds show it.
    report.no_energy = report.no_energy.or_else(|| notes::still(manifest, &counted));
    report.notes = notes::slow_warm_up(manifest, rounds).into_iter().collect();
    report.notes.extend(notes(manifest, &counted, &report));
    report
}

/// Every arm against the first in one quantity, as [`analyse`] compares them in those that it judges.
pub fn judge(manifest: &Manifest, rounds: &[Round], quantity: Quantity) -> Vec<Comparison> {
    let counted: Vec<&Round> = rounds.iter().filter(|round| !round.warm_up).collect();
    let arms: Vec<ArmReport> =
        (0..manifest.arms.len()).map(|arm| report_arm(manifest, &counted, arm)).collect();
    compare(manifest, &arms, quantity)
}

/// The widest half-width of the performance intervals of a boot's arms against its first, as a fraction; `None`
/// while there is none. What `--until` waits for.
pub fn half_width(manifest: &Manifest, rounds: &[Round], boot: usize) -> Option<f64> {
    // Other boots share no blocks with this one, so more rounds here do not narrow those intervals.
    let counted: Vec<&Round> = rounds.iter().filter(|round| !round.warm_up && round.boot == boot).collect();
    let arms = &manifest.boots.get(boot)?.arms;
    let reports: Vec<ArmReport> = arms.iter().map(|arm| report_points(manifest, &counted, *arm)).collect();
    let level = manifest.schedule.confidence;
    let (base, others) = reports.split_first()?;
    if others.is_empty() {
        // An arm alone in its boot: its own median's precision counts.
        let values: Vec<f64> =
            base.summary(Quantity::Performance)?.points.iter().map(|p| p.value.ln()).collect();
        return stats::walsh_interval(&values, level).map(Interval::half_width);
    }
    others.iter().try_fold(0.0_f64, |widest, other| {
        let ratios = log_ratios(base.summary(Quantity::Performance)?, other.summary(Quantity::Performance)?);
        // One arm without an interval yet means that there is none for all.
        Some(widest.max(stats::walsh_interval(&ratios, level)?.half_width()))
    })
}

#[cfg(test)]
mod tests;
