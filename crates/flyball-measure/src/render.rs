//! A report as text for people and rows for programs. Rendering decides nothing: every number is in the report.

mod arms;
mod best;
mod page;
mod parts;
mod sheet;
mod table;
mod text;

pub use crate::numbers::{level, number, percent, probability};
pub use page::{Named, charts, page};
pub use parts::Screen;
pub use sheet::{sheet_charts, sheet_page, sheet_text};
pub use text::{text, verdicts};
