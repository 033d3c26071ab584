//! Published measurements of the simulated machine and its workload, next to what the comparison
//! found. The published numbers are the simulator's (`flyball sim check` compares its models with
//! them); the settings of an arm decide which of them it corresponds to.

use std::collections::BTreeMap;

use flyball_measure::{Event, Quantity, RunDirectory};
use flyball_sim::check::{Measured, Published, published};
use flyball_simhost::SimHost;

use crate::{
    exit::Failure,
    output::{Reporter, print},
};

/// Power of the whole machine by arm: the model's own, because a simulated machine has no meter of
/// it that programs could read.
#[derive(Debug)]
pub(super) struct WallPower {
    machine: SimHost,
    /// Joules and seconds.
    sums: BTreeMap<String, (f64, f64)>,
}

impl WallPower {
    pub(super) fn of(machine: SimHost) -> WallPower {
        WallPower { machine, sums: BTreeMap::new() }
    }

    /// Credits what a round has drawn to its arm.
    pub(super) fn note(&mut self, event: &Event<'_>) {
        // Taken at every event: what was drawn between rounds (boot, settings) is dropped and not
        // credited to the next one.
        let (joules, seconds) = self.machine.take_wall_energy();
        if let Event::Over { arm, .. } = event {
            let sum = self.sums.entry(arm.name.clone()).or_default();
            *sum = (sum.0 + joules, sum.1 + seconds);
        }
    }

    fn watts(&self, arm: &str) -> Option<f64> {
        self.sums.get(arm).filter(|(_, seconds)| *seconds > 0.0).map(|(joules, seconds)| joules / seconds)
    }
}

/// One published number and its counterpart.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
#[schemars(rename = "PublishedLine")]
pub(crate) struct Line {
    arm: String,
    #[serde(flatten)]
    published: Published,
    here: Option<f64>,
}

/// Prints the published numbers for this machine, workload and arms, and saves them in the run
/// directory.
pub(super) fn print_published(
    output: &Reporter,
    directory: &RunDirectory,
    wall_power: &WallPower,
) -> Result<(), Failure> {
    let name = wall_power.machine.with(|machine| machine.name().to_owned());
    let manifest = &directory.manifest;
    // The first word marks a model, the second is its name (workloads.rs).
    let known = published(&name, manifest.workload.argv.get(1).map_or("", String::as_str));
    if known.is_empty() {
        return Ok(());
    }
    let report = flyball_measure::analyse(&directory.manifest, &directory.rounds);
    let mut lines = Vec::new();
    for arm in &report.arms {
        for one in known.iter().filter(|one| one.is_of(&arm.settings)) {
            let here = match one.of {
                // Only of a rate: units per second.
                Measured::Latency => arm
                    .summary(Quantity::Performance)
                    .filter(|summary| summary.metric.unit.ends_with("/s") && summary.median > 0.0)
                    // Microseconds, the unit of the published latencies.
                    .map(|summary| 1e6 / summary.median),
                Measured::WallPower => wall_power.watts(&arm.name),
            };
            lines.push(Line { arm: arm.name.clone(), published: **one, here });
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    let text = serde_json::to_string_pretty(&lines).map_err(Failure::failed)?;
    directory.write("published.json", text.as_bytes())?;
    // JSON has room for one document, and that is the report.
    if !output.is_json() {
        print(render(&lines))?;
    }
    Ok(())
}

fn render(lines: &[Line]) -> String {
    let wide = lines.iter().map(|line| line.arm.chars().count()).max().unwrap_or(0);
    let mut out = format!(
        "\npublished for this machine ({}; flyball sim check {0}) and simulated\n",
        lines[0].published.source
    );
    for line in lines {
        let (what, unit) = match line.published.of {
            Measured::Latency => ("latency", "us"),
            Measured::WallPower => ("power of the whole machine", "W"),
        };
        let value = line.published.value;
        let here = line.here.map_or_else(
            || "not measured here".to_owned(),
            |here| format!("{here:>6.1} {unit} ({:+.1} %)", (here / value - 1.0) * 100.0),
        );
        out += &format!("  {:wide$}  {what:<26}  {value:>5} {unit:<2}  {here}\n", line.arm);
    }
    out
}
