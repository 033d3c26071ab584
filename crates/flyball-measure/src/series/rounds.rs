//! The rounds of a run directory as series.

use super::Series;
use crate::{
    Round, RunDirectory,
    shifts::{Column, Values},
};

/// The rounds of each arm in the order in which they ran.
pub fn read_rounds(directory: &RunDirectory) -> Vec<Series> {
    let manifest = &directory.manifest;
    let mut all = Vec::new();
    for (index, arm) in manifest.arms.iter().enumerate() {
        // A failed round has no value; the others still form a series.
        let (rounds, values): (Vec<_>, Vec<f64>) = directory
            .rounds
            .iter()
            // Warm-up differs from the rest by design and would be found as a shift.
            .filter(|round| round.arm == index && !round.warm_up && round.outcome.failure.is_none())
            .filter_map(|round| Some((round, round.outcome.value?)))
            .unzip();
        if values.is_empty() {
            continue;
        }
        let numbers = |name: &str, unit: &str, value: &dyn Fn(&Round) -> Option<f64>| Column {
            name: name.to_owned(),
            unit: unit.to_owned(),
            values: Values::Numbers(rounds.iter().map(|round| value(round)).collect()),
        };
        let columns = vec![
            numbers("frequency", "MHz", &|round| round.readings.mean_khz().map(|khz| khz / 1000.0)),
            numbers("temperature", "C", &|round| round.readings.peak_celsius()),
            numbers("throttled", "", &|round| round.readings.throttled.map(|count| count as f64)),
            numbers("load", "", &|round| round.moment.load_before),
            numbers("uptime", "s", &|round| round.moment.uptime_s),
            numbers("context switches", "", &|round| round.readings.switches.map(|count| count as f64)),
        ];
        let values: Vec<Option<f64>> = values.into_iter().map(Some).collect();
        all.push(Series::new(arm.name.clone(), manifest.workload.metric.unit.clone(), &values, columns));
    }
    all
}
