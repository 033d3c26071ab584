//! Functions that the tables and the sentences of a report share.

use flyball_text::columns::Style;

use crate::{
    analyse::{ArmReport, Comparison, Quantity, Report, Verdict, is_uneven, test},
    metric::Better,
    numbers::{level, percent, two_digits, unsigned},
    schedule::Schedule,
    stats::{self, Interval},
};

/// The screen or file that text is made for.
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
        Quantity::WorkEnergy,
        Quantity::Dram,
        Quantity::Platform,
        Quantity::PerWatt,
        Quantity::Power,
        Quantity::PlatformPower,
        Quantity::Frequency,
        Quantity::Busy,
        Quantity::Temperature,
        Quantity::CpuTime,
        Quantity::User,
        Quantity::System,
        Quantity::PeakMemory,
        Quantity::Faults,
        Quantity::Instructions,
        Quantity::Cycles,
        Quantity::BranchMisses,
        Quantity::CacheMisses,
        Quantity::Switches,
        Quantity::Decisions,
        Quantity::TraceFrequency,
        Quantity::Lag,
    ]
    .into_iter()
    .filter(|quantity| {
        // A quantity is a column of its own only if it is not the metric.
        let twice = quantity.is_metric(&report.workload.metric);
        let of_programs = [&Quantity::RESOURCES[..], &[Quantity::User, Quantity::System]].concat();
        let unasked = of_programs.contains(quantity)
            && *quantity != Quantity::Switches
            && report.arms.iter().all(|arm| arm.program.is_none());
        let is_bounded = |arm: &ArmReport| *quantity == Quantity::PeakMemory && arm.memory_at_most.is_some();
        let is_known = |arm: &ArmReport| arm.summary(*quantity).is_some() || is_bounded(arm);
        !twice && !unasked && report.arms.iter().any(is_known)
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

/// An interval of a shown difference, which at most ends at 0, in words: `between 1.20 and 2.00 %
/// more wall time`.
pub(super) fn extent(interval: Interval, name: &str) -> String {
    let (low, high) = (interval.low.abs(), interval.high.abs());
    let direction = if interval.low < 0.0 { "less" } else { "more" };
    let (low, high) = (unsigned(low.min(high)), unsigned(low.max(high)));
    format!("between {} and {high} {direction} {name}", low.trim_end_matches(" %"))
}

/// Words for a verdict that ignores rounds far from the others.
pub(super) fn typical(report: &Report, comparison: &Comparison) -> &'static str {
    let of_arm = |arm: usize| report.arms[arm].summary(comparison.quantity).is_some_and(is_uneven);
    // With --until, verdicts are about the mean of the ratios, which every round changes.
    let is_uneven = !report.schedule.is_until() && (of_arm(comparison.base) || of_arm(comparison.arm));
    if is_uneven { " in typical rounds" } else { "" }
}

/// Printed for an unclear comparison whose test decides: with ties, its interval can contain 0.
pub(super) const HIDDEN: &str =
    "p shows a difference, but equal values or rounding hide its size and direction";

/// Returns whether the test of an unclear comparison decides.
pub(super) fn is_hidden(report: &Report, comparison: &Comparison) -> bool {
    comparison.p_corrected <= 1.0 - report.schedule.confidence
}

/// The word for an arm that differs: its speed for times and rates, otherwise whether that is good.
pub(super) fn difference(report: &Report, comparison: &Comparison) -> &'static str {
    let metric = comparison.quantity.metric(&report.workload.metric);
    let is_speed = metric.name == "wall time" && metric.better == Better::Lower
        || metric.unit.ends_with("/s") && metric.better == Better::Higher;
    match (comparison.verdict == Verdict::Better, is_speed) {
        (true, true) => "faster",
        (true, false) => "better",
        (false, true) => "slower",
        (false, false) => "worse",
    }
}

/// How many rounds a verdict needs at least.
pub(super) fn rounds_needed(report: &Report, comparison: &Comparison) -> usize {
    let questions = if Quantity::RESOURCES.contains(&comparison.quantity) {
        report.resources.len() as f64
    } else {
        report.correction.max(1.0)
    };
    let test = test(comparison.paired, &report.schedule);
    stats::rounds_needed((1.0 - report.schedule.confidence) / questions, test)
}

/// How many more rounds would show a change of 1 %, and if they are many, how long they take.
pub(super) fn more_rounds(report: &Report, comparison: &Comparison) -> String {
    const MANY: usize = 1000;
    const DAY: f64 = 86_400.0;
    // These rounds would have shown it already.
    let is_seen = comparison.shows.is_some_and(|shows| shows <= 0.01);
    let more = comparison.rounds_for_one_percent.filter(|rounds| *rounds > comparison.pairs && !is_seen);
    let Some(rounds) = more else { return String::new() };
    if rounds < MANY {
        return format!("; about {rounds} rounds per arm would show 1 %");
    }
    let of_round = |arm: &ArmReport| {
        let time = arm.summary(Quantity::Time).map_or(0.0, |time| time.median);
        time + report.schedule.cool_down
    };
    let seconds = rounds as f64 * report.arms.iter().map(of_round).sum::<f64>();
    let time = flyball_text::span::words(seconds);
    let rounds = two_digits(rounds);
    if seconds > DAY {
        format!("; at this noise a day cannot show 1 % (about {rounds} rounds per arm, {time} at least)")
    } else {
        format!("; about {rounds} rounds per arm would show 1 % ({time} at least)")
    }
}

/// A change that could have been seen, upwards or downwards: `of 1.46 % or more`, or `beyond -30.4
/// or +43.6 %` if these ends, which are inverse ratios, are not about equal.
pub(super) fn could_be_seen(shows: f64) -> String {
    const ABOUT_EQUAL: f64 = 0.05;
    if shows < ABOUT_EQUAL {
        return format!("of {} or more", unsigned(shows));
    }
    let less = percent(1.0 / (1.0 + shows) - 1.0);
    format!("beyond {} or {}", less.trim_end_matches(" %"), percent(shows))
}

/// Says so if the time limit ended a comparison early.
pub(super) fn ended(schedule: &Schedule) -> &'static str {
    if schedule.ended_by_time { ", ended by --max-time" } else { "" }
}

/// The confidence of verdicts and intervals.
pub(super) fn confidence(report: &Report) -> String {
    let level = level(report.schedule.confidence);
    let means = if report.schedule.is_until() {
        "; with --until they are about mean ratios, and assume that the ratios of blocks are about normal"
    } else {
        ""
    };
    format!("all verdicts and their intervals hold together with {level} % confidence{means}")
}

/// How the word of a verdict stands out.
pub(super) fn style(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Better => Style::Good,
        Verdict::Worse => Style::Alert,
        Verdict::Equivalent | Verdict::NoDifferenceShown | Verdict::TooFewRounds => Style::Plain,
    }
}

/// Says how arms were compared, if not in pairs.
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
