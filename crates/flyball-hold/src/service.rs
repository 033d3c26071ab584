//! The service: its reaction to each report of the kernel. It has neither a loop nor a clock: the
//! caller waits for events and passes them in with the time, so that rehearsals and tests can play
//! events.

mod correct;
mod notice;
mod unsettled;
mod watched;

use std::{collections::BTreeMap, time::Duration};

use flyball_control::write::{
    state::{Lock, LockError, StateDir},
    transaction::OnRefusal,
};
use flyball_host::{
    Host,
    watch::{DeviceAction, Event, Writer},
};

pub use self::{
    notice::{Notice, Priority},
    watched::Watched,
};
use crate::{
    ACTIVE, BringError, Cause, ChangeError, Changed, Condition, Config, ConfigError, Effective, Exemption,
    Facts, Hold, HoldName, MachineFacts, Moment, OnExit, Owner, ProcessId, Profiles, Refused, ServiceState,
    Store, StoreError,
    apply::{apply_accepted_holds, apply_holds, not_in_force},
    change::change_locked,
    condition::{Lasting, next_edge},
    drift::Corrections,
    service::{correct::LastCheck, unsettled::Unsettled},
    store::Stamp,
};

/// How often everything is compared without a report: firmware and the kernel may change settings
/// silently.
pub const VERIFY_EVERY: Duration = Duration::from_secs(60);

/// Pauses before retries, in milliseconds, for example while a driver creates policies or a CPU
/// comes online. After the last pause only the regular comparison retries.
const RETRIES: [u64; 4] = [20, 100, 300, 1000];

/// How long another flyball may hold the lock before the service reports it.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// The service's name in the lock and the journal.
const COMMAND: &str = "flyball hold run";

/// Limit on remembered writes of others, while another flyball holds the lock.
const MAX_WRITES: usize = 1000;

/// The service of one machine.
pub struct Service<'h> {
    host: &'h dyn Host,
    state: StateDir,
    /// Content of the file when it was last read or written.
    store: Store,
    effective: Effective,
    /// Holds that the machine still refuses after all retries. The others are in force without
    /// them.
    refused: Vec<Refused>,
    /// The holds that are in force, the strongest last, as last reported.
    in_force: Vec<HoldName>,
    /// The holds reported as added, with their start times.
    known: BTreeMap<HoldName, u64>,
    /// The failure that was last reported.
    reported_failure: Option<String>,
    /// The version of the file that was last read or written.
    saved: Option<Stamp>,
    /// True if the holds have changed and the service has not acted on that yet.
    has_changed_holds: bool,
    facts: Facts,
    /// In a rehearsal, the facts for conditions, instead of the machine's files.
    rehearsed: Option<Facts>,
    lasting: Lasting,
    corrections: Corrections,
    /// Writes of others since the last full comparison.
    writes: Vec<(String, Writer)>,
    /// True if the overlay must be applied: it has changed, or the last attempt failed.
    pending: bool,
    /// Time since which another flyball has held a lock that the service needs.
    waits: Option<Duration>,
    has_reported_wait: bool,
    retry: Option<(usize, Duration)>,
    /// Writes that read back differently, and are retried.
    unsettled: Unsettled,
    next_verify: Duration,
    seen: Option<LastCheck>,
    next_edge: Option<Duration>,
    /// Time when conditions were last checked.
    looked: Duration,
    notices: Vec<Notice>,
}

/// What a batch of events requires.
#[expect(clippy::struct_excessive_bools, reason = "each is a kind of event")]
#[derive(Debug, Default)]
struct Batch {
    store: bool,
    lock: bool,
    facts: bool,
    /// True if everything must be compared.
    compare: bool,
    resumed: bool,
    device: Option<String>,
}

impl<'h> Service<'h> {
    /// Takes over the holds of this boot, and replaces the configuration's holds by the present
    /// configuration's. An invalid configuration or profile adds no hold at all, and the status
    /// says where the error is.
    ///
    /// # Errors
    /// Another service runs, or the state directory cannot be used. A refusal by the machine is a
    /// notice, not an error.
    pub fn start(
        host: &'h dyn Host,
        state: StateDir,
        lock: Lock,
        blind: Vec<String>,
        config: Result<Config, ConfigError>,
        profiles: Profiles<'_>,
        moment: Moment,
    ) -> Result<Service<'h>, StoreError> {
        // These are the holds that commands have added, and those of a killed service.
        let store = Store::load(&state, host)?;
        let mut service = Service {
            host,
            state,
            store,
            effective: Effective::default(),
            refused: Vec::new(),
            in_force: Vec::new(),
            known: BTreeMap::new(),
            reported_failure: None,
            saved: None,
            has_changed_holds: false,
            facts: Facts::default(),
            rehearsed: None,
            lasting: Lasting::default(),
            corrections: Corrections::default(),
            writes: Vec::new(),
            pending: true,
            waits: None,
            has_reported_wait: false,
            retry: None,
            unsettled: Unsettled::default(),
            next_verify: moment.now + VERIFY_EVERY,
            seen: None,
            next_edge: None,
            looked: Duration::ZERO,
            notices: Vec::new(),
        };
        service.store.service = ProcessId::from_pid(std::process::id()).map(|process| ServiceState {
            process,
            since: moment.unix,
            blind,
        });
        // Save before writing anything, so that `hold status`, and a second service that starts
        // now, see this service.
        service.configure(config, profiles, moment);
        service.known = service.store.holds.iter().map(|hold| (hold.name.clone(), hold.since)).collect();
        service.expire(moment);
        service.store.save(&service.state)?;
        service.saved = Stamp::read(&service.state);
        service.look(moment);
        service.renew();
        service.bring(lock, moment);
        Ok(service)
    }

    /// Replaces the configuration's holds.
    fn configure(&mut self, config: Result<Config, ConfigError>, profiles: Profiles<'_>, moment: Moment) {
        let made = config.map_err(|error| error.to_string()).and_then(|config| {
            let machine = MachineFacts::look(self.host);
            let mut holds =
                config.holds(&machine, profiles, moment.unix).map_err(|error| error.to_string())?;
            for active in &config.active {
                let settings = profiles(&active.profile)
                    .map_err(|error| format!("/{ACTIVE}: hold {}: {error}", active.name))?;
                holds.push(Hold { settings, ..active.hold(moment.unix) });
            }
            Ok::<_, String>(holds)
        });
        let holds = match made {
            Ok(holds) => holds,
            // Keep the holds of the last good configuration: a typo must not change a machine.
            Err(error) => {
                self.notices.push(Notice::Failed(error.clone()));
                self.store.config_error = Some(error);
                return;
            }
        };
        self.store.release_where(|hold| hold.owner == Owner::Config);
        self.store.config_error = None;
        for hold in holds {
            // The user may have changed the hold since boot: keep that.
            let is_known = |known: &Hold| known.name == hold.name;
            if hold.owner == Owner::Boot && self.store.holds.iter().any(is_known) {
                continue;
            }
            // There may be too many holds. Still use the rest of the configuration.
            if let Err(error) = self.store.add(hold) {
                self.notices.push(Notice::Failed(error.to_string()));
            }
        }
    }

    /// Returns the notices since the last call.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the holds that are in force, the strongest last.
    pub fn in_force(&self) -> &[HoldName] {
        &self.in_force
    }

    /// Returns the status line for the service manager: problems first, then the holds in force.
    pub fn summary(&self) -> String {
        let wrong = self.store.config_error.as_ref().map(|error| format!("configuration: {error}"));
        let parts = wrong.into_iter().chain(self.store.failure.clone());
        let parts = parts.chain([Notice::InForce(self.in_force.clone()).to_string()]);
        parts.collect::<Vec<_>>().join("; ")
    }

    /// From now on, checks conditions against these facts instead of the machine's files.
    pub fn rehearse(&mut self, facts: Facts) {
        self.rehearsed = Some(facts);
    }

    /// Returns the facts against which conditions were last checked.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    fn conditions(&self) -> impl Iterator<Item = &Condition> + Clone {
        self.store.holds.iter().filter_map(|hold| hold.condition.as_ref())
    }

    /// Changes the holds for a program, as a command does. The service knows the result, so it
    /// neither waits for a report of its own write nor reads the file again.
    ///
    /// # Errors
    /// See [`ChangeError`]; the holds are then unchanged.
    pub fn change(
        &mut self,
        moment: Moment,
        change: impl FnOnce(&mut Store) -> Result<(), StoreError>,
    ) -> Result<Changed, ChangeError> {
        let lock = self.lock()?;
        let changed = change_locked(self.host, &self.state, &lock, COMMAND, moment, change)?;
        // Before the lock is released: after that, a command may write the file.
        self.saved = Stamp::read(&self.state);
        self.adopt(changed.store.clone(), moment);
        self.has_changed_holds = true;
        Ok(changed)
    }

    /// Returns how long to wait if nothing is reported.
    pub fn sleep_for(&self, now: Duration) -> Duration {
        if self.has_changed_holds {
            return Duration::ZERO;
        }
        let ends = self.store.holds.iter().filter_map(|hold| hold.end.at);
        // Count from the last check: counted from now, the check would never be due on a machine
        // with many events.
        let lasting = self.lasting.next(self.conditions(), self.looked);
        let word = self.waits.filter(|_| !self.has_reported_wait).map(|since| since + LONG_WAIT);
        let again = self.store.left.iter().filter_map(|left| left.until);
        let others =
            self.retry.map(|(_, at)| at).into_iter().chain(self.next_edge).chain(lasting).chain(ends);
        let others = others.chain(word).chain(again);
        others.chain([self.next_verify]).min().unwrap_or(now).saturating_sub(now)
    }

    /// Handles a batch of events, and what is due at this time.
    pub fn handle(&mut self, events: Vec<Event>, moment: Moment) {
        // The order matters: first the holds, then which of them have ended, then their conditions,
        // then the overlay.
        let mut batch = self.sort(events, moment);
        if batch.store {
            self.reload(moment);
        }
        batch.store |= std::mem::take(&mut self.has_changed_holds);
        self.expire(moment);
        let lasting = self.lasting.next(self.conditions(), self.looked);
        let edge = self.next_edge.into_iter().chain(lasting).any(|edge| edge <= moment.now);
        if batch.store || batch.facts || batch.resumed || edge {
            self.look(moment);
        }
        if batch.store || batch.facts || batch.resumed || batch.device.is_some() {
            self.refused.clear();
        }
        let has_changed = self.renew();
        let is_late = self.next_verify <= moment.now;
        let has_waited = |since: Duration| !self.has_reported_wait && since + LONG_WAIT <= moment.now;
        let retries = self.retry.is_some_and(|(_, at)| at <= moment.now)
            || self.waits.is_some_and(|since| batch.lock || has_waited(since))
            || self.take_up_again(moment);
        self.pending |= has_changed;
        // Apply a changed overlay even if nothing on the machine has changed.
        let is_regular = is_late && !(batch.compare || retries || has_changed || self.pending);
        batch.compare |= is_late || retries || has_changed;
        if is_late {
            self.next_verify = moment.now + VERIFY_EVERY;
        }
        if is_regular && self.is_as_seen() {
            return;
        }
        if !batch.compare {
            return;
        }
        if self.pending {
            match self.lock() {
                Ok(lock) => self.bring(lock, moment),
                Err(error) => self.wait(&error, moment),
            }
        } else {
            self.correct(&batch, moment);
        }
    }

    /// Resumes watching places that were left because of another writer, if their pause is over.
    /// Returns whether there were any.
    fn take_up_again(&mut self, moment: Moment) -> bool {
        let is_over = |left: &mut Exemption| left.until.is_some_and(|until| until <= moment.now);
        let over: Vec<Exemption> = self.store.left.extract_if(.., is_over).collect();
        // Differences there still come from that program.
        self.writes.extend(over.iter().filter_map(|left| {
            let path = flyball_host::watch::real_path(self.host, left.location.path()?);
            let Some(Cause::Written(by)) = &left.cause else { return None };
            Some((path, by.clone()))
        }));
        !over.is_empty()
    }

    fn sort(&mut self, events: Vec<Event>, moment: Moment) -> Batch {
        let mut batch = Batch::default();
        for event in events {
            match event {
                Event::File { name } => match name.as_str() {
                    // Ignore the service's own write.
                    Store::NAME => batch.store |= Stamp::read(&self.state) != self.saved,
                    "lock" => batch.lock = true,
                    _ => {}
                },
                // A rehearsal may contain writes to any file.
                Event::Written { path, by } => {
                    if concerns_processors(&path) {
                        batch.compare = true;
                        if self.writes.len() < MAX_WRITES {
                            self.writes.push((path, by));
                        }
                    }
                }
                Event::Device { action, path } => {
                    batch.facts |= path.contains("/power_supply/");
                    // A policy appears and disappears with its CPU, an uncore domain with its
                    // driver.
                    if concerns_processors(&path) && action != DeviceAction::Other {
                        batch.compare = true;
                        batch.device = Some(path);
                    }
                }
                // Suspend takes CPUs down and up without uevents (freeze_secondary_cpus in
                // kernel/cpu.c), so resume is the only report.
                Event::Resumed { .. } => (batch.resumed, batch.compare) = (true, true),
                Event::Pressure { name } => {
                    self.lasting.press(&name, moment.now);
                    batch.facts = true;
                }
                Event::ClockSet | Event::Started { .. } | Event::Ended { .. } | Event::Group => {
                    batch.facts = true;
                }
                Event::Lost => {
                    // The lost events may have been any of these.
                    (batch.compare, batch.store, batch.facts, batch.lock) = (true, true, true, true);
                }
                Event::Woken => {}
            }
        }
        batch
    }

    fn lock(&self) -> Result<Lock, LockError> {
        self.state.lock(COMMAND)
    }

    /// Notes that work is waiting for the lock. The watch of its directory reports its release.
    fn wait(&mut self, error: &LockError, moment: Moment) {
        let since = *self.waits.get_or_insert(moment.now);
        // Most commands take milliseconds. A long one is reported only once, although each event
        // leads here again until it ends.
        if since + LONG_WAIT <= moment.now && !std::mem::replace(&mut self.has_reported_wait, true) {
            self.notices.push(Notice::Waiting(error.to_string()));
        }
        self.retry = None;
    }

    /// Reads the store that a command has written.
    fn reload(&mut self, moment: Moment) {
        // Before reading the file, so that a version written meanwhile is read again.
        self.saved = Stamp::read(&self.state);
        match Store::load(&self.state, self.host) {
            Ok(store) => self.adopt(store, moment),
            Err(error) => self.notices.push(Notice::Failed(error.to_string())),
        }
    }

    /// Replaces the store by one that a command has written.
    fn adopt(&mut self, mut store: Store, moment: Moment) {
        // The service's own values of these are newer.
        store.service.clone_from(&self.store.service);
        store.lasting.clone_from(&self.store.lasting);
        self.store = store;
        self.report_changes(moment);
    }

    /// Reports the holds that commands have added or released.
    fn report_changes(&mut self, moment: Moment) {
        let holds = self.store.holds.iter().filter(|hold| !hold.end.has_come(moment.now));
        let now: BTreeMap<HoldName, u64> = holds.map(|hold| (hold.name.clone(), hold.since)).collect();
        for hold in &self.store.holds {
            let since = now.get(&hold.name);
            if since.is_some() && since != self.known.get(&hold.name) {
                let owner = hold.owner.to_string();
                self.notices.push(Notice::Added { hold: hold.name.clone(), owner });
            }
        }
        let is_gone = |name: &&HoldName| !self.store.holds.iter().any(|hold| hold.name == **name);
        self.notices.extend(self.known.keys().filter(is_gone).cloned().map(Notice::Released));
        // `expire` reports holds that have ended.
        self.known.retain(|name, _| self.store.holds.iter().any(|hold| hold.name == *name));
        self.known.extend(now);
    }

    fn expire(&mut self, moment: Moment) {
        let ended = self.store.expire(moment.now);
        if !ended.is_empty() {
            // The file may still contain a reported hold until the lock is free.
            let new = ended.into_iter().filter(|name| self.known.remove(name).is_some());
            self.notices.extend(new.map(Notice::Ended));
            self.pending = true;
        }
    }

    fn look(&mut self, moment: Moment) {
        self.facts = match &self.rehearsed {
            Some(facts) => facts.clone(),
            None => Facts::look(self.host, moment.local, self.conditions()),
        };
        // A rehearsal's facts contain no time.
        self.facts.minutes = moment.local.minutes;
        let conditions = self.store.holds.iter().filter_map(|hold| hold.condition.as_ref());
        self.facts.lasting = self.lasting.judge(conditions, &self.facts, moment.now);
        // For commands, which do not see time pass. It is saved together with the holds that it
        // activates.
        self.store.lasting.clone_from(&self.facts.lasting);
        self.looked = moment.now;
        self.next_edge = next_edge(self.conditions(), moment.local).map(|wait| moment.now + wait);
    }

    /// Computes the overlay. Returns whether it has changed.
    fn renew(&mut self) -> bool {
        let effective = if self.refused.is_empty() {
            Effective::new(&self.store.holds, &self.facts)
        } else {
            let is_possible = |hold: &&Hold| !self.refused.iter().any(|refused| refused.hold == hold.name);
            let holds: Vec<Hold> = self.store.holds.iter().filter(is_possible).cloned().collect();
            Effective::new(&holds, &self.facts)
        };
        let has_changed = effective != self.effective;
        self.effective = effective;
        has_changed
    }

    /// Applies the overlay.
    fn bring(&mut self, lock: Lock, moment: Moment) {
        // A command may have changed the holds before the lock was free.
        self.reload(moment);
        self.expire(moment);
        self.renew();
        self.writes.clear();
        self.seen = None;
        let wanted = (&self.effective, self.store.left.as_slice());
        let result = apply_holds(self.host, &self.state, &lock, COMMAND, wanted, &[], OnRefusal::Continue);
        let (result, refused) = match result {
            // Not at the first refusal: policies that a driver is creating exist after a pause.
            Err(BringError::Plan(_)) if self.retry.is_some_and(|(count, _)| count + 1 >= RETRIES.len()) => {
                let all = (self.store.holds.as_slice(), &self.facts, self.store.left.as_slice());
                match apply_accepted_holds(self.host, &self.state, &lock, COMMAND, all) {
                    Ok((brought, effective, refused)) => {
                        self.effective = effective;
                        (Ok(brought), refused)
                    }
                    Err(error) => (Err(error), Vec::new()),
                }
            }
            result => (result, std::mem::take(&mut self.refused)),
        };
        self.refused = refused;
        self.conclude(&result, moment);
        if let Ok(brought) = &result {
            self.settle(brought, &mut Vec::new(), moment);
        }
        self.save();
    }

    /// Records whether the machine matches the holds, and otherwise when to retry.
    fn conclude(&mut self, result: &Result<crate::ApplyOutcome, BringError>, moment: Moment) {
        let failure = match result {
            Ok(brought) if brought.restored.is_exact() => None,
            Ok(brought) => Some(brought.restored.to_string()),
            Err(error) => Some(error.to_string()),
        };
        // After an incomplete attempt each later event retries, whatever it is about.
        self.pending = failure.is_some();
        (self.waits, self.has_reported_wait) = (None, false);
        self.retry = match (&failure, self.retry) {
            (None, _) => None,
            // After the last pause, the regular comparison retries once a minute.
            (Some(_), retry) => {
                let next = retry.map_or(0, |(count, _)| count + 1);
                RETRIES.get(next).map(|pause| (next, moment.now + Duration::from_millis(*pause)))
            }
        };
        self.store.refused = match result {
            Ok(_) => self.refused.clone(),
            Err(error) => self.out_of_force(error),
        };
        self.store.failure = failure.or_else(|| not_in_force(&self.refused));
        // Policies that a driver is creating exist after a pause, so this is no failure yet.
        if self.retry.is_some() && matches!(result, Err(BringError::Plan(_))) {
            return;
        }
        if self.store.failure != self.reported_failure {
            self.notices.extend(self.store.failure.clone().map(Notice::Failed));
            self.reported_failure.clone_from(&self.store.failure);
        }
        let is_in_force = |name: &&HoldName| !self.store.refused.iter().any(|refused| refused.hold == **name);
        let in_force: Vec<HoldName> = self.effective.holds.iter().filter(is_in_force).cloned().collect();
        if in_force != self.in_force {
            self.notices.push(Notice::InForce(in_force.clone()));
            self.in_force = in_force;
        }
    }

    /// Saves the store. The caller has the lock.
    fn save(&mut self) {
        if let Err(error) = self.store.save(&self.state) {
            self.notices.push(Notice::Failed(error.to_string()));
        }
        self.saved = Stamp::read(&self.state);
    }

    /// Ends the service. Settings stay, except those of holds that are released on exit.
    ///
    /// # Errors
    /// The lock is taken. Everything stays then.
    pub fn stop(mut self, moment: Moment) -> Result<Vec<Notice>, LockError> {
        let lock = self.lock()?;
        self.reload(moment);
        // Even if nothing is released, `hold status` must not show a process that is about to end.
        self.store.service = None;
        let ending = self.store.release_where(|hold| hold.on_exit == OnExit::Release);
        self.save();
        if ending.is_empty() {
            return Ok(self.notices);
        }
        // A refused hold must not keep the settings of a released hold in force.
        let all = (self.store.holds.as_slice(), &self.facts, self.store.left.as_slice());
        let result = apply_accepted_holds(self.host, &self.state, &lock, COMMAND, all);
        let result = result.map(|(brought, effective, refused)| {
            (self.effective, self.refused) = (effective, refused);
            brought
        });
        self.conclude(&result, moment);
        self.save();
        Ok(self.notices)
    }
}

/// Returns whether a file or device concerns processors: it holds settings, or resets them.
pub fn concerns_processors(path: &str) -> bool {
    // The kernel reports paths without links. powercap's class directory leads to the first of its
    // devices.
    const PLACES: [&str; 4] = [
        "/sys/devices/system/cpu",
        "/sys/devices/system/node",
        "/sys/devices/virtual/powercap/",
        "/sys/firmware/acpi/platform_profile",
    ];
    PLACES.iter().any(|place| path.starts_with(place))
        || path.contains("/powercap/")
        || path.contains("/platform-profile/")
        || path.ends_with("/amd_x3d_mode")
}

#[cfg(test)]
mod tests;
