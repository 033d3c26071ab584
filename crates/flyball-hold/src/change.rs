//! Changing the holds, as a command does: the store first, then the machine; both as before if the machine refuses.

use flyball_control::write::state::{LockError, StateDir};
use flyball_host::Host;

use crate::{BringError, Brought, Effective, Facts, Moment, Store, StoreError, bring_about};

/// What a change came to.
#[derive(Debug, Clone)]
pub struct Changed {
    pub brought: Brought,
    /// The holds after it.
    pub store: Store,
    /// What conditions were judged by.
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
}

impl From<LockError> for ChangeError {
    fn from(error: LockError) -> ChangeError {
        ChangeError::Lock(error)
    }
}

/// Changes the holds of a machine and makes it so. The store is saved before the machine is written, so that a command that is killed
/// is continued by the service or the next command.
///
/// # Errors
/// See [`ChangeError`]; then the holds are as they were.
pub fn change_holds(
    host: &dyn Host,
    state: &StateDir,
    command: &str,
    moment: Moment,
    change: impl FnOnce(&mut Store) -> Result<(), StoreError>,
) -> Result<Changed, ChangeError> {
    let lock = state.lock(command)?;
    let mut store = Store::load(state, host)?;
    store.expire(moment.now);
    let before = store.clone();
    change(&mut store)?;
    let conditions = |store: &Store| {
        let conditions = store.holds.iter().filter_map(|hold| hold.condition.as_ref());
        Facts::look(host, moment.local, conditions)
    };
    let facts = conditions(&store);
    let effective = Effective::of(&store.holds, &facts);
    store.save(state)?;
    match bring_about(host, state, &lock, command, (&effective, &store.left), &[]) {
        Ok(brought) => {
            store.left.extend(brought.clamped(&effective));
            store.failure = None;
            store.save(state)?;
            Ok(Changed { brought, store, facts })
        }
        Err(error) => {
            store = before;
            store.save(state)?;
            let effective = Effective::of(&store.holds, &conditions(&store));
            // What the old holds set is in effect, unless the failed attempt has restored some of it.
            let _ = bring_about(host, state, &lock, command, (&effective, &store.left), &[]);
            Err(error.into())
        }
    }
}
