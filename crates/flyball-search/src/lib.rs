//! Which setting to run next, from few noisy rounds, and when the best one is known well enough.
//!
//! A [`Space`] lists the settings to choose from, as levels of factors. A [`Search`] is given
//! [`Round`]s, in blocks whose members ran next to each other. It fits a small Gaussian model to
//! them and either names the next block or ends with a [`Choice`] ([`Search::step`]). It depends
//! only on space, goal, seed and rounds: a search that was stopped is resumed by giving it its
//! blocks again.
//!
//! A search finds a candidate, not a claim: the winner of a noisy search looks better than it
//! really is. Announced numbers come from fresh pairs of rounds, which this crate does not see.

mod bisect;
mod cholesky;
mod fit;
mod posterior;
mod search;
mod space;

pub use bisect::{Bisection, Probe};
pub use fit::Scales;
pub use search::{Bound, Choice, Goal, Round, Search, Step};
pub use space::{Factor, Levels, Space, SpaceError};
