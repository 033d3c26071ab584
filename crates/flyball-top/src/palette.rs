//! Colours and glyphs. The colours are the terminal's own sixteen, which its owner has chosen for a
//! dark or light background. A colour never carries information that is not also in a glyph, a
//! number or a word.

use ratatui_core::style::{Color, Modifier, Style};

/// Eighths of a cell, from low to high.
pub(crate) const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Glyph for a cell without a value.
pub(crate) const ASLEEP: char = '·';
pub(crate) const OFFLINE: char = 'x';
pub(crate) const UNKNOWN: char = '?';

/// Meaning of a text, which determines its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Heading,
    Faint,
    Good,
    Notice,
    Alert,
    Selected,
}

impl Tone {
    pub(crate) fn style(self, coloured: bool) -> Style {
        let plain = Style::new();
        let colour = |colour| if coloured { plain.fg(colour) } else { plain };
        match self {
            Tone::Plain => plain,
            Tone::Heading => plain.add_modifier(Modifier::BOLD),
            // Dark grey is invisible on some backgrounds. Dim is relative to the text's colour.
            Tone::Faint => plain.add_modifier(Modifier::DIM),
            Tone::Good => colour(Color::Green),
            Tone::Notice => colour(Color::Yellow),
            Tone::Alert => colour(Color::Red).add_modifier(Modifier::BOLD),
            Tone::Selected => plain.add_modifier(Modifier::REVERSED),
        }
    }
}

/// The glyph of a share from 0 to 1.
pub(crate) fn bar(share: f64) -> char {
    let step = (share.clamp(0.0, 1.0) * 8.0).ceil().max(1.0) as usize - 1;
    BARS[step.min(7)]
}

/// Returns the tone for a share from 0 to 1. High shares may be good (speed, got) or bad (heat).
pub(crate) fn tone(share: f64, much_is_good: bool) -> Tone {
    let concern = if much_is_good { 1.0 - share } else { share };
    match concern {
        concern if concern < 0.34 => Tone::Good,
        concern if concern < 0.67 => Tone::Notice,
        _ => Tone::Alert,
    }
}
