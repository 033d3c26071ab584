//! The cases of a benchmark suite: how many differ, and a row for each.

use flyball_text::columns::{Cell, Columns, Painter, Style};

use super::{
    parts::Screen,
    table::{Grid, in_short},
};
use crate::{
    analyse::{CaseReport, EQUIVALENT, Report, Verdict, test},
    numbers::number,
    stats,
};

/// Maximum number of rows on a terminal.
const ROWS: usize = 20;

/// How many cases differ, are the same and are unclear.
pub(super) fn summary(report: &Report) -> Option<String> {
    let count = |verdict| report.cases.iter().filter(|case| case.comparison.verdict == verdict).count();
    let parts = [
        (count(Verdict::Worse), "worse".to_owned()),
        (count(Verdict::Better), "better".to_owned()),
        (count(Verdict::Equivalent), format!("same within \u{b1}{} %", 100.0 * EQUIVALENT)),
        (count(Verdict::NoDifferenceShown), "unclear".to_owned()),
        (count(Verdict::TooFewRounds), format!("not to be decided by fewer than {} rounds", needed(report))),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    (!parts.is_empty()).then(|| format!("{} of {} (one correction)", parts.join(", "), report.cases.len()))
}

/// In how many cases an arm is worse than the first, if it is in any: `1 of 10 cases`.
pub(super) fn worse_in(report: &Report, arm: usize) -> Option<String> {
    let own = || report.cases.iter().filter(|case| case.comparison.arm == arm);
    let worse = own().filter(|case| case.comparison.verdict == Verdict::Worse).count();
    (worse > 0).then(|| format!("{worse} of {} cases", own().count()))
}

/// Rounds that a verdict on a case needs.
fn needed(report: &Report) -> usize {
    // The correction includes the control.
    let compared = report.arms.iter().skip(1).filter(|arm| !arm.control).count().max(1);
    let questions = report.cases.len() / compared * (report.arms.len() - 1);
    let alpha = (1.0 - report.schedule.confidence) / (2 * questions).max(1) as f64;
    stats::rounds_needed(alpha, test(true, &report.schedule))
}

fn is_different(case: &&CaseReport) -> bool {
    matches!(case.comparison.verdict, Verdict::Better | Verdict::Worse)
}

/// A row for each of these cases.
pub(super) fn grid<'a>(report: &Report, cases: impl Iterator<Item = &'a CaseReport>) -> Grid {
    let compared = report.arms.iter().filter(|arm| !arm.control).count();
    let last = report.arms.iter().rfind(|arm| !arm.control);
    let row = |case: &CaseReport| {
        let value = |value: f64| if report.workload.metric.unit == "s" { time(value) } else { number(value) };
        let change = match case.comparison.verdict {
            Verdict::TooFewRounds => Cell::styled(Style::Faint, "too few rounds"),
            _ => in_short(report, &case.comparison),
        };
        // A name for the case, and for the arm if there are several.
        let mut row = vec![Cell::from(case.name.as_str())];
        row.extend((compared > 2).then(|| Cell::from(report.arms[case.comparison.arm].name.as_str())));
        row.extend(case.medians.map(|median| Cell::from(value(median))));
        let withheld = case.withheld.then_some("the first arm differs from itself");
        let notes: Vec<&str> = withheld.into_iter().chain(case.marks.iter().map(String::as_str)).collect();
        row.extend([change, Cell::styled(Style::Notice, notes.join("; "))]);
        row
    };
    let unit = Some(report.workload.metric.unit.as_str()).filter(|unit| !matches!(*unit, "" | "s"));
    let of = |word: &str| unit.map_or_else(|| word.to_owned(), |unit| format!("{word}, {unit}"));
    // With several arms, each row has a column with the name of its arm.
    let other = if compared > 2 { "the arm" } else { last.map_or("the arm", |arm| &arm.name) };
    let header = ["case"].into_iter().chain((compared > 2).then_some("arm")).map(str::to_owned);
    Grid {
        header: header
            .chain([of(&report.arms[0].name), of(other), "change".to_owned(), "note".to_owned()])
            .collect(),
        rows: cases.map(row).collect(),
    }
}

/// The cases that differ, as many as a reader wants to see in a text; all if they are few.
pub(super) fn excerpt(report: &Report) -> Option<(Grid, Option<String>)> {
    let all = report.cases.len();
    let differ = report.cases.iter().filter(is_different).count();
    let shown = if all <= ROWS { all } else { differ.min(ROWS) };
    let rest = (shown < all).then(|| format!("report.html lists all {all} cases"));
    // Cases that differ come first.
    (all > 0).then(|| (grid(report, report.cases.iter().take(shown)), rest))
}

/// The cases on a terminal.
pub(super) fn text<P: Painter + Copy>(report: &Report, screen: Screen<P>) -> String {
    let Some((grid, rest)) = excerpt(report) else { return String::new() };
    let mut table = Columns::new();
    table.heading(grid.header);
    let is_empty = grid.rows.is_empty();
    grid.rows.into_iter().for_each(|row| table.row(row));
    table.drop_empty();
    let table = if is_empty { String::new() } else { table.render(screen.painter) };
    let rest = rest.map_or_else(String::new, |rest| format!("{rest}\n"));
    format!("\n{table}{rest}")
}

/// A time with a unit of its size.
fn time(seconds: f64) -> String {
    let (factor, unit) = match seconds {
        ..1e-6 => (1e9, "ns"),
        ..1e-3 => (1e6, "us"),
        ..1.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    format!("{} {unit}", number(seconds * factor))
}
