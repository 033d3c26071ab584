//! Handles drift: corrects, reports or yields it, and finds the cause.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Instant,
};

use flyball_control::{
    Content, Id, Location, Snapshot,
    knob::subject::Subject,
    owners::owners,
    plan::{Change, PlanError, Target, targets},
    verify::verify,
    write::transaction::OnRefusal,
};

use flyball_host::CpuList;

use super::{Batch, COMMAND, Moment, Notice, Service};
use crate::{
    Action, ApplyOutcome, BringError, Cause, Drift, Exemption, HoldName, LeftBecause, OnDrift, Refused,
    Store, apply::apply_holds,
};

/// The drifts, and what to do about them.
#[derive(Default)]
struct DriftCheck {
    drifts: Vec<(Location, Drift)>,
    left: Vec<Exemption>,
    yielded: Vec<Location>,
    corrects: bool,
}

/// A place that does not have the wanted value.
struct Drifted {
    knob: Id,
    instance: String,
    cpus: CpuList,
    location: Location,
    wanted: String,
    found: Option<String>,
    from: String,
}

impl From<Change> for Drifted {
    fn from(change: Change) -> Drifted {
        let Change { knob, instance, cpus, location, value, was, old, from, .. } = change;
        Drifted { knob, instance, cpus, location, wanted: value, found: was.or(old), from }
    }
}

impl From<Target> for Drifted {
    fn from(target: Target) -> Drifted {
        let Target { knob, instance, cpus, location, value, now, from, .. } = target;
        Drifted { knob, instance, cpus, location, wanted: value, found: now, from }
    }
}

/// Contents of the places of all holds at the last comparison without drift.
pub(super) struct LastCheck {
    contents: Vec<(Location, Content)>,
    /// Number of times that they were read again since.
    looks: u32,
}

/// One in this many regular comparisons plans from the whole machine again. The others read only
/// the places, a fifth of the files: on 512 CPUs the ranges of all policies are most of a plan, and
/// events report their changes.
const LOOKS: u32 = 10;

impl Service<'_> {
    /// Returns whether every place has the same content as at the last comparison without drift.
    pub(super) fn is_as_seen(&mut self) -> bool {
        let is_blind = self.store.service.as_ref().is_some_and(|service| !service.blind.is_empty());
        let Some(seen) = &mut self.seen else { return false };
        seen.looks += 1;
        // Without the kernel's reports, a write between the comparison and the reading of contents
        // would go unnoticed.
        !is_blind
            && seen.looks < LOOKS
            && seen
                .contents
                .iter()
                .all(|(location, content)| Content::from_read(&location.read(self.host)) == *content)
    }

    /// Compares everything, and handles drifts as the holds specify.
    pub(super) fn correct(&mut self, batch: &Batch, moment: Moment) {
        // Use real time, even if the caller's clock is a rehearsal's.
        let start = Instant::now();
        self.seen = None;
        if self.effective.intent.is_empty() {
            self.writes.clear();
            return;
        }
        // Before drifts are handled: a place that was restored must count as a new drift when it
        // changes again.
        let had = self.store.left.len();
        self.forget_overwritten();
        let (changes, known) = match self.compare() {
            Ok(compared) => compared,
            // A policy is being created, or a driver is absent. Nothing was written, and it is
            // retried soon.
            Err(error) => return self.conclude(&Err(BringError::Plan(error)), moment),
        };
        self.forget_left(&known);
        let changes = self.with_new_values(changes, &known);
        if changes.is_empty() {
            self.writes.clear();
            (self.waits, self.has_reported_wait) = (None, false);
            let settled = self.unsettled.take_drifts();
            // Everything is in effect now, so clear an earlier failure from the status.
            if self.store.failure.is_some() {
                self.conclude(&Ok(ApplyOutcome::default()), moment);
            }
            // Save only if something changed: a save in each comparison would wake everything that
            // watches the directory.
            if (self.store.left.len() != had || !settled.is_empty())
                && let Ok(_lock) = self.lock()
            {
                self.report(settled);
                self.save();
            }
            let content = |location: Location| {
                let content = Content::from_read(&location.read(self.host));
                (location, content)
            };
            self.seen = Some(LastCheck { contents: known.into_keys().map(content).collect(), looks: 0 });
            return;
        }
        // Take the lock only now: a command that has it may have changed the settings. When it
        // ends, they are compared again.
        let lock = match self.lock() {
            Ok(lock) => lock,
            Err(error) => return self.wait(&error, moment),
        };
        // Commands change only holds. The service knows the places that were left.
        if Store::load(&self.state, self.host).is_ok_and(|store| store.holds != self.store.holds) {
            self.pending = true;
            return self.bring(lock, moment);
        }
        // Retried places have been judged before.
        let (again, new): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|change| self.unsettled.contains(&change.location));
        let mut found = self.judge(new, batch, moment);
        found.corrects |= !again.is_empty();
        self.store.left.append(&mut found.left);
        let result = if found.corrects || !found.yielded.is_empty() {
            let wanted = (&self.effective, self.store.left.as_slice());
            apply_holds(self.host, &self.state, &lock, COMMAND, wanted, &found.yielded, OnRefusal::Continue)
        } else {
            Ok(ApplyOutcome::default())
        };
        self.conclude(&result, moment);
        let took = u64::try_from(start.elapsed().as_micros()).ok();
        for (_, drift) in found.drifts.iter_mut().filter(|(_, drift)| drift.action == Action::Corrected) {
            drift.took_us = took;
            if let Err(error) = &result {
                drift.action = Action::Failed(error.to_string());
            }
        }
        if let Ok(brought) = &result {
            self.settle(brought, &mut found.drifts, moment);
        }
        self.report(found.drifts.into_iter().map(|(_, drift)| drift).collect());
        self.writes.clear();
        self.save();
    }

    /// Records drifts. A program that writes all policies is one line, not hundreds.
    fn report(&mut self, drifts: Vec<Drift>) {
        let mut joined: Vec<Drift> = Vec::new();
        for drift in drifts {
            if !joined.iter_mut().any(|known| known.join(&drift)) {
                joined.push(drift);
            }
        }
        self.store.drifts.extend(joined.iter().cloned());
        self.notices.extend(joined.into_iter().map(|drift| Notice::Drift(Box::new(drift))));
    }

    /// Returns the places that differ, and the target of each held place.
    fn compare(&self) -> Result<(Vec<Drifted>, HashMap<Location, Target>), PlanError> {
        let snapshot = Snapshot::for_intent(self.host, &self.effective.intent)?;
        let wanted = self.effective.without(&self.store.left, &snapshot);
        let changes = if wanted.is_empty() { Vec::new() } else { verify(&snapshot, &wanted)?.drifted };
        let known = targets(&snapshot, &self.effective.intent)?;
        let known = known.into_iter().map(|target| (target.location.clone(), target)).collect();
        Ok((changes.into_iter().map(Drifted::from).collect(), known))
    }

    /// Returns the holds with a setting that is not in effect after a failure. If the machine
    /// cannot be compared, no hold counts as in force.
    pub(super) fn out_of_force(&self, error: &BringError) -> Vec<Refused> {
        let why = error.to_string();
        let refused = |name: &HoldName| Refused { hold: name.clone(), why: why.clone() };
        let names: BTreeSet<&HoldName> = match self.compare() {
            Ok((drifted, _)) => drifted.iter().filter_map(|one| self.effective.hold_of(&one.from)).collect(),
            Err(_) => self.effective.holds.iter().collect(),
        };
        self.refused.iter().cloned().chain(names.into_iter().map(refused)).collect()
    }

    /// If another program writes in the middle of a correction, the value reads back as if the
    /// kernel had clamped it, and the report comes later. So a clamped place is retried when
    /// another program writes it, as often as any other drift.
    fn forget_overwritten(&mut self) {
        let writers = self.writers();
        if writers.is_empty() {
            return;
        }
        let host = self.host;
        let is_written = |location: &Location| {
            location
                .path()
                .is_some_and(|path| writers.contains_key(&flyball_host::watch::real_path(host, path)))
        };
        self.store.left.retain(|left| left.because != LeftBecause::Clamped || !is_written(&left.location));
        // The write is judged like any other.
        self.unsettled.forget(is_written);
    }

    /// Resumes watching places that were left and have the held value again.
    fn forget_left(&mut self, known: &HashMap<Location, Target>) {
        self.store.left.retain(|left| {
            let target = known.get(&left.location);
            // A yielded place belongs to the other writer even if its value happens to be ours. A
            // clamped place never has our value.
            let is_back = target.is_some_and(|target| target.now.as_deref() == Some(&target.value));
            !(is_back
                && matches!(
                    left.because,
                    LeftBecause::Reported | LeftBecause::Contended | LeftBecause::Refused(_)
                ))
        });
    }

    /// Adds places that are only reported, if their value differs from the reported one.
    fn with_new_values(
        &mut self,
        mut changes: Vec<Drifted>,
        known: &HashMap<Location, Target>,
    ) -> Vec<Drifted> {
        let mut again = Vec::new();
        self.store.left.retain(|left| {
            let target = known.get(&left.location).filter(|target| target.now != left.found);
            // Compare with the reported value, so that each further change is reported once.
            let reported = target.filter(|_| left.because == LeftBecause::Reported);
            again.extend(reported.cloned());
            reported.is_none()
        });
        changes.extend(again.into_iter().map(Drifted::from));
        changes
    }

    fn judge(&mut self, changes: Vec<Drifted>, batch: &Batch, moment: Moment) -> DriftCheck {
        // Collect the writers once: a governor change on 512 CPUs is as many changes with one
        // cause.
        let writers = self.writers();
        let mut found = DriftCheck::default();
        let mut perhaps: Option<Vec<String>> = None;
        for change in changes {
            let Some(name) = self.effective.hold_of(&change.from).cloned() else { continue };
            let Some(hold) = self.store.holds.iter().find(|hold| hold.name == name) else { continue };
            let cause = self.cause(&change, &writers, batch, &mut perhaps);
            // Sleep and hotplug are not another writer, however frequent they are.
            let is_contended = !matches!(cause, Cause::Resume | Cause::Device(_));
            let (action, because, until) = match hold.on_drift {
                OnDrift::Report => (Action::Reported, Some(LeftBecause::Reported), None),
                OnDrift::Yield => (Action::Yielded, Some(LeftBecause::Yielded), None),
                OnDrift::Correct if is_contended => {
                    match self.corrections.allow(&change.location, moment.now) {
                        Ok(()) => (Action::Corrected, None, None),
                        Err(until) => (Action::GaveWay, Some(LeftBecause::Contended), Some(until)),
                    }
                }
                OnDrift::Correct => (Action::Corrected, None, None),
            };
            // A report alone must not open a transaction, because nothing is written.
            found.corrects |= action == Action::Corrected;
            if action == Action::Yielded {
                found.yielded.push(change.location.clone());
            }
            found.left.extend(because.map(|because| Exemption {
                hold: name.clone(),
                knob: change.knob,
                instance: change.instance.clone(),
                cpus: change.cpus.clone(),
                location: change.location.clone(),
                found: change.found.clone(),
                because,
                cause: Some(cause.clone()),
                until,
            }));
            let drift = Drift {
                at: moment.unix,
                hold: name,
                knob: change.knob,
                instance: change.instance,
                cpus: change.cpus,
                wanted: change.wanted,
                found: change.found,
                cause,
                action,
                took_us: None,
            };
            // Keep the location: only after the transaction is it known whether the correction
            // failed.
            found.drifts.push((change.location, drift));
        }
        found
    }

    /// Returns the last writer of each path.
    fn writers(&self) -> BTreeMap<String, flyball_host::watch::Writer> {
        self.writes.iter().cloned().collect()
    }

    fn cause(
        &self,
        change: &Drifted,
        writers: &BTreeMap<String, flyball_host::watch::Writer>,
        batch: &Batch,
        perhaps: &mut Option<Vec<String>>,
    ) -> Cause {
        // powercap's attributes are behind links. The kernel reports paths without links.
        let real = change.location.path().map(|path| flyball_host::watch::real_path(self.host, path));
        if let Some(by) = real.and_then(|path| writers.get(&path)) {
            return Cause::Written(by.clone());
        }
        // Look for a write to another knob: a governor, the driver's mode, a CPU. The last write is
        // nearest in time.
        let other = self
            .writes
            .iter()
            .rev()
            .find(|(path, _)| Subject::from_location(&Location::file(path.as_str())).is_some());
        if let Some((path, by)) = other {
            return Cause::After { path: path.clone(), by: by.clone() };
        }
        // A write explains more than sleep or a device event at the same time, so check these
        // later.
        if batch.resumed {
            return Cause::Resume;
        }
        if let Some(path) = &batch.device {
            return Cause::Device(path.clone());
        }
        // Do this last and only once: it reads every process.
        let running = perhaps.get_or_insert_with(|| {
            let owners = owners(self.host).into_iter();
            owners
                .filter(|owner| owner.writes.contains(&change.knob))
                .map(|owner| owner.name.to_owned())
                .collect()
        });
        Cause::NotSeen { perhaps: running.clone() }
    }
}
