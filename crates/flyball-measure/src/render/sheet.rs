//! A judged selftest sheet on a terminal, as charts and as a page.

use std::fmt::Write;

use flyball_plot::{Axis, Block, Chart, Mark, Page, Series, Table};
use flyball_text::columns::{self, Unstyled};

use crate::numbers::{p_value, percent, probability};
use crate::selftest::{Columns, PairVerdict, SelftestReport, Sheet};

/// The whole sheet as text.
pub fn sheet_text(sheet: &Sheet, report: &SelftestReport) -> String {
    let mut out = String::new();
    let (header, rows) = averages(sheet);
    let mut grid = columns::Columns::aligned_right(1..header.len());
    grid.heading(header);
    for row in rows {
        grid.text_row(row);
    }
    let _ = writeln!(out, "{} of the amd-pstate selftest; averages as printed\n", report.test);
    out.push_str(&grid.render(Unstyled));
    let _ = writeln!(out, "\n{}", summary(report));
    for misprint in misprints(report) {
        let _ = writeln!(out, "  {misprint}");
    }
    let _ = writeln!(out);
    for pair in &report.pairs {
        let _ = writeln!(out, "{}", sentence(pair));
    }
    if !report.notes.is_empty() {
        let _ = writeln!(out);
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

fn summary(report: &SelftestReport) -> String {
    let wrong = report.misprints().count();
    format!("{} of {} cells follow from the others.", report.checks.len() - wrong, report.checks.len())
}

fn misprints(report: &SelftestReport) -> Vec<String> {
    report
        .misprints()
        .map(|check| {
            format!(
                "line {}, {}, {}: printed {}, computed {}.",
                check.line, check.row, check.column, check.printed, check.computed
            )
        })
        .collect()
}

fn sentence(pair: &PairVerdict) -> String {
    let PairVerdict { base, compared, column, .. } = pair;
    let change = percent(pair.change);
    if pair.shown {
        return format!(
            "{compared} against {base}: {column} {change}: shown ({}).",
            p_value(pair.p_corrected)
        );
    }
    // The level of the verdicts (`consistency::ALPHA`): above it no outcome of so few rounds is
    // significant.
    let few = pair.smallest_p > 0.05;
    let because = if few {
        format!(
            "{} and {} rounds cannot show one: the smallest possible p is {}",
            pair.rounds.0,
            pair.rounds.1,
            probability(pair.smallest_p)
        )
    } else {
        p_value(pair.p_corrected)
    };
    let apart = if pair.apart { "all rounds lie apart" } else { "the rounds overlap" };
    let welch = pair.welch_corrected.map_or_else(String::new, |p| {
        format!(", Welch's t test says {} if rounds are independent and normal", p_value(p))
    });
    format!("{compared} against {base}: {column} {change}: no difference shown ({because}; {apart}{welch}).")
}

fn averages(sheet: &Sheet) -> (Vec<String>, Vec<Vec<String>>) {
    let performance = if sheet.is_time { "time" } else { "performance" };
    let header = ["governor", "rounds", "des-perf", "freq, GHz", "load, %"]
        .map(str::to_owned)
        .into_iter()
        .chain([
            format!("{performance}, {}", sheet.unit),
            "energy, J".to_owned(),
            format!("per watt, {}", sheet.per_watt_unit),
        ])
        .collect();
    let rows = sheet
        .groups
        .iter()
        .map(|group| {
            let mut row = vec![group.name.clone(), group.rounds.len().to_string()];
            row.extend((0..6).map(|column| {
                let cell = group.average.as_ref().and_then(|line| line.columns.cells[column].as_ref());
                cell.map_or_else(|| "-".to_owned(), |cell| cell.text.clone())
            }));
            row
        })
        .collect();
    (header, rows)
}

/// The selftest's three plots, as it draws them: bars by round.
pub fn sheet_charts(sheet: &Sheet) -> Vec<(&'static str, Chart)> {
    let performance = if sheet.is_time { ("time", "Time") } else { ("performance", "Performance") };
    [
        (performance, Columns::PERFORMANCE, sheet.unit.as_str()),
        (("energy", "Energy"), Columns::ENERGY, "J"),
        (("ppw", "Performance per watt"), Columns::PER_WATT, sheet.per_watt_unit.as_str()),
    ]
    .into_iter()
    .map(|((name, title), column, unit)| {
        let most = sheet.groups.iter().map(|group| group.rounds.len()).max().unwrap_or(0);
        let mut rounds: Vec<String> = (1..=most).map(|round| format!("round {round}")).collect();
        rounds.push("average".to_owned());
        let mut chart =
            Chart::new(title, Axis::categories("", rounds), Axis::new(title.to_lowercase(), unit));
        for group in &sheet.groups {
            let number = |row: &crate::selftest::Line| row.columns.number(column);
            let mut bars: Vec<(f64, f64)> = group
                .rounds
                .iter()
                .enumerate()
                .filter_map(|(place, row)| Some((place as f64, number(row)?)))
                .collect();
            bars.extend(group.average.as_ref().and_then(number).map(|value| (most as f64, value)));
            chart = chart.with(Series::new(group.name.clone(), Mark::Bars(bars)));
        }
        (name, chart)
    })
    .collect()
}

/// The whole sheet as a page.
pub fn sheet_page(sheet: &Sheet, report: &SelftestReport) -> Page {
    let (header, rows) = averages(sheet);
    let mut page = Page::new(format!("amd-pstate selftest: {}", report.test))
        .with(Block::Tables(vec![Table {
            header,
            rows: rows.into_iter().map(|row| row.into_iter().map(columns::Cell::from).collect()).collect(),
            colours: Vec::new(),
        }]))
        .with(Block::Heading("Arithmetic".to_owned()))
        .with(Block::Paragraph(summary(report)))
        .with(Block::List(misprints(report)))
        .with(Block::Heading("Differences".to_owned()))
        .with(Block::List(report.pairs.iter().map(sentence).collect()));
    if !report.notes.is_empty() {
        page = page.with(Block::Heading("Notes".to_owned())).with(Block::List(report.notes.clone()));
    }
    page.with(Block::Charts(sheet_charts(sheet).into_iter().map(|(_, chart)| chart).collect()))
}
