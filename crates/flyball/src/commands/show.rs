//! `flyball show`: the whole machine on one screen.

use crate::{
    cli::Cli,
    exit::{Exit, Failure},
    machine,
};

/// Arguments of `show`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Prints the machine.
pub fn run(cli: &Cli, _args: &Args) -> Result<Exit, Failure> {
    let host = machine::open(&cli.machine)?;
    println!("online CPUs: {}", host.read("/sys/devices/system/cpu/online")?);
    Ok(Exit::Done)
}
