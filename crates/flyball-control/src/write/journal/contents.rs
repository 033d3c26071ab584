//! Contents of a journal: transactions, the contents that they saved, and the goals that undo them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::record::{Environment, Purpose, Record};
use crate::{
    Content, Location,
    knob::{
        order::{Step, keeps_policies},
        spelling::Handling,
    },
};

/// The state of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransactionState {
    /// Neither committed nor restored: its flyball is running, or has died.
    Open,
    /// Committed: its settings were kept.
    Committed,
    /// Undone: its changes have been restored.
    Restored,
}

/// The content of a location before a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// The earlier content.
    pub content: Content,
    /// How to write it back.
    pub handling: Handling,
    /// True if it was read only after the first write, which may have created it.
    pub late: bool,
    /// True if the location's CPUs were offline, so that it could not be read, and then the
    /// driver's mode was changed. That removes the policy with all its settings, whose values are
    /// unknown.
    pub lost: bool,
    /// True if an earlier read failed. The later read may have found the result of a write in
    /// between.
    pub seen_late: bool,
}

impl Memory {
    /// Makes a memory that was read before the first write.
    pub(super) fn plain(content: Content, handling: Handling) -> Memory {
        Memory { content, handling, late: false, lost: false, seen_late: false }
    }
}

/// One transaction of the journal.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct Entry {
    /// Number in this journal, from 1; 0 if the line that began it is damaged.
    pub id: u32,
    /// The process that made it.
    pub pid: u32,
    /// Command line of that process.
    pub command: String,
    /// Start time, in seconds since 1970.
    pub at: u64,
    /// Purpose of the transaction; `None` if the journal does not contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<Purpose>,
    /// State of the transaction.
    pub standing: TransactionState,
    /// The holds that it is for, if it is one of `flyball hold`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// Earlier content of each location.
    #[serde(skip)]
    pub was: BTreeMap<Location, Memory>,
    /// Content that the first write to each location found there.
    #[serde(skip)]
    pub first_old: BTreeMap<Location, (Content, Handling)>,
    /// Content that the last write to each location wrote there.
    #[serde(skip)]
    pub last_new: BTreeMap<Location, Content>,
    /// Locations that holds found as they want them: not written, but restored if something else
    /// changes them.
    #[serde(skip)]
    pub kept: BTreeSet<Location>,
    /// Number of writes that it announced.
    pub writes: usize,
    /// True if it wrote a setting that creates or removes files: the driver's mode, a level, a CPU,
    /// a governor.
    #[serde(skip)]
    pub makes_files: bool,
    /// True if it wrote a setting that moves the limits of every present and future policy: turbo,
    /// percentages.
    #[serde(skip)]
    pub moves_limits: bool,
    /// The CPUs that it brought online.
    #[serde(skip)]
    pub brought: BTreeSet<u32>,
    /// Locations that it has read, and that an offline CPU will hide at the next change of the
    /// driver's mode.
    #[serde(skip)]
    pub hidden: BTreeSet<Location>,
    /// Locations whose contents were lost by its last write of a driver's mode.
    #[serde(skip)]
    pub lost_last: Vec<Location>,
}

impl Entry {
    /// Returns whether there is something to restore: a write was announced, or a hold keeps a
    /// setting that it found in effect.
    pub fn has_goals(&self) -> bool {
        self.writes > 0 || !self.kept.is_empty()
    }

    /// Returns whether `flyball hold` made it.
    pub fn is_hold(&self) -> bool {
        self.purpose == Some(Purpose::Hold)
    }

    /// Marks the settings of offline CPUs' policies as lost by a change of the driver's mode.
    /// Returns the locations that were not lost before.
    fn lose_policies(&mut self) -> Vec<Location> {
        let again = std::mem::take(&mut self.hidden);
        let is_hidden =
            |location: &Location, memory: &Memory| memory.content.is_busy() || again.contains(location);
        let hidden =
            self.was.iter_mut().filter(|(location, memory)| is_hidden(location, memory) && !memory.lost);
        hidden
            .map(|(location, memory)| {
                memory.lost = true;
                location.clone()
            })
            .collect()
    }

    /// Unmarks the settings lost by the last change of the driver's mode, because the kernel
    /// refused it.
    fn keep_policies(&mut self) {
        for location in std::mem::take(&mut self.lost_last) {
            if let Some(memory) = self.was.get_mut(&location) {
                memory.lost = false;
            }
        }
    }

    /// Returns whether it brought online the CPU whose number is in the location's path.
    pub(super) fn brings(&self, location: &Location) -> bool {
        number_of(location).is_some_and(|number| self.brought.contains(&number))
    }
}

/// Returns the number of the CPU or the policy in a path. A policy has the number of one of its
/// CPUs.
fn number_of(location: &Location) -> Option<u32> {
    let path = location.path()?.strip_prefix("/sys/devices/system/cpu/")?;
    let rest = path.strip_prefix("cpufreq/policy").or_else(|| path.strip_prefix("cpu"))?;
    rest.split('/').next()?.parse().ok()
}

/// All transactions of a journal, and its damage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// The boot that it belongs to, if the machine has one.
    pub boot: Option<String>,
    /// The machine that it belongs to.
    pub machine: String,
    /// The transactions, oldest first.
    pub entries: Vec<Entry>,
    /// Lines that cannot be read, by number from 1. A torn last line is not among them.
    pub damaged: Vec<usize>,
    /// Lines about locations that flyball never writes, by number. They are ignored.
    pub foreign: Vec<(usize, Location)>,
    /// The boot and machine that the first transaction names.
    pub(super) environment: Option<Environment>,
    /// The length of the file without a torn last line.
    pub(super) whole: u64,
    /// True if lines at the end are missing.
    pub(super) is_cut: bool,
    /// True if the last line has no line end and is kept.
    pub(super) open_end: bool,
}

impl Contents {
    /// Returns the last transaction that wrote a location and was not restored, with that content.
    pub fn last_write(&self, location: &Location) -> Option<(&Entry, &Content)> {
        self.entries.iter().rev().find_map(|entry| {
            let wrote = entry.last_new.get(location)?;
            (entry.standing != TransactionState::Restored).then_some((entry, wrote))
        })
    }

    /// Adds the record of line `number` (0 for one that is being written).
    pub(super) fn take(&mut self, number: usize, record: Record) {
        match record {
            // Only the first line is a header, and it has been read already.
            Record::Header { .. } => {}
            Record::Begin { id, pid, command, at, purpose, of, holds } => {
                // Later transactions repeat the first environment.
                self.environment = self.environment.take().or(of);
                self.begin(id, pid, command, at, purpose);
                self.last().holds = holds;
            }
            Record::Was { location, .. } | Record::Write { location, .. } if !location.is_flyballs() => {
                self.foreign.push((number, location));
            }
            Record::Was { location, content, handling, late, lost, seen_late } => {
                let entry = self.last();
                let known = entry.was.get(&location);
                // The first content counts: a later one may already be the result of our own
                // writes. A content that could not be read proves nothing and is replaced. Lost
                // values stay lost.
                if known.is_none_or(|known| known.content.is_out_of_reach() && !known.lost) {
                    // If this transaction brought the CPU online, it reads the new files before it
                    // writes to them (Step::Online precedes the other steps).
                    let was_busy = known.is_some_and(|known| known.content.is_busy());
                    let seen_late = seen_late || (was_busy && !entry.brings(&location) && !content.is_busy());
                    entry.was.insert(location, Memory { content, handling, late, lost, seen_late });
                } else if content.is_busy() {
                    // The location was read before. Its CPU is offline again, before a change of
                    // the driver's mode.
                    entry.hidden.insert(location);
                }
            }
            Record::Write { location, old, handling, kept: true, .. } => {
                let entry = self.last();
                entry.kept.insert(location.clone());
                entry.first_old.entry(location).or_insert((old, handling));
            }
            Record::Write { location, old, new, handling, kept: false } => {
                let entry = self.last();
                entry.writes += 1;
                entry.makes_files |= matches!(
                    handling.step,
                    Step::DriverMode | Step::Level | Step::Online | Step::Offline | Step::Governor
                );
                entry.moves_limits |= matches!(handling.step, Step::Turbo | Step::Level)
                    || matches!(location.name(), "min_perf_pct" | "max_perf_pct");
                if location.name() == "online" && new.trimmed() == "1" {
                    entry.brought.extend(number_of(&location));
                }
                if handling.step == Step::DriverMode && !keeps_policies(old.trimmed(), new.trimmed()) {
                    entry.lost_last = entry.lose_policies();
                }
                entry.last_new.insert(location.clone(), new);
                // Only the first write found the content from before flyball.
                entry.first_old.entry(location).or_insert((old, handling));
            }
            Record::Refused { .. } => self.last().keep_policies(),
            Record::Commit { id } => self.set_state(id, TransactionState::Committed),
            Record::Restored { id } => self.set_state(id, TransactionState::Restored),
            Record::Released { locations } => {
                for location in &locations {
                    self.release(location);
                }
            }
        }
    }

    /// Removes the contents that holds saved for a location. A later transaction that did not write
    /// there has saved the value that a hold had set. It gets the hold's older content instead.
    fn release(&mut self, location: &Location) {
        let mut later = Vec::new();
        for index in (0..self.entries.len()).rev() {
            let entry = &mut self.entries[index];
            let is_pending = entry.standing != TransactionState::Restored;
            if entry.is_hold() {
                let memory = entry.was.remove(location);
                let first_old = entry.first_old.remove(location);
                entry.kept.remove(location);
                let first_old = first_old.map(|(content, handling)| Memory::plain(content, handling));
                let memory = memory.filter(|memory| !memory.content.is_out_of_reach()).or(first_old);
                if let Some(memory) = memory.filter(|_| is_pending) {
                    for later in &later {
                        let entry: &mut Entry = &mut self.entries[*later];
                        entry.was.insert(location.clone(), memory.clone());
                    }
                }
            } else if is_pending && entry.first_old.contains_key(location) {
                // Undoing both goes back to the hold's content from before the user's command.
                break;
            } else if is_pending && entry.was.contains_key(location) {
                later.push(index);
            }
        }
    }

    /// Returns a copy of the header from the first transaction, for a journal whose own header is
    /// damaged.
    pub(super) fn header_of_begin(&mut self) -> Option<Record> {
        let Environment { boot, machine } = self.environment.clone()?;
        (self.boot, self.machine) = (boot.clone(), machine.clone());
        Some(Record::Header { format: super::FORMAT, boot, machine })
    }

    /// Returns the number of lines that cannot be used.
    pub fn unusable(&self) -> usize {
        self.damaged.len() + self.foreign.len()
    }

    fn begin(&mut self, id: u32, pid: u32, command: String, at: u64, purpose: Option<Purpose>) {
        self.entries.push(Entry {
            id,
            pid,
            command,
            at,
            purpose,
            standing: TransactionState::Open,
            holds: Vec::new(),
            was: BTreeMap::new(),
            first_old: BTreeMap::new(),
            last_new: BTreeMap::new(),
            kept: BTreeSet::new(),
            writes: 0,
            makes_files: false,
            moves_limits: false,
            brought: BTreeSet::new(),
            hidden: BTreeSet::new(),
            lost_last: Vec::new(),
        });
    }

    /// Returns the transaction that a record belongs to. If its `begin` line is damaged, the lines
    /// after it still form a transaction, instead of joining one that has ended.
    fn last(&mut self) -> &mut Entry {
        if self.entries.last().is_none_or(|last| last.standing != TransactionState::Open) {
            self.begin(0, 0, "unknown command".to_owned(), 0, None);
        }
        let last = self.entries.len() - 1;
        &mut self.entries[last]
    }

    pub(super) fn set_state(&mut self, id: u32, standing: TransactionState) {
        let known = self.entries.iter().position(|entry| entry.id == id);
        // Its `begin` line may be damaged: then it is the one that `last` made for the lines after
        // it.
        let position = known.or_else(|| self.entries.iter().position(|entry| entry.id == 0));
        if let Some(entry) = position.map(|position| &mut self.entries[position]) {
            entry.id = id;
            entry.standing = standing;
        }
    }

    /// Returns the transactions that have not been restored, oldest first.
    pub fn pending(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.standing != TransactionState::Restored)
    }

    /// Returns the transaction that was left open, if there is one.
    pub fn interrupted(&self) -> Option<&Entry> {
        self.entries.iter().rfind(|entry| entry.standing == TransactionState::Open)
    }

    /// Returns the pending transactions of holds, each without the settings that a later command of
    /// the user has changed: `flyball set` while a hold is in force defines the state after it.
    pub fn hold_entries(&self) -> Vec<Entry> {
        let mut found: Vec<Entry> = Vec::new();
        for entry in self.pending() {
            if entry.is_hold() {
                found.push(entry.clone());
                continue;
            }
            for earlier in &mut found {
                earlier.was.retain(|location, _| !entry.first_old.contains_key(location));
                earlier.first_old.retain(|location, _| !entry.first_old.contains_key(location));
            }
        }
        found
    }

    /// Returns the goals that undo these transactions together: for each location, the content that
    /// the oldest of them found, and the content that the first write to it found (see `restore`).
    pub fn goals<'e>(entries: impl DoubleEndedIterator<Item = &'e Entry>) -> Goals {
        let mut goals: BTreeMap<Location, Goal> = BTreeMap::new();
        let entries: Vec<&Entry> = entries.collect();
        // From the newest to the oldest, so that the oldest content remains.
        for (age, entry) in entries.iter().enumerate().rev() {
            // Files that an older transaction created need not have existed before it.
            let made = entries[..age].iter().any(|older| older.makes_files);
            for (location, memory) in &entry.was {
                // If an older read failed, a newer successful read counts. But it may have found
                // the result of the older transaction's writes.
                if memory.content.is_out_of_reach()
                    && !memory.lost
                    && let Some(goal) = goals.get_mut(location)
                {
                    if memory.content.is_busy() && !goal.was.is_busy() && !entry.brings(location) {
                        goal.uncertainty = goal.uncertainty.or(Some(Uncertainty::SeenLate));
                    }
                    continue;
                }
                // Keep the first write's content if only a newer transaction wrote there.
                let first_old = goals.remove(location).and_then(|goal| goal.first_old);
                let Memory { content: was, handling, late, lost, seen_late } = memory.clone();
                // A policy created by bringing a CPU online starts with limits that an older
                // transaction may have moved. Its other attributes do not depend on that. Contents
                // read before the CPU came online (not `late`) belong to a policy that other CPUs
                // kept.
                let older = &entries[..age];
                let starts_moved = !handling.bound.is_none()
                    && older.iter().any(|entry| entry.moves_limits)
                    && (late && entry.brings(location) || older.iter().any(|entry| entry.brings(location)))
                    && !older.iter().any(|entry| entry.was.contains_key(location));
                let uncertainty = match (lost, seen_late || starts_moved) {
                    (true, _) => Some(Uncertainty::Lost),
                    (_, true) => Some(Uncertainty::SeenLate),
                    _ => None,
                };
                // Files appear only by writes that make files: after any other write, the location
                // existed from the start.
                let late = (late && entry.makes_files) || made;
                goals.insert(location.clone(), Goal { was, handling, late, uncertainty, first_old });
            }
            for (location, (old, handling)) in &entry.first_old {
                // A write without a saved content: the line that saved it is damaged.
                let goal = goals.entry(location.clone()).or_insert_with(|| Goal {
                    was: old.clone(),
                    handling: *handling,
                    late: made,
                    uncertainty: None,
                    first_old: None,
                });
                // The line that saved the content is damaged, or that read failed but the read
                // before the write did not.
                let unknown = matches!(goal.was, Content::Unreadable(_))
                    && goal.handling.spelling.writable(&goal.was).is_none();
                if unknown || !entry.was.contains_key(location) {
                    goal.was = old.clone();
                    goal.handling = *handling;
                }
                goal.first_old = Some(old.clone());
            }
        }
        Goals(goals)
    }
}

/// The reason why the earlier content of a location is uncertain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uncertainty {
    /// The CPUs were offline when a change of the driver's mode removed the policy.
    Lost,
    /// The CPUs were offline at first. When the location was read later, it may already have
    /// changed.
    SeenLate,
}

/// The content that a location should hold again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    /// The earlier content.
    pub was: Content,
    /// How to write it back.
    pub handling: Handling,
    /// True if it may not have existed at the beginning: a governor's tunables that came with a
    /// change of driver mode, or the policy of a CPU that was brought online. It may be gone once
    /// everything is restored.
    pub late: bool,
    /// The reason why `was` may be wrong; `None` if it is certain.
    pub uncertainty: Option<Uncertainty>,
    /// The content that flyball's first write to it found, if there was a write. It differs from
    /// `was` if something else in the transaction had disturbed the location first.
    pub first_old: Option<Content>,
}

/// The locations to restore, with their goals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Goals(pub BTreeMap<Location, Goal>);
