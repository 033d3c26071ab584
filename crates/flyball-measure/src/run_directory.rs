//! The run directory: everything that was measured, raw.
//!
//! ```text
//! manifest.json        what was compared, how, on what; the boots; versioned
//! rounds.jsonl         one line a round: outcome and raw readings, written when the round ends
//! trace-*.dat          the driver's decisions in each round, with compare --trace
//! snapshot-N-before.json, snapshot-N-after.json   the machine's settings around boot N's rounds
//! report.*             made from the above; may be deleted and made again
//! ```

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, fcntl_lock},
    io::Errno,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use flyball_files::Dir;
use flyball_process::User;

use crate::{
    arm::Arm,
    meter::{MeterList, Readings},
    metric::Metric,
    program::Hooks,
    schedule::{Length, Schedule},
    speed::SpeedNote,
    watch::{Conditions, Moment},
    workload::{Outcome, preset::Reader},
};

/// The `format` field of a manifest.
pub const FORMAT: &str = "flyball-comparison";

/// The version of the format that flyball writes. It also reads older versions.
pub const VERSION: u32 = 1;

/// Size limits in bytes of a manifest and of the rounds: a hundred thousand rounds of 10 KB.
const MAX_MANIFEST: u64 = 16 << 20;
const MAX_ROUNDS: u64 = 1 << 30;

/// How many comparisons can start in one directory within one second.
const MAX_AT_ONCE: u32 = 1000;

/// The machine that was measured.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct MachineNote {
    /// `live`, or the name of a simulated machine.
    pub name: String,
    /// Whether it exists only in software.
    pub simulated: bool,
    /// What the machine calls itself if its processors are emulated, as in flyball's guests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// The processor's name.
    pub processor: String,
    /// Logical CPUs online.
    pub cpus: usize,
    /// What distinguishes it from other machines with this processor.
    #[serde(default, skip_serializing_if = "SystemNote::is_empty")]
    pub system: SystemNote,
}

/// Which machine it is, and what may differ between machines of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct SystemNote {
    /// The host's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Vendor and product, as the firmware names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// The firmware's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// The microcode's revision, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub microcode: Option<String>,
}

impl SystemNote {
    fn is_empty(&self) -> bool {
        *self == SystemNote::default()
    }
}

impl MachineNote {
    /// Its name, and whether it is simulated or emulated.
    pub fn title(&self) -> String {
        match &self.emulated {
            Some(what) => format!("{} (emulated: {what})", self.name),
            None if self.simulated => format!("{} (simulated)", self.name),
            None => self.name.clone(),
        }
    }

    /// Returns the machine's title, processor and number of CPUs as one line.
    pub fn summary(&self) -> String {
        format!("{}: {}, {} CPUs", self.title(), self.processor, self.cpus)
    }
}

/// The workload that was run.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct WorkloadNote {
    /// Its name in reports.
    pub name: String,
    /// The metric that it yields.
    pub metric: Metric,
    /// The command line, if it was a command.
    #[serde(default)]
    pub argv: Vec<String>,
    /// How its output was read, if it was a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<Reader>,
    /// The CPUs that it was kept on, in list form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Where it ran, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// The command line of a server that ran meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Vec<String>>,
    /// Loads that ran during every round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<BackgroundNote>,
    /// The file that it read as standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<PathBuf>,
    /// Variables that were added to its environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Shell commands that ran around rounds.
    #[serde(flatten)]
    pub hooks: Hooks,
    /// Whether failing rounds were ignored.
    #[serde(default)]
    pub ignore_failure: bool,
    /// Exit codes other than 0 that are no failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted_exit_codes: Vec<i32>,
    /// Whether all arms must print the same output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_output: bool,
}

/// A load that ran during every round.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct BackgroundNote {
    /// The name that it was given.
    pub name: String,
    pub argv: Vec<String>,
    /// The CPUs that it was kept on, in list form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
}

impl BackgroundNote {
    /// Its name and where it ran.
    pub fn title(&self) -> String {
        match &self.cpus {
            Some(cpus) => format!("{} on CPUs {cpus}", self.name),
            None => self.name.clone(),
        }
    }
}

/// How the machine was kept quiet around all rounds.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct QuietNote {
    /// `light`, `steady` or `fixed`.
    pub level: String,
    /// The CPUs that it was made quiet for, in list form.
    pub cpus: String,
    /// The settings, as typed; an arm's own come after them.
    pub settings: Vec<String>,
    /// The settings of the level that this machine does not have, each with its reason.
    #[serde(default, alias = "cannot", skip_serializing_if = "Vec::is_empty")]
    pub unavailable: Vec<String>,
}

/// One boot of the machine in which rounds were run.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Boot {
    /// The kernel's boot id (/proc/sys/kernel/random/boot_id).
    pub id: String,
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's command line.
    pub command_line: String,
    /// The cpufreq driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Seconds since 1970 at the start.
    pub started: u64,
    /// The arms that ran, by index.
    pub arms: Vec<usize>,
    /// The available meters.
    pub meters: MeterList,
}

/// What was compared, how and where.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`] at the time of writing.
    pub version: u32,
    /// The program that wrote it, with its version.
    pub tool: String,
    /// Its command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command_line: Vec<String>,
    pub machine: MachineNote,
    pub workload: WorkloadNote,
    /// The arms; the first is what the others are compared with.
    pub arms: Vec<Arm>,
    /// For each arm that needs a boot of its own, what to boot with.
    #[serde(default)]
    pub boot_needs: Vec<Option<String>>,
    pub schedule: Schedule,
    /// Set when the machine was kept quiet: then rounds under bad conditions do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<QuietNote>,
    /// The boots, in order.
    pub boots: Vec<Boot>,
    /// Whether the driver's decisions are traced in each round that counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trace: bool,
    /// The knobs of the user that arms may name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knobs: Vec<flyball_host::CommandKnob>,
    /// The file that described the comparison, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<ExperimentNote>,
    /// How commits are searched, if the arms are the commits of a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bisect: Option<BisectNote>,
}

/// The search of commits.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct BisectNote {
    /// The shell command that builds a commit.
    pub build: Option<String>,
    /// The directory in the repository in which the search was started.
    #[serde(default)]
    pub directory: PathBuf,
}

/// The file with an experiment that many machines run.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ExperimentNote {
    pub name: String,
    /// Equal for files with equal content. Different experiments may have the same name.
    pub digest: String,
}

/// The driver's decisions in one round, summed up; the trace itself is a file next to the rounds.
#[derive(Debug, Clone, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct TraceNote {
    /// The trace, by its name in the run directory.
    pub file: String,
    pub records: u64,
    /// Records that were lost before they could be read.
    pub lost: u64,
    /// Requests that changed the performance level, over all CPUs.
    pub decisions: u64,
    /// Mean frequency in GHz over all CPUs, weighted by running time; only if the events report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ghz: Option<f64>,
    /// Means over the driver's records, as the kernel's selftest takes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<Sampled>,
    /// Median time in milliseconds from a changed request until the frequency has moved half of the
    /// way; only if the events report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<f64>,
}

/// Plain means over all records of a driver's decisions, of all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Sampled {
    pub des_perf: f64,
    pub ghz: Option<f64>,
    /// Percent.
    pub load: Option<f64>,
}

/// One round: one run of the workload under one arm.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Round {
    /// The boot, by index in the manifest.
    pub boot: usize,
    /// The block. Rounds of one boot and block are compared as pairs.
    pub block: usize,
    /// The arm, by index.
    pub arm: usize,
    /// Position in its block, from 0.
    pub place: usize,
    /// Whether it was only to warm up.
    #[serde(default)]
    pub warm_up: bool,
    /// Start on the machine's clock, in seconds since the comparison began in this boot.
    pub started: f64,
    /// Uptime, wall clock and load when it began.
    #[serde(default)]
    pub moment: Moment,
    /// Messages from applying the arm, for example about clamped values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The outcome of the workload.
    pub outcome: Outcome,
    /// The meters' readings.
    pub readings: Readings,
    /// The driver's decisions, if they were traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceNote>,
    /// Why the whole block is invalid: another process changed settings, or a CPU went online or
    /// offline. Only searches check this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
    /// How fast the CPUs ran, and why not faster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<SpeedNote>,
    /// Other activity on the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
}

/// An error with a run directory.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file operation failed.
    #[error("cannot {what} {path}: {}", flyball_host::words_of(cause))]
    Io {
        /// `read`, `write`, `make`.
        what: &'static str,
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The content of a file is not in the format.
    #[error("{path}{}: {cause}", line.map(|n| format!(" line {n}")).unwrap_or_default())]
    Content {
        path: PathBuf,
        /// The line, from 1.
        line: Option<usize>,
        cause: ContentFault,
    },
}

/// What is wrong with the content of a run directory's file.
#[derive(Debug, thiserror::Error)]
pub enum ContentFault {
    #[error("not a manifest: {0}")]
    NotAManifest(serde_json::Error),
    #[error("the format is '{found}', not '{FORMAT}'")]
    Format { found: String },
    #[error("written by a newer flyball (version {version}; this one reads up to {VERSION})")]
    Newer { version: u32 },
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("{what} is {value}, outside of {low} to {high}")]
    Outside { what: &'static str, value: f64, low: f64, high: f64 },
    #[error("it has no arms")]
    NoArms,
    #[error("a boot ran arm {arm}, and there are {arms}")]
    BootsArm { arm: usize, arms: usize },
    #[error("an arm or boot that the manifest does not have")]
    Round,
}

#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    pub manifest: Manifest,
    /// The rounds, in the order run.
    pub rounds: Vec<Round>,
    /// Warnings about lines that were skipped when it was read.
    pub warnings: Vec<String>,
    /// The owner of its files, if not the user of this process.
    owner: Option<User>,
    log: Option<File>,
    /// When the log was flushed last, or opened.
    flushed: Instant,
}

impl RunDirectory {
    /// Creates a run directory at `path`, which must not exist or must be empty. If there is an
    /// owner, everything in it belongs to that user.
    ///
    /// # Errors
    /// The system's error; EEXIST if the directory is not empty.
    pub fn create(path: &Path, manifest: Manifest, owner: Option<User>) -> Result<RunDirectory, RecordError> {
        let _as_owner = owner.as_ref().map(User::for_files);
        let fail = |what, cause| RecordError::Io { what, path: path.to_owned(), cause };
        flyball_files::make_dirs(path).map_err(|cause| fail("make", cause))?;
        let mut entries = fs::read_dir(path).map_err(|cause| fail("read", cause))?;
        // Two comparisons in one directory would mix their rounds.
        if entries.next().is_some() {
            return Err(fail(
                "use",
                io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "it is not empty (give another, or continue it with --resume)",
                ),
            ));
        }
        let mut directory = RunDirectory {
            path: path.to_owned(),
            manifest,
            rounds: Vec::new(),
            warnings: Vec::new(),
            owner: owner.clone(),
            log: None,
            flushed: Instant::now(),
        };
        // The manifest first: rounds without one could not be read.
        directory.write("manifest.json", &directory.manifest_text())?;
        directory.open_log()?;
        Ok(directory)
    }

    /// Creates a run directory at `path`, or at `path-2`, `path-3` and so on if that exists: two
    /// comparisons may start in the same second.
    pub fn create_numbered(
        path: &Path,
        manifest: Manifest,
        owner: Option<User>,
    ) -> Result<RunDirectory, RecordError> {
        let numbered = |number: u32| match number {
            1 => path.to_owned(),
            _ => PathBuf::from(format!("{}-{number}", path.display())),
        };
        let as_owner = owner.as_ref().map(User::for_files);
        let mut number = 1;
        // Making the directory is the test. A check before it would race with another comparison.
        while let Err(cause) = flyball_files::make_dir(&numbered(number)) {
            if cause.kind() != io::ErrorKind::AlreadyExists || number >= MAX_AT_ONCE {
                return Err(RecordError::Io { what: "make", path: numbered(number), cause });
            }
            number += 1;
        }
        drop(as_owner);
        RunDirectory::create(&numbered(number), manifest, owner)
    }

    /// Reads a run directory. A truncated last line (power lost while it was written) is skipped
    /// with a warning.
    ///
    /// # Errors
    /// A file is missing, unreadable or malformed.
    pub fn open(path: &Path) -> Result<RunDirectory, RecordError> {
        let dir = Dir::open(path).map_err(|cause| RecordError::Io {
            what: "read",
            path: path.to_owned(),
            cause,
        })?;
        let file = path.join("manifest.json");
        let bytes = dir.read("manifest.json", MAX_MANIFEST).map_err(|cause| RecordError::Io {
            what: "read",
            path: file.clone(),
            cause,
        })?;
        let manifest = parse_manifest(&bytes).map_err(|cause| RecordError::Content {
            path: file.clone(),
            line: None,
            cause,
        })?;
        let file = path.join("rounds.jsonl");
        let bytes = match dir.read("rounds.jsonl", MAX_ROUNDS) {
            Ok(bytes) => bytes,
            // The manifest is written first: a crash right after it leaves a directory without
            // rounds, which can be resumed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(cause) => return Err(RecordError::Io { what: "read", path: file, cause }),
        };
        let (rounds, warnings) = parse_rounds(&bytes, &manifest)
            .map_err(|(line, cause)| RecordError::Content { path: file, line: Some(line), cause })?;
        let path = path.to_owned();
        Ok(RunDirectory { path, manifest, rounds, warnings, owner: None, log: None, flushed: Instant::now() })
    }

    /// Makes `owner` the owner of everything that is written from now on.
    pub fn give_to(&mut self, owner: Option<User>) {
        self.owner = owner;
    }

    /// Returns the owner of its files, if not the user of this process.
    pub fn owner(&self) -> Option<&User> {
        self.owner.as_ref()
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn manifest_text(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(&self.manifest).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// Replaces the manifest in one step, and flushes it to disk.
    pub fn save(&self) -> Result<(), RecordError> {
        self.replace("manifest.json", &self.manifest_text(), true)
    }

    /// Replaces a file of the run directory in one step, without flushing it to disk. Flushing
    /// takes milliseconds, which rounds are worth and snapshots are not.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), RecordError> {
        self.replace(name, bytes, false)
    }

    /// Replaces a symbolic link at the file's path and does not follow it: a run directory may come
    /// from another user.
    fn replace(&self, name: &str, bytes: &[u8], sync: bool) -> Result<(), RecordError> {
        let _as_owner = self.owner.as_ref().map(User::for_files);
        let path = self.path.join(name);
        flyball_files::replace_file(&path, bytes, sync).map_err(|cause| RecordError::Io {
            what: "write",
            path,
            cause,
        })
    }

    /// Appends a round, and flushes the rounds to disk if the last flush is a second ago.
    pub fn append(&mut self, round: Round) -> Result<(), RecordError> {
        if self.log.is_none() {
            self.open_log()?;
        }
        let path = self.path.join("rounds.jsonl");
        let mut line = serde_json::to_string(&round).map_err(|error| RecordError::Content {
            path: path.clone(),
            line: None,
            cause: error.into(),
        })?;
        line.push('\n');
        if let Some(log) = &mut self.log {
            // A written line survives the end of this process. Only a crash of the machine needs a
            // flush, which takes milliseconds, so short rounds share one.
            const UNFLUSHED: Duration = Duration::from_secs(1);
            log.write_all(line.as_bytes())
                .and_then(|()| {
                    if self.flushed.elapsed() < UNFLUSHED {
                        return Ok(());
                    }
                    self.flushed = Instant::now();
                    log.sync_data()
                })
                .map_err(|cause| RecordError::Io { what: "write", path, cause })?;
        }
        // Only after the line is in the file: the stopping rule must not count a round that a later
        // report does not have.
        self.rounds.push(round);
        Ok(())
    }

    /// Flushes the rounds to disk.
    pub fn flush(&self) -> Result<(), RecordError> {
        let flushed = self.log.as_ref().map_or(Ok(()), File::sync_data);
        flushed.map_err(|cause| RecordError::Io {
            what: "write",
            path: self.path.join("rounds.jsonl"),
            cause,
        })
    }

    /// Opens the log for appending, after removing a truncated last line. Fails if another process
    /// is adding rounds, or has added some since the log was read: blocks would have rounds twice.
    fn open_log(&mut self) -> Result<(), RecordError> {
        let path = self.path.join("rounds.jsonl");
        let fail = |cause| RecordError::Io { what: "write", path: path.clone(), cause };
        let _as_owner = self.owner.as_ref().map(User::for_files);
        // Appending: each line goes to the end, whatever another process has done to the file.
        let mut file =
            flyball_files::open_output(&path, flyball_files::Opening::Append, 0o666).map_err(fail)?;
        // A lock per process, not per open file: this process may open its own directory twice.
        let locked = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes).map_err(fail)?;
        let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let rounds = lines.filter(|line| !line.iter().all(u8::is_ascii_whitespace)).count();
        // On a file system without locks, only the number of rounds is checked.
        if matches!(locked, Err(Errno::AGAIN | Errno::ACCESS)) || rounds != self.rounds.len() {
            return Err(fail(io::Error::other("another flyball adds rounds to this directory")));
        }
        if bytes.last().is_some_and(|last| *last != b'\n') {
            // Otherwise the next round would be appended to the torn line, and both would be
            // unreadable.
            let keep = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
            file.set_len(keep as u64).map_err(fail)?;
        }
        self.log = Some(file);
        Ok(())
    }
}

/// Reads a manifest. Fails for other content, and for a newer version.
fn parse_manifest(bytes: &[u8]) -> Result<Manifest, ContentFault> {
    #[derive(Deserialize)]
    struct Head {
        format: String,
        version: u32,
    }
    let head: Head = serde_json::from_slice(bytes).map_err(ContentFault::NotAManifest)?;
    if head.format != FORMAT {
        return Err(ContentFault::Format { found: head.format });
    }
    // Checked before the rest is parsed: a newer format may have other fields.
    if head.version > VERSION {
        return Err(ContentFault::Newer { version: head.version });
    }
    let manifest: Manifest = serde_json::from_slice(bytes)?;
    manifest.check()?;
    Ok(manifest)
}

impl Manifest {
    /// Rejects numbers that no command line of flyball gives, before they are used.
    fn check(&self) -> Result<(), ContentFault> {
        let Schedule { length, warm_up, cool_down, interval, confidence, .. } = self.schedule;
        let within = |what: &'static str, value: f64, low: f64, high: f64| {
            // `contains` is false for NaN, so NaN is rejected too.
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(ContentFault::Outside { what, value, low, high })
            }
        };
        within("the confidence", confidence, 0.5, 0.9999)?;
        within("the pause before a round", cool_down, 0.0, 86_400.0)?;
        within("the interval of the meters", interval, 0.0, 86_400.0)?;
        within("the time of the rounds", self.schedule.least_seconds.unwrap_or(0.0), 0.0, 86_400.0)?;
        within("the time of the comparison", self.schedule.most_seconds.unwrap_or(0.0), 0.0, 3e7)?;
        within("the number of warm-up rounds", warm_up as f64, 0.0, 1e6)?;
        match length {
            Length::Search { most, cut } => {
                within("the number of rounds", most as f64, 0.0, 1e6)?;
                within("the cap", cut.unwrap_or(1.0), 1.0, 1e6)?;
            }
            Length::Rounds(rounds) => within("the number of rounds", rounds as f64, 0.0, 1e6)?,
            Length::Until { half_width, least, most, decided: _ } => {
                within("the half-width", half_width, 0.0, 1.0)?;
                within("the lowest number of rounds", least as f64, 0.0, 1e6)?;
                within("the highest number of rounds", most as f64, 0.0, 1e6)?;
            }
        }
        // The report compares with the first arm.
        if self.arms.is_empty() {
            return Err(ContentFault::NoArms);
        }
        for boot in &self.boots {
            if let Some(arm) = boot.arms.iter().find(|arm| **arm >= self.arms.len()) {
                return Err(ContentFault::BootsArm { arm: *arm, arms: self.arms.len() });
            }
            for source in &boot.meters.energy {
                within("the unit of an energy meter", source.unit, 0.0, 1e9)?;
            }
        }
        Ok(())
    }
}

type Parsed = Result<(Vec<Round>, Vec<String>), (usize, ContentFault)>;

fn parse_rounds(bytes: &[u8], manifest: &Manifest) -> Parsed {
    let mut rounds = Vec::new();
    let mut warnings = Vec::new();
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
    for (index, line) in &mut lines {
        let whole = line.last() == Some(&b'\n');
        // A user may have edited the file by hand, for example to remove a round.
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<Round>(line) {
            // Refused here, so that the analysis may index arms and boots without checking.
            Ok(round) if round.arm >= manifest.arms.len() || round.boot >= manifest.boots.len() => {
                return Err((index + 1, ContentFault::Round));
            }
            Ok(round) if whole => rounds.push(round),
            // A last line without a newline may be truncated, even if it parses.
            _ if !whole => {
                warnings.push(format!("the last round (line {}) was cut short and is left out", index + 1));
            }
            // Not reached: a line is whole or not. The compiler does not see that.
            Ok(_) => {}
            Err(error) => return Err((index + 1, error.into())),
        }
    }
    Ok((rounds, warnings))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::metric::Metric;

    pub(crate) fn manifest(arms: &[&str]) -> Manifest {
        Manifest {
            format: FORMAT.to_owned(),
            version: VERSION,
            tool: "test".to_owned(),
            command_line: vec!["flyball".to_owned(), "compare".to_owned()],
            machine: MachineNote {
                name: "fake".to_owned(),
                simulated: true,
                emulated: None,
                processor: "a processor".to_owned(),
                cpus: 4,
                system: SystemNote::default(),
            },
            workload: WorkloadNote {
                name: "work".to_owned(),
                metric: Metric::wall_time(),
                argv: Vec::new(),
                reader: None,
                cpus: None,
                directory: None,
                server: None,
                background: Vec::new(),
                input: None,
                environment: BTreeMap::new(),
                hooks: Hooks::default(),
                ignore_failure: false,
                accepted_exit_codes: Vec::new(),
                same_output: false,
            },
            arms: arms.iter().map(|name| Arm::new(*name, Vec::new())).collect(),
            boot_needs: Vec::new(),
            schedule: Schedule {
                seed: 1,
                length: Length::Rounds(10),
                warm_up: 1,
                cool_down: 0.0,
                interval: 0.25,
                confidence: 0.99,
                unobserved: false,
                random_layout: false,
                timeout: None,
                least_seconds: None,
                most_seconds: None,
                ended_by_time: false,
                limits: Vec::new(),
            },
            quiet: None,
            boots: Vec::new(),
            trace: false,
            knobs: Vec::new(),
            experiment: None,
            bisect: None,
        }
    }

    pub(crate) fn boot(arms: &[usize]) -> Boot {
        Boot {
            id: "b".to_owned(),
            kernel: "6.12".to_owned(),
            command_line: String::new(),
            driver: None,
            started: 0,
            arms: arms.to_vec(),
            meters: MeterList {
                energy: Vec::new(),
                no_energy: Some("none".to_owned()),
                frequency: Vec::new(),
                no_frequency: None,
                registers: Vec::new(),
                temperature: Vec::new(),
                throttle: false,
                idle_states: Vec::new(),
                counters: false,
                no_counters: None,
            },
        }
    }

    pub(crate) fn round(block: usize, arm: usize, value: f64) -> Round {
        Round {
            boot: 0,
            block,
            arm,
            place: arm,
            warm_up: false,
            started: block as f64,
            moment: Moment::default(),
            notes: Vec::new(),
            outcome: Outcome { value: Some(value), seconds: value, ..Outcome::default() },
            readings: Readings::default(),
            trace: None,
            void: None,
            speed: None,
            conditions: None,
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("run");
        let mut manifest = manifest(&["a", "b"]);
        manifest.boots.push(boot(&[0, 1]));
        let mut written = RunDirectory::create(&path, manifest, None).expect("it can be made");
        written.append(round(0, 1, 0.1 + 0.2)).expect("it can be written");
        written.append(round(0, 0, 1.0 / 3.0)).expect("it can be written");
        let read = RunDirectory::open(&path).expect("it can be read");
        assert_eq!(read.manifest, written.manifest);
        assert_eq!(read.rounds, written.rounds);
        assert!(RunDirectory::create(&path, read.manifest, None).is_err(), "it is not empty");
    }

    #[test]
    fn a_line_cut_short_is_left_out_and_cut_off() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("run");
        let mut manifest = manifest(&["a", "b"]);
        manifest.boots.push(boot(&[0, 1]));
        let mut run = RunDirectory::create(&path, manifest, None).expect("it can be made");
        for block in 0..3 {
            run.append(round(block, 0, 1.0)).expect("it can be written");
        }
        drop(run);
        let log = path.join("rounds.jsonl");
        let bytes = fs::read(&log).expect("it is there");
        // Wherever the power fails, complete lines are read and the log can be continued.
        for length in 0..=bytes.len() {
            fs::write(&log, &bytes[..length]).expect("it can be written");
            let mut run = RunDirectory::open(&path).expect("it can be read");
            let whole = bytes[..length].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(run.rounds.len(), whole, "{length}");
            run.append(round(9, 1, 2.0)).expect("it can be continued");
            let again = RunDirectory::open(&path).expect("it can be read");
            assert_eq!(again.rounds.len(), whole + 1);
            assert_eq!(again.warnings, Vec::<String>::new());
        }
    }

    #[test]
    fn two_writers_do_not_mix_their_rounds() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("run");
        let mut manifest = manifest(&["a", "b"]);
        manifest.boots.push(boot(&[0, 1]));
        let mut first = RunDirectory::create(&path, manifest, None).expect("it can be made");
        let mut second = RunDirectory::open(&path).expect("it can be read");
        first.append(round(0, 0, 1.0)).expect("it can be written");
        let error = second.append(round(0, 0, 2.0)).expect_err("a round was added").to_string();
        assert!(error.contains("another flyball adds rounds"), "{error}");
        assert_eq!(RunDirectory::open(&path).expect("it can be read").rounds.len(), 1);
    }

    #[test]
    fn strangers_are_refused() {
        for (text, want) in [
            ("", "not a manifest"),
            ("{}", "not a manifest"),
            (r#"{"format":"other","version":1}"#, "format is 'other'"),
            (r#"{"format":"flyball-comparison","version":99}"#, "newer flyball"),
        ] {
            let error = parse_manifest(text.as_bytes()).expect_err("not a manifest");
            assert!(error.to_string().contains(want), "{error}");
        }
        let lines = b"{\"boot\":0}\n";
        assert_eq!(parse_rounds(lines, &manifest(&["a"])).expect_err("no round").0, 1);
    }
}
