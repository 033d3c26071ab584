//! A series of runs, and why a file holds none.

use crate::shifts::Column;

/// One benchmark's runs in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The benchmark's name, as the file has it.
    pub name: String,
    /// The unit of the values: `s`, `ns`, or empty if the file does not say.
    pub unit: String,
    /// One value per run.
    pub values: Vec<f64>,
    /// Metadata, one value per run.
    pub columns: Vec<Column>,
    /// Runs of the file without a number, counted from 1: they are left out.
    pub left_out: Vec<usize>,
}

impl Series {
    /// Makes a series of the runs that have a number. Runs without one, or with NaN or an infinity,
    /// are left out, in the metadata too.
    pub fn new(name: String, unit: String, values: &[Option<f64>], mut columns: Vec<Column>) -> Series {
        let has = |value: &Option<f64>| value.is_some_and(f64::is_finite);
        let keep: Vec<bool> = values.iter().map(has).collect();
        let left_out: Vec<usize> = (1..).zip(&keep).filter(|(_, keep)| !**keep).map(|(run, _)| run).collect();
        if !left_out.is_empty() {
            for column in &mut columns {
                column.values.retain(&keep);
            }
        }
        let values = values.iter().copied().flatten().filter(|value| value.is_finite()).collect();
        Series { name, unit, values, columns, left_out }
    }
}

/// Why a file holds no series.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what}; a series is pyperf, hyperfine or Google Benchmark JSON, or CSV with a header line and a column of numbers"
)]
pub struct SeriesError {
    /// The fault, with its location in the file.
    pub what: String,
}

pub(super) fn error(what: impl Into<String>) -> SeriesError {
    SeriesError { what: what.into() }
}
