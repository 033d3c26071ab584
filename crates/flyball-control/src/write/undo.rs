//! Undoes transactions of the journal, for `flyball restore` and the guardian.

use std::collections::BTreeSet;

use flyball_host::Host;
use serde::Serialize;

use super::{
    footprint::Footprints,
    journal::{Contents, EarlierBoot, Entry, Goals, Journal, JournalError, TransactionState},
    outcome::TransactionError,
    restore::{NotRestored, NotRestoredReason, Restoration, restore_goals},
    state::StateDir,
};
use crate::{Content, Location, knob::subject::Subject};

/// Returns the ID of the machine's present boot; `None` if there is none (a tree of files).
pub fn boot_id(host: &dyn Host) -> Option<String> {
    host.read("/proc/sys/kernel/random/boot_id").ok().filter(|id| !id.is_empty())
}

/// The transactions that `restore` undoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All transactions of this boot, back to the state before flyball's first write.
    All,
    Last,
    /// The open transaction, if there is one, as a guardian does. Committed settings stay.
    Open,
    /// The transactions of holds.
    Holds,
}

impl Scope {
    /// Returns the transactions of a journal in this scope, oldest first.
    pub fn entries(self, contents: &Contents) -> Vec<Entry> {
        match self {
            Scope::All => contents.pending().cloned().collect(),
            Scope::Last => contents.pending().next_back().cloned().into_iter().collect(),
            Scope::Open => contents.interrupted().cloned().into_iter().collect(),
            Scope::Holds => contents.hold_entries(),
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

/// Restores the earlier contents from the journal.
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
    restore_locked(host, state, scope)
}

/// Drops these transactions without restoring anything. This is for settings whose device or driver
/// is gone for good, so that the transactions could never be undone completely.
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
pub fn restore_locked(host: &dyn Host, state: &StateDir, scope: Scope) -> Result<Restored, TransactionError> {
    let mut notes = Vec::new();
    // Load it first, because opening would create a journal.
    let Some(contents) = Journal::load(state)? else { return Ok(Restored::default()) };
    let mut journal = match Journal::open(state, &host.name(), boot_id(host).as_deref()) {
        Ok((journal, aside)) => {
            notes.extend(aside);
            journal
        }
        // Restoring needs no space and no writable file.
        Err(error @ JournalError::Io { .. }) if is_of(&contents, host) => {
            return Err(TransactionError::after(
                error,
                &restore_entries(host, &contents, &scope.entries(&contents)),
            ));
        }
        Err(error) => return Err(error.into()),
    };
    let undone = scope.entries(journal.contents());
    let mut restoration = restore_entries(host, journal.contents(), &undone);
    if scope == Scope::Holds {
        set_aside_moved(journal.contents(), &mut restoration);
    }
    let recorded = if !restoration.is_exact() {
        // Commit the rest, so that it does not block other commands. It can be restored later,
        // together with their changes.
        let mut open = undone.iter().filter(|entry| entry.standing == TransactionState::Open);
        open.try_for_each(|entry| journal.commit(entry.id))
    } else if scope == Scope::Holds {
        journal.release_all(&undone)
    } else {
        journal.restored(&undone.iter().map(|entry| entry.id).collect::<Vec<_>>())
    };
    recorded.map_err(|error| TransactionError::after(error, &restoration))?;
    Ok(Restored { undone, restoration, notes })
}

fn restore_entries(host: &dyn Host, contents: &Contents, undone: &[Entry]) -> Restoration {
    // A transaction that announced no write changed nothing, so it did not cause the present
    // differences. A damaged line may have announced a write.
    let wrote = |entry: &&Entry| entry.has_goals() || contents.unusable() > 0;
    let mut restoration = restore_goals(host, &Contents::goals(undone.iter().filter(wrote)));
    restoration.damaged = contents.damaged.len();
    restoration.foreign = contents.foreign.iter().map(|(_, location)| location.clone()).collect();
    restoration
}

/// Restores the settings of earlier hold transactions, except `kept`, although the journal cannot
/// be written. The next transaction of holds repeats this and records it.
///
/// Returns the error and the result of restoring.
pub fn release_unrecorded(
    host: &dyn Host,
    state: &StateDir,
    kept: &BTreeSet<Location>,
    error: JournalError,
) -> TransactionError {
    match Journal::load(state) {
        Ok(Some(contents)) if is_of(&contents, host) => {
            let (_, restoration) = release_entries(host, &contents, &contents.hold_entries(), kept);
            // Nothing was released, so there is nothing to report except the journal's error.
            if restoration.written.is_empty() && restoration.made == 0 && restoration.left.is_empty() {
                return error.into();
            }
            TransactionError::after(error, &restoration)
        }
        _ => error.into(),
    }
}

/// Moves differences after a released hold to `moved` if a later command of the user may have
/// caused them: turbo that was switched off keeps a limit low, and a governor refuses a preference.
fn set_aside_moved(contents: &Contents, restoration: &mut Restoration) {
    let is_moved = |left: &NotRestored| {
        left.because == NotRestoredReason::Differs
            && contents.pending().any(|entry| !entry.is_hold() && entry.was.contains_key(&left.location))
    };
    let (moved, left): (Vec<_>, Vec<_>) =
        std::mem::take(&mut restoration.left).into_iter().partition(is_moved);
    restoration.left = left;
    restoration.moved.extend(moved.into_iter().map(|left| left.location));
}

/// Returns whether the journal belongs to this machine's present boot.
fn is_of(contents: &Contents, host: &dyn Host) -> bool {
    contents.machine == host.name() && contents.boot == boot_id(host)
}

/// Restores the settings of these hold transactions that no hold sets any more: all except `kept`.
/// Also returns the locations that the journal may forget. A setting that depends on a kept one (a
/// preference under a governor that is still held) is left to the kernel.
pub(super) fn release_entries(
    host: &dyn Host,
    contents: &Contents,
    entries: &[Entry],
    kept: &BTreeSet<Location>,
) -> (Vec<Location>, Restoration) {
    let goals = Contents::goals(entries.iter()).0;
    let is_released = |location: &Location| !kept.contains(location);
    let released: BTreeSet<Location> = goals
        .iter()
        .filter(|(location, goal)| goal.first_old.is_some() && is_released(location))
        .map(|(location, _)| location.clone())
        .collect();
    let differs = |location: &&Location| {
        let now = Content::from_read(&location.read(host));
        goals.get(*location).is_some_and(|goal| !goal.handling.spelling.is_back(host, &goal.was, &now))
    };
    if !released.iter().any(|location| differs(&location)) {
        // Forget them: another program may set them from now on.
        return (released.into_iter().collect(), Restoration::default());
    }
    let mut footprints = Footprints::new(host);
    for location in &released {
        if let Some(subject) = Subject::from_location(location) {
            footprints.add(location, subject);
        }
    }
    let disturbed = footprints.found();
    let mut restored = Goals(goals);
    restored.0.retain(|location, _| {
        is_released(location) && (released.contains(location) || disturbed.contains_key(location))
    });
    let mut restoration = restore_goals(host, &restored);
    restoration.left.retain(|left| released.contains(&left.location));
    set_aside_moved(contents, &mut restoration);
    let back = |location: &Location| !restoration.left.iter().any(|left| left.location == *location);
    (released.iter().filter(|location| back(location)).cloned().collect(), restoration)
}
