//! Parquet files of flat tables, written and read.
//!
//! Every column may have absent values. The library is built without codecs: dictionaries and
//! differences pack repeated values. Files may come from another program, so reading is bounded:
//! rows by a limit, and memory by the requested columns.

use std::{
    collections::HashMap,
    fs::File,
    io,
    sync::{Arc, Once},
};

use parquet::{
    basic::{Compression, ConvertedType, Encoding, Repetition, Type as Physical},
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties},
        reader::{ChunkReader, FileReader as _},
        serialized_reader::SerializedFileReader,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::types::{ColumnPath, Type},
};

use crate::cell::{Cell, Kind};

/// Maximum number of cells in a row group.
// Groups are written by columns: all rows of a group are in memory before the first column is
// written. This many are a hundred megabytes.
const GROUP: usize = 2 << 20;

/// Maximum number of rows in a file that is read.
const MAX_ROWS: i64 = 64 << 20;

/// Rows read at a time.
const BATCH: usize = 8192;

/// Writes rows into a file.
pub struct Table {
    writer: SerializedFileWriter<File>,
    kinds: Vec<Kind>,
    /// The values of each column that wait to be written.
    waiting: Vec<Vec<Cell>>,
}

impl Table {
    /// A table in an empty file, with notes in its footer.
    ///
    /// # Errors
    /// Returns the errors of the file.
    pub fn new(file: File, columns: &[(&str, Kind)], notes: &[(&str, String)]) -> io::Result<Table> {
        let field = |(name, kind): &(&str, Kind)| {
            let (physical, converted) = match kind {
                Kind::Integer => (Physical::INT64, ConvertedType::NONE),
                Kind::Time => (Physical::INT64, ConvertedType::TIMESTAMP_MILLIS),
                Kind::Number(_) | Kind::Exact => (Physical::DOUBLE, ConvertedType::NONE),
                Kind::Truth => (Physical::BOOLEAN, ConvertedType::NONE),
                Kind::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
            };
            let builder = Type::primitive_type_builder(name, physical);
            builder.with_repetition(Repetition::OPTIONAL).with_converted_type(converted).build().map(Arc::new)
        };
        let fields = columns.iter().map(field).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
        let schema = Type::group_type_builder("table").with_fields(fields).build();
        let notes = notes.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone()));
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::UNCOMPRESSED)
            // Minimum and maximum per column chunk. Those per page would be most of a small file.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_key_value_metadata(Some(notes.collect()))
            .set_created_by(concat!("flyball ", env!("CARGO_PKG_VERSION")).to_owned());
        for (name, _) in columns.iter().filter(|(_, kind)| *kind == Kind::Time) {
            // Times hardly repeat: a dictionary of them would be as long as the column.
            properties = properties
                .set_column_dictionary_enabled(ColumnPath::from(*name), false)
                .set_column_encoding(ColumnPath::from(*name), Encoding::DELTA_BINARY_PACKED);
        }
        let schema = Arc::new(schema.map_err(io::Error::other)?);
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build()));
        Ok(Table {
            writer: writer.map_err(io::Error::other)?,
            kinds: columns.iter().map(|column| column.1).collect(),
            waiting: columns.iter().map(|_| Vec::new()).collect(),
        })
    }

    /// Adds a row, in the order of the columns.
    ///
    /// # Errors
    /// Returns the errors of the file.
    pub fn add(&mut self, row: Vec<Cell>) -> io::Result<()> {
        for (values, cell) in self.waiting.iter_mut().zip(row) {
            values.push(cell);
        }
        let rows = self.waiting.first().map_or(0, Vec::len);
        if rows * self.kinds.len() >= GROUP { self.group().map_err(io::Error::other) } else { Ok(()) }
    }

    fn group(&mut self) -> Result<(), ParquetError> {
        if self.waiting.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for (kind, cells) in self.kinds.iter().zip(&mut self.waiting) {
            let cells = std::mem::take(cells);
            let present: Vec<i16> = cells.iter().map(|cell| i16::from(*cell != Cell::Absent)).collect();
            let present = present.as_slice();
            match kind {
                Kind::Integer | Kind::Time => {
                    let value = |cell| {
                        if let Cell::Integer(value) = cell { Some(value.cast_signed()) } else { None }
                    };
                    column::<Int64Type>(&mut group, cells, value, present)?;
                }
                Kind::Number(_) | Kind::Exact => {
                    let value = |cell| if let Cell::Number(value) = cell { Some(value) } else { None };
                    column::<DoubleType>(&mut group, cells, value, present)?;
                }
                Kind::Truth => {
                    let value = |cell| if let Cell::Truth(value) = cell { Some(value) } else { None };
                    column::<BoolType>(&mut group, cells, value, present)?;
                }
                Kind::Text => {
                    let value = |cell| {
                        if let Cell::Text(text) = cell {
                            Some(ByteArray::from(text.into_bytes()))
                        } else {
                            None
                        }
                    };
                    column::<ByteArrayType>(&mut group, cells, value, present)?;
                }
            }
        }
        group.close()?;
        Ok(())
    }

    /// Writes the remaining rows and the footer.
    ///
    /// # Errors
    /// Returns the errors of the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.group().map_err(io::Error::other)?;
        self.writer.close().map_err(io::Error::other)?;
        Ok(())
    }
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    cells: Vec<Cell>,
    value: impl Fn(Cell) -> Option<T::T>,
    present: &[i16],
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = cells.into_iter().filter_map(value).collect();
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("fewer columns than the schema has".into()));
    };
    column.typed::<T>().write_batch(&values, Some(present), None)?;
    column.close()
}

/// Texts of a table. Each is stored once and identified by a number.
#[derive(Debug, Default)]
pub struct Words {
    list: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Words {
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let word: Arc<str> = text.into();
        let number = self.list.len() as u32;
        self.list.push(Arc::clone(&word));
        self.numbers.insert(word, number);
        number
    }

    pub fn text(&self, number: u32) -> &str {
        self.list.get(number as usize).map_or("", |word| word)
    }
}

/// The values of a column that was read.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// The file does not have it.
    None,
    /// Integers and times.
    Integers(Vec<Option<i64>>),
    Numbers(Vec<Option<f64>>),
    Truths(Vec<Option<bool>>),
    /// Numbers of [`Words`].
    Texts(Vec<Option<u32>>),
}

impl Column {
    pub fn integer(&self, row: usize) -> Option<i64> {
        if let Column::Integers(values) = self { values.get(row).copied().flatten() } else { None }
    }

    pub fn number(&self, row: usize) -> Option<f64> {
        if let Column::Numbers(values) = self { values.get(row).copied().flatten() } else { None }
    }

    pub fn truth(&self, row: usize) -> Option<bool> {
        if let Column::Truths(values) = self { values.get(row).copied().flatten() } else { None }
    }

    /// The number of a text.
    pub fn word(&self, row: usize) -> Option<u32> {
        if let Column::Texts(values) = self { values.get(row).copied().flatten() } else { None }
    }
}

/// Some columns of a file.
#[derive(Debug)]
pub struct ColumnSet {
    pub rows: usize,
    /// In the requested order.
    pub columns: Vec<Column>,
}

/// Reads these columns of a Parquet file, and skips the others.
///
/// # Errors
/// Fails if the file is not a Parquet file, is damaged, or has a column of another type.
pub fn read<R: ChunkReader + 'static>(
    file: R,
    columns: &[(&str, Kind)],
    words: &mut Words,
) -> Result<ColumnSet, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !READS.get() {
                print(panic);
            }
        }));
    });
    // The library checks nearly everything that it reads. Where it does not, it panics.
    READS.set(true);
    let guarded = std::panic::AssertUnwindSafe(|| read_columns(file, columns, words));
    let read = std::panic::catch_unwind(guarded);
    READS.set(false);
    match read {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => Err("damaged".to_owned()),
    }
}

thread_local! {
    /// True while this thread reads a file. A panic then means that the file is damaged, so it is
    /// not printed.
    static READS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn read_columns<R: ChunkReader + 'static>(
    file: R,
    wanted: &[(&str, Kind)],
    words: &mut Words,
) -> Result<ColumnSet, ParquetError> {
    let reader = SerializedFileReader::new(file)?;
    let metadata = reader.metadata();
    let schema = metadata.file_metadata().schema_descr();
    let claimed = metadata.row_groups().iter().map(|group| group.num_rows().max(0));
    if claimed.fold(0, i64::saturating_add) > MAX_ROWS {
        return Err(ParquetError::General(format!("more than {MAX_ROWS} rows")));
    }
    let mut columns = vec![Column::None; wanted.len()];
    let mut rows = 0;
    for number in 0..metadata.num_row_groups() {
        let group = reader.get_row_group(number)?;
        let count = group.metadata().num_rows().max(0) as usize;
        rows += count;
        for ((name, kind), into) in wanted.iter().zip(&mut columns) {
            let found = schema.columns().iter().position(|column| column.path().string() == *name);
            let Some(index) = found else { continue };
            let described = schema.column(index);
            if described.max_rep_level() > 0 || described.max_def_level() > 1 {
                return Err(ParquetError::General(format!("column {name} is not flat")));
            }
            let is_optional = described.max_def_level() == 1;
            let given = ColumnFacts { count, is_optional, name };
            let mut number_of = |text: ByteArray| words.number(&String::from_utf8_lossy(text.data()));
            match (group.get_column_reader(index)?, kind) {
                (ColumnReader::Int64ColumnReader(column), Kind::Integer | Kind::Time) => {
                    let Column::Integers(values) = typed(into, Column::Integers(Vec::new())) else {
                        continue;
                    };
                    given.take(column, values, |value| value)?;
                }
                (ColumnReader::DoubleColumnReader(column), Kind::Number(_) | Kind::Exact) => {
                    let Column::Numbers(values) = typed(into, Column::Numbers(Vec::new())) else { continue };
                    given.take(column, values, |value| value)?;
                }
                (ColumnReader::BoolColumnReader(column), Kind::Truth) => {
                    let Column::Truths(values) = typed(into, Column::Truths(Vec::new())) else { continue };
                    given.take(column, values, |value| value)?;
                }
                (ColumnReader::ByteArrayColumnReader(column), Kind::Text) => {
                    let Column::Texts(values) = typed(into, Column::Texts(Vec::new())) else { continue };
                    given.take(column, values, &mut number_of)?;
                }
                _ => return Err(ParquetError::General(format!("column {name} has another type"))),
            }
        }
    }
    Ok(ColumnSet { rows, columns })
}

/// Returns the column, which the first group creates.
fn typed(column: &mut Column, empty: Column) -> &mut Column {
    if *column == Column::None {
        *column = empty;
    }
    column
}

/// Facts about a column of a row group.
struct ColumnFacts<'a> {
    count: usize,
    is_optional: bool,
    name: &'a str,
}

impl ColumnFacts<'_> {
    fn take<T: DataType, V>(
        &self,
        mut column: ColumnReaderImpl<T>,
        into: &mut Vec<Option<V>>,
        mut value: impl FnMut(T::T) -> V,
    ) -> Result<(), ParquetError> {
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        let mut left = self.count;
        while left > 0 {
            values.clear();
            levels.clear();
            let wanted = self.is_optional.then_some(&mut levels);
            let (records, ..) = column.read_records(left.min(BATCH), wanted, None, &mut values)?;
            if records == 0 || records > left {
                return Err(ParquetError::General(format!("column {} ends early", self.name)));
            }
            left -= records;
            let mut present = values.drain(..).map(&mut value);
            if self.is_optional {
                into.extend(levels.iter().map(|level| if *level > 0 { present.next() } else { None }));
            } else {
                into.extend(present.map(Some));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek as _;

    use super::*;

    const COLUMNS: [(&str, Kind); 5] = [
        ("cpu", Kind::Integer),
        ("watts", Kind::Number(1)),
        ("why", Kind::Text),
        ("idle", Kind::Truth),
        ("time", Kind::Time),
    ];

    fn written(rows: Vec<Vec<Cell>>) -> File {
        let mut file = tempfile::tempfile().unwrap();
        let mut table = Table::new(file.try_clone().unwrap(), &COLUMNS, &[("note", "1".to_owned())]).unwrap();
        for row in rows {
            table.add(row).unwrap();
        }
        table.finish().unwrap();
        file.rewind().unwrap();
        file
    }

    #[test]
    fn what_is_absent_is_null() {
        let rows = vec![
            vec![3.into(), Cell::Absent, "heat".into(), true.into(), 1_769_817_600_000.into()],
            vec![4.into(), 7.5.into(), Cell::Absent, Cell::Absent, Cell::Absent],
        ];
        let file = written(rows);
        let reader = SerializedFileReader::new(file.try_clone().unwrap()).unwrap();
        let rows: Vec<String> =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        assert_eq!(
            rows,
            [
                "{cpu: 3, watts: null, why: \"heat\", idle: true, time: 2026-01-31 00:00:00.000 +00:00}",
                "{cpu: 4, watts: 7.5, why: null, idle: null, time: null}"
            ]
        );
        let mut words = Words::default();
        let wanted = [COLUMNS[2], COLUMNS[0], ("none", Kind::Text), COLUMNS[4]];
        let read = read(file, &wanted, &mut words).unwrap();
        assert_eq!(read.rows, 2);
        assert_eq!(words.text(read.columns[0].word(0).unwrap()), "heat");
        assert_eq!(read.columns[0].word(1), None);
        assert_eq!(read.columns[1], Column::Integers(vec![Some(3), Some(4)]));
        assert_eq!(read.columns[2], Column::None);
        assert_eq!(read.columns[3].integer(0), Some(1_769_817_600_000));
    }

    #[test]
    fn another_type_is_refused() {
        let file = written(vec![vec![3.into(), 1.0.into(), "x".into(), true.into(), 5.into()]]);
        let error = read(file, &[("cpu", Kind::Text)], &mut Words::default()).unwrap_err();
        assert!(error.contains("column cpu has another type"), "{error}");
    }

    #[test]
    fn damage_is_an_error() {
        use std::io::Read as _;
        let row = || vec![3.into(), 1.0.into(), "x".into(), true.into(), 5.into()];
        let mut bytes = Vec::new();
        written(vec![row(), row()]).read_to_end(&mut bytes).unwrap();
        // No changed byte causes more than an error or other values.
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            let _ = read(bytes_of(damaged), &COLUMNS, &mut Words::default());
            let cut = bytes_of(bytes[..at].to_vec());
            assert!(read(cut, &COLUMNS, &mut Words::default()).is_err(), "{at}");
        }
    }

    fn bytes_of(bytes: Vec<u8>) -> File {
        use std::io::Write as _;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file.rewind().unwrap();
        file
    }
}
