//! `flyball trace`: every decision of the P-state driver, out of the kernel's ring buffer.

mod input;
mod report;

use clap::Subcommand;

use crate::{
    cli::Cli,
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
    /// Say what a trace holds, per CPU and per task: as a table, JSON or CSV.
    Report(report::Args),
}

/// Runs the part of `trace` that was typed.
pub fn run(cli: &Cli, args: &Args) -> Result<Exit, Failure> {
    match &args.what {
        What::Report(args) => report::run(cli, args),
    }
}
