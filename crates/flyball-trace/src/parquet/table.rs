//! A Parquet file of a few columns that the caller names: what is not a trace but belongs next to one.

use std::{fs::File, io, path::Path, sync::Arc};

use flyball_files::Replacement;
use parquet::{
    basic::{Compression, ConvertedType, Repetition, Type as Physical},
    data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type},
    errors::ParquetError,
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::types::Type,
};

use super::{GROUP, column};
use crate::cell::{Cell, Kind};

/// Writes rows; every column may have absent values.
pub struct Table {
    writer: SerializedFileWriter<File>,
    replacement: Replacement,
    kinds: Vec<Kind>,
    /// Of each column the values that are not written yet.
    waiting: Vec<Vec<Cell>>,
}

impl Table {
    /// A new file at `path`.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path, columns: &[(&str, Kind)]) -> io::Result<Table> {
        let (file, replacement) = Replacement::of(path)?;
        let field = |(name, kind): &(&str, Kind)| {
            let (physical, converted) = match kind {
                Kind::Integer => (Physical::INT64, ConvertedType::NONE),
                Kind::Number(_) => (Physical::DOUBLE, ConvertedType::NONE),
                Kind::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
            };
            let builder = Type::primitive_type_builder(name, physical);
            builder.with_repetition(Repetition::OPTIONAL).with_converted_type(converted).build().map(Arc::new)
        };
        let fields = columns.iter().map(field).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
        let schema = Type::group_type_builder("samples").with_fields(fields).build();
        let properties = WriterProperties::builder()
            // The library is built without codecs; dictionaries pack what repeats.
            .set_compression(Compression::UNCOMPRESSED)
            .set_created_by(concat!("flyball ", env!("CARGO_PKG_VERSION")).to_owned());
        let schema = Arc::new(schema.map_err(io::Error::other)?);
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build()));
        Ok(Table {
            writer: writer.map_err(io::Error::other)?,
            replacement,
            kinds: columns.iter().map(|column| column.1).collect(),
            waiting: columns.iter().map(|_| Vec::new()).collect(),
        })
    }

    /// Adds a row, in the order of the columns.
    ///
    /// # Errors
    /// Those of the file.
    pub fn add(&mut self, row: Vec<Cell>) -> io::Result<()> {
        for (values, cell) in self.waiting.iter_mut().zip(row) {
            values.push(cell);
        }
        let rows = self.waiting.first().map_or(0, Vec::len);
        if rows >= GROUP { self.group().map_err(io::Error::other) } else { Ok(()) }
    }

    fn group(&mut self) -> Result<(), ParquetError> {
        if self.waiting.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for (kind, cells) in self.kinds.iter().zip(&mut self.waiting) {
            let cells = std::mem::take(cells);
            let present: Vec<i16> = cells.iter().map(|cell| i16::from(*cell != Cell::Absent)).collect();
            match kind {
                Kind::Integer => {
                    let value = |cell: &Cell| {
                        if let Cell::Integer(value) = cell { Some(value.cast_signed()) } else { None }
                    };
                    let values: Vec<i64> = cells.iter().filter_map(value).collect();
                    column::<Int64Type>(&mut group, &values, Some(&present))?;
                }
                Kind::Number(_) => {
                    let value =
                        |cell: &Cell| if let Cell::Number(value) = cell { Some(*value) } else { None };
                    let values: Vec<f64> = cells.iter().filter_map(value).collect();
                    column::<DoubleType>(&mut group, &values, Some(&present))?;
                }
                Kind::Text => {
                    let value = |cell: Cell| {
                        if let Cell::Text(text) = cell {
                            Some(ByteArray::from(text.into_bytes()))
                        } else {
                            None
                        }
                    };
                    let values: Vec<ByteArray> = cells.into_iter().filter_map(value).collect();
                    column::<ByteArrayType>(&mut group, &values, Some(&present))?;
                }
            }
        }
        group.close()?;
        Ok(())
    }

    /// Writes what is left and the footer.
    ///
    /// # Errors
    /// Those of the file, which is then not there.
    pub fn finish(mut self) -> io::Result<()> {
        self.group().map_err(io::Error::other)?;
        self.writer.close().map_err(io::Error::other)?;
        self.replacement.finish()
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};

    use super::*;

    #[test]
    fn what_is_absent_is_null() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let columns = [("cpu", Kind::Integer), ("watts", Kind::Number(1)), ("why", Kind::Text)];
        let mut table = Table::create(&path, &columns).unwrap();
        table.add(vec![Cell::Integer(3), Cell::Absent, Cell::Text("heat".into())]).unwrap();
        table.add(vec![Cell::Integer(4), Cell::Number(7.5), Cell::Absent]).unwrap();
        table.finish().unwrap();
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let rows: Vec<String> =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        assert_eq!(rows, ["{cpu: 3, watts: null, why: \"heat\"}", "{cpu: 4, watts: 7.5, why: null}"]);
    }
}
