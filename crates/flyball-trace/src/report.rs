//! What a driver decided: per CPU and per task, in numbers.

mod analyse;
mod cpu;
mod lag;
mod task;

pub use analyse::{Analyser, EventCount, Loss, Report};
pub use cpu::{CpuReport, IdleReport, Lag, LevelTime, Range};
pub use task::TaskReport;

/// CPU numbers from here on are taken for damage: no x86 kernel is built for more (`NR_CPUS`).
pub const MOST_CPUS: u32 = 8192;
