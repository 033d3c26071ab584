//! What a reader should know beside the numbers, in words.

use std::collections::BTreeMap;

use super::{
    quantity::Quantity,
    report::{ArmReport, Grades, LeftOut, Report},
};
use crate::record::Manifest;

/// A sentence for each round that is left out; of many, how many and the worst of what is alike.
pub(super) fn left_out_notes(arm: &ArmReport) -> Vec<String> {
    if arm.left_out.len() <= 5 {
        return arm
            .left_out
            .iter()
            .map(|one| format!("{}: round {} is left out: {}.", arm.name, one.block + 1, one.why))
            .collect();
    }
    // Alike but for their numbers.
    let stem = |why: &str| why.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default().to_owned();
    let mut alike: BTreeMap<String, Vec<&LeftOut>> = BTreeMap::new();
    for one in &arm.left_out {
        alike.entry(stem(&one.why)).or_default().push(one);
    }
    alike
        .into_values()
        .map(|group| {
            let blocks: Vec<String> = group.iter().map(|one| (one.block + 1).to_string()).collect();
            let more = if blocks.len() > 12 { " and more" } else { "" };
            format!(
                "{}: {} rounds are left out, such as round {}: {} (rounds {}{more}).",
                arm.name,
                group.len(),
                group[0].block + 1,
                group[0].why,
                blocks[..blocks.len().min(12)].join(", ")
            )
        })
        .collect()
}

/// What a reader should know, as sentences.
pub(super) fn notes(manifest: &Manifest, report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if manifest.machine.simulated {
        notes.push("This machine exists only in software: every number here is simulated.".to_owned());
    }
    if let Some(what) = &manifest.machine.emulated {
        notes.push(format!(
            "The processors of this machine are emulated ({what}): times, speeds, energy and heat are a model's."
        ));
    }
    if let Some(quiet) = &manifest.quiet {
        let sum = |get: fn(&Grades) -> usize| -> usize {
            report.arms.iter().filter_map(|arm| arm.grades.as_ref()).map(get).sum()
        };
        let out: usize = report.arms.iter().map(|arm| arm.left_out.len()).sum();
        notes.push(format!(
            "The machine was kept quiet (level {}, CPUs {}: {}); conditions were good in {} rounds, fair in {}, bad in {}; \
             {out} rounds are left out of the verdict, whatever their values.",
            quiet.level,
            quiet.cpus,
            if quiet.settings.is_empty() { "nothing to set here".to_owned() } else { quiet.settings.join(" ") },
            sum(|grades| grades.good),
            sum(|grades| grades.fair),
            sum(|grades| grades.bad),
        ));
    }
    for arm in &report.arms {
        notes.extend(left_out_notes(arm));
        if arm.rounds == 0 && !arm.left_out.is_empty() {
            notes.push(format!("{}: no round is left, so there is no verdict.", arm.name));
        }
        if arm.throttled.is_some_and(|count| count > 0) {
            notes.push(format!(
                "{}: throttled in most of its rounds ({} events); they count, since its settings bring that about. \
                 A longer --cool-down or better cooling would say more.",
                arm.name,
                arm.throttled.unwrap_or(0)
            ));
        }
        if let Some(needed) = &arm.waits_for {
            notes
                .push(format!("{}: not run yet; boot with {needed}, then continue with --resume.", arm.name));
        }
        for summary in arm.summaries.iter().filter(|summary| Quantity::JUDGED.contains(&summary.quantity)) {
            if let Some(drift) = summary.drift {
                notes.push(format!(
                    "{}: {} drifts by {:+.1} % from first to last round (p = {}); pairs of one block are hardly \
                     touched by that, medians are.",
                    arm.name,
                    summary.metric.name,
                    drift.change * 100.0,
                    crate::render::probability(drift.p),
                ));
            }
            if !summary.outliers.is_empty() && summary.quantity == Quantity::Performance {
                let rounds: Vec<String> =
                    summary.outliers.iter().map(|block| (block + 1).to_string()).collect();
                notes.push(format!(
                    "{}: {} far from the others in round {}; kept, since ranks bear it.",
                    arm.name,
                    summary.metric.name,
                    rounds.join(", ")
                ));
            }
        }
        for note in &arm.notes {
            notes.push(format!("{}: {note}", arm.name));
        }
    }
    let in_boot = |boot: usize| -> Vec<&str> {
        report.arms.iter().filter(|arm| arm.boots.contains(&boot)).map(|arm| arm.name.as_str()).collect()
    };
    let used: Vec<usize> = (0..manifest.boots.len()).filter(|boot| !in_boot(*boot).is_empty()).collect();
    if used.len() > 1 {
        for boot in used {
            let data = &manifest.boots[boot];
            let driver = data.driver.as_deref().map(|driver| format!(", {driver}")).unwrap_or_default();
            notes.push(format!(
                "Boot {} (Linux {}{driver}): {}.",
                boot + 1,
                data.kernel,
                in_boot(boot).join(", ")
            ));
        }
        notes.push(
            "Arms of different boots were not run in turns: a difference between them holds what differs between \
             the boots too."
                .to_owned(),
        );
    }
    notes
}
