//! `flyball quiet on` and `flyball quiet off`: keep a machine quiet between two commands.

use std::sync::atomic::Ordering;

use flyball_control::write::{
    journal::{Contents, Journal, Purpose},
    transaction::{self, Scope},
};

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
    output,
    quiet_machine::{Quiet, QuietSession},
};

/// Makes the machine quiet until `quiet off`.
pub(super) fn on(context: &Context, quiet: &Quiet) -> Result<Exit, Failure> {
    let host = context.open()?;
    let interrupted = change::interrupts()?;
    let stopped = || interrupted.load(Ordering::Relaxed);
    // No guardian, because the changes must outlive this process.
    let session = QuietSession::begin(context, &*host, quiet, Purpose::QuietOn, false, &stopped)?;
    let QuietSession { transaction, group, notes } = session;
    transaction.keep()?;
    // Print only now, when the changes are committed: a closed stderr may end the process.
    for note in &notes {
        eprintln!("note: {note}");
    }
    output::line(format_args!("quiet ({}); 'flyball quiet off' restores the settings", quiet.level))?;
    if let Some(group) = group {
        output::line(format_args!(
            "a benchmark gets the reserved CPUs by joining the control group: echo $$ > {group}/cgroup.procs"
        ))?;
    }
    Ok(Exit::Done)
}

/// Undoes `quiet on`.
pub(super) fn off(context: &Context) -> Result<Exit, Failure> {
    let host = context.open()?;
    change::must_be_writable(&*host)?;
    let state = context.state()?;
    let contents = Journal::load(&state)?;
    // A command that was killed before its first write has changed nothing.
    let pending: Vec<_> =
        contents.iter().flat_map(Contents::pending).filter(|entry| entry.writes > 0).collect();
    let Some(position) = pending.iter().rposition(|entry| entry.purpose == Some(Purpose::QuietOn)) else {
        output::line("not quiet: nothing to undo")?;
        return Ok(Exit::Done);
    };
    // Undo entries from the last one on: undoing an earlier one first would restore values that a
    // later one has replaced.
    if position + 1 != pending.len() {
        return Err(Failure::failed(format!(
            "settings were changed after 'quiet on' ({}); undo those first with 'flyball restore --last', or everything with 'flyball restore'",
            pending[position + 1].command
        )));
    }
    let restored = transaction::restore(&*host, &state, &change::command_line(), Scope::Last)?;
    output::line(&restored.restoration)?;
    Ok(if restored.restoration.is_exact() { Exit::Done } else { Exit::HalfDone })
}
