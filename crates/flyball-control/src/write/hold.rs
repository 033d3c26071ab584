//! Holding a machine: the transaction around every change.
//!
//! A [`Hold`] has the machine's lock and one open transaction in its journal. Whatever happens to it (an error, an
//! interrupt, a panic, being dropped), what it changed is put back, unless [`Hold::keep`] says that it is to stay. When
//! the process is killed, the journal has what `flyball restore`, or the guardian, needs.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt, io,
    process::Command,
    time::Duration,
};

use flyball_host::{Host, HostError};
use serde::Serialize;

use super::{
    footprint::Footprints,
    guardian::Guardian,
    journal::{Contents, Entry, Goals, Journal, JournalError},
    order::Step,
    reasons,
    restore::{Restoration, put_back},
    settle::{Expected, Found, settle},
    state::{Lock, LockError, StateDir},
};
use crate::{
    Content, Location, Snapshot,
    intent::Intent,
    plan::{Change, Plan, PlanError, plan},
};

/// A machine that is held for changing it.
pub struct Hold<'h> {
    host: &'h dyn Host,
    // Dropped in this order: the guardian is sent home before the lock is given up.
    guardian: Option<Guardian>,
    journal: Journal,
    lock: Lock,
    id: u32,
    open: bool,
    notes: Vec<String>,
    /// What the locations journaled until [`Hold::set_floor`] held at that moment.
    floor: Option<BTreeMap<Location, Content>>,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The value was read back.
    Applied,
    /// The kernel took the write and made this of it.
    Clamped(String),
}

/// What the kernel made of a write that was made to see just that.
#[derive(Debug)]
pub enum Probed {
    /// The value was read back.
    Held,
    /// It was taken, and this is read.
    Reads(String),
    /// It was refused.
    Refused(HostError),
}

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Made {
    /// The change, with what was there before it.
    pub change: Change,
    /// What became of it.
    pub outcome: Outcome,
}

/// What applying an intent came to.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Applied {
    /// The changes in the order in which they were made.
    pub made: Vec<Made>,
    /// What else there is to know.
    pub notes: Vec<String>,
}

impl Applied {
    /// The changes whose value the kernel clamped.
    pub fn clamped(&self) -> impl Iterator<Item = (&Change, &str)> {
        self.made.iter().filter_map(|made| match &made.outcome {
            Outcome::Clamped(to) => Some((&made.change, to.as_str())),
            Outcome::Applied => None,
        })
    }
}

/// Why an intent was not applied. What had been written by then has been put back, as far as `restoration` says.
#[derive(Debug)]
pub enum ApplyError {
    /// There is no plan; nothing was written.
    Plan(PlanError),
    /// The kernel refused a write.
    Refused {
        /// The write.
        change: Box<Change>,
        /// What the kernel said.
        error: HostError,
        /// The likely reason, with the remedy.
        reason: Option<String>,
        /// How putting back went.
        restoration: Box<Restoration>,
    },
    /// After the driver or its policies had changed, the rest could not be planned.
    Replan {
        /// Why.
        error: PlanError,
        /// How putting back went.
        restoration: Box<Restoration>,
    },
    /// The journal cannot be written, so the machine was not either.
    Journal {
        /// Why.
        error: JournalError,
        /// How putting back went.
        restoration: Box<Restoration>,
    },
    /// The user interrupted.
    Interrupted {
        /// How putting back went.
        restoration: Box<Restoration>,
    },
}

impl ApplyError {
    /// How putting back went; `None` where nothing had been written.
    pub fn restoration(&self) -> Option<&Restoration> {
        match self {
            ApplyError::Plan(_) => None,
            ApplyError::Refused { restoration, .. }
            | ApplyError::Replan { restoration, .. }
            | ApplyError::Journal { restoration, .. }
            | ApplyError::Interrupted { restoration } => Some(restoration),
        }
    }
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApplyError::Plan(error) => return error.fmt(f),
            ApplyError::Refused { change, error, reason, .. } => {
                write!(f, "{}={} on {}: {error}", change.knob, change.new, change.place)?;
                if let Some(reason) = reason {
                    write!(f, "\n  {reason}")?;
                }
            }
            ApplyError::Replan { error, .. } => {
                write!(f, "after the first changes the rest cannot be made: {error}")?;
            }
            ApplyError::Journal { error, .. } => error.fmt(f)?,
            ApplyError::Interrupted { .. } => f.write_str("interrupted")?,
        }
        if let Some(restoration) = self.restoration() {
            write!(f, "\n{restoration}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ApplyError {}

impl fmt::Display for Restoration {
    /// What was put back and what was not, in words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_exact() {
            return match self.written.len() {
                0 => f.write_str("nothing had to be put back: everything is as it was"),
                1 => f.write_str("1 write put back: everything is as it was"),
                count => write!(f, "{count} writes put back: everything is as it was"),
            };
        }
        write!(f, "{} of {} settings could not be put back:", self.left.len(), self.remembered)?;
        for left in &self.left {
            write!(f, "\n  {} holds '{}', was '{}'", left.location, left.found, left.wanted)?;
            if let Some(error) = &left.error {
                write!(f, "\n    {error}")?;
            }
        }
        Ok(())
    }
}

/// Why a machine cannot be held.
#[derive(Debug)]
pub enum HoldError {
    /// Another flyball has it, or the state directory cannot be used.
    Lock(LockError),
    /// The journal cannot be used, or an earlier transaction has to be put back first.
    Journal(JournalError),
    /// The guardian could not be started.
    Guardian(io::Error),
}

impl fmt::Display for HoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HoldError::Lock(error) => error.fmt(f),
            HoldError::Journal(error) => error.fmt(f),
            HoldError::Guardian(error) => write!(f, "cannot start the guardian process: {error}"),
        }
    }
}

impl std::error::Error for HoldError {}

impl From<LockError> for HoldError {
    fn from(error: LockError) -> HoldError {
        HoldError::Lock(error)
    }
}

impl From<JournalError> for HoldError {
    fn from(error: JournalError) -> HoldError {
        HoldError::Journal(error)
    }
}

/// The boot that the machine is in; `None` where it does not tell (a tree of files).
pub fn boot_id(host: &dyn Host) -> Option<String> {
    host.read("/proc/sys/kernel/random/boot_id").ok().filter(|id| !id.is_empty())
}

impl<'h> Hold<'h> {
    /// Takes the machine. `command` is what the user typed, for the lock and the journal. With `guardian`, that command
    /// is started first: a process that restores as soon as this one dies (see [`super::guardian`]).
    ///
    /// # Errors
    /// The machine is held by another, an earlier transaction is open, or the state directory cannot be used.
    pub fn begin(
        host: &'h dyn Host,
        state: &StateDir,
        command: &str,
        guardian: Option<Command>,
    ) -> Result<Hold<'h>, HoldError> {
        let lock = state.lock(command)?;
        let (mut journal, aside) = Journal::open(state, &host.name(), boot_id(host).as_deref())?;
        let id = journal.begin(command)?;
        let guardian = match guardian.map(|command| Guardian::post(command, &lock)).transpose() {
            Ok(guardian) => guardian,
            Err(error) => {
                journal.restored(&[id])?;
                return Err(HoldError::Guardian(error));
            }
        };
        Ok(Hold {
            host,
            guardian,
            journal,
            lock,
            id,
            open: true,
            notes: aside.into_iter().collect(),
            floor: None,
        })
    }

    /// What there was to say when the machine was taken: a journal of an earlier boot set aside.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The lock, to share with a child.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Applies an intent to the machine as it is now, and says what became of every change. Where that fails, or
    /// `interrupted` answers true between two groups of writes, everything since the hold began is put back.
    ///
    /// # Errors
    /// See [`ApplyError`].
    pub fn apply(&mut self, intent: &Intent, interrupted: &dyn Fn() -> bool) -> Result<Applied, ApplyError> {
        let mut applied = Applied::default();
        let mut done: BTreeMap<Location, String> = BTreeMap::new();
        let mut first = true;
        loop {
            let fresh = Snapshot::for_intent(self.host, intent)
                .map_err(PlanError::Read)
                .and_then(|snapshot| Ok((plan(&snapshot, intent)?, snapshot.into_contents())));
            let (Plan { changes, notes, .. }, mut known) = match fresh {
                Ok(fresh) => fresh,
                Err(error) if first => return Err(ApplyError::Plan(error)),
                Err(error) => {
                    return Err(ApplyError::Replan { error, restoration: Box::new(self.put_back()) });
                }
            };
            if first {
                applied.notes = notes;
            }
            first = false;
            // What was written once is not written again: the kernel clamped it, or spells it in its own way.
            let changes: Vec<Change> = changes
                .into_iter()
                .filter(|change| done.get(&change.location) != Some(&change.new))
                .collect();
            let Some(step) = changes.first().map(|change| change.step) else { break };
            let group: Vec<Change> = if step <= Step::Governor {
                changes.into_iter().filter(|change| change.step == step).collect()
            } else {
                changes
            };
            for batch in group.chunk_by(|a, b| a.step == b.step) {
                if interrupted() {
                    return Err(ApplyError::Interrupted { restoration: Box::new(self.put_back()) });
                }
                let made = self.write(batch, &mut known)?;
                done.extend(made.iter().map(|made| (made.change.location.clone(), made.change.new.clone())));
                applied.made.extend(made);
            }
        }
        Ok(applied)
    }

    /// Makes the changes of one step: remembers what they disturb, journals, writes, reads back.
    ///
    /// `known` is what the snapshot of this round read, under the lock that is still held. It counts as the present content
    /// until a write may have changed it: what the changes disturb is taken out of it here, and read again when needed.
    fn write(
        &mut self,
        batch: &[Change],
        known: &mut HashMap<Location, Content>,
    ) -> Result<Vec<Made>, ApplyError> {
        let mut footprints = Footprints::new(self.host);
        let disturbed: BTreeSet<Location> =
            batch.iter().flat_map(|change| footprints.of(&change.location)).collect();
        let mut was: Vec<(Location, Content)> = Vec::new();
        for location in self.journal.unknown(&disturbed) {
            match self.remember(&location, known) {
                Ok(content) => {
                    known.insert(location.clone(), content.clone());
                    was.push((location, content));
                }
                Err(error) => {
                    let change = batch.iter().find(|change| change.location == location).unwrap_or(&batch[0]);
                    return Err(self.refused(change, error));
                }
            }
        }
        let present = |location: &Location| {
            known.get(location).cloned().unwrap_or_else(|| Content::of(&location.read(self.host)))
        };
        let olds: Vec<Content> = batch.iter().map(|change| present(&change.location)).collect();
        let writes = batch
            .iter()
            .zip(&olds)
            .map(|(change, old)| (change.location.clone(), old.clone(), Content::Text(change.new.clone())))
            .collect();
        if let Err(error) = self.journal.announce(was, writes) {
            return Err(ApplyError::Journal { error, restoration: Box::new(self.put_back()) });
        }
        known.retain(|location, _| !disturbed.contains(location));
        for change in batch {
            if let Err(error) = change.location.write(self.host, change.new.as_bytes()) {
                return Err(self.refused(change, error));
            }
        }
        let expected: Vec<Expected<'_>> = batch
            .iter()
            .zip(&olds)
            .map(|(change, old)| Expected { location: &change.location, old, new: &change.new })
            .collect();
        let found = settle(self.host, &expected);
        Ok(batch
            .iter()
            .zip(&olds)
            .zip(found)
            .map(|((change, old), found)| Made {
                change: Change { old: Some(old.to_string()), ..change.clone() },
                outcome: match found {
                    Found::Held => Outcome::Applied,
                    Found::Other(content) => Outcome::Clamped(content.to_string()),
                },
            })
            .collect())
    }

    /// What a location holds, to bring it back. An attribute that cannot be read is remembered as that: its CPU is offline, or
    /// it has no readable form. A setting of Speed Select has one always, so that a call that failed is tried again,
    /// and one that fails for good must not be followed by a write that nobody could undo.
    fn remember(
        &self,
        location: &Location,
        known: &HashMap<Location, Content>,
    ) -> Result<Content, HostError> {
        let has_to_be_readable = matches!(location, Location::SpeedSelect(_));
        if let Some(content) = known.get(location)
            && !(has_to_be_readable && matches!(content, Content::Unreadable(_)))
        {
            return Ok(content.clone());
        }
        let mut read = location.read(self.host);
        if !has_to_be_readable {
            return Ok(Content::of(&read));
        }
        for _ in 0..2 {
            if read.is_ok() {
                break;
            }
            self.host.sleep(Duration::from_millis(5));
            read = location.read(self.host);
        }
        read.map(|bytes| Content::bytes(&bytes))
    }

    fn refused(&mut self, change: &Change, error: HostError) -> ApplyError {
        let reason = reasons::reason(self.host, &change.location, &error);
        let restoration = Box::new(self.put_back());
        ApplyError::Refused { change: Box::new(change.clone()), error, reason, restoration }
    }

    /// Writes files that need not all take it (interrupts of per-CPU devices refuse to move): journaled and put back
    /// like every change, but a refusal is an answer and undoes nothing. Gives the refused ones with their errors.
    ///
    /// # Errors
    /// The journal cannot be written; then nothing was, and everything has been put back.
    pub fn offer(&mut self, writes: &[(Location, String)]) -> Result<Vec<(Location, HostError)>, ApplyError> {
        let locations: BTreeSet<Location> = writes.iter().map(|(location, _)| location.clone()).collect();
        let content = |location: &Location| Content::of(&location.read(self.host));
        let was = self
            .journal
            .unknown(&locations)
            .into_iter()
            .map(|location| (location.clone(), content(&location)))
            .collect();
        let announced = writes
            .iter()
            .map(|(location, new)| (location.clone(), content(location), Content::Text(new.clone())))
            .collect();
        if let Err(error) = self.journal.announce(was, announced) {
            return Err(ApplyError::Journal { error, restoration: Box::new(self.put_back()) });
        }
        let mut refused = Vec::new();
        for (location, new) in writes {
            if let Err(error) = location.write(self.host, new.as_bytes()) {
                refused.push((location.clone(), error));
            }
        }
        Ok(refused)
    }

    /// Writes one location to see what the kernel makes of it: journaled with all that it disturbs, read back, and put
    /// back with the rest when the hold ends. Whatever the kernel answers is an answer.
    ///
    /// # Errors
    /// The journal cannot be written; then nothing was, and everything has been put back.
    pub fn probe(&mut self, location: &Location, new: &str) -> Result<Probed, ApplyError> {
        let content = |location: &Location| Content::of(&location.read(self.host));
        let disturbed = Footprints::new(self.host).of(location);
        let was = self
            .journal
            .unknown(&disturbed)
            .into_iter()
            .map(|location| (location.clone(), content(&location)))
            .collect();
        let old = content(location);
        let announced = vec![(location.clone(), old.clone(), Content::Text(new.to_owned()))];
        if let Err(error) = self.journal.announce(was, announced) {
            return Err(ApplyError::Journal { error, restoration: Box::new(self.put_back()) });
        }
        if let Err(error) = location.write(self.host, new.as_bytes()) {
            return Ok(Probed::Refused(error));
        }
        let found = settle(self.host, &[Expected { location, old: &old, new }]);
        Ok(match found.into_iter().next() {
            Some(Found::Other(content)) => Probed::Reads(content.to_string()),
            _ => Probed::Held,
        })
    }

    fn goals(&self) -> Goals {
        Contents::goals(self.journal.contents().entries.iter().filter(|entry| entry.id == self.id))
    }

    /// Puts everything back to what it was when the hold began, and goes on holding: before the next arm of a
    /// comparison. With a floor, back to that.
    pub fn put_back(&mut self) -> Restoration {
        let mut goals = self.goals();
        if let Some(floor) = &self.floor {
            for (location, content) in floor {
                goals.content.insert(location.clone(), content.clone());
            }
        }
        put_back(self.host, &goals)
    }

    /// What has been written until now stays until the hold ends: [`Hold::put_back`], and whatever goes wrong in a
    /// later [`Hold::apply`], goes back to this moment only. The journal does not know of floors: [`Hold::end`], a
    /// guardian and `flyball restore` put everything back.
    pub fn set_floor(&mut self) {
        let locations = self.goals().content.into_keys();
        let floor =
            locations.map(|location| (location.clone(), Content::of(&location.read(self.host)))).collect();
        self.floor = Some(floor);
    }

    /// The settings are to stay. `flyball restore` can still bring back what was.
    ///
    /// # Errors
    /// The journal cannot be written; then everything has been put back.
    pub fn keep(mut self) -> Result<(), JournalError> {
        self.journal.commit(self.id)?;
        self.open = false;
        self.dismiss();
        Ok(())
    }

    /// Puts everything back and gives the machine up.
    pub fn end(mut self) -> Restoration {
        self.close()
    }

    fn close(&mut self) -> Restoration {
        self.floor = None;
        let restoration = self.put_back();
        self.open = false;
        // What could not be put back stays in the journal, for `flyball restore` to try again.
        if restoration.is_exact() {
            let _ = self.journal.restored(&[self.id]);
        }
        self.dismiss();
        restoration
    }

    fn dismiss(&mut self) {
        if let Some(guardian) = self.guardian.take() {
            guardian.dismiss();
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if self.open {
            self.close();
        }
    }
}

/// Which transactions `restore` undoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All of this boot: back to before flyball's first write.
    All,
    /// The last one only.
    Last,
    /// The one that was left open, if one was: what a guardian undoes. Settings that were meant to stay are not its.
    Open,
}

impl Scope {
    /// The transactions of a journal that it is about, oldest first.
    pub fn of(self, contents: &Contents) -> Vec<&Entry> {
        match self {
            Scope::All => contents.pending().collect(),
            Scope::Last => contents.pending().next_back().into_iter().collect(),
            Scope::Open => contents.interrupted().into_iter().collect(),
        }
    }
}

/// What `restore` did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Restored {
    /// The transactions that were undone, oldest first.
    pub undone: Vec<Entry>,
    /// What was put back.
    pub restoration: Restoration,
    /// What else there is to know: a journal of an earlier boot, damaged lines.
    pub notes: Vec<String>,
}

/// Puts back what the journal remembers.
///
/// # Errors
/// The machine is held by another, or the journal cannot be used.
pub fn restore(
    host: &dyn Host,
    state: &StateDir,
    command: &str,
    scope: Scope,
) -> Result<Restored, HoldError> {
    let _lock = state.lock(command)?;
    restore_locked(host, state, scope).map_err(HoldError::Journal)
}

/// Forgets these transactions without putting anything back: for settings whose device or driver is gone for good, which
/// would keep them from ever being undone as a whole.
///
/// # Errors
/// As [`restore`].
pub fn forget(host: &dyn Host, state: &StateDir, command: &str, entries: &[Entry]) -> Result<(), HoldError> {
    let _lock = state.lock(command)?;
    let (mut journal, _) = Journal::open(state, &host.name(), boot_id(host).as_deref())?;
    Ok(journal.restored(&entries.iter().map(|entry| entry.id).collect::<Vec<_>>())?)
}

/// [`restore`] for whoever already holds the lock: the guardian.
pub(crate) fn restore_locked(
    host: &dyn Host,
    state: &StateDir,
    scope: Scope,
) -> Result<Restored, JournalError> {
    let mut notes = Vec::new();
    if Journal::load(state)?.is_none() {
        return Ok(Restored { undone: Vec::new(), restoration: Restoration::default(), notes });
    }
    let (mut journal, aside) = Journal::open(state, &host.name(), boot_id(host).as_deref())?;
    notes.extend(aside);
    let contents = journal.contents();
    if !contents.damaged.is_empty() {
        notes.push(format!(
            "the journal {} is damaged in {} of its lines; what they held cannot be put back",
            journal.path().display(),
            contents.damaged.len()
        ));
    }
    let undone: Vec<Entry> = scope.of(contents).into_iter().cloned().collect();
    let restoration = put_back(host, &Contents::goals(undone.iter()));
    if restoration.is_exact() {
        journal.restored(&undone.iter().map(|entry| entry.id).collect::<Vec<_>>())?;
    }
    Ok(Restored { undone, restoration, notes })
}
