//! The report on a terminal.

use std::fmt::Write;

use flyball_plot::columns::{Columns, Unstyled, one_line};

use crate::numbers::{level, number, percent, probability};
use crate::{
    analyse::{ArmReport, Comparison, Quantity, Report, Verdict},
    metric::Better,
    schedule::Length,
    stats::Interval,
};

pub fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = head(report, &mut out);
    out.push('\n');
    out.push_str(&table(report));
    out.push('\n');
    out.push_str(&judgement(report));
    if !report.notes.is_empty() {
        out.push('\n');
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

fn head(report: &Report, out: &mut String) -> std::fmt::Result {
    let metric = &report.workload.metric;
    let way = match metric.better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    };
    writeln!(out, "workload  {}", one_line(report.workload.name.clone()))?;
    if let Some(cpus) = &report.workload.cpus {
        writeln!(out, "pinned    to CPUs {cpus}")?;
    }
    writeln!(out, "metric    {}, {way}", one_line(format!("{} in {}", metric.name, metric.unit)))?;
    let machine = &report.machine;
    let title = one_line(format!("{}: {}", machine.title(), machine.processor));
    writeln!(out, "machine   {title}, {} CPUs", machine.cpus)?;
    let schedule = &report.schedule;
    let length = match schedule.length {
        Length::Rounds(rounds) => format!("{rounds} blocks"),
        Length::Until { half_width, most, .. } => {
            format!("blocks until {} half-width, {most} at most", percent(half_width).trim_start_matches('+'))
        }
    };
    writeln!(
        out,
        "schedule  {length}, {} arms in random order (seed {}), {} warm-up, {} s cool-down",
        report.arms.len(),
        schedule.seed,
        schedule.warm_up,
        schedule.cool_down
    )
}

/// The columns that at least one arm fills; energy has a line with the reason if it is absent.
pub(super) fn columns(report: &Report) -> Vec<Quantity> {
    [
        Quantity::Performance,
        Quantity::Time,
        Quantity::Energy,
        Quantity::Dram,
        Quantity::Platform,
        Quantity::PerWatt,
        Quantity::Power,
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

fn table(report: &Report) -> String {
    let columns = columns(report);
    let mut table = Columns::aligned_right(1..columns.len() + 1);
    let mut header = vec!["arm".to_owned(), "rounds".to_owned()];
    header.extend(columns.iter().map(|quantity| {
        let metric = quantity.metric(&report.workload.metric);
        if metric.unit.is_empty() { metric.name } else { format!("{}, {}", metric.name, metric.unit) }
    }));
    table.heading(header);
    for arm in &report.arms {
        let mut row = vec![arm.name.clone(), rounds(arm)];
        row.extend(columns.iter().map(|quantity| cell(arm, *quantity)));
        table.text_row(row);
    }
    let mut out = table.render(Unstyled);
    let _ = writeln!(out, "{}", brackets(report));
    if let Some(why) = &report.no_energy {
        let _ = writeln!(out, "no energy: {why}");
    }
    if let Some(why) = &report.no_frequency {
        let _ = writeln!(out, "no frequency: {why}");
    }
    out
}

/// What the table's brackets are.
pub(super) fn brackets(report: &Report) -> String {
    let level = level(report.schedule.confidence);
    let judged = |arm: &ArmReport| {
        arm.summaries.iter().any(|s| Quantity::JUDGED.contains(&s.quantity) && s.interval.is_some())
    };
    if report.arms.iter().any(judged) {
        format!("medians; brackets: {level} % bootstrap intervals of the median")
    } else {
        format!("medians; too few rounds for {level} % intervals of them")
    }
}

pub(super) fn rounds(arm: &ArmReport) -> String {
    if arm.left_out.is_empty() {
        arm.rounds.to_string()
    } else {
        format!("{} (-{})", arm.rounds, arm.left_out.len())
    }
}

pub(super) fn cell(arm: &ArmReport, quantity: Quantity) -> String {
    let Some(summary) = arm.summary(quantity) else { return "-".to_owned() };
    let median = number(summary.median);
    match summary.interval {
        Some(interval) if Quantity::JUDGED.contains(&quantity) => {
            format!("{median} [{}, {}]", number(interval.low), number(interval.high))
        }
        _ => median,
    }
}

pub(super) fn between(interval: Interval) -> String {
    format!("{} to {}", percent(interval.low).trim_end_matches(" %"), percent(interval.high))
}

/// What differs: a sentence for each comparison, or a table where there are many.
fn judgement(report: &Report) -> String {
    // Sentences read well for one or two arms; above that a table compares better.
    const SENTENCES: usize = 4;
    let comparisons = &report.comparisons;
    let one_base = comparisons.windows(2).all(|pair| pair[0].base == pair[1].base);
    if comparisons.len() <= SENTENCES || !one_base {
        return verdicts(report).into_iter().map(|verdict| verdict + "\n").collect();
    }
    let mut quantities: Vec<Quantity> = Vec::new();
    let mut arms: Vec<usize> = Vec::new();
    for comparison in comparisons {
        if !quantities.contains(&comparison.quantity) {
            quantities.push(comparison.quantity);
        }
        if !arms.contains(&comparison.arm) {
            arms.push(comparison.arm);
        }
    }
    let mut table = Columns::new();
    let names = quantities.iter().map(|quantity| quantity.metric(&report.workload.metric).name);
    table.heading(std::iter::once("arm".to_owned()).chain(names));
    for &arm in &arms {
        let mut row = vec![report.arms[arm].name.clone()];
        row.extend(quantities.iter().map(|&quantity| {
            let of = |comparison: &&Comparison| comparison.arm == arm && comparison.quantity == quantity;
            comparisons
                .iter()
                .find(of)
                .map_or_else(|| "-".to_owned(), |found| verdict_in_short(report, found))
        }));
        table.text_row(row);
    }
    let base = &report.arms[comparisons[0].base].name;
    let mut out = format!(
        "against {base}, with {} % intervals, p corrected for the number of arms:\n",
        level(report.schedule.confidence)
    );
    out.push_str(&table.render(Unstyled));
    out
}

/// What a comparison that is not of pairs says of that.
fn how(report: &Report, comparison: &Comparison) -> &'static str {
    let boots = |arm: usize| &report.arms[arm].boots;
    if comparison.paired {
        ""
    } else if boots(comparison.arm).iter().any(|boot| boots(comparison.base).contains(boot)) {
        ", no block has both"
    } else {
        ", other boot"
    }
}

fn verdict_in_short(report: &Report, comparison: &Comparison) -> String {
    let how = how(report, comparison);
    let change = percent(comparison.change);
    let interval = comparison.interval.map_or_else(String::new, |interval| {
        let bare = |value| percent(value).trim_end_matches(" %").to_owned();
        format!(" [{}, {}]", bare(interval.low), bare(interval.high))
    });
    let p = probability(comparison.p_corrected);
    match comparison.verdict {
        Verdict::Better => format!("{change}{interval} better, p = {p}{how}"),
        Verdict::Worse => format!("{change}{interval} worse, p = {p}{how}"),
        Verdict::NoDifferenceShown => format!("no difference shown{interval}, p = {p}{how}"),
        Verdict::TooFewRounds => {
            format!(
                "no difference shown: {} rounds cannot show one ({change}, p = {p}{how})",
                comparison.pairs
            )
        }
    }
}

/// One sentence for each comparison.
pub fn verdicts(report: &Report) -> Vec<String> {
    report.comparisons.iter().map(|comparison| verdict(report, comparison)).collect()
}

fn verdict(report: &Report, comparison: &Comparison) -> String {
    let metric = comparison.quantity.metric(&report.workload.metric);
    let base = &report.arms[comparison.base].name;
    let arm = &report.arms[comparison.arm].name;
    let level = level(report.schedule.confidence);
    let p = probability(comparison.p_corrected);
    let interval = comparison.interval.map_or_else(|| "no interval".to_owned(), between);
    let how = how(report, comparison);
    match comparison.verdict {
        Verdict::Better | Verdict::Worse => {
            let word = if comparison.verdict == Verdict::Better { "better" } else { "worse" };
            format!(
                "{arm}: {} {} against {base} ({interval} at {level} %, p = {p}{how}): {word}.",
                metric.name,
                percent(comparison.change)
            )
        }
        Verdict::NoDifferenceShown => {
            let shows = comparison.shows.map_or_else(String::new, |shows| {
                format!("; {} rounds would show {}", comparison.pairs, percent(shows).trim_start_matches('+'))
            });
            format!(
                "{arm}: {}: no difference shown against {base} ({interval} at {level} %, p = {p}{how}{shows}).",
                metric.name
            )
        }
        Verdict::TooFewRounds => format!(
            "{arm}: {}: no difference shown against {base}; {} rounds cannot show one at {level} % (measured {}, \
             p = {p}{how}).",
            metric.name,
            comparison.pairs,
            percent(comparison.change)
        ),
    }
}
