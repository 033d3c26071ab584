//! What documents published of the simulated machine and its workload, beside what the comparison found: the numbers are
//! the simulator's (`flyball sim check` holds its models against them), the settings decide which arm is which row.

use std::{collections::BTreeMap, time::Duration};

use flyball_measure::{Quantity, RunDirectory};
use flyball_sim::check::{Of, Published, published};
use flyball_simhost::SimHost;

use crate::{
    exit::Failure,
    output::{Reporter, print},
};

/// Power at the wall, by arm: the model's own, for simulated machines have no meter there that programs could read.
#[derive(Debug, Default)]
pub(super) struct Walls {
    arm: String,
    /// Joules and seconds.
    sums: BTreeMap<String, (f64, f64)>,
}

impl Walls {
    /// The rounds that follow are of this arm.
    pub(super) fn now(&mut self, arm: &str) {
        arm.clone_into(&mut self.arm);
    }

    /// So much power for so long.
    pub(super) fn add(&mut self, watts: f64, time: Duration) {
        let seconds = time.as_secs_f64();
        let (joules, all) = self.sums.entry(self.arm.clone()).or_default();
        *joules += watts * seconds;
        *all += seconds;
    }

    fn watts(&self, arm: &str) -> Option<f64> {
        self.sums.get(arm).filter(|(_, seconds)| *seconds > 0.0).map(|(joules, seconds)| joules / seconds)
    }
}

/// One published number and its counterpart.
#[derive(Debug, serde::Serialize)]
struct Line {
    arm: String,
    #[serde(flatten)]
    published: Published,
    here: Option<f64>,
}

/// Prints what is published of this machine, workload and these arms, and keeps it in the run directory.
pub(super) fn tell(
    output: &Reporter,
    machine: &SimHost,
    directory: &RunDirectory,
    walls: &Walls,
) -> Result<(), Failure> {
    let name = machine.with(|machine| machine.name().to_owned());
    let manifest = &directory.manifest;
    let known = published(&name, manifest.workload.argv.get(1).map_or("", String::as_str));
    if known.is_empty() {
        return Ok(());
    }
    let report = flyball_measure::analyse(&directory.manifest, &directory.rounds);
    let mut lines = Vec::new();
    for arm in &report.arms {
        for one in known.iter().filter(|one| one.is_of(&arm.settings)) {
            let here = match one.of {
                // Only of a rate: units a second.
                Of::Latency => arm
                    .summary(Quantity::Performance)
                    .filter(|summary| summary.metric.unit.ends_with("/s") && summary.median > 0.0)
                    .map(|summary| 1e6 / summary.median),
                Of::WallPower => walls.watts(&arm.name),
            };
            lines.push(Line { arm: arm.name.clone(), published: **one, here });
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    let path = directory.path().join("published.json");
    let text = serde_json::to_string_pretty(&lines).map_err(Failure::failed)?;
    std::fs::write(&path, text)
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))?;
    if !output.is_json() {
        print(render(&lines))?;
    }
    Ok(())
}

fn render(lines: &[Line]) -> String {
    let wide = lines.iter().map(|line| line.arm.chars().count()).max().unwrap_or(0);
    let mut out = format!(
        "\npublished for this machine ({}; flyball sim check {0}), simulated beside it\n",
        lines[0].published.source
    );
    for line in lines {
        let (what, unit) = match line.published.of {
            Of::Latency => ("latency", "us"),
            Of::WallPower => ("power of the whole machine", "W"),
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
