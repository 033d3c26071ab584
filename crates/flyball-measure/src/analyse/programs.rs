//! Notes for arms that run different programs: resources, exit codes, processes that were left
//! behind, and the first arm compared with itself.

use std::collections::BTreeSet;

use flyball_text::counted;

use super::{
    judge::{Correction, compare},
    notes::{CPU_TIME, runs_for_fixed_time},
    quantity::Quantity,
    report::{ArmReport, Comparison, Report, Summary, Verdict},
};
use crate::{
    arm::Arm,
    numbers::{between, number, p_value, percent},
    run_directory::{Manifest, Round},
};

/// Compares every arm with the first in the resources of its processes. One correction covers all
/// of them, because they are read together, to see where a difference comes from.
pub(super) fn resources(manifest: &Manifest, arms: &[ArmReport]) -> Vec<Comparison> {
    if arms.iter().all(|arm| arm.program.is_none()) {
        return Vec::new();
    }
    let is_used = |quantity: &Quantity| {
        arms[0].summary(*quantity).is_some() && !quantity.is_metric(&manifest.workload.metric)
    };
    let used: Vec<Quantity> = Quantity::RESOURCES.into_iter().filter(is_used).collect();
    let correction = Correction::for_questions(used.len() * (arms.len() - 1));
    used.into_iter().flat_map(|quantity| compare(manifest, arms, quantity, correction)).collect()
}

/// Withholds the verdicts on each quantity in which the first arm seems to differ from itself.
pub(super) fn withhold(report: &mut Report) -> Vec<String> {
    let mut notes = Vec::new();
    let is_control = |one: &Comparison| report.arms[one.arm].control;
    let claims = |one: &Comparison| one.verdict.is_difference();
    let all = report.comparisons.iter().chain(&report.resources);
    let found: Vec<Comparison> = all.filter(|one| is_control(one) && claims(one)).cloned().collect();
    for control in found {
        let name = control.quantity.metric(&report.workload.metric).name;
        notes.push(format!(
            "This machine calls {} different from itself in {name} ({}, {}): no verdict on {name} is given.",
            report.arms[control.base].name,
            percent(control.change),
            p_value(control.p_corrected)
        ));
        report.withheld.push(control.quantity);
        if control.quantity == Quantity::Performance {
            report.effects.clear();
        }
        let all = report.comparisons.iter_mut().chain(&mut report.resources);
        for comparison in all.filter(|one| one.quantity == control.quantity) {
            comparison.verdict = Verdict::NoDifferenceShown;
            comparison.steadiness = None;
        }
    }
    // The control keeps its steadiness, which is the reason.
    if report.unsteady_control().is_some() {
        for comparison in report.comparisons.iter_mut().filter(|one| !report.arms[one.arm].control) {
            comparison.steadiness = None;
        }
    }
    notes
}

/// Notes that CPU time differs although wall time, which waits and neighbours make noisier, is
/// unclear. It repeats verdicts of the resources, whose correction covers it.
pub(super) fn cpu_time(report: &Report) -> Option<String> {
    const MAX: usize = 4;
    let is_of_time = Quantity::Time.is_metric(&report.workload.metric)
        && !report.withheld.contains(&Quantity::Performance)
        && !runs_for_fixed_time(&report.workload, &report.arms);
    let has = |one: &Comparison, quantity, arm| (one.quantity, one.arm) == (quantity, arm);
    let is_unclear = |arm: usize| {
        let mut all = report.comparisons.iter().filter(|one| has(one, Quantity::Performance, arm));
        all.any(|one| one.verdict == Verdict::NoDifferenceShown)
    };
    let of_cpu = |one: &&Comparison| has(one, Quantity::CpuTime, one.arm) && one.verdict.is_difference();
    let found: Vec<String> = report
        .resources
        .iter()
        .filter(|one| is_of_time && of_cpu(one) && is_unclear(one.arm))
        .filter_map(|one| Some(format!("{} {}", report.arms[one.arm].name, between(one.interval?))))
        .collect();
    let more = if found.len() > MAX { " and others" } else { "" };
    (!found.is_empty()).then(|| {
        format!(
            "{CPU_TIME} {}, although wall time is unclear: {}{more}. --metric cpu-time decides about CPU time.",
            report.arms[0].name,
            found[..found.len().min(MAX)].join(", ")
        )
    })
}

/// Notes resources that are 0 in only some rounds, and so have no ratios: short CPU times, if the
/// kernel counts them in ticks.
pub(super) fn zeros(arms: &[ArmReport]) -> Option<String> {
    let of_arm = |arm: &ArmReport| {
        let zeros = |summary: &Summary| {
            let count = summary.points.iter().filter(|point| point.value == 0.0).count();
            let is_some = Quantity::RESOURCES.contains(&summary.quantity) && count > 0 && summary.mean > 0.0;
            is_some.then(|| {
                format!("{} of {} ({count} of {})", summary.metric.name, arm.name, summary.points.len())
            })
        };
        arm.summaries.iter().filter_map(zeros).collect::<Vec<_>>()
    };
    let found: Vec<String> = arms.iter().filter(|arm| arm.program.is_some()).flat_map(of_arm).collect();
    (!found.is_empty()).then(|| {
        format!(
            "0 in some rounds, and so without a verdict, however many rounds run: {}; only the means say something.",
            found.join(", ")
        )
    })
}

/// Notes about the arms' processes.
pub(super) fn notes(manifest: &Manifest, rounds: &[&Round]) -> Vec<String> {
    let mut notes = Vec::new();
    let own = |arm: usize| rounds.iter().filter(move |round| round.arm == arm);
    let mut exits: Vec<(String, BTreeSet<i32>)> = Vec::new();
    for (index, arm) in manifest.arms.iter().enumerate() {
        let codes: BTreeSet<i32> = own(index)
            .filter(|round| round.outcome.failure.is_none())
            .filter_map(|round| round.outcome.exit_code)
            .collect();
        if !codes.is_empty() {
            exits.push((arm.name.clone(), codes));
        }
        let left: Vec<&Vec<String>> =
            own(index).map(|round| &round.outcome.left_behind).filter(|left| !left.is_empty()).collect();
        if let Some(first) = left.first() {
            notes.push(format!(
                "{}: left processes behind in {} of {}, which were killed: {}.",
                arm.name,
                left.len(),
                counted(own(index).count(), "round"),
                first.join(", ")
            ));
        }
    }
    notes.extend(much_output(manifest, rounds));
    let is_small = |round: &&Round| round.outcome.usage.is_some_and(|usage| usage.peak_kib.is_none());
    let small: Vec<&str> = manifest
        .arms
        .iter()
        .enumerate()
        .filter(|(index, arm)| arm.program.is_some() && own(*index).any(is_small))
        .map(|(_, arm)| arm.name.as_str())
        .collect();
    if !small.is_empty() {
        notes.push(format!(
            "Peak memory of programs that use less than flyball itself is only known to be below that: {}.",
            small.join(", ")
        ));
    }
    if exits.windows(2).any(|pair| pair[0].1 != pair[1].1) {
        let list = |codes: &BTreeSet<i32>| codes.iter().map(i32::to_string).collect::<Vec<_>>().join(" and ");
        let words: Vec<String> =
            exits.iter().map(|(name, codes)| format!("{name} {}", list(codes))).collect();
        notes.push(format!(
            "Exit codes differ, so the programs may not do the same work: {}.",
            words.join(", ")
        ));
    }
    let is_uncounted = |round: &&&Round| {
        let has_counters = manifest.boots.get(round.boot).is_some_and(|boot| boot.meters.counters);
        has_counters && round.outcome.usage.is_some() && round.outcome.counts.is_none()
    };
    let has_programs = manifest.arms.iter().any(|arm| arm.program.is_some());
    let uncounted = rounds.iter().filter(is_uncounted).count();
    if has_programs && uncounted > 0 {
        notes.push(format!(
            "{uncounted} of {} rounds have no instructions, cycles and misses: something else used the processor's \
             counters for a part of the time (perf, a profiler, the NMI watchdog), and what was not counted could only \
             be estimated.",
            rounds.len()
        ));
    }
    if manifest.schedule.random_layout {
        notes.push(
            "Each round had an environment of a random size, up to 4 KiB (--fixed-layout keeps it), so that the result \
             does not depend on one alignment of the stack."
                .to_owned(),
        );
    }
    notes
}

/// Notes that flyball's own part of a program's time is noticeable, because it stores the program's
/// output in a file.
fn much_output(manifest: &Manifest, rounds: &[&Round]) -> Option<String> {
    // To write a megabyte into a file takes 1 to 5 ms.
    const MAX_BYTES_PER_SECOND: f64 = 2e6;
    let of_arm = |(index, arm): (usize, &Arm)| {
        let median = |of: fn(&Round) -> f64| {
            let own = rounds.iter().filter(|round| round.arm == index);
            crate::stats::median(&own.map(|round| of(round)).collect::<Vec<_>>())
        };
        let bytes = median(|round| round.outcome.printed_bytes as f64)?;
        let is_much = bytes > MAX_BYTES_PER_SECOND * median(|round| round.outcome.seconds)?;
        is_much.then(|| format!("{} ({} MB)", arm.name, number(bytes / 1e6)))
    };
    let found: Vec<String> = manifest.arms.iter().enumerate().filter_map(of_arm).collect();
    (!found.is_empty()).then(|| {
        format!(
            "Times include the writing of what these programs print into a file: {}. --shell sh './old > /dev/null' \
             avoids it; use '| cat > /dev/null' for programs that do less work if they print to /dev/null.",
            found.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_directory::tests::{boot, manifest, round};

    #[test]
    fn times_that_are_zero_in_some_rounds_are_named() {
        let mut manifest = manifest(&["a", "b"]);
        manifest.boots.push(boot(&[0, 1]));
        manifest.arms[1].program = Some(crate::program::Program::default());
        let rounds: Vec<Round> = (0..20)
            .map(|place| {
                let mut round = round(place / 2, place % 2, 1.0);
                let system_seconds = if place % 4 == 1 { 0.0 } else { 0.004 };
                round.outcome.usage = Some(flyball_host::Usage { system_seconds, ..Default::default() });
                round
            })
            .collect();
        let report = crate::analyse(&manifest, &rounds);
        let note = report.notes.iter().find(|note| note.contains("0 in some rounds")).expect("a note");
        assert!(note.contains("CPU time of b (5 of 10)"), "{note}");
    }

    #[test]
    fn a_difference_of_cpu_time_stands_next_to_unclear_wall_time() {
        let note = |times: f64, cpu: [f64; 3], metric: Option<&str>| {
            let mut manifest = manifest(&["a", "b", "a again"]);
            manifest.boots.push(boot(&[0, 1, 2]));
            manifest.arms[1].program = Some(crate::program::Program::default());
            manifest.arms[2].control = true;
            if let Some(name) = metric {
                manifest.workload.metric.name = name.to_owned();
            }
            let rounds: Vec<Round> = (0..90)
                .map(|place| {
                    let (block, arm) = (place / 3, place % 3);
                    let noise = |step: usize| 1.0 + (place * step % 31) as f64 * 0.01;
                    let mut round = round(block, arm, noise(11) * if arm == 1 { times } else { 1.0 });
                    let user_seconds = cpu[arm] * (1.0 + (place * 7 % 31) as f64 * 1e-4);
                    round.outcome.usage = Some(flyball_host::Usage { user_seconds, ..Default::default() });
                    round
                })
                .collect();
            let notes = crate::analyse(&manifest, &rounds).notes;
            notes.into_iter().find(|note| note.starts_with(CPU_TIME))
        };
        let found = note(1.0, [1.0, 1.05, 1.0], None).expect("a note");
        assert!(found.contains("unclear: b +4.") && found.contains("--metric cpu-time"), "{found}");
        assert_eq!(note(1.0, [1.0; 3], None), None, "equal");
        assert_eq!(note(2.0, [1.0, 1.05, 1.0], None), None, "wall time differs too");
        assert_eq!(note(1.0, [1.0, 1.05, 1.02], None), None, "a differs from itself");
        assert_eq!(note(1.0, [1.0, 1.05, 1.0], Some("score")), None, "not about time");
    }
}
