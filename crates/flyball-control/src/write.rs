//! Everything that changes a machine, and brings it back.
//!
//! [`hold::Hold`] is the way in: it takes the lock, opens the journal, applies intents and puts back what was. Below it,
//! `footprint` says what a write disturbs, `order` when it has its turn, `settle` what came of it, `restore` how it is
//! undone, `journal` and `state` what survives a crash, `guardian` who acts when flyball itself dies.

pub mod footprint;
pub mod guardian;
pub mod hold;
pub mod journal;
pub mod order;
pub mod partition;
pub mod reasons;
pub mod restore;
pub mod settle;
pub mod state;
