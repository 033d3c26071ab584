//! `flyball quiet`: a steady machine for benchmarks, a watch on whether it stays so, and where a series shifted.
//!
//! `hold` makes and unmakes the quiet, `bench` runs a series in it, `shifts` looks for shifts in any series.

mod bench;
pub mod hold;
mod shifts;

use flyball_control::quiet::Level;
use flyball_host::{CpuList, KiloHertz};

use crate::{
    context::Context,
    exit::{Exit, Failure},
};

/// Arguments of `quiet`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Levels, each with all of the one before:
  light    performance governor and preference, shallow idle states, interrupts elsewhere: no loss of speed
  steady   and turbo off
  fixed    and one frequency (the base one, or --freq), SMT siblings offline

  flyball quiet -- ./bench                     one command, everything put back after
  flyball quiet --level fixed --cpus 2,3 -- ./bench
  flyball quiet -n --level fixed               what would be written, and what this machine lacks
  flyball quiet on; ./bench; flyball quiet off
  flyball quiet bench -n 400 --cpus 3 -- ./bench    a series, watched, graded, searched for shifts
  flyball quiet shifts results.json            shifts in a series of pyperf, hyperfine, Google Benchmark or CSV

Exit: that of the command; otherwise 0 done, 1 failed and put back, 2 usage, 3 putting back failed, 6 held by another."
)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    quiet: Quiet,

    /// Print every write and what this machine lacks, and write nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// The command to run in quiet.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How quiet, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct Quiet {
    /// How much speed may be given up: light, steady or fixed.
    #[arg(long, default_value = "steady", value_name = "LEVEL")]
    pub level: Level,

    /// The CPUs of the benchmark, kept for it as far as can be; all if not given.
    #[arg(short, long, value_name = "CPUS")]
    pub cpus: Option<CpuList>,

    /// The frequency of level fixed, if not the base one.
    #[arg(long, value_name = "FREQ")]
    pub freq: Option<KiloHertz>,

    /// Leave address space randomisation on for the command.
    #[arg(long)]
    pub keep_aslr: bool,
}

/// The other things that `quiet` does.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make the machine quiet, to stay until `quiet off`.
    On(Quiet),
    /// Undo `quiet on`.
    Off,
    /// Is the machine quiet now, and for which level?
    Status(Quiet),
    /// Run a command many times in quiet, watch every run, say where the series shifted.
    Bench(bench::Args),
    /// Find the shifts in a series that is there already.
    Shifts(shifts::Args),
}

/// Does it.
pub fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    match &args.action {
        Some(Action::On(quiet)) => hold::on(context, quiet),
        Some(Action::Off) => hold::off(context),
        Some(Action::Status(quiet)) => hold::status(context, quiet),
        Some(Action::Bench(args)) => bench::run(context, args),
        Some(Action::Shifts(args)) => shifts::run(&context.output, args),
        None if args.dry_run => hold::preview(context, &args.quiet),
        None if args.command.is_empty() => Err(Failure::usage(
            "what is to run in quiet? 'flyball quiet -- COMMAND', or one of: on, off, status, bench, shifts",
        )),
        None => hold::around(context, &args.quiet, &args.command),
    }
}
