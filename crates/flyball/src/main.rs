//! The command line: parse, call, render.
//!
//! `cli` holds what the user may type, `change` what commands that write share, `commands` one module a command, `machine` how `-M` becomes a
//! [`flyball_host::Host`], `exit` what a command's end means. No knowledge of kernels lives here.

mod change;
mod cli;
mod commands;
mod exit;
mod machine;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    exit::die_quietly_on_a_closed_pipe();
    let cli = cli::Cli::parse();
    match commands::run(&cli) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("flyball: {failure}");
            failure.exit.into()
        }
    }
}
