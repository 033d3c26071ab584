//! The run directories of many machines.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{Experiment, Member, Skipped};
use crate::RunDirectory;

/// Maximum depth of run directories below a given directory: tools collect them as SITE/HOST/RUN.
const DEPTH: usize = 3;

/// An experiment, and a machine that ran it.
struct MachineExperiment {
    experiment: Experiment,
    confidence: f64,
    machine: String,
}

/// The contents of the run directories of a fleet.
#[derive(Default)]
pub struct Collected {
    /// The machines by name, each with its newest run.
    pub members: BTreeMap<String, Member>,
    experiments: Vec<MachineExperiment>,
    pub skipped: Vec<Skipped>,
}

/// Why run directories make no fleet.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    #[error(
        "these are {count} different experiments: {what} (on {} and {}); give the directories of one",
        .on[0], .on[1]
    )]
    SeveralExperiments { count: usize, what: String, on: [String; 2] },
}

/// Why a directory is skipped.
type Cause = Box<dyn std::error::Error + Send + Sync>;

impl Collected {
    /// Reads all run directories; each is reduced at once, because the rounds of ten thousand
    /// machines are gigabytes.
    ///
    /// # Errors
    /// [`CollectError::NotADirectory`].
    pub fn read(paths: &[PathBuf]) -> Result<Collected, CollectError> {
        let mut collected = Collected::default();
        for path in paths {
            if !path.is_dir() {
                return Err(CollectError::NotADirectory(path.clone()));
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
        let member = Member::read(&directory)?;
        let experiment = Experiment::new(&directory.manifest);
        let confidence = directory.manifest.schedule.confidence;
        match self.experiments.iter_mut().find(|found| found.experiment == experiment) {
            Some(found) => found.confidence = found.confidence.max(confidence),
            None => self.experiments.push(MachineExperiment {
                experiment,
                confidence,
                machine: member.machine.clone(),
            }),
        }
        let older = match self.members.get(&member.machine) {
            // A machine counts once, with its newest run: a repeated job leaves several.
            Some(other) if other.started > member.started => Some(member),
            _ => self.members.insert(member.machine.clone(), member),
        };
        if let Some(older) = older {
            self.skip(Path::new(&older.directory), format!("there is a newer run of {}", older.machine));
        }
        Ok(())
    }

    /// The one experiment that all machines ran.
    ///
    /// # Errors
    /// [`CollectError::SeveralExperiments`].
    pub fn experiment(&self) -> Result<Option<Experiment>, CollectError> {
        let found = &self.experiments;
        let (Some(first), second) = (found.first(), found.get(1)) else { return Ok(None) };
        let Some(second) = second else { return Ok(Some(first.experiment.clone())) };
        let named = |one: &MachineExperiment| {
            one.experiment.name.as_deref().map_or("without a file".to_owned(), |name| format!("'{name}'"))
        };
        let what = if first.experiment.name != second.experiment.name {
            format!("{} and {}", named(first), named(second))
        } else if first.experiment.digest != second.experiment.digest {
            format!("two files name theirs {}", named(first))
        } else if first.experiment.workload != second.experiment.workload {
            format!("'{}' and '{}'", first.experiment.workload, second.experiment.workload)
        } else if first.experiment.arms != second.experiment.arms {
            let arms = |one: &MachineExperiment| {
                let names = one.experiment.arms.iter().map(|(name, _)| name.as_str());
                names.collect::<Vec<_>>().join(", ")
            };
            format!("arms {} and arms {}", arms(first), arms(second))
        } else {
            "the same arms with other settings, command lines or metrics".to_owned()
        };
        Err(CollectError::SeveralExperiments {
            count: found.len(),
            what,
            on: [first.machine.clone(), second.machine.clone()],
        })
    }

    /// The highest confidence of the runs.
    pub fn confidence(&self) -> f64 {
        self.experiments.iter().map(|one| one.confidence).fold(0.5, f64::max)
    }
}

/// A directory that may hold results.
struct Candidate {
    path: PathBuf,
    /// An error if it is already known to be unusable.
    usable: Result<(), Cause>,
}

/// Returns run directories at or below `path`, in the order of names, and those that are skipped.
fn find(path: &Path) -> Vec<Candidate> {
    let mut found = Vec::new();
    let mut add = |path: PathBuf, usable| found.push(Candidate { path, usable });
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
                    // It could lead out of the given directory, or in circles.
                    add(entry.path(), Err("links are not followed; give the directory itself".into()));
                }
            }
        }
        level = next.into_iter().collect();
    }
    if !any && found.is_empty() {
        let why = "there is no run directory (a folder with manifest.json) in it".into();
        found.push(Candidate { path: path.to_owned(), usable: Err(why) });
    }
    found
}

/// The names in a list of hosts, one per line, that have no results.
pub fn missing(hosts: &str, members: &[Member]) -> Vec<String> {
    let there: BTreeSet<&str> = members.iter().map(|member| member.machine.as_str()).collect();
    let names = hosts.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    // The list may have a full name if the machine knows itself by the first part, or the other way
    // round.
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let short_there: BTreeSet<String> = there.iter().map(|name| short(name)).collect();
    let is_missing =
        |name: &&str| !name.is_empty() && !there.contains(name) && !short_there.contains(&short(name));
    // A host that is listed twice is one host.
    let missing: BTreeSet<&str> = names.filter(is_missing).collect();
    missing.into_iter().map(ToOwned::to_owned).collect()
}
