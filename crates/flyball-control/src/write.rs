//! Everything that changes a machine, and restores it.
//!
//! [`transaction::Transaction`] is the entry point: it takes the lock, opens the journal, applies
//! intents and restores what was. Below it, `footprint` says what a write disturbs, `settle` and
//! `outcome` what came of it, `restore` and `undo` how it is undone, `journal` and `state` what
//! survives a crash, `guardian` which process acts when flyball itself dies.

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
