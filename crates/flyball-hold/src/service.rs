//! The service: what it does about each report of the kernel. It has no loop and no clock of its
//! own: the caller waits for events and passes them in with the time, so that a rehearsal and a
//! test play them.

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
    apply::{bring_about, bring_possible, not_in_force},
    change::change_locked,
    condition::{Lasting, next_edge},
    drift::Corrections,
    service::{correct::LastCheck, unsettled::Unsettled},
    store::Stamp,
};

/// How often everything is compared although nothing was reported: firmware and the kernel change
/// settings without a word.
pub const VERIFY_EVERY: Duration = Duration::from_secs(60);

/// Pauses before what could not be done is tried again, in milliseconds: policies that a driver is
/// making, a CPU on its way. After the last one the regular verify tries.
const RETRIES: [u64; 4] = [20, 100, 300, 1000];

/// How long another flyball may have the lock before that is worth a line.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// The service's name in the lock and the journal.
const COMMAND: &str = "flyball hold run";

/// Writes of others that are remembered while another flyball has the machine.
const MAX_WRITES: usize = 1000;

/// The service of one machine.
pub struct Service<'h> {
    host: &'h dyn Host,
    state: StateDir,
    /// What the file held when it was read or written last.
    store: Store,
    effective: Effective,
    /// The holds that the machine refuses although the pauses are over: the others are in force
    /// without them.
    refused: Vec<Refused>,
    /// The holds that are in force, the strongest last, as they were reported last.
    in_force: Vec<HoldName>,
    /// The holds that were reported as added, with the times at which they were.
    known: BTreeMap<HoldName, u64>,
    /// The failure that was reported last.
    reported_failure: Option<String>,
    /// The file as it was when it was read or written last.
    saved: Option<Stamp>,
    /// The holds have changed, and the service has not acted on that yet.
    has_changed_holds: bool,
    facts: Facts,
    /// What conditions are judged by instead of the machine's files, in a rehearsal.
    rehearsed: Option<Facts>,
    lasting: Lasting,
    corrections: Corrections,
    /// Writes of others since the last time that everything was compared.
    writes: Vec<(String, Writer)>,
    /// Whether the overlay is to be brought about: it is another one, or the last attempt failed.
    pending: bool,
    /// Since when another flyball has had the lock that is needed.
    waits: Option<Duration>,
    has_reported_wait: bool,
    retry: Option<(usize, Duration)>,
    /// What read back otherwise than it was written, and is tried again.
    unsettled: Unsettled,
    next_verify: Duration,
    seen: Option<LastCheck>,
    next_edge: Option<Duration>,
    /// When conditions were judged last.
    looked: Duration,
    notices: Vec<Notice>,
}

/// What a batch of events amounts to.
#[expect(clippy::struct_excessive_bools, reason = "each is a kind of event")]
#[derive(Debug, Default)]
struct Batch {
    store: bool,
    lock: bool,
    facts: bool,
    /// Whether everything must be compared.
    compare: bool,
    resumed: bool,
    device: Option<String>,
}

impl<'h> Service<'h> {
    /// Takes the holds of this boot over, with those of the configuration instead of the ones that
    /// it had before. A configuration or profile that is wrong adds no hold at all, and the status
    /// says where it is wrong.
    ///
    /// # Errors
    /// Another service runs, or the state directory cannot be used. What the machine refuses is a
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
        // The holds that commands added before, and those of a service that was killed.
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
        // Saved before anything is written: a second service that is started now, and
        // `hold status`, see this one.
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
            // The holds of the last good configuration stay: a typo must not change a machine.
            Err(error) => {
                self.notices.push(Notice::Failed(error.clone()));
                self.store.config_error = Some(error);
                return;
            }
        };
        self.store.release_where(|hold| hold.owner == Owner::Config);
        self.store.config_error = None;
        for hold in holds {
            // What a user has made of it since the boot counts.
            let is_known = |known: &Hold| known.name == hold.name;
            if hold.owner == Owner::Boot && self.store.holds.iter().any(is_known) {
                continue;
            }
            // Too many, at most: the rest of the configuration counts all the same.
            if let Err(error) = self.store.add(hold) {
                self.notices.push(Notice::Failed(error.to_string()));
            }
        }
    }

    /// What happened since the last call.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The holds that are in force, the strongest last.
    pub fn in_force(&self) -> &[HoldName] {
        &self.in_force
    }

    /// What the service manager shows of the service: what is wrong, then what is in force.
    pub fn summary(&self) -> String {
        let wrong = self.store.config_error.as_ref().map(|error| format!("configuration: {error}"));
        let parts = wrong.into_iter().chain(self.store.failure.clone());
        let parts = parts.chain([Notice::InForce(self.in_force.clone()).to_string()]);
        parts.collect::<Vec<_>>().join("; ")
    }

    /// From now on conditions are judged by these facts instead of the machine's files.
    pub fn rehearse(&mut self, facts: Facts) {
        self.rehearsed = Some(facts);
    }

    /// What conditions were judged by last.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    fn conditions(&self) -> impl Iterator<Item = &Condition> + Clone {
        self.store.holds.iter().filter_map(|hold| hold.condition.as_ref())
    }

    /// Changes the holds for a program, as a command does. The service knows the result: it does
    /// not wait for a report of its own write, nor read the file again.
    ///
    /// # Errors
    /// See [`ChangeError`]; then the holds are as they were.
    pub fn change(
        &mut self,
        moment: Moment,
        change: impl FnOnce(&mut Store) -> Result<(), StoreError>,
    ) -> Result<Changed, ChangeError> {
        let lock = self.lock()?;
        let changed = change_locked(self.host, &self.state, &lock, COMMAND, moment, change)?;
        // Before the lock is given up: the next command's file is another one.
        self.saved = Stamp::read(&self.state);
        self.adopt(changed.store.clone(), moment);
        self.has_changed_holds = true;
        Ok(changed)
    }

    /// How long to wait if nothing is reported.
    pub fn sleep_for(&self, now: Duration) -> Duration {
        if self.has_changed_holds {
            return Duration::ZERO;
        }
        let ends = self.store.holds.iter().filter_map(|hold| hold.end.at);
        // Counted from the last look: from now on it would never come due on a machine with many
        // events.
        let lasting = self.lasting.next(self.conditions(), self.looked);
        let word = self.waits.filter(|_| !self.has_reported_wait).map(|since| since + LONG_WAIT);
        let again = self.store.left.iter().filter_map(|left| left.until);
        let others =
            self.retry.map(|(_, at)| at).into_iter().chain(self.next_edge).chain(lasting).chain(ends);
        let others = others.chain(word).chain(again);
        others.chain([self.next_verify]).min().unwrap_or(now).saturating_sub(now)
    }

    /// Does what a batch of events and the time ask for.
    pub fn handle(&mut self, events: Vec<Event>, moment: Moment) {
        // The order matters: the holds that there are, which of them have ended, what their
        // conditions say, and then the overlay.
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
        // A renewed overlay is brought about even if nothing on the machine has changed.
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

    /// Watches places again that were left because of another writer, if their pause is over;
    /// whether there were any.
    fn take_up_again(&mut self, moment: Moment) -> bool {
        let is_over = |left: &mut Exemption| left.until.is_some_and(|until| until <= moment.now);
        let over: Vec<Exemption> = self.store.left.extract_if(.., is_over).collect();
        // What differs there still was written by the same program.
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
                    // Not for a write of its own.
                    Store::NAME => batch.store |= Stamp::read(&self.state) != self.saved,
                    "lock" => batch.lock = true,
                    _ => {}
                },
                // A rehearsal may have writes to any file.
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
                    // A policy comes and goes with its CPU, an uncore domain with its driver.
                    if concerns_processors(&path) && action != DeviceAction::Other {
                        batch.compare = true;
                        batch.device = Some(path);
                    }
                }
                // Suspend takes CPUs down and up without uevents (freeze_secondary_cpus in
                // kernel/cpu.c): resume is the only report.
                Event::Resumed { .. } => (batch.resumed, batch.compare) = (true, true),
                Event::Pressure { name } => {
                    self.lasting.press(&name, moment.now);
                    batch.facts = true;
                }
                Event::ClockSet | Event::Started { .. } | Event::Ended { .. } | Event::Group => {
                    batch.facts = true;
                }
                Event::Lost => {
                    // What was lost may have been any of these.
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

    /// Notes that there is something to be done as soon as the lock is given up, which the watch of
    /// its directory reports.
    fn wait(&mut self, error: &LockError, moment: Moment) {
        let since = *self.waits.get_or_insert(moment.now);
        // Most commands take milliseconds. One that takes long is reported once: until it ends,
        // each report of the kernel leads here again.
        if since + LONG_WAIT <= moment.now && !std::mem::replace(&mut self.has_reported_wait, true) {
            self.notices.push(Notice::Waiting(error.to_string()));
        }
        self.retry = None;
    }

    /// Takes what a command has written.
    fn reload(&mut self, moment: Moment) {
        // Before the file is read: one that is replaced meanwhile is read again.
        self.saved = Stamp::read(&self.state);
        match Store::load(&self.state, self.host) {
            Ok(store) => self.adopt(store, moment),
            Err(error) => self.notices.push(Notice::Failed(error.to_string())),
        }
    }

    /// Replaces the holds by those that a command has left.
    fn adopt(&mut self, mut store: Store, moment: Moment) {
        // A command knows nothing newer of these.
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
        // One that has ended is reported by `expire`.
        self.known.retain(|name, _| self.store.holds.iter().any(|hold| hold.name == *name));
        self.known.extend(now);
    }

    fn expire(&mut self, moment: Moment) {
        let ended = self.store.expire(moment.now);
        if !ended.is_empty() {
            // The file may still have it after it was reported, until the lock is free.
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
        // A rehearsal's facts have no clock of their own.
        self.facts.minutes = moment.local.minutes;
        let conditions = self.store.holds.iter().filter_map(|hold| hold.condition.as_ref());
        self.facts.lasting = self.lasting.judge(conditions, &self.facts, moment.now);
        // For commands, which do not see time pass. It is saved with the holds that it brings in
        // force.
        self.store.lasting.clone_from(&self.facts.lasting);
        self.looked = moment.now;
        self.next_edge = next_edge(self.conditions(), moment.local).map(|wait| moment.now + wait);
    }

    /// Computes the overlay; whether it is another one.
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

    /// Brings the overlay about.
    fn bring(&mut self, lock: Lock, moment: Moment) {
        // A command may have changed the holds before the lock was free.
        self.reload(moment);
        self.expire(moment);
        self.renew();
        self.writes.clear();
        self.seen = None;
        let wanted = (&self.effective, self.store.left.as_slice());
        let result = bring_about(self.host, &self.state, &lock, COMMAND, wanted, &[], OnRefusal::GoOn);
        let (result, refused) = match result {
            // Not at once: policies that a driver is making are there after a pause.
            Err(BringError::Plan(_)) if self.retry.is_some_and(|(count, _)| count + 1 >= RETRIES.len()) => {
                let all = (self.store.holds.as_slice(), &self.facts, self.store.left.as_slice());
                match bring_possible(self.host, &self.state, &lock, COMMAND, all) {
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

    /// Notes whether the machine is as it should be, and when to try again if it is not.
    fn conclude(&mut self, result: &Result<crate::Brought, BringError>, moment: Moment) {
        let failure = match result {
            Ok(brought) if brought.restored.is_exact() => None,
            Ok(brought) => Some(brought.restored.to_string()),
            Err(error) => Some(error.to_string()),
        };
        // What was not exact stays pending: each later event tries it again, whatever it is about.
        self.pending = failure.is_some();
        (self.waits, self.has_reported_wait) = (None, false);
        self.retry = match (&failure, self.retry) {
            (None, _) => None,
            // After the pauses are used up there is no next one: the regular comparison goes on
            // trying, once a minute.
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
        // Policies that a driver is making are there after a pause, and this is no failure.
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

    /// Ends: settings stay, but for holds that are released on exit.
    ///
    /// # Errors
    /// The lock is taken; then everything stays.
    pub fn stop(mut self, moment: Moment) -> Result<Vec<Notice>, LockError> {
        let lock = self.lock()?;
        self.reload(moment);
        // `hold status` must not name a process that is about to end, even if nothing is released.
        self.store.service = None;
        let ending = self.store.release_where(|hold| hold.on_exit == OnExit::Release);
        self.save();
        if ending.is_empty() {
            return Ok(self.notices);
        }
        // A hold that is refused must not keep the settings of a released one in force.
        let all = (self.store.holds.as_slice(), &self.facts, self.store.left.as_slice());
        let result = bring_possible(self.host, &self.state, &lock, COMMAND, all);
        let result = result.map(|(brought, effective, refused)| {
            (self.effective, self.refused) = (effective, refused);
            brought
        });
        self.conclude(&result, moment);
        self.save();
        Ok(self.notices)
    }
}

/// Whether a file or device is about processors: settings lie there, and what resets them.
pub fn concerns_processors(path: &str) -> bool {
    // The kernel reports paths without links: powercap's class directory leads to the first of its
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
