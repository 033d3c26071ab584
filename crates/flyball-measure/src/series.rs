//! A series of runs that some tool has stored already: values in the order in which they were measured, and whatever
//! metadata the tool kept beside them.
//!
//! Formats: pyperf JSON, hyperfine JSON, Google Benchmark JSON, and CSV with a header. The format is told from the
//! content, never from the file's name. Everything takes bytes, and none of it panics.

mod json;

use std::fmt;

use crate::shifts::{Column, Values};

/// One benchmark's runs in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The benchmark's name, as the file has it.
    pub name: String,
    /// The unit of the values: `s`, `ns`, or empty where the file does not say.
    pub unit: String,
    /// One value a run.
    pub values: Vec<f64>,
    /// Metadata, one value a run.
    pub columns: Vec<Column>,
}

/// Why a file holds no series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesError {
    /// What is wrong, with the place.
    pub what: String,
}

impl fmt::Display for SeriesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; a series is pyperf, hyperfine or Google Benchmark JSON, or CSV with a header line and a column of numbers",
            self.what
        )
    }
}

impl std::error::Error for SeriesError {}

fn error(what: impl Into<String>) -> SeriesError {
    SeriesError { what: what.into() }
}

/// Reads every series in a file. `value` names the CSV column that is the measurement; without it the first column
/// of numbers is.
///
/// # Errors
/// What could not be read, and where.
pub fn read(bytes: &[u8], value: Option<&str>) -> Result<Vec<Series>, SeriesError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|e| error(format!("not text: a byte that is not UTF-8 at offset {}", e.valid_up_to())))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(error("the file is empty"));
    }
    if text.trim_start().starts_with('{') {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|e| error(format!("bad JSON: {e}")))?;
        return json::read(&value);
    }
    csv(text, value).map(|series| vec![series])
}

/// CSV: a header, then one run a line. Columns of numbers and words become metadata.
fn csv(text: &str, value: Option<&str>) -> Result<Series, SeriesError> {
    // Spreadsheets write semicolons where the comma is the decimal point.
    let head = text.lines().next().unwrap_or_default();
    let delimiter =
        [b',', b';', b'\t'].into_iter().find(|mark| head.as_bytes().contains(mark)).unwrap_or(b',');
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let header: Vec<String> =
        reader.headers().map_err(|e| error(format!("bad CSV: {e}")))?.iter().map(str::to_owned).collect();
    if header.iter().all(|name| name.parse::<f64>().is_ok()) {
        return Err(error("the first line holds numbers, not the columns' names"));
    }
    let mut cells: Vec<Vec<Option<String>>> = vec![Vec::new(); header.len()];
    for record in reader.records() {
        let record = record.map_err(|e| error(format!("bad CSV: {e}")))?;
        // A decimal comma would make two cells of one, and the first of them a number.
        if record.iter().skip(header.len()).any(|cell| !cell.is_empty()) {
            let line = record.position().map_or(0, csv::Position::line);
            return Err(error(format!(
                "line {line} has {} cells, the header {} (a decimal comma?)",
                record.len(),
                header.len()
            )));
        }
        for (index, column) in cells.iter_mut().enumerate() {
            column.push(record.get(index).filter(|cell| !cell.is_empty()).map(str::to_owned));
        }
    }
    if cells.first().is_none_or(Vec::is_empty) {
        return Err(error("a header but no runs"));
    }
    let mut columns: Vec<Column> = header
        .iter()
        .zip(cells)
        .map(|(name, cells)| {
            let (name, unit) = split_unit(name);
            Column { name, unit, values: typed(cells) }
        })
        .collect();
    let chosen = match value {
        Some(wanted) => columns
            .iter()
            .zip(&header)
            .position(|(column, header)| column.name == wanted || header == wanted)
            .ok_or_else(|| error(format!("no column '{wanted}'; there are: {}", header.join(", "))))?,
        None => columns
            .iter()
            .position(|column| {
                matches!(&column.values, Values::Numbers(values) if values.iter().all(Option::is_some))
                    && !is_index(column)
            })
            .ok_or_else(|| error("no column holds a number in every line"))?,
    };
    let column = columns.remove(chosen);
    let Values::Numbers(numbers) = &column.values else {
        return Err(error(format!("column '{}' does not hold numbers", column.name)));
    };
    let mut values = Vec::with_capacity(numbers.len());
    for (index, number) in numbers.iter().enumerate() {
        values
            .push(number.ok_or_else(|| {
                error(format!("line {}: no number in column '{}'", index + 2, column.name))
            })?);
    }
    Ok(Series { name: column.name, unit: column.unit, values, columns })
}

/// Whether a column only counts the runs: 0, 1, 2 ... or 1, 2, 3 ...
fn is_index(column: &Column) -> bool {
    match &column.values {
        Values::Numbers(values) => {
            values.len() > 1
                && values.windows(2).all(
                    |pair| matches!((pair[0], pair[1]), (Some(a), Some(b)) if (b - a - 1.0).abs() < 1e-9),
                )
        }
        Values::Words(_) => false,
    }
}

/// `frequency (MHz)`, `frequency [MHz]` and `frequency_mhz` into name and unit.
fn split_unit(header: &str) -> (String, String) {
    for (open, close) in [('(', ')'), ('[', ']')] {
        if let Some(start) = header.find(open)
            && header.ends_with(close)
        {
            return (
                header[..start].trim().to_owned(),
                header[start + 1..header.len() - 1].trim().to_owned(),
            );
        }
    }
    (header.to_owned(), String::new())
}

/// Numbers where every filled cell is one; words otherwise.
fn typed(cells: Vec<Option<String>>) -> Values {
    let filled = cells.iter().flatten().count();
    let number = |cell: &String| cell.parse::<f64>().ok().filter(|number| number.is_finite());
    if filled > 0 && cells.iter().flatten().all(|cell| number(cell).is_some()) {
        return Values::Numbers(cells.iter().map(|cell| cell.as_ref().and_then(number)).collect());
    }
    Values::Words(cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_takes_the_first_measured_column_and_keeps_the_rest() {
        let text = "run,time (ms),frequency [MHz],governor\n1,20.3,1600,powersave\n2,20.1,1600,powersave\n3,11,3400,performance\n";
        let series = read(text.as_bytes(), None).unwrap();
        assert_eq!((series[0].name.as_str(), series[0].unit.as_str()), ("time", "ms"));
        assert_eq!(series[0].values, [20.3, 20.1, 11.0]);
        let names: Vec<_> = series[0].columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["run", "frequency", "governor"]);
        let series = read(text.as_bytes(), Some("frequency")).unwrap();
        assert_eq!(series[0].values, [1600.0, 1600.0, 3400.0]);
        let semicolons = text.replace(',', ";");
        assert_eq!(read(semicolons.as_bytes(), None).unwrap()[0].values, [20.3, 20.1, 11.0]);
    }

    #[test]
    fn what_is_no_series_is_refused_with_a_reason() {
        for (bytes, expected) in [
            (&b""[..], "empty"),
            (b"\xff\xfe1,2", "UTF-8"),
            (b"{", "bad JSON"),
            (b"{\"a\": 1}", "neither"),
            (b"1,2\n3,4\n", "names"),
            (b"a,b\n", "no runs"),
            (b"a,b\nx,y\n", "no column"),
            (b"run,time\n1,20,3\n2,20,1\n", "line 2 has 3 cells, the header 2"),
            (b"run;time\n1;20,3\n2;20,1\n", "no column"),
        ] {
            let error = read(bytes, None).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(read(b"a,b\n1,2\n", Some("c")).unwrap_err().to_string().contains("there are: a, b"));
        assert!(read(b"a,b\n1,2\n,3\n", Some("a")).unwrap_err().to_string().contains("line 3"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = read(&bytes, None);
        }
    }
}
