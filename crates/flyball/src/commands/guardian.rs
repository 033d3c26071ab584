//! `flyball guardian`: the process that restores when flyball dies. Started by flyball itself, never by hand.

use std::os::fd::AsFd;

use flyball_control::write::guardian::watch;

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
};

/// Arguments of `guardian`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Watches over stdin, which is the line to flyball; stdout is the lock.
pub fn run(context: &Context) -> Result<Exit, Failure> {
    let host = context.open()?;
    let state = context.state()?;
    // Ctrl-C and a closing terminal end flyball, not the one that cleans up after it.
    let _ignored = change::interrupts()?;
    let line = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| Failure::failed(format!("no line to flyball: {error}")))?;
    let Some(restored) = watch(&*host, &state, line)? else { return Ok(Exit::Done) };
    for entry in &restored.undone {
        eprintln!("flyball guardian: '{}' (pid {}) died; {}", entry.command, entry.pid, restored.restoration);
    }
    Ok(if restored.restoration.is_exact() { Exit::Done } else { Exit::HalfDone })
}
