//! `flyball guardian`: the process that restores settings if flyball dies. Started only by flyball
//! itself.

use std::os::fd::AsFd;

use flyball_control::write::guardian::{restore, watch};

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
};

/// Arguments of `guardian`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Waits for the end of the parent, which shows as the end of stdin. Stdout is the locked file.
pub(crate) fn run(context: &Context) -> Result<Exit, Failure> {
    // A machine that cannot be opened is found before there is anything to restore.
    drop(context.machine.open_quietly()?);
    let state = context.state()?;
    // Ctrl-C and a closing terminal end the parent; this process must survive to clean up.
    let _ignored = change::interrupts()?;
    let line = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| Failure::failed(format!("cannot connect to the parent flyball process: {error}")))?;
    if !watch(line)? {
        return Ok(Exit::Done);
    }
    let restored = restore(&*context.machine.open_quietly()?, &state)?;
    for entry in &restored.undone {
        eprintln!("flyball guardian: '{}' (pid {}) died; {}", entry.command, entry.pid, restored.restoration);
    }
    Ok(if restored.restoration.is_exact() { Exit::Done } else { Exit::HalfDone })
}
