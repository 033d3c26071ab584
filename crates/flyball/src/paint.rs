//! Text for a terminal: styles, aligned columns and short CPU lists.

use std::fmt::Write;

use flyball_host::CpuList;
use flyball_text::columns::Painter;
pub(crate) use flyball_text::columns::{Cell, Columns, Style, one_line};

pub(crate) use crate::terminal::columns as terminal_columns;
use crate::terminal::{self, Mark};

/// Whether to mark text for the terminal; see [`Mark`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// As stdout takes it.
    pub(crate) fn stdout() -> Paint {
        Paint { on: terminal::is_coloured() }
    }

    /// Never any colour.
    pub(crate) fn plain() -> Paint {
        Paint { on: false }
    }

    pub(crate) fn apply(self, style: Style, text: &str) -> String {
        Painter::apply(&self, style, text)
    }
}

impl Painter for Paint {
    fn apply(&self, style: Style, text: &str) -> String {
        // Marks around nothing would still be sent to the terminal.
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

/// A CPU list as text. Runs with a step are written as `0-14:2`, which `-c` accepts.
pub(crate) fn cpus(list: &CpuList) -> String {
    let numbers: Vec<u32> = list.iter().collect();
    let mut out = String::new();
    let mut rest = numbers.as_slice();
    while let [first, tail @ ..] = rest {
        let step = tail.first().map_or(1, |next| next - first);
        // The longest run from the first CPU with the step to the second.
        let run = 1 + tail.iter().zip(1..).take_while(|(cpu, index)| **cpu == first + step * index).count();
        // Two CPUs are a run only if they are neighbours.
        let run = if run == 2 && step != 1 { 1 } else { run };
        let last = rest[run - 1];
        let separator = if out.is_empty() { "" } else { "," };
        let _ = match (run, step) {
            (1, _) => write!(out, "{separator}{first}"),
            (2, 1) => write!(out, "{separator}{first},{last}"),
            (_, 1) => write!(out, "{separator}{first}-{last}"),
            _ => write!(out, "{separator}{first}-{last}:{step}"),
        };
        rest = &rest[run..];
    }
    out
}

/// A CPU list in at most `width` characters: truncated at a comma, followed by the number of CPUs.
pub(crate) fn cpus_within(list: &CpuList, width: usize) -> String {
    let whole = cpus(list);
    if whole.len() <= width {
        return whole;
    }
    let tail = format!(",... ({} CPUs)", list.len());
    let room = width.saturating_sub(tail.len());
    // Bytes are characters here: a CPU list is ASCII.
    let cut = whole[..room.min(whole.len())].rfind(',').unwrap_or(0);
    // Not even one number fits: the count says more than a part of the first.
    if cut == 0 { format!("{} CPUs", list.len()) } else { format!("{}{tail}", &whole[..cut]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_use_steps_and_read_back() {
        for (text, short) in [
            ("0-511", "0-511"),
            ("0,2,4,6,8", "0-8:2"),
            ("0,1", "0,1"),
            ("0,2", "0,2"),
            ("0,2,3,4,9", "0,2-4,9"),
            ("5", "5"),
            ("", ""),
            ("0-3,8-11,16", "0-3,8-11,16"),
        ] {
            let list: CpuList = text.parse().unwrap();
            assert_eq!(cpus(&list), short);
            assert_eq!(cpus(&list).parse::<CpuList>().unwrap(), list);
        }
        let odd: CpuList = [1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22].into_iter().collect();
        assert_eq!(cpus_within(&odd, 24), "1,2,5,6,9,... (12 CPUs)");
    }
}
