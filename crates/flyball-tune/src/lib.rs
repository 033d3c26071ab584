//! A search for the best settings.
//!
//! A search is a comparison whose blocks a model chooses. [`Goal`] says what is good, [`Searched`]
//! which settings there are, and the [`Record`] of a run directory holds both. [`SearchBlocks`]
//! give [`flyball_measure`] the arms of each block, from what [`flyball_search`] makes of the
//! rounds so far. The [`Verdict`] is the result; what it claims comes from fresh rounds alone.

mod blocks;
mod goal;
mod intake;
mod pictures;
mod preset;
mod profile;
mod record;
mod space;
mod verdict;

pub use blocks::{Outcome, SearchBlocks};
pub use goal::{Aim, Goal, GoalError, Limit, SearchRequest, quantities};
pub use intake::in_order;
pub use pictures::Pictures;
pub use preset::{Preset, PresetError};
pub use profile::{NoProfile, profile, profile_text};
pub use record::{CONFIRM, Record, RecordFileError};
pub use space::{Candidates, LeftOut, Row, Searched, SpaceError, ValuesOf};
pub use verdict::{Confirmed, Verdict};

/// Shows the progress of a search.
pub trait Progress {
    /// Shows a message below the others.
    fn say(&self, message: &str);

    /// Shows a message that ends with the estimated seconds left.
    fn say_time_left(&self, message: &str, seconds: f64);
}
