//! Tables as text: columns that line up, with styles that a terminal may show.

use std::fmt::Write;

/// How a piece of text stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Not at all.
    Plain,
    Heading,
    /// Secondary information (dimmed).
    Faint,
    /// Wrong.
    Alert,
    /// Worth a look.
    Notice,
    /// Better.
    Good,
}

/// Converts styles to what the output understands.
pub trait Painter {
    fn apply(&self, style: Style, text: &str) -> String;
}

/// Leaves all styles out.
#[derive(Debug, Clone, Copy)]
pub struct Unstyled;

impl Painter for Unstyled {
    fn apply(&self, _: Style, text: &str) -> String {
        text.to_owned()
    }
}

/// One cell of a table.
#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    style: Style,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::styled(Style::Plain, text)
    }
}

/// `text` on one line, with visible line ends: a name from a recorded machine or a run directory
/// must not look like a line of its own.
pub fn one_line(text: String) -> String {
    if text.contains(['\n', '\r']) { text.replace('\n', "\\n").replace('\r', "\\r") } else { text }
}

impl Cell {
    pub fn styled(style: Style, text: impl Into<String>) -> Cell {
        Cell { text: one_line(text.into()), style }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn style(&self) -> Style {
        self.style
    }

    fn width(&self) -> usize {
        // Characters, not bytes: names of CPUs and machines may hold more than ASCII. Styles are
        // applied afterwards and have no width.
        self.text.chars().count()
    }
}

/// Rows of cells in columns that line up, two blanks apart. Lines have no trailing blanks.
#[derive(Debug, Default)]
pub struct Columns {
    rows: Vec<Vec<Cell>>,
    /// The right-aligned columns.
    right: std::ops::Range<usize>,
}

impl Columns {
    pub fn new() -> Columns {
        Columns::default()
    }

    /// An empty table in which these columns, counted from 0, are aligned to the right.
    pub fn aligned_right(right: std::ops::Range<usize>) -> Columns {
        Columns { rows: Vec::new(), right }
    }

    /// Adds a heading row.
    pub fn heading<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(|text| Cell::styled(Style::Heading, text)).collect());
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Adds a row without styles.
    pub fn text_row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(|text| Cell::from(text.into())).collect());
    }

    /// Drops the columns whose cells below the heading are all empty.
    pub fn drop_empty(&mut self) {
        // From the right, so that removing a column does not move those that are still to be
        // checked.
        for column in (0..self.width()).rev() {
            if self.rows.iter().skip(1).all(|row| row.get(column).is_none_or(|cell| cell.text.is_empty())) {
                for row in &mut self.rows {
                    if column < row.len() {
                        row.remove(column);
                    }
                }
            }
        }
    }

    /// How many columns the widest row has.
    pub fn width(&self) -> usize {
        self.rows.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The lines, in as many tables as `width` requires, one below the other; each begins with the
    /// first column.
    pub fn render_within(&self, painter: impl Painter + Copy, width: Option<usize>) -> String {
        let widths: Vec<usize> = (0..self.width()).map(|column| self.width_of(column)).collect();
        let whole: usize = widths.iter().map(|width| width + 2).sum::<usize>().saturating_sub(2);
        // A single column cannot be divided, however wide it is.
        let Some(width) = width.filter(|width| whole > *width && widths.len() > 1) else {
            return self.render(painter);
        };
        let mut tables: Vec<Vec<usize>> = Vec::new();
        let mut used = 0;
        for (column, own) in widths.iter().enumerate().skip(1) {
            if used + 2 + own > width || tables.is_empty() {
                tables.push(vec![0]);
                used = widths[0];
            }
            used += 2 + own;
            if let Some(table) = tables.last_mut() {
                table.push(column);
            }
        }
        let part = |columns: &Vec<usize>| {
            let of_row = |row: &Vec<Cell>| {
                columns
                    .iter()
                    .map(|column| row.get(*column).cloned().unwrap_or_else(|| Cell::from("")))
                    .collect()
            };
            let right = columns.iter().filter(|column| self.right.contains(column)).count();
            // Right-aligned columns are adjacent, so those in a part are adjacent too.
            let first = columns.iter().position(|column| self.right.contains(column)).unwrap_or(0);
            let part = Columns { rows: self.rows.iter().map(of_row).collect(), right: first..first + right };
            part.render(painter)
        };
        tables.iter().map(part).collect::<Vec<_>>().join("\n")
    }

    fn width_of(&self, column: usize) -> usize {
        self.rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max().unwrap_or(0)
    }

    /// The lines, each with its newline.
    pub fn render(&self, painter: impl Painter) -> String {
        let widths: Vec<usize> = (0..self.width()).map(|column| self.width_of(column)).collect();
        let mut out = String::new();
        for row in &self.rows {
            let shown = row.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |last| last + 1);
            for (column, cell) in row.iter().enumerate().take(shown) {
                let free = widths[column] - cell.width();
                let right = self.right.contains(&column);
                let (before, after) = if right { (free, 0) } else { (0, free) };
                // Trailing blanks would wrap on narrow terminals and show up in diffs of snapshots.
                let after = if column + 1 == shown { 0 } else { after + 2 };
                // Blanks stay outside the style: with a background or an underline they would be
                // visible. No width of `write!`, which panics beyond 65,535: another program may
                // have written the cell.
                out.push_str(&" ".repeat(before));
                let _ = write!(out, "{}", painter.apply(cell.style, &cell.text));
                out.push_str(&" ".repeat(after));
            }
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_may_have_any_length() {
        let mut columns = Columns::new();
        let long = "x".repeat(70_000);
        columns.text_row([long.as_str(), "1"]);
        columns.text_row(["y", "2"]);
        assert_eq!(columns.render(Unstyled).lines().map(str::len).collect::<Vec<_>>(), [70_003, 70_003]);
    }

    #[test]
    fn columns_line_up_without_trailing_blanks() {
        let mut columns = Columns::new();
        columns.heading(["a", "none", "long heading"]);
        columns.text_row(["value", "", "x"]);
        columns.text_row(["v", "", ""]);
        columns.drop_empty();
        assert_eq!(columns.render(Unstyled), "a      long heading\nvalue  x\nv\n");
    }

    #[test]
    fn a_table_that_is_too_wide_is_two() {
        let mut columns = Columns::aligned_right(1..4);
        columns.heading(["CPU", "load", "GHz", "lag"]);
        columns.text_row(["0", "1", "2.5", "10"]);
        assert_eq!(
            columns.render_within(Unstyled, Some(14)),
            "CPU  load  GHz\n0       1  2.5\n\nCPU  lag\n0     10\n"
        );
        assert_eq!(columns.render_within(Unstyled, None), columns.render(Unstyled));
    }

    #[test]
    fn a_cell_is_one_line() {
        let mut columns = Columns::new();
        columns.text_row(["a\r\nflyball: all is well", "x"]);
        assert_eq!(columns.render(Unstyled), "a\\r\\nflyball: all is well  x\n");
    }

    #[test]
    fn numbers_end_at_the_same_place() {
        let mut columns = Columns::aligned_right(1..2);
        columns.heading(["arm", "W", "note"]);
        columns.text_row(["one", "100", "x"]);
        columns.text_row(["two", "7", ""]);
        assert_eq!(columns.render(Unstyled), "arm    W  note\none  100  x\ntwo    7\n");
    }
}
