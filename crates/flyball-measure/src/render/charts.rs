//! The report as charts.

use flyball_plot::{Axis, BoxStat, Chart, Cross, Mark, Series};
use flyball_text::columns::one_line;

use crate::{
    analyse::{ArmReport, Quantity, Report},
    metric::Better,
    run_directory::{Manifest, Round},
};

/// A chart with the name of its file.
pub struct NamedChart {
    /// `performance`, `energy`, `frequency-over-time`.
    pub name: &'static str,
    pub chart: Chart,
}

/// The charts of a report: performance against energy, the changes with their intervals,
/// performance, energy and performance per watt by arm with every round drawn, rounds in the order
/// run, and frequency over time. Those without data are left out.
pub fn charts(report: &Report, manifest: &Manifest, rounds: &[Round]) -> Vec<NamedChart> {
    let full: Vec<String> = report.arms.iter().map(|arm| one_line(arm.name.clone())).collect();
    drawn(report, manifest, rounds, &full)
}

/// The same charts; `legend` has the names of the arms for their legends.
pub(super) fn drawn(
    report: &Report,
    manifest: &Manifest,
    rounds: &[Round],
    legend: &[String],
) -> Vec<NamedChart> {
    let mut charts = Vec::new();
    charts.extend(against_energy(report, legend).map(|chart| NamedChart { name: "against-energy", chart }));
    charts.extend(changes(report, legend).map(|chart| NamedChart { name: "change", chart }));
    for (name, quantity) in [
        ("performance", Quantity::Performance),
        ("energy", Quantity::Energy),
        ("performance-per-watt", Quantity::PerWatt),
    ] {
        charts.extend(by_arm(report, quantity).map(|chart| NamedChart { name, chart }));
    }
    charts.extend(in_order(report, rounds, legend).map(|chart| NamedChart { name: "rounds", chart }));
    charts.extend(
        frequency(report, manifest, rounds, legend)
            .map(|chart| NamedChart { name: "frequency-over-time", chart }),
    );
    charts
}

fn axis(report: &Report, quantity: Quantity) -> Axis {
    let metric = quantity.metric(&report.workload.metric);
    Axis::new(metric.name, metric.unit)
}

pub(super) fn better(report: &Report, quantity: Quantity) -> &'static str {
    match quantity.metric(&report.workload.metric).better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    }
}

/// The numbers of arms, from 1, as labels that always fit.
fn numbers(arms: impl IntoIterator<Item = usize>) -> Vec<String> {
    arms.into_iter().map(|arm| (arm + 1).to_string()).collect()
}

/// Performance against energy: a point for each arm with both intervals, and the arms that no other
/// beats in both.
fn against_energy(report: &Report, legend: &[String]) -> Option<Chart> {
    let of = |arm: &ArmReport, quantity| {
        let summary = arm.summary(quantity)?;
        let (low, high) = summary.interval.map_or((summary.median, summary.median), |i| (i.low, i.high));
        Some((low, summary.median, high))
    };
    // Labels of up to six characters have room next to every point.
    let label = |arm: usize| {
        let word = &legend[arm];
        if word.chars().count() <= 6 { word.clone() } else { (arm + 1).to_string() }
    };
    let crosses: Vec<(usize, Cross)> = report
        .arms
        .iter()
        .enumerate()
        .filter_map(|(at, arm)| {
            let (x, y) = (of(arm, Quantity::Energy)?, of(arm, Quantity::Performance)?);
            Some((at, Cross { x, y, label: label(at) }))
        })
        .collect();
    if crosses.len() < 2 {
        return None;
    }
    let better = report.workload.metric.better;
    let towards = match better {
        Better::Higher => "up and left",
        Better::Lower => "down and left",
    };
    let front = front(crosses.iter().map(|(_, cross)| (cross.x.1, cross.y.1)).collect(), better);
    let mut chart = Chart::new(
        format!("{} against energy", capital(&report.workload.metric.name)),
        axis(report, Quantity::Energy),
        axis(report, Quantity::Performance),
    )
    .described(format!(
        "medians with {} % intervals; better is {towards}",
        crate::numbers::level(report.schedule.confidence)
    ))
    // 7 is the palette's grey.
    .with(Series::new("not beaten in both (Pareto front)", Mark::Line(front)).coloured(7));
    for (arm, cross) in crosses {
        let name = if cross.label == legend[arm] {
            String::new()
        } else {
            format!("{}  {}", cross.label, legend[arm])
        };
        chart = chart.with(Series::new(name, Mark::Cross(cross)).coloured(arm));
    }
    Some(chart)
}

/// The points that no other beats in both directions, sorted by energy (less is better).
fn front(mut points: Vec<(f64, f64)>, better: Better) -> Vec<(f64, f64)> {
    let gain = |y: f64| if better == Better::Higher { y } else { -y };
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(gain(b.1).total_cmp(&gain(a.1))));
    let mut best = f64::NEG_INFINITY;
    points.retain(|(_, y)| {
        let beats = gain(*y) > best;
        best = best.max(gain(*y));
        beats
    });
    points
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
    let first = report.arms.first().and_then(|arm| arm.summary(quantity)).map(|summary| summary.median);
    // 0.000275 1/J is hard to read. A percentage of the first arm's value is not.
    let (scale, axis) = match first.filter(|first| metric.unit.starts_with("1/") && *first > 0.0) {
        Some(first) => (100.0 / first, Axis::new("per watt", "% of the first arm's")),
        None => (1.0, axis(report, quantity)),
    };
    let short = numbers(arms.iter().map(|(arm, _)| *arm));
    let mut chart = Chart::new(capital(&metric.name), Axis::categories("", names).in_short(short), axis)
        .described(format!("every round a dot; box: quartiles and median; {}", better(report, quantity)));
    for (place, (index, arm)) in arms.into_iter().enumerate() {
        let Some(summary) = arm.summary(quantity) else { continue };
        let values: Vec<f64> = summary.points.iter().map(|point| point.value * scale).collect();
        // Dots in the order of rounds, left to right, so that a trend shows. They take 0.4 of the
        // space between two arms, so that neighbouring arms' dots never meet.
        let step = 0.4 / values.len().max(2) as f64;
        let left = place as f64 - step * (values.len().saturating_sub(1)) as f64 / 2.0;
        let dots =
            values.iter().enumerate().map(|(round, value)| (left + step * round as f64, *value)).collect();
        let stat = BoxStat::new(place as f64, &values);
        chart = chart
            // Boxes first: dots are drawn over them.
            .with(Series::unnamed(Mark::Boxes(stat.into_iter().collect())).coloured(index))
            .with(Series::unnamed(Mark::Dots(dots)).coloured(index).faint(0.75));
    }
    Some(chart)
}

/// The change of each arm against the first, with its interval: a place for each arm, a colour for
/// each quantity.
fn changes(report: &Report, legend: &[String]) -> Option<Chart> {
    let base = legend.first()?;
    let mut compared: Vec<usize> = report.comparisons.iter().map(|comparison| comparison.arm).collect();
    compared.sort_unstable();
    compared.dedup();
    let names = compared.iter().map(|arm| report.arms[*arm].name.clone()).collect();
    let places = Axis::categories("", names).in_short(numbers(compared.iter().copied()));
    let mut chart = Chart::new(format!("Change against {base}"), places, Axis::new("change", "%"))
        .described(format!(
            "{}; an interval with 0 in it does not show a difference",
            super::parts::confidence(report)
        ))
        // 7 is the palette's grey. Quantities take colours from 3 on: the first colours stand for
        // arms in the other charts.
        .with(Series::unnamed(Mark::Level(0.0)).coloured(7));
    let quantities: Vec<Quantity> = Quantity::judged(&report.workload.metric)
        .iter()
        .copied()
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
fn in_order(report: &Report, rounds: &[Round], legend: &[String]) -> Option<Chart> {
    let mut chart =
        Chart::new("Rounds in the order run", Axis::new("round", ""), axis(report, Quantity::Performance))
            .described("warm-up left out");
    for index in 0..report.arms.len() {
        let dots: Vec<(f64, f64)> = rounds
            .iter()
            // Numbered before the arms are separated: a dot's position is its number among all
            // rounds.
            .filter(|round| !round.warm_up)
            .enumerate()
            .filter(|(_, round)| round.arm == index)
            .filter_map(|(place, round)| Some((place as f64 + 1.0, round.outcome.value?)))
            .collect();
        if !dots.is_empty() {
            chart = chart.with(Series::new(legend[index].clone(), Mark::Dots(dots)).coloured(index));
        }
    }
    (!chart.series.is_empty()).then_some(chart)
}

/// The mean of the followed CPUs' frequencies over the time of a round, for the median round of
/// each arm.
fn frequency(report: &Report, manifest: &Manifest, rounds: &[Round], legend: &[String]) -> Option<Chart> {
    let mut chart = Chart::new(
        "Frequency over time",
        Axis::new("time since the round's start", "s"),
        Axis::new("mean of the files, idle CPUs included", "GHz").with_zero(),
    )
    .described(
        "each arm's middle round; a moving mean that is lower than the table's frequency, which counts running CPUs only",
    );
    let mut lines = Vec::new();
    for (index, arm) in report.arms.iter().enumerate() {
        let Some(summary) = arm.summary(Quantity::Performance) else { continue };
        let mut ordered = summary.points.clone();
        ordered.sort_by(|a, b| a.value.total_cmp(&b.value));
        // An actual round, not the interpolated median: its readings are drawn.
        let Some(middle) = ordered.get(ordered.len() / 2) else { continue };
        let round = rounds.iter().find(|round| {
            !round.warm_up && round.arm == index && round.boot == middle.boot && round.block == middle.block
        });
        let Some(round) = round else { continue };
        // Further readings would belong to no file: a run directory may come from another user.
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
            lines.push((index, line));
        }
    }
    let longest = lines.iter().filter_map(|(_, line)| line.last()).map(|(at, _)| *at).fold(0.0, f64::max);
    for (index, line) in lines {
        let line = smoothed(&line, longest / FREQUENCY_BINS);
        chart = chart.with(Series::new(legend[index].clone(), Mark::Line(line)).coloured(index));
    }
    (!chart.series.is_empty()).then_some(chart)
}

/// Maximum number of points of a line. If a governor's jumps between two frequencies were drawn one
/// by one, every line would be a band that hides the others.
const FREQUENCY_BINS: f64 = 100.0;

/// The means of a line over bins of this width.
fn smoothed(line: &[(f64, f64)], width: f64) -> Vec<(f64, f64)> {
    let bin = |at: f64| (at / width) as u64;
    let mean = |points: &[(f64, f64)]| {
        let count = points.len() as f64;
        let sum = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / count, sum.1 / count)
    };
    line.chunk_by(|a, b| bin(a.0) == bin(b.0)).map(mean).collect()
}
