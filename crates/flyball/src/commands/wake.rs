//! `flyball wake`: how often CPUs and threads wake, from which idle states, and what that costs.

mod check;
mod screen;

use std::{
    io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use flyball_control::Snapshot;
use flyball_host::{CpuList, Ended, Errno, Host, HostError, Launch, Process};
use flyball_wake::{Measured, Target, Tracing, WakeError, WakeReport, Watch, probe};

use super::{trace::why_refused, why::start_model};
use crate::{
    context::Context,
    exit::{Exit, Failure},
    knob_arguments,
    output::{Reporter, print},
    process::interrupts,
    run_as::RunAs,
    terminal::stderr_file,
    time::span_within,
};

/// Arguments of `wake`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Counts how often CPUs leave each idle state, and bounds the time that the exits cost by the latencies that the driver \
advertises. Needs no privileges, interrupts no CPU, and writes nothing. It lists the sleeps for which the governor chose \
too deep or too light a state, the threads that wake most, and the interrupts that may have woken the CPUs. --sources says \
what did.

Examples:
  flyball wake                                   all CPUs for 5 s
  flyball wake -p 1234 -t 10s                    a process and its descendants
  flyball wake --cgroup system.slice/db.service
  flyball wake -- ./bench --requests 100000
  flyball wake -p 1234 --sources                 what wakes its CPUs, by tracepoints
  flyball wake -p 1234 --check -o db.toml -- ./bench    whether a limit pays, and its watts
  flyball wake --probe                           how long wake-ups take here, by idle state
  flyball wake -M sim:tpmi-small -c 0-3 -- sched-pipe --amount 200000 --pin 0-1

Exit codes: 0 counted; that of a command that ended by itself (128 + N if signal N ended it), 126 or 127 if it cannot be \
started; 1 failed, or the probed CPUs never slept, 4 --probe has only one CPU, 2 invalid arguments, a recording, no such process or group; those of compare with --check.")]
pub(crate) struct Args {
    /// CPUs, as 0-3,7 or package:0 [default: those of the workload, or all].
    #[arg(short, long, value_name = "CPUS")]
    cpus: Option<String>,

    /// Watch this process and its descendants.
    #[arg(short, long, value_name = "PID", conflicts_with = "cgroup")]
    pid: Option<u32>,

    /// Compare the advised limit with the machine as it is. Rounds of the command run as in
    /// `flyball compare`, and are compared by its metric and energy. Needs root.
    #[arg(long)]
    check: bool,

    /// Write the advised limit as a profile, or the report of --probe as JSON. Without a limit that
    /// could pay, or if --check shows no gain, no profile is written.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Measure how long a wake-up out of each idle state takes. The machine should be idle
    /// meanwhile. Threads that are pinned to CPUs of --cpus sleep and wake each other. Needs no
    /// privileges; root also measures the kernel's own path, with the latency limit held at 0.
    #[arg(long, conflicts_with_all = ["pid", "cgroup", "command", "check"])]
    probe: bool,

    /// How long [default: 5s, 20s with --probe, and until a command ends]. A command is stopped
    /// then.
    #[arg(short, long, value_name = "TIME",
        value_parser = span_within(Duration::from_millis(100), Duration::from_secs(3600)))]
    time: Option<Duration>,

    /// With --check: metric of a round, as in `flyball compare` [default: as compare chooses].
    #[arg(long, value_name = "METRIC", requires = "check", hide_short_help = true)]
    metric: Option<String>,

    /// With --metric: its unit; if it ends in /s, higher is better.
    #[arg(long, value_name = "UNIT", requires = "metric", hide_short_help = true)]
    unit: Option<String>,

    /// With --check: rounds of each arm [default: 15].
    #[arg(long, value_name = "COUNT", requires = "check", hide_short_help = true)]
    rounds: Option<u32>,

    /// Trace which interrupt or thread ended each sleep of a CPU, and which thread ran then. Needs
    /// root, and slows the CPUs a little.
    #[arg(long, conflicts_with = "probe")]
    sources: bool,

    /// Watch the processes of this control group: its path below /sys/fs/cgroup.
    #[arg(long, value_name = "GROUP")]
    cgroup: Option<String>,

    /// The report of an earlier --probe -o FILE: exits then cost what it measured.
    #[arg(long, value_name = "FILE", conflicts_with = "probe")]
    measured: Option<PathBuf>,

    /// On a simulated machine: workload model to run meanwhile (see `flyball sim list`, or a file).
    #[arg(long, value_name = "NAME", conflicts_with_all = ["command", "pid", "cgroup", "probe", "check"])]
    workload: Option<String>,

    /// CPUs of that workload.
    #[arg(long, value_name = "CPUS", requires = "workload", hide_short_help = true)]
    pin: Option<CpuList>,

    #[command(flatten)]
    run_as: RunAs,

    /// A command to start. It is watched unless --pid or --cgroup is given.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const DEFAULT_TIME: Duration = Duration::from_secs(5);
const PROBE_TIME: Duration = Duration::from_secs(20);
/// Maximum bytes of a report of --probe.
const MAX_PROBE: u64 = 1 << 20;

/// Watches, and prints the counts.
pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    if args.check && args.command.is_empty() {
        return Err(Failure::usage(
            "--check compares rounds of a command: give one that uses the workload and ends, as in 'flyball wake --pid PID \
             --check -- ./bench'",
        ));
    }
    let host = context.open()?;
    let mut snapshot = Snapshot::begin(&*host)?;
    let online = snapshot.topology().online.clone();
    let cpus = knob_arguments::cpus(&*host, args.cpus.as_deref(), &mut snapshot)?.unwrap_or(online);
    let topology = snapshot.topology();
    if args.probe {
        let report = probe(&*host, topology, &cpus, args.time.unwrap_or(PROBE_TIME)).map_err(refused)?;
        context.output.about(&*host).object(|| &report, || screen::probe(&report))?;
        if let Some(path) = &args.output {
            flyball_files::replace(path, &Reporter::file(&report)?)
                .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))?;
        }
        return Ok(if report.rows.is_empty() { Exit::Failed } else { Exit::Done });
    }
    let measured = args.measured.as_deref().map(read_probe).transpose()?;
    let model =
        args.workload.as_ref().map(|name| start_model(&*host, name, args.pin.as_ref())).transpose()?;
    // Before the command starts, because it must not run if tracing is not permitted.
    let tracing = args.sources.then(|| Tracing::start(&*host, &cpus)).transpose();
    let tracing = tracing.map_err(|error| untraced(&*host, error))?;
    // Catch signals: the tracing instance of a killed process would stay until the next start.
    let stop = if args.sources || !args.command.is_empty() { Some(interrupts()?) } else { None };
    let mut process = if args.command.is_empty() { None } else { Some(start(context, args, &*host)?) };
    let pid = args.pid.or_else(|| model.as_ref()?.pid());
    let target = match (pid, &args.cgroup, process.as_ref().and_then(|process| process.pid())) {
        (Some(pid), ..) => Target::Process(pid),
        (_, Some(group), _) => Target::Group(group.clone()),
        (.., Some(pid)) => Target::Command(pid),
        _ => Target::Cpus,
    };
    let watch = Watch::start(&*host, topology, &cpus, target, measured.as_ref(), tracing);
    let mut watch = watch.map_err(refused)?;
    let ended = match &mut process {
        None => {
            wait(&*host, &mut watch, args.time.unwrap_or(DEFAULT_TIME), stop.as_deref());
            None
        }
        Some(process) => wait_for(&*host, &mut watch, &mut **process, args.time, stop.as_deref())?,
    };
    // Only if the command itself is the target, since the kernel's account is that of the command.
    let account = ended.as_ref().filter(|_| args.pid.is_none() && args.cgroup.is_none());
    let report = watch.finish(account.and_then(|ended| ended.usage.as_ref()));
    if let (Some(process), None) = (process, ended) {
        process.stop(Duration::from_secs(2)).map_err(Failure::failed)?;
    }
    let exit = match ended {
        // Like a shell, return 128 plus the number of the signal.
        Some(ended) if !ended.status.success() => {
            let code = ended.status.code().or_else(|| Some(128 + ended.status.signal()?)).unwrap_or(255);
            Exit::Command(code as u8)
        }
        _ => Exit::Done,
    };
    conclude(context, args, host, report, exit)
}

/// Prints the report. If requested, also checks its advice and writes the profile.
fn conclude(
    context: &Context,
    args: &Args,
    host: Box<dyn Host>,
    mut report: WakeReport,
    mut exit: Exit,
) -> Result<Exit, Failure> {
    let output = context.output.about(&*host);
    let simulated = host.software().is_some().then(|| host.name());
    if !output.is_json() {
        output.object(|| &report, || screen::render(&report))?;
    }
    let mut checked = Ok(());
    if args.check && report.advice.is_none() {
        eprintln!("not checked: {}", check::NO_LIMIT);
    }
    if let (true, Exit::Done, Some(advice)) = (args.check, exit, &report.advice) {
        let directory = check::directory();
        let words = check::words(args, &*host, &advice.setting, &directory);
        // A simulated machine with a state file can only be opened once.
        drop(host);
        match check::check(context, &words, directory, advice) {
            Ok(Ok(check)) => report.check = Some(check),
            Ok(Err(stopped)) => exit = stopped,
            Err(failure) => checked = Err(failure),
        }
    }
    if output.is_json() {
        output.object(|| &report, String::new)?;
    } else if let Some(check) = &report.check {
        print(format_args!("\n{}\n", check.sentence))?;
    }
    checked?;
    if let (Some(path), Exit::Done) = (&args.output, exit) {
        check::save(path, report.advice.as_ref(), report.check.as_ref(), simulated.as_deref())?;
    }
    Ok(exit)
}

fn read_probe(path: &Path) -> Result<Measured, Failure> {
    let wrong = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let text = flyball_files::read_input(path, MAX_PROBE).map_err(|error| wrong(error.to_string()))?;
    let report: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    if report["schema"] != "wake-probe/1" {
        return Err(wrong("this is no report of 'flyball wake --probe -o FILE'".to_owned()));
    }
    serde_json::from_value(report).map_err(|error| wrong(error.to_string()))
}

fn refused(error: WakeError) -> Failure {
    match error {
        WakeError::Read(error) => Failure::failed(error),
        error @ WakeError::OneCpu(_) => Failure::not_here(error),
        error => Failure::usage(error),
    }
}

/// Explains why wake-ups cannot be traced.
fn untraced(host: &dyn Host, error: WakeError) -> Failure {
    match error {
        WakeError::Read(error @ HostError { errno: Errno::ACCES | Errno::PERM, .. }) => {
            let counts = "without --sources, wake counts wake-ups as any user";
            Failure::failed(format!("{error}; {}\nhint: {counts}", why_refused(host)))
        }
        WakeError::Read(HostError { errno: Errno::NOSYS | Errno::NODEV, .. }) => {
            Failure::not_here(format!("{} has no tracefs: --sources needs it", host.name()))
        }
        error @ WakeError::NoEvent(..) => Failure::not_here(error),
        error => refused(error),
    }
}

/// Starts the command, or the model of a simulated machine.
fn start(context: &Context, args: &Args, host: &dyn Host) -> Result<Box<dyn Process>, Failure> {
    let user = args.run_as.user(host)?;
    let mut launch = Launch::new(&args.command[0], &args.command[1..]).as_user(user.as_ref());
    if context.output.is_json() {
        // The report uses stdout.
        let copy = || stderr_file().map_err(Failure::failed);
        launch = launch.output_to(copy()?, copy()?);
    }
    host.spawn(launch.in_foreground()).map_err(|error| {
        // Like a shell.
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::Command(127),
            io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => Exit::Usage,
            _ => Exit::Command(126),
        };
        Failure::new(exit, format!("cannot run {}: {error}", args.command[0]))
    })
}

/// The longest sleep when signals only set a flag.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits for the given time, reading threads in between. If only CPUs are watched, sleeps once.
fn wait(host: &dyn Host, watch: &mut Watch<'_>, time: Duration, stop: Option<&AtomicBool>) {
    let end = host.now() + time;
    loop {
        let left = end.saturating_sub(host.now());
        let left = stop.map_or(left, |_| left.min(PAUSE));
        host.sleep(watch.pause().map_or(left, |pause| pause.min(left)));
        if host.now() >= end || is_set(stop) || !watch.look() {
            return;
        }
    }
}

/// Waits until the command ends. `None` if the time is over or a signal arrived.
fn wait_for(
    host: &dyn Host,
    watch: &mut Watch<'_>,
    process: &mut dyn Process,
    time: Option<Duration>,
    stop: Option<&AtomicBool>,
) -> Result<Option<Ended>, Failure> {
    let end = time.map(|time| host.now() + time);
    loop {
        let left = end.map_or(Duration::MAX, |end| end.saturating_sub(host.now()));
        let pause = watch.pause().unwrap_or(Duration::from_millis(200)).min(PAUSE).min(left);
        let ended = process.wait(pause).map_err(Failure::failed)?;
        if ended.is_some() || left.is_zero() || is_set(stop) {
            return Ok(ended);
        }
        watch.look();
    }
}

fn is_set(stop: Option<&AtomicBool>) -> bool {
    stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
}
