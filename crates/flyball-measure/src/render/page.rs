//! The report as one HTML page: the answer, what it rests on, the rounds, and how it was run.

use flyball_plot::{Block, Chart, Page, Table};
use flyball_text::{columns::Cell, counted, date::Utc};

use super::{
    arms::Arms,
    best::conclusion,
    charts::{better, drawn},
    parts::ended,
    table::{Grid, constants, medians_grid, precision, remarks, verdict_grid},
};
use crate::{
    analyse::{Quantity, Report, Verdict},
    numbers::{percent, probability},
    run_directory::{MachineNote, Manifest, Round},
    workload::quote,
};

/// The whole report as one page.
pub fn page(report: &Report, manifest: &Manifest, rounds: &[Round]) -> Page {
    let arms = Arms::for_page(report);
    let mut page = Page::new(format!("flyball compare: {}", report.workload.name));
    page.blocks.extend(banner(&report.machine).map(Block::Banner));
    page = page.with(Block::Paragraph(in_one_line(report, manifest)));
    // The answers to limits come first.
    page.blocks.extend(report.gate.iter().map(|answer| Block::Paragraph(answer.to_string())));
    let answer = conclusion(report, &arms);
    page = page.with(if answer.is_empty() {
        Block::Paragraph("Nothing to compare yet.".to_owned())
    } else {
        Block::Answer(answer.into_iter().map(|(words, rest)| (format!("{words}:"), rest)).collect())
    });
    let labels: Vec<String> = (0..report.arms.len()).map(|arm| arms.label(arm)).collect();
    let (answers, others): (Vec<_>, Vec<_>) = drawn(report, manifest, rounds, &labels)
        .into_iter()
        .partition(|named| matches!(named.name, "against-energy" | "change"));
    // The tables name the arms; keys of charts would repeat that five times.
    let charts = |named: Vec<super::NamedChart>| {
        Block::Charts(named.into_iter().map(|named| named.chart.without_key()).collect::<Vec<Chart>>())
    };
    page = page.with(charts(answers));
    if !report.comparisons.is_empty() {
        let first = arms.name(report.comparisons[0].base);
        page = page
            .with(Block::Heading(format!("Against {first}")))
            .with(Block::Tables(vec![table(verdict_grid(report, &arms))]))
            .with(Block::Paragraph(sentences(
                super::effects::effects(report)
                    .into_iter()
                    .chain(remarks(report, &arms))
                    .chain(super::text::steadiness(report))
                    .collect(),
            )));
    }
    if !report.cases.is_empty() {
        let all = table(super::cases::grid(report, report.cases.iter()));
        page = page
            .with(Block::Heading("Cases".to_owned()))
            .with(Block::Search(Table { colours: Vec::new(), ..all }));
    }
    page = page.with(Block::Heading("Arms".to_owned()));
    let grids = [true, false].map(|judged| medians_grid(report, &arms, judged));
    let tables = grids.into_iter().filter(|grid| grid.header.len() > 1).map(table);
    page = page.with(Block::Tables(tables.collect()));
    let mut below = Vec::new();
    below.extend(constants(report));
    below.push(precision(report));
    below.extend(report.no_energy.iter().map(|why| format!("no energy: {why}")));
    below.extend(report.no_frequency.iter().map(|why| format!("no frequency: {why}")));
    below.extend(report.no_counters.iter().map(|why| format!("no counters: {why}")));
    page = page.with(Block::Paragraph(sentences(below)));
    if !report.notes.is_empty() {
        page = page.with(Block::Heading("Notes".to_owned())).with(Block::List(report.notes.clone()));
    }
    page = page.with(Block::Heading("Rounds".to_owned())).with(charts(others));
    if !report.comparisons.is_empty() {
        let of_tests =
            vec![Block::Tables(vec![comparisons(report, &arms)]), Block::List(super::text::verdicts(report))];
        page = page.with(Block::Details("Statistics of each comparison".to_owned(), of_tests));
    }
    page.with(Block::Heading("How it was run".to_owned())).with(Block::Facts(facts(report, manifest))).with(
        Block::Paragraph(format!(
            "Made by {} from raw readings; 'flyball report' makes it again.",
            manifest.tool
        )),
    )
}

/// The warning that nothing was measured on hardware.
pub fn banner(machine: &MachineNote) -> Option<String> {
    match &machine.emulated {
        Some(what) => {
            Some(format!("Emulated: {what}. A model of the processor made these numbers, not hardware."))
        }
        None if machine.simulated => {
            Some(format!("Simulated: {}. A model made these numbers, not hardware.", machine.name))
        }
        None => None,
    }
}

/// Processor, kernel, date and rounds.
pub(super) fn in_one_line(report: &Report, manifest: &Manifest) -> String {
    let machine = &report.machine;
    let mut words = vec![format!("{}, {} CPUs", machine.processor, machine.cpus)];
    if let Some(boot) = manifest.boots.first() {
        words.push(format!("Linux {}", boot.kernel));
        words.push(Utc::from_seconds(boot.started).minute());
    }
    let rounds: Vec<usize> = report.arms.iter().map(|arm| arm.rounds).collect();
    let (least, most) =
        (rounds.iter().min().copied().unwrap_or(0), rounds.iter().max().copied().unwrap_or(0));
    let rounds = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let each = if most == 1 { "round" } else { "rounds" };
    let arms = counted(report.arms.len(), "arm");
    words.push(format!("{arms}, {rounds} {each} each{}", ended(&report.schedule)));
    words.join(" \u{b7} ")
}

/// Lines as sentences of one paragraph.
fn sentences(lines: Vec<String>) -> String {
    lines
        .into_iter()
        .map(|line| {
            let mut letters = line.chars();
            let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
            format!("{first}{}. ", letters.as_str().trim_end_matches('.'))
        })
        .collect()
}

/// A grid as a table with the colours that the arms have in charts.
fn table(grid: Grid) -> Table {
    let colours = (0..grid.rows.len()).collect();
    Table { header: grid.header, rows: grid.rows, colours }
}

/// How it was run.
fn facts(report: &Report, manifest: &Manifest) -> Vec<(String, String)> {
    let fact = |word: &str, fact: String| (word.to_owned(), fact);
    let mut facts = vec![
        fact("workload", report.workload.name.clone()),
        fact(
            "metric",
            format!(
                "{}, {}; {}",
                report.workload.metric.name,
                report.workload.metric.unit,
                better(report, Quantity::Performance)
            ),
        ),
        fact("machine", report.machine.summary()),
    ];
    if !manifest.command_line.is_empty() {
        facts.push(fact("command line", quote(&manifest.command_line)));
    }
    for boot in &manifest.boots {
        let driver =
            boot.driver.as_deref().map_or_else(|| "no cpufreq driver".to_owned(), |d| format!("driver {d}"));
        facts.push(fact("started", Utc::from_seconds(boot.started).minute()));
        facts.push(fact("kernel", format!("Linux {}, {driver}", boot.kernel)));
        facts.push(fact("kernel command line", boot.command_line.clone()));
        let energy: Vec<&str> = boot.meters.energy.iter().map(|source| source.name.as_str()).collect();
        if !energy.is_empty() {
            facts.push(fact("energy from", energy.join(", ")));
        }
    }
    if let Some(cpus) = &report.workload.cpus {
        facts.push(fact("pinned to", format!("CPUs {cpus}")));
    }
    facts.extend(report.workload.background.iter().map(|load| fact("meanwhile", load.title())));
    let schedule = &report.schedule;
    facts.push(fact(
        "schedule",
        format!(
            "blocks of {} in random order, seed {}; {} warm-up; {} s cool-down",
            counted(report.arms.len(), "arm"),
            schedule.seed,
            schedule.warm_up,
            schedule.cool_down
        ),
    ));
    facts
}

fn comparisons(report: &Report, arms: &Arms) -> Table {
    let header = [
        "arm",
        "in",
        "pairs",
        "change",
        "interval",
        "p",
        "corrected",
        "Cliff's delta",
        "verdict",
        "rounds to show 1 %",
    ];
    let rows = report
        .comparisons
        .iter()
        .map(|comparison| {
            let verdict = match comparison.verdict {
                Verdict::Better => "better",
                Verdict::Worse => "worse",
                Verdict::Equivalent => "same",
                Verdict::NoDifferenceShown => "unclear",
                Verdict::TooFewRounds => "too few rounds",
            };
            let row: Vec<String> = vec![
                arms.label(comparison.arm),
                comparison.quantity.metric(&report.workload.metric).name,
                if comparison.paired {
                    comparison.pairs.to_string()
                } else {
                    format!("{}, unpaired", comparison.pairs)
                },
                percent(comparison.change),
                comparison.interval.map_or_else(|| "-".to_owned(), crate::numbers::between),
                probability(comparison.p),
                probability(comparison.p_corrected),
                format!("{:+.2}", comparison.delta),
                verdict.to_owned(),
                comparison.rounds_for_one_percent.map_or_else(
                    || "-".to_owned(),
                    |rounds| {
                        // Hopeless in either case, and wide numbers would stretch the table.
                        if rounds > 100_000 { "more than 100000".to_owned() } else { rounds.to_string() }
                    },
                ),
            ];
            row.into_iter().map(Cell::from).collect()
        })
        .collect();
    Table { header: header.map(str::to_owned).to_vec(), rows, colours: Vec::new() }
}
