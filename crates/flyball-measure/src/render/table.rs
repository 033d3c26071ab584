//! The tables of a report: medians of each arm, and its differences from the first. Columns that
//! are equal for all arms become a line. Columns that do not fit the width go into a second table.

use std::fmt::Write;

use flyball_text::{
    columns::{Cell, Columns, Painter, Style},
    counted,
};

use super::{
    arms::Arms,
    parts::{
        HIDDEN, Screen, columns, confidence, could_be_seen, how, is_hidden, rounds, rounds_needed, style,
    },
};
use crate::{
    analyse::{ArmReport, Comparison, EQUIVALENT, Quantity, Report, Verdict},
    numbers::{between, level, number, p_value, percent},
};

/// A column: its heading in two lines, and a cell for each arm.
struct Column {
    head: [String; 2],
    /// Whether verdicts are given for it.
    judged: bool,
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
        Quantity::WorkEnergy => "for work",
        Quantity::Dram => "DRAM",
        Quantity::Platform | Quantity::PlatformPower => "platform",
        Quantity::Temperature => "peak",
        Quantity::Switches => "switches",
        Quantity::TraceFrequency => "traced",
        _ => &metric.name,
    };
    [name.to_owned(), metric.unit.clone()]
}

/// A median with the ends of its interval: `356.3 (355.9-357.0)`.
fn with_ends(arm: &ArmReport, quantity: Quantity) -> String {
    let Some(summary) = arm.summary(quantity) else {
        let bound = arm.memory_at_most.filter(|_| quantity == Quantity::PeakMemory);
        return bound.map_or_else(|| "-".to_owned(), |bound| format!("< {}", number(bound)));
    };
    let median = number(summary.median);
    match summary.interval.filter(|_| summary.is_judged && quantity != Quantity::PerWatt) {
        Some(interval) => format!("{median} ({}-{})", number(interval.low), number(interval.high)),
        None => median,
    }
}

/// A table for a page or a file: a heading, and a row for each arm.
pub(super) struct Grid {
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// The columns that are equal for all arms, and the others.
fn columns_of(report: &Report) -> (Vec<Column>, Vec<Column>) {
    let mut all = vec![Column {
        head: ["rounds".to_owned(), String::new()],
        judged: true,
        cells: report.arms.iter().map(|arm| rounds(arm).into()).collect(),
    }];
    for quantity in columns(report) {
        all.push(Column {
            head: short(quantity, report),
            judged: Quantity::judged(&report.workload.metric).contains(&quantity),
            cells: report.arms.iter().map(|arm| with_ends(arm, quantity).into()).collect(),
        });
        if quantity == Quantity::Performance {
            all.push(deviation(report));
        }
        if quantity == Quantity::PerWatt {
            all.push(relative(report, quantity));
        }
    }
    // A single arm has no other to be equal to.
    all.into_iter().partition(|column| report.arms.len() > 1 && column.is_constant())
}

/// The medians of each arm: judged quantities, or the others.
pub(super) fn medians_grid(report: &Report, arms: &Arms, judged: bool) -> Grid {
    let (_, columns) = columns_of(report);
    let columns: Vec<Column> = columns.into_iter().filter(|column| column.judged == judged).collect();
    let title = |column: &Column| match &column.head {
        [name, unit] if unit.is_empty() => name.clone(),
        // `% of first` is one heading in two lines; others are a name and its unit.
        [name, unit] if name.ends_with("of") => format!("{name} {unit}"),
        [name, unit] => format!("{name}, {unit}"),
    };
    let row = |arm: usize| {
        let cells = columns.iter().map(|column| column.cells[arm].clone());
        std::iter::once(Cell::from(arms.label(arm))).chain(cells).collect()
    };
    Grid {
        header: std::iter::once("arm".to_owned()).chain(columns.iter().map(title)).collect(),
        rows: (0..report.arms.len()).map(row).collect(),
    }
}

/// The values that are equal for all arms, as a line.
pub(super) fn constants(report: &Report) -> Option<String> {
    let (constant, _) = columns_of(report);
    let words: Vec<String> = constant.iter().map(in_words).collect();
    (!words.is_empty()).then(|| format!("all arms: {}", words.join(", ")))
}

pub(super) fn medians<P: Painter + Copy>(report: &Report, arms: &Arms, screen: Screen<P>) -> String {
    let (_, different) = columns_of(report);
    let mut out = tables(arms, different, report.arms.len(), screen);
    for line in constants(report).into_iter().chain([precision(report)]) {
        let _ = writeln!(out, "{line}");
    }
    if let Some(why) = &report.no_energy {
        let _ = writeln!(out, "no energy: {why}");
    }
    if let Some(why) = &report.no_frequency {
        let _ = writeln!(out, "no frequency: {why}");
    }
    if let Some(why) = &report.no_counters {
        let _ = writeln!(out, "no counters: {why}");
    }
    out
}

/// A column of equal cells as words: `wall time 10.00 s`.
fn in_words(column: &Column) -> String {
    let [name, unit] = &column.head;
    let value = column.cells.first().map_or("-", Cell::text);
    // Only rounds are whole numbers.
    let name = if value == "1" { name.trim_end_matches('s') } else { name.as_str() };
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
    Column {
        head: ["std dev".to_owned(), "%".to_owned()],
        judged: true,
        cells: report.arms.iter().map(cell).collect(),
    }
}

/// A quantity in percent of the first arm's.
fn relative(report: &Report, quantity: Quantity) -> Column {
    let median = |arm: &ArmReport| arm.summary(quantity).map(|summary| summary.median);
    let first = report.arms.first().and_then(median).filter(|first| *first > 0.0);
    let cell = |arm: &ArmReport| match (median(arm), first) {
        (Some(value), Some(first)) => format!("{:.1}", value / first * 100.0).into(),
        _ => Cell::from("-"),
    };
    Column {
        head: ["% of".to_owned(), "first".to_owned()],
        judged: true,
        cells: report.arms.iter().map(cell).collect(),
    }
}

/// The precision of the medians.
pub(super) fn precision(report: &Report) -> String {
    let level = level(report.schedule.confidence);
    let judged =
        |arm: &ArmReport| arm.summaries.iter().any(|summary| summary.is_judged && summary.interval.is_some());
    let is_paired = report.comparisons.iter().all(|one| one.paired);
    let how = if report.arms.len() == 1 {
        ""
    } else if is_paired {
        ". Arms are compared in pairs of rounds, not by these"
    } else {
        ". Arms are compared by their rounds, not by these"
    };
    if report.arms.iter().any(judged) {
        format!("medians; in brackets, where each median alone lies with {level} % confidence{how}")
    } else {
        format!("medians; too few rounds for {level} % intervals of them{how}")
    }
}

/// Columns as one table, or as several if they are wider than the screen. Each table begins with
/// the arm.
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
            // A column wider than the screen has a table of its own: otherwise this would never
            // end.
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

/// The compared quantities, in the order of the report.
fn compared(report: &Report) -> Vec<Quantity> {
    let mut quantities: Vec<Quantity> = Vec::new();
    for comparison in &report.comparisons {
        // The report's order has performance first.
        if !quantities.contains(&comparison.quantity) {
            quantities.push(comparison.quantity);
        }
    }
    quantities
}

fn verdict_cells(report: &Report, arm: usize) -> impl Iterator<Item = Cell> + '_ {
    compared(report).into_iter().map(move |quantity| {
        let found = report.comparisons.iter().find(|one| one.arm == arm && one.quantity == quantity);
        found.map_or_else(|| "-".into(), |one| in_short(report, one))
    })
}

/// A row for each arm: the first with its medians, the others with their changes and verdicts.
pub(super) fn verdict_grid(report: &Report, arms: &Arms) -> Grid {
    let base = report.comparisons.first().map_or(0, |comparison| comparison.base);
    let median = |quantity: Quantity| {
        let unit = quantity.metric(&report.workload.metric).unit;
        let median = report.arms[base].summary(quantity).map(|summary| number(summary.median));
        Cell::from(median.map_or_else(|| "-".to_owned(), |median| format!("{median} {unit}")))
    };
    let row = |arm: usize| {
        let mut row = vec![Cell::from(arms.heading(arm))];
        if arm == base {
            row.extend(compared(report).into_iter().map(median));
        } else {
            row.extend(verdict_cells(report, arm));
        }
        row
    };
    let names = compared(report).into_iter().map(|quantity| short(quantity, report)[0].clone());
    Grid {
        header: std::iter::once("arm".to_owned()).chain(names).collect(),
        rows: (0..report.arms.len()).map(row).collect(),
    }
}

/// How each arm differs from the first.
pub(super) fn differences<P: Painter + Copy>(report: &Report, arms: &Arms, screen: Screen<P>) -> String {
    let mut rows: Vec<usize> = Vec::new();
    for comparison in &report.comparisons {
        if !rows.contains(&comparison.arm) {
            rows.push(comparison.arm);
        }
    }
    let mut table = Columns::new();
    let names = compared(report).into_iter().map(|quantity| short(quantity, report)[0].clone());
    table.heading(std::iter::once("arm".to_owned()).chain(names));
    for &arm in &rows {
        table.row(std::iter::once(Cell::from(arms.label(arm))).chain(verdict_cells(report, arm)).collect());
    }
    let mut out = format!("against {}\n", arms.name(report.comparisons[0].base));
    out.push_str(&table.render(screen.painter));
    for line in remarks(report, arms) {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// Explains the verdicts of a table.
pub(super) fn remarks(report: &Report, arms: &Arms) -> Vec<String> {
    let comparisons = &report.comparisons;
    let mut lines = Vec::new();
    let shown = |one: &&Comparison| one.verdict.is_difference();
    // The weakest p-value: the remark holds for each.
    if let Some(p) = comparisons.iter().filter(shown).map(|one| one.p_corrected).max_by(f64::total_cmp) {
        let p = p_value(p);
        lines.push(format!("better, worse: {p} or less"));
    }
    if comparisons.iter().any(|one| one.verdict == Verdict::Equivalent) {
        lines.push(format!("same: shown to be within ±{} %", 100.0 * EQUIVALENT));
    }
    let (hidden, unclear): (Vec<&Comparison>, Vec<&Comparison>) = comparisons
        .iter()
        .filter(|one| one.verdict == Verdict::NoDifferenceShown && !report.withheld.contains(&one.quantity))
        .partition(|one| is_hidden(report, one));
    for one in hidden {
        let name = one.quantity.metric(&report.workload.metric).name;
        let p = p_value(one.p_corrected);
        lines.push(format!("unclear, {} in {name}: {HIDDEN} ({p})", arms.name(one.arm)));
    }
    let shows = unclear.into_iter();
    if let Some(one) = shows.clone().next() {
        // The least precise value: the remark holds for each.
        let least = shows.map(|one| one.shows).try_fold(0.0, |most: f64, shows| Some(most.max(shows?)));
        lines.push(match least {
            Some(most) => format!(
                "unclear: no difference seen; in each, one {} would have been seen in about 9 of 10 such comparisons",
                could_be_seen(most)
            ),
            None => format!("unclear: no difference seen in {}", counted(one.pairs, "round")),
        });
    }
    if let Some(one) = comparisons.iter().find(|one| one.verdict == Verdict::TooFewRounds) {
        lines.push(format!(
            "{} cannot show any difference; {} arms in {} quantities at {} % confidence need {}",
            counted(one.pairs, "round"),
            report.arms.len(),
            compared(report).len(),
            level(report.schedule.confidence),
            rounds_needed(report, one)
        ));
    }
    lines.push(confidence(report));
    // Once per arm: how arms were compared does not depend on the quantity.
    let first = comparisons.first().map(|one| one.quantity);
    for one in comparisons.iter().filter(|one| Some(one.quantity) == first) {
        let how = how(report, one);
        if !how.is_empty() {
            lines.push(format!("arm {}{how}", arms.name(one.arm)));
        }
    }
    lines
}

/// A comparison as a cell: `better (-32.3 to -31.5 %)`.
pub(super) fn in_short(report: &Report, comparison: &Comparison) -> Cell {
    let change = comparison.interval.map_or_else(|| percent(comparison.change), between);
    let word = match comparison.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Equivalent => "same",
        Verdict::NoDifferenceShown if report.withheld.contains(&comparison.quantity) => "no verdict",
        Verdict::NoDifferenceShown => "unclear",
        Verdict::TooFewRounds => "needs",
    };
    let change = match comparison.verdict {
        Verdict::TooFewRounds => format!("{word} {} rounds", rounds_needed(report, comparison)),
        _ => format!("{word} ({change})"),
    };
    let style = match style(comparison.verdict) {
        Style::Plain => Style::Faint,
        style => style,
    };
    Cell::styled(style, change)
}
