//! `flyball quiet`: prepares a machine for benchmarks, monitors it, and finds shifts in a series of
//! runs.
//!
//! `command` runs one command, `on_off` makes a machine quiet until further notice, `status` only
//! looks, `bench` runs a series on a quiet machine, and `shifts` searches any series. How to make a
//! machine quiet is in `crate::quiet_machine`, which `run` and `compare` use too.

pub(crate) mod bench;
mod command;
mod on_off;
pub(crate) mod shifts;
pub(crate) mod status;

use flyball_process::confine::Confinement;

use crate::{
    context::Context,
    exit::{Exit, Failure},
    quiet_machine::Quiet,
    run_as::RunAs,
};

/// Arguments of `quiet`.
#[derive(Debug, clap::Args)]
#[command(
    // Otherwise `quiet --level fixed on` would be accepted, and the level ignored.
    args_conflicts_with_subcommands = true,
    after_help = "\
Levels, each including the one before:
  light    governor and preference performance, no deep sleep, interrupts on other CPUs; turbo stays on
  steady   also turbo off
  fixed    also one frequency (base, or --freq) and SMT siblings offline

Examples:
  flyball quiet -- ./bench                     run a command, restore everything afterwards
  flyball quiet --level fixed --cpus 2,3 -- ./bench
  flyball quiet -n --level fixed               print what would be written, and what this machine lacks
  flyball quiet on; ./bench; flyball quiet off
  flyball quiet bench --runs 400 --cpus 3 -- ./bench    a series of runs, monitored, graded, searched for shifts
  flyball quiet shifts results.json            shifts in results of pyperf, hyperfine, Google Benchmark or CSV

Under sudo the command runs as the user who called sudo; --as-root keeps it root, --user names another user.

Exit codes: that of the command (127 there is no such command); otherwise 0 done, 1 failed, settings restored, 2 usage, \
3 restoring failed, 5 status: not quiet, 6 another flyball command is changing the machine."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    quiet: Quiet,

    /// Print every write and what this machine lacks; write nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,

    #[command(flatten)]
    run_as: RunAs,

    /// The command to run.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make the machine quiet until `quiet off`.
    On(Quiet),
    /// Undo `quiet on`.
    Off,
    /// Check whether the machine is quiet for a level (light, steady or fixed).
    Status(Quiet),
    /// Run a command many times on the quiet machine, monitor every run, find shifts in the series.
    Bench(bench::Args),
    /// Find sudden, lasting changes (shifts) in an existing series.
    Shifts(shifts::Args),
}

impl Args {
    /// Adds the series of `quiet shifts`. Returns `false` for all other subcommands, which work on
    /// a machine.
    pub(crate) fn files(&self, files: &mut Confinement) -> bool {
        match &self.action {
            Some(Action::Shifts(args)) => {
                args.files(files);
                true
            }
            Some(Action::On(_) | Action::Off | Action::Status(_) | Action::Bench(_)) | None => false,
        }
    }

    /// Returns whether the command only looks at the machine.
    pub(crate) fn looks(&self) -> bool {
        matches!(self.action, Some(Action::Status(_))) || (self.action.is_none() && self.dry_run)
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    match &args.action {
        Some(Action::On(quiet)) => on_off::on(context, quiet),
        Some(Action::Off) => on_off::off(context),
        Some(Action::Status(quiet)) => status::status(context, quiet),
        Some(Action::Bench(args)) => bench::run(context, args),
        Some(Action::Shifts(args)) => shifts::run(&context.output, args),
        None if args.dry_run => status::preview(context, &args.quiet),
        None if args.command.is_empty() => Err(Failure::usage(
            "nothing to run: give a command, as in 'flyball quiet -- COMMAND', or one of on, off, status, bench, shifts",
        )),
        None => command::run(context, &args.quiet, &args.run_as, &args.command),
    }
}
