//! The four views of a moment.

mod map;
mod one_cpu;
mod overview;
mod table;

pub(crate) use map::map;
pub(crate) use one_cpu::one_cpu;
pub(crate) use overview::overview;
pub(crate) use table::table;

use flyball_monitor::{CpuInterval, State};

/// Formats a number, which may be unknown.
fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

fn percent(share: Option<f64>) -> String {
    number(share.map(|share| share * 100.0), 0)
}

/// Returns a CPU's state as a word.
fn state(cpu: &CpuInterval) -> &'static str {
    match cpu.state {
        State::Asleep => "asleep",
        State::Running => "runs",
        State::Offline => "offline",
        State::Unknown => "unknown",
    }
}

/// Returns a glyph for each value between 0 and `most`. An unknown value is a blank.
fn spark(values: impl Iterator<Item = f64>, most: f64) -> String {
    let glyph = |value: f64| {
        if value.is_nan() || most <= 0.0 { ' ' } else { crate::palette::bar(value / most) }
    };
    values.map(glyph).collect()
}

/// Returns the first visible line of a list, so that the selected line is on the screen.
fn scroll(selected: usize, count: usize, room: usize) -> usize {
    if count <= room { 0 } else { selected.saturating_sub(room / 2).min(count - room) }
}
