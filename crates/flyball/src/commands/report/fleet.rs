//! `flyball report --fleet`: merges the run directories of many machines.

use std::path::PathBuf;

use flyball_files::read_input;
use flyball_measure::{
    fleet::{Collected, FleetReport, Member, Pilot, analyse_fleet, design, missing},
    render,
};

use super::{Args, make, save};
use crate::{
    exit::{Exit, Failure},
    output::Reporter,
    paint::Paint,
    terminal,
};

/// Maximum bytes of a list of hosts: a hundred thousand names.
const MAX_HOSTS: u64 = 16 << 20;

/// Arguments that belong to `--fleet`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct FleetArgs {
    /// Combine run directories of many machines; a DIR may contain such directories.
    #[arg(long, conflicts_with_all = ["export_markdown", "export_json", "time_limit"])]
    pub fleet: bool,

    /// File with the expected machines, one per line; flyball names those without results.
    #[arg(long, value_name = "FILE", requires = "fleet")]
    pub hosts: Option<PathBuf>,

    /// Also say how many machines and rounds would detect a change of this size, such as 1%.
    #[arg(long, value_name = "CHANGE", requires = "fleet", value_parser = percentage)]
    pub design: Option<f64>,
}

fn percentage(text: &str) -> Result<f64, &'static str> {
    let number = text.trim().strip_suffix('%').ok_or("a change has a percent sign: 1%")?;
    let number: f64 = number.trim().parse().map_err(|_| "write a percentage such as 1%")?;
    (number > 0.0 && number < 100.0)
        .then_some(number / 100.0)
        .ok_or("the change must be above 0% and below 100%")
}

/// The output in JSON.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub(crate) struct Printed<'a> {
    #[serde(flatten)]
    report: &'a FleetReport,
    /// With `--design`: for each effect, how many machines it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    design: Option<&'a [Vec<Pilot>]>,
}

pub(crate) fn run(output: &Reporter, args: &Args) -> Result<Exit, Failure> {
    if !args.forms.fail_if.is_empty() {
        return Err(Failure::usage(
            "--fleet does not judge the limits of --fail-if; 'flyball report DIR' judges them for each machine",
        ));
    }
    let options = &args.of_fleet;
    let collected = Collected::read(&args.paths).map_err(Failure::usage)?;
    let experiment = collected.experiment().map_err(Failure::usage)?;
    let confidence = collected.confidence();
    let Collected { members, skipped, .. } = collected;
    let members: Vec<Member> = members.into_values().collect();
    let Some(experiment) = experiment.filter(|_| members.len() > 1) else {
        return Err(Failure::usage(match skipped.first() {
            older if members.len() == 1 => {
                let name = &members[0].machine;
                let why = older.map_or("", |_| {
                    "\nhint: a run that names no host, as of a simulated machine, has the name of its folder: HOST/RUN"
                });
                format!("only {name} has results; a fleet has two machines or more{why}")
            }
            Some(first) => format!("no run directory can be used: {}: {}", first.directory, first.why),
            None => "there is no run directory in what was given".to_owned(),
        }));
    };
    let missing = match &options.hosts {
        Some(file) => {
            let hosts = read_input(file, MAX_HOSTS)
                .map_err(|error| Failure::usage(format!("cannot read {}: {error}", file.display())))?;
            missing(&String::from_utf8_lossy(&hosts), &members)
        }
        None => Vec::new(),
    };
    let report = analyse_fleet(experiment, &members, skipped, missing, confidence);
    let designs: Vec<Vec<Pilot>> = options.design.map_or_else(Vec::new, |wanted| {
        report.effects.iter().map(|effect| design(effect, wanted, confidence)).collect()
    });
    let printed = Printed { report: &report, design: options.design.map(|_| designs.as_slice()) };
    if let Some(place) = &args.output {
        make(place)?;
        save(place, "fleet.html", render::fleet_page(&report).html().as_bytes())?;
        save(place, "fleet.json", &Reporter::file(&printed)?)?;
    }
    output.object(
        || &printed,
        || {
            let screen = render::Screen { width: terminal::columns(), painter: Paint::stdout() };
            render::fleet_text(&report, options.design, &designs, screen)
        },
    )?;
    if let Some(place) = args.output.as_ref().filter(|_| !output.is_json()) {
        eprintln!("report: {}", place.join("fleet.html").display());
    }
    Ok(Exit::Done)
}
