//! `flyball compare`: one workload under several settings, in a fair order, with energy, and a verdict.

pub mod simulated;
mod witness;

use std::{
    fs::File,
    io::IsTerminal,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use flyball_control::quiet::Level;
use flyball_host::{Host, Kind, Launch, Running};
use flyball_measure::{
    Arm, Command, Conductor, End, Event, FORMAT, Length, MachineNote, Manifest, MeasureError, Meters,
    QuietNote, RecordError, RunDirectory, Schedule, Stop, VERSION, Workload, WorkloadNote, preset::Reader,
    stats,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{
    arms::{self, Knobs},
    change,
    cli::Cli,
    commands::quiet::{Quiet, hold::Hush},
    exit::{Exit, Failure},
    machine, workloads,
};

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Arms run in turns: every block has a round of each, in an order drawn anew. Rounds of one block are compared with each
other, so that what drifts over the hours does not count. The first arm is what the others are compared with. Settings
are put back at the end, also after Ctrl-C (which keeps what was measured) or a crash.

  flyball compare --arm now --arm 'perf: governor=performance' -- make -j8
  flyball compare --matrix governor=performance,powersave --matrix turbo=on,off --workload sched-pipe --pin 2-3
  flyball compare --arm now --arm 'epp: epp=balance_power' --until 1% -- tbench -t 20 8
  flyball compare --trace --arm 'gov: governor=schedutil' --arm 'auto: amd-mode=active' -- ./bench
  flyball compare --arm now --arm slow:max-freq=2GHz --metric 'score: ([0-9.]+)' --unit points/s -- ./bench
  flyball compare --arm 'pstate:' --arm 'acpi: driver=acpi-cpufreq' -- ./bench    then boot as told and
  flyball compare --resume DIR                                                   run the other arm

With --quiet the machine is made quiet first, for the CPUs of --pin, and put back last; what an arm sets comes on top.
Others' load, stolen time, interrupts and memory pressure are watched in every round. A round whose conditions were bad
is shown and left out, whatever its value; what is bad in most rounds of an arm and can be its own doing (a frequency
that moves, heat) counts.

  flyball compare --quiet=light --pin 3 --arm now --arm 'c1: latency-limit=2us' -- ./bench

An arm is 'NAME: KNOB=VALUE KNOB=VALUE'; KNOB@CPUS=VALUE sets it on some CPUs only; 'now' is the machine as it is.
driver=NAME, boot=WORD and boot:PARAMETER=VALUE need another boot; such arms wait for --resume.

Exit: 0 done, 1 failed (settings are back), 2 cannot be used as typed, 3 putting back failed too, 4 this machine has no
such knob, 6 another flyball holds the machine, 130 stopped by Ctrl-C or a signal (settings are back).")]
pub struct Args {
    /// An arm: 'NAME: KNOB=VALUE ...', or 'now'. The first is what the others are compared with.
    #[arg(long, value_name = "ARM")]
    arm: Vec<String>,

    /// A knob with several values; all combinations with other --matrix are arms.
    #[arg(long, value_name = "KNOB=V1,V2")]
    matrix: Vec<String>,

    /// Blocks, each with a round of every arm.
    #[arg(long, value_name = "COUNT", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,

    /// Instead of a number of blocks: go on until the difference of every arm is known this well (half the width of
    /// its confidence interval).
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, conflicts_with = "rounds")]
    until: Option<f64>,

    /// Blocks at most, with --until.
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_rounds: u32,

    /// Rounds of each arm at the start that do not count.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1000))]
    warm_up: u32,

    /// Pause before each round, for the processor to cool down.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = parse_seconds)]
    cool_down: f64,

    /// Time between two readings of the meters in a round.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.25, value_parser = parse_seconds)]
    interval: f64,

    /// Confidence of intervals and verdicts, in percent.
    #[arg(long, value_name = "PERCENT", default_value = "99%", value_parser = parse_confidence)]
    confidence: f64,

    /// Seed of the order; if not given, drawn and recorded.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Record the driver's decisions in each round (trace-*.dat in the run directory): decisions a second, the
    /// frequency while running and the lag become columns of the report; `flyball trace report` shows a round's.
    #[arg(long)]
    trace: bool,

    /// Keep the machine quiet around all rounds (light, steady or fixed; see flyball quiet), beneath the arms' own
    /// settings, and leave rounds out of the verdict whose conditions were bad.
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "steady")]
    quiet: Option<Level>,

    /// Leave rounds out in which the workload fails, instead of ending.
    #[arg(long)]
    ignore_failure: bool,

    /// The run directory; if not given, flyball-compare-DATE-TIME here.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Continue a comparison: one that was stopped, or one whose other arms needed this boot.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["arm", "matrix", "output", "rounds", "until", "seed", "trace", "quiet", "command", "workload"])]
    resume: Option<PathBuf>,

    /// Print the arms' writes, the order and the time, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,

    #[command(flatten)]
    workload: workloads::WorkloadArgs,
}

impl Args {
    /// The run directory, for a caller that has to know it before the comparison runs.
    pub(super) fn directory(&self) -> PathBuf {
        let named = self.resume.as_ref().or(self.output.as_ref()).cloned();
        named.unwrap_or_else(|| PathBuf::from(format!("flyball-compare-{}", time_stamp())))
    }

    /// Whether the command line says which directory that is.
    pub(super) fn names_directory(&self) -> bool {
        self.resume.is_some() || self.output.is_some()
    }

    /// Whether an earlier comparison goes on.
    pub(super) fn resumes(&self) -> bool {
        self.resume.is_some()
    }

    /// Whether nothing is run.
    pub(super) fn dry_run(&self) -> bool {
        self.dry_run
    }
}

fn parse_number(text: &str, what: &str) -> Result<f64, String> {
    text.trim().parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(|| format!("write {what}"))
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let what = "a percentage above 0, as 1% or 0.5%";
    let value = parse_number(text.trim().trim_end_matches('%'), what)? / 100.0;
    if value > 0.0 && value < 1.0 { Ok(value) } else { Err(format!("write {what}")) }
}

fn parse_confidence(text: &str) -> Result<f64, String> {
    let value = parse_percent(text)?;
    if (0.5..=0.9999).contains(&value) { Ok(value) } else { Err("write 50% to 99.99%".to_owned()) }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let what = "seconds, as 5 or 0.5";
    let value = parse_number(text.trim().trim_end_matches('s'), what)?;
    if (0.0..=86_400.0).contains(&value) { Ok(value) } else { Err(format!("write {what}, a day at most")) }
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, message)
}

/// Runs the comparison, or says how it would run.
pub fn run(cli: &Cli, args: &Args) -> Result<Exit, Failure> {
    if let Some(machine) = machine::simulated(&cli.machine)? {
        return simulated::run(cli, args, &machine);
    }
    let host = machine::open(&cli.machine)?;
    if let Some(path) = &args.resume {
        let directory = RunDirectory::open(path).map_err(|error| record_failure(&error))?;
        check_same_machine(&*host, &directory.manifest)?;
        if args.dry_run {
            return dry_run(cli, &*host, &directory.manifest);
        }
        return conduct(cli, &*host, directory);
    }
    let arms = Arm::all(&args.arm, &args.matrix).map_err(|error| usage(error.to_string()))?;
    let workload = workloads::make(&*host, &args.workload)?;
    let mut manifest = manifest(&*host, args, arms, &workload);
    // Everything that can be wrong with the arms is told before anything is made or written.
    for arm in &manifest.arms {
        arms::intent(arm)?;
    }
    let hush = args
        .quiet
        .map(|level| {
            let cpus = args.workload.pin.clone();
            let quiet = Quiet { level, cpus, freq: None, keep_aslr: true };
            quiet_beneath(&*host, &quiet, &mut manifest)
        })
        .transpose()?;
    if args.dry_run {
        return dry_run(cli, &*host, &manifest);
    }
    let path =
        args.output.clone().unwrap_or_else(|| PathBuf::from(format!("flyball-compare-{}", time_stamp())));
    let interrupted = change::interrupts()?;
    if args.trace {
        witness::check(&*host)?;
    }
    // The machine is taken before a directory is made: a refusal leaves nothing behind.
    let knobs = Knobs::take(cli, &*host, &manifest.arms, &interrupted, hush)?;
    let directory = RunDirectory::create(&path, manifest).map_err(|error| record_failure(&error))?;
    conduct_with(cli, &*host, directory, knobs, interrupted)
}

fn conduct(cli: &Cli, host: &dyn Host, directory: RunDirectory) -> Result<Exit, Failure> {
    let interrupted = change::interrupts()?;
    let mut manifest = directory.manifest.clone();
    let hush = match resumed_quiet(&directory.manifest)? {
        Some(quiet) => Some(quiet_beneath(host, &quiet, &mut manifest)?),
        None => None,
    };
    let knobs = Knobs::take(cli, host, &directory.manifest.arms, &interrupted, hush)?;
    conduct_with(cli, host, directory, knobs, interrupted)
}

/// Decides what keeps the machine quiet beneath the arms, and notes it in the manifest.
fn quiet_beneath(host: &dyn Host, quiet: &Quiet, manifest: &mut Manifest) -> Result<Hush, Failure> {
    let hush = Hush::decide(host, quiet)?;
    manifest.quiet = Some(QuietNote {
        level: quiet.level.to_string(),
        cpus: hush.recipe.cpus.to_string(),
        settings: hush.recipe.settings.iter().map(|ingredient| ingredient.setting.clone()).collect(),
        cannot: hush.recipe.cannot.clone(),
    });
    Ok(hush)
}

/// The quiet that a comparison was begun in.
fn resumed_quiet(manifest: &Manifest) -> Result<Option<Quiet>, Failure> {
    let Some(note) = &manifest.quiet else { return Ok(None) };
    let level = note.level.parse().map_err(usage)?;
    let cpus = manifest.workload.cpus.as_ref().and_then(|cpus| cpus.parse().ok());
    Ok(Some(Quiet { level, cpus, freq: None, keep_aslr: true }))
}

fn conduct_with(
    cli: &Cli,
    host: &dyn Host,
    mut directory: RunDirectory,
    mut knobs: Knobs<'_>,
    interrupted: Arc<AtomicBool>,
) -> Result<Exit, Failure> {
    for warning in &directory.warnings {
        eprintln!("note: {warning}");
    }
    let mut workload = command_of(&directory.manifest.workload);
    workload.group.clone_from(&knobs.group);
    let mut prepare = directory.manifest.workload.prepare.as_ref().map(|script| {
        let mut command = Command::new(["/bin/sh", "-c", script].map(str::to_owned).to_vec());
        command.directory.clone_from(&directory.manifest.workload.directory);
        command
    });
    let meters = Meters::find(host, workload.cpus.as_ref());
    let stop = Stop::watching(interrupted);
    let mut witness =
        directory.manifest.trace.then(|| witness::Live::new(host, directory.path())).transpose()?;
    let server = directory.manifest.workload.server.clone().map(|argv| start_server(&argv)).transpose()?;
    let mut progress = Progress::new();
    let outcome = Conductor {
        host,
        settings: &mut knobs,
        workload: &mut workload,
        meters: &meters,
        stop: &stop,
        ignore_failure: directory.manifest.workload.ignore_failure,
        prepare: prepare.as_mut().map(|command| command as &mut dyn Workload),
        witness: witness.as_mut().map(|witness| witness as &mut dyn flyball_measure::Witness),
    }
    .conduct(&mut directory, &mut |event| progress.show(event));
    progress.end();
    if let Some(server) = server {
        let _ = server.stop(Duration::from_secs(1));
    }
    conclude(cli, &directory, outcome)
}

/// Prints what was measured and says how it ended.
fn conclude(
    cli: &Cli,
    directory: &RunDirectory,
    outcome: Result<End, MeasureError>,
) -> Result<Exit, Failure> {
    let measured = directory.rounds.iter().any(|round| !round.warm_up);
    if measured {
        super::report::write_and_print(cli, directory, directory.path())?;
    }
    match outcome {
        Ok(End::Complete) => {
            waiting(directory);
            Ok(Exit::Done)
        }
        Ok(End::Stopped) => {
            eprintln!(
                "flyball: stopped; settings are as they were. {} rounds are kept: flyball compare --resume {}",
                directory.rounds.len(),
                directory.path().display()
            );
            Ok(Exit::Command(130))
        }
        Err(error) => {
            let exit = match &error {
                MeasureError::Restore { .. } => Exit::HalfDone,
                _ => Exit::Failed,
            };
            let kept = if measured {
                format!("\nwhat was measured is in {}", directory.path().display())
            } else {
                String::new()
            };
            Err(Failure::new(exit, format!("{error}{kept}")))
        }
    }
}

/// Says which arms wait for another boot.
fn waiting(directory: &RunDirectory) {
    let manifest = &directory.manifest;
    for (index, arm) in manifest.arms.iter().enumerate() {
        let ran = directory.rounds.iter().any(|round| round.arm == index && !round.warm_up);
        if let (false, Some(Some(needed))) = (ran, manifest.boot_needs.get(index)) {
            eprintln!(
                "arm '{}' needs a boot with {needed} on the kernel's command line; then: flyball compare --resume {}",
                arm.name,
                directory.path().display()
            );
        }
    }
}

/// The command that a manifest describes.
fn command_of(note: &WorkloadNote) -> Command {
    let mut command = Command::new(note.argv.clone());
    command.title = Some(note.name.clone());
    command.reader = note.reader.clone().unwrap_or(Reader::WallTime);
    command.cpus = note.cpus.as_ref().and_then(|text| text.parse().ok());
    command.directory.clone_from(&note.directory);
    command
}

fn manifest(host: &dyn Host, args: &Args, arms: Vec<Arm>, made: &workloads::Made) -> Manifest {
    let alpha = 1.0 - args.confidence;
    let length = match args.until {
        Some(half_width) => {
            let least = stats::pairs_needed(alpha, 1);
            Length::Until { half_width, least, most: (args.max_rounds as usize).max(least) }
        }
        None => Length::Rounds(args.rounds as usize),
    };
    let needed = stats::pairs_needed(alpha, arms.len() - 1);
    if let Length::Rounds(rounds) = length
        && rounds < needed
    {
        eprintln!(
            "note: {rounds} rounds of {} arms cannot show a difference at {} % confidence; {needed} can",
            arms.len(),
            args.confidence * 100.0
        );
    }
    let cpus = host.read("/sys/devices/system/cpu/online").ok();
    let processor = host.read("/proc/cpuinfo").unwrap_or_default();
    let processor = processor
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned())
        })
        .unwrap_or_else(|| "unknown processor".to_owned());
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    Manifest {
        format: FORMAT.to_owned(),
        version: VERSION,
        tool: format!("flyball {}", env!("CARGO_PKG_VERSION")),
        machine: MachineNote {
            name: host.name(),
            simulated: host.kind() == Kind::Simulated,
            processor,
            cpus: cpus
                .and_then(|text| text.parse::<flyball_host::CpuList>().ok())
                .map_or(0, |cpus| cpus.len()),
        },
        workload: WorkloadNote {
            name: made.command.name(),
            metric: made.command.metric(),
            argv: made.command.argv.clone(),
            reader: Some(made.command.reader.clone()),
            cpus: made.command.cpus.as_ref().map(ToString::to_string),
            directory: made.command.directory.clone(),
            server: made.server.clone(),
            prepare: args.workload.prepare.clone(),
            ignore_failure: args.ignore_failure,
        },
        quiet: None,
        boot_needs: vec![None; arms.len()],
        arms,
        schedule: Schedule {
            // Five digits are enough, and can be typed again.
            seed: args.seed.unwrap_or((nanoseconds / 1000) % 100_000),
            length,
            warm_up: args.warm_up as usize,
            cool_down: args.cool_down,
            interval: args.interval,
            confidence: args.confidence,
        },
        boots: Vec::new(),
        trace: args.trace,
    }
}

/// Refuses to continue on another machine.
fn check_same_machine(host: &dyn Host, manifest: &Manifest) -> Result<(), Failure> {
    let processor = host.read("/proc/cpuinfo").unwrap_or_default();
    if host.name() == manifest.machine.name
        && (manifest.machine.processor == "unknown processor"
            || processor.contains(&manifest.machine.processor))
    {
        return Ok(());
    }
    Err(usage(format!(
        "that comparison was begun on '{}' ({}); this is another machine",
        manifest.machine.name, manifest.machine.processor
    )))
}

/// Prints what would be done.
fn dry_run(cli: &Cli, host: &dyn Host, manifest: &Manifest) -> Result<Exit, Failure> {
    #[derive(serde::Serialize)]
    struct ArmPlan {
        name: String,
        needs_boot: Option<String>,
        plan: Option<flyball_control::plan::Plan>,
    }
    #[derive(serde::Serialize)]
    struct Outlook<'a> {
        workload: &'a WorkloadNote,
        schedule: &'a Schedule,
        arms: Vec<ArmPlan>,
        rounds_at_most: usize,
        pause_seconds: f64,
        order: Vec<Vec<String>>,
    }
    let mut arms = Vec::new();
    for arm in &manifest.arms {
        let needs_boot = arms::boot_needed(host, arm).map_err(|error| usage(error.to_string()))?;
        let plan = match &needs_boot {
            None if !arms::intent(arm)?.is_empty() => Some(arms::plan_of(host, arm)?),
            _ => None,
        };
        arms.push(ArmPlan { name: arm.name.clone(), needs_boot, plan });
    }
    let runnable: Vec<usize> = (0..arms.len()).filter(|arm| arms[*arm].needs_boot.is_none()).collect();
    let schedule = &manifest.schedule;
    let rounds_at_most = schedule.rounds(runnable.len());
    let order: Vec<Vec<String>> = (0..schedule.warm_up + schedule.most())
        .map(|block| schedule.order(block, &runnable).into_iter().map(|arm| arms[arm].name.clone()).collect())
        .collect();
    let pause_seconds = rounds_at_most as f64 * schedule.cool_down;
    if cli.json {
        change::print_json(&Outlook {
            workload: &manifest.workload,
            schedule,
            arms,
            rounds_at_most,
            pause_seconds,
            order,
        })?;
        return Ok(Exit::Done);
    }
    if let Some(quiet) = &manifest.quiet {
        println!("quiet ({}, CPUs {}): {}", quiet.level, quiet.cpus, quiet.settings.join(" "));
        for what in &quiet.cannot {
            println!("  cannot {what}");
        }
    }
    println!(
        "workload: {} ({}, {})",
        manifest.workload.name, manifest.workload.metric.name, manifest.workload.metric.unit
    );
    for arm in &arms {
        println!("\narm '{}'", arm.name);
        match (&arm.needs_boot, &arm.plan) {
            (Some(needed), _) => println!("  waits for a boot with {needed}, then --resume"),
            (None, None) => println!("  the machine as it is"),
            (None, Some(plan)) => change::print_plan(cli, plan, false)?,
        }
    }
    println!("\norder (seed {}; {} warm-up)", schedule.seed, schedule.warm_up);
    for (block, names) in order.iter().enumerate().take(8) {
        let label = if block < schedule.warm_up {
            "warm-up".to_owned()
        } else {
            format!("{}", block - schedule.warm_up + 1)
        };
        println!("  {label:>7}  {}", names.join("  |  "));
    }
    if order.len() > 8 {
        println!("      ...  {} blocks more", order.len() - 8);
    }
    let each = |seconds: f64| words(rounds_at_most as f64 * seconds + pause_seconds);
    println!(
        "\n{rounds_at_most} rounds at most: {} if a round takes 1 s, {} if 10 s, {} if a minute",
        each(1.0),
        each(10.0),
        each(60.0)
    );
    Ok(Exit::Done)
}

/// A time in words: `1 h 5 min`, `3 min 20 s`.
fn words(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// Starts a server that has to run beside the workload.
fn start_server(argv: &[String]) -> Result<Running, Failure> {
    let program = argv.first().map_or("", String::as_str);
    let fail = |error: std::io::Error| {
        let hint = if program == "tbench_srv" { "; it is in the package dbench" } else { "" };
        Failure::new(Exit::NotHere, format!("cannot start {program}: {error}{hint}"))
    };
    let nowhere = || File::options().write(true).open(Path::new("/dev/null")).map_err(fail);
    let mut server =
        Launch::new(program, &argv[1..]).output_to(nowhere()?, nowhere()?).start().map_err(fail)?;
    // A server that cannot have its port ends at once.
    if let Some(ended) = server.wait(Duration::from_millis(300)).map_err(fail)? {
        return Err(Failure::new(
            Exit::Failed,
            format!("{program} ended at once ({}); does another one run?", ended.status),
        ));
    }
    Ok(server)
}

pub(super) fn record_failure(error: &RecordError) -> Failure {
    let exit = match error {
        RecordError::Io { what: "read" | "use", .. } | RecordError::Content { .. } => Exit::Usage,
        RecordError::Io { .. } => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

/// Date and time for a directory's name, in UTC: `20260131-235959`.
fn time_stamp() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// The date of a day since 1970, counting years from March so that leap days come last.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Progress on a terminal, drawn only between rounds: a drawing program is a load too.
struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new() -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            // A template that is wrong is found by the test below, not by a user.
            if let Ok(style) = ProgressStyle::with_template("{pos}/{len} rounds {wide_bar} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Progress { bar }
    }

    fn show(&mut self, event: &Event<'_>) {
        let Some(bar) = &self.bar else { return };
        match event {
            Event::Begin { arm, done, of } if *done == 0 => {
                bar.set_length(*of as u64);
                bar.set_message(arm.name.clone());
            }
            Event::Begin { .. } => {}
            Event::Over { done, of, left, .. } => {
                bar.set_length(*of as u64);
                bar.set_message(format!("{} left at most", words(left.as_secs_f64())));
                bar.set_position(*done as u64);
            }
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_778), (2026, 11, 21));
    }

    #[test]
    fn percentages_and_seconds_are_read() {
        assert_eq!(parse_percent("1%"), Ok(0.01));
        assert_eq!(parse_percent("0.5"), Ok(0.005));
        for bad in ["0%", "-1%", "100%", "x", "", "nan", "inf"] {
            assert!(parse_percent(bad).is_err(), "{bad}");
        }
        assert!(parse_confidence("10%").is_err());
        assert_eq!(parse_seconds("2.5s"), Ok(2.5));
        assert!(parse_seconds("-1").is_err());
        assert_eq!(words(3725.0), "1 h 2 min");
        assert_eq!(words(61.4), "1 min 1 s");
    }

    #[test]
    fn the_progress_template_is_good() {
        assert!(ProgressStyle::with_template("{pos}/{len} rounds {wide_bar} {msg}").is_ok());
    }
}
