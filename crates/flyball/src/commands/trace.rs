//! `flyball trace`: every decision of the P-state driver, out of the kernel's ring buffer.

use clap::Subcommand;

use crate::{
    cli::Cli,
    exit::{Exit, Failure},
};

use super::trace_report;

/// Arguments of `trace`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say what a trace holds, per CPU and per task: as a table, JSON or CSV.
    Report(trace_report::Args),
}

/// Runs the part of `trace` that was typed.
pub fn run(cli: &Cli, args: &Args) -> Result<Exit, Failure> {
    match &args.what {
        What::Report(args) => trace_report::run(cli, args),
    }
}
