//! Tables: a header, then one run per line, separated by commas, semicolons or tabs. Columns of
//! numbers and words besides the measurement become metadata.

use super::model::{Series, SeriesError, error};
use crate::shifts::{Column, Values};

type Cells = Vec<Option<String>>;

/// Maximum number of columns of a table. Each costs memory, however few cells are filled.
const MAX_COLUMNS: usize = 4096;

pub(super) fn read(text: &str, value: Option<&str>) -> Result<Vec<Series>, SeriesError> {
    // Spreadsheets may name the separator first; programs may describe the machine in comments.
    let mut said = None;
    let mut body = text;
    while let Some((line, rest)) = body.split_once('\n') {
        let line = line.trim();
        if let Some(separator) = line.strip_prefix("sep=") {
            said = separator.bytes().next();
        } else if !(line.is_empty() || line.starts_with('#')) {
            break;
        }
        body = rest;
    }
    let skipped = text.len() - body.len();
    let skipped = text.as_bytes()[..skipped].iter().filter(|&&byte| byte == b'\n').count() as u64;
    let header = body.lines().next().unwrap_or_default();
    let delimiter = said.unwrap_or_else(|| most_of(header, b",;\t"));
    let mut reader = csv::ReaderBuilder::new()
        // Rows may lack trailing cells; rows with more than the header are refused below, with
        // their line.
        .flexible(true)
        .trim(csv::Trim::All)
        .delimiter(delimiter)
        .from_reader(body.as_bytes());
    let header: Vec<String> =
        reader.headers().map_err(|e| error(format!("bad CSV: {e}")))?.iter().map(str::to_owned).collect();
    if header.len() > MAX_COLUMNS {
        return Err(error(format!("{} columns; at most {MAX_COLUMNS} are read", header.len())));
    }
    // Otherwise the first run would silently become column names.
    if header.iter().all(|name| name.parse::<f64>().is_ok()) {
        return Err(error("the first line holds numbers, not the columns' names"));
    }
    let mut cells: Vec<Cells> = vec![Vec::new(); header.len()];
    for record in reader.records() {
        let record = record.map_err(|e| error(format!("bad CSV: {e}")))?;
        // A decimal comma splits a cell in two, and the first part is still a number.
        if record.iter().skip(header.len()).any(|cell| !cell.is_empty()) {
            let line = record.position().map_or(0, csv::Position::line) + skipped;
            return Err(error(format!(
                "line {line} has {} cells, the header {} (a decimal comma?)",
                record.len(),
                header.len()
            )));
        }
        for (index, column) in cells.iter_mut().enumerate() {
            let cell = record.get(index).filter(|cell| !cell.is_empty());
            // Commas that do not separate cells may be decimal points.
            column.push(cell.map(|cell| if delimiter == b',' { cell.to_owned() } else { pointed(cell) }));
        }
    }
    if cells.first().is_none_or(Vec::is_empty) {
        return Err(error("a header but no runs"));
    }
    // Tools are recognised by their header, only if the user names no column.
    let has = |names: &[&str]| names.iter().all(|name| header.iter().any(|column| column == name));
    if value.is_none() && has(&["command", "mean", "stddev"]) {
        return Err(error("hyperfine's CSV holds summaries, not runs: use --export-json"));
    }
    if value.is_none() && has(&["name", "real_time", "time_unit"]) {
        return google(&header, &cells);
    }
    from_columns(&header, cells, value).map(|series| vec![series])
}

/// Returns which of these bytes is most frequent in a line; the first one if none occurs.
fn most_of(line: &str, bytes: &[u8]) -> u8 {
    let count = |byte: u8| line.bytes().filter(|&found| found == byte).count();
    // max_by_key keeps the last maximum: reversed, the first of `bytes` wins a tie.
    bytes.iter().copied().rev().max_by_key(|&byte| count(byte)).unwrap_or(b',')
}

/// `20,5` as `20.5`; anything else as it is.
fn pointed(cell: &str) -> String {
    let mut parts = cell.split(',');
    let (Some(whole), Some(rest), None) = (parts.next(), parts.next(), parts.next()) else {
        return cell.to_owned();
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let exponent = rest.split(['e', 'E']).next().unwrap_or_default();
    if digits(whole.trim_start_matches(['-', '+'])) && digits(exponent) {
        format!("{whole}.{rest}")
    } else {
        cell.to_owned()
    }
}

/// Splits columns of equal length into the measurement and its metadata.
pub(super) fn from_columns(
    header: &[String],
    cells: Vec<Cells>,
    value: Option<&str>,
) -> Result<Series, SeriesError> {
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
            .zip(header)
            .position(|(column, header)| column.name == wanted || header == wanted)
            .ok_or_else(|| error(format!("no column '{wanted}'; there are: {}", header.join(", "))))?,
        None => {
            let numbers = |column: &Column| matches!(column.values, Values::Numbers(_)) && !is_index(column);
            columns
                .iter()
                .position(|column| numbers(column) && is_time(column))
                .or_else(|| columns.iter().position(numbers))
                // Values that happen to count up, if there is nothing else.
                .or_else(|| columns.iter().position(|column| matches!(column.values, Values::Numbers(_))))
                .ok_or_else(|| error("no column holds numbers"))?
        }
    };
    let column = columns.remove(chosen);
    // The runs' own numbers change with every shift and explain none.
    columns.retain(|column| !is_index(column));
    let Values::Numbers(numbers) = column.values else {
        return Err(error(format!("column '{}' does not hold numbers", column.name)));
    };
    Ok(Series::new(column.name, column.unit, &numbers, columns))
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

/// Whether a column is named like a measured time.
fn is_time(column: &Column) -> bool {
    const NAMES: &[&str] = &[
        "time",
        "wall",
        "wall time",
        "real",
        "real_time",
        "elapsed",
        "duration",
        "latency",
        "seconds",
        "value",
        "result",
        "s",
        "ms",
        "us",
        "ns",
        "time_ms",
        "time_s",
        "time_us",
        "time_ns",
    ];
    let name = column.name.to_lowercase();
    NAMES.contains(&name.as_str())
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

/// Numbers if every filled cell is one; words otherwise. NaN and infinities become empty cells.
fn typed(cells: Cells) -> Values {
    let number = |cell: &String| cell.parse::<f64>().ok();
    let finite = |cell: &String| number(cell).filter(|number| number.is_finite());
    let all = cells.iter().flatten().all(|cell| number(cell).is_some());
    if all && cells.iter().flatten().any(|cell| finite(cell).is_some()) {
        return Values::Numbers(cells.iter().map(|cell| cell.as_ref().and_then(finite)).collect());
    }
    Values::Words(cells)
}

/// Google Benchmark's CSV: one line per repetition; aggregates are named after their benchmark.
fn google(header: &[String], cells: &[Cells]) -> Result<Vec<Series>, SeriesError> {
    let column = |name: &str| header.iter().position(|column| column == name).map(|at| &cells[at]);
    let (Some(names), Some(times)) = (column("name"), column("real_time")) else {
        return Err(error("no runs"));
    };
    let units = column("time_unit");
    let mut series: Vec<(String, String, Vec<Option<f64>>)> = Vec::new();
    for (row, (name, time)) in names.iter().zip(times).enumerate() {
        let Some(name) = name else { continue };
        let aggregate = ["_mean", "_median", "_stddev", "_cv"].iter().any(|end| name.ends_with(end));
        let value = time.as_ref().and_then(|time| time.parse::<f64>().ok());
        if aggregate || value.is_none() {
            continue;
        }
        match series.iter_mut().find(|(known, ..)| known == name) {
            Some((_, _, values)) => values.push(value),
            None => {
                let unit = units.and_then(|units| units.get(row)?.clone()).unwrap_or_default();
                series.push((name.clone(), unit, vec![value]));
            }
        }
    }
    if series.is_empty() {
        return Err(error("Google Benchmark's table, but without runs"));
    }
    Ok(series.into_iter().map(|(name, unit, values)| Series::new(name, unit, &values, Vec::new())).collect())
}
