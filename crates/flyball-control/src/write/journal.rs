//! The journal: the machine's settings from before flyball touched them.
//!
//! It is one append-only file. Each line is the CRC-32 of what follows, a blank, and one JSON
//! record:
//!
//! ```text
//! 5f0c2d11 {"header":{"format":4,"boot":"6f1c...","machine":"live"}}
//! 09ab61f4 {"begin":{"id":1,"pid":4211,"command":"flyball set governor=performance",...}}
//! 1c9a0d73 {"was":{"location":"/sys/.../scaling_governor","content":{"text":"powersave\n"},...}}
//! 77e0b1c5 {"write":{"location":"/sys/.../scaling_governor",...,"new":{"text":"performance"},...}}
//! e2c41a90 {"commit":{"id":1}}
//! ```
//!
//! A transaction begins, records what *was* at every location that its writes can disturb, records
//! each write, with its old and new content, before it is made, and is committed or restored. Every
//! group of lines is flushed to the file system before the writes that it announces. A process that
//! dies leaves a transaction open, perhaps with a torn last line. That line's write was never made,
//! so the line can be ignored. Sysfs forgets at boot, so a journal of another boot is set aside,
//! never replayed.
//!
//! `journal.length` holds the length of the journal when the last group of lines was flushed. A
//! shorter journal has lost lines whose writes were made. That is damage, even if the cut left only
//! whole lines.
//!
//! Transactions of holds stay until the last hold is released, because they store the state before
//! the first hold. When no hold sets a location any more, that location alone is marked `released`.
//!
//! Each entry carries its step and its spelling (`"step":"governor","spelling":"any-case"`), so
//! that a flyball with another knob table can restore it too. A journal lives for one boot, so
//! flyball reads only the format that it writes.

mod contents;
mod reading;
mod record;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

pub use self::{
    contents::{Contents, Entry, Goal, Goals, Memory, TransactionState, Uncertainty},
    record::{Purpose, Record},
};
use self::{
    reading::parse,
    record::{Environment, line},
};
use super::{
    footprint::Footprint,
    state::{StateDir, now, regular},
};
use crate::{
    Content, Location,
    knob::{spelling::Handling, subject::Subject},
};

/// The format that this flyball writes and reads, as a literal for the schema's name.
#[macro_export]
macro_rules! journal_format {
    () => {
        4
    };
}

/// The format that this flyball writes and reads.
pub const FORMAT: u32 = journal_format!();

/// Size above which a journal is rewritten without the records that restoring does not need.
const COMPACT_ABOVE: u64 = 8 << 20;

/// The reason why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system refused.
    #[error("cannot use the journal {}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    /// Another version of flyball wrote it.
    #[error("the journal {} has format {format}, this flyball reads {FORMAT}: restore with the flyball that wrote it", path.display())]
    OtherFormat {
        path: PathBuf,
        /// The format in its header.
        format: u32,
    },
    /// It does not begin with a header.
    #[error("{} is not a journal of flyball (it has no header); move it away if it is not needed", path.display())]
    NoHeader { path: PathBuf },
    /// It belongs to another machine (a state directory given by hand).
    #[error("the journal {} belongs to the machine '{machine}'", path.display())]
    OtherMachine {
        path: PathBuf,
        /// The machine that it belongs to.
        machine: String,
    },
    /// The machine's present boot cannot be read, so it is unknown whether the journal belongs to
    /// it.
    #[error("cannot determine whether the journal {} is from this boot: /proc/sys/kernel/random/boot_id cannot be read", path.display())]
    BootUnknown { path: PathBuf },
    /// An earlier flyball died during its changes, which must be restored first.
    #[error("'{}' (pid {}) ended in the middle of its changes; 'flyball restore --last' restores what it changed, 'flyball restore' everything since the first change", entry.command, entry.pid)]
    Interrupted { entry: Box<Entry> },
    /// Undo would ignore the record of this location as another program's.
    #[error("cannot write {location}: its original value could not be restored")]
    ForeignLocation { location: Box<Location> },
}

/// A journal of an earlier boot that was set aside.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, derive_more::Display)]
#[schemars(with = "String")]
#[display(
    "the journal of an earlier boot is not replayed (the kernel forgot those settings); it is kept as {}",
    kept.display()
)]
pub struct EarlierBoot {
    /// The path to which it was moved.
    pub kept: PathBuf,
}

impl serde::Serialize for EarlierBoot {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A write that is about to be made.
#[derive(Debug, Clone)]
pub struct Announced {
    pub location: Location,
    /// Present content.
    pub old: Content,
    /// Content to write.
    pub new: String,
    /// How the old content is written back.
    pub handling: Handling,
    /// True if the location is left as it is, because a hold wants its present content.
    pub kept: bool,
}

/// Size above which a journal was not written by flyball, which rewrites its journals far below it.
const MAX: u64 = 256 << 20;

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if regular(File::options().read(true), path)?.take(MAX + 1).read_to_end(&mut bytes)? as u64 > MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is larger than any journal"));
    }
    Ok(bytes)
}

/// Returns the path of the file that stores the journal's length.
fn length_path(journal: &Path) -> PathBuf {
    journal.with_extension("length")
}

/// Reads the minimum length of the journal. Returns 0 if it is unknown: an earlier flyball kept no
/// count, and a process may be killed between creating the file and writing to it.
fn min_length(journal: &Path) -> io::Result<u64> {
    let bytes = match read(&length_path(journal)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        read => read?,
    };
    let number = std::str::from_utf8(&bytes).ok().and_then(|text| text.trim_end().parse().ok());
    Ok(if bytes.is_empty() { 0 } else { number.unwrap_or(u64::MAX) })
}

/// Writes twenty digits in place, so that the number is complete at any moment and needs no
/// additional space.
fn write_length(file: &File, length: u64) -> io::Result<()> {
    file.write_all_at(format!("{length:020}\n").as_bytes(), 0)
}

/// Removes a file if it exists.
fn remove(path: &Path) -> io::Result<()> {
    std::fs::remove_file(path)
        .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// The line appended to a journal that was cut. It is not a record, so the journal counts as
/// damaged from then on.
const CUT: &[u8] = b"lines are missing here\n";

/// A journal that is open for appending. Its owner holds the lock.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    length: File,
    contents: Contents,
    size: u64,
}

impl Journal {
    /// Reads the journal without changing it; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, has no header, or has a later format.
    pub fn load(state: &StateDir) -> Result<Option<Contents>, JournalError> {
        let path = state.journal();
        // The length first: another flyball may be appending, and the journal only grows.
        let (least, bytes) = match min_length(&path).and_then(|least| Ok((least, read(&path)?))) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(JournalError::Io { path, error }),
        };
        let (header, mut contents) = parse(&bytes);
        contents.is_cut = (bytes.len() as u64) < least;
        if contents.is_cut {
            contents.damaged.push(1 + bytes.iter().filter(|&&byte| byte == b'\n').count());
        }
        match header {
            Some(Record::Header { format, .. }) if format != FORMAT => {
                Err(JournalError::OtherFormat { path, format })
            }
            Some(Record::Header { .. }) => Ok(Some(contents)),
            // Torn while the header was written: nothing had been changed yet.
            None if contents.entries.is_empty() && !bytes.contains(&b'\n') && !contents.is_cut => Ok(None),
            _ => Err(JournalError::NoHeader { path }),
        }
    }

    /// Opens the journal for a machine in its present boot, creating it if there is none. A journal
    /// of an earlier boot is set aside as `journal.earlier-boot` and returned as the second value.
    ///
    /// # Errors
    /// Same as [`Journal::load`]; also if it belongs to another machine.
    pub fn open(
        state: &StateDir,
        machine: &str,
        boot: Option<&str>,
    ) -> Result<(Journal, Option<EarlierBoot>), JournalError> {
        let path = state.journal();
        let fail = |error: io::Error| JournalError::Io { path: path.clone(), error };
        let mut aside = None;
        let mut contents = Journal::load(state)?;
        if let Some(found) = &contents {
            // Check this before the boot: another machine's journal is neither replayed nor set
            // aside.
            if found.machine != machine {
                return Err(JournalError::OtherMachine { path, machine: found.machine.clone() });
            }
            if found.boot.is_some() != boot.is_some() {
                return Err(JournalError::BootUnknown { path });
            }
            if found.boot.as_deref() != boot {
                let earlier = path.with_extension("earlier-boot");
                remove(&length_path(&path)).map_err(fail)?;
                std::fs::rename(&path, &earlier).map_err(fail)?;
                if found.pending().next().is_some() {
                    aside = Some(EarlierBoot { kept: earlier });
                }
                contents = None;
            }
        }
        let fresh = contents.is_none();
        let open = |options: &mut std::fs::OpenOptions, path: &Path| regular(options, path).map_err(fail);
        let file = open(File::options().append(true).create(true), &path)?;
        let length = open(File::options().write(true).create(true).truncate(fresh), &length_path(&path))?;
        let mut journal = Journal { path, file, length, contents: contents.unwrap_or_default(), size: 0 };
        if fresh {
            // A file without a whole header may have half a line in it.
            journal.truncate(0)?;
            journal.contents.boot = boot.map(str::to_owned);
            machine.clone_into(&mut journal.contents.machine);
            journal.append(&[journal.header()])?;
        } else {
            // A torn end would swallow the next line.
            journal.truncate(journal.contents.whole)?;
            // Keep the sign of damage: a damaged journal is not restored as a whole.
            let end: &[u8] = if std::mem::take(&mut journal.contents.open_end) { b"\n" } else { b"" };
            let cut: &[u8] = if journal.contents.is_cut { CUT } else { b"" };
            journal.append_bytes(&[end, cut].concat())?;
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

    fn truncate(&mut self, length: u64) -> Result<(), JournalError> {
        self.file.set_len(length).map_err(|error| JournalError::Io { path: self.path.clone(), error })?;
        self.size = length;
        Ok(())
    }

    /// Appends records in one write and flushes them. If that fails (a full file system), it
    /// removes all of them again: half a line would swallow the next one.
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        self.append_bytes(&records.iter().flat_map(line).collect::<Vec<u8>>())
    }

    fn append_bytes(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        let length = self.size + bytes.len() as u64;
        // Write the length last. A process that is killed in between leaves a longer journal, which
        // is not damage, because none of the announced writes were made.
        let appended = self.file.write_all(bytes).and_then(|()| self.file.sync_data());
        if let Err(error) = appended.and_then(|()| write_length(&self.length, length)) {
            // If even that fails, the next open cuts the torn end.
            let _ = self.file.set_len(self.size);
            return Err(JournalError::Io { path: self.path.clone(), error });
        }
        self.size = length;
        Ok(())
    }

    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Returns the path of the journal's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn record(&mut self, records: Vec<Record>) -> Result<(), JournalError> {
        self.append(&records)?;
        for record in records {
            self.contents.take(0, record);
        }
        Ok(())
    }

    /// Begins a transaction and returns its number. Closes an earlier one that was killed before it
    /// announced its first write, since that changed nothing.
    ///
    /// # Errors
    /// [`JournalError::Interrupted`] while an earlier one is open; or the file system refused.
    pub fn begin(&mut self, purpose: Purpose, command: &str) -> Result<u32, JournalError> {
        self.begin_for(purpose, command, &[])
    }

    /// Like [`Journal::begin`], for these holds.
    pub(super) fn begin_for(
        &mut self,
        purpose: Purpose,
        command: &str,
        holds: &[String],
    ) -> Result<u32, JournalError> {
        while let Some(entry) = self.contents.interrupted() {
            // A damaged line may have announced a write.
            if entry.writes > 0 || self.contents.unusable() > 0 {
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
            purpose: Some(purpose),
            of: Some(Environment {
                boot: self.contents.boot.clone(),
                machine: self.contents.machine.clone(),
            }),
            holds: holds.to_vec(),
        }])?;
        Ok(id)
    }

    /// Closes a transaction of holds that was killed: the holds still want its settings, and it
    /// stores the state before them.
    pub(super) fn adopt(&mut self) -> Result<(), JournalError> {
        let open = self.contents.interrupted().filter(|entry| entry.is_hold() && entry.has_goals());
        open.map(|entry| entry.id).map_or(Ok(()), |id| self.record(vec![Record::Commit { id }]))
    }

    /// Records that no hold sets these locations any more.
    pub(super) fn release(&mut self, locations: Vec<Location>) -> Result<(), JournalError> {
        if locations.is_empty() { Ok(()) } else { self.record(vec![Record::Released { locations }]) }
    }

    /// Records that the last hold was released and these transactions have been restored. A
    /// transaction that stores a setting which the user changed later stays, for `flyball restore`
    /// to go back to.
    pub(super) fn release_all(&mut self, undone: &[Entry]) -> Result<(), JournalError> {
        let locations = undone.iter().flat_map(|entry| entry.was.keys().chain(entry.first_old.keys()));
        let known = |id: u32| self.contents.entries.iter().find(|entry| entry.id == id);
        let remembers_more = undone.iter().any(|entry| {
            known(entry.id).is_some_and(|whole| {
                whole.first_old.len() > entry.first_old.len() || whole.was.len() > entry.was.len()
            })
        });
        // The user's commands in between have stored the values that the holds had set.
        if remembers_more || self.contents.pending().any(|entry| !entry.is_hold()) {
            self.release(locations.cloned().collect())?;
        }
        let (kept, ended): (Vec<&Entry>, Vec<&Entry>) = undone.iter().partition(|entry| {
            let whole = self.contents.entries.iter().find(|whole| whole.id == entry.id);
            whole.is_some_and(|whole| remembers_more && !whole.was.is_empty())
        });
        for entry in kept.into_iter().filter(|entry| entry.standing == TransactionState::Open) {
            self.commit(entry.id)?;
        }
        self.restored(&ended.into_iter().map(|entry| entry.id).collect::<Vec<_>>())
    }

    /// Commits a transaction of holds, or drops it if earlier ones store everything that it does. A
    /// service that corrects a setting every minute must not make the journal grow.
    pub(super) fn commit_hold(&mut self, id: u32) -> Result<(), JournalError> {
        const RESTORED: usize = 16;
        let entries = self.contents.hold_entries();
        let (this, earlier): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.id == id);
        let is_known = |location: &Location| {
            // An entry for a location that could not be read proves nothing: the newer entry
            // counts.
            let was = earlier
                .iter()
                .any(|entry| entry.was.get(location).is_some_and(|memory| !memory.content.is_out_of_reach()));
            // A location that was kept as it was had no footprint.
            let is_written =
                |entry: &Entry| entry.first_old.contains_key(location) && !entry.kept.contains(location);
            was && earlier.iter().any(is_written)
        };
        // Only the written locations count: whatever a correction disturbs was disturbed by the
        // original write too.
        if this.iter().all(|entry| entry.first_old.keys().all(is_known)) {
            self.restored(&[id])?;
        } else {
            self.commit(id)?;
        }
        let restored = |entry: &&Entry| entry.standing == TransactionState::Restored;
        if self.contents.entries.iter().filter(restored).count() >= RESTORED
            && self.contents.unusable() == 0
            && self.contents.pending().next().is_some()
        {
            self.compact()?;
        }
        Ok(())
    }

    /// Returns the locations that the open transaction has not saved yet, including those that
    /// could not be read.
    pub fn unknown(&self, footprint: &Footprint) -> Vec<(Location, Subject)> {
        let entry = self.contents.interrupted();
        let is_unknown = |location: &Location| {
            let memory = entry.and_then(|entry| entry.was.get(location));
            memory.is_none_or(|memory| memory.content.is_out_of_reach() && !memory.lost)
        };
        let unknown = footprint.iter().filter(|(location, _)| is_unknown(location));
        unknown.map(|(location, subject)| (location.clone(), *subject)).collect()
    }

    /// Records the earlier contents and the planned writes, and flushes them.
    ///
    /// # Errors
    /// The file system refused. Then no write may be made.
    pub fn announce(
        &mut self,
        was: Vec<(Location, Content, Handling)>,
        writes: Vec<Announced>,
    ) -> Result<(), JournalError> {
        // Reading the journal ignores such a record as foreign (Contents::take).
        let mut all = was.iter().map(|(location, ..)| location).chain(writes.iter().map(|one| &one.location));
        if let Some(location) = all.find(|location| !location.is_flyballs()) {
            return Err(JournalError::ForeignLocation { location: Box::new(location.clone()) });
        }
        // A location first seen after a write may exist only because of it, and may be gone after a
        // restore.
        let late = self.contents.interrupted().is_some_and(|entry| entry.writes > 0);
        let was = was.into_iter().map(|(location, content, handling)| Record::Was {
            location,
            content,
            handling,
            late,
            lost: false,
            seen_late: false,
        });
        let writes = writes.into_iter().map(|Announced { location, old, new, handling, kept }| {
            Record::Write { location, old, new: Content::Text(new), handling, kept }
        });
        self.record(was.chain(writes).collect())?;
        // Rewriting a damaged journal would drop the evidence of the damage.
        if self.size > COMPACT_ABOVE && self.contents.unusable() == 0 { self.compact() } else { Ok(()) }
    }

    /// Records that the transaction's settings are kept.
    pub fn commit(&mut self, id: u32) -> Result<(), JournalError> {
        // A transaction that wrote nothing leaves nothing to remember.
        let wrote = self.contents.entries.iter().any(|entry| entry.id == id && entry.has_goals());
        if wrote { self.record(vec![Record::Commit { id }]) } else { self.restored(&[id]) }
    }

    /// Records that the kernel refused the last write of a driver's mode.
    pub(super) fn refused(&mut self, location: &Location) -> Result<(), JournalError> {
        self.record(vec![Record::Refused { location: location.clone() }])
    }

    /// Records that these transactions have been restored. Removes the file if nothing is left to
    /// restore; a damaged one stays, since its lost lines are unknown.
    pub fn restored(&mut self, ids: &[u32]) -> Result<(), JournalError> {
        if self.contents.unusable() > 0 {
            return self.record(ids.iter().map(|&id| Record::Restored { id }).collect());
        }
        self.forget(ids)
    }

    /// Drops these transactions, restored or not.
    pub fn forget(&mut self, ids: &[u32]) -> Result<(), JournalError> {
        if self.contents.pending().any(|entry| !ids.contains(&entry.id)) {
            return self.record(ids.iter().map(|&id| Record::Restored { id }).collect());
        }
        // Nothing is written for that, so it works even on a full file system. The length file goes
        // first: a journal without one counts as whole.
        for path in [&length_path(&self.path), &self.path] {
            remove(path).map_err(|error| JournalError::Io { path: path.clone(), error })?;
        }
        for &id in ids {
            self.contents.set_state(id, TransactionState::Restored);
        }
        Ok(())
    }

    /// Rewrites the file without the records that restoring does not need: transactions that were
    /// restored, and all but the first write to each location. A comparison of many arms writes the
    /// same locations again and again.
    fn compact(&mut self) -> Result<(), JournalError> {
        let fail = |error: io::Error| JournalError::Io { path: self.path.clone(), error };
        let mut records = vec![self.header()];
        for entry in self.contents.pending() {
            let Entry { id, pid, command, at, purpose, holds, .. } = entry.clone();
            let of = Some(Environment {
                boot: self.contents.boot.clone(),
                machine: self.contents.machine.clone(),
            });
            records.push(Record::Begin { id, pid, command, at, purpose, of, holds });
            records.extend(entry.was.iter().map(|(location, memory)| Record::Was {
                location: location.clone(),
                content: memory.content.clone(),
                handling: memory.handling,
                late: memory.late,
                lost: memory.lost,
                seen_late: memory.seen_late,
            }));
            records.extend(entry.first_old.iter().map(|(location, (old, handling))| Record::Write {
                location: location.clone(),
                old: old.clone(),
                // Write the old content again: a change of mode must not count as lost again, now
                // that all saved contents precede it. The exception is a CPU that was brought
                // online, because the files that appear with it are derived from this write.
                new: if location.name() == "online" && entry.brings(location) {
                    Content::Text("1".to_owned())
                } else {
                    old.clone()
                },
                handling: *handling,
                kept: entry.kept.contains(location),
            }));
            if entry.standing == TransactionState::Committed {
                records.push(Record::Commit { id });
            }
        }
        let bytes: Vec<u8> = records.iter().flat_map(line).collect();
        let replacement = self.path.with_extension("new");
        let mut file =
            regular(File::options().create(true).write(true).truncate(true), &replacement).map_err(fail)?;
        // Flush the data before the rename: after a crash the name must not lead to an empty file.
        file.write_all(&bytes).and_then(|()| file.sync_data()).map_err(fail)?;
        // Write the length before the rename: until then the journal is longer than that, which
        // does not count as damage.
        write_length(&self.length, bytes.len() as u64).map_err(fail)?;
        std::fs::rename(&replacement, &self.path).map_err(fail)?;
        self.file = regular(File::options().append(true), &self.path).map_err(fail)?;
        self.size = bytes.len() as u64;
        self.contents.entries.retain(|entry| entry.standing != TransactionState::Restored);
        Ok(())
    }
}
