//! The last lines of a report: the arm that is best in each quantity that is judged, and how
//! certain that is.

use super::arms::Arms;
use crate::{
    analyse::{Quantity, Report, Summary, Verdict},
    metric::Better,
    numbers::{p_value, percent},
};

/// What an arm is called that is best in `quantity`.
fn word(quantity: Quantity, report: &Report) -> String {
    let metric = &report.workload.metric;
    match quantity {
        Quantity::Energy => "lowest energy".to_owned(),
        Quantity::PerWatt => "best per watt".to_owned(),
        _ if metric.name == "wall time" || metric.unit.ends_with("/s") => "fastest".to_owned(),
        _ => format!("best {}", metric.name),
    }
}

/// A line for each arm that is best in something: in what, and which arm with its certainty.
pub(super) fn conclusion(report: &Report, arms: &Arms) -> Vec<(String, String)> {
    let mut lines: Vec<(usize, Vec<String>, Vec<String>)> = Vec::new();
    for quantity in Quantity::JUDGED {
        let Some((best, certainty)) = best(report, arms, quantity) else { continue };
        let word = word(quantity, report);
        match lines.iter_mut().find(|(arm, ..)| *arm == best) {
            Some((_, words, how)) => {
                words.push(word);
                how.push(certainty);
            }
            None => lines.push((best, vec![word], vec![certainty])),
        }
    }
    let line = |(arm, words, mut how): (usize, Vec<String>, Vec<String>)| {
        how.dedup();
        (words.join(", "), format!("{}; {}", arms.name(arm), how.join("; ")))
    };
    lines.into_iter().map(line).collect()
}

/// The arm with the best median of a quantity, and what is known of that. None if fewer than two
/// arms have one.
fn best(report: &Report, arms: &Arms, quantity: Quantity) -> Option<(usize, String)> {
    let metric = quantity.metric(&report.workload.metric);
    let with: Vec<(usize, &Summary)> =
        report.arms.iter().enumerate().filter_map(|(arm, of)| Some((arm, of.summary(quantity)?))).collect();
    if with.len() < 2 {
        return None;
    }
    let better = |a: &Summary, b: &Summary| match metric.better {
        Better::Higher => a.median.total_cmp(&b.median),
        Better::Lower => b.median.total_cmp(&a.median),
    };
    let &(best, summary) = with.iter().max_by(|(_, a), (_, b)| better(a, b))?;
    let of = |arm: usize| {
        report.comparisons.iter().find(|one| one.quantity == quantity && one.arm == arm && one.base != arm)
    };
    // Only comparisons with the first arm are tested; of two others, intervals that overlap say
    // that either may be better.
    let overlaps = |other: &Summary| match (summary.interval, other.interval) {
        (Some(a), Some(b)) => a.low <= b.high && b.low <= a.high,
        _ => true,
    };
    let rivals: Vec<String> = with
        .iter()
        .filter(|(arm, _)| *arm != best)
        .filter(|(arm, other)| match of(if best == 0 { *arm } else { best }) {
            Some(one) if best == 0 || *arm == 0 => !matches!(one.verdict, Verdict::Better | Verdict::Worse),
            _ => overlaps(other),
        })
        .map(|(arm, _)| arms.label(*arm))
        .collect();
    if rivals.len() + 1 == with.len() {
        return Some((best, "best median, but not shown to differ from any other arm".to_owned()));
    }
    let name = &metric.name;
    let against = match of(best) {
        Some(one) => {
            let (change, p) = (percent(one.change), p_value(one.p_corrected));
            format!("{name} {change} against {}, {p}", arms.label(0))
        }
        None => first_arm(report, arms, quantity, name),
    };
    Some((
        best,
        if rivals.is_empty() {
            against
        } else {
            format!("{against}; not shown to differ from {}", rivals.join(", "))
        },
    ))
}

/// How certain it is that the first arm, which the others are compared with, is the best one.
fn first_arm(report: &Report, arms: &Arms, quantity: Quantity, name: &str) -> String {
    let differs = |verdict| matches!(verdict, Verdict::Better | Verdict::Worse);
    let shown: Vec<_> =
        report.comparisons.iter().filter(|one| one.quantity == quantity && differs(one.verdict)).collect();
    match shown.as_slice() {
        [] => format!("{name}: the first arm"),
        [one] => {
            let (change, p) = (percent(one.change), p_value(one.p_corrected));
            format!("{name} {change} in {}, {p}", arms.label(one.arm))
        }
        // The least certain of them holds for all.
        all => {
            let p = p_value(all.iter().map(|one| one.p_corrected).fold(0.0, f64::max));
            format!("{name} is worse in {} other arms, each with {p} or less", all.len())
        }
    }
}
