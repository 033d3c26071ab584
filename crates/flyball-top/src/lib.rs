//! The screen of `flyball top`: what each CPU was asked for, what it delivers, and why not more.
//!
//! A key changes the [`State`], which knows nothing of drawing. [`draw`] makes a buffer of cells
//! from the state and a [`Scene`], and knows nothing of terminals. Only [`terminal`] and [`run`]
//! do. Without the feature `screen` there are no drawing and no terminal.

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
