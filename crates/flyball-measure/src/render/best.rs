//! The last lines of a report: the arm that is best in each quantity that is judged, and how
//! certain that is.

use super::{
    arms::Arms,
    cases,
    parts::{extent, rounds_needed},
};
use crate::{
    analyse::{Comparison, EQUIVALENT, Quantity, Report, Summary, Verdict},
    metric::Better,
    numbers::{between, p_value},
};

/// What an arm is called that is best in `quantity`.
fn word(quantity: Quantity, report: &Report) -> String {
    let metric = &report.workload.metric;
    match quantity {
        Quantity::Energy => "lowest energy".to_owned(),
        Quantity::WorkEnergy => "lowest energy per work".to_owned(),
        Quantity::PerWatt => "best per watt".to_owned(),
        _ if metric.name == "wall time" || metric.unit.ends_with("/s") => "fastest".to_owned(),
        _ => format!("best {}", metric.name),
    }
}

/// A line for each arm that is best in something: in what, and which arm with its certainty.
pub(super) fn conclusion(report: &Report, arms: &Arms) -> Vec<(String, String)> {
    let mut lines: Vec<(Option<usize>, Vec<String>, Vec<String>)> = Vec::new();
    for quantity in Quantity::judged(&report.workload.metric) {
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
    let line = |(arm, words, mut how): (Option<usize>, Vec<String>, Vec<String>)| {
        how.dedup();
        let how = how.join("; ");
        (words.join(", "), arm.map_or(how.clone(), |arm| format!("{}; {how}", arms.name(arm))))
    };
    let cases = cases::summary(report).map(|words| ("cases".to_owned(), words));
    lines.into_iter().map(line).chain(cases).collect()
}

/// The arm with the best median of a quantity if it differs from any other, and what is known of
/// that. None if fewer than two arms have one.
fn best(report: &Report, arms: &Arms, quantity: Quantity) -> Option<(Option<usize>, String)> {
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
        return Some((None, none_best(report, quantity)));
    }
    let name = &metric.name;
    let against = match of(best) {
        Some(one) if differs(one.verdict) => {
            format!("{} than {}, {}", size(one, name), arms.label(0), p_value(one.p_corrected))
        }
        Some(one) => format!(
            "{name} {} against {}",
            one.interval.map_or_else(|| "-".to_owned(), between),
            arms.label(0)
        ),
        None => first_arm(report, arms, quantity, name),
    };
    Some((
        Some(best),
        if rivals.is_empty() {
            against
        } else {
            format!("{against}; not shown to differ from {}", rivals.join(", "))
        },
    ))
}

/// Why no arm is best.
fn none_best(report: &Report, quantity: Quantity) -> String {
    let mut of: Vec<_> = report.comparisons.iter().filter(|one| one.quantity == quantity).collect();
    let count = of.len();
    let few = of.iter().find(|one| one.verdict == Verdict::TooFewRounds);
    if let Some(few) = few {
        return format!("too few rounds to show any difference; run {}", rounds_needed(report, few));
    }
    of.retain(|one| one.verdict == Verdict::Equivalent);
    if count > 0 && of.len() == count {
        return format!("no arm; all are the same within ±{} %", 100.0 * EQUIVALENT);
    }
    "unclear; no difference between the arms is shown".to_owned()
}

fn differs(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Better | Verdict::Worse)
}

/// By how much two arms differ.
fn size(comparison: &Comparison, name: &str) -> String {
    comparison.interval.map_or_else(String::new, |interval| extent(interval, name))
}

/// How certain it is that the first arm, which the others are compared with, is the best one.
fn first_arm(report: &Report, arms: &Arms, quantity: Quantity, name: &str) -> String {
    let shown: Vec<_> =
        report.comparisons.iter().filter(|one| one.quantity == quantity && differs(one.verdict)).collect();
    match shown.as_slice() {
        [] => format!("{name}: the first arm"),
        [one] => {
            format!("{} in {}, {}", size(one, name), arms.label(one.arm), p_value(one.p_corrected))
        }
        // The least certain of them holds for all.
        all => {
            let p = p_value(all.iter().map(|one| one.p_corrected).fold(0.0, f64::max));
            format!("{name} is worse in {} other arms, each with {p} or less", all.len())
        }
    }
}
