//! The CSV files of the kernel's own tracers (tools/power/x86/amd_pstate_tracer and intel_pstate_tracer): the same
//! columns, formats and roundings, so that whatever reads theirs reads these.
//!
//! What is kept of their ways: the first record of each CPU consumes a sample number and makes no row; arithmetic
//! has eleven significant digits (so times above 100,000 s lose their last microseconds digit); the task's column
//! is name, minus sign and number without blanks. What is not: a task called `job[12]` is not booked on CPU 12, CPUs
//! from 256 on are no error, a TGID is not glued to the task's number, and no file is made for a CPU without rows.

mod digits;
mod large;
mod row;

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{error::TraceError, record::Record};

use large::Large;

pub use row::{AMD_HEADER, INTEL_HEADER, Made, Rows};

/// Rows of one CPU that are not written yet.
#[derive(Debug, Default)]
struct CpuRows {
    rows: Vec<u8>,
    made: bool,
    /// Open, for the first [`OPEN`] CPUs.
    file: Option<File>,
}

/// Files that are kept open; a process may have a thousand at most, unless it was told otherwise.
const OPEN: usize = 512;

/// Bytes of one CPU's rows that are kept before they are written.
const KEPT: usize = 16 * 1024;

/// Writes cpu.csv and a cpuNNN.csv for each CPU into a directory.
#[derive(Debug)]
pub struct CsvFiles {
    directory: PathBuf,
    rows: Rows,
    all: Large,
    rows_are_first: bool,
    cpus: Vec<Option<Box<CpuRows>>>,
    per_cpu: bool,
    open: usize,
}

impl CsvFiles {
    /// Files in `directory`, which is made if it is not there. With `per_cpu`, one more for each CPU.
    ///
    /// # Errors
    /// Where the directory or cpu.csv cannot be made.
    pub fn create(directory: &Path, per_cpu: bool) -> Result<CsvFiles, TraceError> {
        std::fs::create_dir_all(directory).map_err(|error| TraceError::io("create", directory, error))?;
        let path = directory.join("cpu.csv");
        let all = File::create(&path).map_err(|error| TraceError::io("create", path, error))?;
        Ok(CsvFiles {
            directory: directory.to_owned(),
            rows: Rows::default(),
            all: Large::new(all),
            rows_are_first: true,
            cpus: Vec::new(),
            per_cpu,
            open: 0,
        })
    }

    fn cpu_path(&self, cpu: usize) -> PathBuf {
        self.directory.join(format!("cpu{cpu:03}.csv"))
    }

    /// Adds one record.
    ///
    /// # Errors
    /// Where a file cannot be written.
    #[inline]
    pub fn add(&mut self, record: &Record) -> Result<(), TraceError> {
        let Some(Made { cpu, header, row }) = self.rows.row(record) else { return Ok(()) };
        if self.rows_are_first {
            self.rows_are_first = false;
            self.all.add(header.as_bytes()).map_err(|error| failed_all(&self.directory, error))?;
        }
        self.all.add(row).map_err(|error| failed_all(&self.directory, error))?;
        if self.per_cpu {
            let cpu = cpu as usize;
            if self.cpus.len() <= cpu {
                self.cpus.resize_with(cpu + 1, || None);
            }
            let rows = self.cpus[cpu].get_or_insert_with(|| {
                let mut rows = Vec::with_capacity(KEPT + 512);
                rows.extend_from_slice(header.as_bytes());
                Box::new(CpuRows { rows, made: false, file: None })
            });
            rows.rows.extend_from_slice(row);
            if rows.rows.len() >= KEPT {
                self.flush_cpu(cpu)?;
            }
        }
        Ok(())
    }

    fn flush_cpu(&mut self, cpu: usize) -> Result<(), TraceError> {
        let path = self.cpu_path(cpu);
        let may_keep = self.open < OPEN;
        let Some(Some(rows)) = self.cpus.get_mut(cpu) else { return Ok(()) };
        let write = |rows: &mut CpuRows| -> io::Result<bool> {
            let mut kept = false;
            if let Some(file) = &mut rows.file {
                file.write_all(&rows.rows)?;
            } else {
                let mut options = OpenOptions::new();
                options.write(true);
                if rows.made {
                    options.append(true)
                } else {
                    options.create(true).truncate(true)
                };
                let mut file = options.open(&path)?;
                file.write_all(&rows.rows)?;
                rows.made = true;
                kept = may_keep;
                rows.file = may_keep.then_some(file);
            }
            rows.rows.clear();
            Ok(kept)
        };
        let kept = write(rows).map_err(|error| TraceError::io("write", path, error))?;
        self.open += usize::from(kept);
        Ok(())
    }

    /// Writes what is left. Answers the number of rows, and of records of another driver that were left out.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn finish(mut self) -> Result<(u64, u64), TraceError> {
        if let (true, Some(header)) = (self.rows_are_first, self.rows.header()) {
            self.all.add(header.as_bytes()).map_err(|error| failed_all(&self.directory, error))?;
        }
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].is_some() {
                self.flush_cpu(cpu)?;
            }
        }
        self.all.finish().map_err(|error| failed_all(&self.directory, error))?;
        Ok((self.rows.rows, self.rows.of_other_driver))
    }
}

fn failed_all(directory: &Path, error: io::Error) -> TraceError {
    TraceError::io("write", directory.join("cpu.csv"), error)
}

#[cfg(test)]
mod tests {
    use super::{row::tests::amd, *};

    #[test]
    fn files_are_made_for_cpus_with_rows() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = CsvFiles::create(&folder.path().join("new"), true).unwrap();
        for round in 0..1_000u64 {
            files.add(&amd(round * 1_000_000, (round % 2) as u32 * 300, 7)).unwrap();
        }
        files.add(&amd(5_000_000_000, 5, 7)).unwrap();
        assert_eq!(files.finish().unwrap(), (998, 0));
        let read = |name: &str| std::fs::read_to_string(folder.path().join("new").join(name));
        let all = read("cpu.csv").unwrap();
        assert_eq!(all.lines().count(), 999);
        let one = read("cpu300.csv").unwrap();
        assert_eq!(one.lines().count(), 500);
        assert!(one.starts_with(AMD_HEADER) && all.starts_with(AMD_HEADER));
        let rows: Vec<&str> = all.lines().filter(|line| line.starts_with("CPU_300")).collect();
        assert_eq!(one.lines().skip(1).collect::<Vec<_>>(), rows);
        assert!(read("cpu005.csv").is_err());
    }
}
