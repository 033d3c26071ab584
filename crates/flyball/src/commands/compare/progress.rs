//! Progress of a comparison. On a terminal, one line that is drawn only between rounds, because
//! drawing is load too. Otherwise, one line per block. Times are those of this computer; a
//! simulated machine's clock runs faster.

use std::time::{Duration, Instant};

use flyball_measure::{Event, Length, Manifest, Schedule};
use flyball_text::{counted, span};

use crate::terminal;

pub(super) struct Progress {
    /// A description of what runs: `1 warm-up and 15 counted blocks of 4 arms`.
    plan: String,
    began: Instant,
    first: Option<Duration>,
    /// When the last line about a block was printed.
    told: Instant,
    /// Maximum duration, seconds.
    most: f64,
    /// This is a search, which prints its own progress after each block.
    is_search: bool,
}

impl Progress {
    /// Starts counting the time.
    pub(super) fn begin(manifest: &Manifest) -> Progress {
        let Schedule { warm_up, cool_down, length, .. } = &manifest.schedule;
        let most = match length {
            Length::Rounds(blocks) => {
                let at_least = if manifest.schedule.least_seconds.is_some() { "at least " } else { "" };
                format!("{at_least}{}", counted(*blocks, "counted block"))
            }
            Length::Until { most, .. } => format!("at most {}", counted(*most, "counted block")),
            Length::Search { most, .. } => format!("at most {}", counted(*most, "counted round")),
        };
        let pauses =
            if *cool_down > 0.0 { format!(", each after a pause of {cool_down} s") } else { String::new() };
        let arms = counted(manifest.arms.len(), "arm");
        let plan = format!("{warm_up} warm-up and {most} of {arms}{pauses}");
        let is_search = matches!(length, Length::Search { .. });
        let most = manifest.schedule.most_seconds.unwrap_or(f64::INFINITY);
        Progress { plan, most, began: Instant::now(), told: Instant::now(), first: None, is_search }
    }

    pub(super) fn show(&mut self, event: &Event<'_>) {
        match event {
            // Later rounds begin when the previous one ends, so the line is still correct.
            Event::Begin { arm, done: 0, of } => {
                eprintln!("flyball: {}: {}", counted(*of, "round"), self.plan);
                terminal::redraw(&line(0, *of, &arm.name));
            }
            Event::Begin { .. } => {}
            Event::TimeUp { blocks, beyond } if *beyond >= 0.1 => {
                let beyond = span::words(*beyond);
                eprintln!("flyball: the last blocks went {beyond} beyond --max-time; {blocks} count");
            }
            Event::TimeUp { blocks, .. } => {
                eprintln!("flyball: another block would go beyond --max-time; {blocks} count");
            }
            Event::CleanUp => eprintln!("flyball: stopping: --cleanup runs, and Ctrl-C ends it"),
            Event::Over { round, done, of, ends_block, .. } => {
                let spent = self.began.elapsed();
                let first = *self.first.get_or_insert(spent);
                let left = left(first, spent, *done, *of).min(self.most - spent.as_secs_f64()).max(0.0);
                let left = format!("about {} left", span::words(left));
                if terminal::redraw(&line(*done, *of, &left)) {
                    return;
                }
                // In a file or a pipe, print often enough to show that it is not stuck, and how
                // long it takes.
                if *done == 1 {
                    // Pipes and logs keep every line, so print one per block, but at most one per
                    // second.
                    eprintln!("flyball: {left}");
                } else if *ends_block && !self.is_search && self.told.elapsed() >= Duration::from_secs(1) {
                    self.told = Instant::now();
                    let block = if round.warm_up {
                        "warm-up".to_owned()
                    } else {
                        format!("block {}", round.block + 1)
                    };
                    eprintln!("flyball: {block} done, {done}/{of} rounds, {left}");
                }
            }
        }
    }

    pub(super) fn end(&mut self) {
        terminal::redraw("");
    }
}

/// Returns the seconds left, from the mean of this session's rounds. The first round may build or
/// load what later ones reuse, so it only counts until there is another.
fn left(first: Duration, spent: Duration, done: usize, of: usize) -> f64 {
    let (time, rounds) = if done > 1 { (spent.saturating_sub(first), done - 1) } else { (spent, 1) };
    time.as_secs_f64() * of.saturating_sub(done) as f64 / rounds as f64
}

fn line(done: usize, of: usize, message: &str) -> String {
    const WIDTH: usize = 30;
    // A search finishes its last block, so it may run more rounds than planned.
    let filled = WIDTH * done.min(of) / of.max(1);
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

    #[test]
    fn a_slow_first_round_does_not_count_for_the_others() {
        let seconds = Duration::from_secs;
        assert_eq!(left(seconds(60), seconds(60), 1, 11), 600.0);
        assert_eq!(left(seconds(60), seconds(62), 2, 11), 18.0);
        assert_eq!(left(seconds(60), seconds(78), 11, 11), 0.0);
    }
}
