//! Cells of a table with named columns, for CSV and Parquet files.

use flyball_text::is_formula;

/// The kind of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Integer,
    /// A measurement: in CSV the shortest text that reads back as the same number.
    Exact,
    /// A number for people: with this many decimals in CSV.
    Number(usize),
    Text,
    Truth,
    /// A time, in milliseconds since 1970.
    Time,
}

/// A value, of its column's kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Absent,
    /// An integer or a time.
    Integer(u64),
    Number(f64),
    Text(String),
    Truth(bool),
}

impl Cell {
    /// A field in a line of CSV (RFC 4180). Names come from other programs' files, so none may
    /// become a formula in a spreadsheet.
    pub fn csv(&self, kind: Kind) -> String {
        match (self, kind) {
            (Cell::Absent, _) => String::new(),
            (Cell::Number(value), Kind::Number(decimals)) => format!("{value:.decimals$}"),
            (Cell::Number(value), _) => value.to_string(),
            (Cell::Integer(value), _) => value.to_string(),
            (Cell::Truth(value), _) => value.to_string(),
            (Cell::Text(text), _) => {
                let sign = if is_formula(text) { "'" } else { "" };
                if text.contains([',', '"', '\n', '\r']) {
                    format!("\"{sign}{}\"", text.replace('"', "\"\""))
                } else {
                    format!("{sign}{text}")
                }
            }
        }
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Absent, Into::into)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Cell {
        Cell::Integer(value)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Cell {
        Cell::Number(value)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Cell {
        Cell::Truth(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn an_exact_number_reads_back_from_csv(value in proptest::num::f64::NORMAL) {
            let text = Cell::Number(value).csv(Kind::Exact);
            proptest::prop_assert_eq!(text.parse::<f64>(), Ok(value));
        }
    }

    #[test]
    fn no_text_is_a_formula() {
        for (text, cell) in [
            ("=cmd|x!A1", "'=cmd|x!A1"),
            ("\t@SUM(1,2)", "\"'\t@SUM(1,2)\""),
            ("-2+3 read", "'-2+3 read"),
            ("-1.5", "-1.5"),
            ("a=b", "a=b"),
        ] {
            assert_eq!(Cell::Text(text.to_owned()).csv(Kind::Text), cell);
        }
    }

    #[test]
    fn a_time_of_forty_nanoseconds_is_not_zero() {
        assert_eq!(Cell::Number(4e-8).csv(Kind::Exact), "0.00000004");
    }
}
