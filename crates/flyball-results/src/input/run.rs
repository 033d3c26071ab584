//! Run directories of `compare` and `tune`: a row per round.

use std::{path::Path, sync::Arc};

use flyball_control::save::SavedSetting;
use flyball_files::Dir;
use flyball_measure::{Better, Manifest, Quantity, Round, RunDirectory, SettingsSnapshot};
use flyball_table::Cell;

use super::{About, InputError, ParsedInput, Row, experiment, flatten};
use crate::schema::Kind;

/// Maximum size of a snapshot in bytes: the settings of 512 CPUs.
const MAX_SNAPSHOT: u64 = 4 << 20;

pub(super) fn read(path: &Path) -> Result<ParsedInput, InputError> {
    let directory = RunDirectory::open(path).map_err(|error| InputError::Run(Arc::new(error)))?;
    let manifest = &directory.manifest;
    let mut about = about(manifest);
    settings(path, &mut about);
    let own = |round: &(usize, &Round)| Row {
        time: about.time.and_then(|_| time(manifest, round.1)),
        cells: cells(manifest, round.0, round.1),
    };
    let rows = directory.rounds.iter().enumerate().map(|round| own(&round)).collect();
    let mut warnings = directory.warnings.clone();
    let (there, planned) = (directory.rounds.len(), manifest.schedule.rounds(manifest.arms.len()));
    if matches!(manifest.schedule.length, flyball_measure::Length::Rounds(_)) && there < planned {
        warnings.push(format!("{there} of {planned} rounds; when it has the others, add it again"));
    }
    // Without the rounds: a comparison that is resumed keeps its identity.
    let identity = serde_json::to_vec(&(
        manifest.boots.first().map(|boot| (&boot.id, boot.started)),
        manifest.schedule.seed,
        &manifest.arms,
        &manifest.workload,
        &manifest.machine.name,
    ));
    let identity = identity.map_err(|error| InputError::Json(Arc::new(error)))?;
    Ok(ParsedInput { kind: Kind::Rounds, about, identity, rows, warnings })
}

fn about(manifest: &Manifest) -> About {
    let machine = &manifest.machine;
    let boot = manifest.boots.first();
    let mut about = About {
        host: machine.system.hostname.clone(),
        machine: machine.simulated.then(|| machine.name.clone()),
        time: boot.and_then(|boot| boot.started.checked_mul(1000)).filter(|time| *time > 0),
        simulated: Some(machine.simulated || machine.emulated.is_some()),
        tool: Some(manifest.tool.clone()),
        ..About::default()
    };
    let facts = [
        ("processor", Some(machine.processor.clone())),
        ("product", machine.system.product.clone()),
        ("firmware", machine.system.firmware.clone()),
        ("microcode", machine.system.microcode.clone()),
        ("kernel", boot.map(|boot| boot.kernel.clone())),
        ("driver", boot.and_then(|boot| boot.driver.clone())),
    ];
    about.facts = facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let mut set = |name: &str, value: String| about.settings.insert(name.to_owned(), value);
    if let Some(boot) = boot {
        set("command-line", boot.command_line.clone());
    }
    set("online-cpus", machine.cpus.to_string());
    if let Some(quiet) = &manifest.quiet {
        set("quiet", quiet.level.clone());
    }
    about
}

/// The settings before the first round.
fn settings(path: &Path, about: &mut About) {
    let Ok(dir) = Dir::open(path) else { return };
    // An old run has no snapshot, and a damaged snapshot does not invalidate the rounds.
    let Ok(bytes) = dir.read("snapshot-0-before.json", MAX_SNAPSHOT) else { return };
    match serde_json::from_slice(&bytes) {
        Ok(SettingsSnapshot::Settings { settings }) => {
            about.settings.extend(settings.into_iter().map(
                |SavedSetting { knob, value, cpus }| match cpus {
                    Some(cpus) => (format!("cpus.{cpus}.{knob}"), value),
                    None => (knob, value),
                },
            ));
        }
        Ok(SettingsSnapshot::Profile { profile }) => {
            let Ok(profile) = profile.parse::<toml::Table>() else { return };
            let mut flat = std::collections::BTreeMap::new();
            flatten("", &toml::Value::Table(profile), &mut flat);
            flat.remove("description");
            about.settings.extend(flat);
        }
        _ => {}
    }
}

/// When a round began, in milliseconds since 1970.
fn time(manifest: &Manifest, round: &Round) -> Option<u64> {
    let boot = manifest.boots.get(round.boot)?.started;
    let seconds = boot as f64 + round.started;
    (seconds.is_finite() && seconds > 0.0 && seconds < 253_402_300_799.0).then_some((seconds * 1000.0) as u64)
}

fn cells(manifest: &Manifest, number: usize, round: &Round) -> Vec<Cell> {
    let workload = &manifest.workload;
    let metric = &workload.metric;
    let arm = manifest.arms.get(round.arm);
    let settings = arm.map(|arm| {
        let settings: Vec<String> = arm.settings.iter().map(ToString::to_string).collect();
        settings.join(" ")
    });
    let beside: Vec<String> =
        workload.background.iter().map(flyball_measure::BackgroundNote::title).collect();
    let command = serde_json::to_string(&(&workload.argv, &workload.cpus, &workload.server, beside));
    let of = |quantity: Quantity| quantity.value(round, manifest).filter(|value| value.is_finite());
    let value = round.outcome.value.filter(|value| value.is_finite());
    let whole = |value: usize| Cell::from(value as u64);
    vec![
        workload.name.as_str().into(),
        experiment(&[&command.unwrap_or_default(), &metric.name, &metric.unit]).into(),
        arm.map(|arm| arm.name.as_str()).into(),
        settings.into(),
        whole(round.arm),
        metric.name.as_str().into(),
        metric.unit.as_str().into(),
        (metric.better == Better::Higher).into(),
        whole(number),
        whole(round.block),
        whole(round.boot),
        round.warm_up.into(),
        round.outcome.failure.as_deref().or(round.void.as_deref()).into(),
        value.into(),
        Some(round.outcome.seconds).filter(|seconds| seconds.is_finite()).into(),
        of(Quantity::Energy).into(),
        of(Quantity::Dram).into(),
        of(Quantity::Platform).into(),
        of(Quantity::Frequency).into(),
        of(Quantity::Busy).into(),
        of(Quantity::Temperature).into(),
        round.readings.throttled.into(),
        of(Quantity::Switches).filter(|count| *count >= 0.0).map(|count| count as u64).into(),
        round.moment.load_before.filter(|load| load.is_finite()).into(),
    ]
}
