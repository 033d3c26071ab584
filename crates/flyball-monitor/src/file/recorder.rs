//! A recording that runs for days: the file being written, and next to it the files of earlier
//! days.
//!
//! The current file has the name that the user gave. When the day (UTC) ends, the date is appended
//! to its name, like logrotate's `dateext`, and a new file begins.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use flyball_files::{Opening, open_output, remove_output, rename_output};
use flyball_host::Errno;
use flyball_text::date::Utc;
use rustix::fs::{FlockOperation, flock};

use super::{FileError, Recording, Writer};
use crate::{Facts, Layout, Sample};

const DAY: u64 = 86_400_000_000_000;
/// Maximum files of one day. If the layout changes more often, a recording is of no use.
const MAX_PER_DAY: u32 = 1000;

/// Limits on the files of a recording. Without a limit, files are kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retention {
    /// Files of earlier days that were last written before this are removed.
    pub age: Option<Duration>,
    /// Maximum bytes of all files together. The oldest are removed first.
    pub bytes: Option<u64>,
}

/// Why a recording cannot begin or continue.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("cannot record to {}: {}", path.display(), described(cause))]
    Io { path: PathBuf, cause: io::Error },
    /// The file exists and is not a recording, or is damaged.
    #[error("cannot record to {}: {cause}; give another name", path.display())]
    File { path: PathBuf, cause: FileError },
    /// The file is a recording of another machine.
    #[error("{} is a recording of another machine ({name}); give another name", path.display())]
    OtherMachine { path: PathBuf, name: String },
    /// Another process is recording to this file.
    #[error("another process records to {}", .0.display())]
    Busy(PathBuf),
    /// The current file alone reaches the size limit of all files.
    #[error("{} has reached {bytes} bytes; the recording ends with its last chunk", path.display())]
    Full { path: PathBuf, bytes: u64 },
}

fn described(cause: &io::Error) -> String {
    match cause.raw_os_error().map(|_| Errno::from(cause)) {
        Some(errno) => format!("{} ({errno})", errno.describe()),
        None => cause.to_string(),
    }
}

/// Returns the files of a recording, oldest first, the current one last.
///
/// # Errors
/// The directory cannot be read.
pub fn shards(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = earlier(path)?;
    if path.exists() {
        found.push(path.to_owned());
    }
    Ok(found)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The files of earlier days, oldest first.
fn earlier(path: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder(path))? {
        let other = entry?.file_name();
        let rest = other.to_str().and_then(|other| other.strip_prefix(name)?.strip_prefix('.'));
        if let Some((date, number)) = rest.and_then(dated) {
            found.push((date, number, path.with_file_name(&other)));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, _, path)| path).collect())
}

/// Splits `2026-11-22` or `2026-11-22.2` into the date and the number.
fn dated(text: &str) -> Option<(String, u32)> {
    let (date, number) = text.split_once('.').unwrap_or((text, "1"));
    let is_date = date.len() == 10 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    is_date.then_some((date.to_owned(), number.parse().ok()?))
}

/// Writes a recording of one or more days.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    layout: Layout,
    facts: Option<Facts>,
    kept: Retention,
    writer: Option<Writer<File>>,
    /// Size of the current file before this writer, bytes.
    begun: u64,
    day: Option<u64>,
    /// True if the file is new.
    is_new: bool,
}

impl Recorder {
    /// Starts a recording, or continues one of the same machine.
    pub fn open(
        path: &Path,
        layout: &Layout,
        facts: Option<&Facts>,
        kept: Retention,
    ) -> Result<Recorder, RecordError> {
        let mut recorder = Recorder {
            path: path.to_owned(),
            layout: layout.clone(),
            facts: facts.cloned(),
            kept,
            writer: None,
            begun: 0,
            day: None,
            is_new: false,
        };
        match open_output(path, Opening::Change, 0) {
            Ok(file) => recorder.go_on(file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => recorder.begin()?,
            Err(cause) => return Err(recorder.failed(cause)),
        }
        recorder.remove_old()?;
        Ok(recorder)
    }

    fn failed(&self, cause: io::Error) -> RecordError {
        RecordError::Io { path: self.path.clone(), cause }
    }

    /// Locks the file for this process: two writers would interleave their chunks.
    fn lock(&self, file: &File) -> Result<(), RecordError> {
        flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            rustix::io::Errno::AGAIN => RecordError::Busy(self.path.clone()),
            errno => self.failed(errno.into()),
        })
    }

    /// Continues a file. Cuts off a torn chunk of an earlier process.
    fn go_on(&mut self, mut file: File) -> Result<(), RecordError> {
        self.lock(&file)?;
        let own = file.try_clone().map_err(|cause| self.failed(cause))?;
        let there = Recording::open_any(vec![own])
            .map_err(|cause| RecordError::File { path: self.path.clone(), cause })?;
        // A kernel update or another driver does not make it another machine.
        let (other, this) = (&there.layout().machine, &self.layout.machine);
        if (&other.name, &other.model_name, other.vendor) != (&this.name, &this.model_name, this.vendor) {
            return Err(RecordError::OtherMachine { path: self.path.clone(), name: other.name.clone() });
        }
        let end = there.end();
        self.day = (!there.is_empty()).then(|| there.span().1 / DAY);
        if there.is_empty() {
            // The earlier process was killed before its first chunk. The settings in the header may
            // have changed since then.
            file.set_len(0)
                .and_then(|()| file.seek(SeekFrom::Start(0)))
                .map_err(|cause| self.failed(cause))?;
            return self.head(file);
        }
        // Changed settings need a new file too: a header has the limits of all its samples.
        if *there.layout() != self.layout || there.facts(0) != self.facts.as_ref() {
            return self.next_file();
        }
        file.set_len(end)
            .and_then(|()| file.seek(SeekFrom::Start(end)))
            .map_err(|cause| self.failed(cause))?;
        self.begun = end;
        self.writer = Some(Writer::append(file, &self.layout));
        Ok(())
    }

    fn begin(&mut self) -> Result<(), RecordError> {
        let file = open_output(&self.path, Opening::New, 0o666).map_err(|cause| self.failed(cause))?;
        self.lock(&file)?;
        self.is_new = true;
        self.head(file)
    }

    /// Writes the header of an empty file.
    fn head(&mut self, file: File) -> Result<(), RecordError> {
        let writer =
            Writer::create(file, &self.layout, self.facts.as_ref()).map_err(|cause| self.failed(cause))?;
        self.writer = Some(writer);
        self.begun = 0;
        Ok(())
    }

    /// Appends the day to the current file's name, and begins the next file.
    fn next_file(&mut self) -> Result<(), RecordError> {
        self.flush()?;
        let date = Utc::from_seconds(self.day.unwrap_or_default() * 86_400).date();
        let named = |number: u32| {
            let mut name = OsString::from(&self.path);
            name.push(format!(".{date}"));
            if number > 1 {
                name.push(format!(".{number}"));
            }
            PathBuf::from(name)
        };
        // The day already has a file if the clock was set back or the machine changed.
        let free = (1..=MAX_PER_DAY).map(named).find(|path| !path.exists());
        let free = free.unwrap_or_else(|| named(MAX_PER_DAY));
        // The old file is complete. Its lock and descriptor stay with it.
        rename_output(&self.path, &free).map_err(|cause| self.failed(cause))?;
        self.begin()
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// See [`RecordError`]. The file then ends with its last whole chunk.
    pub fn add(&mut self, sample: Sample) -> Result<(), RecordError> {
        let day = sample.wall / DAY;
        if self.day.is_some_and(|old| old != day) {
            self.next_file()?;
            self.remove_old()?;
        }
        self.day = Some(day);
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let before = writer.written();
        let added = writer.add(sample);
        let written = writer.written();
        if let Err(cause) = added {
            return Err(self.torn(cause));
        }
        if written > before && self.kept.bytes.is_some() {
            self.remove_old()?;
        }
        Ok(())
    }

    /// Cuts off a chunk that was only partly written.
    fn torn(&mut self, cause: io::Error) -> RecordError {
        if let Some(writer) = self.writer.take() {
            let whole = self.begun + writer.written();
            // Ignore errors: the reader drops a torn chunk too.
            let _ = writer.into_inner().set_len(whole);
        }
        self.failed(cause)
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.flush().map_err(|cause| self.torn(cause))
    }

    /// Removes files of earlier days that are too old or exceed the size limit.
    fn remove_old(&mut self) -> Result<(), RecordError> {
        let Retention { age, bytes } = self.kept;
        if age.is_none() && bytes.is_none() {
            return Ok(());
        }
        let earlier = earlier(&self.path).map_err(|cause| self.failed(cause))?;
        let own = self.begun + self.writer.as_ref().map_or(0, Writer::written);
        // Ignore files that were removed in the meantime.
        let known = earlier.iter().filter_map(|path| Some((path, fs::metadata(path).ok()?)));
        let known: Vec<_> = known.collect();
        let mut total = own + known.iter().map(|(_, status)| status.len()).sum::<u64>();
        for (path, status) in known {
            let written = status.modified().unwrap_or_else(|_| SystemTime::now());
            let is_old = age.is_some_and(|age| written.elapsed().is_ok_and(|since| since > age));
            // Oldest first: `earlier` sorts by the dates in the names, since copying changes file
            // times.
            if is_old || bytes.is_some_and(|most| total > most) {
                remove_output(path).map_err(|cause| self.failed(cause))?;
                total -= status.len();
            }
        }
        match bytes {
            Some(bytes) if own > bytes => Err(RecordError::Full { path: self.path.clone(), bytes }),
            _ => Ok(()),
        }
    }

    /// Ends a recording before its first sample, and removes the file if it is new.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn withdraw(self) -> Result<(), RecordError> {
        if !self.is_new {
            return Ok(());
        }
        // The lock is still held, so no other recorder has started with the file.
        remove_output(&self.path).map_err(|cause| self.failed(cause))
    }

    /// Writes the pending samples. Dropping a recorder loses up to a chunk.
    pub fn finish(mut self) -> Result<(), RecordError> {
        self.flush()?;
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let mut file = writer.into_inner();
        file.flush().and_then(|()| file.sync_data()).map_err(|cause| self.failed(cause))
    }
}
