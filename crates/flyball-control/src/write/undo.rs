//! Undoes transactions of the journal, for `flyball restore` and the guardian.

use flyball_host::Host;
use serde::Serialize;

use super::{
    journal::{Contents, EarlierBoot, Entry, Journal, JournalError, TransactionState},
    outcome::TransactionError,
    restore::{Restoration, restore_goals},
    state::StateDir,
};

/// Returns the ID of the machine's present boot; `None` if it has none (a tree of files).
pub fn boot_id(host: &dyn Host) -> Option<String> {
    host.read("/proc/sys/kernel/random/boot_id").ok().filter(|id| !id.is_empty())
}

/// The transactions that `restore` undoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All of this boot, back to the state before flyball's first write.
    All,
    /// The last one only.
    Last,
    /// The one that was left open, if there is one, as a guardian does. Committed settings stay.
    Open,
    /// Those of holds.
    Holds,
}

impl Scope {
    /// Returns the transactions of a journal in this scope, oldest first.
    pub fn of(self, contents: &Contents) -> Vec<Entry> {
        match self {
            Scope::All => contents.pending().cloned().collect(),
            Scope::Last => contents.pending().next_back().cloned().into_iter().collect(),
            Scope::Open => contents.interrupted().cloned().into_iter().collect(),
            Scope::Holds => contents.of_holds(),
        }
    }
}

/// The result of `restore`.
#[derive(Debug, Clone, Default, PartialEq, schemars::JsonSchema, Serialize)]
pub struct Restored {
    /// The transactions that were undone, oldest first.
    pub undone: Vec<Entry>,
    /// The result of restoring their locations.
    pub restoration: Restoration,
    /// The journal of an earlier boot, if one was found and set aside.
    pub notes: Vec<EarlierBoot>,
}

/// Restores the contents that the journal remembers.
///
/// # Errors
/// Another process holds the machine, or the journal cannot be used.
pub fn restore(
    host: &dyn Host,
    state: &StateDir,
    command: &str,
    scope: Scope,
) -> Result<Restored, TransactionError> {
    let _lock = state.lock(command)?;
    restore_locked(host, state, scope).map_err(TransactionError::Journal)
}

/// Drops these transactions without restoring anything, for settings whose device or driver is gone
/// for good, so that they could never be undone as a whole.
///
/// # Errors
/// Same as [`restore`].
pub fn forget(
    host: &dyn Host,
    state: &StateDir,
    command: &str,
    entries: &[Entry],
) -> Result<(), TransactionError> {
    let _lock = state.lock(command)?;
    let (mut journal, _) = Journal::open(state, &host.name(), boot_id(host).as_deref())?;
    Ok(journal.forget(&entries.iter().map(|entry| entry.id).collect::<Vec<_>>())?)
}

/// Like [`restore`], for a caller that already has the lock: the guardian, and `flyball hold`.
///
/// # Errors
/// The journal cannot be used.
pub fn restore_locked(host: &dyn Host, state: &StateDir, scope: Scope) -> Result<Restored, JournalError> {
    let mut notes = Vec::new();
    // Opening would create one.
    if Journal::load(state)?.is_none() {
        return Ok(Restored { undone: Vec::new(), restoration: Restoration::default(), notes });
    }
    let (mut journal, aside) = Journal::open(state, &host.name(), boot_id(host).as_deref())?;
    notes.extend(aside);
    let contents = journal.contents();
    let damaged = contents.damaged.len();
    let foreign = contents.foreign.iter().map(|(_, location)| location.clone()).collect();
    let undone = scope.of(contents);
    // A transaction that announced no write ended before it changed anything, so it did not cause
    // the present differences. A damaged line may have announced a write.
    let wrote = |entry: &&Entry| entry.has_goals() || contents.unusable() > 0;
    let mut restoration = restore_goals(host, &Contents::goals(undone.iter().filter(wrote)));
    restoration.damaged = damaged;
    restoration.foreign = foreign;
    if restoration.is_exact() {
        if scope == Scope::Holds {
            journal.release_all(&undone)?;
        } else {
            journal.restored(&undone.iter().map(|entry| entry.id).collect::<Vec<_>>())?;
        }
    } else {
        // Restoring was attempted. What is left does not keep other commands from the machine: it
        // can be restored later, together with what they change.
        for entry in undone.iter().filter(|entry| entry.standing == TransactionState::Open) {
            journal.commit(entry.id)?;
        }
    }
    Ok(Restored { undone, restoration, notes })
}
