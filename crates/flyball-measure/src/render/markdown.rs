//! The report as Markdown, for issues, commit messages and wikis.

use std::fmt::Write;

use flyball_text::columns::Cell;

use super::{
    arms::Arms,
    best::conclusion,
    cases,
    effects::effects,
    page::{banner, in_one_line},
    table::{Grid, constants, medians_grid, precision, remarks, verdict_grid},
    text::resources,
};
use crate::{
    analyse::{Report, is_first},
    run_directory::Manifest,
    workload::quote,
};

/// The report: the answer, the verdicts, the medians, and what it was run on.
pub fn markdown(report: &Report, manifest: &Manifest) -> String {
    let arms = Arms::for_page(report);
    let mut out = format!("# flyball compare: {}\n\n", escape(&report.workload.name));
    // Writing to a string does not fail.
    let _ = banner(&report.machine).map(|words| writeln!(out, "> **{}**\n", escape(&words)));
    let _ = writeln!(out, "{}\n", escape(&in_one_line(report, manifest)));
    // The answers to limits come first.
    for answer in &report.gate {
        let _ = writeln!(out, "- **{}**", escape(&answer.to_string()));
    }
    for (words, rest) in conclusion(report, &arms) {
        let _ = writeln!(out, "- **{}**: {}", escape(&words), escape(&rest));
    }
    let (first, notes): (Vec<_>, Vec<_>) = report.notes.iter().partition(|note| is_first(note));
    for note in first {
        let _ = writeln!(out, "- {}", escape(note));
    }
    if !report.comparisons.is_empty() {
        let _ = writeln!(out, "\n## Against {}\n", escape(&arms.name(report.comparisons[0].base)));
        out.push_str(&table(&verdict_grid(report, &arms)));
        out.push_str(&list(effects(report).into_iter().chain(remarks(report, &arms)).collect()));
    }
    if let Some((grid, rest)) = cases::excerpt(report) {
        let _ = writeln!(out, "\n## Cases\n\n{}{}", table(&grid), list(rest.into_iter().collect()));
    }
    out.push_str(&list(resources(report)));
    out.push_str("\n## Medians\n\n");
    let mut grid = medians_grid(report, &arms, true);
    let others = medians_grid(report, &arms, false);
    grid.header.extend(others.header.into_iter().skip(1));
    for (row, more) in grid.rows.iter_mut().zip(others.rows) {
        row.extend(more.into_iter().skip(1));
    }
    out.push_str(&table(&grid));
    let mut below: Vec<String> = constants(report).into_iter().chain([precision(report)]).collect();
    below.extend(report.no_energy.iter().map(|why| format!("no energy: {why}")));
    below.extend(report.no_frequency.iter().map(|why| format!("no frequency: {why}")));
    below.extend(report.no_counters.iter().map(|why| format!("no counters: {why}")));
    below.extend(notes.into_iter().map(|note| format!("note: {note}")));
    out.push_str(&list(below));
    if !manifest.command_line.is_empty() {
        let _ = writeln!(out, "\n    {}", quote(&manifest.command_line).replace('\n', " "));
    }
    out
}

fn list(lines: Vec<String>) -> String {
    let lines: String = lines.iter().map(|line| format!("- {}\n", escape(line))).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

fn table(grid: &Grid) -> String {
    let row = |cells: &[&str]| {
        let cells: String = cells.iter().map(|cell| format!(" {} |", escape(cell))).collect();
        format!("|{cells}\n")
    };
    let head: Vec<&str> = grid.header.iter().map(String::as_str).collect();
    let mut out = row(&head);
    let rules: String = (0..head.len()).map(|column| if column == 0 { "---|" } else { "--:|" }).collect();
    let _ = writeln!(out, "|{rules}");
    for cells in &grid.rows {
        out.push_str(&row(&cells.iter().map(Cell::text).collect::<Vec<_>>()));
    }
    out
}

/// Escapes characters that Markdown or its tables would interpret.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\r' => out.push(' '),
            '|' | '*' | '_' | '`' | '<' | '[' | ']' | '\\' | '&' => out.extend(['\\', letter]),
            // Names of cases come from other programs: no name may mention anybody, or change a
            // terminal or the direction of the text.
            '@' => out.push_str("@\u{200b}"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}
