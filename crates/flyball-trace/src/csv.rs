//! The CSV files of the kernel's own tracers (tools/power/x86/amd_pstate_tracer and
//! intel_pstate_tracer), with their columns, formats and rounding, so that programs that read their
//! files can read these.
//!
//! As in those tools, the first record of each CPU uses up a sample number but makes no row;
//! arithmetic has eleven significant digits (so times above 100,000 s lose their last microsecond
//! digit); the task's column is name, minus sign and number without blanks. Unlike in those tools,
//! a task called `job[12]` is not attributed to CPU 12, CPUs from 256 on are not an error, a TGID
//! is not joined to the task's number, and CPUs without rows get no file.

mod digits;
mod row;
mod split;

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use flyball_files::Replacement;

use crate::{error::TraceError, record::Record};

use split::SplitFiles;

pub use row::{AMD_HEADER, CsvRow, INTEL_HEADER, Rows};

/// Writes cpu.csv and a cpuNNN.csv for each CPU into a directory.
///
/// Each row is formatted once, in chronological order, into a block of cpu.csv. A full block is
/// then split into the CPUs' own files, one CPU after the other. Otherwise, with hundreds of CPUs,
/// each row would need a buffer that is no longer in the cache.
#[derive(Debug)]
pub struct CsvFiles {
    directory: PathBuf,
    rows: Rows,
    /// cpu.csv. `block` has its unwritten rows.
    all: File,
    replacement: Replacement,
    block: Vec<u8>,
    rows_are_first: bool,
    split: Option<SplitFiles>,
}

impl CsvFiles {
    /// Creates the files in `directory`, and the directory if necessary. With `per_cpu`, there is
    /// one more file for each CPU.
    pub fn create(directory: &Path, per_cpu: bool) -> Result<CsvFiles, TraceError> {
        flyball_files::make_dirs(directory).map_err(|error| TraceError::io("create", directory, error))?;
        let path = directory.join("cpu.csv");
        let (all, replacement) =
            Replacement::create(&path).map_err(|error| TraceError::io("create", path, error))?;
        Ok(CsvFiles {
            directory: directory.to_owned(),
            rows: Rows::default(),
            all,
            replacement,
            // A block is written once it is full, so it exceeds this by at most one row.
            block: Vec::with_capacity(BLOCK + 4096),
            rows_are_first: true,
            split: per_cpu.then(|| SplitFiles::new(directory)),
        })
    }

    #[inline]
    pub fn add(&mut self, record: &Record) -> Result<(), TraceError> {
        let Some(CsvRow { cpu, header, row }) = self.rows.row(record) else { return Ok(()) };
        // The first row determines the header: the two tracers have different columns.
        if self.rows_are_first {
            self.rows_are_first = false;
            self.block.extend_from_slice(header.as_bytes());
        }
        if let Some(split) = &mut self.split {
            split.note(cpu, self.block.len());
        }
        self.block.extend_from_slice(row);
        if self.block.len() >= BLOCK { self.write_block() } else { Ok(()) }
    }

    /// Splits the block's rows into the CPUs' files, and writes the block.
    fn write_block(&mut self) -> Result<(), TraceError> {
        // Before the block is cleared, because the noted pieces are offsets in it.
        if let (Some(split), Some(header)) = (&mut self.split, self.rows.header()) {
            split.take(&self.block, header)?;
        }
        let written = self.all.write_all(&self.block);
        self.block.clear();
        written.map_err(|error| TraceError::io("write", self.directory.join("cpu.csv"), error))
    }

    /// Writes the remaining rows. Returns the number of rows, and of skipped records of another
    /// driver.
    pub fn finish(mut self) -> Result<(u64, u64), TraceError> {
        // The tracers' file has its header even without rows. Records of amd-pstate without
        // counters make no rows and determine no tracer.
        if self.rows_are_first {
            self.block.extend_from_slice(self.rows.header().unwrap_or(AMD_HEADER).as_bytes());
        }
        self.write_block()?;
        if let Some(split) = self.split {
            split.finish()?;
        }
        let path = self.directory.join("cpu.csv");
        self.replacement.finish().map_err(|error| TraceError::io("write", path, error))?;
        Ok((self.rows.rows, self.rows.of_other_driver))
    }
}

/// Size of a write to cpu.csv. It is below the second-level cache, because a block's rows are read
/// again when they are split by CPU.
const BLOCK: usize = 512 * 1024;

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

    #[test]
    fn each_cpus_file_has_its_rows_of_the_whole() {
        // More CPUs than files are kept open. One of them has more rows than all others, over
        // several blocks.
        let folder = tempfile::tempdir().unwrap();
        let mut files = CsvFiles::create(folder.path(), true).unwrap();
        for round in 0..24_000u64 {
            let cpu = if round % 2 == 0 { 3 } else { (round * 7 % 701) as u32 };
            files.add(&amd(round * 1_000_000, cpu, round as i32)).unwrap();
        }
        assert_eq!(files.finish().unwrap(), (24_000 - 701, 0));
        let all = std::fs::read_to_string(folder.path().join("cpu.csv")).unwrap();
        assert!(all.len() > 3 << 19, "{}", all.len());
        let mut wanted = std::collections::BTreeMap::<&str, String>::new();
        for row in all.lines().skip(1) {
            let rows = wanted.entry(&row["CPU_".len()..][..3]).or_insert_with(|| AMD_HEADER.to_owned());
            rows.push_str(row);
            rows.push('\n');
        }
        assert_eq!(wanted.len(), 701);
        for (cpu, rows) in wanted {
            let found = std::fs::read_to_string(folder.path().join(format!("cpu{cpu}.csv"))).unwrap();
            assert!(found == rows, "{cpu}");
        }
    }
}
