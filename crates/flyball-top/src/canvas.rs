//! Text and tables in a buffer of cells. Text that does not fit is cut with a mark.

use flyball_process::terminal::is_plain;
use ratatui_core::{buffer::Buffer, layout::Rect};

use crate::palette::Tone;

/// Marks cut text.
pub(crate) const CUT: char = '…';
/// Marks omitted columns.
pub(crate) const LEFT_OUT: char = '»';

pub(crate) struct Canvas<'a> {
    pub buffer: &'a mut Buffer,
    pub area: Rect,
    pub coloured: bool,
}

/// Cuts `text` to at most `width` characters. Characters that a terminal would not print become
/// question marks, because names may come from another user's file.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    let shown = |char| if is_plain(char) { char } else { '?' };
    if text.chars().count() <= width {
        return text.chars().map(shown).collect();
    }
    let mut out: String = text.chars().take(width.saturating_sub(1)).map(shown).collect();
    if width > 0 {
        out.push(CUT);
    }
    out
}

impl Canvas<'_> {
    /// Returns a part of the canvas, with its own coordinates.
    pub(crate) fn part(&mut self, y: u16, height: u16) -> Canvas<'_> {
        let y = y.min(self.area.height);
        let area = Rect { y: self.area.y + y, height: height.min(self.area.height - y), ..self.area };
        Canvas { buffer: self.buffer, area, coloured: self.coloured }
    }

    pub(crate) fn width(&self) -> usize {
        self.area.width.into()
    }

    pub(crate) fn height(&self) -> usize {
        self.area.height.into()
    }

    /// Writes text, cut at the right edge. Returns the column after it.
    pub(crate) fn text(&mut self, x: usize, y: usize, text: &str, tone: Tone) -> usize {
        // Callers need not check the height: nothing is drawn outside.
        if y >= self.height() || x >= self.width() {
            return x;
        }
        let text = shorten(text, self.width() - x);
        let style = tone.style(self.coloured);
        let place = (self.area.x + x as u16, self.area.y + y as u16);
        // Return the library's count: it counts cells, and wide characters take two.
        let (end, _) = self.buffer.set_stringn(place.0, place.1, &text, usize::MAX, style);
        usize::from(end.saturating_sub(self.area.x))
    }

    pub(crate) fn glyph(&mut self, x: usize, y: usize, glyph: char, tone: Tone) {
        if y < self.height() && x < self.width() {
            let place = (self.area.x + x as u16, self.area.y + y as u16);
            if let Some(cell) = self.buffer.cell_mut(place) {
                cell.set_char(glyph).set_style(tone.style(self.coloured));
            }
        }
    }

    /// Writes text that ends at the right edge.
    pub(crate) fn right(&mut self, y: usize, text: &str, tone: Tone) {
        let text = shorten(text, self.width());
        self.text(self.width() - text.chars().count(), y, &text, tone);
    }

    /// Marks a line as selected.
    pub(crate) fn select(&mut self, y: usize) {
        if y < self.height() {
            let line = Rect { y: self.area.y + y as u16, height: 1, ..self.area };
            self.buffer.set_style(line, Tone::Selected.style(self.coloured));
        }
    }

    /// Writes words on as many lines as they need, and returns how many. The last available line is
    /// cut.
    pub(crate) fn wrapped(&mut self, x: usize, y: usize, text: &str, tone: Tone) -> usize {
        let width = self.width().saturating_sub(x).max(1);
        let lines = flyball_text::wrap(text, width);
        let room = self.height().saturating_sub(y);
        let written = lines.len().min(room);
        for (at, line) in lines.iter().take(written).enumerate() {
            let line =
                if at + 1 == room && lines.len() > room { format!("{line}{CUT}") } else { line.clone() };
            self.text(x, y + at, &line, tone);
        }
        written
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub title: &'static str,
    pub width: usize,
    /// If there is no room, columns with the highest rank are omitted first. 0 is never omitted.
    pub rank: u8,
    pub is_number: bool,
}

/// Returns which columns fit, and whether all do. The last column gets the remaining room.
pub(crate) fn fitting(columns: &[Column], width: usize) -> (Vec<usize>, bool) {
    let mut chosen: Vec<usize> = (0..columns.len()).collect();
    let needed = |chosen: &[usize]| chosen.iter().map(|index| columns[*index].width + 1).sum::<usize>();
    // The mark for omitted columns needs a character too, but only once a column is omitted. So
    // omit columns one at a time.
    while needed(&chosen) > width.saturating_sub(usize::from(chosen.len() < columns.len())) + 1 {
        let Some(at) = (0..chosen.len()).max_by_key(|at| (columns[chosen[*at]].rank, *at)) else { break };
        if columns[chosen[at]].rank == 0 {
            break;
        }
        chosen.remove(at);
    }
    let all = chosen.len() == columns.len();
    (chosen, all)
}

pub(crate) type Cell = (String, Tone);

impl Canvas<'_> {
    /// Writes the header of a table.
    pub(crate) fn head(&mut self, y: usize, columns: &[Column], chosen: &[usize], sorted: Option<&str>) {
        let cells = |index: usize| {
            let title = columns[index].title;
            let title = if sorted == Some(title) { format!("{title}*") } else { title.to_owned() };
            (title, Tone::Heading)
        };
        self.row(y, columns, chosen, cells);
        if chosen.len() < columns.len() {
            self.right(y, &LEFT_OUT.to_string(), Tone::Faint);
        }
    }

    pub(crate) fn row(
        &mut self,
        y: usize,
        columns: &[Column],
        chosen: &[usize],
        cell: impl Fn(usize) -> Cell,
    ) {
        let left_out = usize::from(chosen.len() < columns.len());
        let mut x = 0;
        for (at, index) in chosen.iter().enumerate() {
            let column = &columns[*index];
            let room = self.width().saturating_sub(x + left_out);
            let is_last = at + 1 == chosen.len() && !column.is_number;
            let width = if is_last { room } else { column.width.min(room) };
            let (text, tone) = cell(*index);
            let text = shorten(&text, width);
            let indent = if column.is_number { width.saturating_sub(text.chars().count()) } else { 0 };
            self.text(x + indent, y, &text, tone);
            x += width + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_marked() {
        assert_eq!(shorten("package", 7), "package");
        assert_eq!(shorten("package", 4), "pac…");
        assert_eq!(shorten("package", 0), "");
        assert_eq!(shorten("a\x1b[31mb", 9), "a?[31mb");
    }

    #[test]
    fn columns_go_by_rank() {
        let column = |title, width, rank| Column { title, width, rank, is_number: true };
        let columns = [column("a", 5, 0), column("b", 5, 2), column("c", 5, 1)];
        assert_eq!(fitting(&columns, 17), (vec![0, 1, 2], true));
        assert_eq!(fitting(&columns, 16), (vec![0, 2], false));
        assert_eq!(fitting(&columns, 11), (vec![0], false));
        assert_eq!(fitting(&columns, 1), (vec![0], false));
    }
}
