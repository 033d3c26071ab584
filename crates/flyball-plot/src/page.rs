//! One HTML file that contains everything: no external font or picture, and no script except the
//! search of a long table.

use std::fmt::Write;

use flyball_text::{
    columns::{Cell, Style},
    escape,
};

use crate::{
    chart::Chart,
    scene::{SERIES, on_black, palette},
};

#[derive(Debug, Clone, Default)]
pub struct Table {
    /// The heads of the columns. The first column is left-aligned, the others right.
    pub header: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
    /// For each row, the number of its colour in charts; empty without colours.
    pub colours: Vec<usize>,
}

/// A part of a page.
#[derive(Debug, Clone)]
pub enum Block {
    Heading(String),
    Paragraph(String),
    /// A warning that readers must see before anything else.
    Banner(String),
    /// The answer: emphasised words, each with the text that follows.
    Answer(Vec<(String, String)>),
    List(Vec<String>),
    /// Pairs of a word and its value.
    Facts(Vec<(String, String)>),
    /// Tables side by side, if there is room.
    Tables(Vec<Table>),
    /// A long table that the reader can search.
    Search(Table),
    /// Text as it is, in a monospaced font.
    Verbatim(String),
    /// Charts side by side, if there is room.
    Charts(Vec<Chart>),
    /// Parts that are shown on request, under this heading.
    Details(String, Vec<Block>),
}

#[derive(Debug, Clone)]
pub struct Page {
    pub title: String,
    pub blocks: Vec<Block>,
}

// No reference to anything outside the file: pages are sent by mail and opened on machines without
// a network.
const STYLE: &str = include_str!("page.css");

/// Charts name their colours in each shape, so that a picture can stand alone. These rules replace
/// them on a dark background.
fn dark() -> String {
    let rules = on_black().map(|(light, dark)| {
        format!("svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}\n")
    });
    let swatches = (0..SERIES).map(|number| {
        let light = palette(number);
        let dark = on_black().find_map(|(of, dark)| (of == light).then_some(dark)).unwrap_or(light);
        format!(".c{number}{{background:{dark}}}\n")
    });
    format!("@media (prefers-color-scheme: dark){{\n{}}}\n", rules.chain(swatches).collect::<String>())
}

/// Hides the rows of the next table that do not contain the words.
const SEARCH: &str = "<input type=\"search\" placeholder=\"search\" aria-label=\"search\" oninput=\"const words = \
                      this.value.toLowerCase(); for (const row of this.nextElementSibling.tBodies[0].rows) row.hidden = \
                      !row.textContent.toLowerCase().includes(words)\">";

/// Size of a picture on narrow screens. It is laid out again, because scaled-down letters would be
/// too small to read.
const NARROW: (u32, u32) = (380, 330);

impl Page {
    pub fn new(title: impl Into<String>) -> Page {
        Page { title: title.into(), blocks: Vec::new() }
    }

    /// Adds a block.
    #[must_use]
    pub fn with(mut self, block: Block) -> Page {
        self.blocks.push(block);
        self
    }

    /// The page as text.
    pub fn html(&self) -> String {
        let title = escape(&self.title);
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}{}{}</style>\n</head>\n\
             <body>\n<h1>{title}</h1>\n",
            (0..SERIES).map(|c| format!(".c{c}{{background:{}}}\n", palette(c))).collect::<String>(),
            dark()
        );
        for block in &self.blocks {
            write_block(&mut out, block);
        }
        out.push_str("</body>\n</html>\n");
        out
    }
}

/// The texts of all items, one after the other.
fn each<T>(items: &[T], write: impl Fn(&T) -> String) -> String {
    items.iter().map(write).collect::<Vec<String>>().concat()
}

fn write_block(out: &mut String, block: &Block) {
    // Writing to a string does not fail.
    let _ = match block {
        Block::Heading(words) => writeln!(out, "<h2>{}</h2>", escape(words)),
        Block::Paragraph(words) => writeln!(out, "<p>{}</p>", escape(words)),
        Block::Banner(words) => writeln!(out, "<p class=\"banner\" role=\"note\">{}</p>", escape(words)),
        Block::Answer(lines) => {
            let lines = each(lines, |(words, rest)| {
                format!("<p><strong>{}</strong> {}</p>\n", escape(words), escape(rest))
            });
            writeln!(out, "<div class=\"answer\">\n{lines}</div>")
        }
        Block::Verbatim(words) => writeln!(out, "<pre>{}</pre>", escape(words)),
        Block::List(items) => {
            let items = each(items, |item| format!("<li>{}</li>\n", escape(item)));
            writeln!(out, "<ul>\n{items}</ul>")
        }
        Block::Facts(facts) => {
            let facts =
                each(facts, |(word, fact)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(word), escape(fact)));
            writeln!(out, "<dl>\n{facts}</dl>")
        }
        Block::Tables(tables) => {
            out.push_str("<div class=\"tables\">\n");
            let written = tables.iter().try_for_each(|table| write_table(out, table));
            written.and_then(|()| writeln!(out, "</div>"))
        }
        Block::Search(table) => {
            let _ = writeln!(out, "{SEARCH}");
            write_table(out, table)
        }
        Block::Charts(charts) => {
            let charts = each(charts, |chart| {
                let narrow = chart.clone().sized(NARROW.0, NARROW.1);
                format!(
                    "<figure><div class=\"wide\">{}</div><div class=\"narrow\">{}</div></figure>\n",
                    chart.svg(),
                    narrow.svg()
                )
            });
            writeln!(out, "<div class=\"charts\">\n{charts}</div>")
        }
        Block::Details(words, blocks) => {
            let _ = writeln!(out, "<details>\n<summary>{}</summary>", escape(words));
            for block in blocks {
                write_block(out, block);
            }
            writeln!(out, "</details>")
        }
    };
}

/// A table. Each cell has its column's heading, which narrow screens show next to the cell instead
/// of above.
fn write_table(out: &mut String, table: &Table) -> std::fmt::Result {
    let head = each(&table.header, |cell| format!("<th>{}</th>", escape(cell)));
    writeln!(out, "<table>\n<thead><tr>{head}</tr></thead>\n<tbody>")?;
    for (at, row) in table.rows.iter().enumerate() {
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let swatch = match table.colours.get(at).filter(|_| column == 0) {
                Some(colour) => format!("<i class=\"swatch c{}\"></i>", colour % SERIES),
                None => String::new(),
            };
            let class = match cell.style() {
                Style::Good => " class=\"good\"",
                Style::Alert => " class=\"alert\"",
                Style::Faint => " class=\"faint\"",
                Style::Plain | Style::Heading | Style::Notice => "",
            };
            let head = table.header.get(column).map_or("", String::as_str);
            // A number stays on one line with its unit.
            let text = escape(cell.text()).replace(" %", "\u{a0}%");
            write!(out, "<td{class} data-head=\"{}\">{swatch}<span>{text}</span></td>", escape(head))?;
        }
        out.push_str("</tr>\n");
    }
    writeln!(out, "</tbody>\n</table>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_text_and_nothing_else() {
        let nasty = "<script>alert(1)</script> & \"quotes\"".to_owned();
        let html = Page::new(&nasty)
            .with(Block::Heading(nasty.clone()))
            .with(Block::Paragraph(nasty.clone()))
            .with(Block::List(vec![nasty.clone()]))
            .with(Block::Facts(vec![(nasty.clone(), nasty.clone())]))
            .with(Block::Verbatim(nasty.clone()))
            .with(Block::Banner(nasty.clone()))
            .with(Block::Answer(vec![(nasty.clone(), nasty.clone())]))
            .with(Block::Tables(vec![Table {
                header: vec![nasty.clone()],
                rows: vec![vec![nasty.clone().into()]],
                colours: vec![0],
            }]))
            .with(Block::Search(Table { header: vec![nasty.clone()], ..Table::default() }))
            .with(Block::Details(nasty.clone(), vec![Block::Paragraph(nasty.clone())]))
            .with(Block::Charts(vec![Chart::new(
                nasty.clone(),
                crate::Axis::new(nasty.clone(), ""),
                crate::Axis::new("y", nasty.clone()),
            )]))
            .html();
        assert!(!html.contains("<script"), "{html}");
        assert!(!html.contains("src=") && !html.contains("href=\"http"), "{html}");
        assert!(html.matches("&lt;script&gt;").count() >= 15);
    }
}
