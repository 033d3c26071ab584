//! Applies the holds to a machine, in one transaction: restores settings that no hold sets any
//! more, plans the others, and writes those that differ.

use std::collections::BTreeSet;

use flyball_control::{
    Content, Id, Intent, Location, ReadError, Setting, Snapshot,
    knob::subject::Subject,
    plan::{Plan, PlanError, plan, plan_and_choice, targets},
    write::{
        journal::{Contents, Goal, Journal, JournalError},
        restore::{NotRestored, NotRestoredReason, Restoration},
        state::{Lock, LockError, StateDir},
        transaction::{
            Applied, ApplyError, OnRefusal, Scope, Transaction, TransactionError, boot_id,
            release_unrecorded, restore_locked,
        },
    },
};
use flyball_host::Host;

use crate::{Effective, Exemption, Facts, Hold, LeftBecause, Refused};

/// The result of applying the holds.
#[derive(Debug, Clone, Default)]
pub struct ApplyOutcome {
    /// The settings that were written; `None` if nothing had to be.
    pub applied: Option<Applied>,
    /// The restored settings, which no hold sets any more.
    pub restored: Restoration,
}

impl ApplyOutcome {
    /// Returns the places where the kernel changed the written value or refused the write. They are
    /// not written again and again.
    pub fn not_taken(&self, effective: &Effective) -> Vec<Exemption> {
        let clamped = self.applied.iter().flat_map(Applied::clamped);
        let clamped =
            clamped.map(|made| (&made.change, made.outcome.other().map(str::to_owned), LeftBecause::Clamped));
        let refused = self.applied.iter().flat_map(|applied| &applied.refused);
        let refused =
            refused.map(|one| (&one.change, one.change.was.clone(), LeftBecause::Refused(one.why.clone())));
        let left = clamped.chain(refused).filter_map(|(change, found, because)| {
            // A change that no hold requested follows from a requested one (plan/couplings.rs), so
            // its place is not left.
            Some(Exemption {
                hold: effective.hold_of(&change.from)?.clone(),
                knob: change.knob,
                instance: change.instance.clone(),
                cpus: change.cpus.clone(),
                location: change.location.clone(),
                found,
                because,
                cause: None,
                until: None,
            })
        });
        left.collect()
    }
}

/// Why the holds could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum BringError {
    /// The settings are refused, or cannot be read here. Nothing was written.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The journal cannot be used.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// The kernel refused a write. The writes of this attempt have been restored.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl From<JournalError> for BringError {
    fn from(error: JournalError) -> BringError {
        BringError::Transaction(error.into())
    }
}

impl From<ReadError> for BringError {
    fn from(error: ReadError) -> BringError {
        BringError::Plan(error.into())
    }
}

/// Applies `effective`, except for the places in `left`. The caller keeps the lock until it has
/// saved the store. `yielded` are places that belong to another writer from now on.
///
/// # Errors
/// See [`BringError`]. A place that could not be restored is not an error: the result lists it, and
/// the journal keeps it.
pub fn apply_holds(
    host: &dyn Host,
    state: &StateDir,
    lock: &Lock,
    command: &str,
    wanted: (&Effective, &[Exemption]),
    yielded: &[Location],
    on_refusal: OnRefusal,
) -> Result<ApplyOutcome, BringError> {
    bring_except(host, state, lock, command, wanted, (yielded, on_refusal), &BTreeSet::new())
}

/// Does the same as [`apply_holds`], but keeps the present values of the knobs in `unread`. These
/// belong to holds that cannot be planned because the machine cannot be read, so it is unknown
/// which places they set.
fn bring_except(
    host: &dyn Host,
    state: &StateDir,
    lock: &Lock,
    command: &str,
    (effective, left): (&Effective, &[Exemption]),
    (yielded, on_refusal): (&[Location], OnRefusal),
    unread: &BTreeSet<Id>,
) -> Result<ApplyOutcome, BringError> {
    if effective.intent.is_empty() && unread.is_empty() {
        // The last hold is gone, so restore and compare everything that holds have changed or
        // disturbed.
        let restored = restore_locked(host, state, Scope::Holds)?;
        return Ok(ApplyOutcome { applied: None, restored: restored.restoration });
    }
    let (mut kept, mut remembered) = (BTreeSet::new(), BTreeSet::new());
    let (mut wanted, mut planned) = (Intent::default(), None);
    if !effective.intent.is_empty() {
        // Use one snapshot for the wanted, the kept and the differing values: between two snapshots
        // another program may write.
        let snapshot = Snapshot::for_intent(host, &effective.intent)?;
        // Include places that are left to others: restoring them would work against the other
        // writer.
        let targets = targets(&snapshot, &effective.intent)?;
        // Do not save values that belong to another writer.
        remembered = targets
            .iter()
            .filter(|target| target.now.is_some() && !is_yielded(&target.location, left))
            .map(|target| target.location.clone())
            .collect();
        kept = targets.into_iter().map(|target| target.location).collect();
        wanted = effective.without(left, &snapshot);
        if !wanted.is_empty() {
            planned = Some((plan_and_choice(&snapshot, &wanted)?, snapshot.into_contents()));
        }
    }
    let differs = planned.as_ref().is_some_and(|((plan, _), _)| !plan.is_empty());
    let mut unsure = Vec::new();
    let contents = if unread.is_empty() { None } else { Journal::load(state)? };
    let entries = contents.map(|contents| contents.hold_entries()).unwrap_or_default();
    for (location, Goal { was, first_old, .. }) in Contents::goals(entries.iter()).0 {
        let is_unread =
            matches!(Subject::from_location(&location), Some(Subject::Knob(knob)) if unread.contains(&knob));
        if first_old.is_some() && is_unread && kept.insert(location.clone()) {
            let found = Content::from_read(&location.read(host)).trimmed().to_owned();
            let (wanted, because) = (was.trimmed().to_owned(), NotRestoredReason::MayBeHeld);
            unsure.push(NotRestored { location, wanted, found, because, error: None });
        }
    }
    let name_unsure = |mut restored: Restoration| {
        restored.remembered += unsure.len();
        restored.left.extend(unsure);
        restored
    };
    if !differs && yielded.is_empty() && !needs_journal(host, state, &kept, &remembered)? {
        return Ok(ApplyOutcome { applied: None, restored: name_unsure(Restoration::default()) });
    }
    // The journal has the holds' names, so that `flyball restore -n` can show whose settings it
    // would undo.
    let holds: Vec<String> = effective.holds.iter().map(ToString::to_string).collect();
    // The transaction closes its lock when it ends; this second descriptor of the same open file
    // keeps the flock (flock(2)) until the caller has saved the store.
    let lock = lock
        .again()
        .map_err(|error| TransactionError::Lock(LockError::Io { path: state.path().to_owned(), error }))?;
    let mut transaction = match Transaction::begin_holds(host, state, lock, command, &holds) {
        // A release must work without free space.
        Err(TransactionError::Journal(error @ JournalError::Io { .. })) => {
            return Err(release_unrecorded(host, state, &kept, error).into());
        }
        begun => begun?,
    };
    // The order matters. Yielded places must not be restored. Restoring (a governor) resets
    // settings that are written later. Settings must be saved before they are written.
    transaction.yield_to_others(yielded.to_vec())?;
    let restored = transaction.release_except(&kept)?;
    transaction.save_kept(&remembered)?;
    let applied = if wanted.is_empty() {
        None
    } else {
        // Apply the plan that was checked, unless a release has changed its input values. On
        // failure the transaction is dropped, which restores its writes.
        let planned = planned.filter(|_| restored.remembered == 0);
        Some(transaction.apply_planned(&wanted, planned, on_refusal, &|| false)?)
    };
    transaction.keep_held()?;
    Ok(ApplyOutcome { applied, restored: name_unsure(restored) })
}

/// Describes in one sentence the holds that are not in force because the machine refuses them.
pub(crate) fn not_in_force(refused: &[Refused]) -> Option<String> {
    let one = |Refused { hold, why }: &Refused| format!("the hold '{hold}' is not in force: {why}");
    let sentences: Vec<String> = refused.iter().map(one).collect();
    (!sentences.is_empty()).then(|| sentences.join("; "))
}

/// Like [`apply_holds`], but skips and lists holds that the machine refuses, so that the others are
/// in force. If the machine cannot be read, a hold's settings stay. Also returns the overlay that
/// is in force.
///
/// # Errors
/// As [`apply_holds`], except refusals.
pub(crate) fn apply_accepted_holds(
    host: &dyn Host,
    state: &StateDir,
    lock: &Lock,
    command: &str,
    (holds, facts, left): (&[Hold], &Facts, &[Exemption]),
) -> Result<(ApplyOutcome, Effective, Vec<Refused>), BringError> {
    let (mut possible_holds, mut refused, mut unread) = (holds.to_vec(), Vec::new(), BTreeSet::new());
    let mut attempts = 0;
    loop {
        let effective = Effective::new(&possible_holds, facts);
        match bring_except(
            host,
            state,
            lock,
            command,
            (&effective, left),
            (&[], OnRefusal::Continue),
            &unread,
        ) {
            Ok(brought) => return Ok((brought, effective, refused)),
            Err(BringError::Plan(_)) if attempts == 0 => {
                (possible_holds, refused, unread) = possible(host, holds, facts, left);
            }
            // The machine keeps changing. No hold is in force now, because restoring needs no plan.
            Err(BringError::Plan(error)) if attempts == 1 => {
                let why = error.to_string();
                unread.extend(knobs(&possible_holds));
                refused.extend(
                    possible_holds.drain(..).map(|hold| Refused { hold: hold.name, why: why.clone() }),
                );
            }
            Err(error) => return Err(error),
        }
        attempts += 1;
    }
}

fn knobs(holds: &[Hold]) -> impl Iterator<Item = Id> {
    holds.iter().flat_map(|hold| &hold.settings).map(Setting::knob)
}

/// Tries the holds one after the other, the strongest first. Returns those that the machine accepts
/// together, the refused ones, and the knobs of holds that could not be checked because the machine
/// cannot be read.
pub(crate) fn possible(
    host: &dyn Host,
    holds: &[Hold],
    facts: &Facts,
    left: &[Exemption],
) -> (Vec<Hold>, Vec<Refused>, BTreeSet<Id>) {
    let mut possible: Vec<Hold> = Vec::new();
    let (mut refused, mut unread) = (Vec::new(), BTreeSet::new());
    let mut strongest: Vec<&Hold> = holds.iter().rev().collect();
    strongest.sort_by_key(|hold| std::cmp::Reverse(hold.priority));
    for hold in strongest {
        // Keep the order in which they were added, which decides on equal priority.
        let with: Vec<Hold> =
            holds.iter().filter(|other| possible.contains(other) || *other == hold).cloned().collect();
        let effective = Effective::new(&with, facts);
        let planned =
            Snapshot::for_intent(host, &effective.intent).map_err(PlanError::from).and_then(|snapshot| {
                targets(&snapshot, &effective.intent)?;
                plan(&snapshot, &effective.without(left, &snapshot))
            });
        match planned {
            Ok(_) => possible = with,
            Err(error) => {
                if matches!(error, PlanError::Read(_)) {
                    unread.extend(knobs(std::slice::from_ref(hold)));
                }
                refused.push(Refused { hold: hold.name.clone(), why: error.to_string() });
            }
        }
    }
    (possible, refused, unread)
}

/// A preview of [`apply_holds`].
#[derive(Debug, Clone)]
pub struct Preview {
    /// What would be restored, because no hold sets it any more: the location, its first content,
    /// and its present content.
    pub restored: Vec<(Location, Content, Content)>,
    /// What would be written for the remaining holds, before anything is restored.
    pub plan: Option<Plan>,
}

/// Returns what [`apply_holds`] would do. Needs no lock and writes nothing.
pub fn preview(
    host: &dyn Host,
    state: &StateDir,
    (effective, left): (&Effective, &[Exemption]),
) -> Result<Preview, BringError> {
    let mut kept = BTreeSet::new();
    let mut written = None;
    if !effective.intent.is_empty() {
        let snapshot = Snapshot::for_intent(host, &effective.intent)?;
        kept = targets(&snapshot, &effective.intent)?.into_iter().map(|target| target.location).collect();
        written = Some(plan(&snapshot, &effective.without(left, &snapshot))?);
    }
    let contents = Journal::load(state)?.filter(|contents| contents.boot == boot_id(host));
    let entries = contents.map(|contents| contents.hold_entries()).unwrap_or_default();
    // While a hold remains, locations that others disturbed are restored only if the release itself
    // disturbs them.
    let is_released = |location: &Location, goal: &Goal| {
        written.is_none() || goal.first_old.is_some() && !kept.contains(location)
    };
    let goals = Contents::goals(entries.iter()).0.into_iter();
    let restored =
        goals.filter(|(location, goal)| is_released(location, goal)).filter_map(|(location, goal)| {
            let now = Content::from_read(&location.read(host));
            (goal.was != now).then_some((location, goal.was, now))
        });
    Ok(Preview { restored: restored.collect(), plan: written })
}

fn is_yielded(location: &Location, left: &[Exemption]) -> bool {
    left.iter().any(|left| left.because == LeftBecause::Yielded && left.location == *location)
}

/// Returns whether the journal has settings of holds that no hold sets any more, lacks a setting
/// that a hold wants, or has a transaction that was killed.
fn needs_journal(
    host: &dyn Host,
    state: &StateDir,
    kept: &BTreeSet<Location>,
    wanted: &BTreeSet<Location>,
) -> Result<bool, JournalError> {
    let Some(contents) = Journal::load(state)? else { return Ok(!wanted.is_empty()) };
    // A transaction sets an earlier boot's journal aside when it begins. It says nothing about
    // holds of this boot.
    if contents.boot != boot_id(host) || contents.interrupted().is_some() {
        return Ok(true);
    }
    let entries = contents.hold_entries();
    let known: BTreeSet<&Location> = entries.iter().flat_map(|entry| entry.first_old.keys()).collect();
    Ok(known.iter().any(|location| !kept.contains(location))
        || wanted.iter().any(|location| !known.contains(location)))
}
