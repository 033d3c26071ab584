//! How far a comparison is, on a terminal: one line that is drawn between rounds only, because a program that draws is
//! load too.

use std::io::{IsTerminal, Write};

use flyball_measure::Event;

use crate::time;

/// The progress line; draws nothing where standard error is not a terminal.
pub(super) struct Progress {
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new() -> Progress {
        Progress { is_terminal: std::io::stderr().is_terminal() }
    }

    pub(super) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Begin { arm, done: 0, of } => self.draw(&line(0, *of, &arm.name)),
            Event::Begin { .. } => {}
            Event::Over { done, of, left, .. } => {
                self.draw(&line(*done, *of, &format!("{} left at most", time::words(left.as_secs_f64()))));
            }
        }
    }

    pub(super) fn end(&mut self) {
        self.draw("");
    }

    fn draw(&self, line: &str) {
        if self.is_terminal {
            let mut stderr = std::io::stderr();
            // A line that wraps could not be erased.
            let columns =
                terminal_size::terminal_size_of(&stderr).map_or(80, |(width, _)| usize::from(width.0));
            let line: String = line.chars().take(columns.saturating_sub(1)).collect();
            // To the start of the line, and erase what was there. A terminal that went away costs only the line.
            let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
        }
    }
}

fn line(done: usize, of: usize, message: &str) -> String {
    const WIDTH: usize = 30;
    let filled = WIDTH * done / of.max(1);
    format!("{done}/{of} rounds [{}{}] {message}", "#".repeat(filled), " ".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        assert_eq!(line(0, 10, "a"), format!("0/10 rounds [{}] a", " ".repeat(30)));
        assert_eq!(line(10, 10, "a"), format!("10/10 rounds [{}] a", "#".repeat(30)));
    }
}
