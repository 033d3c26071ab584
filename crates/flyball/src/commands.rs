//! The commands. Each is a module with its arguments and `run`, and a variant of [`Command`].

pub(crate) mod apply;
pub(crate) mod compare;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod exporter;
pub(crate) mod get;
pub(crate) mod guardian;
pub(crate) mod guest;
pub(crate) mod hold;
#[cfg(feature = "bus")]
pub(crate) mod hold_bus;
pub(crate) mod import;
pub(crate) mod intel_speed_select;
pub(crate) mod man;
pub(crate) mod parse;
pub(crate) mod plan;
pub(crate) mod profiles;
pub(crate) mod quiet;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod restore;
#[cfg_attr(
    not(feature = "parquet"),
    allow(dead_code, reason = "the command line is the same in every build")
)]
pub(crate) mod results;
pub(crate) mod run;
pub(crate) mod save;
pub(crate) mod schema;
pub(crate) mod set;
pub(crate) mod show;
pub(crate) mod sim;
pub(crate) mod sst;
pub(crate) mod task;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod tracer_dropin;
pub(crate) mod tune;
pub(crate) mod verify;
pub(crate) mod wake;
pub(crate) mod why;

use std::{ffi::OsString, ops::Deref, sync::OnceLock};

use clap::{ArgMatches, FromArgMatches, Subcommand};
use flyball_process::confine::Confinement;

use crate::{
    context::Context,
    exit::{Exit, Failure},
    machine::{MachineArg, MachineOptions},
};

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "a process has one")]
pub(crate) enum Command {
    /// Show the whole machine on one screen.
    Show(Lazy<show::Args>),

    /// Print the values of knobs.
    Get(Lazy<get::Args>),

    /// Explain a knob: effect, values, interactions, files and registers.
    Explain(Lazy<explain::Args>),

    /// Explain why CPUs run below their maximum frequency.
    Why(Lazy<why::Args>),

    /// Count wake-ups out of idle states, and bound the time that they cost.
    Wake(Lazy<wake::Args>),

    /// Check the machine's CPU configuration and suggest fixes.
    Doctor(Lazy<doctor::Args>),

    /// Change settings until reboot or restore: governor=performance turbo=off ...
    Set(Lazy<set::Args>),

    /// Show every write that settings need, without writing.
    Plan(Lazy<plan::Args>),

    /// List profiles, and how many of their settings this machine has.
    Profiles(Lazy<profiles::Args>),

    /// Apply a profile until reboot or restore.
    Apply(Lazy<apply::Args>),

    /// Check that settings are still in effect, and name programs that may have changed them.
    Verify(Lazy<verify::Args>),

    /// Undo flyball's changes, even after a crash.
    Restore(Lazy<restore::Args>),

    /// Keep settings in place, and report what changes them.
    Hold(Lazy<hold::Args>),

    /// Save the current settings as a profile.
    Save(Lazy<save::Args>),

    /// Print a TLP, TuneD or auto-cpufreq configuration as a profile.
    Import(Lazy<import::Args>),

    /// Compare programs or settings, and report the differences.
    Compare(Lazy<compare::Args>),

    /// Find the best settings for a workload, and measure them again.
    Tune(Lazy<tune::Args>),

    /// Run a command under settings, then restore them.
    Run(Lazy<run::Args>),

    /// Rebuild a comparison's report, combine those of a fleet, or check a kernel selftest's CSV.
    Report(Lazy<report::Args>),

    /// Collect results over years as Parquet files, and find shifts.
    Results(Lazy<results::Args>),

    /// Prepare the machine for benchmarks, and find shifts in a series of runs.
    Quiet(Lazy<quiet::Args>),

    /// Change Intel Speed Select: performance levels, base-freq, turbo-freq, core-power.
    Sst(Lazy<sst::Args>),

    /// Record, report and diagnose the P-state driver's decisions.
    Trace(Lazy<trace::Args>),

    /// Show each CPU's requested and actual speed live, and what limits it.
    Top(Lazy<top::Args>),

    /// Serve processor metrics to Prometheus, or write them to a file.
    Exporter(Lazy<exporter::Args>),

    /// List simulated machines, run programs on them, compare them with measurements.
    Sim(Lazy<sim::Args>),

    /// Boot real kernels on emulated processors and run commands in them.
    Guest(Lazy<guest::Args>),

    /// Record this machine in one file, for -M elsewhere.
    Record(Lazy<record::Args>),

    /// Drop-in replacement for the kernel's intel-speed-select.
    // -h and -v are the tool's own.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    IntelSpeedSelect(Lazy<intel_speed_select::Args>),

    /// Drop-in replacement for the kernel's amd_pstate_trace.py.
    #[command(
        name = "amd_pstate_trace.py",
        override_usage = "flyball amd_pstate_trace.py -n <NAME> -t <FILE> [OPTIONS]\n       flyball amd_pstate_trace.py -n <NAME> -i <SECONDS> [OPTIONS]"
    )]
    AmdPstateTrace(Lazy<tracer_dropin::Args>),

    /// Drop-in replacement for the kernel's intel_pstate_tracer.py.
    #[command(
        name = "intel_pstate_tracer.py",
        override_usage = "flyball intel_pstate_tracer.py -n <NAME> -t <FILE> [OPTIONS]\n       flyball intel_pstate_tracer.py -n <NAME> -i <SECONDS> [OPTIONS]"
    )]
    IntelPstateTracer(Lazy<tracer_dropin::Args>),

    /// Print the manual.
    Man(Lazy<man::Args>),

    /// Print shell completions.
    Completions(Lazy<completions::Args>),

    /// Print the JSON Schemas of output and files.
    Schema(Lazy<schema::Args>),

    /// What fits at the cursor: for the scripts of `completions`.
    #[command(hide = true)]
    Complete(Lazy<complete::Args>),

    /// Whether words are a command line: for tests of documents.
    #[command(hide = true)]
    Parse(Lazy<parse::Args>),

    /// Run a built-in workload once and print its result.
    #[command(hide = true)]
    Task(Lazy<task::Args>),

    /// The process that restores settings if flyball dies.
    #[command(hide = true)]
    Guardian(Lazy<guardian::Args>),

    /// The process that speaks D-Bus for the service.
    #[cfg(feature = "bus")]
    #[command(hide = true)]
    HoldBus(Lazy<hold_bus::Args>),
}

/// Commands that need the arguments of other commands.
const NEED_ALL: [&str; 7] =
    ["help", "man", "completions", "complete", "parse", "amd_pstate_trace.py", "intel_pstate_tracer.py"];

/// The words of the command line, from which [`Lazy`] recognises the command.
static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Limits clap's work to the arguments of commands that occur in `words`. Building the arguments of
/// all commands takes longer than many commands run.
pub(crate) fn build_only(words: &[OsString]) {
    let _ = WORDS.set(words.to_owned());
}

/// Returns whether `name` may be the command on the command line.
pub(crate) fn may_be(name: &str) -> bool {
    WORDS
        .get()
        .is_none_or(|words| words.iter().any(|word| word == name || NEED_ALL.iter().any(|all| word == all)))
}

/// Arguments that are only built for clap if the command line may have their command.
#[derive(Debug)]
pub(crate) struct Lazy<A>(A);

impl<A> Deref for Lazy<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.0
    }
}

impl<A: clap::Args> clap::Args for Lazy<A> {
    fn augment_args(command: clap::Command) -> clap::Command {
        if may_be(command.get_name()) { A::augment_args(command) } else { command }
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        A::augment_args_for_update(command)
    }
}

impl<A: FromArgMatches> FromArgMatches for Lazy<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Lazy<A>, clap::Error> {
        A::from_arg_matches(matches).map(Lazy)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// What commands need from `main`.
pub(crate) struct Program<'p> {
    pub options: &'p MachineOptions,
    pub json: bool,
    /// Returns the whole command line for clap.
    pub grammar: fn() -> clap::Command,
    /// Runs another command line.
    pub run: fn(Vec<OsString>) -> Result<Exit, Failure>,
}

impl Command {
    /// Returns the files to which a command is confined, if it only reads and prints what another
    /// user may have written. The command line names these files, so the process gives up access to
    /// all others before it opens the first one.
    ///
    /// Not confined are commands that run a program (`run`, `compare`, `tune`, `quiet -- COMMAND`),
    /// serve a machine (`sim run`), start an emulator (`guest`, `-M guest:`), or work on the live
    /// machine, whose files cannot be listed in advance. docs/privileges.md has the table.
    #[expect(clippy::too_many_lines, reason = "one arm per command")]
    pub(crate) fn files(&self, options: &MachineOptions) -> Result<Option<Confinement>, Failure> {
        let mut files = Confinement::default();
        // Options such as --sim-state belong to -M. The command itself reports what is wrong with
        // them.
        let machine = match self {
            // These take their machine as an argument and ignore -M.
            Command::Sim(_) | Command::Guest(_) => None,
            _ => Some(options.machine()?),
        };
        let of_machine =
            |files: &mut Confinement| machine.as_ref().is_some_and(|machine| machine.files(files));
        let recorded = matches!(machine, Some(MachineArg::Recorded(_)));
        // No default arm: for each new command, decide here which files it reads, or why it cannot
        // be confined.
        #[deny(clippy::wildcard_enum_match_arm)]
        let confined = match self {
            Command::Show(_) | Command::Get(_) => of_machine(&mut files),
            // On any other machine it may change something, with a journal.
            // A running machine is asked through perf events too.
            Command::Sst(_) => recorded && of_machine(&mut files),
            Command::Why(args) => args.files(&mut files) || recorded && of_machine(&mut files),
            Command::Plan(args) => {
                args.wanted.files(&mut files);
                of_machine(&mut files)
            }
            Command::Profiles(_) => {
                profiles::files(&mut files);
                of_machine(&mut files)
            }
            Command::Verify(args) => {
                args.wanted.files(&mut files);
                of_machine(&mut files)
            }
            // --fix and --write change the machine. Add the trace file in any case.
            Command::Doctor(args) => args.files(&mut files) && of_machine(&mut files),
            Command::Save(args) => {
                args.files(&mut files);
                of_machine(&mut files)
            }
            Command::Record(args) => {
                args.files(&mut files);
                of_machine(&mut files)
            }
            // `trace report` reads a file and needs no machine. The commands that record are not
            // confined.
            Command::Trace(args) => args.files(machine.as_ref().unwrap_or(&MachineArg::Live), &mut files),
            Command::Top(args) => {
                args.files(&mut files) || recorded && args.only_watches(&mut files) && of_machine(&mut files)
            }
            // Changes nothing with --dry-run.
            Command::Set(args) => recorded && args.dry_run() && of_machine(&mut files),
            Command::Apply(args) => recorded && args.files(&mut files) && of_machine(&mut files),
            Command::Report(args) => {
                args.files(&mut files);
                true
            }
            Command::Import(args) => {
                args.files(&mut files);
                true
            }
            Command::Results(args) => {
                args.files(&mut files);
                true
            }
            Command::Quiet(args) => {
                args.files(&mut files) || (args.looks() && recorded && of_machine(&mut files))
            }
            Command::Sim(args) => sim::files(args, &mut files),
            // A server needs its sockets.
            Command::Exporter(args) => recorded && args.files(&mut files) && of_machine(&mut files),
            Command::IntelSpeedSelect(args) => recorded && args.files(&mut files) && of_machine(&mut files),
            // These change the machine, run programs, or keep working on a machine whose files
            // cannot be listed.
            Command::Restore(_)
            | Command::Hold(_)
            | Command::Compare(_)
            | Command::Tune(_)
            | Command::Run(_)
            | Command::Wake(_)
            | Command::Guest(_)
            | Command::Task(_)
            | Command::Guardian(_)
            | Command::AmdPstateTrace(_)
            | Command::IntelPstateTracer(_) => false,
            // Looks for file names in any directory.
            Command::Complete(args) => {
                files.read("/");
                args.names_machine()
            }
            // These print flyball's own texts.
            Command::Explain(_)
            | Command::Man(_)
            | Command::Completions(_)
            | Command::Schema(_)
            | Command::Parse(_) => false,
            // Confines itself, more tightly, once it has its sockets.
            #[cfg(feature = "bus")]
            Command::HoldBus(_) => false,
        };
        Ok(confined.then_some(files))
    }

    pub(crate) fn run(&self, context: &Context, program: &Program<'_>) -> Result<Exit, Failure> {
        match self {
            Command::Show(args) => show::run(context, args),
            Command::Sst(args) => sst::run(context, args),
            Command::Sim(args) => sim::run(program.options, &context.output, args),
            Command::Get(args) => get::run(context, args),
            Command::Record(args) => record::run(context, args),
            Command::Man(args) => man::run((program.grammar)(), args),
            Command::Completions(args) => completions::run((program.grammar)(), args),
            Command::Schema(args) => schema::run(args),
            Command::Complete(args) => complete::run((program.grammar)(), args),
            Command::Parse(args) => parse::run((program.grammar)(), args),
            Command::Explain(args) => explain::run(&context.output, args),
            Command::Top(args) => top::run(context, args),
            Command::Exporter(args) => exporter::run(context, args),
            Command::Trace(args) => trace::run(context, args),
            Command::Doctor(args) => doctor::run(context, args),
            Command::Quiet(args) => quiet::run(context, args),
            Command::Set(args) => set::run(context, args),
            Command::Plan(args) => plan::run(context, args),
            Command::Profiles(args) => profiles::run(context, args),
            Command::Apply(args) => apply::run(context, args),
            Command::Verify(args) => verify::run(context, args),
            Command::Why(args) => why::run(context, args),
            Command::Wake(args) => wake::run(context, args),
            Command::Restore(args) => restore::run(context, args),
            Command::Hold(args) => hold::run(context, args),
            Command::Save(args) => save::run(context, args),
            Command::Import(args) => import::run(args),
            Command::Compare(args) => compare::run(context, args),
            Command::Tune(args) => tune::run(context, args),
            Command::Run(args) => run::run(context, args),
            Command::Report(args) => {
                report::run(&context.output, args, flyball_tune::Record::is_in, tune::report)
            }
            Command::Results(args) => results::run(&context.output, args),
            Command::Task(args) => task::run(args),
            Command::Guest(args) => guest::run(program.options.kernel.as_deref(), program.json, args),
            Command::Guardian(_) => guardian::run(context),
            #[cfg(feature = "bus")]
            Command::HoldBus(args) => hold_bus::run(args),
            Command::IntelSpeedSelect(args) => intel_speed_select::run(context, args),
            Command::AmdPstateTrace(args) | Command::IntelPstateTracer(args) => {
                tracer_dropin::run(context, args, program.run)
            }
        }
    }
}
