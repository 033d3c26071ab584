//! `flyball sim check`: compares the simulated machines with published measurements.

use std::fmt::Write as _;

use flyball_sim::check::{self, Aim, Report, Row};
use serde::Serialize;

use crate::{
    exit::{Exit, Failure},
    machine::{MachineArg, MachineOptions},
    output::Reporter,
    terminal,
};

/// A row of the JSON output.
#[derive(schemars::JsonSchema, Serialize)]
#[schemars(rename = "CheckLine")]
struct Line<'a> {
    #[serde(flatten)]
    row: &'a Row,
    error_percent: Option<f64>,
    met: Option<bool>,
    within_spread: bool,
}

#[derive(schemars::JsonSchema, Serialize)]
pub(crate) struct Sheet<'a> {
    simulated: bool,
    met: usize,
    judged: usize,
    within_spread: usize,
    rows: Vec<Line<'a>>,
}

/// Rejects machine options: each experiment uses the machine and the kernel of its document.
pub(super) fn refuse(options: &MachineOptions) -> Result<(), Failure> {
    let given = [
        ("-M", !matches!(options.machine, MachineArg::Live)),
        ("--kernel", options.kernel.is_some()),
        ("--sim-state", options.sim_state.is_some()),
        ("--sim-fault", !options.sim_fault.is_empty()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(Failure::usage(format!(
            "sim check does not take {name}: each experiment runs on the machine and the kernel of its document"
        ))),
        None => Ok(()),
    }
}

/// Runs the experiments and prints published and simulated values.
pub(super) fn run(output: &Reporter, document: Option<&str>) -> Result<Exit, Failure> {
    if let Some(name) = document
        && !check::DOCUMENTS.contains(&name)
    {
        let known = check::DOCUMENTS.join(", ");
        return Err(Failure::usage(format!("unknown document '{name}' (expected {known})")));
    }
    let documents = document.map_or(check::DOCUMENTS.to_vec(), |name| vec![name]);
    let mut report = check::Report::default();
    for (done, name) in documents.iter().enumerate() {
        let line = format!("{name}, document {} of {}, some ten seconds each", done + 1, documents.len());
        if !terminal::redraw(&line) && documents.len() > 1 {
            eprintln!("flyball: {line}");
        }
        report.rows.extend(check::check(Some(name)).map_err(Failure::failed)?.rows);
    }
    terminal::redraw("");
    let (met, judged) = report.score();
    let within = report.within_spread();
    let line = |row| Line {
        row,
        error_percent: row.error_percent(),
        met: row.met(),
        within_spread: row.is_within_spread(),
    };
    let sheet = || {
        let rows = report.rows.iter().map(line).collect();
        Sheet { simulated: true, met, judged, within_spread: within, rows }
    };
    output.object(sheet, || {
        let mut text = render(&report);
        let _ = write!(text, "\nsimulated: {met} of {judged} values with a target meet it");
        if within > 0 {
            let _ = write!(text, "; {within} others are within the spread of the published rounds");
        }
        text + "\n"
    })?;
    Ok(Exit::Done)
}

fn render(report: &Report) -> String {
    let mut text = String::new();
    let wide = report.rows.iter().map(|row| row.row.chars().count()).max().unwrap_or(0);
    for table in report.tables() {
        let (used, all) = report.used(table);
        let source = report.rows.iter().find(|row| row.table == table).map_or("", |row| row.source);
        let _ = writeln!(text, "\n{source}: {table}; {used} of {all} values set constants");
        let _ = writeln!(
            text,
            "  {:wide$}  {:>11} {:>7}  {:>10} {:>10} {:>8}",
            "", "", "", "published", "simulated", "error"
        );
        for row in report.rows.iter().filter(|row| row.table == table) {
            let _ = writeln!(text, "  {}", line(row, wide));
        }
    }
    text
}

fn line(row: &Row, wide: usize) -> String {
    let simulated = row.simulated.map_or_else(|| "not run".to_owned(), |value| number(value, row.unit));
    let error = match (row.aim, row.simulated) {
        // The difference of two percentages is in percentage points.
        (Aim::Sign(_), Some(simulated)) => format!("{:+.1} pp", simulated - row.published),
        (Aim::Absolute(_), Some(simulated)) => format!("{:+.1} {}", simulated - row.published, row.unit),
        _ => row.error_percent().map_or_else(String::new, |error| format!("{error:+.1} %")),
    };
    let aim = match row.aim {
        Aim::Percent(limit) => format!("within {limit} %"),
        Aim::Absolute(limit) => format!("within {limit} {}", row.unit),
        Aim::Sign(limit) => format!("same sign, a quarter of it, within {limit} points"),
        Aim::None => String::new(),
    };
    let verdict = match row.met() {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "",
    };
    let set = match row.spread {
        _ if row.used => "sets a constant".to_owned(),
        Some(spread) if row.is_within_spread() => {
            format!("(within the spread of the published rounds, {spread:.1} points at 95 %)")
        }
        _ => String::new(),
    };
    let text = format!(
        "{:wide$}  {:>11} {:>7}  {:>10} {simulated:>10} {error:>8}  {verdict:6} {aim} {set}",
        row.row,
        row.quantity,
        row.unit,
        number(row.published, row.unit),
    );
    text.trim_end().to_owned()
}

fn number(value: f64, unit: &str) -> String {
    match unit {
        // Calculated from a minute's energy, so the value is small.
        "1/J" => format!("{value:.7}"),
        _ if value.abs() >= 1000.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}
