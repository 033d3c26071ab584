//! Programs under several settings: how each differs from the first under each setting, and whether
//! that depends on the setting.

use std::collections::BTreeMap;

use super::{
    judge::{Correction, compare},
    quantity::Quantity,
    report::{ArmReport, Origin, Point, ProgramEffect, Summary, Verdict},
    values::step,
};
use crate::run_directory::Manifest;

/// Compares every program with the first under the same settings, and this difference with the one
/// under the first settings. One correction covers all of these questions.
pub(super) fn effects(manifest: &Manifest, arms: &[ArmReport]) -> Vec<ProgramEffect> {
    let settings = distinct(arms, |arm| arm.settings.clone());
    let programs = distinct(arms, |arm| arm.program.clone());
    if settings.len() < 2 || programs.len() < 2 || programs.contains(&None) {
        return Vec::new();
    }
    let cell = |program: usize, setting: usize| {
        arms.iter().position(|arm| {
            !arm.control && arm.program == programs[program] && arm.settings == settings[setting]
        })
    };
    // For each program: its effect under each setting, and how each effect differs from the first.
    let correction = Correction::for_questions(questions(arms));
    let judge = |pair: [&ArmReport; 2]| {
        compare(manifest, &pair.map(Clone::clone), Quantity::Performance, correction).into_iter().next()
    };
    let mut found = Vec::new();
    for program in 1..programs.len() {
        let first = cell(0, 0).zip(cell(program, 0));
        for setting in 0..settings.len() {
            let Some((base, arm)) = cell(0, setting).zip(cell(program, setting)) else { continue };
            let Some(mut effect) = judge([&arms[base], &arms[arm]]) else { continue };
            (effect.base, effect.arm, effect.steadiness) = (base, arm, None);
            // The ratio of the program to the first one, block by block, under both settings.
            let interaction = first.filter(|_| setting > 0).and_then(|(first_base, first_arm)| {
                let (there, steps) = ratio(&arms[first_base], &arms[first_arm])?;
                let (here, own) = ratio(&arms[base], &arms[arm])?;
                let mut found = judge([&there, &here])?;
                (found.base, found.arm, found.steadiness) = (base, arm, None);
                // Each ratio is off by a step at most, so rounding alone can make a difference.
                found.step = steps.zip(own).map(|(one, other)| (1.0 + one) * (1.0 + other) - 1.0);
                found.interval = found.with_steps(false);
                let is_open = found.interval.is_none_or(|interval| interval.contains(0.0));
                if found.verdict.is_difference() && is_open {
                    found.verdict = Verdict::NoDifferenceShown;
                }
                Some(found)
            });
            let under =
                if arms[arm].settings.is_empty() { "now".to_owned() } else { arms[arm].settings.join(" ") };
            found.push(ProgramEffect {
                program: without(&arms[arm].name, &under),
                base: without(&arms[base].name, &under),
                under,
                effect,
                interaction,
            });
        }
    }
    found
}

/// How many questions about programs under settings are asked of these arms.
pub(crate) fn questions(arms: &[ArmReport]) -> usize {
    let settings = settings(arms);
    distinct(arms, |arm| arm.program.clone()).len().saturating_sub(1) * (2 * settings).saturating_sub(1)
}

/// Under how many settings these arms ran.
pub(crate) fn settings(arms: &[ArmReport]) -> usize {
    distinct(arms, |arm| arm.settings.clone()).len()
}

fn distinct<T: PartialEq>(arms: &[ArmReport], of: impl Fn(&ArmReport) -> T) -> Vec<T> {
    let mut all = Vec::new();
    for value in arms.iter().filter(|arm| !arm.control).map(of) {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

/// The name of an arm without that of its settings.
fn without(name: &str, settings: &str) -> String {
    name.strip_suffix(settings).map_or(name, str::trim_end).to_owned()
}

/// Returns an arm whose values are the ratios of `other` to `base` in the same blocks, with the
/// step of both.
fn ratio(base: &ArmReport, other: &ArmReport) -> Option<(ArmReport, Option<f64>)> {
    let (from, to) = (base.summary(Quantity::Performance)?, other.summary(Quantity::Performance)?);
    let step = step(&[from, to]);
    let point = |point: &Point| {
        let same = |one: &&Point| (one.boot, one.block) == (point.boot, point.block);
        let base = from.points.iter().find(same)?;
        Some(Point { value: point.value / base.value, ..*point })
    };
    let points = to.points.iter().filter_map(point).collect();
    // The caller allows for the step.
    let found = Summary { points, origin: Origin::Exact, cases: BTreeMap::new(), ..to.clone() };
    Some((ArmReport { summaries: vec![found], ..other.clone() }, step))
}
