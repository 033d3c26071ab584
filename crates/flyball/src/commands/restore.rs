//! `flyball restore`: restores what flyball changed.

use flyball_control::{
    Content, fold,
    write::{
        journal::{Contents, Entry, Journal, JournalError, TransactionState},
        transaction::{self, Restored, Scope, TransactionError},
    },
};

use flyball_hold::Store;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    change::{self, Difference},
    context::Context,
    exit::{Exit, Failure},
    output::Reporter,
};

/// Arguments of `restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Before flyball changes anything, it saves the old values, also of everything else that the change may disturb, in \
/run/flyball/journal. A restore needs nothing else: it works after a crash or a kill -9, and can be interrupted and run \
again. The journal of an earlier boot is never replayed, because the kernel has lost those settings.

Examples:
  flyball restore            undo everything since the last full restore
  flyball restore --last     undo only the last command's changes
  flyball restore --forget   also drop settings that cannot be restored because their device is gone
  flyball restore -n         print what is saved and what would be written

Exit codes: 0 everything is restored, 3 something could not be restored, 6 another flyball command is changing the machine.")]
pub(crate) struct Args {
    /// Undo only the last command.
    #[arg(long)]
    last: bool,

    /// Forget settings that cannot be restored because their device or driver is gone.
    #[arg(long, conflicts_with = "dry_run")]
    forget: bool,

    /// Show the saved values and what differs now, without writing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let host = context.open()?;
    let output = context.output.about(&*host);
    let state = context.state_waiting_for_lock()?;
    let scope = if args.last { Scope::Last } else { Scope::All };
    if args.dry_run {
        return preview(&output, &*host, &state, scope);
    }
    change::must_be_writable(&*host)?;
    // Not `exists`, which returns false if the directory may not be read, and would hide a pending
    // restore.
    let there = state.journal().try_exists().map_err(|error| {
        let path = state.journal();
        Failure::failed(format!("cannot look for {}: {error}; run it with sudo", path.display()))
    })?;
    // Holds without a journal are left over from a killed command. The service would apply them.
    let has_holds = || Store::load(&state, &*host).is_ok_and(|store| !store.holds.is_empty());
    if !there && (scope != Scope::All || !has_holds()) {
        // Also the answer for an ordinary user, who may not write to /run.
        eprintln!("nothing to restore: flyball has not changed anything since the last restore");
        output.object(Restored::default, String::new)?;
        return Ok(Exit::Done);
    }
    // Do not check for Ctrl-C: stopping halfway would leave a mix of old and new settings.
    let lock = state.lock(&change::command_line()).map_err(TransactionError::Lock)?;
    let restored = transaction::restore_locked(&*host, &state, scope);
    let has_restored = matches!(restored, Ok(_) | Err(TransactionError::Unrecorded { .. }));
    let released = if scope == Scope::All && has_restored {
        // While holding the lock: otherwise the service would set them again. After restoring the
        // machine, so that an unusable store does not prevent that.
        super::hold::release_all(&*host, &state)
    } else {
        Ok(())
    };
    drop(lock);
    if let (Err(_), Err(failure)) = (&restored, &released) {
        // Print this one, because the caller reports only one of them.
        eprintln!("flyball: {failure}");
    }
    let restored = restored?;
    released?;
    for note in &restored.notes {
        eprintln!("note: {note}");
    }
    output.object(|| &restored, || render(&restored))?;
    if args.last && restored.restoration.is_exact() {
        // Exactly restored, but settings of earlier commands are still in effect.
        let earlier = Journal::load(&state)?.unwrap_or_default().pending().count();
        if earlier > 0 {
            let commands = if earlier == 1 { "command" } else { "commands" };
            eprintln!("note: the settings of {earlier} earlier {commands} are still in effect");
        }
    }
    if restored.restoration.is_exact() {
        return Ok(Exit::Done);
    }
    if args.forget {
        // Only after the attempt, so that only what cannot be restored is dropped.
        transaction::forget(&*host, &state, &change::command_line(), &restored.undone)?;
        eprintln!("note: settings that cannot be restored were removed from the journal");
    } else {
        eprintln!("note: 'flyball restore --forget' drops what is left");
    }
    Ok(Exit::HalfDone)
}

fn render(restored: &Restored) -> String {
    if restored.undone.is_empty() {
        return "nothing to restore\n".to_owned();
    }
    let undone = restored.undone.iter().map(|entry| format!("undone: {}\n", describe(entry)));
    undone.collect::<String>() + &format!("{}\n", restored.restoration)
}

fn describe(entry: &Entry) -> String {
    let standing = if entry.standing == TransactionState::Open { ", which did not finish" } else { "" };
    let writes = if entry.writes == 1 { "write" } else { "writes" };
    format!("{} (pid {}{standing}; {} {writes})", entry.command, entry.pid, entry.writes)
}

/// The output of `restore -n`.
#[derive(Debug, Default, JsonSchema, Serialize)]
pub(crate) struct RestorePlan {
    /// The transactions that would be undone.
    undo: Vec<Entry>,
    /// Number of locations with a saved value.
    remembered: usize,
    /// Locations whose value differs now.
    differing: Vec<Difference>,
}

fn preview(
    output: &Reporter,
    host: &dyn flyball_host::Host,
    state: &flyball_control::write::state::StateDir,
    scope: Scope,
) -> Result<Exit, Failure> {
    // Without the lock, so that a preview works while another flyball changes the machine.
    let contents = Journal::load(state)?.unwrap_or_default();
    if !contents.entries.is_empty() && contents.machine != host.name() {
        let (path, machine) = (state.journal(), contents.machine);
        return Err(JournalError::OtherMachine { path, machine }.into());
    }
    // sysfs settings are lost at boot. The old values may not be those of this boot, and writing
    // them would be a change.
    if contents.boot != transaction::boot_id(host) && !contents.entries.is_empty() {
        eprintln!("note: the journal is from an earlier boot and will not be replayed");
        output.object(RestorePlan::default, String::new)?;
        return Ok(Exit::Done);
    }
    let chosen = scope.entries(&contents);
    // If several commands changed a location, restore the oldest value.
    let goals = Contents::goals(chosen.iter());
    let differing: Vec<_> = goals
        .0
        .iter()
        .map(|(location, goal)| (location, &goal.was, Content::from_read(&location.read(host))))
        .filter(|(_, was, now)| *was != now)
        .map(|(location, was, now)| Difference::new(location, was, &now))
        .collect();
    let planned = RestorePlan { undo: chosen, remembered: goals.0.len(), differing };
    output.object(
        || &planned,
        || {
            let mut out: String =
                planned.undo.iter().map(|entry| format!("would undo: {}\n", describe(entry))).collect();
            let writes = if planned.differing.len() > 1 {
                "; a restore writes fewer if some follow others"
            } else {
                ""
            };
            out += &format!("{} of {} saved values differ{writes}\n", planned.differing.len(), goals.0.len());
            out + &fold::lines(planned.differing.iter().map(Difference::line), false)
        },
    )?;
    Ok(Exit::Done)
}
