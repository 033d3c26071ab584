//! `results` as text.

use std::fmt::Write as _;

use flyball_measure::{
    render::{number, percent},
    shifts::Form,
};
use flyball_results::shifts::{Answer, ShiftPlace};
use flyball_text::date::Utc;

use super::data::{InputDetails, Listed, Sum};
use crate::paint::{Columns, Paint};

/// Maximum lines of text. JSON has everything.
const MAX_LINES: usize = 40;

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

pub(super) fn added(sum: &Sum) -> String {
    let all = &sum.added;
    let mut out =
        format!("added {} with {}", count(all.inputs, "input", "inputs"), count(all.rows, "row", "rows"));
    if all.known > 0 {
        let _ = write!(out, "; {} there already", count(all.known, "was", "were"));
    }
    if all.undated > 0 {
        let names = count(all.undated, "of these names", "of these name");
        let _ = write!(
            out,
            " ({names} no time, so equal content counts as one measurement: --time tells them apart)"
        );
    }
    out.push('\n');
    for skipped in sum.skipped.iter().take(MAX_LINES) {
        let _ = writeln!(out, "skipped {}: {}", skipped.path, skipped.why);
    }
    more(&mut out, sum.skipped.len(), "skipped");
    out
}

fn more(out: &mut String, all: usize, what: &str) {
    if all > MAX_LINES {
        let _ = writeln!(out, "... and {} more {what}; --json has all", all - MAX_LINES);
    }
}

pub(super) fn listed(all: &[Listed]) -> String {
    let mut table = Columns::aligned_right(4..5);
    table.heading(["id", "date", "host", "kind", "rows", "benchmark"]);
    for listed in all {
        table.text_row([
            listed.id.get(..12).unwrap_or(&listed.id).to_owned(),
            Utc::from_seconds(listed.time / 1000).date(),
            listed.host.clone(),
            listed.kind.name().to_owned(),
            listed.rows.to_string(),
            listed.benchmarks.join(", "),
        ]);
    }
    table.render(Paint::stdout())
}

pub(super) fn shown(shown: &InputDetails) -> String {
    let listed = &shown.listed;
    let mut out = format!(
        "{} of {} on {}: {} of {}\n",
        listed.id,
        listed.host,
        Utc::from_seconds(listed.time / 1000).date(),
        count(listed.rows, "row", "rows"),
        listed.source
    );
    let mut table = Columns::new();
    for (name, value) in shown.facts.iter().chain(&shown.settings) {
        table.text_row([name.clone(), value.clone()]);
    }
    out += &table.render(Paint::stdout());
    for of in &shown.results {
        let arm = if of.arm.is_empty() { String::new() } else { format!(", {}", of.arm) };
        let rounds = count(of.rounds, "round", "rounds");
        let _ = writeln!(
            out,
            "{}{arm}: {} {} {} in {rounds}",
            of.benchmark,
            of.metric,
            number(of.median),
            of.unit
        );
    }
    for (verdict, number) in &shown.verdicts {
        let _ = writeln!(out, "{verdict}: {number}");
    }
    out
}

pub(super) fn shifts(answer: &Answer) -> String {
    let failed = count(answer.failed, "failed round is left out", "failed rounds are left out");
    if answer.rounds == 0 {
        let why = if answer.failed > 0 { format!("; {failed}") } else { String::new() };
        return format!("there are no rounds of these{why}\n");
    }
    let mut out = format!(
        "{} of {}, {} to {}: {}\n",
        count(answer.series, "series", "series"),
        count(answer.hosts, "host", "hosts"),
        Utc::from_seconds(answer.first / 1000).date(),
        Utc::from_seconds(answer.last / 1000).date(),
        count(answer.rounds, "round", "rounds"),
    );
    if answer.failed > 0 {
        let _ = writeln!(out, "{failed}");
    }
    if answer.short > 0 {
        let _ = writeln!(
            out,
            "{} with fewer than 10 runs: not searched",
            count(answer.short, "series", "series")
        );
    }
    for series in answer.undated.iter().take(MAX_LINES) {
        let _ = writeln!(out, "{series}: not searched (results add --time gives inputs a time)");
    }
    more(&mut out, answer.undated.len(), "series without an order");
    for name in &answer.ambiguous {
        let _ =
            writeln!(out, "'{name}' is several experiments on one host (command line, metric): kept apart");
    }
    let percent_false = ((1.0 - answer.confidence) * 1e4).round() / 1e2;
    if answer.shifted.is_empty() {
        if answer.series > 0 {
            let _ = writeln!(
                out,
                "no shift found in {} (one in the last runs, slow, in several steps or of the spread, or no larger than the waves of a \
                 series, may not be found, nor a clear step in a short series)",
                count(answer.series, "series", "series")
            );
        }
        return out;
    }
    let _ = writeln!(
        out,
        "{} shifted; at most {percent_false} % of them by chance, on average (not counting seasons)",
        answer.shifted.len()
    );
    facts(&mut out, answer);
    out.push('\n');
    for shifted in answer.shifted.iter().take(MAX_LINES) {
        let arm = if shifted.arm.is_empty() { String::new() } else { format!(", {}", shifted.arm) };
        for place in &shifted.changes {
            let _ = writeln!(
                out,
                "{}: {}{arm}: {} {}",
                shifted.host,
                shifted.benchmark,
                shifted.metric,
                change(place, &shifted.unit)
            );
        }
    }
    more(&mut out, answer.shifted.len(), "series");
    out
}

/// Lists the facts that changed at the shifts.
fn facts(out: &mut String, answer: &Answer) {
    if answer.with.is_empty() {
        return;
    }
    out.push('\n');
    let mut table = Columns::aligned_right(3..6);
    table.heading(["changed", "from", "to", "shifted", "worse", "change", "benchmark", "arm", "metric"]);
    for with in answer.with.iter().take(MAX_LINES) {
        table.text_row([
            with.name.clone(),
            with.before.clone().unwrap_or_else(|| "-".to_owned()),
            with.after.clone().unwrap_or_else(|| "-".to_owned()),
            format!("{} of {}", with.shifted, with.of),
            with.worse.map_or_else(|| "-".to_owned(), |worse| worse.to_string()),
            with.change.map_or_else(|| "-".to_owned(), percent),
            with.benchmark.clone(),
            with.arm.clone(),
            if with.unit.is_empty() {
                with.metric.clone()
            } else {
                format!("{} ({})", with.metric, with.unit)
            },
        ]);
    }
    *out += &table.render(Paint::stdout());
    more(out, answer.with.len(), "changes");
}

fn change(place: &ShiftPlace, unit: &str) -> String {
    let (before, after) =
        (Utc::from_seconds(place.before / 1000).date(), Utc::from_seconds(place.after / 1000).date());
    let when = match place.form {
        Form::Drift => format!("slowly or in steps from {before} to {after}"),
        _ if before == after => format!("on {after}"),
        _ => format!("between {before} and {after}"),
    };
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let word = match place.better {
        Some(true) => ", better",
        Some(false) => ", worse",
        None => "",
    };
    let size = place.change.map_or_else(String::new, |change| format!("{} ", percent(change)));
    let mut out = format!(
        "{size}({} to {}{unit}){word}, {when}",
        number(place.median_before),
        number(place.median_after)
    );
    if place.facts.is_empty() {
        out += "; no known fact changed with it";
    }
    for fact in &place.facts {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        let away = match fact.runs_away {
            0 => String::new(),
            1 => " (1 run away)".to_owned(),
            runs => format!(" ({runs} runs away)"),
        };
        let _ = write!(out, "; {} {} -> {}{away}", fact.name, text(&fact.before), text(&fact.after));
    }
    out
}
