//! `flyball compare`: runs a workload under several settings in randomised order, with energy and a
//! verdict.

mod args;
mod bisect;
pub(super) mod confirm;
pub(crate) mod dry_run;
mod experiment;
pub(super) mod manifest;
pub(super) mod power;
mod progress;
pub(super) mod rounds;
pub(super) mod take;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use flyball_compare::{
    RoundTraces, RunSeeds, SpeedWatch, user_knobs,
    workloads::{self, PreparedWorkload},
};
use flyball_control::quiet::{QuietOptions, QuietPlan};
use flyball_host::{CommandKnob, Host, Launch, Process};
use flyball_measure::{
    Arm, Blocks, Conductor, Correction, End, Hook, HookRunner, Manifest, MeasureError, Meters, PowerCommand,
    QuietNote, RecordError, RunDirectory, Stop, Workload,
};
use flyball_process::User;

pub(crate) use self::args::Args;
use self::{
    args::Until,
    manifest::{background_of, check_same_machine, command_of, least_seconds, length, manifest},
    progress::Progress,
    take::{ComparisonSettings, QuietDuringArms},
};
use super::{
    report::{Forms, write_and_print},
    trace::writer,
};
use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
    machine::MachineArg,
    output::Reporter,
    time,
};

/// Runs the comparison, or describes it for --dry-run.
pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let host = context.open()?;
    if let Some(path) = &args.resume {
        let mut directory = RunDirectory::open(path)?;
        // The rounds of two machines in one directory could not be told apart later.
        check_same_machine(&*host, &directory.manifest)?;
        if args.dry_run {
            return dry_run::dry_run(context, &*host, &directory.manifest);
        }
        // Check before anything runs.
        args.forms.limits(&directory.manifest)?;
        confirm::confirm(&directory, args.yes)?;
        directory.give_to(args.run_as.user(&*host)?);
        let power_command = power::resumed(&*host, &directory.manifest, &args.measuring)?;
        if directory.manifest.bisect.is_some() {
            return bisect::resume(context, &*host, directory, power_command);
        }
        return resume(context, &*host, directory, power_command, &args.forms);
    }
    let experiment = args.experiment.as_ref().map(|path| experiment::read(&*host, path, args)).transpose()?;
    let (args, experiment) = experiment.map_or((args.clone(), None), |(args, note)| (args, Some(note)));
    let args = &args.expanded();
    if let Some(range) = &args.bisect {
        return bisect::run(context, &*host, args, range);
    }
    // Before `quiet` is decided, which takes longer, and long before anything is written.
    let knobs = user_knobs::commands(&user_knobs::read(&*host, &args.measuring.knob)?);
    let (arms, workload) = arms_and_workload(&*host, args, &knobs)?;
    take::check(&*host, &arms)?;
    let asked = arms.iter().filter(|arm| !arm.control).count();
    // Counts that are all the same say nothing about later rounds, and other counts have no noise
    // that more rounds would average out.
    if args.workload.exact && args.until.is_some() {
        return Err(Failure::usage("--exact needs no --until: give the number of --rounds"));
    }
    if asked == 1 && args.until == Some(Until::Decided) {
        return Err(Failure::usage("--until decided needs a second program to compare with"));
    }
    let meters = Meters::find(&*host, workload.command.cpus.as_ref());
    let has_energy = !meters.list().energy.is_empty() || args.measuring.power_command.is_some();
    let metric = Workload::metric(&workload.command);
    let correction = Correction::new(arms.len(), has_energy, &metric, args.until.is_some());
    let length = length(args, arms.len(), correction);
    let mut manifest = manifest(&*host, &args.measuring, length, arms, &workload);
    args.forms.check()?;
    manifest.schedule.limits = args.forms.limits(&manifest)?.iter().map(ToString::to_string).collect();
    let has_programs = manifest.arms.iter().any(|arm| arm.program.is_some());
    manifest.schedule.random_layout = has_programs && !args.fixed_layout;
    manifest.schedule.timeout = args.timeout;
    manifest.schedule.most_seconds = args.max_time;
    manifest.schedule.least_seconds = least_seconds(args, &manifest);
    manifest.experiment = experiment;
    manifest.trace = args.measuring.trace;
    manifest.knobs = knobs;
    let quiet = quiet(&*host, args, &mut manifest)?;
    if args.dry_run {
        return dry_run::dry_run(context, &*host, &manifest);
    }
    if has_programs && !flyball_process::is_root() {
        eprintln!(
            "note: as root, flyball can also make the machine quiet (--quiet), run programs under settings \
             (--matrix) and read the machine's meters of energy and frequency"
        );
    }
    let interrupted = change::interrupts()?;
    if args.measuring.trace {
        // Before anything is locked or written: a kernel without tracefs would fail in the first
        // round.
        RoundTraces::check(&*host)?;
    }
    let user = args.run_as.user(&*host)?;
    let power_command = power::start(&*host, &args.measuring, workload.command.cpus.as_ref())?;
    // Lock the machine before creating the directory, so that a failure to lock leaves nothing
    // behind.
    let seeds = RunSeeds::for_comparison(manifest.schedule.seed, 0);
    let taken = take::take(context, &*host, &manifest, &interrupted, quiet, seeds)?;
    let directory = create(args, "compare", manifest, user)?;
    conduct(context, &*host, directory, taken, interrupted, power_command, &args.forms)
}

/// Creates the run directory named by --output, or one in the current directory.
fn create(args: &Args, kind: &str, manifest: Manifest, user: Option<User>) -> Result<RunDirectory, Failure> {
    let Some(path) = &args.output else {
        // Add a number if it exists: two comparisons may start in the same second.
        let path = PathBuf::from(format!("flyball-{kind}-{}", time::stamp()));
        return RunDirectory::create_numbered(&path, manifest, user).map_err(|error| {
            Failure::from(error)
                .reworded(|message| format!("{message}\nhint: -o DIR puts the results elsewhere"))
        });
    };
    RunDirectory::create(path, manifest, user).map_err(|error| match &error {
        RecordError::Io { what: "make", cause, .. } if cause.kind() != std::io::ErrorKind::StorageFull => {
            Failure::usage(error)
        }
        _ => error.into(),
    })
}

/// Returns the arms and the shared workload. If arms have their own programs, the workload is what
/// these share.
fn arms_and_workload(
    host: &dyn Host,
    args: &Args,
    knobs: &[CommandKnob],
) -> Result<(Vec<Arm>, PreparedWorkload), Failure> {
    let programs = &args.programs;
    let command = &args.workload.command;
    let prepare = args.workload.prepare.as_ref();
    if args.max_rounds.is_some() && args.until.is_none() && args.bisect.is_none() {
        return Err(Failure::usage(
            "--max-rounds bounds --until and --bisect; without them --rounds says how many blocks run",
        ));
    }
    if programs.no_shell && programs.shell.is_some() {
        return Err(Failure::usage("--no-shell and --shell exclude each other"));
    }
    let is_built_in = args.workload.workload.is_some() || args.workload.model.is_some();
    if args.workload.amount.is_some() && !is_built_in {
        return Err(Failure::usage("--amount is the length of a built-in workload; give --workload too"));
    }
    let design = programs.design(&args.arm, &args.matrix, command, prepare, knobs).map_err(Failure::usage)?;
    let mut workload = if design.programs().next().is_some() {
        workloads::prepare_programs(host, &args.workload, design.programs())?
    } else {
        let shared = workloads::WorkloadArgs { command: design.command, ..args.workload.clone() };
        workloads::prepare(host, &shared)?
    };
    if let (Some(_), Some(option)) = (host.software(), programs.process_option()) {
        return Err(workloads::PrepareError::NotOnModel { option, machine: host.name() }.into());
    }
    workload.hooks.setup.clone_from(&programs.setup);
    workload.hooks.rebuild.clone_from(&programs.rebuild);
    workload.hooks.conclude.clone_from(&programs.conclude);
    workload.hooks.cleanup.clone_from(&programs.cleanup);
    workload.command.input.clone_from(&programs.input);
    workload.command.environment = design.environment;
    workload.command.digests_output = programs.same_output;
    Ok((design.arms, workload))
}

/// Continues a comparison.
fn resume(
    context: &Context,
    host: &dyn Host,
    directory: RunDirectory,
    power_command: Option<PowerCommand>,
    forms: &Forms,
) -> Result<Exit, Failure> {
    let interrupted = change::interrupts()?;
    let taken = acquire_for_resume(context, host, &directory, &interrupted)?;
    conduct(context, host, directory, taken, interrupted, power_command, forms)
}

/// Takes the machine for the rounds that are still missing in a directory.
pub(super) fn acquire_for_resume<'h>(
    context: &Context,
    host: &'h dyn Host,
    directory: &RunDirectory,
    interrupted: &Arc<AtomicBool>,
) -> Result<ComparisonSettings<'h>, Failure> {
    let manifest = &directory.manifest;
    // This is decided each time, because it depends on the machine's present state.
    let quiet = resumed_quiet(manifest)?
        .map(|quiet| quiet_during_arms(host, quiet, &mut manifest.clone()))
        .transpose()?;
    // Continue after the seeds of earlier rounds, so that no two rounds have the same seed.
    let seeds = RunSeeds::for_comparison(manifest.schedule.seed, directory.rounds.len());
    take::take(context, host, manifest, interrupted, quiet, seeds)
}

/// Decides what --quiet does, if it is given.
fn quiet(host: &dyn Host, args: &Args, manifest: &mut Manifest) -> Result<Option<QuietDuringArms>, Failure> {
    let Some(level) = args.measuring.quiet else { return Ok(None) };
    let cpus = manifest.workload.cpus.as_ref().and_then(|cpus| cpus.parse().ok());
    // Keep random addresses: their effect is part of the spread between rounds, and a fixed layout
    // could favour one arm.
    quiet_during_arms(host, QuietOptions { level, cpus, freq: None }, manifest).map(Some)
}

/// Decides how to keep the machine quiet during all arms, and records it in the manifest.
pub(super) fn quiet_during_arms(
    host: &dyn Host,
    options: QuietOptions,
    manifest: &mut Manifest,
) -> Result<QuietDuringArms, Failure> {
    let plan = QuietPlan::decide(host, &options)?;
    manifest.quiet = Some(QuietNote {
        level: options.level.to_string(),
        cpus: plan.recipe.cpus.to_string(),
        settings: plan.recipe.settings.iter().map(ToString::to_string).collect(),
        unavailable: plan.recipe.unavailable.clone(),
    });
    Ok(QuietDuringArms { options, plan })
}

/// Returns the quiet level with which a comparison was started.
fn resumed_quiet(manifest: &Manifest) -> Result<Option<QuietOptions>, Failure> {
    let Some(note) = &manifest.quiet else { return Ok(None) };
    let level = note.level.parse().map_err(Failure::usage)?;
    // Use the requested CPUs, not those in the note, which were online in the earlier boot.
    let cpus = manifest.workload.cpus.as_ref().and_then(|cpus| cpus.parse().ok());
    Ok(Some(QuietOptions { level, cpus, freq: None }))
}

/// Runs the rounds and prints the report. Returns the exit code.
fn conduct(
    context: &Context,
    host: &dyn Host,
    mut directory: RunDirectory,
    mut taken: ComparisonSettings<'_>,
    interrupted: Arc<AtomicBool>,
    power_command: Option<PowerCommand>,
    forms: &Forms,
) -> Result<Exit, Failure> {
    let finished = run_rounds(host, &mut directory, &mut taken, interrupted, power_command, None)?;
    let output = context.output.about(host);
    // The settings are restored by now, even if the report fails.
    conclude(context, &output, &directory, finished, forms)
}

/// Runs the rounds of the manifest, and shows progress.
pub(super) fn run_rounds(
    host: &dyn Host,
    directory: &mut RunDirectory,
    taken: &mut ComparisonSettings<'_>,
    interrupted: Arc<AtomicBool>,
    power_command: Option<PowerCommand>,
    blocks: Option<&mut dyn Blocks>,
) -> Result<Finished, Failure> {
    for warning in &directory.warnings {
        eprintln!("note: {warning}");
    }
    let mut workload = command_of(&directory.manifest.workload);
    workload.group.clone_from(&taken.group);
    workload.user = directory.owner().cloned();
    let hooks = HookRunner {
        hooks: directory.manifest.workload.hooks.clone(),
        directory: directory.manifest.workload.directory.clone(),
        user: directory.owner().cloned(),
    };
    let mut background = background_of(&directory.manifest.workload);
    for load in &mut background {
        load.user = directory.owner().cloned();
    }
    // Look for meters after the machine was made quiet: level fixed takes CPUs offline, and their
    // meters with them.
    let meters_on = workload.cpus.clone();
    let mut meters = Meters::find(host, meters_on.as_ref());
    if let Some(command) = power_command {
        meters = meters.with_power_command(command);
    }
    let has_programs = directory.manifest.arms.iter().any(|arm| arm.program.is_some());
    workload.is_counted = has_programs && meters.list().counters;
    let stop = Stop::watching(interrupted);
    let mut tracer = None;
    if directory.manifest.trace {
        RoundTraces::check(host)?;
        let writer = writer(&host.name(), host.software().is_some());
        tracer = Some(RoundTraces::new(directory.path(), directory.owner(), writer, time::trace_id));
    }
    // Before the first round, so that the server's start is not part of a round's time.
    let server = directory
        .manifest
        .workload
        .server
        .clone()
        .map(|argv| start_server(host, &argv, directory.owner()))
        .transpose()?;
    let mut progress = Progress::begin(&directory.manifest);
    let ended = Conductor {
        host,
        settings: &mut *taken.settings,
        workload: &mut workload,
        meters: &meters,
        stop: &stop,
        ignore_failure: directory.manifest.workload.ignore_failure,
        hooks: Some(&hooks),
        background: &background,
        speed: Some(&mut SpeedWatch::new(host, meters_on)),
        tracer: tracer.as_mut().map(|tracer| tracer as &mut dyn flyball_measure::RoundTracer),
        // Reborrows with a shorter lifetime: a reference may shrink, but not the object type behind
        // it.
        blocks: blocks.map(|blocks| blocks as &mut dyn Blocks),
        began_at: time::seconds_since_1970(),
    }
    .conduct(directory, &mut |event| progress.show(event));
    progress.end();
    if let Some(complaint) = meters.complaint() {
        eprintln!("note: {complaint}");
    }
    if let Some(server) = server {
        // Ignore an error, which would hide that of the comparison. The rounds are already stored,
        // and a server that does not stop in time is killed.
        let _ = server.stop(Duration::from_secs(1));
    }
    Ok(match ended {
        Ok(End::Complete) => Finished::Complete,
        Ok(End::Stopped) => Finished::Stopped,
        Err(error) => Finished::Failed(Box::new(error)),
    })
}

/// How the rounds ended. Completed rounds are always in the directory.
#[derive(Debug)]
pub(super) enum Finished {
    /// All rounds that are possible in this boot were run.
    Complete,
    /// The user stopped it.
    Stopped,
    Failed(Box<MeasureError>),
}

/// Prints the report and how the comparison ended.
fn conclude(
    context: &Context,
    output: &Reporter,
    directory: &RunDirectory,
    finished: Finished,
    forms: &Forms,
) -> Result<Exit, Failure> {
    let measured = directory.rounds.iter().any(|round| !round.warm_up);
    // If only warm-up rounds were run, a report would have no numbers.
    let written = || write_and_print(output, directory, directory.path(), forms, false);
    let judged = match if measured { written() } else { Ok(Exit::Done) } {
        // If the rounds failed (perhaps on a full disk), that error matters more than the report's.
        Err(failure) if matches!(finished, Finished::Failed(_)) => {
            eprintln!("flyball: {failure}");
            failure.exit
        }
        judged => judged?,
    };
    match finished {
        Finished::Complete => {
            waiting(context, directory);
            Ok(judged)
        }
        Finished::Stopped => Ok(stopped("compare", &context.machine, directory)),
        Finished::Failed(error) => {
            // If only the cleanup after the last round failed, there is nothing to continue.
            let can_continue = match &*error {
                MeasureError::Hook { hook, .. } => *hook != Hook::Cleanup,
                _ => measured,
            };
            let failure = failure(*error, measured.then(|| directory.path()));
            if !can_continue {
                return Err(failure);
            }
            let resume = resume_command("compare", &context.machine, directory);
            Err(failure.reworded(|message| format!("{message}; to continue: {resume}")))
        }
    }
}

/// Says after Ctrl-C what is kept and how to continue.
pub(super) fn stopped(command: &str, machine: &MachineArg, directory: &RunDirectory) -> Exit {
    let kept = match directory.rounds.len() {
        1 => "1 round is kept".to_owned(),
        count => format!("{count} rounds are kept"),
    };
    let counted = directory.rounds.iter().filter(|round| !round.warm_up).count();
    let rest = if counted < directory.manifest.schedule.most() * directory.manifest.arms.len() {
        format!("to continue: {}", resume_command(command, machine, directory))
    } else {
        "all rounds have run".to_owned()
    };
    eprintln!("flyball: stopped; settings are restored. {kept}; {rest}");
    // 128 + SIGINT, as shells report it.
    Exit::Command(130)
}

/// Turns the error that ended the rounds into a failure that also says where the completed rounds
/// are.
pub(super) fn failure(error: MeasureError, kept: Option<&Path>) -> Failure {
    let exit = match error {
        MeasureError::Restore { .. } => Exit::HalfDone,
        _ => Exit::Failed,
    };
    // The user may want to accept this exit code.
    let hint = match &error {
        MeasureError::Failed { failure, .. } if failure.starts_with("exit ") => {
            "\nhint: --ignore-failure=CODE lets rounds with this exit code count, --ignore-failure skips them"
        }
        MeasureError::Failed { failure, .. } if failure.starts_with("it did not end within ") => {
            "\nhint: --timeout sets this limit, --ignore-failure skips such rounds"
        }
        MeasureError::OtherOutput { .. } => {
            "\nhint: diff shows where; threads may print in another order each time"
        }
        _ => "",
    };
    let kept = kept.map(|path| format!("\ncompleted rounds are in {}", path.display())).unwrap_or_default();
    Failure::new(exit, error).reworded(|message| format!("{message}{hint}{kept}"))
}

/// Returns the command that continues a comparison or a search. Includes -M for any machine but
/// this one: --resume does not take it from the directory, which may come from another user.
pub(super) fn resume_command(command: &str, machine: &MachineArg, directory: &RunDirectory) -> String {
    let mut words = vec!["flyball".to_owned(), command.to_owned()];
    if !matches!(machine, MachineArg::Live) {
        words.extend(machine.arguments().into_iter().map(|word| word.to_string_lossy().into_owned()));
    }
    words.extend(["--resume".to_owned(), directory.path().display().to_string()]);
    if power::has_power_command(&directory.manifest) {
        words.extend(["--power-command", "COMMAND"].map(str::to_owned));
    }
    flyball_measure::quote(&words)
}

/// Prints which arms need another boot.
fn waiting(context: &Context, directory: &RunDirectory) {
    let manifest = &directory.manifest;
    for (index, arm) in manifest.arms.iter().enumerate() {
        let ran = directory.rounds.iter().any(|round| round.arm == index && !round.warm_up);
        if let (false, Some(Some(needed))) = (ran, manifest.boot_needs.get(index)) {
            eprintln!(
                "arm '{}' needs a boot with {needed} on the kernel's command line; then: {}",
                arm.name,
                resume_command("compare", &context.machine, directory)
            );
        }
    }
}

fn start_server(host: &dyn Host, argv: &[String], user: Option<&User>) -> Result<Box<dyn Process>, Failure> {
    let program = argv.first().map_or("", String::as_str);
    let fail = |error: std::io::Error| {
        let hint = if program == "tbench_srv" { "; it is in the package dbench" } else { "" };
        Failure::not_here(format!("cannot start {program}: {error}{hint}"))
    };
    let mut server = host.spawn(Launch::new(program, &argv[1..]).as_user(user).silent()).map_err(fail)?;
    // If bind(2) fails, it does so within milliseconds. After this wait, a server is also ready.
    if let Some(ended) = server.wait(Duration::from_millis(300)).map_err(fail)? {
        return Err(Failure::failed(format!(
            "{program} exited immediately ({}); is another instance running?",
            ended.status
        )));
    }
    Ok(server)
}
