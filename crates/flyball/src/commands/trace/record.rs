//! `flyball trace record`: records the driver's decisions to a trace.dat file.

use std::{
    io::Write,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flyball_host::{
    CpuList, Errno, Host, HostError, Launch, Process,
    tracefs::{LOCKED_DOWN, is_locked_down},
};
use flyball_process::User;
use flyball_trace::{
    Clock,
    live::{Capture, CaptureError, CaptureOptions, CaptureSummary},
};

use crate::{
    context::Context,
    exit::{Exit, Failure},
    run_as::RunAs,
    terminal,
};

/// Arguments of `trace record`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flyball trace record -t 10s                       ten seconds to trace.dat
  flyball trace record -o run.dat -- make -j8       while a command runs
  flyball trace record --live                       print each decision, until Ctrl-C
  flyball trace record -e power:cpu_idle --live -t 5s
  flyball -M sim:ryzen-5750g,boot=amd_pstate=passive trace record -- gitsource --amount 20000
  (on a simulated machine: a workload model, in simulated time)

Recording uses a trace instance of its own and does not affect other tracing. Lost records are counted: received plus \
lost is what the kernel wrote.")]
#[expect(clippy::struct_excessive_bools, reason = "options of a command line")]
pub(super) struct Args {
    /// The file to write; trace-cmd and kernelshark can open it.
    #[arg(short, long, value_name = "FILE", default_value = "trace.dat")]
    pub(super) output: PathBuf,

    /// Also record this event (power:cpu_idle) or group (amd_cpu); may be repeated.
    #[arg(short, long = "event", value_name = "EVENT")]
    events: Vec<String>,

    /// Record only the events of -e, not those of the P-state drivers.
    #[arg(long, requires = "events")]
    only: bool,

    /// Also record idle states (power:cpu_idle).
    #[arg(long)]
    idle: bool,

    /// Also record task switches (sched:sched_switch).
    #[arg(long)]
    sched: bool,

    /// Record only these CPUs.
    #[arg(short = 'c', long, value_name = "LIST")]
    cpus: Option<CpuList>,

    /// Buffer per CPU, KiB [default: 8192, less with many CPUs or little memory].
    #[arg(short = 'b', long = "buffer", value_name = "KIB")]
    buffer_kib: Option<u64>,

    /// Stop after this time: 10s, 500ms, 5min.
    #[arg(short = 't', long, alias = "duration", value_name = "TIME", value_parser = flyball_text::span::parse)]
    time: Option<Duration>,

    /// The trace clock.
    #[arg(long, value_name = "NAME", default_value = "mono")]
    clock: String,

    /// Print records as they arrive.
    #[arg(long)]
    live: bool,

    #[command(flatten)]
    run_as: RunAs,

    /// Record while this command runs.
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

fn failure(host: &dyn Host, args: &Args, error: CaptureError) -> Failure {
    match error {
        CaptureError::Host(HostError { errno: Errno::NOSYS, .. }) => Failure::not_here(
            "only this machine and simulated ones can be recorded; leave -M away, or give -M sim:NAME",
        ),
        // The kernel's error for an unknown clock name (kernel/trace/trace.c, tracing_set_clock).
        CaptureError::Host(HostError { errno: Errno::INVAL, path, .. }) if path.ends_with("/trace_clock") => {
            Failure::usage(format!(
                "this kernel has no trace clock '{}'; its file trace_clock lists them",
                args.clock
            ))
        }
        CaptureError::Host(error @ HostError { errno: Errno::ACCES | Errno::PERM, .. }) => {
            Failure::failed(format!("{error}; {}", why_refused(host)))
        }
        CaptureError::Host(error @ HostError { errno: Errno::NODEV, .. }) => {
            Failure::not_here(format!("{error}; this kernel has no tracing (CONFIG_TRACING)"))
        }
        CaptureError::Host(error @ HostError { errno: Errno::NOMEM, .. }) => {
            Failure::failed(format!("{error}; take a smaller buffer (-b KIB), or fewer CPUs (-c)"))
        }
        CaptureError::Host(error) => error.into(),
        CaptureError::Trace(error) => error.into(),
        CaptureError::NotHere(words) => Failure::not_here(words),
    }
}

/// Returns why a user may not trace.
pub(crate) fn why_refused(host: &dyn Host) -> &'static str {
    if is_locked_down(host) {
        LOCKED_DOWN
    } else if flyball_process::is_root() {
        "root may not do it here either: a container without CAP_SYS_ADMIN, or a security module"
    } else {
        "tracing needs root"
    }
}

/// How long to record a simulated machine without a command and a time. The user does not wait that
/// long, because its clock runs faster.
const DEFAULT_TIME: Duration = Duration::from_secs(10);

/// The longest recording of a simulated machine, because some models do not end.
const LONGEST: Duration = Duration::from_secs(3600);

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let host = context.open()?;
    let (summary, code) = make(context, &*host, args)?;
    context.output.about(&*host).object(|| &summary, String::new)?;
    say(&summary);
    Ok(code.filter(|code| *code != 0).map_or(Exit::Done, Exit::Command))
}

/// Records. Returns the summary, and the exit code of the command.
pub(super) fn make(
    context: &Context,
    host: &dyn Host,
    args: &Args,
) -> Result<(CaptureSummary, Option<u8>), Failure> {
    let failure = |error| failure(host, args, error);
    if flyball_files::is_stream(&args.output) {
        // rename(2) would replace the device with the file.
        let message = format!("{} is not a regular file; a recording needs one", args.output.display());
        return Err(Failure::usage(message));
    }
    let tracefs = host.tracefs().map_err(|error| failure(error.into()))?;
    let mut events = if args.only { Vec::new() } else { CaptureOptions::default_events(&tracefs) };
    events.extend(args.idle.then(|| "power/cpu_idle".to_owned()));
    events.extend(args.sched.then(|| "sched/sched_switch".to_owned()));
    events.extend(args.events.iter().cloned());
    let directory = flyball_files::folder_of(&args.output).to_owned();
    let writer = super::input::writer(&context.machine.to_string(), host.software().is_some());
    let options = CaptureOptions {
        events,
        cpus: args.cpus.clone(),
        buffer_kib: args.buffer_kib,
        clock: Some(args.clock.clone()),
        directory,
        writer,
        // Only used to explain findings later, so ignore errors: the machine can be recorded
        // without it.
        machine: super::traced_machine::from_host(host).ok(),
        trace_id: crate::time::trace_id(host),
    };
    let user = if args.command.is_empty() { None } else { args.run_as.user(host)? };
    let interrupted = Arc::new(AtomicBool::new(false));
    // If the reader of --live goes away, end the recording, not the process, because the file must
    // still be written.
    use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGPIPE] {
        signal_hook::flag::register(signal, interrupted.clone())
            .map_err(|error| Failure::failed(format!("cannot watch signals: {error}")))?;
    }
    let live = args.live.then(|| super::print::live_sink(Clock::named(&args.clock), interrupted.clone()));
    // Start the capture before the command, to include its first decisions. If the command does not
    // start, dropping the capture removes the instance.
    let mut capture = Capture::start(host, &options, live).map_err(failure)?;
    let mut program =
        if args.command.is_empty() { None } else { Some(spawn(host, &args.command, user.as_ref())?) };
    let time = match host.software() {
        Some(_) if program.is_none() => Some(args.time.unwrap_or(DEFAULT_TIME)),
        Some(_) => Some(args.time.unwrap_or(LONGEST)),
        None => args.time,
    };
    if program.is_none() && time.is_none() {
        eprintln!("flyball: recording; press Ctrl-C to stop");
    }
    let code = wait(host, time, &mut capture, program.as_mut(), &interrupted).map_err(failure)?;
    let summary = capture.stop(&args.output).map_err(failure)?;
    if let Some(user) = &user {
        // Created as root, as tracefs needs root.
        user.give(&args.output).map_err(|error| {
            Failure::failed(format!("cannot give {} to {}: {error}", args.output.display(), user.name))
        })?;
    }
    if let (Some(_), None, Some(program)) = (host.software(), code, program) {
        // Stop a model that has not ended, so that it reports its progress. A real program
        // continues.
        let _ = program.stop(Duration::ZERO);
    }
    Ok((summary, code))
}

fn spawn(host: &dyn Host, command: &[String], user: Option<&User>) -> Result<Box<dyn Process>, Failure> {
    host.spawn(Launch::new(&command[0], &command[1..]).as_user(user).in_foreground()).map_err(|error| {
        match host.software() {
            // The error lists the accepted words.
            Some(_) => Failure::usage(error.to_string()),
            None => Failure::usage(format!("cannot run {}: {error}; nothing was recorded", command[0])),
        }
    })
}

/// Waits for the end: a signal, the time limit, the command's end, or a reader that gave up.
/// Returns the command's exit code.
fn wait(
    host: &dyn Host,
    time: Option<Duration>,
    capture: &mut Capture,
    mut program: Option<&mut Box<dyn Process>>,
    interrupted: &AtomicBool,
) -> Result<Option<u8>, CaptureError> {
    let start = host.now();
    // Short enough to notice the end of a command soon, and to prevent overflows of a simulated
    // machine's buffers.
    let step = Duration::from_millis(match host.software() {
        Some(_) => 20,
        None if program.is_some() => 10,
        None => 50,
    });
    loop {
        let passed = host.now().saturating_sub(start);
        let over = time.is_some_and(|time| passed >= time);
        // Check before sleeping: a time of zero records nothing, and a failed reader ends at once.
        if over || interrupted.load(Ordering::Acquire) || capture.failed() {
            return Ok(None);
        }
        // A simulated machine's clock only advances in the host's sleep.
        host.sleep(time.map_or(step, |time| step.min(time.saturating_sub(passed))));
        capture.poll()?;
        if let Some(program) = &mut program
            && let Ok(Some(ended)) = program.wait(Duration::ZERO)
        {
            let code = ended.status.code().unwrap_or_else(|| 128 + ended.status.signal().unwrap_or(0));
            // Exit codes have eight bits, and 128 + N of a signal fits too.
            return Ok(Some(code as u8));
        }
    }
}

/// Prints on stderr what was recorded and lost.
pub(super) fn say(summary: &CaptureSummary) {
    for name in &summary.leftovers {
        eprintln!("flyball: removed {name}, which a killed run had left in tracefs");
    }
    let mut stderr = terminal::stderr();
    let CaptureSummary { file, received, lost, written, bytes, .. } = summary;
    let _ = writeln!(
        stderr,
        "flyball: {}: {received} records received + {lost} lost = {written} written, {:.1} MiB of pages",
        file.display(),
        *bytes as f64 / f64::from(1 << 20)
    );
    if *written == 0 {
        let _ = writeln!(
            stderr,
            "flyball: no events: no P-state driver made a decision while recording (a virtual machine has none, one in \
             active mode with hardware P-states leaves decisions to the processor); --sched and --idle record what CPUs do"
        );
    }
    if *lost > 0 {
        let worst = summary.cpus.iter().max_by_key(|cpu| cpu.stats.lost());
        if let Some(cpu) = worst {
            let _ = writeln!(
                stderr,
                "flyball: most were lost on CPU {} ({}); use a larger buffer: -b",
                cpu.cpu,
                cpu.stats.lost()
            );
        }
    }
    if summary.cpus.iter().any(|cpu| !cpu.balanced()) {
        eprintln!(
            "flyball: received and lost records do not add up to what the kernel wrote; the file may lack some"
        );
    }
}
