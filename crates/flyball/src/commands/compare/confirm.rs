//! Before `compare --resume` runs what a directory names: the user sees the command, and is asked if the directory is not
//! the user's own.

use std::{
    io::{BufRead as _, IsTerminal as _},
    os::unix::fs::MetadataExt as _,
};

use flyball_measure::{RunDirectory, quote};

use crate::{exit::Failure, run_as};

/// Prints what will run. Fails where the directory belongs to another user and the user has not agreed.
pub(super) fn confirm(directory: &RunDirectory, yes: bool) -> Result<(), Failure> {
    let workload = &directory.manifest.workload;
    eprintln!("note: this comparison runs: {}", quote(&workload.argv));
    if let Some(server) = &workload.server {
        eprintln!("note: with the server: {}", quote(server));
    }
    if let Some(script) = &workload.prepare {
        eprintln!("note: before each round: sh -c {}", quote(std::slice::from_ref(script)));
    }
    for load in &workload.background {
        eprintln!("note: during each round: {}", quote(&load.argv));
    }
    let path = directory.path();
    // Of the directory and not of the manifest: who owns the directory can replace the files in it.
    let owner = std::fs::metadata(path)
        .map_err(|error| Failure::failed(format!("cannot look at {}: {error}", path.display())))?
        .uid();
    if yes || owner == run_as::caller() {
        return Ok(());
    }
    // A script cannot answer, and must not wait for input that never comes.
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(format!(
            "{} belongs to user {owner}, who may have changed the command above; give --yes to run it",
            path.display()
        )));
    }
    eprintln!("{} belongs to user {owner}, who may have changed this. Run it? [y/N]", path.display());
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::usage("not run"))
}
