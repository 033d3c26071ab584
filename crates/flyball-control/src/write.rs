//! Everything that changes a machine, and brings it back.
//!
//! [`hold::Hold`] is the entry point: it takes the lock, opens the journal, applies intents and puts back what was. Below it,
//! `subject` says what a location holds, `footprint` what a write disturbs, `order` when it has its turn, `spelling` how
//! contents are spelled, `settle` and `outcome` what came of a write, `restore` and `undo` how it is undone, `journal` and `state` what survives a
//! crash, `guardian` which process acts when flyball itself dies.

pub mod footprint;
pub mod guardian;
pub mod hold;
pub mod journal;
pub mod order;
pub mod outcome;
pub mod partition;
pub mod pattern;
pub mod reasons;
pub mod restore;
pub mod settle;
pub mod spelling;
pub mod state;
pub mod subject;
pub mod undo;
