//! Input of the drawing code, and the size of what it drew last.

use flyball_monitor::Layout;

use crate::{moment::Moment, series::Series};

/// Everything that is drawn in a frame.
#[derive(Debug)]
pub struct Scene<'a> {
    pub layout: &'a Layout,
    /// None before the second sample.
    pub moment: Option<&'a Moment>,
    pub series: &'a Series,
    /// The number of the newest sample, and when it was taken, ns since 1970.
    pub newest: (u64, u64),
    /// Seconds since the shown sample, if it is the newest one of a live machine.
    pub age: Option<f64>,
    /// A recording is shown: time advances only while it is played.
    pub is_replay: bool,
    /// Seconds between samples.
    pub interval: f64,
    /// Share of a CPU that this process used recently.
    pub own: Option<f64>,
    /// Sentences about sources that could not be read.
    pub missing: &'a [String],
    /// Notes about what has just happened.
    pub notices: &'a [String],
    /// The waterfall of the CPU that is shown, a line per step.
    pub why: &'a [String],
    /// The file being recorded to.
    pub recording: Option<&'a str>,
}

/// Size of the last frame's list, for keys that move in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drawn {
    /// The number of rows or cells, and how many of them make a line and a page.
    pub items: usize,
    pub line: usize,
    pub page: usize,
    /// The selected CPU, or the first one of the selected group.
    pub selected_cpu: Option<u32>,
    /// Rows are groups of CPUs.
    pub groups: bool,
    /// There is room for the wakeups of all CPUs.
    pub wakes: bool,
    /// In the view of one CPU: the CPUs before and after it.
    pub neighbours: (Option<u32>, Option<u32>),
    pub help_pages: usize,
}
