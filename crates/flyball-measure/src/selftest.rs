//! The CSV files of the kernel's amd-pstate selftest (tools/testing/selftests/amd-pstate): read,
//! checked and judged, and written from our own comparisons.
//!
//! The layout is eight columns,
//! `Governor, Round, Des-perf, Freq, Load, Performance|Time, Energy, Performance Per Watt`, then a
//! row of units, rows of rounds, rows of averages and rows of comparisons.

mod consistency;
mod read;
mod write;

pub use consistency::{Check, PairVerdict, SelftestReport, judge};
pub use read::{Columns, Group, Line, Printed, Sheet, SheetError, read};
pub use write::write;
