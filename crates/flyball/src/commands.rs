//! One module a command: its arguments, and `run`.

pub mod doctor;
pub mod show;

use crate::{
    cli::{Cli, Command},
    exit::{Exit, Failure},
};

/// Runs the command that was typed.
pub fn run(cli: &Cli) -> Result<Exit, Failure> {
    match &cli.command {
        Command::Show(args) => show::run(cli, args),
        Command::Doctor(args) => doctor::run(cli, args),
    }
}
