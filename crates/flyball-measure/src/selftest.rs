//! The CSV files of the kernel's amd-pstate selftest (tools/testing/selftests/amd-pstate): read,
//! checked cell by cell with the arithmetic of the script, and judged.
//!
//! The layout is eight columns,
//! `Governor, Round, Des-perf, Freq, Load, Performance|Time, Energy, Performance Per Watt`, then a
//! row of units, rows of rounds, rows of averages and rows of comparisons. The script computes with
//! bc, which cuts digits off, and awk, which prints six significant digits; [`Decimal`] does both.

mod consistency;
mod decimal;
mod read;
mod write;

pub use consistency::{Check, PairVerdict, SelftestReport, judge};
pub use decimal::Decimal;
pub use read::{Columns, Group, Line, Printed, Sheet, SheetError, read};
pub use write::write;
