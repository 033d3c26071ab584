//! Cells of a table with named columns, as CSV has them and, with the feature `parquet`, a Parquet file.

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Integer,
    /// With this many decimals in CSV.
    Number(usize),
    Text,
}

/// A value, of its column's kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Absent,
    Integer(u64),
    Number(f64),
    Text(String),
}

impl Cell {
    /// The field of a line of CSV (RFC 4180).
    pub fn csv(&self, kind: Kind) -> String {
        match (self, kind) {
            (Cell::Absent, _) => String::new(),
            (Cell::Number(value), Kind::Number(decimals)) => format!("{value:.decimals$}"),
            (Cell::Number(value), _) => value.to_string(),
            (Cell::Integer(value), _) => value.to_string(),
            (Cell::Text(text), _) if text.contains([',', '"', '\n']) => {
                format!("\"{}\"", text.replace('"', "\"\""))
            }
            (Cell::Text(text), _) => text.clone(),
        }
    }
}
