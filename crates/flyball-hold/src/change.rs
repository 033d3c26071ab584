//! Changes the holds, as a command does: first the store, then the machine. If the machine refuses,
//! both are reset.

use flyball_control::{
    Snapshot,
    plan::{PlanError, plan},
    write::{
        journal::{Contents, Journal},
        state::{Lock, LockError, StateDir},
        transaction::OnRefusal,
    },
};
use flyball_host::Host;

use crate::{
    ApplyOutcome, BringError, Effective, Facts, Moment, Store, StoreError,
    apply::{apply_accepted_holds, not_in_force},
    apply_holds,
};

/// The result of a change.
#[derive(Debug, Clone)]
pub struct Changed {
    pub brought: ApplyOutcome,
    /// The holds after the change.
    pub store: Store,
    /// The facts for the conditions.
    pub facts: Facts,
}

/// Why holds were not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    Lock(LockError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Bring(#[from] BringError),
    /// Some settings do not match the remaining holds.
    #[error("{error}\nthese settings do not match the remaining holds yet: {places}")]
    Unmet { error: String, places: String },
}

impl From<LockError> for ChangeError {
    fn from(error: LockError) -> ChangeError {
        ChangeError::Lock(error)
    }
}

/// Changes the holds of a machine and applies them. The store is saved before the machine is
/// written. So if the command is killed, the service or the next command continues.
///
/// # Errors
/// See [`ChangeError`]; the holds are then unchanged.
pub fn change_holds(
    host: &dyn Host,
    state: &StateDir,
    command: &str,
    moment: Moment,
    change: impl FnOnce(&mut Store) -> Result<(), StoreError>,
) -> Result<Changed, ChangeError> {
    let lock = state.lock(command)?;
    change_locked(host, state, &lock, command, moment, change)
}

/// Does what [`change_holds`] does, for a caller that holds the lock.
pub(crate) fn change_locked(
    host: &dyn Host,
    state: &StateDir,
    lock: &Lock,
    command: &str,
    moment: Moment,
    change: impl FnOnce(&mut Store) -> Result<(), StoreError>,
) -> Result<Changed, ChangeError> {
    let mut store = Store::load(state, host)?;
    // A hold that has ended can still be released by name: without a service its settings are still
    // in force. But it must not block a new hold.
    if store.is_full() {
        store.expire(moment.now);
    }
    let mut before = store.clone();
    change(&mut store)?;
    store.expire(moment.now);
    let facts = store.facts(host, moment.local);
    let effective = Effective::new(&store.holds, &facts);
    // Save before writing to the machine: after a kill in between, the next start applies the
    // holds. In the other order the machine would have settings that no hold explains. A release
    // needs neither a successful plan nor space: remaining holds that cannot be planned are not in
    // force, and the store is saved later if it cannot be saved now.
    let is_release = store.holds.iter().all(|hold| before.holds.contains(hold));
    match store.save(state) {
        Err(_) if is_release => {}
        result => result?,
    }
    if is_release {
        let wanted = (store.holds.as_slice(), &facts, store.left.as_slice());
        let (brought, effective, refused) = match apply_accepted_holds(host, state, lock, command, wanted) {
            Ok(brought) => brought,
            Err(error) => {
                store.failure = Some(error.to_string());
                // If this fails, the error says what is wrong with the file system.
                let _ = store.save(state);
                return Err(with_unmet(error.into(), host, state, &effective, &store, Vec::new()));
            }
        };
        store
            .left
            .extend(brought.not_taken(&effective).into_iter().map(|left| left.with_retry_time(moment.now)));
        store.failure = not_in_force(&refused);
        store.refused = refused;
        if let Err(error) = store.save(state) {
            // The store does not have these places, so the error lists them.
            let left = brought.restored.left.iter().map(|left| left.location.to_string()).collect();
            return Err(with_unmet(error.into(), host, state, &effective, &store, left));
        }
        return Ok(Changed { brought, store, facts });
    }
    match apply_holds(host, state, lock, command, (&effective, &store.left), &[], OnRefusal::Undo) {
        Ok(brought) => {
            store.left.extend(brought.not_taken(&effective));
            store.failure = None;
            store.refused.clear();
            store.save(state)?;
            Ok(Changed { brought, store, facts })
        }
        Err(error) => {
            before.expire(moment.now);
            before.save(state)?;
            // A failed attempt may have restored some settings of the old holds.
            if !matches!(error, BringError::Plan(_)) {
                let effective = Effective::new(&before.holds, &before.facts(host, moment.local));
                let wanted = (&effective, before.left.as_slice());
                let _ = apply_holds(host, state, lock, command, wanted, &[], OnRefusal::Continue);
            }
            Err(error.into())
        }
    }
}

/// Adds to an error the settings that do not, or may not, match the holds. A released hold's value
/// may still be in effect. `places` are known mismatches.
fn with_unmet(
    error: ChangeError,
    host: &dyn Host,
    state: &StateDir,
    effective: &Effective,
    store: &Store,
    mut places: Vec<String>,
) -> ChangeError {
    let planned = Snapshot::for_intent(host, &effective.intent)
        .map_err(PlanError::from)
        .and_then(|snapshot| plan(&snapshot, &effective.without(&store.left, &snapshot)));
    match planned {
        Ok(plan) => places.extend(plan.changes.iter().map(|change| change.location.to_string())),
        // Without a plan, every place that a hold has set may differ.
        Err(_) => {
            let contents = Journal::load(state).ok().flatten();
            let entries = contents.map(|contents| contents.hold_entries()).unwrap_or_default();
            places.extend(Contents::goals(entries.iter()).0.keys().map(ToString::to_string));
        }
    }
    places.sort_unstable();
    places.dedup();
    if places.is_empty() {
        return error;
    }
    ChangeError::Unmet { error: error.to_string(), places: places.join(", ") }
}
