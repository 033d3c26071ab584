//! Requests and samples as a Parquet file, for DuckDB, Polars, Spark and other readers of columns.
//!
//! There is one row per record of amd_pstate_perf or pstate_sample, with the columns of both;
//! columns that an event lacks are null. Counters and times are stored as differences, names and
//! levels as dictionaries: some 20 bytes per row.

use std::{fs::File, path::Path, sync::Arc};

use flyball_files::Replacement;
use parquet::{
    basic::{Compression, Encoding},
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::{parser::parse_message_type, types::ColumnPath},
};

use crate::{error::TraceError, events::Event, record::Record};

const SCHEMA: &str = "message pstate {
    required int64 time_ns;
    required int32 cpu;
    required int32 pid;
    required binary comm (UTF8);
    required int32 level;
    required int32 khz;
    required int64 mperf;
    required int64 aperf;
    required int64 tsc;
    optional int32 min_perf;
    optional int32 max_perf;
    optional boolean fast_switch;
    optional int32 core_busy;
    optional int32 scaled_busy;
    optional int32 from_pstate;
    optional int32 io_boost;
}";

/// Rows per row group.
// Readers skip whole groups by their statistics; a group is in memory until it is written.
const GROUP: usize = 512 * 1024;

/// Writes one Parquet file.
pub struct ParquetFile {
    writer: SerializedFileWriter<File>,
    replacement: Replacement,
    rows: Vec<Row>,
    total: u64,
    path: std::path::PathBuf,
}

#[derive(Clone, Copy)]
struct Row {
    time: u64,
    cpu: u32,
    pid: i32,
    comm: crate::comm::Comm,
    level: u32,
    khz: u64,
    counters: [u64; 3],
    amd: Option<(u32, u32, bool)>,
    intel: Option<[u32; 4]>,
}

impl ParquetFile {
    /// Creates a file at `path`.
    pub fn create(path: &Path) -> Result<ParquetFile, TraceError> {
        let (file, replacement) =
            Replacement::create(path).map_err(|error| TraceError::io("create", path, error))?;
        let fail = |error: ParquetError| failed(path, error);
        let schema = Arc::new(parse_message_type(SCHEMA).map_err(fail)?);
        let mut properties = WriterProperties::builder()
            // The library is built without codecs; DELTA_BINARY_PACKED packs the large columns.
            .set_compression(Compression::UNCOMPRESSED)
            .set_created_by(concat!("flyball ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_max_row_group_row_count(Some(GROUP));
        for column in ["time_ns", "khz", "mperf", "aperf", "tsc"] {
            properties = properties
                // Times and counters never repeat, so a dictionary would be as long as the column.
                .set_column_dictionary_enabled(ColumnPath::from(column), false)
                .set_column_encoding(ColumnPath::from(column), Encoding::DELTA_BINARY_PACKED);
        }
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).map_err(fail)?;
        Ok(ParquetFile { writer, replacement, rows: Vec::new(), total: 0, path: path.to_owned() })
    }

    /// Adds one record; records of other events are skipped.
    pub fn add(&mut self, record: &Record) -> Result<(), TraceError> {
        let row = Row {
            time: record.time,
            // pstate_sample has no CPU field: its counters are read on the CPU that they describe.
            cpu: record.cpu,
            pid: record.pid,
            comm: record.comm,
            level: 0,
            khz: 0,
            counters: [0; 3],
            amd: None,
            intel: None,
        };
        let row = match &record.event {
            Event::AmdPerf(event) => Row {
                // A governor's thread makes requests for other CPUs: the row belongs to the CPU of
                // the counters.
                cpu: event.cpu,
                level: event.des,
                khz: event.khz,
                counters: [event.mperf, event.aperf, event.tsc],
                amd: Some((event.min, event.max, event.fast_switch)),
                ..row
            },
            Event::Intel(event) => Row {
                level: event.to,
                khz: u64::from(event.khz),
                counters: [event.mperf, event.aperf, event.tsc],
                intel: Some([event.core_busy, event.scaled_busy, event.from, event.io_boost]),
                ..row
            },
            _ => return Ok(()),
        };
        self.rows.push(row);
        self.total += 1;
        // Groups are written by column, so all rows must be there before the first column is
        // written.
        if self.rows.len() >= GROUP { self.group() } else { Ok(()) }
    }

    fn group(&mut self) -> Result<(), TraceError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let write = |rows: &[Row], writer: &mut SerializedFileWriter<File>| -> Result<(), ParquetError> {
            let mut group = writer.next_row_group()?;
            let longs = |value: fn(&Row) -> u64| {
                rows.iter().map(|row| value(row).cast_signed()).collect::<Vec<i64>>()
            };
            // Parquet's INT32 is signed; no CPU, level or P-state comes near its limit.
            let ints = |value: fn(&Row) -> u32| {
                rows.iter().map(|row| value(row).cast_signed()).collect::<Vec<i32>>()
            };
            // In the order of SCHEMA: the writer provides one column after the other.
            column::<Int64Type>(&mut group, &longs(|row| row.time), None)?;
            column::<Int32Type>(&mut group, &ints(|row| row.cpu), None)?;
            column::<Int32Type>(&mut group, &rows.iter().map(|row| row.pid).collect::<Vec<i32>>(), None)?;
            column::<ByteArrayType>(&mut group, &names(rows), None)?;
            column::<Int32Type>(&mut group, &ints(|row| row.level), None)?;
            column::<Int32Type>(&mut group, &ints(|row| u32::try_from(row.khz).unwrap_or(u32::MAX)), None)?;
            column::<Int64Type>(&mut group, &longs(|row| row.counters[0]), None)?;
            column::<Int64Type>(&mut group, &longs(|row| row.counters[1]), None)?;
            column::<Int64Type>(&mut group, &longs(|row| row.counters[2]), None)?;
            // An optional column has one level per row, 1 if there is a value, followed by only the
            // existing values.
            let amd: Vec<i16> = rows.iter().map(|row| i16::from(row.amd.is_some())).collect();
            let intel: Vec<i16> = rows.iter().map(|row| i16::from(row.intel.is_some())).collect();
            let ours: Vec<(u32, u32, bool)> = rows.iter().filter_map(|row| row.amd).collect();
            let theirs: Vec<[u32; 4]> = rows.iter().filter_map(|row| row.intel).collect();
            let part = |value: fn(&(u32, u32, bool)) -> u32| {
                ours.iter().map(|row| value(row).cast_signed()).collect::<Vec<i32>>()
            };
            column::<Int32Type>(&mut group, &part(|row| row.0), Some(&amd))?;
            column::<Int32Type>(&mut group, &part(|row| row.1), Some(&amd))?;
            column::<BoolType>(&mut group, &ours.iter().map(|row| row.2).collect::<Vec<bool>>(), Some(&amd))?;
            for at in 0..4 {
                let values: Vec<i32> = theirs.iter().map(|row| row[at].cast_signed()).collect();
                column::<Int32Type>(&mut group, &values, Some(&intel))?;
            }
            group.close()?;
            Ok(())
        };
        let written = write(&self.rows, &mut self.writer);
        // Also after a failure, which ends the file: the rows are not needed for the message.
        self.rows.clear();
        written.map_err(|error| failed(&self.path, error))
    }

    /// Writes the remaining rows and the footer, and returns the number of rows.
    pub fn finish(mut self) -> Result<u64, TraceError> {
        self.group()?;
        let ParquetFile { writer, replacement, total, path, .. } = self;
        writer.close().map_err(|error| failed(&path, error))?;
        replacement.finish().map_err(|error| TraceError::io("write", &path, error))?;
        Ok(total)
    }
}

/// Tasks' names. Few differ between neighbouring rows and CPUs, so each is created once.
fn names(rows: &[Row]) -> Vec<ByteArray> {
    let mut known: std::collections::HashMap<crate::comm::Comm, ByteArray> = std::collections::HashMap::new();
    rows.iter()
        .map(|row| {
            let make = || ByteArray::from(row.comm.to_string().into_bytes());
            known.entry(row.comm).or_insert_with(make).clone()
        })
        .collect()
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    present: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("fewer columns than the schema has".into()));
    };
    column.typed::<T>().write_batch(values, present, None)?;
    column.close()
}

fn failed(path: &Path, error: ParquetError) -> TraceError {
    TraceError::io("write", path, std::io::Error::other(error))
}
