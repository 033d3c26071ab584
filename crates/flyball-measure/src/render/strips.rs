//! Every round on a terminal: a line for each arm, on one scale.

use std::fmt::Write;

use flyball_text::columns::{Painter, Style};

use super::{arms::Arms, parts::Screen};
use crate::{
    analyse::{Quantity, Report},
    numbers::number,
};

/// Width of the scale in a file or a pipe, and its maximum: wider lines do not show more.
const WIDEST: usize = 100;

/// A chart of performance, and one of energy if there is any.
pub fn strips<P: Painter + Copy>(report: &Report, screen: Screen<P>) -> String {
    let arms = Arms::new(report);
    [Quantity::Performance, Quantity::Energy]
        .into_iter()
        .filter_map(|quantity| strip(report, &arms, quantity, screen))
        .collect::<Vec<_>>()
        .join("\n")
}

fn strip<P: Painter + Copy>(
    report: &Report,
    arms: &Arms,
    quantity: Quantity,
    screen: Screen<P>,
) -> Option<String> {
    let labels: Vec<String> = (0..report.arms.len()).map(|arm| arms.label(arm)).collect();
    let first = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0) + 2;
    let room = screen.width.unwrap_or(WIDEST).min(WIDEST).saturating_sub(first).max(10);
    let values = |arm: usize| {
        let points = report.arms[arm].summary(quantity).map(|summary| summary.points.as_slice());
        points.unwrap_or_default().iter().map(|point| point.value).filter(|value| value.is_finite())
    };
    let all = (0..report.arms.len()).flat_map(values);
    let (low, high) =
        all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return None;
    }
    // Equal values have no range: they stand in the middle.
    let place = |value: f64| match (value - low) / (high - low) {
        share if share.is_finite() => (share * (room - 1) as f64).round() as usize,
        _ => room / 2,
    };
    let metric = quantity.metric(&report.workload.metric);
    let unit = if metric.unit.is_empty() { String::new() } else { format!(" in {}", metric.unit) };
    let title = format!("{}{unit}, every round; ◆: median", metric.name);
    let mut out = format!("{}\n", screen.painter.apply(Style::Heading, &title));
    for (arm, label) in labels.iter().enumerate() {
        let mut counts = vec![0_usize; room];
        for value in values(arm) {
            counts[place(value).min(room - 1)] += 1;
        }
        let dot = |count: &usize| match count {
            0 => ' ',
            1 => '·',
            2..=3 => '•',
            _ => '●',
        };
        let mut line: Vec<char> = counts.iter().map(dot).collect();
        if let Some(summary) = report.arms[arm].summary(quantity) {
            line[place(summary.median).min(room - 1)] = '◆';
        }
        let line: String = line.into_iter().collect();
        // Writing to a string does not fail. Blanks, not a width: one beyond 65,535 ends in a
        // panic, and the names of arms come from a manifest.
        let blanks = " ".repeat(first.saturating_sub(label.chars().count()));
        let _ = writeln!(out, "{label}{blanks}{}", line.trim_end());
    }
    let (low, high) = (number(low), number(high));
    let between = room.saturating_sub(low.chars().count() + high.chars().count());
    let _ = writeln!(out, "{}{low}{:between$}{high}", " ".repeat(first), "");
    Some(out)
}
