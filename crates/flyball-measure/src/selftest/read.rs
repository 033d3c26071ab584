//! Reading a sheet. Bytes in, rows out; nothing is computed here.

/// A cell as printed, with its number.
#[derive(Debug, Clone, PartialEq)]
pub struct Printed {
    pub text: String,
    pub number: f64,
}

/// The six columns of numbers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Columns {
    /// Desired performance, freq (GHz), load (%), performance or time, energy (J), performance per
    /// watt.
    pub cells: [Option<Printed>; 6],
}

impl Columns {
    /// Names of the columns, as the checks call them; the fourth is performance or time.
    pub const NAMES: [&'static str; 6] =
        ["des-perf", "freq", "load", "performance", "energy", "performance per watt"];
    /// The column of performance or time.
    pub const PERFORMANCE: usize = 3;
    pub const ENERGY: usize = 4;
    /// The column of performance per watt.
    pub const PER_WATT: usize = 5;

    pub fn number(&self, column: usize) -> Option<f64> {
        self.cells[column].as_ref().map(|cell| cell.number)
    }
}

/// A row of numbers, with its line in the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Line {
    /// The line, from 1.
    pub line: usize,
    /// Round number, for rows of rounds.
    pub round: usize,
    pub columns: Columns,
}

/// The rows of one driver and governor.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Group {
    /// `amd-pstate-ondemand`.
    pub name: String,
    pub rounds: Vec<Line>,
    /// The averages as printed.
    pub average: Option<Line>,
}

/// A comparison as printed: how much the second group lies above the first, in percent.
#[derive(Debug, Clone, PartialEq)]
pub struct PrintedComparison {
    /// The group compared with.
    pub base: String,
    pub compared: String,
    pub line: Line,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sheet {
    /// Whether the fourth column is the time of fixed work (gitsource) and not a rate (tbench).
    pub is_time: bool,
    /// The unit of the fourth column.
    pub unit: String,
    /// The unit of performance per watt.
    pub per_watt_unit: String,
    /// The groups in order of appearance.
    pub groups: Vec<Group>,
    pub comparisons: Vec<PrintedComparison>,
}

/// Why bytes are not a sheet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SheetError {
    /// No header.
    #[error(
        "not a CSV file of the selftest: the first line is not 'Governor, Round, Des-perf, Freq, Load, Performance|Time, Energy, \
         Performance Per Watt'"
    )]
    Header,
    /// A cell that should be a number.
    #[error("line {line}: '{text}' in column {column} is not a number")]
    Number {
        /// The line, from 1.
        line: usize,
        /// The column's name.
        column: &'static str,
        text: String,
    },
    /// A row that is none of the known kinds.
    #[error("line {line}: '{text}' is neither a round, an average nor a comparison")]
    Row {
        /// The line, from 1.
        line: usize,
        /// Its first two cells.
        text: String,
    },
    /// No round at all.
    #[error("the file has no rounds")]
    Empty,
}

/// Reads a sheet.
///
/// # Errors
/// A line that is not in the layout.
pub fn read(bytes: &[u8]) -> Result<Sheet, SheetError> {
    let text = String::from_utf8_lossy(bytes);
    let mut sheet = Sheet::default();
    let mut lines = text
        // Spreadsheets that save as UTF-8 begin with a byte order mark.
        .trim_start_matches('\u{feff}')
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty());
    let (_, header) = lines.next().ok_or(SheetError::Header)?;
    let names: Vec<String> = cells(header).into_iter().map(|cell| cell.to_lowercase()).collect();
    let is = |place: usize, name: &str| names.get(place).is_some_and(|cell| cell == name);
    if !(is(0, "governor") && is(1, "round") && (is(5, "performance") || is(5, "time")) && is(6, "energy")) {
        return Err(SheetError::Header);
    }
    sheet.is_time = is(5, "time");
    for (line, text) in lines {
        let cells = cells(text);
        let cell = |place: usize| cells.get(place).map_or("", String::as_str);
        if cell(0).eq_ignore_ascii_case("unit") {
            cell(5).clone_into(&mut sheet.unit);
            cell(7).clone_into(&mut sheet.per_watt_unit);
            continue;
        }
        // 0 stands for 'Average' and comparisons; rounds count from 1.
        let row = Line { line, round: cell(1).parse().unwrap_or(0), columns: columns(line, &cells)? };
        // The script spells it 'Comprison(%)'.
        if let Some((base, compared)) = cell(0).split_once(" VS ") {
            let (base, compared) = (base.trim().to_owned(), compared.trim().to_owned());
            sheet.comparisons.push(PrintedComparison { base, compared, line: row });
            continue;
        }
        let known = sheet.groups.iter().position(|group| group.name == cell(0));
        let index = known.unwrap_or(sheet.groups.len());
        if known.is_none() {
            sheet.groups.push(Group { name: cell(0).to_owned(), ..Group::default() });
        }
        let group = &mut sheet.groups[index];
        if cell(1).eq_ignore_ascii_case("average") {
            group.average = Some(row);
        } else if row.round > 0 && !cell(0).is_empty() {
            group.rounds.push(row);
        } else {
            return Err(SheetError::Row { line, text: format!("{}, {}", cell(0), cell(1)) });
        }
    }
    if sheet.groups.iter().all(|group| group.rounds.is_empty()) { Err(SheetError::Empty) } else { Ok(sheet) }
}

fn columns(line: usize, cells: &[String]) -> Result<Columns, SheetError> {
    let mut columns = Columns::default();
    for (place, cell) in columns.cells.iter_mut().enumerate() {
        let Some(text) = cells.get(place + 2).filter(|text| !text.is_empty()) else { continue };
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        let number = number.ok_or_else(|| SheetError::Number {
            line,
            column: Columns::NAMES[place],
            text: text.clone(),
        })?;
        *cell = Some(Printed { text: text.clone(), number });
    }
    Ok(columns)
}

/// The cells of a line, separated by commas, or by tabs if a spreadsheet saved it; quotes around
/// cells are dropped.
fn cells(line: &str) -> Vec<String> {
    let separator = if line.contains(',') { ',' } else { '\t' };
    line.split(separator).map(|cell| cell.trim().trim_matches('"').trim().to_owned()).collect()
}
