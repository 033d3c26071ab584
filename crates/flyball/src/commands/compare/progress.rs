//! How far a comparison is, on a terminal.

use std::io::IsTerminal;

use flyball_measure::Event;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::time;

/// Progress on a terminal, drawn only between rounds: a drawing program is a load too.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new() -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            // A template that is wrong is found by the test below, not by a user.
            if let Ok(style) = ProgressStyle::with_template("{pos}/{len} rounds {wide_bar} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Progress { bar }
    }

    pub(super) fn show(&mut self, event: &Event<'_>) {
        let Some(bar) = &self.bar else { return };
        match event {
            Event::Begin { arm, done, of } if *done == 0 => {
                bar.set_length(*of as u64);
                bar.set_message(arm.name.clone());
            }
            Event::Begin { .. } => {}
            Event::Over { done, of, left, .. } => {
                bar.set_length(*of as u64);
                bar.set_message(format!("{} left at most", time::words(left.as_secs_f64())));
                bar.set_position(*done as u64);
            }
        }
    }

    pub(super) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_template_is_good() {
        assert!(ProgressStyle::with_template("{pos}/{len} rounds {wide_bar} {msg}").is_ok());
    }
}
