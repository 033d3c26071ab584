//! Tables with named columns: their cells as CSV and, with the feature `parquet`, their files,
//! written and read.

mod cell;
#[cfg(feature = "parquet")]
pub mod parquet;

pub use cell::{Cell, Kind};
