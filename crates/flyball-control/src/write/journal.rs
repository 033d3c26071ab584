//! The journal: what the machine's settings were before flyball touched them.
//!
//! One append-only file. Each line is the CRC-32 of what follows, a blank, and one JSON record:
//!
//! ```text
//! 5f0c2d11 {"header":{"format":1,"boot":"6f1c...","machine":"live"}}
//! 09ab61f4 {"begin":{"id":1,"pid":4211,"command":"flyball set governor=performance","at":1770000000}}
//! 1c9a0d73 {"was":{"spot":"/sys/devices/.../scaling_governor","content":{"text":"powersave\n"}}}
//! 77e0b1c5 {"write":{"spot":"/sys/devices/.../scaling_governor","old":{"text":"powersave\n"},"new":{"text":"performance"}}}
//! e2c41a90 {"commit":{"id":1}}
//! ```
//!
//! A transaction begins, says what *was* at every location that its writes can disturb, says each write before making it,
//! and is committed, or put back. Every group of lines is flushed to the file system before the writes that it
//! speaks of. A process that dies leaves a transaction open, perhaps with a torn last line: that line's write was never
//! made, so leaving it out is right. Sysfs forgets at boot, so a journal of another boot is set aside, never replayed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::File,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::state::{StateDir, now};
use crate::{Content, Location};

/// The format that this flyball writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// A journal larger than this is rewritten without what restoring does not need.
const COMPACT_ABOVE: u64 = 8 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Record {
    Header {
        format: u32,
        boot: Option<String>,
        machine: String,
    },
    Begin {
        id: u32,
        pid: u32,
        command: String,
        at: u64,
    },
    Was {
        #[serde(rename = "spot")]
        location: Location,
        content: Content,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        late: bool,
    },
    Write {
        #[serde(rename = "spot")]
        location: Location,
        old: Content,
        new: Content,
    },
    Commit {
        id: u32,
    },
    Restored {
        id: u32,
    },
}

/// How a transaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Neither committed nor put back: its flyball is at work, or has died.
    Open,
    /// Its settings were meant to stay.
    Committed,
    /// What it changed has been put back.
    Restored,
}

/// One transaction, as the journal tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its number in this journal, from 1.
    pub id: u32,
    /// The process that made it.
    pub pid: u32,
    /// What that process was started as.
    pub command: String,
    /// When, in seconds since 1970.
    pub at: u64,
    /// How it stands.
    pub standing: Standing,
    /// What was at each location before.
    #[serde(skip)]
    pub was: BTreeMap<Location, Content>,
    /// Locations that were looked at only after the first write: some of them that write may have brought into being.
    #[serde(skip)]
    pub late: BTreeSet<Location>,
    /// What the first write to each location found there.
    #[serde(skip)]
    pub first_old: BTreeMap<Location, Content>,
    /// How many writes it announced.
    pub writes: usize,
}

/// What a journal holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// The boot that it belongs to, where the machine told.
    pub boot: Option<String>,
    /// The machine that it belongs to.
    pub machine: String,
    /// The transactions, oldest first.
    pub entries: Vec<Entry>,
    /// Lines in the middle that cannot be read, by number from 1. A torn last line is not among them.
    pub damaged: Vec<usize>,
    /// The length of the file up to the end of its last whole line.
    whole: u64,
}

/// Why a journal cannot be used.
#[derive(Debug)]
pub enum JournalError {
    /// The file system refused.
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is of a later flyball.
    Newer {
        /// The file.
        path: PathBuf,
        /// The format that it says it has.
        format: u32,
    },
    /// It does not begin with a header.
    NoHeader {
        /// The file.
        path: PathBuf,
    },
    /// It belongs to another machine (a state directory given by hand).
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// The machine that it belongs to.
        machine: String,
    },
    /// An earlier flyball died in the middle; what it changed must be put back first.
    Interrupted {
        /// The transaction.
        entry: Box<Entry>,
    },
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::Io { path, error } => {
                write!(f, "cannot use the journal {}: {error}", path.display())
            }
            JournalError::Newer { path, format } => write!(
                f,
                "the journal {} has format {format}, this flyball knows up to {FORMAT}: restore with the flyball \
                 that wrote it",
                path.display()
            ),
            JournalError::NoHeader { path } => write!(
                f,
                "{} is no journal of flyball (it has no header); move it away if it is not needed",
                path.display()
            ),
            JournalError::OtherMachine { path, machine } => {
                write!(f, "the journal {} belongs to the machine '{machine}'", path.display())
            }
            JournalError::Interrupted { entry } => write!(
                f,
                "'{}' (pid {}) ended in the middle of its changes; 'flyball restore --last' puts back what it \
                 changed, 'flyball restore' everything since the first change",
                entry.command, entry.pid
            ),
        }
    }
}

impl std::error::Error for JournalError {}

/// Reads a journal's bytes. Never panics, whatever they are.
fn parse(bytes: &[u8]) -> (Option<Record>, Contents) {
    let mut header = None;
    let mut contents = Contents::default();
    let mut at = 0;
    let mut number = 0;
    let mut bad: Vec<usize> = Vec::new();
    while let Some(length) = bytes[at..].iter().position(|&byte| byte == b'\n') {
        number += 1;
        let line = &bytes[at..at + length];
        at += length + 1;
        let Some(record) = parse_line(line) else {
            bad.push(number);
            continue;
        };
        // What precedes a good line is no torn end.
        contents.damaged.append(&mut bad);
        contents.whole = at as u64;
        if number == 1 {
            if let Record::Header { boot, machine, .. } = &record {
                contents.boot.clone_from(boot);
                contents.machine.clone_from(machine);
            }
            header = Some(record);
            continue;
        }
        contents.take(record);
    }
    (header, contents)
}

fn parse_line(line: &[u8]) -> Option<Record> {
    let (sum, json) = line.split_at_checked(9)?;
    let sum = std::str::from_utf8(sum).ok()?.strip_suffix(' ')?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    (crc32fast::hash(json) == sum).then(|| serde_json::from_slice(json).ok())?
}

fn line(record: &Record) -> Vec<u8> {
    let json = serde_json::to_string(record).unwrap_or_default();
    format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())).into_bytes()
}

impl Contents {
    fn take(&mut self, record: Record) {
        match record {
            Record::Header { .. } => {}
            Record::Begin { id, pid, command, at } => self.entries.push(Entry {
                id,
                pid,
                command,
                at,
                standing: Standing::Open,
                was: BTreeMap::new(),
                late: BTreeSet::new(),
                first_old: BTreeMap::new(),
                writes: 0,
            }),
            Record::Was { location, content, late } => {
                if let Some(entry) = self.entries.last_mut() {
                    if entry.was.get(&location).is_none_or(Content::is_out_of_reach) {
                        if late {
                            entry.late.insert(location.clone());
                        }
                        entry.was.insert(location, content);
                    }
                }
            }
            Record::Write { location, old, .. } => {
                if let Some(entry) = self.entries.last_mut() {
                    entry.writes += 1;
                    entry.first_old.entry(location).or_insert(old);
                }
            }
            Record::Commit { id } => self.stand(id, Standing::Committed),
            Record::Restored { id } => self.stand(id, Standing::Restored),
        }
    }

    fn stand(&mut self, id: u32, standing: Standing) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == id) {
            entry.standing = standing;
        }
    }

    /// The transactions that have not been put back, oldest first.
    pub fn pending(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.standing != Standing::Restored)
    }

    /// The transaction that was left open, if one was.
    pub fn interrupted(&self) -> Option<&Entry> {
        self.entries.iter().rfind(|entry| entry.standing == Standing::Open)
    }

    /// What to put back to undo these transactions together: for each location what the oldest of them found, and what a
    /// governor that they left had as its preference (see `restore`).
    pub fn goals<'e>(entries: impl DoubleEndedIterator<Item = &'e Entry>) -> Goals {
        let mut goals = Goals::default();
        let entries: Vec<&Entry> = entries.collect();
        for (age, entry) in entries.iter().enumerate().rev() {
            for (location, content) in &entry.was {
                // An older look that could not reach the location says nothing against a newer one that could.
                if content.is_out_of_reach() && goals.content.contains_key(location) {
                    continue;
                }
                goals.content.insert(location.clone(), content.clone());
                if age > 0 || entry.late.contains(location) {
                    goals.late.insert(location.clone());
                } else {
                    goals.late.remove(location);
                }
            }
            for (location, old) in &entry.first_old {
                goals.first_old.insert(location.clone(), old.clone());
            }
        }
        goals
    }
}

/// What is to be put back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Goals {
    /// What each location held.
    pub content: BTreeMap<Location, Content>,
    /// Locations that need not have been there at the very beginning: a governor's tunables that came with a change of
    /// driver mode, the policy of a CPU that was brought online. They may be gone when all is as it was.
    pub late: BTreeSet<Location>,
    /// What the first write to a location found there: differs from what it held when something else of the same
    /// transaction had disturbed it first.
    pub first_old: BTreeMap<Location, Content>,
}

/// A journal that is open for appending. Whoever has one holds the lock.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    contents: Contents,
    size: u64,
}

impl Journal {
    /// Reads the journal without changing it: `None` where there is none.
    ///
    /// # Errors
    /// It cannot be read, has no header, or has a later format.
    pub fn load(state: &StateDir) -> Result<Option<Contents>, JournalError> {
        let path = state.journal();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(JournalError::Io { path, error }),
        };
        let (header, contents) = parse(&bytes);
        match header {
            Some(Record::Header { format, .. }) if format > FORMAT => {
                Err(JournalError::Newer { path, format })
            }
            Some(Record::Header { .. }) => Ok(Some(contents)),
            // Torn while the header was written: nothing had been changed yet.
            None if contents.entries.is_empty() && !bytes.contains(&b'\n') => Ok(None),
            _ => Err(JournalError::NoHeader { path }),
        }
    }

    /// Opens the journal for a machine in its present boot, making it where there is none. One of an earlier boot is
    /// set aside as `journal.earlier-boot`; then the second value says so.
    ///
    /// # Errors
    /// As [`Journal::load`]; also where it belongs to another machine.
    pub fn open(
        state: &StateDir,
        machine: &str,
        boot: Option<&str>,
    ) -> Result<(Journal, Option<String>), JournalError> {
        let path = state.journal();
        let fail = |error: io::Error| JournalError::Io { path: path.clone(), error };
        let mut aside = None;
        let mut contents = Journal::load(state)?;
        if let Some(found) = &contents {
            if found.boot.as_deref() != boot {
                let earlier = path.with_extension("earlier-boot");
                std::fs::rename(&path, &earlier).map_err(fail)?;
                if found.pending().next().is_some() {
                    aside = Some(format!(
                        "the journal of an earlier boot is not replayed (the kernel forgot those settings); it is kept \
                         as {}",
                        earlier.display()
                    ));
                }
                contents = None;
            } else if found.machine != machine {
                return Err(JournalError::OtherMachine { path, machine: found.machine.clone() });
            }
        }
        let fresh = contents.is_none();
        let file = File::options().append(true).create(true).mode(0o600).open(&path).map_err(fail)?;
        let mut journal = Journal { path, file, contents: contents.unwrap_or_default(), size: 0 };
        if fresh {
            journal.cut(0)?;
            journal.contents.boot = boot.map(str::to_owned);
            machine.clone_into(&mut journal.contents.machine);
            journal.append(&[journal.header()])?;
        } else {
            // A torn end would swallow the next line.
            journal.cut(journal.contents.whole)?;
        }
        Ok((journal, aside))
    }

    fn header(&self) -> Record {
        Record::Header {
            format: FORMAT,
            boot: self.contents.boot.clone(),
            machine: self.contents.machine.clone(),
        }
    }

    fn cut(&mut self, length: u64) -> Result<(), JournalError> {
        self.file.set_len(length).map_err(|error| JournalError::Io { path: self.path.clone(), error })?;
        self.size = length;
        Ok(())
    }

    /// Appends records in one write and flushes them. Where that fails (a full file system), nothing of them stays: half
    /// a line would swallow the next one.
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let bytes: Vec<u8> = records.iter().flat_map(line).collect();
        if let Err(error) = self.file.write_all(&bytes).and_then(|()| self.file.sync_data()) {
            let _ = self.file.set_len(self.size);
            return Err(JournalError::Io { path: self.path.clone(), error });
        }
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// What it holds.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The journal's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn record(&mut self, records: Vec<Record>) -> Result<(), JournalError> {
        self.append(&records)?;
        for record in records {
            self.contents.take(record);
        }
        Ok(())
    }

    /// Begins a transaction and gives its number. An earlier one that was killed before it announced its first write
    /// has changed nothing, and is closed.
    ///
    /// # Errors
    /// [`JournalError::Interrupted`] while an earlier one is open; or the file system refused.
    pub fn begin(&mut self, command: &str) -> Result<u32, JournalError> {
        while let Some(entry) = self.contents.interrupted() {
            if entry.writes > 0 {
                return Err(JournalError::Interrupted { entry: Box::new(entry.clone()) });
            }
            let id = entry.id;
            self.record(vec![Record::Restored { id }])?;
        }
        let id = self.contents.entries.iter().map(|entry| entry.id).max().unwrap_or(0) + 1;
        self.record(vec![Record::Begin {
            id,
            pid: std::process::id(),
            command: command.to_owned(),
            at: now(),
        }])?;
        Ok(id)
    }

    /// Which of these locations the open transaction has no memory of yet; those that were out of reach count.
    pub fn unknown(&self, locations: &BTreeSet<Location>) -> Vec<Location> {
        let entry = self.contents.interrupted();
        locations
            .iter()
            .filter(|location| {
                entry.is_none_or(|entry| entry.was.get(*location).is_none_or(Content::is_out_of_reach))
            })
            .cloned()
            .collect()
    }

    /// Says what was, and what will be written: all of it flushed when this returns.
    ///
    /// # Errors
    /// The file system refused; then nothing may be written.
    pub fn announce(
        &mut self,
        was: Vec<(Location, Content)>,
        writes: Vec<(Location, Content, Content)>,
    ) -> Result<(), JournalError> {
        let late = self.contents.interrupted().is_some_and(|entry| entry.writes > 0);
        let was = was.into_iter().map(|(location, content)| Record::Was { location, content, late });
        let writes = writes.into_iter().map(|(location, old, new)| Record::Write { location, old, new });
        self.record(was.chain(writes).collect())?;
        if self.size > COMPACT_ABOVE { self.compact() } else { Ok(()) }
    }

    /// The transaction's settings are to stay.
    ///
    /// # Errors
    /// The file system refused.
    pub fn commit(&mut self, id: u32) -> Result<(), JournalError> {
        // One that wrote nothing leaves nothing to remember.
        let wrote = self.contents.entries.iter().any(|entry| entry.id == id && entry.writes > 0);
        if wrote { self.record(vec![Record::Commit { id }]) } else { self.restored(&[id]) }
    }

    /// What these transactions changed has been put back. When nothing is left to put back, the file goes away.
    ///
    /// # Errors
    /// The file system refused.
    pub fn restored(&mut self, ids: &[u32]) -> Result<(), JournalError> {
        if self.contents.pending().any(|entry| !ids.contains(&entry.id)) {
            return self.record(ids.iter().map(|&id| Record::Restored { id }).collect());
        }
        // Nothing is written for that: it works on a full file system, too.
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(JournalError::Io { path: self.path.clone(), error });
            }
            _ => {}
        }
        for &id in ids {
            self.contents.stand(id, Standing::Restored);
        }
        Ok(())
    }

    /// Rewrites the file without what restoring does not need: transactions that were put back, and all but the first
    /// write to each location. A comparison of many arms writes the same locations over and over.
    fn compact(&mut self) -> Result<(), JournalError> {
        let fail = |error: io::Error| JournalError::Io { path: self.path.clone(), error };
        let mut records = vec![self.header()];
        for entry in self.contents.pending() {
            let Entry { id, pid, command, at, .. } = entry.clone();
            records.push(Record::Begin { id, pid, command, at });
            records.extend(entry.was.iter().map(|(location, content)| Record::Was {
                location: location.clone(),
                content: content.clone(),
                late: entry.late.contains(location),
            }));
            records.extend(entry.first_old.iter().map(|(location, old)| Record::Write {
                location: location.clone(),
                old: old.clone(),
                new: Content::Text(String::new()),
            }));
            if entry.standing == Standing::Committed {
                records.push(Record::Commit { id });
            }
        }
        let bytes: Vec<u8> = records.iter().flat_map(line).collect();
        let beside = self.path.with_extension("new");
        let mut file = File::options()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)
            .map_err(fail)?;
        file.write_all(&bytes).and_then(|()| file.sync_data()).map_err(fail)?;
        std::fs::rename(&beside, &self.path).map_err(fail)?;
        self.file = File::options().append(true).open(&self.path).map_err(fail)?;
        self.size = bytes.len() as u64;
        self.contents.entries.retain(|entry| entry.standing != Standing::Restored);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn location(number: u32) -> Location {
        Location::file(format!("/sys/devices/system/cpu/cpufreq/policy{number}/scaling_governor"))
    }

    fn text(text: &str) -> Content {
        Content::Text(text.to_owned())
    }

    fn state() -> (tempfile::TempDir, StateDir) {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(folder.path());
        (folder, state)
    }

    /// A journal with one committed and one open transaction.
    fn written(state: &StateDir) -> Vec<u8> {
        let (mut journal, aside) = Journal::open(state, "live", Some("boot-1")).unwrap();
        assert_eq!(aside, None);
        let first = journal.begin("flyball set governor=performance").unwrap();
        journal
            .announce(
                vec![(location(0), text("powersave\n"))],
                vec![(location(0), text("powersave\n"), text("performance"))],
            )
            .unwrap();
        journal.commit(first).unwrap();
        journal.begin("flyball apply quiet.toml").unwrap();
        journal
            .announce(
                vec![(location(0), text("performance\n")), (location(1), text("powersave\n"))],
                vec![(location(0), text("performance\n"), text("powersave"))],
            )
            .unwrap();
        std::fs::read(state.journal()).unwrap()
    }

    #[test]
    fn what_was_written_is_read_back() {
        let (_folder, state) = state();
        written(&state);
        let contents = Journal::load(&state).unwrap().unwrap();
        assert_eq!(contents.entries.len(), 2);
        assert_eq!(contents.entries[0].standing, Standing::Committed);
        assert_eq!(contents.interrupted().unwrap().id, 2);
        let goals = Contents::goals(contents.pending());
        assert_eq!(goals.content[&location(0)], text("powersave\n"), "the oldest memory counts");
        assert_eq!(goals.content[&location(1)], text("powersave\n"));
    }

    #[test]
    fn every_torn_end_is_tolerated_and_cut() {
        let (_folder, state) = state();
        let bytes = written(&state);
        let whole = Journal::load(&state).unwrap().unwrap();
        let header = bytes.iter().position(|&byte| byte == b'\n').unwrap();
        for length in 0..bytes.len() {
            std::fs::write(state.journal(), &bytes[..length]).unwrap();
            let loaded = Journal::load(&state).unwrap();
            if length <= header {
                assert!(loaded.is_none(), "{length}");
                continue;
            }
            let loaded = loaded.unwrap();
            assert!(loaded.damaged.is_empty());
            assert!(loaded.entries.len() <= whole.entries.len());
            // What is appended after a torn end can be read.
            let (mut journal, _) = Journal::open(&state, "live", Some("boot-1")).unwrap();
            if let Some(open) = journal.contents().interrupted().map(|entry| entry.id) {
                journal.restored(&[open]).unwrap();
            }
            if journal.contents().pending().next().is_some() {
                let id = journal.begin("after").unwrap();
                assert!(Journal::load(&state).unwrap().unwrap().entries.iter().any(|entry| entry.id == id));
            }
        }
    }

    #[test]
    fn damage_in_the_middle_is_told_and_the_rest_is_used() {
        let (_folder, state) = state();
        let mut bytes = written(&state);
        let third = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).unwrap().0 + 20;
        bytes[third] ^= 1;
        std::fs::write(state.journal(), &bytes).unwrap();
        let contents = Journal::load(&state).unwrap().unwrap();
        assert_eq!(contents.damaged, [3]);
        assert_eq!(contents.entries.len(), 2);
    }

    #[test]
    fn an_earlier_boot_is_set_aside_and_another_machine_is_refused() {
        let (_folder, state) = state();
        written(&state);
        let other = Journal::open(&state, "sim:rome", Some("boot-1")).unwrap_err();
        assert!(matches!(other, JournalError::OtherMachine { .. }), "{other}");
        let (journal, aside) = Journal::open(&state, "live", Some("boot-2")).unwrap();
        assert!(aside.unwrap().contains("earlier boot"));
        assert!(journal.contents().entries.is_empty());
        assert!(state.journal().with_extension("earlier-boot").exists());
    }

    #[test]
    fn nothing_begins_while_a_transaction_is_open() {
        let (_folder, state) = state();
        written(&state);
        let (mut journal, _) = Journal::open(&state, "live", Some("boot-1")).unwrap();
        let error = journal.begin("flyball set x=y").unwrap_err();
        assert!(error.to_string().contains("restore --last"), "{error}");
    }

    #[test]
    fn a_journal_with_nothing_pending_goes_away() {
        let (_folder, state) = state();
        written(&state);
        let (mut journal, _) = Journal::open(&state, "live", Some("boot-1")).unwrap();
        journal.restored(&[2]).unwrap();
        assert!(state.journal().exists());
        journal.restored(&[1]).unwrap();
        assert!(!state.journal().exists());
    }

    #[test]
    fn later_formats_and_foreign_files_are_refused() {
        let (_folder, state) = state();
        let later = line(&Record::Header { format: FORMAT + 1, boot: None, machine: "live".to_owned() });
        std::fs::write(state.journal(), later).unwrap();
        assert!(matches!(Journal::load(&state), Err(JournalError::Newer { .. })));
        std::fs::write(state.journal(), "something else\n").unwrap();
        assert!(matches!(Journal::load(&state), Err(JournalError::NoHeader { .. })));
    }

    #[test]
    fn compacting_keeps_what_restoring_needs() {
        let (_folder, state) = state();
        written(&state);
        let (mut journal, _) = Journal::open(&state, "live", Some("boot-1")).unwrap();
        for round in 0..50 {
            let new = if round % 2 == 0 { "performance" } else { "powersave" };
            journal.announce(vec![], vec![(location(0), text("x"), text(new))]).unwrap();
        }
        let before = std::fs::metadata(state.journal()).unwrap().len();
        let goals = Contents::goals(journal.contents().pending());
        journal.compact().unwrap();
        journal.announce(vec![], vec![(location(1), text("x"), text("y"))]).unwrap();
        let after = Journal::load(&state).unwrap().unwrap();
        assert!(std::fs::metadata(state.journal()).unwrap().len() < before / 3);
        assert_eq!(Contents::goals(after.pending()).content, goals.content);
        assert_eq!(after.interrupted().unwrap().id, 2);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn flipping_any_bit_never_invents_a_record(at in 0usize..2000, bit in 0u8..8) {
            let (_folder, state) = state();
            let mut bytes = written(&state);
            let before = Journal::load(&state).unwrap().unwrap();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let (_, after) = parse(&bytes);
            for entry in &after.entries {
                for (location, content) in &entry.was {
                    prop_assert!(before.entries.iter().any(|known| known.was.get(location) == Some(content)));
                }
            }
        }
    }
}
