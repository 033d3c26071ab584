//! A report as text for people and rows for programs. Rendering decides nothing: every number is in
//! the report.

mod arms;
mod best;
mod cases;
mod charts;
mod effects;
mod fleet;
mod hyperfine;
mod markdown;
mod page;
mod parts;
mod sheet;
mod table;
mod text;

pub use crate::numbers::{level, number, p_value, percent, probability, relative, two_digits, unsigned};
pub use charts::{NamedChart, charts};
pub use fleet::{fleet_page, fleet_text};
pub use hyperfine::hyperfine;
pub use markdown::markdown;
pub use page::{banner, page};
pub use parts::Screen;
pub use sheet::{sheet_charts, sheet_page, sheet_text};
pub use text::{text, verdicts};
