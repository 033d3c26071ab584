//! A driver's decisions by CPU and by task, in numbers.

mod analyse;
mod cpu;
mod lag;
mod meter;
mod range;
mod task;

pub use analyse::{Analyser, EventCount, Loss, Report};
pub use cpu::{CpuReport, IdleReport, Lag};
pub use range::Range;
pub use task::TaskReport;
