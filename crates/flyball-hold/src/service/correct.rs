//! What is done about drift: corrected, reported or yielded, each with its cause.

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
    Action, BringError, Brought, Cause, Drift, Exemption, HoldName, LeftBecause, OnDrift, Refused, Store,
    apply::bring_about,
};

/// What drifted, and what is to be done about it.
#[derive(Default)]
struct DriftCheck {
    drifts: Vec<(Location, Drift)>,
    left: Vec<Exemption>,
    yielded: Vec<Location>,
    corrects: bool,
}

/// A place that does not hold what is wanted.
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

/// What the places of all holds had in them when nothing was to be done.
pub(super) struct LastCheck {
    contents: Vec<(Location, Content)>,
    /// How often they were read again since.
    looks: u32,
}

/// Regular comparisons of which one plans from the whole machine again. The others read the places
/// only, a fifth of the files: on 512 CPUs the ranges of all policies are most of a plan, and
/// change with events that are reported.
const LOOKS: u32 = 10;

impl Service<'_> {
    /// Whether every place is as it was when nothing was to be done.
    pub(super) fn is_as_seen(&mut self) -> bool {
        let is_blind = self.store.service.as_ref().is_some_and(|service| !service.blind.is_empty());
        let Some(seen) = &mut self.seen else { return false };
        seen.looks += 1;
        // Without the kernel's reports a write between the comparison and the reading of contents
        // would go unnoticed.
        !is_blind
            && seen.looks < LOOKS
            && seen
                .contents
                .iter()
                .all(|(location, content)| Content::from_read(&location.read(self.host)) == *content)
    }

    /// Compares everything, and does what the holds say about what drifted.
    pub(super) fn correct(&mut self, batch: &Batch, moment: Moment) {
        // The time that passes outside, also where the caller's clock is a rehearsal's.
        let start = Instant::now();
        self.seen = None;
        if self.effective.intent.is_empty() {
            self.writes.clear();
            return;
        }
        // Before the drifts are judged: a place that is back must count as a new drift when it
        // changes again.
        let had = self.store.left.len();
        self.forget_overwritten();
        let (changes, known) = match self.compare() {
            Ok(compared) => compared,
            // A policy that is being made, a driver that is away: it is tried again soon, and
            // nothing was written.
            Err(error) => return self.conclude(&Err(BringError::Plan(error)), moment),
        };
        self.forget_left(&known);
        let changes = self.with_new_values(changes, &known);
        if changes.is_empty() {
            self.writes.clear();
            (self.waits, self.has_reported_wait) = (None, false);
            let settled = self.unsettled.take_drifts();
            // It holds now, whatever has failed before: the status must not go on saying so.
            if self.store.failure.is_some() {
                self.conclude(&Ok(Brought::default()), moment);
            }
            // Only then the file has changed: a save in each verify would wake everything that
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
        // Before the lock: a command that has it is what changed the settings, perhaps; when it
        // ends, they are compared again.
        let lock = match self.lock() {
            Ok(lock) => lock,
            Err(error) => return self.wait(&error, moment),
        };
        // Commands change nothing but holds: what was left is known here.
        if Store::load(&self.state, self.host).is_ok_and(|store| store.holds != self.store.holds) {
            self.pending = true;
            return self.bring(lock, moment);
        }
        // What is tried again has been judged before.
        let (again, new): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|change| self.unsettled.contains(&change.location));
        let mut found = self.judge(new, batch, moment);
        found.corrects |= !again.is_empty();
        self.store.left.append(&mut found.left);
        let result = if found.corrects || !found.yielded.is_empty() {
            let wanted = (&self.effective, self.store.left.as_slice());
            bring_about(self.host, &self.state, &lock, COMMAND, wanted, &found.yielded, OnRefusal::GoOn)
        } else {
            Ok(Brought::default())
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

    /// Records what drifted. One program that writes all policies is one line, not hundreds.
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

    /// The holds of which something is not there after a failure. A machine that cannot be compared
    /// has none in force.
    pub(super) fn out_of_force(&self, error: &BringError) -> Vec<Refused> {
        let why = error.to_string();
        let refused = |name: &HoldName| Refused { hold: name.clone(), why: why.clone() };
        let names: BTreeSet<&HoldName> = match self.compare() {
            Ok((drifted, _)) => drifted.iter().filter_map(|one| self.effective.hold_of(&one.from)).collect(),
            Err(_) => self.effective.holds.iter().collect(),
        };
        self.refused.iter().cloned().chain(names.into_iter().map(refused)).collect()
    }

    /// A write of another program in the middle of a correction reads back like a value that the
    /// kernel has clamped; its report comes after that. So what counts as clamped is tried again
    /// when another program writes it, as often as any other drift.
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
        // It is judged like any other write.
        self.unsettled.forget(is_written);
    }

    /// Watches places again that were left and have the held value again.
    fn forget_left(&mut self, known: &HashMap<Location, Target>) {
        self.store.left.retain(|left| {
            let target = known.get(&left.location);
            // A yielded place belongs to the other writer even if its value happens to be ours, and
            // a clamped one never shows ours.
            let is_back = target.is_some_and(|target| target.now.as_deref() == Some(&target.value));
            !(is_back
                && matches!(
                    left.because,
                    LeftBecause::Reported | LeftBecause::Contended | LeftBecause::Refused(_)
                ))
        });
    }

    /// Adds what is only reported and holds another value than when it was reported.
    fn with_new_values(
        &mut self,
        mut changes: Vec<Drifted>,
        known: &HashMap<Location, Target>,
    ) -> Vec<Drifted> {
        let mut again = Vec::new();
        self.store.left.retain(|left| {
            let target = known.get(&left.location).filter(|target| target.now != left.found);
            // What is reported is compared with the value that was reported, so each further change
            // is reported once.
            let reported = target.filter(|_| left.because == LeftBecause::Reported);
            again.extend(reported.cloned());
            reported.is_none()
        });
        changes.extend(again.into_iter().map(Drifted::from));
        changes
    }

    fn judge(&mut self, changes: Vec<Drifted>, batch: &Batch, moment: Moment) -> DriftCheck {
        // Collected once: a governor that is changed on 512 CPUs is as many changes with one cause.
        let writers = self.writers();
        let mut found = DriftCheck::default();
        let mut perhaps: Option<Vec<String>> = None;
        for change in changes {
            let Some(name) = self.effective.hold_of(&change.from).cloned() else { continue };
            let Some(hold) = self.store.holds.iter().find(|hold| hold.name == name) else { continue };
            let cause = self.cause(&change, &writers, batch, &mut perhaps);
            // Sleep and hotplug are not another writer, however often they come.
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
            // Only then something is written; a report alone must not open a transaction.
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
            // With its place: whether the correction has failed there is known after the
            // transaction.
            found.drifts.push((change.location, drift));
        }
        found
    }

    /// Who wrote which path last.
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
        // Attributes of powercap are linked to; the kernel reports where they are.
        let real = change.location.path().map(|path| flyball_host::watch::real_path(self.host, path));
        if let Some(by) = real.and_then(|path| writers.get(&path)) {
            return Cause::Written(by.clone());
        }
        // Another knob that was written: a governor, the driver's mode, a CPU. The last one, since
        // it was nearest in time.
        let other = self
            .writes
            .iter()
            .rev()
            .find(|(path, _)| Subject::from_location(&Location::file(path.as_str())).is_some());
        if let Some((path, by)) = other {
            return Cause::After { path: path.clone(), by: by.clone() };
        }
        // A write that was seen explains more than sleep or a device at the same time, so these
        // come after it.
        if batch.resumed {
            return Cause::Resume;
        }
        if let Some(path) = &batch.device {
            return Cause::Device(path.clone());
        }
        // Only now, and once: looking for them reads every process.
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
