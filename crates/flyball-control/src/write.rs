//! Everything that changes a machine, and restores it.
//!
//! [`transaction::Transaction`] is the entry point: it takes the lock, opens the journal, applies
//! intents and restores the original values. `footprint` finds what a write disturbs, `settle` and
//! `outcome` report its result, `restore` and `undo` revert it. `journal` and `state` hold the data
//! that survives a crash. `guardian` is the process that acts if flyball itself dies.

pub mod footprint;
pub mod guardian;
pub mod journal;
pub mod outcome;
mod outdated;
pub mod reasons;
pub mod restore;
pub mod settle;
pub mod state;
pub mod transaction;
pub mod undo;
