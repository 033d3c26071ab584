//! `flyball trace`: shows every decision of the P-state driver, from the kernel's ring buffer.

pub(crate) mod diagnose;
mod formats;
mod input;
mod plots;
mod print;
mod record;
pub(crate) mod report;
pub(crate) mod run;
mod tables;
pub(crate) mod traced_machine;

use clap::Subcommand;
use flyball_process::confine::Confinement;

pub(crate) use self::input::writer;
use crate::{
    context::Context,
    exit::{Exit, Failure},
    machine::MachineArg,
};
pub(crate) use record::why_refused;

/// Arguments of `trace`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Find stuck, oscillating, clipped, ignored or silent CPUs, with time ranges.
    Diagnose(diagnose::Args),
    /// Record the driver's decisions to a trace.dat file, until Ctrl-C, a time limit, or the end of
    /// a command.
    Record(record::Args),
    /// Record while a command runs, then report and diagnose.
    Run(run::Args),
    /// Summarise a trace per CPU and per task: table, JSON, CSV, Parquet, HTML page or pictures.
    Report(report::Args),
}

impl Args {
    /// Adds the files of a trace to read. Returns `false` if a trace is recorded.
    pub(crate) fn files(&self, machine: &MachineArg, files: &mut Confinement) -> bool {
        match &self.what {
            What::Diagnose(args) => args.files(machine, files),
            // They write to tracefs and start commands.
            What::Record(_) | What::Run(_) => false,
            What::Report(args) => {
                args.files(files);
                true
            }
        }
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    match &args.what {
        What::Diagnose(args) => diagnose::run(context, args),
        What::Record(args) => record::run(context, args),
        What::Run(args) => run::run(context, args),
        What::Report(args) => report::run(context, args),
    }
}
