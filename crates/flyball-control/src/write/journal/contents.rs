//! What a journal holds: transactions, what each found, and what is to be restored to undo them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::record::{Purpose, Record};
use crate::{Content, Location, knob::spelling::Handling};

/// How a transaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
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
}

/// One transaction, as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    pub standing: Standing,
    /// What was at each location before.
    #[serde(skip)]
    pub was: BTreeMap<Location, Memory>,
    /// What the first write to each location found there.
    #[serde(skip)]
    pub first_old: BTreeMap<Location, (Content, Handling)>,
    /// How many writes it announced.
    pub writes: usize,
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
    /// Lines in the middle that cannot be read, by number from 1. A torn last line is not among them.
    pub damaged: Vec<usize>,
    /// The length of the file up to the end of its last whole line.
    pub(super) whole: u64,
}

impl Contents {
    pub(super) fn take(&mut self, record: Record) {
        match record {
            Record::Header { .. } => {}
            Record::Begin { id, pid, command, at, purpose } => self.begin(id, pid, command, at, purpose),
            Record::Was { location, content, handling, late } => {
                let was = &mut self.last().was;
                // The first memory counts: a later one may already be the result of our own writes. One that
                // could not be read says nothing, and is replaced.
                if was.get(&location).is_none_or(|known| known.content.is_out_of_reach()) {
                    was.insert(location, Memory { content, handling, late });
                }
            }
            Record::Write { location, old, handling, .. } => {
                let entry = self.last();
                entry.writes += 1;
                // Only the first write found what was there before flyball.
                entry.first_old.entry(location).or_insert((old, handling));
            }
            Record::Commit { id } => self.stand(id, Standing::Committed),
            Record::Restored { id } => self.stand(id, Standing::Restored),
        }
    }

    fn begin(&mut self, id: u32, pid: u32, command: String, at: u64, purpose: Option<Purpose>) {
        self.entries.push(Entry {
            id,
            pid,
            command,
            at,
            purpose,
            standing: Standing::Open,
            was: BTreeMap::new(),
            first_old: BTreeMap::new(),
            writes: 0,
        });
    }

    /// The transaction that a record belongs to. Where the line that began the first one is damaged, what follows is still a
    /// transaction.
    fn last(&mut self) -> &mut Entry {
        if self.entries.is_empty() {
            self.begin(0, 0, "unknown command".to_owned(), 0, None);
        }
        let last = self.entries.len() - 1;
        &mut self.entries[last]
    }

    pub(super) fn stand(&mut self, id: u32, standing: Standing) {
        let known = self.entries.iter().position(|entry| entry.id == id);
        let position = known.or_else(|| self.entries.iter().position(|entry| entry.id == 0));
        if let Some(entry) = position.map(|position| &mut self.entries[position]) {
            entry.id = id;
            entry.standing = standing;
        }
    }

    /// The transactions that have not been restored, oldest first.
    pub fn pending(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.standing != Standing::Restored)
    }

    /// The transaction that was left open, if one was.
    pub fn interrupted(&self) -> Option<&Entry> {
        self.entries.iter().rfind(|entry| entry.standing == Standing::Open)
    }

    /// What to restore to undo these transactions together: for each location what the oldest of them found, and what
    /// the first write to it found (see `restore`).
    pub fn goals<'e>(entries: impl DoubleEndedIterator<Item = &'e Entry>) -> Goals {
        let mut goals: BTreeMap<Location, Goal> = BTreeMap::new();
        let entries: Vec<&Entry> = entries.collect();
        // From the newest to the oldest, so that the oldest memory is what remains.
        for (age, entry) in entries.iter().enumerate().rev() {
            for (location, memory) in &entry.was {
                // An older read that could not reach the location says nothing against a newer one that could.
                if memory.content.is_out_of_reach() && goals.contains_key(location) {
                    continue;
                }
                let first_old = goals.remove(location).and_then(|goal| goal.first_old);
                let Memory { content: was, handling, late } = memory.clone();
                goals.insert(location.clone(), Goal { was, handling, late: late || age > 0, first_old });
            }
            for (location, (old, handling)) in &entry.first_old {
                let goal = goals.entry(location.clone()).or_insert_with(|| Goal {
                    was: old.clone(),
                    handling: *handling,
                    late: age > 0,
                    first_old: None,
                });
                // The line that remembered it is damaged, or could not read it while the write could.
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

/// What a location is to hold again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    /// What it held.
    pub was: Content,
    /// How that is written back.
    pub handling: Handling,
    /// Whether it need not have been there at the very beginning: a governor's tunables that came with a change of
    /// driver mode, the policy of a CPU that was brought online. It may be gone when all is as it was.
    pub late: bool,
    /// What the first write to it found there, where flyball wrote to it: differs from what it held when something else of
    /// the same transaction had disturbed it first.
    pub first_old: Option<Content>,
}

/// What is to be restored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Goals(pub BTreeMap<Location, Goal>);
