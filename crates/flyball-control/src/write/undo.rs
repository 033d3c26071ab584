//! Undoing transactions of the journal: what `flyball restore` and the guardian do.

use flyball_host::Host;
use serde::Serialize;

use super::{
    journal::{Contents, EarlierBoot, Entry, Journal, JournalError, TransactionState},
    outcome::TransactionError,
    restore::{Restoration, restore_goals},
    state::StateDir,
};

/// The boot that the machine is in; `None` where it has none (a tree of files).
pub fn boot_id(host: &dyn Host) -> Option<String> {
    host.read("/proc/sys/kernel/random/boot_id").ok().filter(|id| !id.is_empty())
}

/// Which transactions `restore` undoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All of this boot: back to before flyball's first write.
    All,
    /// The last one only.
    Last,
    /// The one that was left open, if one was: what a guardian undoes. It leaves committed settings
    /// alone.
    Open,
    /// Those of holds.
    Holds,
}

impl Scope {
    /// The transactions of a journal that it is about, oldest first.
    pub fn of(self, contents: &Contents) -> Vec<Entry> {
        match self {
            Scope::All => contents.pending().cloned().collect(),
            Scope::Last => contents.pending().next_back().cloned().into_iter().collect(),
            Scope::Open => contents.interrupted().cloned().into_iter().collect(),
            Scope::Holds => contents.of_holds(),
        }
    }
}

/// What `restore` did.
#[derive(Debug, Clone, Default, PartialEq, schemars::JsonSchema, Serialize)]
pub struct Restored {
    /// The transactions that were undone, oldest first.
    pub undone: Vec<Entry>,
    /// What was restored.
    pub restoration: Restoration,
    /// The journal of an earlier boot, where one was found and set aside.
    pub notes: Vec<EarlierBoot>,
}

/// Restores what the journal remembers.
///
/// # Errors
/// The machine is held by another, or the journal cannot be used.
pub fn restore(
    host: &dyn Host,
    state: &StateDir,
    command: &str,
    scope: Scope,
) -> Result<Restored, TransactionError> {
    let _lock = state.lock(command)?;
    restore_locked(host, state, scope).map_err(TransactionError::Journal)
}

/// Forgets these transactions without putting anything back: for settings whose device or driver is
/// gone for good, which would keep them from ever being undone as a whole.
///
/// # Errors
/// As [`restore`].
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

/// [`restore`] for a caller that already has the lock: the guardian, and `flyball hold`.
///
/// # Errors
/// The journal cannot be used.
pub fn restore_locked(host: &dyn Host, state: &StateDir, scope: Scope) -> Result<Restored, JournalError> {
    let mut notes = Vec::new();
    // Opening would make one.
    if Journal::load(state)?.is_none() {
        return Ok(Restored { undone: Vec::new(), restoration: Restoration::default(), notes });
    }
    let (mut journal, aside) = Journal::open(state, &host.name(), boot_id(host).as_deref())?;
    notes.extend(aside);
    let contents = journal.contents();
    let damaged = contents.damaged.len();
    let foreign = contents.foreign.iter().map(|(_, location)| location.clone()).collect();
    let undone = scope.of(contents);
    // One that announced no write was ended before it changed anything: what differs now is not its
    // doing. A damaged line may have announced one.
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
        // It was tried. What is left does not keep other commands from the machine: it can be
        // restored later, together with what they change.
        for entry in undone.iter().filter(|entry| entry.standing == TransactionState::Open) {
            journal.commit(entry.id)?;
        }
    }
    Ok(Restored { undone, restoration, notes })
}
