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
    numbers::p_value,
    schedule::Length,
};

/// Words for the arm that is best in `quantity`.
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

/// A line for each arm or group of arms that is best in something: the quantities, and the arm with
/// its certainty.
pub(super) fn conclusion(report: &Report, arms: &Arms) -> Vec<(String, String)> {
    let mut lines: Vec<(Vec<usize>, Vec<String>, Vec<String>)> = Vec::new();
    for &quantity in Quantity::judged(&report.workload.metric) {
        let Some((best, mut certainty)) = best(report, arms, quantity) else { continue };
        let mut word = word(quantity, report);
        let unjudged = unjudged(report, arms, quantity);
        if !unjudged.is_empty() {
            word += " of those with a verdict";
            certainty += &format!("; {} has none", unjudged.join(" and "));
        }
        // Without a best arm, only quantities with one answer share a line.
        let is_of =
            |arms: &[usize], how: &[String]| arms == best && (!best.is_empty() || how.contains(&certainty));
        match lines.iter_mut().find(|(arms, _, how)| is_of(arms, how)) {
            Some((_, words, how)) => {
                words.push(word);
                how.push(certainty);
            }
            None => lines.push((best, vec![word], vec![certainty])),
        }
    }
    let line = |(best, words, mut how): (Vec<usize>, Vec<String>, Vec<String>)| {
        how.dedup();
        let how = how.join("; ");
        let name = if let [one] = best[..] { format!("{}; ", arms.name(one)) } else { String::new() };
        (words.join(", "), name + &how)
    };
    let mut all: Vec<(String, String)> = lines.into_iter().map(line).collect();
    if let Some(words) = cases::summary(report) {
        // A mean hides worse cases, so they come before it.
        let is_worse = (1..report.arms.len()).any(|arm| cases::worse_in(report, arm).is_some());
        all.insert(if is_worse { 0 } else { all.len() }, ("cases".to_owned(), words));
    }
    all
}

/// The arms without a verdict in a quantity: values of zero have no ratios, or rounds have no
/// value. Any of them may be the best.
fn unjudged(report: &Report, arms: &Arms, quantity: Quantity) -> Vec<String> {
    let of_quantity = || report.comparisons.iter().filter(|one| one.quantity == quantity && !one.partial);
    let is_compared = |arm: usize| of_quantity().any(|one| one.arm == arm || one.base == arm);
    let is_open = |arm: &usize| {
        let own = &report.arms[*arm];
        let has_failed = own.rounds == 0 && !own.left_out.is_empty();
        !own.control && (own.summary(quantity).is_some() || has_failed) && !is_compared(*arm)
    };
    (0..report.arms.len()).filter(is_open).map(|arm| arms.label(arm)).collect()
}

/// The arms that may be the best in a quantity, fewer than all, and how certain that is. None if
/// nothing is compared.
fn best(report: &Report, arms: &Arms, quantity: Quantity) -> Option<(Vec<usize>, String)> {
    let metric = quantity.metric(&report.workload.metric);
    let compared: Vec<&Comparison> = report
        .comparisons
        .iter()
        .filter(|one| one.quantity == quantity && !one.partial && !report.arms[one.arm].control)
        .collect();
    let first = compared.first()?.base;
    // The interval of an arm's additional cost over the first arm. The intervals hold together, so
    // the best arm is one whose lower end is not above any upper end.
    let costs = |one: &Comparison| {
        let (low, high) =
            one.interval.map_or((f64::NEG_INFINITY, f64::INFINITY), |found| (found.low, found.high));
        let (low, high) = if metric.better == Better::Higher { (-high, -low) } else { (low, high) };
        match one.verdict {
            // Rounding lets the interval of a shown difference end at 0.
            Verdict::Worse => (low.max(f64::MIN_POSITIVE), high),
            Verdict::Better => (low, high.min(-f64::MIN_POSITIVE)),
            _ => (low.min(0.0), high.max(0.0)),
        }
    };
    let least = compared.iter().map(|one| costs(one).1).fold(0.0, f64::min);
    let may_be = compared.iter().filter(|one| costs(one).0 <= least).map(|one| one.arm);
    let best: Vec<usize> = (least >= 0.0).then_some(first).into_iter().chain(may_be).collect();
    if best.len() > compared.len() || report.withheld.contains(&quantity) {
        return Some((Vec::new(), none_best(report, &compared)));
    }
    let certainty = match best[..] {
        [arm] if arm == first => first_arm(report, arms, quantity, &metric.name),
        [arm] => {
            let one = compared.iter().find(|one| one.arm == arm)?;
            let p = p_value(one.p_corrected);
            format!("{} than {}, {p}", size(report, one, &metric.name), arms.label(first))
        }
        _ => one_of(report, arms, &best, &compared),
    };
    Some((best, certainty))
}

/// Describes several arms that may be the best. Each was compared with the first arm, and no
/// two others with each other.
fn one_of(report: &Report, arms: &Arms, best: &[usize], compared: &[&Comparison]) -> String {
    let names: Vec<String> = best.iter().map(|arm| arms.label(*arm)).collect();
    let own = |arm: &usize| compared.iter().find(|one| one.arm == *arm);
    let with_first: Vec<&&Comparison> = best.iter().filter_map(own).collect();
    if let ([first, other], [one]) = (&names[..], &with_first[..]) {
        let known = match one.verdict {
            Verdict::Equivalent => format!("the same within ±{} %", 100.0 * EQUIVALENT),
            Verdict::TooFewRounds => "too few rounds to show a difference".to_owned(),
            _ => "no difference seen".to_owned(),
        };
        return format!("{first} or {other} ({known}{})", typical(report, one));
    }
    let others: Vec<String> = with_first.iter().map(|one| arms.label(one.arm)).collect();
    if others.len() == names.len() {
        format!("one of {} (not compared with each other)", names.join(", "))
    } else {
        format!("one of {} ({} not compared with each other)", names.join(", "), others.join(", "))
    }
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

/// How many rounds a comparison needs, if as many do not count as before.
fn advice(report: &Report, few: &Comparison) -> String {
    let needed = rounds_needed(report, few);
    let lost = [few.base, few.arm].map(|arm| report.arms[arm].left_out.len()).into_iter().max().unwrap_or(0);
    let rounds = match lost {
        0 => needed,
        // As many are lost again.
        _ => (needed * (few.pairs + lost)).div_ceil(few.pairs.max(1)),
    };
    match report.schedule.length {
        _ if report.schedule.ended_by_time => format!("{needed} must count, which takes a longer --max-time"),
        Length::Until { .. } => format!("{needed} must count"),
        Length::Rounds(planned) if planned >= rounds => format!("{needed} must count"),
        _ if lost > 0 => format!("{needed} must count, and {lost} did not; run again with --rounds {rounds}"),
        _ => format!("run again with --rounds {rounds} or more"),
    }
}

/// By how much two arms differ.
fn size(report: &Report, comparison: &Comparison, name: &str) -> String {
    let extent = comparison.interval.map_or_else(String::new, |interval| extent(interval, name));
    extent + typical(report, comparison)
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
            format!("{} in {}, {}", size(report, one, name), arms.label(one.arm), p_value(one.p_corrected))
        }
        // The largest p-value holds for all.
        all => {
            let p = p_value(all.iter().map(|one| one.p_corrected).fold(0.0, f64::max));
            format!("{name} is worse in {} other arms, each with {p} or less", all.len())
        }
    }
}
