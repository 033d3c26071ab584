//! The last lines of a report: the arm that is best in each quantity that is judged, and how
//! certain that is.

use super::{
    arms::Arms,
    cases,
    parts::{extent, rounds_needed, typical},
};
use crate::{
    analyse::{Comparison, EQUIVALENT, Quantity, Report, Verdict},
    metric::Better,
    numbers::{between, p_value},
    schedule::Length,
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
    for &quantity in Quantity::judged(&report.workload.metric) {
        let Some((best, certainty)) = best(report, arms, quantity) else { continue };
        let word = word(quantity, report);
        // Without a best arm, only quantities with one answer share a line.
        let is_of =
            |arm: Option<usize>, how: &[String]| arm == best && (best.is_some() || how.contains(&certainty));
        match lines.iter_mut().find(|(arm, _, how)| is_of(*arm, how)) {
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

/// The arm that is best in a quantity, by its pairs with the first, if it differs from any other,
/// and what is known of that. None if nothing is compared.
fn best(report: &Report, arms: &Arms, quantity: Quantity) -> Option<(Option<usize>, String)> {
    let metric = quantity.metric(&report.workload.metric);
    let compared: Vec<&Comparison> = report
        .comparisons
        .iter()
        .filter(|one| one.quantity == quantity && !report.arms[one.arm].control)
        .collect();
    let first = compared.first()?.base;
    let cost = |one: &Comparison| if metric.better == Better::Higher { -one.change } else { one.change };
    let ahead = compared.iter().copied().filter(|one| cost(one) < 0.0);
    let best = ahead.min_by(|a, b| cost(a).total_cmp(&cost(b)));
    // The intervals against the first arm hold together. So two arms differ if theirs have nothing
    // in common.
    let overlaps = |a: &Comparison, b: &Comparison| match (a.interval, b.interval) {
        (Some(a), Some(b)) => a.overlaps(b) || report.withheld.contains(&quantity),
        _ => true,
    };
    let rivals: Vec<usize> = match best {
        None => compared.iter().filter(|one| !one.verdict.is_difference()).map(|one| one.arm).collect(),
        Some(best) => {
            let others = compared.iter().filter(|one| one.arm != best.arm && overlaps(one, best));
            (!best.verdict.is_difference())
                .then_some(first)
                .into_iter()
                .chain(others.map(|one| one.arm))
                .collect()
        }
    };
    if rivals.len() == compared.len() {
        return Some((None, none_best(report, &compared)));
    }
    let name = &metric.name;
    let against = match best {
        Some(one) if one.verdict.is_difference() => {
            format!("{} than {}, {}", size(one, name), arms.label(first), p_value(one.p_corrected))
        }
        Some(one) => {
            let interval = one.interval.map_or_else(|| "-".to_owned(), between);
            format!("{name} {interval} against {}", arms.label(first))
        }
        None => first_arm(report, arms, quantity, name),
    };
    let rivals: Vec<String> = rivals.into_iter().map(|arm| arms.label(arm)).collect();
    let best = best.map_or(first, |one| one.arm);
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
fn none_best(report: &Report, compared: &[&Comparison]) -> String {
    if let Some(few) = compared.iter().find(|one| one.verdict == Verdict::TooFewRounds) {
        return format!("too few rounds to show any difference; {}", advice(report, few));
    }
    if compared.iter().all(|one| one.verdict == Verdict::Equivalent) {
        let typical = compared.iter().map(|one| typical(report, one)).max().unwrap_or_default();
        let first = &report.arms[compared[0].base].name;
        return format!("no arm; all are within ±{} % of {first}{typical}", 100.0 * EQUIVALENT);
    }
    if compared.iter().any(|one| report.withheld.contains(&one.quantity)) {
        return "no verdict; the first arm differs from itself (--aa)".to_owned();
    }
    "unclear; no arm is shown to be best".to_owned()
}

/// How many rounds a comparison needs in which so many did not count.
fn advice(report: &Report, few: &Comparison) -> String {
    let needed = rounds_needed(report, few);
    let lost = [few.base, few.arm].map(|arm| report.arms[arm].left_out.len()).into_iter().max().unwrap_or(0);
    let rounds = match lost {
        0 => needed,
        // As many are lost again.
        _ => (needed * (few.pairs + lost)).div_ceil(few.pairs.max(1)),
    };
    match report.schedule.length {
        Length::Rounds(planned) if planned >= rounds => format!("{needed} must count"),
        _ if lost > 0 => format!("{needed} must count, and {lost} did not; run again with --rounds {rounds}"),
        _ => format!("run again with --rounds {rounds}"),
    }
}

/// By how much two arms differ.
fn size(comparison: &Comparison, name: &str) -> String {
    comparison.interval.map_or_else(String::new, |interval| extent(interval, name))
}

/// How certain it is that the first arm, which the others are compared with, is the best one.
fn first_arm(report: &Report, arms: &Arms, quantity: Quantity, name: &str) -> String {
    let shown: Vec<_> = report
        .comparisons
        .iter()
        .filter(|one| one.quantity == quantity && one.verdict.is_difference())
        .collect();
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
