//! The screen of `flyball top`: what is requested of each CPU, what it delivers, and why not more.
//!
//! Keys change the [`State`], which knows nothing about drawing. [`draw`] turns the state and a
//! [`Scene`] into a buffer of cells, and knows nothing about terminals. Only [`terminal`] and
//! [`run`] use a terminal. Builds without the feature `screen` have neither drawing nor a terminal.

#[cfg(feature = "screen")]
mod canvas;
#[cfg(feature = "screen")]
mod draw;
pub mod keys;
pub mod machine;
pub mod moment;
#[cfg(feature = "screen")]
mod palette;
#[cfg(feature = "screen")]
pub mod run;
mod scene;
pub mod series;
pub mod source;
pub mod state;
#[cfg(feature = "screen")]
pub mod terminal;
#[cfg(feature = "screen")]
mod views;

#[cfg(feature = "screen")]
pub use draw::{draw, one_line};
pub use moment::Moment;
#[cfg(feature = "screen")]
pub use run::{Ended, Options, run};
pub use scene::{Drawn, Scene};
pub use series::Series;
pub use source::{Recording, Source, SourceError, Status};
pub use state::State;

#[cfg(all(test, feature = "screen"))]
mod tests;
