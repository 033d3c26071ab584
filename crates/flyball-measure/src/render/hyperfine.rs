//! The report in the layout of hyperfine's `--export-json`, for scripts that read that.

use std::collections::BTreeMap;

use crate::{
    analyse::{ArmReport, Quantity, Report},
    program::Program,
    run_directory::{Manifest, Round},
    stats,
};

/// The file that hyperfine writes, in seconds and bytes.
#[derive(Debug, serde::Serialize)]
struct Export {
    results: Vec<ExportedArm>,
}

#[derive(Debug, serde::Serialize)]
struct ExportedArm {
    command: String,
    mean: f64,
    stddev: Option<f64>,
    median: f64,
    user: Option<f64>,
    system: Option<f64>,
    min: f64,
    max: f64,
    times: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    memory_usage_byte: Vec<u64>,
    exit_codes: Vec<Option<i32>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    parameters: BTreeMap<String, String>,
}

/// The arms that have rounds, as JSON. Only rounds that count are in it.
pub fn hyperfine(report: &Report, manifest: &Manifest, rounds: &[Round]) -> String {
    let results = (0..report.arms.len()).filter_map(|arm| exported(report, manifest, rounds, arm)).collect();
    let mut text = serde_json::to_string_pretty(&Export { results }).unwrap_or_default();
    text.push('\n');
    text
}

fn exported(report: &Report, manifest: &Manifest, rounds: &[Round], arm: usize) -> Option<ExportedArm> {
    let ArmReport { name, program, .. } = &report.arms[arm];
    let time = report.arms[arm].summary(Quantity::Time)?;
    let times = time.values();
    let counted = |point: &crate::analyse::Point| {
        rounds.iter().find(|round| {
            !round.warm_up && (round.arm, round.boot, round.block) == (arm, point.boot, point.block)
        })
    };
    let own: Vec<&Round> = time.points.iter().filter_map(counted).collect();
    let mean = |quantity: Quantity| {
        stats::mean(&own.iter().filter_map(|round| quantity.value(round, manifest)).collect::<Vec<_>>())
    };
    let filled = program.as_ref().filter(|program| !program.parameters.is_empty());
    Some(ExportedArm {
        // Parameters are in a field of their own, as in hyperfine's.
        command: filled.map_or_else(|| name.clone(), Program::title),
        mean: time.mean,
        stddev: time.deviation,
        median: time.median,
        user: mean(Quantity::User),
        system: mean(Quantity::System),
        min: times.iter().copied().min_by(f64::total_cmp)?,
        max: times.iter().copied().max_by(f64::total_cmp)?,
        memory_usage_byte: own
            .iter()
            .filter_map(|round| Some(round.outcome.usage?.peak_kib? * 1024))
            .collect(),
        exit_codes: own.iter().map(|round| round.outcome.exit_code).collect(),
        parameters: program.as_ref().map(|program| program.parameters.clone()).unwrap_or_default(),
        times,
    })
}
