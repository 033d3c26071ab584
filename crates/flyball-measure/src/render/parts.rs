//! What the tables and the sentences of a report share.

use flyball_text::columns::Style;

use crate::analyse::{ArmReport, Comparison, Quantity, Report, Verdict};

/// For whom text is made.
#[derive(Debug, Clone, Copy)]
pub struct Screen<P> {
    /// Characters on a line; none for a file or a pipe.
    pub width: Option<usize>,
    /// How words stand out.
    pub painter: P,
}

/// The columns that at least one arm fills; energy has a line with the reason if it is absent.
pub(super) fn columns(report: &Report) -> Vec<Quantity> {
    [
        Quantity::Performance,
        Quantity::Latency,
        Quantity::Time,
        Quantity::Energy,
        Quantity::Dram,
        Quantity::Platform,
        Quantity::PerWatt,
        Quantity::Power,
        Quantity::PlatformPower,
        Quantity::Frequency,
        Quantity::Busy,
        Quantity::Temperature,
        Quantity::Switches,
        Quantity::Decisions,
        Quantity::TraceFrequency,
        Quantity::Lag,
    ]
    .into_iter()
    .filter(|quantity| {
        // Wall time is a column of its own only if it is not the metric.
        let twice = *quantity == Quantity::Time && report.workload.metric.name == "wall time";
        !twice && report.arms.iter().any(|arm| arm.summary(*quantity).is_some())
    })
    .collect()
}

pub(super) fn rounds(arm: &ArmReport) -> String {
    if arm.left_out.is_empty() {
        arm.rounds.to_string()
    } else {
        format!("{} (-{})", arm.rounds, arm.left_out.len())
    }
}

/// How the word of a verdict stands out.
pub(super) fn style(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Better => Style::Good,
        Verdict::Worse => Style::Alert,
        Verdict::NoDifferenceShown | Verdict::TooFewRounds => Style::Plain,
    }
}

/// What a comparison that is not of pairs says of that.
pub(super) fn how(report: &Report, comparison: &Comparison) -> &'static str {
    let boots = |arm: usize| &report.arms[arm].boots;
    if comparison.paired {
        ""
    } else if boots(comparison.arm).iter().any(|boot| boots(comparison.base).contains(boot)) {
        ", no block has both"
    } else {
        ", other boot"
    }
}
