//! The service: what it does about each report of the kernel. It has no loop and no clock of its
//! own: the caller waits for events and passes them in with the time, so that a rehearsal and a
//! test play them.

mod correct;
mod notice;
mod unsettled;
mod watched;

use std::{collections::BTreeSet, time::Duration};

use flyball_control::{
    Setting,
    write::state::{Lock, LockError, StateDir},
};
use flyball_host::{
    Host,
    watch::{DeviceAction, Event, LocalTime, Writer, local_time, since_boot},
};

pub use self::{notice::Notice, watched::Watched};
use crate::{
    BringError, Condition, Config, ConfigError, Effective, Facts, HoldName, OnExit, ProcessId, ServiceState,
    Store, StoreError,
    apply::{bring_about, bring_possible, not_in_force},
    condition::{Lasting, next_edge},
    drift::Corrections,
    service::{correct::Seen, unsettled::Unsettled},
    store::Stamp,
};

/// How often everything is compared although nothing was reported: firmware and the kernel change
/// settings without a word.
pub const VERIFY_EVERY: Duration = Duration::from_secs(60);

/// Pauses before what could not be done is tried again, in milliseconds: policies that a driver is
/// making, a CPU on its way. After the last one the regular verify tries.
const RETRIES: [u64; 4] = [20, 100, 300, 1000];

/// Writes of others that are remembered while another flyball has the machine.
const MAX_WRITES: usize = 1000;

/// A moment, as a service needs it.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Since boot, sleep included.
    pub now: Duration,
    /// Seconds since 1970, for records.
    pub unix: u64,
    pub local: LocalTime,
}

impl Moment {
    /// Now, on this machine.
    pub fn here() -> Moment {
        // A clock before 1970 is one that was not set yet; the record then says 0.
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Moment { now: since_boot(), unix: since_1970.map_or(0, |time| time.as_secs()), local: local_time() }
    }
}

/// Finds the settings of a profile by its name; an error is the sentence to show.
pub type Profiles<'a> = &'a dyn Fn(&str) -> Result<Vec<Setting>, String>;

/// The service of one machine.
pub struct Service<'h> {
    host: &'h dyn Host,
    state: StateDir,
    /// What the file held when it was read or written last.
    store: Store,
    effective: Effective,
    /// The holds that the machine refuses although the pauses are over: the others are in force
    /// without them.
    refused: BTreeSet<HoldName>,
    /// The file as it was when it was read or written last.
    saved: Option<Stamp>,
    facts: Facts,
    /// What conditions are judged by instead of the machine's files, in a rehearsal.
    rehearsed: Option<Facts>,
    lasting: Lasting,
    corrections: Corrections,
    /// Writes of others since the last time that everything was compared.
    writes: Vec<(String, Writer)>,
    /// Whether the overlay is to be brought about: it is another one, or the last attempt failed.
    pending: bool,
    /// Whether another flyball had the lock when it was needed.
    waits: bool,
    retry: Option<(usize, Duration)>,
    /// What read back otherwise than it was written, and is tried again.
    unsettled: Unsettled,
    next_verify: Duration,
    seen: Option<Seen>,
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
            refused: BTreeSet::new(),
            saved: None,
            facts: Facts::default(),
            rehearsed: None,
            lasting: Lasting::default(),
            corrections: Corrections::default(),
            writes: Vec::new(),
            pending: true,
            waits: false,
            retry: None,
            unsettled: Unsettled::default(),
            next_verify: moment.now + VERIFY_EVERY,
            seen: None,
            next_edge: None,
            looked: Duration::ZERO,
            notices: Vec::new(),
        };
        service.store.service = ProcessId::of(std::process::id()).map(|process| ServiceState {
            process,
            since: moment.unix,
            blind,
        });
        // Saved before anything is written: a second service that is started now, and
        // `hold status`, see this one.
        service.configure(config, profiles, moment);
        service.expire(moment);
        service.store.save(&service.state)?;
        service.saved = Stamp::of(&service.state);
        service.look(moment);
        service.renew();
        service.bring(lock, moment);
        Ok(service)
    }

    /// Replaces the configuration's holds.
    fn configure(&mut self, config: Result<Config, ConfigError>, profiles: Profiles<'_>, moment: Moment) {
        let made = config.map_err(|error| error.to_string()).and_then(|config| {
            let holds = config.when.iter().enumerate().map(|(index, when)| {
                let mut hold = config.hold(index, when, moment.unix)?;
                hold.settings = profiles(&when.profile)?;
                Ok::<_, String>(hold)
            });
            let boot = config.active.iter().map(|active| {
                let settings = profiles(&active.profile)?;
                Ok(crate::Hold { settings, ..active.hold(moment.unix) })
            });
            holds.chain(boot).collect::<Result<Vec<_>, _>>()
        });
        let config_holds: Vec<HoldName> = self
            .store
            .holds
            .iter()
            .filter(|hold| hold.owner == crate::Owner::Config)
            .map(|hold| hold.name.clone())
            .collect();
        for name in config_holds {
            // It was just found.
            let _ = self.store.release(&name);
        }
        self.store.config_error = None;
        match made {
            Ok(holds) => {
                for hold in holds {
                    // What a user has made of it since the boot counts.
                    let is_known = |known: &crate::Hold| known.name == hold.name;
                    if hold.owner == crate::Owner::Boot && self.store.holds.iter().any(is_known) {
                        continue;
                    }
                    // Too many, at most: the rest of the configuration counts all the same.
                    if let Err(error) = self.store.add(hold) {
                        self.notices.push(Notice::Failed(error.to_string()));
                    }
                }
            }
            Err(error) => {
                self.notices.push(Notice::Failed(error.clone()));
                self.store.config_error = Some(error);
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

    /// The holds that count now, the strongest last.
    pub fn in_force(&self) -> &[HoldName] {
        &self.effective.holds
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

    /// How long to wait if nothing is reported.
    pub fn sleep_for(&self, now: Duration) -> Duration {
        let ends = self.store.holds.iter().filter_map(|hold| hold.end.at);
        // Counted from the last look: from now on it would never come due on a machine with many
        // events.
        let lasting = self.lasting.next(self.conditions(), self.looked);
        let others =
            self.retry.map(|(_, at)| at).into_iter().chain(self.next_edge).chain(lasting).chain(ends);
        others.chain([self.next_verify]).min().unwrap_or(now).saturating_sub(now)
    }

    /// Does what a batch of events and the time ask for.
    pub fn handle(&mut self, events: Vec<Event>, moment: Moment) {
        // The order matters: the holds that there are, which of them have ended, what their
        // conditions say, and then the overlay.
        let mut batch = self.sort(events, moment);
        if batch.store {
            self.reload();
        }
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
        let retries = self.retry.is_some_and(|(_, at)| at <= moment.now) || (self.waits && batch.lock);
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
                Err(error) => self.wait(&error),
            }
        } else {
            self.correct(&batch, moment);
        }
    }

    fn sort(&mut self, events: Vec<Event>, moment: Moment) -> Batch {
        let mut batch = Batch::default();
        for event in events {
            match event {
                Event::File { name } => match name.as_str() {
                    // Not for a write of its own.
                    Store::NAME => batch.store |= Stamp::of(&self.state) != self.saved,
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
        self.state.lock("flyball hold run")
    }

    /// Notes that there is something to be done as soon as the lock is given up, which the watch of
    /// its directory reports.
    fn wait(&mut self, error: &LockError) {
        // Said once: until the other one ends, each report of the kernel leads here again.
        if !self.waits {
            self.notices.push(Notice::Waiting(error.to_string()));
        }
        self.waits = true;
        self.retry = None;
    }

    /// Takes what a command has written.
    fn reload(&mut self) {
        // Before the file is read: one that is replaced meanwhile is read again.
        self.saved = Stamp::of(&self.state);
        match Store::load(&self.state, self.host) {
            Ok(mut store) => {
                // A command knows nothing newer of these.
                store.service.clone_from(&self.store.service);
                store.lasting.clone_from(&self.store.lasting);
                self.store = store;
            }
            Err(error) => self.notices.push(Notice::Failed(error.to_string())),
        }
    }

    fn expire(&mut self, moment: Moment) {
        let ended = self.store.expire(moment.now);
        if !ended.is_empty() {
            self.notices.extend(ended.into_iter().map(Notice::Ended));
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
            Effective::of(&self.store.holds, &self.facts)
        } else {
            let is_possible = |hold: &&crate::Hold| !self.refused.contains(&hold.name);
            let holds: Vec<crate::Hold> = self.store.holds.iter().filter(is_possible).cloned().collect();
            Effective::of(&holds, &self.facts)
        };
        let has_changed = effective != self.effective;
        if effective.holds != self.effective.holds {
            self.notices.push(Notice::InForce(effective.holds.clone()));
        }
        self.effective = effective;
        has_changed
    }

    /// Brings the overlay about.
    fn bring(&mut self, lock: Lock, moment: Moment) {
        // A command may have changed the holds before the lock was free.
        self.reload();
        self.expire(moment);
        self.renew();
        self.writes.clear();
        self.seen = None;
        let wanted = (&self.effective, self.store.left.as_slice());
        let result = bring_about(self.host, &self.state, &lock, "flyball hold run", wanted, &[]);
        let (result, refused) = match result {
            // Not at once: policies that a driver is making are there after a pause.
            Err(BringError::Plan(_)) if self.retry.is_some_and(|(count, _)| count + 1 >= RETRIES.len()) => {
                let all = (self.store.holds.as_slice(), &self.facts, self.store.left.as_slice());
                match bring_possible(self.host, &self.state, &lock, "flyball hold run", all) {
                    Ok((brought, effective, refused)) => {
                        self.effective = effective;
                        (Ok(brought), refused)
                    }
                    Err(error) => (Err(error), Vec::new()),
                }
            }
            result => (result, Vec::new()),
        };
        self.conclude(&result, moment);
        if let Some(why) = not_in_force(&refused) {
            self.notices.push(Notice::Failed(why.clone()));
            self.store.failure = Some(why);
            self.refused = refused.into_iter().map(|(name, _)| name).collect();
        }
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
        self.waits = false;
        self.retry = match (&failure, self.retry) {
            (None, _) => None,
            // After the pauses are used up there is no next one: the regular comparison goes on
            // trying, once a minute.
            (Some(_), retry) => {
                let next = retry.map_or(0, |(count, _)| count + 1);
                RETRIES.get(next).map(|pause| (next, moment.now + Duration::from_millis(*pause)))
            }
        };
        if failure != self.store.failure {
            self.notices.extend(failure.clone().map(Notice::Failed));
            self.store.failure = failure;
        }
    }

    /// Saves the store. The caller has the lock.
    fn save(&mut self) {
        if let Err(error) = self.store.save(&self.state) {
            self.notices.push(Notice::Failed(error.to_string()));
        }
        self.saved = Stamp::of(&self.state);
    }

    /// Ends: settings stay, but for holds that are released on exit.
    ///
    /// # Errors
    /// The lock is taken; then everything stays.
    pub fn stop(mut self, moment: Moment) -> Result<Vec<Notice>, LockError> {
        let lock = self.lock()?;
        self.reload();
        // `hold status` must not name a process that is about to end, even if nothing is released.
        self.store.service = None;
        // Taken before the release, which needs the store for itself.
        let ending: Vec<HoldName> = self
            .store
            .holds
            .iter()
            .filter(|hold| hold.on_exit == OnExit::Release)
            .map(|hold| hold.name.clone())
            .collect();
        for name in &ending {
            // It was just found.
            let _ = self.store.release(name);
        }
        self.save();
        if ending.is_empty() {
            return Ok(self.notices);
        }
        self.renew();
        let wanted = (&self.effective, self.store.left.as_slice());
        let result = bring_about(self.host, &self.state, &lock, "flyball hold run", wanted, &[]);
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
}
