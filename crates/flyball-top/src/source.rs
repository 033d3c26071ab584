//! The sources of the screen's samples: a machine or a recording.

use std::{io, path::PathBuf, time::Duration};

use flyball_monitor::{Facts, Layout, Sample, file::RecordError, history::Timeline};

use crate::{moment::Moment, state::Jump};

/// A source of samples.
pub trait Source {
    fn timeline(&mut self) -> &mut dyn Timeline;

    /// Takes the next sample. Returns `false` for a recording, which has no next sample.
    ///
    /// # Errors
    /// An error that must end the program: a recording cannot be written.
    fn advance(&mut self) -> io::Result<bool>;

    /// Sets whether the next samples count the wakeups of all CPUs. Has no effect on a recording.
    fn count_wakes(&mut self, _all: bool) {}

    fn status(&self) -> Status<'_>;

    /// Returns the layout, and the known limits by settings at a sample.
    fn known(&self, number: u64) -> (&Layout, Option<&Facts>);

    /// Starts recording, or stops it.
    ///
    /// # Errors
    /// The file cannot be written, or this is a recording.
    fn record(&mut self) -> Result<Recording, SourceError>;

    /// Writes a view as text to a file. Returns its path.
    fn export(&mut self, text: &str) -> Result<PathBuf, SourceError>;
}

/// The current state of a source.
#[derive(Debug, Clone, Copy)]
pub struct Status<'a> {
    /// How long to wait between two samples.
    pub interval: Duration,
    pub is_replay: bool,
    /// Notes about what has just happened.
    pub notices: &'a [String],
    /// Sentences about sources that cannot be read.
    pub missing: &'a [String],
    /// The file being recorded to.
    pub recording: Option<&'a str>,
    /// Share of a CPU that this process used recently.
    pub own: Option<f64>,
}

/// Outcome of a request to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recording {
    /// Recording to this file has started.
    Started(String),
    /// The recording in this file is complete.
    Finished(String),
}

/// Why recording or exporting failed.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Not available while replaying a recording.
    #[error("a replay writes no files: use --samples 1 and redirect its output")]
    Replay,
    #[error("{0}")]
    Record(RecordError),
    /// This file cannot be written.
    #[error("cannot write {}: {}", .0.display(), .1)]
    Write(PathBuf, io::Error),
}

/// Returns the time to jump to, ns since 1970. `newest` is the time of the newest sample.
pub fn target(jump: Jump, newest: u64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    const DAY: u64 = 86_400 * SECOND;
    match jump {
        Jump::Back(seconds) => newest.saturating_sub(seconds.saturating_mul(SECOND)),
        Jump::Clock(seconds) => {
            let today = newest / DAY * DAY + seconds * SECOND;
            // A time later than the newest sample means the previous day.
            if today > newest { today.saturating_sub(DAY) } else { today }
        }
    }
}

/// Reads a sample by its number.
///
/// # Errors
/// A recording that cannot be read.
pub fn read(source: &mut dyn Source, number: u64) -> io::Result<Option<Sample>> {
    source.timeline().sample(number).map_err(io::Error::other)
}

/// Computes the moment of a sample from it and its predecessor.
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
