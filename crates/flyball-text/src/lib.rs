//! Text conventions that all crates share: one grammar for time spans, one for dates, one escaper
//! for HTML, one natural order, one word wrapper, columns that line up, and examples of help.
//!
//! Pure: this crate knows nothing of machines and depends on no other, so the simulator may use it.

pub mod columns;
pub mod date;
mod escape;
mod frequency;
pub mod help;
mod hex;
mod natural;
pub mod span;
mod wrap;

/// A count with its noun: `1 round`, `2 rounds`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

pub use escape::{escape, is_formula};
pub use frequency::ghz;
pub use hex::{hex, unhex};
pub use natural::Natural;
pub use wrap::{wrap, wrap_by};
