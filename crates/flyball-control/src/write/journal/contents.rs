//! What a journal holds: transactions, what each found, and what is to be restored to undo them.

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

/// How a transaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, schemars::JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransactionState {
    /// Neither committed nor restored: its flyball is at work, or has died.
    Open,
    /// Its settings were kept.
    Committed,
    /// What it changed has been restored.
    Restored,
}

/// What a location held before a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// What was there.
    pub content: Content,
    /// How it is written back.
    pub handling: Handling,
    /// Whether it was read only after the first write, which may have brought it into being.
    pub late: bool,
    /// Whether it could not be read because its CPUs were offline, and then the driver's mode was
    /// changed: that removes the policy with all that was set in it, and what that was is not
    /// known.
    pub lost: bool,
    /// Whether an earlier look could not reach it: what was read later may be the result of a write
    /// in between.
    pub seen_late: bool,
}

/// One transaction, as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize)]
pub struct Entry {
    /// Its number in this journal, from 1; 0 where the line that began it is damaged.
    pub id: u32,
    /// The process that made it.
    pub pid: u32,
    /// What that process was started as.
    pub command: String,
    /// When, in seconds since 1970.
    pub at: u64,
    /// What it is for; `None` where the journal does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<Purpose>,
    /// How it stands.
    pub standing: TransactionState,
    /// The holds that it is for, if it is one of `flyball hold`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// What was at each location before.
    #[serde(skip)]
    pub was: BTreeMap<Location, Memory>,
    /// What the first write to each location found there.
    #[serde(skip)]
    pub first_old: BTreeMap<Location, (Content, Handling)>,
    /// What the last write to each location wrote there.
    #[serde(skip)]
    pub last_new: BTreeMap<Location, Content>,
    /// What holds found as they want it: not written, and restored if something else changes it.
    #[serde(skip)]
    pub kept: BTreeSet<Location>,
    /// How many writes it announced.
    pub writes: usize,
    /// Whether it wrote something that makes files come and go: the driver's mode, a level, a CPU,
    /// a governor.
    #[serde(skip)]
    pub makes_files: bool,
    /// Whether it wrote something that moves the limits of every policy there is, and of those that
    /// come: turbo, percentages.
    #[serde(skip)]
    pub moves_limits: bool,
    /// The CPUs that it brought online.
    #[serde(skip)]
    pub brought: BTreeSet<u32>,
}

impl Entry {
    /// Whether there is something to restore: a write was announced, or a hold keeps what it found.
    pub fn has_goals(&self) -> bool {
        self.writes > 0 || !self.kept.is_empty()
    }

    /// Whether `flyball hold` made it.
    pub fn is_of_holds(&self) -> bool {
        self.purpose == Some(Purpose::Hold)
    }

    /// Whether it brought the CPU online that a location goes by.
    pub(super) fn brings(&self, location: &Location) -> bool {
        number_of(location).is_some_and(|number| self.brought.contains(&number))
    }
}

/// The number of the CPU or the policy in a path; a policy has the number of one of its CPUs.
fn number_of(location: &Location) -> Option<u32> {
    let path = location.path()?.strip_prefix("/sys/devices/system/cpu/")?;
    let rest = path.strip_prefix("cpufreq/policy").or_else(|| path.strip_prefix("cpu"))?;
    rest.split('/').next()?.parse().ok()
}

/// What a journal holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// The format of its header.
    pub format: u32,
    /// The boot that it belongs to, where the machine has one.
    pub boot: Option<String>,
    /// The machine that it belongs to.
    pub machine: String,
    /// The transactions, oldest first.
    pub entries: Vec<Entry>,
    /// Lines that cannot be read, by number from 1. A torn last line is not among them.
    pub damaged: Vec<usize>,
    /// Lines about locations that flyball never writes, by number: they are not used.
    pub foreign: Vec<(usize, Location)>,
    /// What the first transaction says that it belongs to.
    pub(super) environment: Option<Environment>,
    /// The length of the file without a torn last line.
    pub(super) whole: u64,
    /// Whether lines at its end are missing.
    pub(super) is_cut: bool,
    /// Whether the last line has no end, and is kept.
    pub(super) open_end: bool,
}

impl Contents {
    /// Takes the record of line `number` (0 for one that is being written).
    pub(super) fn take(&mut self, number: usize, record: Record) {
        match record {
            // Only the first line is one, and it was read.
            Record::Header { .. } => {}
            Record::Begin { id, pid, command, at, purpose, of, holds } => {
                // The first one counts; those of later transactions are the same.
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
                // The first memory counts: a later one may already be the result of our own writes.
                // One that could not be read says nothing, and is replaced; what was lost is not
                // found again.
                if known.is_none_or(|known| known.content.is_out_of_reach() && !known.lost) {
                    // Where this transaction brought the CPU online, it comes to what that brings
                    // along before it writes there (Step::Online precedes the others).
                    let was_busy = known.is_some_and(|known| known.content.is_busy());
                    let seen_late = seen_late || (was_busy && !entry.brings(&location) && !content.is_busy());
                    entry.was.insert(location, Memory { content, handling, late, lost, seen_late });
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
                    for memory in entry.was.values_mut().filter(|memory| memory.content.is_busy()) {
                        memory.lost = true;
                    }
                }
                entry.last_new.insert(location.clone(), new);
                // Only the first write found what was there before flyball.
                entry.first_old.entry(location).or_insert((old, handling));
            }
            Record::Commit { id } => self.set_state(id, TransactionState::Committed),
            Record::Restored { id } => self.set_state(id, TransactionState::Restored),
            Record::Released { locations } => {
                for location in &locations {
                    for entry in self.entries.iter_mut().rev() {
                        if entry.is_of_holds() {
                            entry.was.remove(location);
                            entry.first_old.remove(location);
                            entry.kept.remove(location);
                        } else if entry.standing != TransactionState::Restored
                            && entry.first_old.contains_key(location)
                        {
                            // What holds remember from before a command of the user is what undoing
                            // both goes back to.
                            break;
                        }
                    }
                }
            }
        }
    }

    /// The header as the first transaction repeats it, for a journal whose own is damaged.
    pub(super) fn header_of_begin(&mut self) -> Option<Record> {
        let Environment { boot, machine } = self.environment.clone()?;
        // Format 1 did not repeat it.
        let format = super::FORMAT;
        (self.format, self.boot, self.machine) = (format, boot.clone(), machine.clone());
        Some(Record::Header { format, boot, machine })
    }

    /// How many lines cannot be used.
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
        });
    }

    /// The transaction that a record belongs to. Where the line that began it is damaged, what
    /// follows is still a transaction, and not part of one that has ended.
    fn last(&mut self) -> &mut Entry {
        if self.entries.last().is_none_or(|last| last.standing != TransactionState::Open) {
            self.begin(0, 0, "unknown command".to_owned(), 0, None);
        }
        let last = self.entries.len() - 1;
        &mut self.entries[last]
    }

    pub(super) fn set_state(&mut self, id: u32, standing: TransactionState) {
        let known = self.entries.iter().position(|entry| entry.id == id);
        // Its `begin` line is damaged: then it is the one that `last` made for the lines after it.
        let position = known.or_else(|| self.entries.iter().position(|entry| entry.id == 0));
        if let Some(entry) = position.map(|position| &mut self.entries[position]) {
            entry.id = id;
            entry.standing = standing;
        }
    }

    /// The transactions that have not been restored, oldest first.
    pub fn pending(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.standing != TransactionState::Restored)
    }

    /// The transaction that was left open, if one was.
    pub fn interrupted(&self) -> Option<&Entry> {
        self.entries.iter().rfind(|entry| entry.standing == TransactionState::Open)
    }

    /// The pending transactions of holds, each without what a later command of the user has set:
    /// `flyball set` while a hold is in force says what is to be there after it.
    pub fn of_holds(&self) -> Vec<Entry> {
        let mut found: Vec<Entry> = Vec::new();
        for entry in self.pending() {
            if entry.is_of_holds() {
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

    /// What to restore to undo these transactions together: for each location what the oldest of
    /// them found, and what the first write to it found (see `restore`).
    pub fn goals<'e>(entries: impl DoubleEndedIterator<Item = &'e Entry>) -> Goals {
        let mut goals: BTreeMap<Location, Goal> = BTreeMap::new();
        let entries: Vec<&Entry> = entries.collect();
        // From the newest to the oldest, so that the oldest memory is what remains.
        for (age, entry) in entries.iter().enumerate().rev() {
            // What an older transaction made need not have been there before it.
            let made = entries[..age].iter().any(|older| older.makes_files);
            for (location, memory) in &entry.was {
                // An older read that could not reach the location says nothing against a newer one
                // that could. But what that one found may be the result of the older transaction's
                // writes.
                if memory.content.is_out_of_reach()
                    && !memory.lost
                    && let Some(goal) = goals.get_mut(location)
                {
                    if memory.content.is_busy() && !goal.was.is_busy() && !entry.brings(location) {
                        goal.uncertainty = goal.uncertainty.or(Some(Uncertainty::SeenLate));
                    }
                    continue;
                }
                // Kept where the older transaction did not write there: a newer one did.
                let first_old = goals.remove(location).and_then(|goal| goal.first_old);
                let Memory { content: was, handling, late, lost, seen_late } = memory.clone();
                // A policy that came into being with a CPU that was brought online starts with the
                // limits that an older transaction had moved. Its other attributes start as they
                // would have without that.
                let (older, now) = (&entries[..age], &entries[..=age]);
                let starts_moved = !handling.bound.is_none()
                    && older.iter().any(|entry| entry.moves_limits)
                    && now.iter().any(|entry| entry.brings(location))
                    && !older.iter().any(|entry| entry.was.contains_key(location));
                let uncertainty = match (lost, seen_late || starts_moved) {
                    (true, _) => Some(Uncertainty::Lost),
                    (_, true) => Some(Uncertainty::SeenLate),
                    _ => None,
                };
                // Files appear only by writes that make files: after any other write a location was
                // there all along.
                let late = (late && entry.makes_files) || made;
                goals.insert(location.clone(), Goal { was, handling, late, uncertainty, first_old });
            }
            for (location, (old, handling)) in &entry.first_old {
                // A write without a memory: the line that remembered the location is damaged.
                let goal = goals.entry(location.clone()).or_insert_with(|| Goal {
                    was: old.clone(),
                    handling: *handling,
                    late: made,
                    uncertainty: None,
                    first_old: None,
                });
                // The line that remembered it is damaged, or could not read it while the write
                // could.
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

/// Why what a location held before is not known for certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uncertainty {
    /// Its CPUs were offline when the driver's mode was changed, which removed it.
    Lost,
    /// Its CPUs were offline at first; when it was read, something may already have been changed.
    SeenLate,
}

/// What a location is to hold again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    /// What it held.
    pub was: Content,
    /// How that is written back.
    pub handling: Handling,
    /// Whether it need not have been there at the very beginning: a governor's tunables that came
    /// with a change of driver mode, the policy of a CPU that was brought online. It may be gone
    /// when all is as it was.
    pub late: bool,
    /// Why `was` may not be what it held; `None` where that is known.
    pub uncertainty: Option<Uncertainty>,
    /// What the first write to it found there, where flyball wrote to it: differs from what it held
    /// when something else of the same transaction had disturbed it first.
    pub first_old: Option<Content>,
}

/// What is to be restored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Goals(pub BTreeMap<Location, Goal>);
