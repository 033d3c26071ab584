//! The dataset's directory: its files, their content, and how inputs are added.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use flyball_files::{Opening, Replacement, make_dirs, open_output, open_regular, remove_output};
use flyball_table::{
    Cell, Kind as Type,
    parquet::{Column, ColumnSet, Table, Words, read},
};
use flyball_text::{date::Utc, hex};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};

use crate::{
    input::Input,
    schema::{Kind, VERSION},
};

/// The file that writers lock. Query engines ignore names that begin with a dot.
const LOCK: &str = ".lock";

/// How long a writer waits for the lock.
const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum number of cells held back before they are written: a hundred megabytes in memory.
const MAX_CELLS: usize = 2 << 20;

/// An error with a dataset.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    #[error("cannot {what} {}: {}", path.display(), flyball_host::words_of(cause))]
    Io { what: &'static str, path: PathBuf, cause: io::Error },
    #[error("{} is not a dataset: it holds files and no folder 'version={VERSION}'; name a new or empty directory", .0.display())]
    Foreign(PathBuf),
    #[error("there is no dataset {}; 'flyball results add' makes it", .0.display())]
    Missing(PathBuf),
    #[error("another process has had {} locked for {} s; try again", path.display(), PATIENCE.as_secs())]
    Locked { path: PathBuf },
}

#[derive(Debug)]
pub struct Dataset {
    path: PathBuf,
    /// By kind: the inputs that are in the files read so far, with their numbers of rows.
    known: HashMap<Kind, KnownInputs>,
    waiting: Vec<Input>,
    cells: usize,
}

/// The known inputs of a kind, with their numbers of rows.
#[derive(Debug, Default)]
struct KnownInputs {
    rows: HashMap<String, usize>,
    /// Files that were read.
    files: std::collections::HashSet<PathBuf>,
}

/// The result of adding inputs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct Added {
    /// Inputs that are new.
    pub inputs: usize,
    pub rows: usize,
    /// Inputs that were in the dataset already.
    pub known: usize,
    /// Of the known ones, inputs that have no time, neither in the content nor from the user: they
    /// may be other measurements with equal results.
    pub undated: usize,
    pub files: usize,
}

/// A file that cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
pub struct SkippedFile {
    pub path: String,
    pub why: String,
}

/// Selects rows.
#[derive(Debug, Clone, Default)]
pub struct Pick {
    /// Only this host.
    pub host: Option<String>,
    /// Only from this time on, in milliseconds since 1970.
    pub since: Option<u64>,
}

/// Columns of a file, and the selected rows.
#[derive(Debug)]
pub struct Part {
    pub columns: Vec<Column>,
    pub rows: Vec<usize>,
    pub path: PathBuf,
}

impl Dataset {
    /// Opens an existing dataset.
    ///
    /// # Errors
    /// There is no dataset at `path`.
    pub fn open(path: &Path) -> Result<Dataset, DatasetError> {
        if !path.is_dir() {
            return Err(DatasetError::Missing(path.to_owned()));
        }
        let dataset = Dataset { path: path.to_owned(), known: HashMap::new(), waiting: Vec::new(), cells: 0 };
        if names(path)?.iter().any(|name| name.starts_with("version=")) {
            return Ok(dataset);
        }
        Err(DatasetError::Foreign(path.to_owned()))
    }

    /// Opens a dataset, or creates one in a directory that does not exist or is empty.
    ///
    /// # Errors
    /// The dataset cannot be created, or the directory holds something else.
    pub fn create(path: &Path) -> Result<Dataset, DatasetError> {
        make_dirs(path).map_err(failed("make", path))?;
        if names(path)?.iter().all(|name| name.starts_with('.')) {
            let inner = path.join(format!("version={VERSION}"));
            make_dirs(&inner).map_err(failed("make", &inner))?;
        }
        Dataset::open(path)
    }

    /// Queues an input; [`Dataset::flush`] writes the queue.
    pub fn add(&mut self, input: Input) -> Result<Added, DatasetError> {
        self.cells += input.rows.iter().map(Vec::len).sum::<usize>();
        self.waiting.push(input);
        if self.cells >= MAX_CELLS { self.flush() } else { Ok(Added::default()) }
    }

    /// Writes the queued inputs that are not in the dataset yet: one file per kind and month.
    ///
    /// # Errors
    /// A file operation failed. Files under their final names are complete; others are missing.
    pub fn flush(&mut self) -> Result<Added, DatasetError> {
        let mut added = Added::default();
        let waiting = std::mem::take(&mut self.waiting);
        self.cells = 0;
        if waiting.is_empty() {
            return Ok(added);
        }
        // From here on no other writer adds anything, so what is missing now is still missing when
        // this is written.
        let lock = self.lock()?;
        let mut files: BTreeMap<(Kind, String), Vec<Input>> = BTreeMap::new();
        for mut input in waiting {
            let partition = Utc::from_seconds(input.time / 1000).month();
            // An input without its own time is in the month in which it was first added.
            let searched = input.is_dated.then_some(partition.as_str());
            self.learn(input.kind, searched)?;
            let known = self.known.entry(input.kind).or_default();
            let there = known.rows.get(&input.id).copied().unwrap_or(0);
            if there >= input.rows.len() {
                added.known += 1;
                added.undated += usize::from(!input.is_dated);
                continue;
            }
            known.rows.insert(input.id.clone(), input.rows.len());
            // A comparison that was resumed has more rounds than when it was first added.
            input.rows.drain(..there);
            added.inputs += 1;
            added.rows += input.rows.len();
            files.entry((input.kind, partition)).or_default().push(input);
        }
        for ((kind, month), inputs) in files {
            self.write(kind, &month, inputs)?;
            added.files += 1;
        }
        drop(lock);
        Ok(added)
    }

    fn lock(&self) -> Result<File, DatasetError> {
        let path = self.path.join(LOCK);
        let file = open_output(&path, Opening::Append, 0o666).map_err(failed("open", &path))?;
        let end = Instant::now() + PATIENCE;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(failed("lock", &path)(errno.into())),
            }
            if Instant::now() >= end {
                return Err(DatasetError::Locked { path });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn folder(&self, kind: Kind) -> PathBuf {
        self.path.join(format!("version={VERSION}/kind={}", kind.name()))
    }

    /// Reads which inputs are in the files that were not read yet, or only in those of `month`.
    fn learn(&mut self, kind: Kind, month: Option<&str>) -> Result<(), DatasetError> {
        let folder = self.folder(kind);
        let known = self.known.entry(kind).or_default();
        let mut words = Words::default();
        let mut passed = Vec::new();
        for file in files_of(&folder, month, &mut passed)? {
            if !known.files.insert(file.clone()) {
                continue;
            }
            // Files of other programs are skipped here, and named when they are read.
            let Ok(found) = columns_of(&file, &[("id", Type::Text)], &mut words) else { continue };
            for row in 0..found.rows {
                if let Some(id) = found.columns[0].word(row) {
                    *known.rows.entry(words.text(id).to_owned()).or_insert(0) += 1;
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, kind: Kind, month: &str, inputs: Vec<Input>) -> Result<(), DatasetError> {
        let folder = self.folder(kind).join(format!("month={month}"));
        make_dirs(&folder).map_err(failed("make", &folder))?;
        remove_torn(&folder);
        let mut name = Sha256::new();
        for input in &inputs {
            name.update(&input.id);
            name.update(input.rows.len().to_le_bytes());
        }
        let first = inputs.iter().map(|input| input.time).min().unwrap_or(0);
        let path = folder.join(format!(
            "{}-{}.parquet",
            Utc::from_seconds(first / 1000).stamp(),
            hex(&name.finalize()[..8])
        ));
        let write = || -> io::Result<()> {
            let (file, replacement) = Replacement::create(&path)?;
            let synced = file.try_clone()?;
            let notes = [("flyball.results.version", VERSION.to_string())];
            let mut table = Table::new(file, &kind.columns(), &notes)?;
            for row in inputs.into_iter().flat_map(|input| input.rows) {
                table.add(row)?;
            }
            table.finish()?;
            replacement.sync(&synced)?;
            replacement.finish_new()?;
            // Sync the name too: after a power failure, the file is either complete or absent.
            File::open(&folder)?.sync_all()
        };
        write().map_err(failed("write", &path))?;
        self.known.entry(kind).or_default().files.insert(path);
        Ok(())
    }

    /// Reads columns of all files of a kind, one file after the other. Returns the files that do
    /// not belong to this dataset, which are skipped.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn read(
        &self,
        kind: Kind,
        columns: &[&str],
        pick: &Pick,
        words: &mut Words,
        each: &mut dyn FnMut(&Part, &mut Words),
    ) -> Result<Vec<SkippedFile>, DatasetError> {
        let mut passed = Vec::new();
        self.pass_other_versions(&mut passed)?;
        let all = kind.columns();
        let typed = |name: &&str| all.iter().find(|column| column.0 == *name).copied();
        let mut wanted: Vec<(&str, Type)> = columns.iter().filter_map(typed).collect();
        let shown = wanted.len();
        // Every file of a dataset has these columns; a file without them belongs to another
        // program.
        wanted.extend([("id", Type::Text), ("host", Type::Text), ("time", Type::Time)]);
        let host = pick.host.as_deref().map(|host| words.number(host));
        // Rows of a month are in its folder, or, if a run went over the end of a month, in the one
        // before.
        let first =
            pick.since.map(|since| Utc::from_seconds(since.saturating_sub(35 * 86_400_000) / 1000).month());
        for path in files_of(&self.folder(kind), None, &mut passed)? {
            let of = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
            let of = of.as_deref().and_then(|name| name.strip_prefix("month=")).unwrap_or_default();
            if first.as_deref().is_some_and(|first| of < first) {
                continue;
            }
            let found = match columns_of(&path, &wanted, words) {
                Ok(found) if found.columns[shown..].iter().all(|column| *column != Column::None) => found,
                Ok(found) if found.rows == 0 => continue,
                Ok(_) => {
                    let why = "it has no columns id, host and time: another program's".to_owned();
                    passed.push(SkippedFile { path: path.display().to_string(), why });
                    continue;
                }
                Err(why) => {
                    passed.push(SkippedFile { path: path.display().to_string(), why });
                    continue;
                }
            };
            let (hosts, times) = (&found.columns[shown + 1], &found.columns[shown + 2]);
            let is_wanted = |row: &usize| {
                host.is_none_or(|host| hosts.word(*row) == Some(host))
                    && pick.since.is_none_or(|since| {
                        times.integer(*row).is_some_and(|time| time.cast_unsigned() >= since && time >= 0)
                    })
            };
            let rows = (0..found.rows).filter(is_wanted).collect();
            let mut columns = found.columns;
            columns.truncate(shown);
            each(&Part { columns, rows, path }, words);
        }
        Ok(passed)
    }

    fn pass_other_versions(&self, passed: &mut Vec<SkippedFile>) -> Result<(), DatasetError> {
        let own = format!("version={VERSION}");
        for name in names(&self.path)? {
            let path = self.path.join(&name).display().to_string();
            if name == own || name.starts_with('.') {
                continue;
            }
            let why = match name.strip_prefix("version=").and_then(|number| number.parse::<u32>().ok()) {
                Some(number) if number > VERSION => {
                    format!("written by a newer flyball; this one reads version {VERSION}")
                }
                _ => "not a part of the dataset".to_owned(),
            };
            passed.push(SkippedFile { path, why });
        }
        Ok(())
    }
}

/// The Parquet files of a kind, in the order of time.
fn files_of(
    folder: &Path,
    month: Option<&str>,
    passed: &mut Vec<SkippedFile>,
) -> Result<Vec<PathBuf>, DatasetError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for partition in names(folder)? {
        let inner = folder.join(&partition);
        let Some(of) = partition.strip_prefix("month=").filter(|_| inner.is_dir()) else {
            if !partition.starts_with('.') {
                let why = "not a part of the dataset".to_owned();
                passed.push(SkippedFile { path: inner.display().to_string(), why });
            }
            continue;
        };
        if month.is_some_and(|month| month != of) {
            continue;
        }
        for name in names(&inner)? {
            // Unfinished files begin with a dot.
            if name.ends_with(".parquet") && !name.starts_with('.') {
                files.push(inner.join(name));
            }
        }
    }
    Ok(files)
}

/// Removes files that killed writers have left behind. The lock is held, so no current writer has
/// such files.
fn remove_torn(folder: &Path) {
    for name in names(folder).unwrap_or_default() {
        if name.starts_with(".flyball-") {
            let _ = remove_output(&folder.join(name));
        }
    }
}

fn columns_of(path: &Path, columns: &[(&str, Type)], words: &mut Words) -> Result<ColumnSet, String> {
    let file =
        open_regular(File::options().read(true), path).map_err(|error| flyball_host::words_of(&error))?;
    read(file, columns, words)
}

/// The names in a directory, sorted.
fn names(path: &Path) -> Result<Vec<String>, DatasetError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(failed("read", path))? {
        let entry = entry.map_err(failed("read", path))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> DatasetError {
    let path = path.to_owned();
    move |cause| DatasetError::Io { what, path: path.clone(), cause }
}

/// Returns the cell of a column that was read, for printing.
impl Part {
    pub fn cell(&self, column: usize, row: usize, words: &Words) -> Cell {
        match self.columns.get(column) {
            Some(found @ Column::Integers(_)) => found.integer(row).map(i64::cast_unsigned).into(),
            Some(found @ Column::Numbers(_)) => found.number(row).into(),
            Some(found @ Column::Truths(_)) => found.truth(row).into(),
            Some(found @ Column::Texts(_)) => found.word(row).map(|number| words.text(number)).into(),
            _ => Cell::Absent,
        }
    }
}
