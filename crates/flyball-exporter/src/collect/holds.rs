//! Holds and drift, from the file of the hold service. The service compares and corrects. This code
//! compares nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::MetadataExt as _,
};

use flyball_control::write::state::StateDir;
use flyball_hold::{Action, Cause, Drift, Store};
use flyball_host::{
    Host,
    watch::{local_time, since_boot},
};

use crate::{Exposition, catalogue as names};

/// Maximum number of writers that are named. Further ones are counted as `other`.
const MAX_WRITERS: usize = 32;

pub(super) struct Holds {
    state: StateDir,
    /// Change time, size and inode of the store's file. It is only read again if these change.
    stamp: Option<(i64, i64, u64, u64)>,
    store: Option<Store>,
    refused: Option<String>,
    /// Drifts that are already counted and still in the file.
    seen: BTreeSet<String>,
    drifts: BTreeMap<(String, String), u64>,
    reapplied: BTreeMap<&'static str, u64>,
    writers: BTreeSet<String>,
}

impl Holds {
    pub(super) fn new(state: StateDir) -> Holds {
        Holds {
            state,
            stamp: None,
            store: None,
            refused: None,
            seen: BTreeSet::new(),
            drifts: BTreeMap::new(),
            reapplied: BTreeMap::new(),
            writers: BTreeSet::new(),
        }
    }

    /// Returns why the file cannot be read, if it should be readable.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    fn look(&mut self, host: &dyn Host) {
        let path = self.state.path().join(Store::NAME);
        // One stat(2) per scrape: the file only changes with holds and drifts.
        let stamp = match std::fs::metadata(&path) {
            // The file is replaced as a whole, so a change normally means another inode.
            Ok(found) => Some((found.ctime(), found.ctime_nsec(), found.size(), found.ino())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                let errno = flyball_host::Errno::from(&error);
                self.refused = Some(errno.to_string());
                self.store = None;
                return;
            }
        };
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        (self.store, self.refused) = match stamp.map(|_| Store::load(&self.state, host)) {
            None => (None, None),
            Some(Ok(store)) => (Some(store), None),
            Some(Err(flyball_hold::StoreError::Io { error, .. })) => {
                (None, Some(flyball_host::Errno::from(&error).to_string()))
            }
            Some(Err(_)) => (None, Some("content".to_owned())),
        };
        let is_first = self.seen.is_empty() && self.drifts.is_empty();
        let drifts = self.store.as_ref().map(|store| store.drifts.clone()).unwrap_or_default();
        let keys: BTreeSet<String> = drifts.iter().map(key).collect();
        for drift in &drifts {
            // Also count what is in the file at the start: the counter begins with the file, not
            // with the exporter.
            if is_first || !self.seen.contains(&key(drift)) {
                self.count(drift);
            }
        }
        self.seen = keys;
    }

    fn count(&mut self, drift: &Drift) {
        // Without the process number, which would make a new series for each run of a program.
        let mut by = match &drift.cause {
            Cause::Written(writer) | Cause::After { by: writer, .. } => {
                writer.name.clone().unwrap_or_else(|| "ended".to_owned())
            }
            _ => "unseen".to_owned(),
        };
        if !self.writers.contains(&by) {
            if self.writers.len() >= MAX_WRITERS {
                "other".clone_into(&mut by);
            }
            self.writers.insert(by.clone());
        }
        *self.drifts.entry((drift.knob.to_string(), by)).or_default() += 1;
        if drift.action == Action::Corrected {
            let why = match &drift.cause {
                Cause::Written(_) => "drift",
                Cause::After { .. } => "after-another-setting",
                Cause::Resume => "resume",
                Cause::Device(_) => "hotplug",
                Cause::NotSeen { .. } => "unseen",
            };
            *self.reapplied.entry(why).or_default() += drift.cpus.iter().count() as u64;
        }
    }

    pub(super) fn write(&mut self, out: &mut Exposition, host: &dyn Host) {
        self.look(host);
        let Some(store) = &self.store else { return };
        // Not from the file: the service may have started after its last write.
        let is_up = Store::is_watched(&self.state);
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        // Export 0 for knobs without drift, so that an alert can tell them from knobs that are not
        // held.
        for setting in store.holds.iter().flat_map(|hold| &hold.settings) {
            places.entry(setting.knob().to_string()).or_default();
        }
        for left in &store.left {
            *places.entry(left.knob.to_string()).or_default() += left.cpus.iter().count();
        }
        // Without the service nobody compares, so no count is known.
        for (knob, count) in places.into_iter().filter(|_| is_up) {
            out.add(names::DRIFT_PLACES, &[("knob", &knob)], count as f64);
        }
        for ((knob, by), count) in &self.drifts {
            out.add(names::DRIFT, &[("knob", knob), ("by", by)], *count as f64);
        }
        for (why, count) in &self.reapplied {
            out.add(names::REAPPLIED, &[("why", why)], *count as f64);
        }
        let facts = store.facts(host, local_time());
        for hold in &store.holds {
            let is_in_force = store.why_not_in_force(hold, &facts, since_boot()).is_none();
            let owner = hold.owner.to_string();
            let labels = [("hold", hold.name.as_str()), ("owner", owner.as_str())];
            out.add(names::HOLD_ACTIVE, &labels, f64::from(u8::from(is_in_force)));
        }
        out.add(names::HOLD_SERVICE, &[], f64::from(u8::from(is_up)));
        out.add(names::HOLD_FAILED, &[], f64::from(u8::from(store.failure.is_some())));
        out.add(names::HOLD_CONFIG_ERROR, &[], f64::from(u8::from(store.config_error.is_some())));
    }
}

/// Returns a drift's identity. Does not include the CPUs, because more of them may drift later.
fn key(drift: &Drift) -> String {
    let Drift { at, hold, knob, instance, wanted, found, cause, .. } = drift;
    format!("{at} {hold} {knob} {instance} {wanted} {found:?} {cause}")
}
