//! The report on a terminal: what was compared, a table of medians that fits the width, what
//! differs, and in the last lines which arm is best in what.

use std::fmt::Write;

use flyball_text::columns::{Painter, Style, one_line};

use super::{
    arms::Arms,
    best::conclusion,
    parts::{Screen, how, style},
    table::{differences, medians},
};
use crate::{
    analyse::{Comparison, Report, Steadiness, Verdict},
    metric::Better,
    numbers::{level, p_value, percent},
    schedule::Length,
    stats::Interval,
};

/// The whole report.
pub fn text<P: Painter + Copy>(report: &Report, screen: Screen<P>) -> String {
    let arms = Arms::of(report);
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = head(report, &mut out);
    out.push('\n');
    out.push_str(&arms.legend(screen));
    out.push_str(&medians(report, &arms, screen));
    out.push('\n');
    out.push_str(&judgement(report, &arms, screen));
    for line in steadiness(report) {
        let _ = writeln!(out, "{line}");
    }
    if !report.notes.is_empty() {
        out.push('\n');
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    let conclusion = conclusion(report, &arms);
    if !conclusion.is_empty() {
        out.push('\n');
    }
    for (words, rest) in conclusion {
        let _ = writeln!(out, "{}: {rest}", screen.painter.apply(Style::Heading, &words));
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
    for load in &report.workload.background {
        writeln!(out, "meanwhile {}", one_line(load.title()))?;
    }
    writeln!(out, "metric    {}, {way}", one_line(format!("{} in {}", metric.name, metric.unit)))?;
    let machine = &report.machine;
    let title = one_line(format!("{}: {}", machine.title(), machine.processor));
    writeln!(out, "machine   {title}, {} CPUs", machine.cpus)?;
    let schedule = &report.schedule;
    let length = match schedule.length {
        Length::Rounds(rounds) => format!("{rounds} blocks"),
        Length::Search { most, .. } => format!("a search of at most {most} rounds"),
        Length::Until { decided: true, most, .. } => format!("blocks until decided, {most} at most"),
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

pub(super) fn between(interval: Interval) -> String {
    format!("{} to {}", percent(interval.low).trim_end_matches(" %"), percent(interval.high))
}

/// What differs: a sentence for each comparison, or a table where there are many.
fn judgement<P: Painter + Copy>(report: &Report, arms: &Arms, screen: Screen<P>) -> String {
    // Sentences read well for one or two arms; above that a table compares better.
    const SENTENCES: usize = 4;
    let comparisons = &report.comparisons;
    let one_base = comparisons.windows(2).all(|pair| pair[0].base == pair[1].base);
    if comparisons.len() > SENTENCES && one_base {
        return differences(report, arms, screen);
    }
    let painted = |comparison: &Comparison| {
        let sentence = verdict(report, comparison);
        let (start, word) = sentence.rsplit_once(' ').unwrap_or(("", &sentence));
        match style(comparison.verdict) {
            Style::Plain => format!("{sentence}\n"),
            style => format!("{start} {}\n", screen.painter.apply(style, word)),
        }
    };
    comparisons.iter().map(painted).collect()
}

/// Which arms scatter more or less than the first, or that none is shown to.
pub(super) fn steadiness(report: &Report) -> Vec<String> {
    let all: Vec<(&Comparison, Steadiness)> =
        report.comparisons.iter().filter_map(|one| Some((one, one.steadiness?))).collect();
    let Some((first, _)) = all.first() else { return Vec::new() };
    let base = &report.arms[first.base].name;
    let said = |(one, found): &(&Comparison, Steadiness)| {
        let word = match found.verdict {
            Verdict::Better => "steadier",
            Verdict::Worse => "less steady",
            Verdict::NoDifferenceShown | Verdict::TooFewRounds => return None,
        };
        let share = |deviation: f64| percent(deviation).trim_start_matches('+').to_owned();
        Some(format!(
            "{}: {word} than {base} (rounds vary by {} against {}, {}).",
            report.arms[one.arm].name,
            share(found.spreads.1),
            share(found.spreads.0),
            p_value(found.p_corrected)
        ))
    };
    let shown: Vec<String> = all.iter().filter_map(said).collect();
    let judged = all.iter().any(|(_, found)| found.verdict != Verdict::TooFewRounds);
    if shown.is_empty() && judged {
        let least = all.iter().map(|(_, found)| found.p_corrected).fold(1.0, f64::min);
        return vec![format!("steadiness: no difference from {base} shown ({} or more).", p_value(least))];
    }
    shown
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
    let p = p_value(comparison.p_corrected);
    let interval = comparison.interval.map_or_else(|| "no interval".to_owned(), between);
    let how = how(report, comparison);
    match comparison.verdict {
        Verdict::Better | Verdict::Worse => {
            let word = if comparison.verdict == Verdict::Better { "better" } else { "worse" };
            format!(
                "{arm}: {} {} against {base} ({interval} at {level} %, {p}{how}): {word}.",
                metric.name,
                percent(comparison.change)
            )
        }
        Verdict::NoDifferenceShown => {
            let shows = comparison.shows.map_or_else(String::new, |shows| {
                format!("; {} rounds would show {}", comparison.pairs, percent(shows).trim_start_matches('+'))
            });
            format!(
                "{arm}: {}: no difference shown against {base} ({interval} at {level} %, {p}{how}{shows}).",
                metric.name
            )
        }
        Verdict::TooFewRounds => format!(
            "{arm}: {}: no difference shown against {base}; {} rounds cannot show one at {level} % (measured {}, \
             {p}{how}).",
            metric.name,
            comparison.pairs,
            percent(comparison.change)
        ),
    }
}
