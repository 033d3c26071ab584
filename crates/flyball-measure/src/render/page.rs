//! The report as charts, and as one HTML page.

use flyball_plot::{Axis, Block, BoxStat, Chart, Mark, Page, Series, Table};

use crate::numbers::{percent, probability};
use crate::{
    analyse::{ArmReport, Quantity, Report, Verdict},
    metric::Better,
    run_directory::{Manifest, Round},
};

/// A chart with the name of its file.
pub struct Named {
    /// `performance`, `energy`, `frequency-over-time`.
    pub name: &'static str,
    pub chart: Chart,
}

/// The charts of a report: performance, energy and performance per watt by arm with every round drawn, the changes
/// with their intervals, rounds in the order run, and frequency over time. Those without data are left out.
pub fn charts(report: &Report, manifest: &Manifest, rounds: &[Round]) -> Vec<Named> {
    let mut charts = Vec::new();
    for (name, quantity) in [
        ("performance", Quantity::Performance),
        ("energy", Quantity::Energy),
        ("performance-per-watt", Quantity::PerWatt),
    ] {
        charts.extend(by_arm(report, quantity).map(|chart| Named { name, chart }));
    }
    charts.extend(changes(report).map(|chart| Named { name: "change", chart }));
    charts.extend(in_order(report, rounds).map(|chart| Named { name: "rounds", chart }));
    charts.extend(
        frequency(report, manifest, rounds).map(|chart| Named { name: "frequency-over-time", chart }),
    );
    charts
}

fn axis(report: &Report, quantity: Quantity) -> Axis {
    let metric = quantity.metric(&report.workload.metric);
    Axis::new(metric.name, metric.unit)
}

fn better(report: &Report, quantity: Quantity) -> &'static str {
    match quantity.metric(&report.workload.metric).better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

fn by_arm(report: &Report, quantity: Quantity) -> Option<Chart> {
    let arms: Vec<(usize, &ArmReport)> =
        report.arms.iter().enumerate().filter(|(_, arm)| arm.summary(quantity).is_some()).collect();
    if arms.is_empty() {
        return None;
    }
    let names = arms.iter().map(|(_, arm)| arm.name.clone()).collect();
    let metric = quantity.metric(&report.workload.metric);
    let mut chart = Chart::new(capital(&metric.name), Axis::categories("", names), axis(report, quantity))
        .described(format!("every round a dot; box: quartiles and median; {}", better(report, quantity)));
    for (place, (index, arm)) in arms.into_iter().enumerate() {
        let Some(summary) = arm.summary(quantity) else { continue };
        let values: Vec<f64> = summary.points.iter().map(|point| point.value).collect();
        // Dots in the order of rounds, left to right, so that a trend shows.
        // 0.4 of the space between two arms: neighbouring arms' dots never meet, and two dots are not drawn at its ends.
        let step = 0.4 / values.len().max(2) as f64;
        let left = place as f64 - step * (values.len().saturating_sub(1)) as f64 / 2.0;
        let dots =
            values.iter().enumerate().map(|(round, value)| (left + step * round as f64, *value)).collect();
        let stat = BoxStat::of(place as f64, &values);
        chart = chart
            // Boxes first: dots are drawn over them.
            .with(Series::unnamed(Mark::Boxes(stat.into_iter().collect())).coloured(index))
            .with(Series::unnamed(Mark::Dots(dots)).coloured(index).faint(0.75));
    }
    Some(chart)
}

/// The change of each arm against the first, with its interval: a place for each arm, a colour for each quantity.
fn changes(report: &Report) -> Option<Chart> {
    let base = &report.arms.first()?.name;
    let mut compared: Vec<usize> = report.comparisons.iter().map(|comparison| comparison.arm).collect();
    compared.sort_unstable();
    compared.dedup();
    let names = compared.iter().map(|arm| report.arms[*arm].name.clone()).collect();
    let mut chart =
        Chart::new(format!("Change against {base}"), Axis::categories("", names), Axis::new("change", "%"))
            .described(format!(
                "{} % confidence; an interval that crosses 0 shows no difference",
                crate::numbers::level(report.schedule.confidence)
            ))
            // 7 is the palette's grey. Quantities take 3 and on below: the first colours stand for arms in the other charts.
            .with(Series::unnamed(Mark::Level(0.0)).coloured(7));
    let quantities: Vec<Quantity> = Quantity::JUDGED
        .into_iter()
        .filter(|quantity| report.comparisons.iter().any(|comparison| comparison.quantity == *quantity))
        .collect();
    for (number, quantity) in quantities.iter().enumerate() {
        // Side by side, 0.16 of an arm's place apart, centred on it.
        let offset = (number as f64 - (quantities.len() - 1) as f64 / 2.0) * 0.16;
        let intervals: Vec<(f64, f64, f64, f64)> = report
            .comparisons
            .iter()
            .filter(|comparison| comparison.quantity == *quantity)
            .filter_map(|comparison| {
                let interval = comparison.interval?;
                let place = compared.iter().position(|arm| *arm == comparison.arm)? as f64 + offset;
                Some((place, interval.low * 100.0, comparison.change * 100.0, interval.high * 100.0))
            })
            .collect();
        if !intervals.is_empty() {
            let name = quantity.metric(&report.workload.metric).name;
            chart = chart.with(Series::new(name, Mark::Intervals(intervals)).coloured(number + 3));
        }
    }
    (chart.series.len() > 1).then_some(chart)
}

/// Performance round by round, in the order run.
fn in_order(report: &Report, rounds: &[Round]) -> Option<Chart> {
    let mut chart =
        Chart::new("Rounds in the order run", Axis::new("round", ""), axis(report, Quantity::Performance))
            .described("warm-up left out");
    for (index, arm) in report.arms.iter().enumerate() {
        let dots: Vec<(f64, f64)> = rounds
            .iter()
            // Numbered before the arms are separated: the place of a dot is when it ran among all.
            .filter(|round| !round.warm_up)
            .enumerate()
            .filter(|(_, round)| round.arm == index)
            .filter_map(|(place, round)| Some((place as f64 + 1.0, round.outcome.value?)))
            .collect();
        if !dots.is_empty() {
            chart = chart.with(Series::new(arm.name.clone(), Mark::Dots(dots)).coloured(index));
        }
    }
    (!chart.series.is_empty()).then_some(chart)
}

/// The mean of the followed CPUs' frequencies over the time of a round, for the median round of each arm.
fn frequency(report: &Report, manifest: &Manifest, rounds: &[Round]) -> Option<Chart> {
    let mut chart = Chart::new(
        "Frequency over time",
        Axis::new("time since the round's start", "s"),
        Axis::new("frequency", "GHz").with_zero(),
    )
    .described("each arm's middle round; mean of the followed CPUs, by the kernel's files");
    for (index, arm) in report.arms.iter().enumerate() {
        let Some(summary) = arm.summary(Quantity::Performance) else { continue };
        let mut ordered = summary.points.clone();
        ordered.sort_by(|a, b| a.value.total_cmp(&b.value));
        // A round that was run, not the interpolated median: its readings are drawn.
        let Some(middle) = ordered.get(ordered.len() / 2) else { continue };
        let round = rounds.iter().find(|round| {
            !round.warm_up && round.arm == index && round.boot == middle.boot && round.block == middle.block
        });
        let Some(round) = round else { continue };
        // Readings beyond the list would be of no file: a run directory may come from another user.
        let followed = manifest.boots.get(round.boot).map_or(0, |boot| boot.meters.frequency.len());
        let mut at: std::collections::BTreeMap<u64, (f64, f64)> = std::collections::BTreeMap::new();
        for (seconds, khz) in round.readings.frequency.iter().take(followed).flatten() {
            // Readings of one tick have the same time.
            // The bits of positive floats sort like the numbers, and f64 is not Ord.
            let entry = at.entry(seconds.to_bits()).or_default();
            entry.0 += *khz as f64 / 1e6;
            entry.1 += 1.0;
        }
        let line: Vec<(f64, f64)> =
            at.into_iter().map(|(bits, (sum, count))| (f64::from_bits(bits), sum / count)).collect();
        if !line.is_empty() {
            chart = chart.with(Series::new(arm.name.clone(), Mark::Line(line)).coloured(index));
        }
    }
    (!chart.series.is_empty()).then_some(chart)
}

/// The whole report as one page.
pub fn page(report: &Report, manifest: &Manifest, rounds: &[Round]) -> Page {
    let mut page = Page::new(format!("flyball compare: {}", report.workload.name))
        .with(Block::Facts(facts(report, manifest)))
        .with(Block::Heading("Verdict".to_owned()));
    let verdicts = super::text::verdicts(report);
    page = page.with(if verdicts.is_empty() {
        Block::Paragraph("Nothing to compare yet.".to_owned())
    } else {
        Block::List(verdicts)
    });
    page = page
        .with(Block::Heading("Arms".to_owned()))
        .with(Block::Table(arms(report)))
        .with(Block::Paragraph(format!("In the table: {}.", super::text::brackets(report))));
    if let Some(why) = &report.no_energy {
        page = page.with(Block::Paragraph(format!("No energy: {why}.")));
    }
    if let Some(why) = &report.no_frequency {
        page = page.with(Block::Paragraph(format!("No frequency: {why}.")));
    }
    if !report.comparisons.is_empty() {
        page = page.with(Block::Heading("Comparisons".to_owned())).with(Block::Table(comparisons(report)));
    }
    if !report.notes.is_empty() {
        page = page.with(Block::Heading("Notes".to_owned())).with(Block::List(report.notes.clone()));
    }
    let charts: Vec<Chart> = charts(report, manifest, rounds).into_iter().map(|named| named.chart).collect();
    page.with(Block::Heading("Charts".to_owned())).with(Block::Charts(charts)).with(Block::Paragraph(
        format!("Made by {} from raw readings; 'flyball report' makes it again.", manifest.tool),
    ))
}

fn facts(report: &Report, manifest: &Manifest) -> Vec<(String, String)> {
    let fact = |word: &str, fact: String| (word.to_owned(), fact);
    let machine = &report.machine;
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
        fact("machine", format!("{}: {}, {} CPUs", machine.title(), machine.processor, machine.cpus)),
    ];
    for boot in &manifest.boots {
        let driver =
            boot.driver.as_deref().map_or_else(|| "no cpufreq driver".to_owned(), |d| format!("driver {d}"));
        facts.push(fact("kernel", format!("Linux {}, {driver}", boot.kernel)));
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
            "blocks of {} arms in random order, seed {}; {} warm-up; {} s cool-down",
            report.arms.len(),
            schedule.seed,
            schedule.warm_up,
            schedule.cool_down
        ),
    ));
    facts
}

fn arms(report: &Report) -> Table {
    let columns = super::parts::columns(report);
    // Settings that are the arm's name are not said twice.
    let named = report.arms.iter().all(|arm| arm.settings.is_empty() || arm.settings.join(" ") == arm.name);
    let mut header = vec!["arm".to_owned()];
    if !named {
        header.push("settings".to_owned());
    }
    header.push("rounds".to_owned());
    header.extend(columns.iter().map(|quantity| axis_title(report, *quantity)));
    let rows = report
        .arms
        .iter()
        .map(|arm| {
            let mut row = vec![arm.name.clone()];
            if !named {
                row.push(if arm.settings.is_empty() { "none".to_owned() } else { arm.settings.join(" ") });
            }
            row.push(super::parts::rounds(arm));
            row.extend(columns.iter().map(|quantity| super::text::cell(arm, *quantity)));
            row
        })
        .collect();
    Table { header, rows }
}

fn axis_title(report: &Report, quantity: Quantity) -> String {
    let metric = quantity.metric(&report.workload.metric);
    if metric.unit.is_empty() { metric.name } else { format!("{}, {}", metric.name, metric.unit) }
}

fn comparisons(report: &Report) -> Table {
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
                Verdict::NoDifferenceShown => "no difference shown",
                Verdict::TooFewRounds => "too few rounds",
            };
            vec![
                report.arms[comparison.arm].name.clone(),
                comparison.quantity.metric(&report.workload.metric).name,
                if comparison.paired {
                    comparison.pairs.to_string()
                } else {
                    format!("{}, unpaired", comparison.pairs)
                },
                percent(comparison.change),
                comparison.interval.map_or_else(|| "-".to_owned(), super::text::between),
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
            ]
        })
        .collect();
    Table { header: header.map(str::to_owned).to_vec(), rows }
}
