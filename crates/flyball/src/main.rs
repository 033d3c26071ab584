//! The main program: parses the command line, runs the command, prints failures.
//!
//! `cli` has the options of all commands. Each command is a module under `commands` and gets its
//! own arguments and a [`context::Context`]: the machine, its state directory and the reporter.
//! Modules only use modules that come later in this list: `help`, `cli`, `commands`,
//! `quiet_machine`, `change`, `profiles`, `fold`, `context`, `machine`, `output`, `paint`,
//! `terminal`, `process`, `exit`. Knobs, plans, comparisons and searches are in the libraries.

#![deny(clippy::print_stdout, reason = "data on stdout goes through `output`")]

/// Like the standard library's macro, but without its panic: see [`output::complain`].
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::complain(format_args!("{}\n", format_args!($($text)*))) };
}

mod change;
mod cli;
mod commands;
mod context;
mod exit;
mod help;
mod knob_arguments;
mod machine;
mod output;
mod paint;
mod process;
mod profiles;
mod quiet_machine;
mod run_as;
mod terminal;
mod time;
mod tips;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser as _, error::ErrorKind};
use flyball_control::plan::PlanError;
use flyball_host::{Host, Live};
use flyball_process::bounds::{self, NotingAllocator};

use crate::{
    cli::{Cli, ColorWhen},
    commands::{Command, Program, guest, intel_speed_select, tracer_dropin},
    context::Context,
    exit::{Exit, Failure},
    machine::MachineArg,
    output::{Format, Reporter},
};

/// Detects failed allocations, so that running out of memory is reported with a message.
#[cfg(not(target_env = "musl"))]
#[global_allocator]
static ALLOCATOR: NotingAllocator<std::alloc::System> = NotingAllocator(std::alloc::System);

/// musl's allocator costs a static binary 25 % more CPU time, so static builds use mimalloc.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: NotingAllocator<mimalloc::MiMalloc> = NotingAllocator(mimalloc::MiMalloc);

/// Stack size that is enough for every command, bytes.
const MIN_STACK: u64 = 1 << 20;

fn main() -> ExitCode {
    // A stack overflow would end the process by a signal, without a message.
    if let Some(limit) = bounds::stack().filter(|limit| *limit < MIN_STACK) {
        let limit = limit >> 10;
        eprintln!(
            "flyball: the limit on the stack is {limit} KiB, and flyball needs 1024\nhint: ulimit -s 8192"
        );
        return Exit::Failed.into();
    }
    // If the reader goes away (`flyball show | head`), SIGPIPE ends the process, as for other
    // tools. If it was changing the machine, its guardian restores that.
    flyball_process::set_signal_actions();
    // Before clap: if called through a link named intel-speed-select, the arguments follow that
    // tool's syntax.
    if let Some(code) = intel_speed_select::run_if_called() {
        return code;
    }
    let color = ColorWhen::from_process();
    terminal::use_colours(color.choice());
    let words = words();
    if words.len() == 1 || words[1..] == ["-h"] {
        // Without a command, print an overview. This is not an error, because a user who types only
        // the name asks what the program is. `flyball | less` prints it too.
        return match output::line(help::first_screen(help_width())) {
            Ok(()) => Exit::Done.into(),
            Err(failure) => failure.exit.into(),
        };
    }
    commands::build_only(&words);
    let cli = match parse(color, &words) {
        Ok(cli) => cli,
        Err(error) => return rejected(&error),
    };
    // For the failure below, as `run_command` consumes the arguments.
    let live = matches!(cli.machine.machine, MachineArg::Live);
    match run_command(cli) {
        Ok(exit) => output::concluded(exit).into(),
        Err(failure) => {
            eprintln!("flyball: {failure}");
            // Many try a new tool in a virtual machine first. The message alone would be a dead
            // end.
            if live && is_for_lack_of_cpufreq(&failure) {
                eprintln!(
                    "  you can try it on a simulated machine: -M sim:ryzen-5750g ('flyball sim list' has more)"
                );
            }
            failure.exit.into()
        }
    }
}

/// Returns the width of help: at most 120 columns, because longer lines are hard to read, and 100
/// without a terminal.
fn help_width() -> usize {
    terminal::columns().unwrap_or(100).min(120)
}

/// Returns the words of the command line. If called through a link with the name of a kernel
/// tracer, that name is the command.
fn words() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if let Some(name) = words.first().and_then(|program| tracer_dropin::command_of_link(program)) {
        words.insert(1, name.into());
    }
    words
}

/// Parses the command line.
fn parse(color: ColorWhen, words: &[OsString]) -> Result<Cli, clap::Error> {
    // Fitting help to the terminal takes time, so only do it if help is printed.
    let with_help = || {
        let short = words.iter().take_while(|word| *word != "--").any(|word| word == "-h");
        help::command(Cli::command(), help_width(), short, commands::may_be)
    };
    let fitted = words.iter().any(|word| word == "-h" || word == "--help" || word == "help");
    let top = if fitted { with_help() } else { Cli::command() };
    let matches =
        top.color(color.choice()).try_get_matches_from(words).map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if fitted => error,
            ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                with_help().color(color.choice()).try_get_matches_from(words).err().unwrap_or(error)
            }
            _ => {
                let words: Vec<String> =
                    words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
                tips::with_tip(error, &words)
            }
        })?;
    Cli::from_arg_matches(&matches)
}

/// Prints help, or an error in the command line, whose words may be file names that another user
/// chose.
fn rejected(error: &clap::Error) -> ExitCode {
    // clap writes to the terminal directly, including odd characters from the command line. Its
    // rendered text does not show them: without colours it lacks all escape sequences, even those
    // from the words. So check the words themselves.
    let is_odd = |word: OsString| !word.to_string_lossy().chars().all(flyball_process::terminal::is_plain);
    if error.use_stderr() && std::env::args_os().any(is_odd) {
        output::complain(error.render());
        return Exit::Usage.into();
    }
    match error.print() {
        // stdout, perhaps on a full disk, could not be written.
        Err(_) if !error.use_stderr() => Exit::Unwritten.into(),
        _ => ExitCode::from(error.exit_code() as u8),
    }
}

/// Returns whether a valid request failed because this machine has no cpufreq driver, like most
/// virtual machines.
fn is_for_lack_of_cpufreq(failure: &Failure) -> bool {
    let policies = || Live::new().list(flyball_host::topology::POLICIES).unwrap_or_default();
    matches!(failure.find(), Some(PlanError::NotHere(_)))
        && !policies().iter().any(|name| name.starts_with("policy"))
}

fn run_command(cli: Cli) -> Result<Exit, Failure> {
    if let Some(files) = cli.command.files(&cli.machine)? {
        // Ignore a kernel that cannot confine: the readers are safe by themselves, and confinement
        // is a second line of defence.
        let _ = files.enter();
    }
    let output = Reporter::new(if cli.json { Format::Json } else { Format::Text });
    let options = cli.machine;
    // The whole command line runs inside a guest, so do not open it as a host.
    if let MachineArg::Guest(_) = &options.machine
        && let MachineArg::Guest(choice) = options.machine()?
    {
        let kernel = options.kernel.as_deref();
        return match &cli.command {
            Command::Guest(_) => {
                Err(Failure::usage("flyball guest takes its machine as an argument, not by -M"))
            }
            Command::Compare(args) if !args.dry_run() => guest::inside(&choice, kernel, cli.json, Some(args)),
            _ => guest::inside(&choice, kernel, cli.json, None),
        };
    }
    // `sim` and `guest` take their machine as an argument, not with -M, and check the options
    // themselves.
    let machine = match &cli.command {
        Command::Sim(_) | Command::Guest(_) => options.machine.clone(),
        _ => options.machine()?,
    };
    let context = &Context::new(machine, cli.state_dir, output);
    let program = Program {
        options: &options,
        json: cli.json,
        grammar: Cli::command,
        run: |words| run_command(Cli::try_parse_from(words).map_err(Failure::usage)?),
    };
    cli.command.run(context, &program)
}
