//! A search for the best settings.
//!
//! A search is a comparison whose blocks are chosen by a model. [`Goal`] defines what is good,
//! [`Searched`] the settings, and the [`Record`] of a run directory holds both. [`SearchBlocks`]
//! and [`FrontBlocks`] give [`flyball_measure`] the arms of each block, as [`flyball_search`]
//! chooses them by the rounds so far. [`Verdict`] and [`FrontFound`] are the results; their claims
//! come from fresh rounds alone.

mod blocks;
mod earlier;
mod front;
mod goal;
mod intake;
mod pictures;
mod preset;
mod profile;
mod record;
mod space;
mod verdict;

pub use blocks::{Outcome, SearchBlocks};
pub use earlier::{EarlierError, earlier_rounds};
pub use front::{FrontBlocks, FrontClaim, FrontFound, FrontPlace};
pub use goal::{Aim, Goal, GoalError, Limit, SearchRequest, quantities};
pub use intake::in_order;
pub use pictures::Pictures;
pub use preset::{Preset, PresetError};
pub use profile::{NoProfile, profile, profile_text};
pub use record::{CONFIRM, EarlierRound, Record, RecordFileError};
pub use space::{Candidates, LeftOut, Row, Searched, SpaceError, ValuesOf};
pub use verdict::{Confirmed, Verdict};

/// Shows the progress of a search.
pub trait Progress {
    /// Shows a message below the others.
    fn say(&self, message: &str);

    /// Shows a message that ends with the estimated seconds left.
    fn say_time_left(&self, message: &str, seconds: f64);

    /// Draws a picture in the place of the one before; false if there is no terminal for it.
    fn draw(&self, picture: &str) -> bool;
}
