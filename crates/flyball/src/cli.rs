//! What the user may type. Every command's own arguments are in its module under `commands`.

use clap::{Parser, Subcommand};

/// Put a machine's processors into the state a workload needs, prove what it is worth, put everything back.
#[derive(Debug, Parser)]
#[command(name = "flyball", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// The machine: live, or a directory that holds a recorded machine's sys/ and proc/.
    #[arg(short = 'M', long, global = true, default_value = "live", value_name = "MACHINE")]
    pub machine: String,

    /// Print data as JSON on stdout.
    #[arg(long, global = true)]
    pub json: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The whole machine on one screen.
    Show(crate::commands::show::Args),

    /// Is this machine set up as it should be, and what should change?
    Doctor(crate::commands::doctor::Args),
}
