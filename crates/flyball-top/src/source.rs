//! Where the screen's samples come from: a machine, or a recording.

use std::{io, time::Duration};

use flyball_monitor::{Sample, history::Timeline};

use crate::{moment::Moment, state::Jump};

/// Where samples come from.
pub trait Source {
    fn timeline(&mut self) -> &mut dyn Timeline;

    /// Takes the next sample. A recording has no next one: `false`.
    ///
    /// # Errors
    /// What ends the program: a recording that cannot be written.
    fn advance(&mut self) -> io::Result<bool>;

    /// How long to wait between two samples.
    fn interval(&self) -> Duration;

    fn is_replay(&self) -> bool {
        false
    }

    /// Numbers of the samples at which alerts began.
    fn alerts(&self) -> &[u64] {
        &[]
    }

    /// Alerts that are on, and notes about what has just happened.
    fn notices(&self) -> &[String] {
        &[]
    }

    /// What cannot be read.
    fn missing(&self) -> &[String];

    fn recording(&self) -> Option<&str> {
        None
    }

    /// Begins a recording, or ends the one that goes on; what became of it.
    fn record(&mut self) -> String {
        "a recording cannot be recorded".to_owned()
    }

    /// Writes a view as text to a file; what became of it.
    fn export(&mut self, _text: &str) -> String {
        "a replay is confined to its file: redirect the output of --samples 1 instead".to_owned()
    }

    /// The share of a CPU that this process took lately.
    fn own(&self) -> Option<f64> {
        None
    }

    /// Why a CPU is not faster at this moment, a line per step.
    fn why(&mut self, _moment: &Moment, _cpu: u32) -> Vec<String> {
        Vec::new()
    }

    /// Fills in the reasons of a moment.
    fn reasons(&mut self, _moment: &mut Moment, _from: &Sample, _to: &Sample) {}
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
/// What reading a file answered.
pub fn read(source: &mut dyn Source, number: u64) -> io::Result<Option<Sample>> {
    source.timeline().sample(number).map_err(io::Error::other)
}

/// The moment of a sample, from it and the one before.
///
/// # Errors
/// What reading a file answered.
pub fn moment_at(source: &mut dyn Source, number: u64) -> io::Result<Option<Moment>> {
    let before = match number.checked_sub(1) {
        Some(before) => read(source, before)?,
        None => None,
    };
    let (Some(from), Some(to)) = (before, read(source, number)?) else { return Ok(None) };
    let mut moment = Moment::between(source.timeline().layout(), number, &from, &to);
    source.reasons(&mut moment, &from, &to);
    Ok(Some(moment))
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
