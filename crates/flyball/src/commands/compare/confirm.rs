//! Before `compare --resume` runs the command in a directory, prints it, and asks the user if
//! another user may have changed it.

use std::{
    io::{BufRead as _, IsTerminal as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use flyball_measure::{Hook, RunDirectory, quote};

use crate::exit::Failure;

/// Prints what will run. Fails if the directory belongs to another user and the user does not
/// agree.
pub(in crate::commands) fn confirm(directory: &RunDirectory, yes: bool) -> Result<(), Failure> {
    let workload = &directory.manifest.workload;
    // All commits run the same command, so print it once.
    let most = if directory.manifest.bisect.is_some() { 1 } else { usize::MAX };
    let programs = directory.manifest.arms.iter().filter_map(|arm| arm.program.as_ref()).take(most);
    if let Some(build) = directory.manifest.bisect.as_ref().and_then(|note| note.build.clone()) {
        eprintln!("note: --build: sh -c {}", quote(&[build]));
    }
    let mut own = programs.clone().peekable();
    if own.peek().is_none() {
        eprintln!("note: this comparison runs: {}", quote(&workload.argv));
    }
    for program in own {
        eprintln!("note: this comparison runs: {}", program.title());
        if let Some(server) = &program.server {
            let ready = server.ready.as_ref().map_or(String::new(), |ready| format!(", ready when: {ready}"));
            eprintln!("note: with the server: {}{ready}", quote(&server.argv));
        }
    }
    if let Some(server) = &workload.server {
        eprintln!("note: with the server: {}", quote(server));
    }
    let hooks = programs.map(|program| &program.hooks).chain([&workload.hooks]);
    for (hook, script) in hooks.flat_map(|hooks| Hook::ALL.map(|hook| (hook, hooks.get(hook)))) {
        if let Some(script) = script {
            eprintln!("note: {}: sh -c {}", hook.option(), quote(&[script.to_owned()]));
        }
    }
    for load in &workload.background {
        eprintln!("note: during each round: {}", quote(&load.argv));
    }
    for knob in &directory.manifest.knobs {
        let commands = [knob.read.as_ref(), Some(&knob.write), knob.restore.as_ref()];
        for command in commands.into_iter().flatten() {
            eprintln!("note: for the knob {}: sh -c {}", knob.name, quote(std::slice::from_ref(command)));
        }
    }
    let path = directory.path();
    // The owner of the directory, and whoever may write to it, can replace its files.
    let found =
        [path.to_owned(), path.join("manifest.json")].iter().find_map(|path| foreign(path).transpose());
    let (Some(found), false) = (found, yes) else { return Ok(()) };
    let whose = found?;
    // A script cannot answer, and must not wait for input forever.
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(format!(
            "{whose}, who may have changed the command above; give --yes to run it"
        )));
    }
    eprintln!("{whose}, who may have changed this. Run it? [y/N]");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::usage("not run"))
}

/// Returns who else may change a file or directory, as the beginning of a sentence. `None` if no
/// other user may.
fn foreign(path: &Path) -> Result<Option<String>, Failure> {
    let status = std::fs::metadata(path)
        .map_err(|error| Failure::failed(format!("cannot look at {}: {error}", path.display())))?;
    let (owner, name) = (status.uid(), path.display());
    Ok(if owner != flyball_process::caller() {
        Some(format!("{name} belongs to user {owner}"))
    } else if status.mode() & 0o002 != 0 {
        Some(format!("{name} can be written by every user"))
    } else {
        None
    })
}
