//! The report on a terminal: the answers to `--fail-if`, the conclusion, what was compared, a table
//! of medians that fits the width, the differences, and in the last lines the best arm of each
//! quantity.

use std::fmt::Write;

use flyball_text::{
    columns::{Painter, Style, one_line},
    counted,
};

use super::{
    arms::Arms,
    best::conclusion,
    cases::worse_in,
    effects::effects,
    parts::{
        HIDDEN, Screen, confidence, could_be_seen, difference, ended, extent, how, is_hidden, more_rounds,
        rounds_needed, style, typical,
    },
    table::{differences, medians},
};
use crate::{
    analyse::{
        ArmReport, Comparison, EQUIVALENT, Quantity, Report, Steadiness, Verdict, is_first, two_levels,
    },
    metric::Better,
    numbers::{between, level, number, p_value, percent, unsigned},
    schedule::Length,
};

/// The whole report.
pub fn text<P: Painter + Copy>(report: &Report, screen: Screen<P>) -> String {
    let arms = Arms::new(report);
    let conclusion = conclusion(report, &arms);
    let is_table = is_table(report);
    let gate: String = report.gate.iter().map(|answer| format!("{answer}\n")).collect();
    let mut out = gate.clone();
    if !is_table {
        out.push_str(&sentences(report, screen));
    }
    if let [arm] = &report.arms[..] {
        out.extend(alone(arm).map(|line| line + "\n"));
    }
    // With many arms, the table and the best arms also come last, next to the prompt.
    for (words, rest) in conclusion.iter().filter(|_| is_table) {
        let _ = writeln!(out, "{}: {rest}", screen.painter.apply(Style::Heading, words));
    }
    let (steadiness, is_steadiness_shown) = (steadiness(report), is_steadiness_shown(report));
    for line in steadiness.iter().filter(|_| is_steadiness_shown) {
        let _ = writeln!(out, "{line}");
    }
    // A reader who sees only an unclear median would miss rounds that take twice as long.
    let (first, notes): (Vec<_>, Vec<_>) = report.notes.iter().partition(|note| is_first(note));
    for note in first {
        let _ = writeln!(out, "{note}");
    }
    if !out.is_empty() {
        out.push('\n');
    }
    // Writing to a string does not fail.
    let _ = head(report, &mut out);
    out.push('\n');
    out.push_str(&arms.legend(screen));
    out.push_str(&medians(report, &arms, screen));
    out.push_str(&super::cases::text(report, screen));
    out.push('\n');
    if is_table {
        out.push_str(&differences(report, &arms, screen));
        for line in effects(report) {
            let _ = writeln!(out, "{line}");
        }
    } else if !report.comparisons.is_empty() {
        let _ = writeln!(out, "{}", confidence(report));
    }
    let steadiness = steadiness.into_iter().filter(|_| !is_steadiness_shown);
    for line in steadiness.chain(resources(report)) {
        let _ = writeln!(out, "{line}");
    }
    if !report.gate.is_empty() {
        let _ = writeln!(out, "{}", limits(report));
    }
    // With one arm, nothing stands between the table and the notes.
    if !notes.is_empty() && !out.ends_with("\n\n") {
        out.push('\n');
    }
    for note in notes {
        let _ = writeln!(out, "note: {note}");
    }
    if !conclusion.is_empty() {
        out.push('\n');
    }
    if is_table {
        out.push_str(&gate);
    }
    for (words, rest) in conclusion {
        let _ = writeln!(out, "{}: {rest}", screen.painter.apply(Style::Heading, &words));
    }
    out
}

/// Describes an arm that is compared with nothing.
fn alone(arm: &ArmReport) -> Option<String> {
    let found = arm.summary(Quantity::Performance)?;
    let values = found.values();
    let ends = [
        values.iter().copied().fold(f64::INFINITY, f64::min),
        values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    ];
    let [median, mean, low, high] = [found.median, found.mean, ends[0], ends[1]].map(number);
    let deviation = found.deviation.map_or_else(String::new, |deviation| format!(" ± {}", number(deviation)));
    let (name, unit) = (&found.metric.name, &found.metric.unit);
    Some(format!(
        "{}: {name} {median} {unit} (median), from {low} to {high}; mean {mean}{deviation} in {}.",
        arm.name,
        counted(arm.rounds, "round")
    ))
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
    writeln!(out, "machine   {}", one_line(report.machine.summary()))?;
    let schedule = &report.schedule;
    let length = match schedule.length {
        Length::Rounds(rounds) => counted(rounds, "block"),
        Length::Search { most, .. } => format!("a search of at most {most} rounds"),
        Length::Until { decided: true, most, .. } => format!("blocks until decided, {most} at most"),
        Length::Until { half_width, most, .. } => {
            format!("blocks until {} half-width, {most} at most", unsigned(half_width))
        }
    };
    writeln!(
        out,
        "schedule  {length}{}, {}{} (seed {}), {} warm-up, {} s cool-down",
        ended(schedule),
        counted(report.arms.len(), "arm"),
        if report.arms.len() > 1 { " in random order" } else { "" },
        schedule.seed,
        schedule.warm_up,
        schedule.cool_down
    )
}

/// Returns whether a table compares this many arms better than sentences.
fn is_table(report: &Report) -> bool {
    const SENTENCES: usize = 4;
    let comparisons = &report.comparisons;
    let one_base = comparisons.windows(2).all(|pair| pair[0].base == pair[1].base);
    comparisons.len() > SENTENCES && one_base
}

/// What differs: a sentence for each comparison.
fn sentences<P: Painter + Copy>(report: &Report, screen: Screen<P>) -> String {
    let painted = |comparison: &Comparison| {
        let sentence = verdict(report, comparison);
        match (style(comparison.verdict), sentence.split_once(": ")) {
            (Style::Plain, _) | (_, None) => format!("{sentence}\n"),
            (style, Some((start, rest))) => format!("{}: {rest}\n", screen.painter.apply(style, start)),
        }
    };
    let effects = effects(report).into_iter().map(|line| format!("{line}\n"));
    report.comparisons.iter().map(painted).chain(effects).collect()
}

fn is_steadiness_shown(report: &Report) -> bool {
    let is_shown = |one: &Steadiness| one.verdict.is_difference();
    report.comparisons.iter().filter_map(|one| one.steadiness.as_ref()).any(is_shown)
}

/// Says that limits do not share the error of the verdicts, and how their energy is defined.
fn limits(report: &Report) -> String {
    let is_of_work = report.gate.iter().any(|answer| answer.quantity == Some(Quantity::WorkEnergy));
    let work = if is_of_work { "; energy is that of the same work" } else { "" };
    let level = level(report.schedule.confidence);
    format!(
        "intervals of limits hold together with {level} % confidence, apart from the verdicts above{work}"
    )
}

/// Says which arms scatter more or less than the first, or that none is shown to, and which rounds
/// this ignores: a typical deviation says nothing about rare ones.
pub(super) fn steadiness(report: &Report) -> Vec<String> {
    if report.withheld.contains(&Quantity::Performance) {
        return vec!["steadiness: no verdict (--aa).".to_owned()];
    }
    let base = report.arms.first().map_or("", |arm| &arm.name);
    if let Some(found) = report.unsteady_control() {
        let [first, again] = [found.spreads.0, found.spreads.1].map(unsigned);
        return vec![format!(
            "steadiness: no verdict (--aa): {base} differs from itself, typical rounds vary by {first} and by {again} ({}).",
            p_value(found.p_corrected)
        )];
    }
    let all: Vec<(&Comparison, Steadiness)> =
        report.comparisons.iter().filter_map(|one| Some((one, one.steadiness?))).collect();
    // Half of the rounds may be on the other level.
    let has_levels = |one: &Comparison| {
        let arms = [one.base, one.arm].map(|arm| report.arms[arm].summary(Quantity::Performance));
        arms.into_iter().flatten().any(|summary| two_levels(&summary.values()).is_some())
    };
    let said = |(one, found): &(&Comparison, Steadiness)| {
        let word = match found.verdict {
            Verdict::Better => "steadier",
            Verdict::Worse => "less steady",
            Verdict::Equivalent | Verdict::NoDifferenceShown | Verdict::TooFewRounds => return None,
        };
        Some(format!(
            "{}: {word} than {base}: {} vary by {} against {} ({}).",
            report.arms[one.arm].name,
            if has_levels(one) { "rounds of both levels" } else { "typical rounds" },
            unsigned(found.spreads.1),
            unsigned(found.spreads.0),
            p_value(found.p_corrected)
        ))
    };
    let mut lines: Vec<String> = all.iter().filter_map(said).collect();
    let judged = all.iter().any(|(_, found)| found.verdict != Verdict::TooFewRounds);
    let is_hidden = |one: &&Comparison| {
        one.quantity == Quantity::Performance && one.steadiness.is_none() && !report.schedule.is_until()
    };
    let hidden: Vec<&str> =
        report.comparisons.iter().filter(is_hidden).map(|one| report.arms[one.arm].name.as_str()).collect();
    if !hidden.is_empty() {
        lines
            .push(format!("steadiness: not known of {}: rounding hides how rounds vary.", hidden.join(", ")));
    } else if lines.is_empty() && judged {
        lines.push("steadiness: no difference seen between typical rounds.".to_owned());
    }
    let far = |arm: &ArmReport| {
        let outliers = arm.summary(Quantity::Performance)?.outliers.len();
        (outliers > 0).then(|| format!("{} of {} in {}", outliers, arm.rounds, arm.name))
    };
    let far: Vec<String> = report.arms.iter().filter_map(far).collect();
    if let (Some(line), false) = (lines.last_mut(), far.is_empty()) {
        *line += &format!(
            " Rounds far from the others: {}; whether arms differ in these is not tested.",
            far.join(", ")
        );
    }
    lines
}

/// The resources of which each arm's processes used more or less than the first arm's: a line per
/// arm.
pub(super) fn resources(report: &Report) -> Vec<String> {
    let shown = |one: &&Comparison| one.verdict.is_difference();
    let name = |one: &Comparison| one.quantity.metric(&report.workload.metric).name;
    let line = |arm: usize| {
        // The answer to a limit has an interval of its own.
        let is_asked = |one: &&Comparison| report.gate.iter().any(|gate| gate.quantity == Some(one.quantity));
        // A note says if the first arm differs from itself.
        let is_withheld = |one: &&Comparison| report.withheld.contains(&one.quantity);
        let own = report.resources.iter().filter(|one| one.arm == arm && !is_asked(one) && !is_withheld(one));
        let own: Vec<&Comparison> = own.collect();
        let mut parts: Vec<String> = own
            .iter()
            .copied()
            .filter(shown)
            .map(|one| {
                let interval =
                    one.interval.map_or_else(String::new, |found| format!(" ({})", between(found)));
                format!("{} {}{interval}", name(one), percent(one.change))
            })
            .collect();
        let is_few = |one: &Comparison| one.verdict == Verdict::TooFewRounds;
        let rest = |few: bool| -> Vec<String> {
            own.iter().filter(|one| !shown(one) && is_few(one) == few).map(|one| name(one)).collect()
        };
        if !rest(false).is_empty() {
            parts.push(format!("no difference seen in {}", rest(false).join(", ")));
        }
        if let Some(few) = own.iter().find(|one| is_few(one)) {
            let needed = rounds_needed(report, few);
            parts.push(format!("{} need {needed} rounds to be compared", rest(true).join(", ")));
        }
        (!parts.is_empty()).then(|| {
            let questions = report.resources.len();
            format!(
                "{}: resources: {} (one correction over {questions} questions).",
                report.arms[arm].name,
                parts.join("; ")
            )
        })
    };
    (0..report.arms.len()).filter_map(line).collect()
}

/// One sentence for each comparison.
pub fn verdicts(report: &Report) -> Vec<String> {
    report.comparisons.iter().map(|comparison| verdict(report, comparison)).collect()
}

fn verdict(report: &Report, comparison: &Comparison) -> String {
    let name = comparison.quantity.metric(&report.workload.metric).name;
    let base = &report.arms[comparison.base].name;
    let arm = &report.arms[comparison.arm].name;
    let p = p_value(comparison.p_corrected);
    let how = how(report, comparison);
    let ends = comparison.interval.map_or_else(|| "no interval".to_owned(), between);
    let typical = typical(report, comparison);
    if report.withheld.contains(&comparison.quantity) {
        return if report.arms[comparison.arm].control {
            format!(
                "{base} differs from itself in {name}: {ends} ({p}{how}), so there is no verdict on {name}."
            )
        } else {
            format!("{arm} against {base}: {name} {ends}, no verdict.")
        };
    }
    let known = if comparison.partial { " in the rounds that have a value" } else { "" };
    match comparison.verdict {
        Verdict::Better | Verdict::Worse => {
            let word = difference(report, comparison);
            let size = comparison.interval.map_or_else(String::new, |interval| extent(interval, &name));
            let odd = if typical.is_empty() { "" } else { ", which does not count how far odd rounds lie" };
            format!("{arm} is {word} than {base}{known}: {size}{odd} ({p}{how}).")
        }
        Verdict::Equivalent => {
            let same = format!("within ±{} %{typical}, shown ({ends}{how}).", 100.0 * EQUIVALENT);
            match worse_in(report, comparison.arm) {
                Some(cases) => {
                    format!("{arm} is worse than {base} in {cases}, and has the same {name} {same}")
                }
                None => format!("{arm} has the same {name} as {base} {same}"),
            }
        }
        Verdict::NoDifferenceShown => {
            let shows = comparison.shows.map_or_else(String::new, |shows| {
                format!(
                    "; one {} would have been seen in about 9 of 10 such comparisons",
                    could_be_seen(shows)
                )
            });
            let more = more_rounds(report, comparison);
            let seen = if is_hidden(report, comparison) { HIDDEN } else { "no difference seen" };
            format!("{arm}: {name} unclear ({ends}): {seen}{known}{typical}{shows}{more} ({p}{how}).")
        }
        Verdict::TooFewRounds => format!(
            "{arm}: {name} needs {} rounds to be compared with {base}; {} measured {}{how}.",
            rounds_needed(report, comparison),
            counted(comparison.pairs, "round"),
            percent(comparison.change)
        ),
    }
}
