//! A report as text for people and rows for programs. Rendering decides nothing: every number is in the report.

mod page;
mod sheet;
mod text;

pub use crate::numbers::{level, number, percent, probability};
pub use page::{Named, charts, page};
pub use sheet::{sheet_charts, sheet_page, sheet_text};
pub use text::{text, verdicts};
