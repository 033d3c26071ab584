//! `flyball report`: a comparison's report, made again from its run directory.

use std::path::PathBuf;

use flyball_measure::{RunDirectory, analyse, render};

use crate::{
    change,
    cli::Cli,
    exit::{Exit, Failure},
};

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
  flyball report flyball-compare-20260131-120000     the table again, and report.html and the others anew
  flyball report --json DIR                          everything as data

Exit: 0 done, 2 the directory or file cannot be read as one.")]
pub struct Args {
    /// A run directory.
    #[arg(value_name = "DIR")]
    path: PathBuf,
}

/// Makes the report.
pub fn run(cli: &Cli, args: &Args) -> Result<Exit, Failure> {
    let directory = RunDirectory::open(&args.path).map_err(|error| super::compare::record_failure(&error))?;
    for warning in &directory.warnings {
        eprintln!("note: {warning}");
    }
    write_and_print(cli, &directory)?;
    Ok(Exit::Done)
}

/// Writes the report's files into the run directory and prints it.
pub fn write_and_print(cli: &Cli, directory: &RunDirectory) -> Result<(), Failure> {
    let report = analyse(&directory.manifest, &directory.rounds);
    let json =
        serde_json::to_vec_pretty(&report).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    directory.write("report.json", &json).map_err(|error| super::compare::record_failure(&error))?;
    if cli.json {
        return change::print_json(&report);
    }
    print!("{}", render::text(&report));
    eprintln!("report: {}", directory.path().join("report.json").display());
    Ok(())
}
