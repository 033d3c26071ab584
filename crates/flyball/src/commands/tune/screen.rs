//! Progress of a search, on stderr.

use std::cell::Cell;

use flyball_measure::RunDirectory;

use crate::{exit::Exit, terminal};

/// The user's terminal, or a log instead.
#[derive(Default)]
pub(super) struct Screen {
    /// Number of lines drawn last.
    drawn: Cell<usize>,
}

impl flyball_tune::Progress for Screen {
    fn say(&self, message: &str) {
        terminal::redraw("");
        eprintln!("flyball: {message}");
    }

    fn say_time_left(&self, message: &str, seconds: f64) {
        self.say(&format!("{message}; about {} left", flyball_text::span::words(seconds)));
    }

    fn draw(&self, picture: &str) -> bool {
        terminal::redraw("");
        // A terminal shows the growing picture in one place.
        let is_drawn = terminal::redraw_lines(picture, self.drawn.get());
        if is_drawn {
            self.drawn.set(picture.lines().count());
        }
        is_drawn
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
