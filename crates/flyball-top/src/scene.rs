//! Input of the drawing code, and the size of what it drew last.

use flyball_monitor::Layout;

use crate::{moment::Moment, series::Series};

/// Everything that a frame shows.
#[derive(Debug)]
pub struct Scene<'a> {
    pub layout: &'a Layout,
    /// None before the second sample.
    pub moment: Option<&'a Moment>,
    pub series: &'a Series,
    /// The number of the newest sample, and when it was taken, ns since 1970.
    pub newest: (u64, u64),
    /// Seconds since the sample that is shown, if it is live.
    pub age: Option<f64>,
    /// A recording: time passes only while it is played.
    pub is_replay: bool,
    /// Seconds between samples.
    pub interval: f64,
    /// The share of a CPU that this process took lately.
    pub own: Option<f64>,
    /// Sentences about sources that could not be read.
    pub missing: &'a [String],
    /// Alerts that are on, or what else has just happened.
    pub alerts: &'a [String],
    /// The waterfall of the CPU that is shown, a line per step.
    pub why: &'a [String],
    /// The file that is recorded to.
    pub recording: Option<&'a str>,
}

/// Size of the last frame's list, for keys that move in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Rows or cells, and how many of them are a line and a page.
    pub items: usize,
    pub line: usize,
    pub page: usize,
    /// The CPU that is selected, or the first of the group that is.
    pub selected_cpu: Option<u32>,
    /// Rows are groups of CPUs.
    pub groups: bool,
    /// It has room for the wake-ups of all CPUs.
    pub wakes: bool,
    /// The CPUs before and after the one that is shown alone.
    pub neighbours: (Option<u32>, Option<u32>),
    pub help_pages: usize,
}
