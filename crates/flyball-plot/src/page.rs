//! One HTML file with everything in it: no script, and no font or picture from elsewhere.

use std::fmt::Write;

use crate::{chart::Chart, svg::escape};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// The heads of the columns. The first column is left-aligned, the others right.
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// A part of a page.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    Heading(String),
    Paragraph(String),
    List(Vec<String>),
    /// Pairs of a word and what it stands for here.
    Facts(Vec<(String, String)>),
    Table(Table),
    /// Text as it is, in type of one width.
    Verbatim(String),
    Chart(Box<Chart>),
    /// Charts side by side, where there is room.
    Charts(Vec<Chart>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub title: String,
    pub blocks: Vec<Block>,
}

// No reference to anything outside the file: pages are sent by mail and opened on machines without a network.
const STYLE: &str = "\
body{font:15px/1.5 system-ui,'DejaVu Sans',Helvetica,Arial,sans-serif;color:#222;background:#fff;margin:2rem auto;\
max-width:84rem;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}\
table{border-collapse:collapse;margin:.5rem 0;display:block;overflow-x:auto}\
th,td{padding:.25rem .7rem;font-size:.9rem;font-variant-numeric:tabular-nums;text-align:right;border-bottom:1px solid #e4e4e4;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}th{border-bottom:2px solid #888;font-weight:600}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1.2rem}dt{color:#666}dd{margin:0;overflow-wrap:anywhere}\
pre{background:#f6f6f6;padding:.8rem;overflow-x:auto}svg{max-width:100%;height:auto}\
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,34rem),1fr));gap:1rem}.charts svg{width:100%}\
footer{color:#666;font-size:.85rem;margin-top:3rem}";

impl Page {
    pub fn new(title: impl Into<String>) -> Page {
        Page { title: title.into(), blocks: Vec::new() }
    }

    /// The same with another part.
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
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
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
        Block::Table(table) => {
            let cells =
                |cells: &[String], tag: &str| each(cells, |cell| format!("<{tag}>{}</{tag}>", escape(cell)));
            let rows = each(&table.rows, |row| format!("<tr>{}</tr>\n", cells(row, "td")));
            writeln!(
                out,
                "<table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>",
                cells(&table.header, "th")
            )
        }
        Block::Chart(chart) => writeln!(out, "<figure>{}</figure>", chart.svg()),
        Block::Charts(charts) => {
            let charts: String = charts.iter().map(Chart::svg).collect();
            writeln!(out, "<div class=\"charts\">\n{charts}</div>")
        }
    };
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
            .with(Block::Table(Table { header: vec![nasty.clone()], rows: vec![vec![nasty.clone()]] }))
            .with(Block::Chart(Box::new(Chart::new(
                nasty.clone(),
                crate::Axis::new(nasty.clone(), ""),
                crate::Axis::new("y", nasty.clone()),
            ))))
            .html();
        assert!(!html.contains("<script"), "{html}");
        assert!(!html.contains("src=") && !html.contains("href="), "{html}");
        assert!(html.matches("&lt;script&gt;").count() >= 10);
    }
}
