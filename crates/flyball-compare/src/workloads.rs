//! The workloads of `compare`: a command after `--`, or a built-in workload.

use std::{io, path::PathBuf};

use clap::{ValueEnum as _, builder::PossibleValuesParser};
use flyball_host::{CpuList, Host, Kind, Software, online_cpus};
use flyball_measure::{
    BackgroundNote, Better, Command, Hooks, Metric, Program,
    preset::{ExpressionError, Preset, Reader},
    quote,
    suite::Suite,
    task,
};

use flyball_simhost::PROGRAM;

use crate::pin::{Pin, PinError};

/// Why a workload cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(
        "{machine} is a recording: nothing can run on it; 'flyball report DIR' shows a finished comparison"
    )]
    Recording { machine: String },
    #[error("give --workload or a command after --, not both")]
    Both,
    #[error(
        "nothing to run: give programs as in 'flyball compare ./old ./new', a command after --, as in 'flyball compare \
         --arm now --arm x:turbo=off -- make', or --workload sched-pipe"
    )]
    Nothing,
    #[error("nothing to run: give --workload NAME or --model FILE")]
    NoModel,
    #[error("there are more --beside-pin than --beside")]
    BesidePins,
    #[error(
        "a command does not run on {machine}: its work would take the time of the real processors. Give --workload or \
         --model; 'flyball sim run' lets a program see the machine's files"
    )]
    CommandOnModel { machine: String },
    #[error("{option} has no effect on {machine}: a model runs there, not a program")]
    NotOnModel { option: &'static str, machine: String },
    #[error(transparent)]
    Model(io::Error),
    #[error("--beside: {0}")]
    Beside(io::Error),
    #[error(
        "unknown metric '{name}' (expected time, cpu-time, user-time, {}, or a regular expression with one group around the \
         number, as in --metric 'score: ([0-9.]+)' --unit points --better higher)",
        Preset::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    )]
    Metric { name: String },
    #[error("give the better direction: --better higher or --better lower")]
    NoDirection,
    #[error("--exact is for the numbers of an expression or a suite, and '{name}' is neither")]
    Exact { name: String },
    #[error("--metric: {0}")]
    Expression(#[from] ExpressionError),
    #[error(transparent)]
    Pin(#[from] PinError),
    #[error("cannot find flyball's own program: {0}")]
    OwnProgram(io::Error),
    #[error("flyball's own path is not UTF-8")]
    OwnPath,
    #[error("io-4k needs --file with a large file or a device")]
    NoFile,
    #[error("--file: the path is not UTF-8")]
    FilePath,
    #[error("this workload is a model and runs only on a simulated machine: -M sim:NAME")]
    OnlyModel,
    #[error("gitsource needs --source with a source tree")]
    NoSource,
    #[error("no Makefile in {}; configure the source tree first", tree.display())]
    NoMakefile { tree: PathBuf },
}

/// Built-in workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BuiltIn {
    /// Round trips per second between two processes over a pair of pipes (as
    /// `perf bench sched pipe`).
    SchedPipe,
    /// The time of a fixed arithmetic loop on one CPU.
    Spin,
    /// Random 4 KiB reads per second of --file, one after the other.
    #[value(name = "io-4k")]
    Io4k,
    /// MB/s of tbench and tbench_srv (Debian package dbench) over loopback.
    Tbench,
    /// A model of a browser benchmark: bursts of work and pauses (simulated machines only).
    Speedometer,
    /// A model of an interpreter that calls functions, as pyperformance's bm_call_simple (simulated
    /// machines only).
    CallSimple,
    /// A model of an idle system (simulated machines only).
    Idle,
    /// User time of `make test` (or --target) in the source tree --source, as in the kernel's
    /// gitsource test.
    Gitsource,
}

/// The loads of `--beside`, by the names of the simulator's models of them.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Load {
    Spin,
    Memory,
    Bursts,
}

impl Load {
    /// The task that runs it.
    pub fn into_task(self) -> task::Load {
        match self {
            Load::Spin => task::Load::Spin,
            Load::Memory => task::Load::Memory,
            Load::Bursts => task::Load::Bursts,
        }
    }
}

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Workload")]
pub struct WorkloadArgs {
    /// Built-in workload instead of a command.
    #[arg(long, value_enum, value_name = "NAME")]
    pub workload: Option<BuiltIn>,

    /// On a simulated machine: file with a workload model.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "command"], hide_short_help = true)]
    pub model: Option<PathBuf>,

    /// Length of a built-in workload: round trips (sched-pipe), millions of loop steps (spin),
    /// reads (io-4k), loops (call-simple), processes (gitsource), or seconds (tbench). On a
    /// simulated machine a loop step is a cycle, and all CPUs of the workload count together.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub amount: Option<u64>,

    /// Processes of tbench [default: 128], or jobs of make [default: two per CPU].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    pub jobs: Option<u32>,

    /// File or device that io-4k reads.
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub file: Option<PathBuf>,

    /// Source tree of gitsource.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub source: Option<PathBuf>,

    /// Make target of gitsource.
    #[arg(long, value_name = "TARGET", default_value = "test", hide_short_help = true)]
    pub target: String,

    /// CPUs that the workload may use; best:N for the N preferred cores.
    #[arg(long, value_name = "CPUS")]
    pub pin: Option<Pin>,

    /// Background load during every round: spin, memory, bursts, or a shell command. On a simulated
    /// machine, any model. May be repeated.
    #[arg(long, value_name = "LOAD", hide_short_help = true)]
    pub beside: Vec<String>,

    /// CPUs of the load that --beside names, in the same order.
    #[arg(long, value_name = "CPUS", hide_short_help = true)]
    pub beside_pin: Vec<CpuList>,

    /// Performance metric of a round. METRIC is 'time', a known benchmark, or a regular expression
    /// with one group. Known benchmarks are recognised by their command line; other commands are
    /// measured by wall time.
    #[arg(long, value_name = "METRIC", group = "read")]
    pub metric: Option<String>,

    /// Compare the cases of a benchmark suite, which each round runs once. {suite} in the command
    /// stands for a file that the suite writes. Without it, the suite's standard output is read.
    #[arg(long, value_name = "KIND", group = "read", value_parser = PossibleValuesParser::new(Suite::names()))]
    pub suite: Option<String>,

    /// Unit of the regular expression's number, or of a CSV suite; if it ends in /s, higher is
    /// better.
    #[arg(long, value_name = "UNIT", requires = "read", default_value = "", hide_short_help = true)]
    pub unit: String,

    /// Which direction is better [default: higher for units that end in /s].
    #[arg(long, value_enum, value_name = "WAY", requires = "read", hide_short_help = true)]
    pub better: Option<Direction>,

    /// The numbers are exact, as counts of instructions or bytes are: equal ones show that arms are
    /// the same. Printed times and rates are rounded, and equal ones show nothing.
    #[arg(long, requires = "read", hide_short_help = true)]
    pub exact: bool,

    /// Shell command to run before each round, not measured.
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<String>,

    /// The command and its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl WorkloadArgs {
    /// The CPUs that the workload may use, if not all.
    pub fn cpus(&self, host: &dyn Host) -> Result<Option<CpuList>, PrepareError> {
        Ok(self.pin.as_ref().map(|pin| pin.cpus(host)).transpose()?)
    }
}

/// The direction in which a metric improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Direction {
    Higher,
    Lower,
}

/// A workload, and the server that it needs.
pub struct PreparedWorkload {
    pub command: Command,
    /// A server that must run during the rounds.
    pub server: Option<Vec<String>>,
    /// Loads that run during each round.
    pub background: Vec<BackgroundNote>,
    /// Shell commands to run around rounds.
    pub hooks: Hooks,
}

impl PreparedWorkload {
    fn new(command: Command) -> PreparedWorkload {
        PreparedWorkload { command, server: None, background: Vec::new(), hooks: Hooks::default() }
    }
}

/// The workload that the arguments describe, for this machine.
pub fn prepare(host: &dyn Host, args: &WorkloadArgs) -> Result<PreparedWorkload, PrepareError> {
    if host.kind() == Kind::Recorded {
        return Err(PrepareError::Recording { machine: host.name() });
    }
    if let Some(software) = host.software() {
        return model(host, software, args);
    }
    let mut made = match (args.workload, args.command.is_empty()) {
        (Some(_), false) => return Err(PrepareError::Both),
        (None, true) => return Err(PrepareError::Nothing),
        (None, false) => {
            let mut command = Command::new(args.command.clone());
            // Before --metric, which overrides it.
            command.reader = Reader::for_command(&args.command);
            PreparedWorkload::new(command)
        }
        (Some(known), true) => known.make(host, args)?,
    };
    if let Some(reader) = reader(args)? {
        made.command.reader = reader;
    }
    made.command.cpus = args.cpus(host)?;
    made.hooks.prepare.clone_from(&args.prepare);
    made.background = live_background(args)?;
    Ok(made)
}

/// Prepares the shared parts of a workload whose arms run their own programs.
pub fn prepare_programs<'a>(
    host: &dyn Host,
    args: &WorkloadArgs,
    programs: impl Iterator<Item = &'a Program> + Clone,
) -> Result<PreparedWorkload, PrepareError> {
    if host.kind() == Kind::Recorded {
        return Err(PrepareError::Recording { machine: host.name() });
    }
    if host.software().is_some() {
        return Err(PrepareError::CommandOnModel { machine: host.name() });
    }
    if args.workload.is_some() {
        return Err(PrepareError::Both);
    }
    let mut command = Command::new(Vec::new());
    let mut lines: Vec<String> = Vec::new();
    for line in programs.clone().map(|program| quote(&program.argv)) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    command.title = Some(lines.join(" | "));
    let mut readers = programs.map(|program| Reader::for_command(&program.argv));
    // One metric for all: programs with different output have only their time in common.
    let first = readers.next().unwrap_or(Reader::WallTime);
    let common = if readers.all(|reader| reader == first) { first } else { Reader::WallTime };
    command.reader = reader(args)?.unwrap_or(common);
    command.cpus = args.cpus(host)?;
    let mut made = PreparedWorkload::new(command);
    made.hooks.prepare.clone_from(&args.prepare);
    made.background = live_background(args)?;
    Ok(made)
}

/// The loads that run during each round on a real machine.
fn live_background(args: &WorkloadArgs) -> Result<Vec<BackgroundNote>, PrepareError> {
    background(args, |load| match Load::from_str(load, false) {
        Ok(_) => own_task(&["load", load]),
        Err(_) => Ok(["/bin/sh", "-c", load].map(str::to_owned).to_vec()),
    })
}

/// The loads that run during each round, with the command line of each.
fn background(
    args: &WorkloadArgs,
    argv: impl Fn(&str) -> Result<Vec<String>, PrepareError>,
) -> Result<Vec<BackgroundNote>, PrepareError> {
    if args.beside_pin.len() > args.beside.len() {
        return Err(PrepareError::BesidePins);
    }
    let loads = args.beside.iter().enumerate().map(|(place, name)| {
        let cpus = args.beside_pin.get(place).map(ToString::to_string);
        Ok(BackgroundNote { name: name.clone(), argv: argv(name)?, cpus })
    });
    loads.collect()
}

/// The model of a workload, for a simulated machine.
fn model(
    host: &dyn Host,
    software: &dyn Software,
    args: &WorkloadArgs,
) -> Result<PreparedWorkload, PrepareError> {
    if !args.command.is_empty() {
        return Err(PrepareError::CommandOnModel { machine: host.name() });
    }
    for (given, option) in
        [(&args.prepare, "--prepare"), (&args.metric, "--metric"), (&args.suite, "--suite")]
    {
        if given.is_some() {
            return Err(PrepareError::NotOnModel { option, machine: host.name() });
        }
    }
    let name = match (&args.model, args.workload) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(known)) => {
            known.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
        }
        (None, None) => return Err(PrepareError::NoModel),
    };
    // The first word marks the recorded comparison as one of a model.
    let mut argv = vec![PROGRAM.to_owned(), name];
    argv.extend(args.amount.map(|amount| amount.to_string()));
    let model = software.model(&argv).map_err(PrepareError::Model)?;
    let amount = args.amount.map_or_else(String::new, |amount| format!(" {amount}"));
    let mut command = Command::new(argv);
    command.title = Some(format!("{}{amount} (model)", model.name));
    let metric = match model.rate_unit {
        Some(unit) => Metric::new("rate", unit, Better::Higher),
        None => Metric::wall_time(),
    };
    command.reader = Reader::Model { metric };
    command.cpus = args.cpus(host)?;
    let background = background(args, |load| {
        let argv = [PROGRAM, load, "--endless"].map(str::to_owned).to_vec();
        software.model(&argv).map_err(PrepareError::Beside)?;
        Ok(argv)
    })?;
    Ok(PreparedWorkload { background, ..PreparedWorkload::new(command) })
}

fn reader(args: &WorkloadArgs) -> Result<Option<Reader>, PrepareError> {
    if let Some(suite) = args.suite.as_deref().and_then(Suite::named) {
        let (unit, better) = match suite.unit() {
            Some(known) => known,
            None => (args.unit.as_str(), direction(args)?),
        };
        return Ok(Some(Reader::Suite { suite, exact: args.exact, metric: Metric::suite(unit, better) }));
    }
    let Some(text) = &args.metric else { return Ok(None) };
    if args.exact && !text.contains('(') {
        return Err(PrepareError::Exact { name: text.clone() });
    }
    // Names come before expressions: none of them has a group.
    if matches!(text.as_str(), "time" | "wall") {
        return Ok(Some(Reader::WallTime));
    }
    if text == "user-time" {
        return Ok(Some(Reader::UserTime));
    }
    if text == "cpu-time" {
        return Ok(Some(Reader::CpuTime));
    }
    if let Some(preset) = Preset::named(text) {
        return Ok(Some(Reader::Preset { preset }));
    }
    // A word without a group is a misspelled name, not an expression that reads a number.
    if !text.contains('(') {
        return Err(PrepareError::Metric { name: text.clone() });
    }
    Ok(Some(Reader::expression(text, &args.unit, direction(args)?, args.exact)?))
}

/// The direction in which the numbers of `--metric` or `--suite` improve.
fn direction(args: &WorkloadArgs) -> Result<Better, PrepareError> {
    match args.better {
        Some(Direction::Higher) => Ok(Better::Higher),
        Some(Direction::Lower) => Ok(Better::Lower),
        // Only rates: for any other unit (points, ms) either direction is possible, and a wrong
        // guess would reverse the verdict.
        None if args.unit.ends_with("/s") => Ok(Better::Higher),
        None => Err(PrepareError::NoDirection),
    }
}

/// The command line of one of flyball's own tasks.
fn own_task(words: &[&str]) -> Result<Vec<String>, PrepareError> {
    let own = std::env::current_exe().map_err(PrepareError::OwnProgram)?;
    // The words of a workload are stored in the manifest, which is JSON.
    let own = own.to_str().ok_or(PrepareError::OwnPath)?.to_owned();
    let mut argv = vec![own, "task".to_owned()];
    argv.extend(words.iter().map(|word| (*word).to_owned()));
    Ok(argv)
}

impl BuiltIn {
    fn make(self, host: &dyn Host, args: &WorkloadArgs) -> Result<PreparedWorkload, PrepareError> {
        let amount = |default: u64| args.amount.unwrap_or(default).to_string();
        let preset = |preset| Reader::Preset { preset };
        let (argv, reader, title, server) = match self {
            BuiltIn::SchedPipe => {
                // perf bench makes as many.
                let amount = amount(1_000_000);
                let title = format!("sched-pipe, {amount} round trips");
                (own_task(&["sched-pipe", &amount])?, preset(Preset::SchedPipe), title, None)
            }
            BuiltIn::Spin => {
                let amount = amount(1000);
                let title = format!("spin, {amount} million steps");
                (own_task(&["spin", &amount])?, preset(Preset::Spin), title, None)
            }
            BuiltIn::Io4k => {
                let file = args.file.as_ref().ok_or(PrepareError::NoFile)?;
                let name = file.to_str().ok_or(PrepareError::FilePath)?;
                let amount = amount(20_000);
                let title = format!("io-4k, {amount} reads of {name}");
                (own_task(&["io-4k", &amount, "--file", name])?, preset(Preset::Io4k), title, None)
            }
            BuiltIn::Tbench => {
                // tools/testing/selftests/amd-pstate/run.sh: 100 s and 128 clients.
                let seconds = amount(100);
                let jobs = args.jobs.unwrap_or(128).to_string();
                let argv = ["tbench", "-t", &seconds, &jobs].map(str::to_owned).to_vec();
                let title = format!("tbench, {jobs} clients, {seconds} s");
                (argv, preset(Preset::Tbench), title, Some(vec!["tbench_srv".to_owned()]))
            }
            BuiltIn::Speedometer | BuiltIn::CallSimple | BuiltIn::Idle => {
                return Err(PrepareError::OnlyModel);
            }
            BuiltIn::Gitsource => {
                let online = online_cpus(host).unwrap_or_default();
                // Two per CPU online, as gitsource.sh computes it.
                let jobs = args.jobs.unwrap_or(2 * online.len().max(1) as u32);
                let argv = vec!["make".to_owned(), args.target.clone(), format!("-j{jobs}")];
                let title = format!("gitsource, make {} -j{jobs}", args.target);
                (argv, Reader::UserTime, title, None)
            }
        };
        let mut command = Command::new(argv);
        command.reader = reader;
        command.title = Some(title);
        if self == BuiltIn::Gitsource {
            // Checked here, because make without a Makefile would fail only in the first round, on
            // a machine that was already set up.
            let tree = args.source.as_ref().ok_or(PrepareError::NoSource)?;
            if !tree.join("Makefile").exists() {
                return Err(PrepareError::NoMakefile { tree: tree.clone() });
            }
            command.directory = Some(tree.clone());
        }
        Ok(PreparedWorkload { server, ..PreparedWorkload::new(command) })
    }
}
