//! Where the screen's samples come from: a machine, or a recording.

use std::{io, path::PathBuf, time::Duration};

use flyball_monitor::{Facts, Layout, Sample, file::RecordError, history::Timeline};

use crate::{moment::Moment, state::Jump};

/// Where samples come from.
pub trait Source {
    fn timeline(&mut self) -> &mut dyn Timeline;

    /// Takes the next sample. A recording has no next one: `false`.
    ///
    /// # Errors
    /// Only an error that ends the program: a recording that cannot be written.
    fn advance(&mut self) -> io::Result<bool>;

    /// Whether the next samples count the wake-ups of all CPUs. A recording keeps what was counted.
    fn count_wakes(&mut self, _all: bool) {}

    fn status(&self) -> Status<'_>;

    /// The layout, and what is known of the settings at a sample.
    fn known(&self, number: u64) -> (&Layout, Option<&Facts>);

    /// Begins a recording, or ends the one that goes on.
    ///
    /// # Errors
    /// The file cannot be written, or this is a recording.
    fn record(&mut self) -> Result<Recording, SourceError>;

    /// Writes a view as text to a file, whose path it returns.
    fn export(&mut self, text: &str) -> Result<PathBuf, SourceError>;
}

/// How a source goes on.
#[derive(Debug, Clone, Copy)]
pub struct Status<'a> {
    /// How long to wait between two samples.
    pub interval: Duration,
    pub is_replay: bool,
    /// Numbers of the samples at which alerts began.
    pub alerts: &'a [u64],
    /// Alerts that are on, and notes about what has just happened.
    pub notices: &'a [String],
    /// Sentences about sources that cannot be read.
    pub missing: &'a [String],
    /// The file that is recorded to.
    pub recording: Option<&'a str>,
    /// The share of a CPU that this process took lately.
    pub own: Option<f64>,
}

/// Outcome of a request to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recording {
    /// It goes into this file.
    Started(String),
    /// It is complete.
    Finished(String),
}

/// Why a source did not record or export.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A replay may write no files.
    #[error("a replay writes no files: use --samples 1 and redirect its output")]
    Replay,
    #[error("{0}")]
    Record(RecordError),
    /// This file cannot be written.
    #[error("cannot write {}: {}", .0.display(), .1)]
    Write(PathBuf, io::Error),
}

/// The time to jump to, ns since 1970, if the newest sample is of `newest`.
pub fn target(jump: Jump, newest: u64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    const DAY: u64 = 86_400 * SECOND;
    match jump {
        Jump::Back(seconds) => newest.saturating_sub(seconds.saturating_mul(SECOND)),
        Jump::Clock(seconds) => {
            let today = newest / DAY * DAY + seconds * SECOND;
            // A time that has not come yet today is yesterday's.
            // The last 14:05 that was, because samples of the future do not exist.
            if today > newest { today.saturating_sub(DAY) } else { today }
        }
    }
}

/// A sample by its number.
///
/// # Errors
/// A recording that cannot be read.
pub fn read(source: &mut dyn Source, number: u64) -> io::Result<Option<Sample>> {
    source.timeline().sample(number).map_err(io::Error::other)
}

/// The moment of a sample, from it and the one before.
///
/// # Errors
/// A recording that cannot be read.
pub fn moment_at(source: &mut dyn Source, number: u64) -> io::Result<Option<Moment>> {
    let before = match number.checked_sub(1) {
        Some(before) => read(source, before)?,
        None => None,
    };
    let (Some(from), Some(to)) = (before, read(source, number)?) else { return Ok(None) };
    let (layout, facts) = source.known(number);
    Ok(Some(Moment::between(layout, facts, number, &from, &to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_the_last_one_that_was() {
        let second = 1_000_000_000;
        let noon = (10 * 86_400 + 43_200) * second;
        assert_eq!(target(Jump::Clock(43_000), noon), noon - 200 * second);
        assert_eq!(target(Jump::Clock(43_201), noon), noon - 86_399 * second);
        assert_eq!(target(Jump::Back(60), noon), noon - 60 * second);
        assert_eq!(target(Jump::Back(u64::MAX), noon), 0);
    }
}
