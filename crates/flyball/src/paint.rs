//! Text for a terminal: styles, aligned columns and short CPU lists.

use flyball_host::CpuList;
use flyball_text::columns::Painter;
pub(crate) use flyball_text::columns::{Cell, Columns, Style, one_line};

pub(crate) use crate::terminal::columns as terminal_columns;
use crate::terminal::{self, Mark};

/// Whether to style text for a terminal; see [`Mark`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// For stdout.
    pub(crate) fn stdout() -> Paint {
        Paint { on: terminal::is_coloured() }
    }

    /// Without any style.
    pub(crate) fn plain() -> Paint {
        Paint { on: false }
    }

    pub(crate) fn apply(self, style: Style, text: &str) -> String {
        Painter::apply(&self, style, text)
    }
}

impl Painter for Paint {
    fn apply(&self, style: Style, text: &str) -> String {
        // Empty marks would still be sent to the terminal.
        if !self.on || text.is_empty() {
            return text.to_owned();
        }
        let mark = match style {
            Style::Plain => Mark::Plain,
            Style::Heading => Mark::Bold,
            Style::Faint => Mark::Faint,
            Style::Alert => Mark::BoldRed,
            Style::Notice => Mark::Yellow,
            Style::Good => Mark::Green,
        };
        format!("{mark}{text}{mark:#}")
    }
}

/// Shortens a CPU list to `width` characters: cut at a comma, followed by the number of CPUs.
pub(crate) fn cpus_within(list: &CpuList, width: usize) -> String {
    let whole = list.short();
    if whole.len() <= width {
        return whole;
    }
    let tail = format!(",... ({} CPUs)", list.len());
    let room = width.saturating_sub(tail.len());
    // Byte positions are characters: a CPU list is ASCII.
    let cut = whole[..room.min(whole.len())].rfind(',').unwrap_or(0);
    // If not even one number fits, the count is more useful than part of a number.
    if cut == 0 { format!("{} CPUs", list.len()) } else { format!("{}{tail}", &whole[..cut]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_ends_with_the_number_of_cpus() {
        let odd: CpuList = [1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22].into_iter().collect();
        assert_eq!(cpus_within(&odd, 24), "1,2,5,6,9,... (12 CPUs)");
    }
}
