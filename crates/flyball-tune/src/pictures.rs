//! The picture of a search.

use flyball_measure::{Manifest, RunDirectory, quote, render};
use flyball_plot::{Axis, Block, Chart, Mark, Page, Series, Table};
use flyball_text::columns::Cell;

use crate::{
    blocks::Outcome,
    goal::{Limit, LimitText},
    record::Record,
    verdict::Verdict,
};

/// A picture, alone and as a page.
#[derive(Debug)]
pub struct Pictures {
    pub svg: String,
    pub html: String,
}

/// A setting that ran, as the page shows it.
struct Row {
    arm: usize,
    /// The expected change against now in percent: low, middle and high, two deviations to either
    /// side.
    ends: [f64; 3],
    rounds: usize,
    /// Its median of the limited quantity, and whether this median keeps the limit.
    limited: Option<(String, bool)>,
}

impl Pictures {
    /// The answer, and the expected change of each setting that ran.
    pub fn draw(
        directory: &RunDirectory,
        record: &Record,
        outcome: &Outcome,
        verdict: &Verdict<'_>,
    ) -> Pictures {
        let manifest = &directory.manifest;
        let metric = &manifest.workload.metric;
        let quantity = record.goal.aim.quantity.metric(metric).name;
        let rows = rows(directory, record, outcome);
        let is_broken = |row: &Row| row.limited.as_ref().is_some_and(|(_, keeps)| !keeps);
        let intervals = |broken: bool| {
            let rows = rows.iter().enumerate().filter(|(_, row)| is_broken(row) == broken);
            let interval = |(place, row): (usize, &Row)| {
                let [low, middle, high] = row.ends;
                (place as f64 + 1.0, low, middle, high)
            };
            Mark::Intervals(rows.map(interval).collect())
        };
        let mut chart = Chart::new(
            format!("Expected {quantity} of each setting"),
            Axis::new("settings that ran, numbered as below", ""),
            Axis::new(format!("{quantity} against now"), "%"),
        )
        .described(match verdict.confirmed {
            Some(_) => {
                "by the model, with two deviations to either side; the answer above is of fresh rounds"
            }
            None => "by the model, with two deviations to either side",
        });
        if let Some(limit) = &record.goal.limit {
            let shown = LimitText { limit, metric };
            chart = chart
                .with(Series::new(format!("keeps {shown} (median)"), intervals(false)).coloured(0))
                .with(Series::new("breaks it", intervals(true)).coloured(1));
        } else {
            chart = chart.with(Series::unnamed(intervals(false)));
        }
        let mut page = Page::new(format!("flyball tune: {}", record.goal.title(metric)));
        page.blocks.extend(render::banner(&manifest.machine).map(Block::Banner));
        let answer = verdict.answer(manifest, &record.searched);
        let page = answer.lines().fold(page, |page, line| page.with(Block::Paragraph(line.to_owned())));
        let page = page
            .with(Block::Charts(vec![chart.clone()]))
            .with(Block::Tables(vec![table(&rows, record, verdict, manifest)]))
            .with(Block::Heading("How it was run".to_owned()))
            .with(Block::Facts(facts(manifest)));
        Pictures { svg: chart.svg(), html: page.html() }
    }
}

/// The settings that ran, sorted by their expected change.
fn rows(directory: &RunDirectory, record: &Record, outcome: &Outcome) -> Vec<Row> {
    let aim = record.goal.aim;
    let percent = |log: f64| 100.0 * aim.change_of_log(log).exp_m1();
    let row = |arm: usize| {
        let rounds = directory.rounds.iter().filter(|round| round.arm == arm && !round.warm_up).count();
        let (mean, deviation) = outcome.expected[arm];
        // The ends in order, even if more is better.
        let mut ends = [-2.0, 0.0, 2.0].map(|times| percent(mean + times * deviation));
        ends.sort_by(f64::total_cmp);
        let limited = record.goal.limit.and_then(|limit| limited(directory, arm, &limit));
        (rounds > 0).then_some(Row { arm, ends, rounds, limited })
    };
    let mut rows: Vec<Row> = (0..record.searched.arms.len()).filter_map(row).collect();
    rows.sort_by(|a, b| outcome.expected[a.arm].0.total_cmp(&outcome.expected[b.arm].0));
    rows
}

/// An arm's median of the limited quantity, and whether it keeps the limit.
fn limited(directory: &RunDirectory, arm: usize, limit: &Limit) -> Option<(String, bool)> {
    let manifest = &directory.manifest;
    let median = |arm: usize| {
        let rounds = directory.rounds.iter().filter(|round| round.arm == arm && !round.warm_up);
        let values: Vec<f64> = rounds.filter_map(|round| limit.aim.quantity.value(round, manifest)).collect();
        flyball_measure::stats::median(&values)
    };
    let value = median(arm)?;
    let (measured, text) = if limit.relative {
        let change = value / median(0)? - 1.0;
        (change, render::percent(change))
    } else {
        let unit = limit.aim.quantity.metric(&manifest.workload.metric).unit;
        (value, format!("{} {unit}", render::number(value)))
    };
    let keeps = if limit.aim.more { measured >= limit.value } else { measured <= limit.value };
    Some((text, keeps))
}

fn table(rows: &[Row], record: &Record, verdict: &Verdict<'_>, manifest: &Manifest) -> Table {
    let metric = &manifest.workload.metric;
    let name = record.goal.aim.quantity.metric(metric).name;
    let mut header = vec!["setting".to_owned(), format!("expected {name}"), "rounds".to_owned()];
    header
        .extend(record.goal.limit.map(|limit| format!("median {}", limit.aim.quantity.metric(metric).name)));
    header.push(String::new());
    let row = |(place, row): (usize, &Row)| {
        let setting = &record.searched.arms[row.arm].name;
        let mut cells = vec![
            format!("{}. {setting}", place + 1),
            format!("{:+.1} to {:+.1} %", row.ends[0], row.ends[2]),
            row.rounds.to_string(),
        ];
        if record.goal.limit.is_some() {
            cells.push(row.limited.as_ref().map_or_else(|| "-".to_owned(), |(text, _)| text.clone()));
        }
        let is_broken = row.limited.as_ref().is_some_and(|(_, keeps)| !keeps);
        cells.push(match () {
            () if *setting == verdict.chosen => "chosen".to_owned(),
            () if is_broken => "breaks the limit".to_owned(),
            () => String::new(),
        });
        cells.into_iter().map(Cell::from).collect()
    };
    Table { header, rows: rows.iter().enumerate().map(row).collect(), colours: Vec::new() }
}

pub(crate) fn facts(manifest: &Manifest) -> Vec<(String, String)> {
    let mut facts = vec![
        ("workload".to_owned(), manifest.workload.name.clone()),
        ("machine".to_owned(), manifest.machine.summary()),
    ];
    if !manifest.command_line.is_empty() {
        facts.push(("command line".to_owned(), quote(&manifest.command_line)));
    }
    for boot in &manifest.boots {
        let started = flyball_text::date::Utc::from_seconds(boot.started).minute();
        facts.push(("started".to_owned(), started));
        facts.push(("kernel".to_owned(), format!("Linux {}", boot.kernel)));
    }
    facts.push(("seed".to_owned(), manifest.schedule.seed.to_string()));
    facts
}
