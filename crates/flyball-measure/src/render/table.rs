//! The tables of a report: medians of each arm, and its differences from the first. Columns that are the same for all arms are a
//! line, and what does not fit the width goes into a second table.

use std::fmt::Write;

use flyball_plot::columns::{Cell, Columns, Painter, Style};

use super::{
    arms::Arms,
    parts::{Screen, columns, how, rounds, style},
};
use crate::{
    analyse::{ArmReport, Comparison, Quantity, Report, Verdict},
    numbers::{level, number, percent, probability},
};

/// A column: its heading in two lines, and a cell for each arm.
struct Column {
    head: [String; 2],
    cells: Vec<Cell>,
}

impl Column {
    fn width(&self) -> usize {
        let head = self.head.iter().map(|line| line.chars().count());
        head.chain(self.cells.iter().map(|cell| cell.text().chars().count())).max().unwrap_or(0)
    }

    fn is_constant(&self) -> bool {
        self.cells.windows(2).all(|pair| pair[0].text() == pair[1].text())
    }
}

/// The name of a quantity over a column.
fn short(quantity: Quantity, report: &Report) -> [String; 2] {
    let metric = quantity.metric(&report.workload.metric);
    let name = match quantity {
        Quantity::PerWatt => "per watt",
        Quantity::Dram => "DRAM",
        Quantity::Platform => "platform",
        Quantity::Temperature => "peak",
        Quantity::Switches => "switches",
        Quantity::TraceFrequency => "traced",
        _ => &metric.name,
    };
    [name.to_owned(), metric.unit.clone()]
}

/// A median with the larger side of its interval: `356.3 ±0.3 %`.
fn plus_minus(arm: &ArmReport, quantity: Quantity) -> String {
    let Some(summary) = arm.summary(quantity) else { return "-".to_owned() };
    let median = number(summary.median);
    match summary.interval.filter(|_| Quantity::JUDGED.contains(&quantity) && summary.median != 0.0) {
        Some(interval) => {
            // The larger side: bootstrap intervals are not symmetric, and a reader must not take them for narrower than they are.
            let side = (interval.high - summary.median).max(summary.median - interval.low);
            format!("{median} ±{}", unsigned(side / summary.median.abs()))
        }
        None => median,
    }
}

/// A percentage without its sign.
fn unsigned(fraction: f64) -> String {
    percent(fraction.abs()).trim_start_matches('+').to_owned()
}

/// The medians of each arm.
pub(super) fn medians<P: Painter + Copy>(report: &Report, arms: &Arms, screen: Screen<P>) -> String {
    let mut all = vec![Column {
        head: ["rounds".to_owned(), String::new()],
        cells: report.arms.iter().map(|arm| rounds(arm).into()).collect(),
    }];
    for quantity in columns(report) {
        all.push(Column {
            head: short(quantity, report),
            cells: report.arms.iter().map(|arm| plus_minus(arm, quantity).into()).collect(),
        });
        if quantity == Quantity::Performance {
            all.push(deviation(report));
        }
        if quantity == Quantity::PerWatt {
            all.push(relative(report, quantity));
        }
    }
    // One arm alone has no other to be the same as.
    let (constant, different): (Vec<Column>, Vec<Column>) =
        all.into_iter().partition(|column| report.arms.len() > 1 && column.is_constant());
    let mut out = tables(arms, different, report.arms.len(), screen);
    if !constant.is_empty() {
        let words: Vec<String> = constant.iter().map(in_words).collect();
        let _ = writeln!(out, "all arms: {}", words.join(", "));
    }
    let _ = writeln!(out, "{}", precision(report));
    if let Some(why) = &report.no_energy {
        let _ = writeln!(out, "no energy: {why}");
    }
    if let Some(why) = &report.no_frequency {
        let _ = writeln!(out, "no frequency: {why}");
    }
    out
}

/// A column of equal cells as words: `wall time 10.00 s`.
fn in_words(column: &Column) -> String {
    let [name, unit] = &column.head;
    let value = column.cells.first().map_or("-", Cell::text);
    if unit.is_empty() { format!("{value} {name}") } else { format!("{name} {value} {unit}") }
}

/// The standard deviation of performance, in percent of the mean.
fn deviation(report: &Report) -> Column {
    let share = |arm: &ArmReport| {
        let summary = arm.summary(Quantity::Performance)?;
        Some(summary.deviation? / summary.mean).filter(|share| share.is_finite())
    };
    let cell = |arm: &ArmReport| {
        share(arm).map_or_else(|| "-".into(), |share| format!("{:.2}", share * 100.0).into())
    };
    Column { head: ["std dev".to_owned(), "%".to_owned()], cells: report.arms.iter().map(cell).collect() }
}

/// A quantity in percent of the first arm's.
fn relative(report: &Report, quantity: Quantity) -> Column {
    let median = |arm: &ArmReport| arm.summary(quantity).map(|summary| summary.median);
    let first = report.arms.first().and_then(median).filter(|first| *first > 0.0);
    let cell = |arm: &ArmReport| match (median(arm), first) {
        (Some(value), Some(first)) => format!("{:.1}", value / first * 100.0).into(),
        _ => Cell::from("-"),
    };
    Column { head: ["% of".to_owned(), "first".to_owned()], cells: report.arms.iter().map(cell).collect() }
}

/// What stands behind the medians.
fn precision(report: &Report) -> String {
    let level = level(report.schedule.confidence);
    let judged = |arm: &ArmReport| {
        arm.summaries.iter().any(|s| Quantity::JUDGED.contains(&s.quantity) && s.interval.is_some())
    };
    if report.arms.iter().any(judged) {
        format!("medians; ±: the larger side of the {level} % bootstrap interval of the median")
    } else {
        format!("medians; too few rounds for {level} % intervals of them")
    }
}

/// Columns as one table, or as several where they are wider than the screen; each begins with the arm.
fn tables<P: Painter + Copy>(arms: &Arms, columns: Vec<Column>, count: usize, screen: Screen<P>) -> String {
    let labels: Vec<String> = (0..count).map(|arm| arms.label(arm)).collect();
    // 3: the heading `arm`.
    let first = labels.iter().map(|label| label.chars().count()).chain([3]).max().unwrap_or(3);
    let room = screen.width.unwrap_or(usize::MAX);
    let mut out = String::new();
    let mut columns = columns.into_iter().peekable();
    while columns.peek().is_some() {
        let mut used = first;
        let mut some: Vec<Column> = Vec::new();
        while let Some(column) =
            // A column wider than the screen has a table of its own: otherwise this would never end.
            columns.next_if(|column| some.is_empty() || used + 2 + column.width() <= room)
        {
            used += 2 + column.width();
            some.push(column);
        }
        if !out.is_empty() {
            out.push('\n');
        }
        let mut table = Columns::aligned_right(1..some.len() + 1);
        for line in 0..2 {
            let head = some.iter().map(|column| column.head[line].as_str());
            table.heading(std::iter::once(if line == 0 { "arm" } else { "" }).chain(head));
        }
        for (arm, label) in labels.iter().enumerate() {
            let mut row = vec![Cell::from(label.as_str())];
            row.extend(some.iter().map(|column| column.cells[arm].clone()));
            table.row(row);
        }
        out.push_str(&table.render(screen.painter));
    }
    out
}

/// How each arm differs from the first.
pub(super) fn differences<P: Painter + Copy>(report: &Report, arms: &Arms, screen: Screen<P>) -> String {
    let comparisons = &report.comparisons;
    let mut quantities: Vec<Quantity> = Vec::new();
    let mut rows: Vec<usize> = Vec::new();
    for comparison in comparisons {
        // In the order of the report, in which performance comes first.
        if !quantities.contains(&comparison.quantity) {
            quantities.push(comparison.quantity);
        }
        if !rows.contains(&comparison.arm) {
            rows.push(comparison.arm);
        }
    }
    let mut table = Columns::new();
    let names = quantities.iter().map(|quantity| short(*quantity, report)[0].clone());
    table.heading(std::iter::once("arm".to_owned()).chain(names));
    for &arm in &rows {
        let mut row = vec![Cell::from(arms.label(arm))];
        row.extend(quantities.iter().map(|&quantity| {
            let found = comparisons.iter().find(|one| one.arm == arm && one.quantity == quantity);
            found.map_or_else(|| "-".into(), in_short)
        }));
        table.row(row);
    }
    let level = level(report.schedule.confidence);
    let mut out = format!("against {}, with {level} % intervals\n", arms.name(comparisons[0].base));
    out.push_str(&table.render(screen.painter));
    let shown = |one: &&Comparison| matches!(one.verdict, Verdict::Better | Verdict::Worse);
    // The weakest of them: what is said holds for each.
    if let Some(p) = comparisons.iter().filter(shown).map(|one| one.p_corrected).max_by(f64::total_cmp) {
        let _ =
            writeln!(out, "better, worse: p = {} or less, corrected for the number of arms", probability(p));
    }
    if comparisons.iter().any(|one| one.verdict == Verdict::NoDifferenceShown) {
        out.push_str("not shown: these rounds do not show a difference\n");
    }
    if let Some(one) = comparisons.iter().find(|one| one.verdict == Verdict::TooFewRounds) {
        let _ = writeln!(out, "too few: {} rounds cannot show a difference of this many arms", one.pairs);
    }
    // Once for each arm: how arms were compared does not depend on the quantity.
    for one in comparisons.iter().filter(|one| one.quantity == quantities[0]) {
        let how = how(report, one);
        if !how.is_empty() {
            let _ = writeln!(out, "arm {}{how}", arms.name(one.arm));
        }
    }
    out
}

/// A comparison as a cell: `-31.9 ±0.4 % better`.
fn in_short(comparison: &Comparison) -> Cell {
    let change = percent(comparison.change);
    let change = match comparison.interval {
        Some(interval) => {
            // As for medians: the larger side.
            let side = (interval.high - comparison.change).max(comparison.change - interval.low);
            format!("{} ±{}", change.trim_end_matches(" %"), unsigned(side))
        }
        None => change,
    };
    let word = match comparison.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NoDifferenceShown => "not shown",
        Verdict::TooFewRounds => "too few",
    };
    let style = match style(comparison.verdict) {
        Style::Plain => Style::Faint,
        style => style,
    };
    Cell::styled(style, format!("{change} {word}"))
}
