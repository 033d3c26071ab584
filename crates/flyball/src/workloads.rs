//! What `compare` runs, made of what was typed: a command after `--`, or a workload that flyball knows.

use std::path::PathBuf;

use flyball_host::{CpuList, Host, Kind, Software};
use flyball_measure::{
    Better, Command, Metric,
    preset::{Preset, Reader},
};

use flyball_simhost::PROGRAM;

use crate::exit::Failure;

/// The workloads that flyball knows by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Known {
    /// Two processes and a pair of pipes: round trips per second (as `perf bench sched pipe`).
    SchedPipe,
    /// A fixed loop of arithmetic on one CPU: its time.
    Spin,
    /// Random reads of 4 KiB one after the other, of --file: reads per second.
    #[value(name = "io-4k")]
    Io4k,
    /// Debian's dbench package: tbench_srv and tbench over loopback: MB/s.
    Tbench,
    /// A browser benchmark: bursts of work and pauses (simulated machines only).
    Speedometer,
    /// Nothing but the kernel's housekeeping (simulated machines only).
    Idle,
    /// `make test` (or --target) in the source tree --source: user time, as the kernel's gitsource test counts.
    Gitsource,
}

/// How the workload is given.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Workload")]
pub struct WorkloadArgs {
    /// A workload that flyball knows, instead of a command.
    #[arg(long, value_enum, value_name = "NAME")]
    pub workload: Option<Known>,

    /// On a simulated machine: a workload's description (see `flyball sim show --workload NAME --toml`).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "command"])]
    pub model: Option<PathBuf>,

    /// How long a run of a known workload is: round trips, millions of loop steps, reads, or seconds (tbench).
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub amount: Option<u64>,

    /// Processes of tbench, jobs of make; if not given, as the kernel's selftest: 128, and two a CPU.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,

    /// The file or device that io-4k reads.
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,

    /// The source tree of gitsource.
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,

    /// What gitsource makes.
    #[arg(long, value_name = "TARGET", default_value = "test")]
    pub target: String,

    /// CPUs that the workload may use.
    #[arg(long, value_name = "CPUS")]
    pub pin: Option<CpuList>,

    /// Performance: 'time', a benchmark whose output is known, or a regular expression with one group. Known
    /// benchmarks are recognised by their command line; of other commands the wall time counts.
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,

    /// The unit of a regular expression's number; one that ends in /s is a rate.
    #[arg(long, value_name = "UNIT", requires = "metric", default_value = "")]
    pub unit: String,

    /// Which way is better, of a regular expression's number; if not given, higher for units that end in /s.
    #[arg(long, value_enum, value_name = "WAY", requires = "metric")]
    pub better: Option<Way>,

    /// A shell command to run before each round, neither timed nor metered.
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<String>,

    /// The command and its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// A workload, and what serves it.
pub struct Made {
    /// What is run.
    pub command: Command,
    /// A server that has to run meanwhile.
    pub server: Option<Vec<String>>,
    /// A shell command to run before each round.
    pub prepare: Option<String>,
}

/// Makes the workload for this machine.
pub fn make(host: &dyn Host, args: &WorkloadArgs) -> Result<Made, Failure> {
    if host.kind() == Kind::Recorded {
        return Err(Failure::failed(format!(
            "{} is a recording: nothing can run on it; 'flyball report DIR' reads a comparison",
            host.name()
        )));
    }
    if let Some(software) = host.software() {
        return model(host, software, args);
    }
    let mut made = match (args.workload, args.command.is_empty()) {
        (Some(_), false) => return Err(Failure::usage("give --workload or a command after --, not both")),
        (None, true) => {
            return Err(Failure::usage(
                "nothing to run: give a command after --, as in 'flyball compare --arm now --arm x:turbo=off -- make', \
                 or --workload sched-pipe",
            ));
        }
        (None, false) => {
            let mut command = Command::new(args.command.clone());
            command.reader = Reader::of_command(&args.command);
            Made { command, server: None, prepare: None }
        }
        (Some(known), true) => known.make(host, args)?,
    };
    if let Some(reader) = reader(args)? {
        made.command.reader = reader;
    }
    made.command.cpus.clone_from(&args.pin);
    made.prepare.clone_from(&args.prepare);
    Ok(made)
}

/// The model of a workload, for a machine in software.
fn model(host: &dyn Host, software: &dyn Software, args: &WorkloadArgs) -> Result<Made, Failure> {
    if !args.command.is_empty() {
        return Err(Failure::usage(format!(
            "a command does not run on {}: its work would take the time of the real processors. Give --workload or \
             --model; 'flyball sim run' lets a program see the machine's files",
            host.name()
        )));
    }
    let name = match (&args.model, args.workload) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(known)) => clap::ValueEnum::to_possible_value(&known)
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default(),
        (None, None) => return Err(Failure::usage("nothing to run: give --workload NAME or --model FILE")),
    };
    // The first word marks the record of a comparison as one of a model.
    let mut argv = vec![PROGRAM.to_owned(), name];
    argv.extend(args.amount.map(|amount| amount.to_string()));
    let model = software.model(&argv).map_err(|error| Failure::usage(error.to_string()))?;
    let amount = args.amount.map_or_else(String::new, |amount| format!(" {amount}"));
    let mut command = Command::new(argv);
    command.title = Some(format!("{}{amount} (model)", model.name));
    let metric = match model.rate_unit {
        Some(unit) => Metric::new("rate", unit, Better::Higher),
        None => Metric::wall_time(),
    };
    command.reader = Reader::Model { metric };
    command.cpus.clone_from(&args.pin);
    Ok(Made { command, server: None, prepare: None })
}

fn reader(args: &WorkloadArgs) -> Result<Option<Reader>, Failure> {
    let Some(text) = &args.metric else { return Ok(None) };
    if matches!(text.as_str(), "time" | "wall") {
        return Ok(Some(Reader::WallTime));
    }
    if text == "user-time" {
        return Ok(Some(Reader::UserTime));
    }
    if let Some(preset) = Preset::named(text) {
        return Ok(Some(Reader::Preset { preset }));
    }
    if !text.contains('(') {
        let names: Vec<&str> = Preset::ALL.iter().map(|(name, _)| *name).collect();
        return Err(Failure::usage(format!(
            "no metric '{text}'; there are time, user-time, {}, or a regular expression with one group around the \
             number, as in --metric 'score: ([0-9.]+)' --unit points --better higher",
            names.join(", ")
        )));
    }
    let better = match args.better {
        Some(Way::Higher) => Better::Higher,
        Some(Way::Lower) => Better::Lower,
        None if args.unit.ends_with("/s") => Better::Higher,
        None => return Err(Failure::usage("say which way is better: --better higher or --better lower")),
    };
    Reader::expression(text, &args.unit, better)
        .map(Some)
        .map_err(|error| Failure::usage(format!("--metric: {error}")))
}

/// The command line of one of flyball's own tasks.
fn task(words: &[&str]) -> Result<Vec<String>, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find flyball's own program: {error}")))?;
    let own = own.to_str().ok_or_else(|| Failure::failed("flyball's own path is not UTF-8"))?.to_owned();
    let mut argv = vec![own, "task".to_owned()];
    argv.extend(words.iter().map(|word| (*word).to_owned()));
    Ok(argv)
}

impl Known {
    fn make(self, host: &dyn Host, args: &WorkloadArgs) -> Result<Made, Failure> {
        let amount = |default: u64| args.amount.unwrap_or(default).to_string();
        let preset = |preset| Reader::Preset { preset };
        let (argv, reader, title, server) = match self {
            Known::SchedPipe => {
                // As many as perf bench makes.
                let amount = amount(1_000_000);
                let title = format!("sched-pipe, {amount} round trips");
                (task(&["sched-pipe", &amount])?, preset(Preset::SchedPipe), title, None)
            }
            Known::Spin => {
                let amount = amount(1000);
                let title = format!("spin, {amount} million steps");
                (task(&["spin", &amount])?, preset(Preset::Spin), title, None)
            }
            Known::Io4k => {
                let file = args
                    .file
                    .as_ref()
                    .ok_or_else(|| Failure::usage("io-4k needs --file: a large file or a device"))?;
                let name = file.to_str().ok_or_else(|| Failure::usage("--file: the path is not UTF-8"))?;
                let amount = amount(20_000);
                let title = format!("io-4k, {amount} reads of {name}");
                (task(&["io-4k", &amount, "--file", name])?, preset(Preset::Io4k), title, None)
            }
            Known::Tbench => {
                let seconds = amount(100);
                let jobs = args.jobs.unwrap_or(128).to_string();
                let argv = ["tbench", "-t", &seconds, &jobs].map(str::to_owned).to_vec();
                let title = format!("tbench, {jobs} clients, {seconds} s");
                (argv, preset(Preset::Tbench), title, Some(vec!["tbench_srv".to_owned()]))
            }
            Known::Speedometer | Known::Idle => {
                return Err(Failure::usage(
                    "this workload is a model: it runs on a simulated machine only, -M sim:NAME",
                ));
            }
            Known::Gitsource => {
                let online: CpuList = host
                    .read("/sys/devices/system/cpu/online")
                    .ok()
                    .and_then(|text| text.parse().ok())
                    .unwrap_or_default();
                let jobs = args.jobs.unwrap_or(2 * online.len().max(1) as u32);
                let argv = vec!["make".to_owned(), args.target.clone(), format!("-j{jobs}")];
                let title = format!("gitsource, make {} -j{jobs}", args.target);
                (argv, Reader::UserTime, title, None)
            }
        };
        let mut command = Command::new(argv);
        command.reader = reader;
        command.title = Some(title);
        if self == Known::Gitsource {
            let tree = args
                .source
                .as_ref()
                .ok_or_else(|| Failure::usage("gitsource needs --source: a source tree"))?;
            if !tree.join("Makefile").exists() {
                return Err(Failure::usage(format!(
                    "no Makefile in {}; configure the source tree first",
                    tree.display()
                )));
            }
            command.directory = Some(tree.clone());
        }
        Ok(Made { command, server, prepare: None })
    }
}
