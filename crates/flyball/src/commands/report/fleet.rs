//! `flyball report --fleet`: the run directories of many machines, put together.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use flyball_files::read_input;
use flyball_measure::{
    RunDirectory,
    fleet::{Experiment, FleetReport, Member, Pilot, Skipped, analyse_fleet, design},
    render,
};

use super::{Args, make, save};
use crate::{
    exit::{Cause, Exit, Failure},
    output::Reporter,
    paint::Paint,
    terminal,
};

/// Folders between a directory that is given and the run directories: engines collect as
/// SITE/HOST/RUN.
const DEPTH: usize = 3;

/// Bytes of a list of hosts: a hundred thousand names.
const MAX_HOSTS: u64 = 16 << 20;

/// Arguments that belong to `--fleet`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct FleetArgs {
    /// Combine run directories of many machines; a DIR may contain such directories.
    #[arg(long, conflicts_with_all = ["export_markdown", "plot", "time_limit"])]
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

/// What is printed as JSON.
#[derive(Debug, schemars::JsonSchema, serde::Serialize)]
pub(crate) struct Printed<'a> {
    #[serde(flatten)]
    report: &'a FleetReport,
    /// With `--design`: for each effect, how many machines it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    design: Option<&'a [Vec<Pilot>]>,
}

pub(crate) fn run(output: &Reporter, args: &Args) -> Result<Exit, Failure> {
    let options = &args.of_fleet;
    let Collected { members, experiments, skipped } = Collected::read(&args.paths)?;
    let members: Vec<Member> = members.into_values().collect();
    let Some(experiment) = one_experiment(&experiments)?.filter(|_| members.len() > 1) else {
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
    let confidence = experiments.iter().map(|one| one.confidence).fold(0.5, f64::max);
    let missing = missing(options.hosts.as_deref(), &members)?;
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

/// An experiment, and a machine that ran it.
struct Found {
    experiment: Experiment,
    confidence: f64,
    machine: String,
}

/// What the run directories hold.
#[derive(Default)]
struct Collected {
    members: BTreeMap<String, Member>,
    experiments: Vec<Found>,
    skipped: Vec<Skipped>,
}

impl Collected {
    /// Reads all run directories; each is reduced at once, because the rounds of ten thousand
    /// machines are gigabytes.
    fn read(paths: &[PathBuf]) -> Result<Collected, Failure> {
        let mut collected = Collected::default();
        for path in paths {
            if !path.is_dir() {
                return Err(Failure::usage(format!("{} is not a directory", path.display())));
            }
            for found in find(path) {
                if let Err(why) = found.usable.and_then(|()| collected.add(&found.path)) {
                    collected.skip(&found.path, why.to_string());
                }
            }
        }
        Ok(collected)
    }

    fn skip(&mut self, path: &Path, why: impl Into<String>) {
        self.skipped.push(Skipped { directory: path.display().to_string(), why: why.into() });
    }

    /// Adds a run directory, or says why it cannot be used.
    fn add(&mut self, path: &Path) -> Result<(), Cause> {
        let directory = RunDirectory::open(path)?;
        let member = Member::of(&directory)?;
        let experiment = Experiment::of(&directory.manifest);
        let confidence = directory.manifest.schedule.confidence;
        match self.experiments.iter_mut().find(|found| found.experiment == experiment) {
            Some(found) => found.confidence = found.confidence.max(confidence),
            None => self.experiments.push(Found { experiment, confidence, machine: member.machine.clone() }),
        }
        let older = match self.members.get(&member.machine) {
            // A machine counts once: its newest run, as a repeated job leaves it.
            Some(other) if other.started > member.started => Some(member),
            _ => self.members.insert(member.machine.clone(), member),
        };
        if let Some(older) = older {
            self.skip(Path::new(&older.directory), format!("there is a newer run of {}", older.machine));
        }
        Ok(())
    }
}

/// A place where results may be.
struct Place {
    path: PathBuf,
    /// Why it is none, if that is known already.
    usable: Result<(), Cause>,
}

/// Run directories at or below `path`, in the order of names, and what is passed over.
fn find(path: &Path) -> Vec<Place> {
    let mut found = Vec::new();
    let mut add = |path: PathBuf, usable| found.push(Place { path, usable });
    let mut level = vec![path.to_owned()];
    let mut any = false;
    for depth in 0..=DEPTH {
        let mut next = BTreeSet::new();
        for folder in level {
            if folder.join("manifest.json").is_file() {
                any = true;
                add(folder, Ok(()));
                continue;
            }
            if folder.join("rounds.jsonl").exists() {
                add(folder, Err("it has rounds and no manifest.json".into()));
                continue;
            }
            let entries = match std::fs::read_dir(&folder) {
                Ok(entries) => entries.flatten(),
                Err(error) => {
                    add(folder, Err(error.into()));
                    continue;
                }
            };
            for entry in entries.filter(|_| depth < DEPTH) {
                let is = |is: fn(&std::fs::FileType) -> bool| entry.file_type().is_ok_and(|kind| is(&kind));
                if is(std::fs::FileType::is_dir) {
                    next.insert(entry.path());
                } else if is(std::fs::FileType::is_symlink) && entry.path().is_dir() {
                    // It could lead out of what was given, or round in circles.
                    add(entry.path(), Err("links are not followed; give the directory itself".into()));
                }
            }
        }
        level = next.into_iter().collect();
    }
    if !any && found.is_empty() {
        let why = "there is no run directory (a folder with manifest.json) in it".into();
        found.push(Place { path: path.to_owned(), usable: Err(why) });
    }
    found
}

/// The one experiment that all machines ran.
fn one_experiment(found: &[Found]) -> Result<Option<Experiment>, Failure> {
    let (Some(first), second) = (found.first(), found.get(1)) else { return Ok(None) };
    let Some(second) = second else { return Ok(Some(first.experiment.clone())) };
    let named = |one: &Found| {
        one.experiment.name.as_deref().map_or("without a file".to_owned(), |name| format!("'{name}'"))
    };
    let what = if first.experiment.name != second.experiment.name {
        format!("{} and {}", named(first), named(second))
    } else if first.experiment.digest != second.experiment.digest {
        format!("two files name theirs {}", named(first))
    } else if first.experiment.workload != second.experiment.workload {
        format!("'{}' and '{}'", first.experiment.workload, second.experiment.workload)
    } else if first.experiment.arms != second.experiment.arms {
        let arms = |one: &Found| {
            let names = one.experiment.arms.iter().map(|(name, _)| name.as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        format!("arms {} and arms {}", arms(first), arms(second))
    } else {
        "the same arms with other settings, command lines or metrics".to_owned()
    };
    Err(Failure::usage(format!(
        "these are {} different experiments: {what} (on {} and {}); give the directories of one",
        found.len(),
        first.machine,
        second.machine
    )))
}

/// The names in the list of hosts that have no results.
fn missing(file: Option<&Path>, members: &[Member]) -> Result<Vec<String>, Failure> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let bytes = read_input(file, MAX_HOSTS)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", file.display())))?;
    let there: BTreeSet<&str> = members.iter().map(|member| member.machine.as_str()).collect();
    let text = String::from_utf8_lossy(&bytes);
    let names = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    // A name may be given in full where the machine knows itself by the first part, or the other
    // way round.
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let short_there: BTreeSet<String> = there.iter().map(|name| short(name)).collect();
    let is_missing =
        |name: &&str| !name.is_empty() && !there.contains(name) && !short_there.contains(&short(name));
    // A host that is listed twice is one host.
    let missing: BTreeSet<&str> = names.filter(is_missing).collect();
    Ok(missing.into_iter().map(ToOwned::to_owned).collect())
}
