//! `flyball trace`: every decision of the P-state driver, out of the kernel's ring buffer.

mod diagnose;
mod input;
pub mod known;
mod plots;
mod print;
mod record;
mod report;

use clap::Subcommand;

use crate::{
    context::Context,
    exit::{Exit, Failure},
};

/// Arguments of `trace`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say in words what is wrong: stuck, hunting, clipped, ignored or silent CPUs, with the time ranges.
    Diagnose(diagnose::Args),
    /// Record the driver's decisions into a trace.dat file, until Ctrl-C, a time, or a command ends.
    Record(record::Args),
    /// Say what a trace holds, per CPU and per task: as a table, JSON, CSV, Parquet, a page or pictures.
    Report(report::Args),
}

/// Runs the part of `trace` that was typed.
pub fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    match &args.what {
        What::Diagnose(args) => diagnose::run(context, args),
        What::Record(args) => record::run(context, args),
        What::Report(args) => report::run(context, args),
    }
}
