//! Progress of a search, on stderr.

use flyball_measure::RunDirectory;

use crate::{exit::Exit, terminal};

/// The user's terminal, or the log in its place.
pub(super) struct Screen;

impl flyball_tune::Progress for Screen {
    fn say(&self, message: &str) {
        terminal::redraw("");
        eprintln!("flyball: {message}");
    }

    fn say_time_left(&self, message: &str, seconds: f64) {
        self.say(&format!("{message}; about {} left", flyball_text::span::words(seconds)));
    }
}

/// Says that a search can be continued.
pub(super) fn print_resumable(directory: &RunDirectory, rounds: usize) -> Exit {
    eprintln!(
        "note: this search is not over ({rounds} rounds); to continue: flyball tune --resume {}",
        directory.path().display()
    );
    Exit::Done
}
