//! Summarizes programs under several settings: a sentence per program.

use super::parts::{difference, typical};
use crate::{
    analyse::{Comparison, ProgramEffect, Report, Verdict, questions, settings, test},
    numbers::{between, p_value},
    stats,
};

/// Whether each program differs from the first, and whether that depends on the settings.
pub(super) fn effects(report: &Report) -> Vec<String> {
    let mut programs: Vec<&str> = Vec::new();
    for effect in &report.effects {
        if !programs.contains(&effect.program.as_str()) {
            programs.push(&effect.program);
        }
    }
    let own = |program: &str| report.effects.iter().filter(|one| one.program == program).collect::<Vec<_>>();
    programs.into_iter().filter_map(|program| sentence(report, &own(program))).collect()
}

fn sentence(report: &Report, all: &[&ProgramEffect]) -> Option<String> {
    let first = all.first()?;
    let (program, base) = (&first.program, &first.base);
    let size = |one: &ProgramEffect| one.effect.interval.map_or_else(|| "no interval".to_owned(), between);
    let cells: Vec<String> = all.iter().map(|one| format!("{} under {}", size(one), one.under)).collect();
    let cells = format!("{} {}", report.workload.metric.name, cells.join(", "));
    let typical = all.iter().map(|one| typical(report, &one.effect)).max().unwrap_or_default();
    let tests: Vec<&Comparison> = all.iter().filter_map(|one| one.interaction.as_ref()).collect();
    let Some(p) = tests.iter().filter(|one| differs(one)).map(|one| one.p_corrected).reduce(f64::min) else {
        if let Some(why) = not_tested(report, all, &tests) {
            return Some(format!(
                "{program} against {base}: whether the difference depends on the settings is not tested: {why}: {cells}."
            ));
        }
        let widths: Option<Vec<f64>> =
            tests.iter().map(|one| one.interval.map(|found| 100.0 * found.half_width())).collect();
        let widest = widths.and_then(|all| all.into_iter().reduce(f64::max));
        let known =
            widest.map_or_else(String::new, |widest| format!(" (that is known to \u{b1}{widest:.1} %)"));
        return Some(format!(
            "{program} against {base}: no sign that the difference depends on the settings{typical}{known}: {cells}."
        ));
    };
    let with = |verdict: Verdict| {
        let found: Vec<&ProgramEffect> =
            all.iter().copied().filter(|one| one.effect.verdict == verdict).collect();
        let names: Vec<&str> = found.iter().map(|one| one.under.as_str()).collect();
        Some((difference(report, &found.first()?.effect), names.join(" and under "), names.len()))
    };
    let words = match (with(Verdict::Better), with(Verdict::Worse)) {
        (Some((better, here, _)), Some((worse, there, _))) => {
            format!("is {better} than {base} under {here}, and {worse} under {there}")
        }
        (Some((word, _, count)), None) | (None, Some((word, _, count)))
            if count == settings(&report.arms) =>
        {
            format!("is {word} than {base} everywhere, but not equally")
        }
        (Some((word, here, _)), None) | (None, Some((word, here, _))) => {
            format!("is {word} than {base} under {here}, which is not shown elsewhere")
        }
        (None, None) => format!("differs from {base} by an amount that depends on the settings"),
    };
    let odd = if typical.is_empty() { "" } else { ", which does not count how far odd rounds lie" };
    Some(format!("{program} {words}{odd} ({}): {cells}.", p_value(p)))
}

/// Why rounds like these cannot show, under at least one setting, that a difference depends on the
/// settings.
fn not_tested(report: &Report, all: &[&ProgramEffect], tests: &[&Comparison]) -> Option<String> {
    if let Some(few) = tests.iter().find(|one| one.verdict == Verdict::TooFewRounds) {
        let alpha = (1.0 - report.schedule.confidence) / questions(&report.arms).max(1) as f64;
        let needed = stats::rounds_needed(alpha, test(few.paired, &report.schedule));
        return Some(format!("that needs {needed} rounds"));
    }
    let apart: Vec<&str> =
        all.iter().filter(|one| !one.effect.paired).map(|one| one.under.as_str()).collect();
    if !apart.is_empty() {
        return Some(format!("no block has both programs under {}", apart.join(" and under ")));
    }
    if all.len() < settings(&report.arms) || tests.len() + 1 < all.len() {
        return Some("a setting has no verdict".to_owned());
    }
    let is_unknown = tests.iter().any(|one| one.interval.is_none());
    is_unknown.then(|| "the step in which values come is not known".to_owned())
}

fn differs(comparison: &Comparison) -> bool {
    matches!(comparison.verdict, Verdict::Better | Verdict::Worse)
}
