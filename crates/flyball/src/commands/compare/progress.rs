//! How far a comparison is, on a terminal: one line that is drawn between rounds only, because a program that draws is
//! load too.

use flyball_measure::Event;

use crate::{terminal, time};

/// The progress line.
pub(super) struct Progress;

impl Progress {
    pub(super) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Begin { arm, done: 0, of } => terminal::redraw(&line(0, *of, &arm.name)),
            Event::Begin { .. } => {}
            Event::Over { done, of, left, .. } => {
                terminal::redraw(&line(
                    *done,
                    *of,
                    &format!("{} left at most", time::words(left.as_secs_f64())),
                ));
            }
        }
    }

    pub(super) fn end(&mut self) {
        terminal::redraw("");
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
