//! The transaction around every change of a machine.
//!
//! A [`Transaction`] has the machine's lock and one open transaction in its journal. Whatever
//! happens to it (an error, an interrupt, a panic, being dropped), its changes are restored, unless
//! [`Transaction::keep`] keeps them. If the process is killed, `flyball restore` or the guardian
//! restores them from the journal.

mod others;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    process::Command,
    time::Duration,
};

use flyball_host::{Errno, Host, HostError, Op};

pub use self::others::HeldContents;
use super::{
    footprint::{Footprint, Footprints},
    guardian::Guardian,
    journal::{Announced, Contents, EarlierBoot, Entry, Goals, Journal, JournalError, Purpose},
    reasons::reason,
    restore::{Restoration, restore_goals},
    settle::{Expected, Settled, settle},
    state::{Lock, StateDir},
    undo::release_entries,
};
pub use super::{
    outcome::{Applied, AppliedChange, ApplyError, Outcome, ProbeOutcome, RefusedChange, TransactionError},
    undo::{Restored, Scope, boot_id, forget, release_unrecorded, restore, restore_locked},
};
use crate::{
    Content, Id, Location, Snapshot,
    intent::Intent,
    knob::{order::Step, spelling::Handling, subject::Subject},
    plan::{Change, Plan, PlanError, plan_and_choice},
};

/// A machine that is being changed.
pub struct Transaction<'h> {
    host: &'h dyn Host,
    // Dropped in this order: the guardian is stopped before the lock is released.
    guardian: Option<Guardian>,
    journal: Journal,
    lock: Lock,
    id: u32,
    open: bool,
    earlier_boot: Option<EarlierBoot>,
    /// Contents of the locations journaled so far, read by [`Transaction::set_baseline`].
    baseline: Option<BTreeMap<Location, Content>>,
    /// Locations written since the last [`Transaction::restore`].
    written: BTreeSet<Location>,
}

/// A plan, the intent that it carries out, and the contents that it was made from.
pub type Planned = ((Plan, Intent), HashMap<Location, Content>);

/// A write that is to be journaled.
#[derive(Debug, Clone, Copy)]
struct Write<'a> {
    location: &'a Location,
    subject: Subject,
    new: &'a str,
}

impl<'a> From<&'a Change> for Write<'a> {
    fn from(change: &'a Change) -> Write<'a> {
        Write { location: &change.location, subject: Subject::Knob(change.knob), new: &change.new }
    }
}

impl<'a> Write<'a> {
    fn expected(&self, old: &'a Content) -> Option<Expected<'a>> {
        let spelling = self.subject.writing()?.spelling;
        Some(Expected { location: self.location, spelling, old, new: self.new })
    }
}

/// The locations to save before a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JournalScope {
    /// The locations written.
    Location,
    /// All locations that the writes disturb, according to their rows in the table.
    Footprint,
}

/// How applying an intent continues after the kernel has refused a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnRefusal {
    /// Restore everything.
    Undo,
    /// Make the other writes. Plan the refused ones again and retry them once: another program may
    /// have written between the plan and the write.
    Continue,
}

impl OnRefusal {
    /// Returns whether to skip a write that failed with this errno. Without the right to write,
    /// every write would fail, so skipping is pointless.
    fn tolerates(self, errno: Errno) -> bool {
        self == OnRefusal::Continue && !matches!(errno, Errno::ROFS | Errno::ACCES | Errno::PERM)
    }
}

/// Why writes could not be journaled in advance. They must not be made then.
enum AnnounceError {
    Journal(JournalError),
    Unreadable(Location, HostError),
}

/// Returns the error for a location without a row in the table: it could not be restored in the
/// right order.
fn unknown_location(location: &Location) -> HostError {
    HostError::new(Op::Write, location.to_text(), Errno::INVAL)
}

impl<'h> Transaction<'h> {
    /// Locks the machine and begins a transaction. `command` is the user's command line, for the
    /// lock and the journal. If `guardian` is given, starts that command first: a process that
    /// restores the settings as soon as this process dies (see [`super::guardian`]).
    ///
    /// # Errors
    /// Another process holds the machine, an earlier transaction is open, or the state directory
    /// cannot be used.
    pub fn begin(
        host: &'h dyn Host,
        state: &StateDir,
        purpose: Purpose,
        command: &str,
        guardian: Option<Command>,
    ) -> Result<Transaction<'h>, TransactionError> {
        let lock = state.lock(command)?;
        let (mut journal, earlier_boot) = Journal::open(state, &host.name(), boot_id(host).as_deref())?;
        // Before the guardian, which restores the journal's open transaction.
        let id = journal.begin(purpose, command)?;
        let guardian = match guardian.map(|command| Guardian::start(command, &lock)).transpose() {
            Ok(guardian) => guardian,
            Err(error) => {
                // Nothing was written yet: the transaction must not look like one that was
                // interrupted.
                journal.restored(&[id])?;
                return Err(TransactionError::Guardian(error));
            }
        };
        Ok(Transaction {
            host,
            guardian,
            journal,
            lock,
            id,
            open: true,
            earlier_boot,
            baseline: None,
            written: BTreeSet::new(),
        })
    }

    /// Begins a transaction for these holds. The caller has the lock. The settings of an earlier
    /// transaction that was killed stay, since the holds want them.
    pub fn begin_holds(
        host: &'h dyn Host,
        state: &StateDir,
        lock: Lock,
        command: &str,
        holds: &[String],
    ) -> Result<Transaction<'h>, TransactionError> {
        let (mut journal, earlier_boot) = Journal::open(state, &host.name(), boot_id(host).as_deref())?;
        journal.adopt()?;
        let id = journal.begin_for(Purpose::Hold, command, holds)?;
        let (guardian, baseline, written) = (None, None, BTreeSet::new());
        Ok(Transaction { host, guardian, journal, lock, id, open: true, earlier_boot, baseline, written })
    }

    /// Restores the settings of earlier hold transactions that no hold sets any more: all except
    /// `kept`. A setting that depends on a kept one (a preference under a governor that is still
    /// held) is left to the kernel.
    ///
    /// # Errors
    /// The journal cannot be written. The next call then repeats the restoration.
    pub fn release_except(&mut self, kept: &BTreeSet<Location>) -> Result<Restoration, TransactionError> {
        let mut entries: Vec<Entry> = self.journal.contents().hold_entries();
        entries.retain(|entry| entry.id != self.id);
        let (released, restoration) = release_entries(self.host, self.journal.contents(), &entries, kept);
        self.journal.release(released).map_err(|error| TransactionError::after(error, &restoration))?;
        Ok(restoration)
    }

    /// Saves the contents of these locations, which holds want, unless an earlier hold transaction
    /// has saved them. Perhaps nothing has to be written now, but a release restores this state.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn save_kept(&mut self, kept: &BTreeSet<Location>) -> Result<(), JournalError> {
        let entries = self.journal.contents().hold_entries();
        let is_known =
            |location: &&Location| entries.iter().any(|entry| entry.first_old.contains_key(*location));
        let (mut was, mut announced) = (Vec::new(), Vec::new());
        for location in kept.iter().filter(|location| !is_known(location)) {
            let content = Content::from_read(&location.read(self.host));
            let handling =
                Subject::from_location(location).and_then(|subject| subject.handling(content.trimmed()));
            // A location that cannot be read now is remembered when it is written.
            let Some(handling) = handling.filter(|_| !matches!(content, Content::Unreadable(_))) else {
                continue;
            };
            let (location, new) = (location.clone(), content.trimmed().to_owned());
            was.push((location.clone(), content.clone(), handling));
            announced.push(Announced { location, old: content, new, handling, kept: true });
        }
        if announced.is_empty() { Ok(()) } else { self.journal.announce(was, announced) }
    }

    /// Leaves these locations to another writer from now on: no hold restores them.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn yield_to_others(&mut self, locations: Vec<Location>) -> Result<(), JournalError> {
        self.journal.release(locations)
    }

    /// Keeps the settings of holds. `flyball hold release` and `flyball restore` restore the
    /// earlier values.
    ///
    /// # Errors
    /// The journal cannot be written; then this transaction has been restored.
    pub fn keep_held(mut self) -> Result<(), JournalError> {
        self.journal.commit_hold(self.id)?;
        self.open = false;
        Ok(())
    }

    /// Returns the journal of an earlier boot, if one was found and set aside.
    pub fn notes(&self) -> &[EarlierBoot] {
        self.earlier_boot.as_slice()
    }

    /// Returns the lock, to share with a child.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Applies an intent to the machine as it is now, and returns the outcome of every change. If
    /// that fails, or `interrupted` returns true between two groups of writes, everything since the
    /// transaction began is restored.
    pub fn apply(&mut self, intent: &Intent, interrupted: &dyn Fn() -> bool) -> Result<Applied, ApplyError> {
        self.apply_planned(intent, None, OnRefusal::Undo, interrupted)
    }

    /// Does what [`apply`](Self::apply) does, beginning with a plan that was made under this
    /// transaction's lock, if it has written nothing since.
    pub fn apply_planned(
        &mut self,
        intent: &Intent,
        mut planned: Option<Planned>,
        on_refusal: OnRefusal,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Applied, ApplyError> {
        let mut applied = Applied::default();
        let mut done: BTreeMap<Location, String> = BTreeMap::new();
        // Changes that wait for the next plan.
        let mut rest: Vec<Change> = Vec::new();
        let (mut first, mut has_retried) = (true, false);
        let mut intent = intent.clone();
        let continues = on_refusal == OnRefusal::Continue;
        loop {
            if !applied.made.is_empty() {
                // A limit moved by these writes may show its old value until a kernel worker has
                // run. The next snapshot decides whether everything took effect.
                self.host.sleep(Duration::from_millis(5));
            }
            let fresh = match planned.take() {
                Some(planned) => Ok(planned),
                // Another program may have written during the first snapshot.
                None if continues => self.look(&intent).or_else(|_| self.look(&intent)),
                None => self.look(&intent),
            };
            let ((Plan { changes, notes, .. }, chosen), mut known) = match fresh {
                Ok(fresh) => fresh,
                // Nothing was written yet, so there is no restoration to report.
                Err(error) if first => return Err(ApplyError::Plan(error)),
                Err(error) if continues => {
                    applied.refuse(rest, &error);
                    break;
                }
                Err(error) => {
                    let not_held = applied.clamped().cloned().collect();
                    let restoration = Box::new(self.restore());
                    return Err(ApplyError::Replan { error, not_held, restoration });
                }
            };
            // A skipped setting stays skipped, even if the writes make it possible. Settings that
            // the writes make impossible are skipped too.
            intent = chosen;
            applied.notes.extend(notes.into_iter().filter(|note| first || note.is_choice()));
            if first {
                applied.not_needed = changes.iter().filter(|change| change.provisional).cloned().collect();
            }
            first = false;
            // A change that was written once is not written again: the kernel clamped it, or spells
            // it in its own way.
            let (written, changes): (Vec<Change>, Vec<Change>) =
                changes.into_iter().partition(|change| done.get(&change.location) == Some(&change.new));
            let is_left_out = |change: &Change| applied.was_refused(&change.location);
            let changes: Vec<Change> = changes.into_iter().filter(|change| !is_left_out(change)).collect();
            let Some(step) = changes.first().map(|change| change.step) else {
                if !applied.refused.is_empty() && !std::mem::replace(&mut has_retried, true) {
                    // Repeat all writes: another program may have overwritten a setting that these
                    // need.
                    rest.extend(applied.refused.drain(..).map(|refused| refused.change));
                    done.clear();
                    continue;
                }
                applied.compare(&written);
                break;
            };
            // Each step up to the governor changes what later steps are checked against, so those
            // are planned again. Steps after the governor do not, so one plan serves for all of
            // them.
            let group: Vec<Change> = if step <= Step::Governor {
                let group;
                (group, rest) = changes.into_iter().partition(|change| change.step == step);
                group
            } else {
                rest.clear();
                changes
            };
            // One flush of the journal per step, not per write: hundreds of policies would take
            // seconds.
            for batch in group.chunk_by(|a, b| a.step == b.step) {
                if interrupted() {
                    return Err(ApplyError::Interrupted { restoration: Box::new(self.restore()) });
                }
                // `write` does not see earlier rounds. Settings that did not take effect there may
                // be why this write failed.
                let (made, refused) =
                    self.write(batch, &mut known, on_refusal).map_err(|error| match error {
                        ApplyError::Refused { change, error, reason, restoration, .. } => {
                            let not_held = applied.clamped().cloned().collect();
                            ApplyError::Refused { change, error, reason, not_held, restoration }
                        }
                        other => other,
                    })?;
                done.extend(made.iter().map(|made| (made.change.location.clone(), made.change.new.clone())));
                if has_retried {
                    applied.forget(&made);
                }
                applied.made.extend(made);
                applied.refused.extend(refused);
            }
        }
        // A setting skipped in a later round has no value at all, even if the first plan found it
        // already in effect.
        let is_asked_for =
            |change: &Change| intent.settings.iter().any(|setting| setting.from == change.from);
        applied.not_needed.retain(|change| !done.contains_key(&change.location) && is_asked_for(change));
        applied.intent = intent;
        Ok(applied)
    }

    /// Plans an intent on the machine as it is now.
    fn look(&self, intent: &Intent) -> Result<Planned, PlanError> {
        let snapshot = Snapshot::for_intent(self.host, intent).map_err(PlanError::Read)?;
        Ok((plan_and_choice(&snapshot, intent)?, snapshot.into_contents()))
    }

    /// Makes the changes of one step: saves what they disturb, journals, writes, reads back.
    ///
    /// `known` is what this round's snapshot read, under the lock that is still held. It counts as
    /// the present content until a write may have changed it: disturbed locations are removed from
    /// it, and read again when needed.
    fn write(
        &mut self,
        batch: &[Change],
        known: &mut HashMap<Location, Content>,
        on_refusal: OnRefusal,
    ) -> Result<(Vec<AppliedChange>, Vec<RefusedChange>), ApplyError> {
        let mut refused = Vec::new();
        let mut batch: Vec<&Change> = batch.iter().collect();
        let olds = loop {
            let writes: Vec<Write<'_>> = batch.iter().map(|change| Write::from(*change)).collect();
            match self.announce(&writes, JournalScope::Footprint, known) {
                Ok(olds) => break olds,
                Err(AnnounceError::Journal(error)) => return Err(self.not_announced(error)),
                Err(AnnounceError::Unreadable(location, error)) => {
                    // The location may be one that the batch only disturbs.
                    match batch.iter().position(|change| change.location == location) {
                        Some(index) if on_refusal.tolerates(error.errno) => {
                            refused.push(self.left_out(batch.remove(index), &error));
                        }
                        index => return Err(self.refused(batch[index.unwrap_or(0)], error)),
                    }
                }
            }
        };
        let mut written: Vec<(&Change, &Content)> = Vec::with_capacity(batch.len());
        for (change, old) in batch.into_iter().zip(&olds) {
            let mut contents = change.through.iter().chain([&change.new]);
            match contents.try_for_each(|content| change.location.write(self.host, content.as_bytes())) {
                Ok(()) => {
                    self.written.insert(change.location.clone());
                    written.push((change, old));
                }
                Err(error) if on_refusal.tolerates(error.errno) => {
                    refused.push(self.left_out(change, &error));
                }
                Err(error) => return Err(self.refused(change, error)),
            }
        }
        let writes: Vec<Write<'_>> = written.iter().map(|(change, _)| Write::from(*change)).collect();
        let expected: Vec<Expected<'_>> =
            writes.iter().zip(&written).filter_map(|(write, (_, old))| write.expected(old)).collect();
        let found = settle(self.host, &expected);
        let made = written.into_iter().zip(found).map(|((change, old), found)| AppliedChange {
            change: Change { old: Some(old.to_string()), ..change.clone() },
            outcome: match found {
                Settled::Held => Outcome::Applied,
                Settled::Other(content) if change.shown_as == Some(content.trimmed()) => Outcome::Applied,
                // A value that never moved was not clamped: the kernel has dropped the write.
                Settled::Other(content) if content == *old => Outcome::Lost(content.to_string()),
                Settled::Other(content) => Outcome::Clamped(content.to_string()),
            },
        });
        Ok((made.collect(), refused))
    }

    /// Journals writes before they are made, with everything that they may change. Returns the
    /// present content of each location, and drops from `known` what may change.
    fn announce(
        &mut self,
        writes: &[Write<'_>],
        reach: JournalScope,
        known: &mut HashMap<Location, Content>,
    ) -> Result<Vec<Content>, AnnounceError> {
        let mut footprints = Footprints::new(self.host);
        let mut footprint: Footprint =
            writes.iter().map(|write| (write.location.clone(), write.subject)).collect();
        if reach == JournalScope::Footprint {
            for write in writes {
                footprints.add(write.location, write.subject);
            }
            footprint.extend(footprints.found());
        }
        let written: BTreeSet<&Location> = writes.iter().map(|write| write.location).collect();
        // Save only locations that this transaction has not saved yet: a second read might find its
        // own writes.
        let mut was = self.remember(self.journal.unknown(&footprint), &written, known)?;
        if writes.iter().any(|write| matches!(write.subject, Subject::Knob(Id::DriverMode))) {
            was.extend(self.hidden(&footprint));
        }
        let mut olds = Vec::with_capacity(writes.len());
        let mut announced = Vec::with_capacity(writes.len());
        for write in writes {
            let old = match known.get(write.location) {
                Some(content) => content.clone(),
                None => Content::from_read(&write.location.read(self.host)),
            };
            if let Some(handling) = write.subject.handling(old.trimmed()) {
                let (location, new) = (write.location.clone(), write.new.to_owned());
                announced.push(Announced { location, old: old.clone(), new, handling, kept: false });
            }
            olds.push(old);
        }
        self.journal.announce(was, announced).map_err(AnnounceError::Journal)?;
        // The writes that follow may change any of these locations, so forget what was read.
        known.retain(|location, _| !footprint.contains_key(location));
        Ok(olds)
    }

    /// Returns contents that this transaction has read and that an offline CPU hides now: the
    /// transaction had brought the CPU online, and a restore took it offline again.
    fn hidden(&self, footprint: &Footprint) -> Vec<(Location, Content, Handling)> {
        let own = self.journal.contents().entries.iter().filter(|entry| entry.id == self.id);
        let known = own.flat_map(|entry| &entry.was);
        known
            .filter(|(location, memory)| {
                footprint.contains_key(*location) && !memory.content.is_out_of_reach()
            })
            .filter_map(|(location, memory)| {
                let now = Content::from_read(&location.read(self.host));
                now.is_busy().then(|| (location.clone(), now, memory.handling))
            })
            .collect()
    }

    /// Reads the contents of locations, for restoring them. A location to be written must be
    /// readable, since a write over an unknown value could not be undone. A setting of Speed Select
    /// can always be read, so a failed call is retried. A location that is only disturbed and stays
    /// unreadable is remembered as such: its CPU is offline, or the attribute has no readable form.
    fn remember(
        &self,
        unknown: Vec<(Location, Subject)>,
        written: &BTreeSet<&Location>,
        known: &mut HashMap<Location, Content>,
    ) -> Result<Vec<(Location, Content, Handling)>, AnnounceError> {
        const ATTEMPTS: usize = 4;
        let mut contents: HashMap<Location, Content> = HashMap::with_capacity(unknown.len());
        let mut failed: Vec<(&Location, Subject, HostError)> = Vec::new();
        for (location, subject) in &unknown {
            match known.remove(location) {
                Some(content) if !matches!(content, Content::Unreadable(_)) => {
                    contents.insert(location.clone(), content);
                }
                _ => match location.read(self.host) {
                    Ok(bytes) => _ = contents.insert(location.clone(), Content::bytes(&bytes)),
                    Err(error) => failed.push((location, *subject, error)),
                },
            }
        }
        // Retry all of them together, so that hundreds of offline CPUs share a few pauses.
        for _ in 1..ATTEMPTS {
            if failed.is_empty() {
                break;
            }
            self.host.sleep(Duration::from_millis(3));
            failed.retain_mut(|(location, _, error)| match location.read(self.host) {
                Ok(bytes) => {
                    contents.insert((*location).clone(), Content::bytes(&bytes));
                    false
                }
                Err(again) => {
                    *error = again;
                    true
                }
            });
        }
        for (location, subject, error) in failed {
            let content = Content::Unreadable(error.errno.0);
            let spelling = subject.writing().map(|writing| writing.spelling);
            let can_be_restored = spelling.is_some_and(|spelling| spelling.writable(&content).is_some());
            let must_be_known = written.contains(location) || matches!(location, Location::SpeedSelect(_));
            if must_be_known && !can_be_restored {
                return Err(AnnounceError::Unreadable(location.clone(), error));
            }
            contents.insert(location.clone(), content);
        }
        let mut was = Vec::with_capacity(unknown.len());
        for (location, subject) in unknown {
            let Some(content) = contents.remove(&location) else { continue };
            // A fact is never in a footprint: the table's test sees to that.
            let Some(handling) = subject.handling(content.trimmed()) else { continue };
            known.insert(location.clone(), content.clone());
            was.push((location, content, handling));
        }
        Ok(was)
    }

    /// Records that the kernel refused a driver's mode and removed nothing. A driver that fails
    /// after it removed its policies reads "disable" or "off". If the record cannot be written, the
    /// policies' settings still count as lost.
    fn note_refused_mode(&mut self, change: &Change) {
        let is_as_before =
            || change.old.as_deref() == Some(Content::from_read(&change.location.read(self.host)).trimmed());
        if change.step == Step::DriverMode && is_as_before() {
            let _ = self.journal.refused(&change.location);
        }
    }

    fn left_out(&mut self, change: &Change, error: &HostError) -> RefusedChange {
        self.note_refused_mode(change);
        let reason = reason(self.host, &change.location, Some(Subject::Knob(change.knob)), error);
        // Without the path, so that the same refusal on many CPUs is one text.
        let errno = error.errno;
        let why = match reason {
            Some(reason) => format!("{reason} ({errno})"),
            None => format!("{} ({errno})", errno.describe()),
        };
        RefusedChange { change: change.clone(), why }
    }

    fn refused(&mut self, change: &Change, error: HostError) -> ApplyError {
        self.note_refused_mode(change);
        let reason = reason(self.host, &change.location, Some(Subject::Knob(change.knob)), &error);
        let restoration = Box::new(self.restore());
        let not_held = Vec::new();
        ApplyError::Refused { change: Box::new(change.clone()), error, reason, not_held, restoration }
    }

    fn not_announced(&mut self, error: JournalError) -> ApplyError {
        ApplyError::Journal { error, restoration: Box::new(self.restore()) }
    }

    /// Writes files of which some may refuse (interrupts of per-CPU devices refuse to move). The
    /// writes are journaled and restored like every change, but a refusal undoes nothing. Returns
    /// the refused locations with their errors.
    ///
    /// # Errors
    /// The journal cannot be written. Then these files are unchanged, and everything has been
    /// restored.
    pub fn try_writes(
        &mut self,
        writes: &[(Location, String)],
    ) -> Result<Vec<(Location, HostError)>, ApplyError> {
        let mut refused = Vec::new();
        let mut accepted = Vec::new();
        for (location, new) in writes {
            // A location that cannot be read could not be restored.
            match (Subject::from_location(location), location.read(self.host)) {
                (Some(subject), Ok(_)) => accepted.push(Write { location, subject, new }),
                (_, Err(error)) => refused.push((location.clone(), error)),
                (None, Ok(_)) => refused.push((location.clone(), unknown_location(location))),
            }
        }
        match self.announce(&accepted, JournalScope::Location, &mut HashMap::new()) {
            Ok(_) => {}
            Err(AnnounceError::Journal(error)) => return Err(self.not_announced(error)),
            Err(AnnounceError::Unreadable(location, error)) => {
                refused.push((location, error));
                return Ok(refused);
            }
        }
        for write in accepted {
            if let Err(error) = write.location.write(self.host, write.new.as_bytes()) {
                refused.push((write.location.clone(), error));
            }
        }
        Ok(refused)
    }

    /// Writes one location to see how the kernel reacts. Everything that the write disturbs is
    /// journaled, and restored when the transaction ends. A refusal is a result, not an error.
    ///
    /// # Errors
    /// The journal cannot be written. Then this location is unchanged, and everything has been
    /// restored.
    pub fn probe(&mut self, location: &Location, new: &str) -> Result<ProbeOutcome, ApplyError> {
        let Some(subject) = Subject::from_location(location) else {
            return Ok(ProbeOutcome::Refused(unknown_location(location)));
        };
        let write = Write { location, subject, new };
        let olds = match self.announce(&[write], JournalScope::Footprint, &mut HashMap::new()) {
            Ok(olds) => olds,
            Err(AnnounceError::Journal(error)) => return Err(self.not_announced(error)),
            // A location that cannot be read could not be restored, so it is not tried.
            Err(AnnounceError::Unreadable(_, error)) => return Ok(ProbeOutcome::Refused(error)),
        };
        if let Err(error) = location.write(self.host, new.as_bytes()) {
            return Ok(ProbeOutcome::Refused(error));
        }
        let expected: Vec<_> = olds.first().and_then(|old| write.expected(old)).into_iter().collect();
        let found = settle(self.host, &expected);
        Ok(match found.into_iter().next() {
            Some(Settled::Other(content)) => ProbeOutcome::Reads(content.to_string()),
            _ => ProbeOutcome::Held,
        })
    }

    fn goals(&self) -> Goals {
        Contents::goals(self.journal.contents().entries.iter().filter(|entry| entry.id == self.id))
    }

    /// Restores the state at the beginning of the transaction, or the baseline if there is one, and
    /// keeps the lock. A comparison does this before each arm.
    pub fn restore(&mut self) -> Restoration {
        let mut goals = self.goals();
        for (location, content) in self.baseline.iter().flatten() {
            if let (Some(goal), Some(subject)) = (goals.0.get_mut(location), Subject::from_location(location))
            {
                // The step depends on the content: a CPU that was online at the baseline is
                // restored by going online.
                goal.handling = subject.handling(content.trimmed()).unwrap_or(goal.handling);
                goal.was = content.clone();
            }
        }
        let made = std::mem::take(&mut self.written).len();
        Restoration { made, ..restore_goals(self.host, &goals) }
    }

    /// Makes the present state the baseline. [`Transaction::restore`], and whatever goes wrong in a
    /// later [`Transaction::apply`], go back only to this moment. The journal does not store the
    /// baseline: [`Transaction::end`], a guardian and `flyball restore` restore everything.
    pub fn set_baseline(&mut self) {
        let locations = self.goals().0.into_keys();
        // Read the contents: they may differ from the bytes that were written.
        let baseline = locations
            .map(|location| (location.clone(), Content::from_read(&location.read(self.host))))
            .collect();
        self.baseline = Some(baseline);
    }

    /// Keeps the settings. `flyball restore` can still restore the earlier values.
    ///
    /// # Errors
    /// The journal cannot be written; then everything has been restored.
    pub fn keep(mut self) -> Result<(), JournalError> {
        self.journal.commit(self.id)?;
        self.open = false;
        self.stop_guardian();
        Ok(())
    }

    /// Restores everything and releases the machine.
    pub fn end(mut self) -> Restoration {
        self.close()
    }

    fn close(&mut self) -> Restoration {
        // When the transaction ends, restore what the journal saved, not the baseline.
        self.baseline = None;
        let restoration = self.restore();
        self.open = false;
        // Settings that could not be restored stay in the journal as kept ones. Other commands can
        // then continue, and `flyball restore` can try again. If an exact restore cannot be
        // recorded, the next one finds nothing to do and removes the entry.
        let _ = if restoration.is_exact() {
            self.journal.restored(&[self.id])
        } else {
            self.journal.commit(self.id)
        };
        self.stop_guardian();
        restoration
    }

    fn stop_guardian(&mut self) {
        if let Some(guardian) = self.guardian.take() {
            guardian.stop();
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.open {
            self.close();
        }
    }
}
