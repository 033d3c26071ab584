//! Years of results as files that any engine can read: a directory of Parquet files that only
//! grows.
//!
//! ```text
//! DATASET/version=1/kind=rounds/month=2026-11/20261101T083000-0f3c….parquet
//! ```
//!
//! An [`Input`] is read into the rows of one [`Kind`]: a run directory or another tool's output
//! into rounds, the doctor's report into findings, a snapshot into settings. Each input is in one
//! file as a whole. The file gets its name once it is on disk, so a writer that is killed leaves no
//! partial input. [`Dataset::add`] writes inputs that are not there yet; [`Dataset::read`] reads
//! columns; [`shifts`] searches the rounds for shifts over months. Statistics are those of
//! flyball-measure.

mod dataset;
mod input;
mod schema;
pub mod shifts;

pub use dataset::{Added, Dataset, DatasetError, Part, Pick, SkippedFile};
pub use flyball_table::parquet::{Words, read as columns};
pub use input::{Input, InputDefaults, InputError, find};
pub use schema::{COMMON, FACTS, Kind, VERSION};
