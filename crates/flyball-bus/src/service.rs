//! The service's side of its D-Bus interfaces. It starts `flyball hold-bus`, a process that speaks
//! D-Bus and can neither open nor write anything. That process's requests arrive here as typed
//! lines of limited length, and the service decides about them. Holds of programs and a user's
//! choice become holds like those of the command line.

mod degraded;
mod plans;
mod requests;

use std::{
    collections::BTreeMap,
    io::{self, BufReader, Write as _},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    time::Duration,
};

use flyball_control::{Setting, Snapshot, plan::plan};
use flyball_hold::{
    Cause, Desktop, Drift, Hold, HoldName, MAX_SETTINGS_PER_USER, Moment, Notice, Owner, Profiles, Service,
    size,
};
use flyball_host::{Host, topology::scaling_driver, watch::Watch};

use self::{degraded::Heat, plans::Planner};
use crate::{
    Answer, Ask, Drifted, HeldName, MAX_REQUESTED, Offered, Profile, Refusal, Request, State, Tell, Why,
    message::write_tell, read_line, server::names,
};

/// Pauses before retries of the bus, in seconds. After the last pause, the regular comparison
/// retries.
const RETRIES: [u64; 4] = [1, 5, 20, 60];

/// How long a program's hold outlives the connection to the bus on which it was made, once there is
/// a new connection: the program may hold again.
const GRACE: Duration = Duration::from_secs(30);

/// How long such holds last if there is no new connection.
const MAX_GRACE: Duration = Duration::from_secs(300);

/// How long a process that does not read may block the service.
const PATIENCE: Duration = Duration::from_secs(1);

/// Limit on requests that are answered before the service checks the machine again.
const MAX_AT_ONCE: usize = 8;

/// Limit on requests that are read before they are answered: whatever that process does, it must
/// not fill the service's memory.
const MAX_READ: usize = 64;

/// Name and priority of the hold of the user's chosen profile. It is stronger than those of
/// hold.toml and weaker than those of `hold add`. Its owner identifies the hold, not its name.
const CHOSEN: (&str, u32) = ("desktop", 80);

/// Prefix of the holds of programs. `power-saver` beats `performance`, and both beat the user's
/// choice.
const PREFIX: &str = "desktop:";

fn is_chosen(owner: &Owner) -> bool {
    matches!(owner, Owner::Desktop(_))
}

/// The file with the chosen profile, in the directory that survives reboots.
const CHOICE: &str = "desktop";

/// A process that speaks D-Bus.
struct Running {
    child: Child,
    to: UnixStream,
    from: Receiver<Request>,
    serves: bool,
}

#[derive(Debug, Clone)]
pub struct BusOptions {
    pub socket: PathBuf,
    /// Whether to serve the desktop's power profiles too.
    pub desktop: bool,
    /// flyball's own program, which is started as `flyball hold-bus`.
    pub program: PathBuf,
    /// The directory in which a user's choice survives a reboot.
    pub kept: Option<PathBuf>,
}

/// An event for the log.
#[derive(Debug, derive_more::Display)]
pub enum BusNotice {
    /// These names are served.
    #[display("D-Bus: {}", _0.join(", "))]
    Serves(&'static [&'static str]),
    /// A profile of the desktop that this machine does not accept.
    #[display("note: the desktop is not offered {profile}: {why}")]
    NotOffered { profile: Profile, why: String },
    /// The choice of the last boot is not in force.
    #[display("flyball: the desktop's {profile}: {why}")]
    NotRestored { profile: Profile, why: String },
    /// A choice that is lost at the next boot.
    #[display("note: the choice of {profile} ends at the next boot: {}: {error}", path.display())]
    NotKept { profile: Profile, path: PathBuf, error: io::Error },
    /// Holds of programs whose release is retried.
    #[display("flyball: programs' holds cannot be released yet: {_0}")]
    NotReleased(String),
    /// The bus is not served at present.
    #[display("flyball: {_0}")]
    Lost(String),
}

/// The holds of programs on the bus and of the desktop's user, and the process that speaks D-Bus.
pub struct Bus<'a> {
    host: &'a dyn Host,
    options: BusOptions,
    profiles: BTreeMap<Profile, (String, Vec<Setting>)>,
    /// The reading thread writes to it, to end the service's wait.
    wake: UnixStream,
    planner: Planner,
    running: Option<Running>,
    attempts: usize,
    next_attempt: Duration,
    /// The holds of programs, by cookie.
    clients: BTreeMap<u32, Profile>,
    /// Cookies of holds to release as soon as the holds can be changed.
    ending: Vec<u32>,
    /// When to retry releasing them, if it failed.
    end_after: Duration,
    end_failures: usize,
    /// Holds of programs whose connection was lost, and when they end.
    orphans: BTreeMap<u32, Duration>,
    chosen: Option<Profile>,
    heat: Heat,
    told: State,
    /// The last complaint, which is reported only once.
    complaint: String,
    notices: Vec<BusNotice>,
}

impl<'a> Bus<'a> {
    /// Creates a bus that is not connected yet. Plans for clients are made on `planned`, which is
    /// opened only for them.
    ///
    /// # Errors
    /// No socket or no thread can be created.
    pub fn new(
        host: &'a dyn Host,
        planned: Box<dyn Host>,
        options: BusOptions,
        watch: &mut Watch,
    ) -> io::Result<Bus<'a>> {
        let (ours, wake) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        // If it is full, the service will wake anyway.
        wake.set_nonblocking(true)?;
        watch.wake_by(ours.into());
        Ok(Bus {
            host,
            options,
            profiles: BTreeMap::new(),
            planner: Planner::start(planned, wake.try_clone()?)?,
            wake,
            running: None,
            attempts: 0,
            next_attempt: Duration::ZERO,
            clients: BTreeMap::new(),
            ending: Vec::new(),
            end_after: Duration::ZERO,
            end_failures: 0,
            orphans: BTreeMap::new(),
            chosen: None,
            heat: Heat::new(host),
            told: State::default(),
            complaint: String::new(),
            notices: Vec::new(),
        })
    }

    /// Returns the notices since the last call.
    pub fn notices(&mut self) -> Vec<BusNotice> {
        std::mem::take(&mut self.notices)
    }

    /// Starts serving a service that has just started: reads the three profiles, ends holds of
    /// programs from an earlier service, and restores the choice of the last boot.
    pub fn begin(
        &mut self,
        service: &mut Service<'_>,
        desktop: &Desktop,
        profiles: Profiles<'_>,
        moment: Moment,
    ) {
        if !self.options.desktop {
            return;
        }
        let named = |configured: &Option<String>, default: &str| {
            configured.clone().unwrap_or_else(|| default.to_owned())
        };
        self.profiles.clear();
        for (profile, name) in [
            (Profile::PowerSaver, named(&desktop.power_saver, "powersave")),
            (Profile::Balanced, named(&desktop.balanced, "balanced")),
            (Profile::Performance, named(&desktop.performance, "throughput")),
        ] {
            // Do not offer a profile that the machine refuses: a desktop cannot show why a choice
            // fails.
            let planned = profiles(&name).and_then(|settings| {
                let intent = flyball_control::Intent { settings };
                let snapshot = Snapshot::for_intent(self.host, &intent).map_err(|error| error.to_string())?;
                plan(&snapshot, &intent).map_err(|error| error.to_string())?;
                Ok(intent.settings)
            });
            match planned {
                Ok(settings) => _ = self.profiles.insert(profile, (name, settings)),
                Err(why) => self.notices.push(BusNotice::NotOffered { profile, why }),
            }
        }
        let holds = &service.store().holds;
        // A cookie belongs to one connection to the bus, so no program can release these any more.
        let clients = holds.iter().filter_map(|hold| hold.owner.cookie());
        self.ending.extend(clients.filter(|cookie| !self.clients.contains_key(cookie)));
        let chosen = holds.iter().find(|hold| is_chosen(&hold.owner));
        match chosen {
            Some(hold) => {
                let of_name = |(_, (name, _)): &(&Profile, &(String, Vec<Setting>))| {
                    hold.profile.as_ref() == Some(name)
                };
                self.chosen = self.profiles.iter().find(of_name).map(|(profile, _)| *profile);
            }
            None => {
                let kept = self.choice().and_then(|path| std::fs::read_to_string(path).ok());
                if let Some(profile) = kept.and_then(|name| name.trim().parse().ok())
                    && let Err(refusal) = self.choose(profile, Owner::Desktop(None), service, moment)
                {
                    self.notices.push(BusNotice::NotRestored { profile, why: refusal.sentence });
                }
            }
        }
    }

    /// Returns the file with the user's choice.
    fn choice(&self) -> Option<PathBuf> {
        self.options.kept.as_ref().map(|folder| folder.join(CHOICE))
    }

    /// Returns how long until there is something to do here.
    pub fn sleep_for(&self, now: Duration) -> Duration {
        let attempt = self.running.is_none().then_some(self.next_attempt);
        let end = (!self.ending.is_empty()).then_some(self.end_after);
        let next = attempt.into_iter().chain(end).chain(self.orphans.values().copied()).min();
        next.map_or(Duration::MAX, |next| next.saturating_sub(now))
    }

    /// Passes an event for the log to clients.
    pub fn tell(&mut self, notice: &Notice) {
        if let Notice::Drift(drift) = notice
            && self.running.as_ref().is_some_and(|running| running.serves)
        {
            self.send(&Tell::Drifted(drifted(drift)));
        }
    }

    /// Handles requests, and publishes changes.
    pub fn handle(&mut self, service: &mut Service<'_>, moment: Moment) {
        if self.running.is_none() && self.next_attempt <= moment.now {
            self.connect(service, moment);
        }
        self.answer_plans(service, moment);
        for count in 0.. {
            // Clients with endless requests must not keep the service from its work.
            if count == MAX_AT_ONCE {
                let _ = self.wake.write(&[0]);
                break;
            }
            let Some(request) = self.next(moment) else { break };
            // A hold must be possible alone, as with `hold add`. Otherwise it would cause trouble
            // when the hold beside it ends.
            let answer = match self.plan(request.id, request.ask) {
                Ok(None) => continue,
                Err(refusal) => Err(refusal),
                Ok(Some(Ask::Serving)) => {
                    self.serves(moment);
                    Ok(serde_json::Value::Null)
                }
                Ok(Some(ask)) => {
                    let answer = self.decide(ask, service, moment);
                    // Publish before answering: a client that reads a property after its call must
                    // see the effect of that call.
                    self.show(service);
                    answer
                }
            };
            self.answer(request.id, answer);
        }
        let is_over = |(cookie, end): (&u32, &Duration)| (*end <= moment.now).then_some(*cookie);
        let over: Vec<u32> = self.orphans.iter().filter_map(is_over).collect();
        self.orphans.retain(|cookie, _| !over.contains(cookie));
        self.ending.extend(over);
        self.end_clients(service, moment);
        self.show(service);
    }

    /// Starts planning the settings of a request, whose answer follows later. Returns any other
    /// request.
    fn plan(&mut self, id: u64, ask: Ask) -> Result<Option<Ask>, Refusal> {
        let gone = || Refusal::new(Why::Failed, "plans are not made any more");
        // Check it here, not where the profile is read: this process does not trust that one.
        if let Ask::Plan { settings, .. } | Ask::Apply { settings, .. } = &ask
            && size(settings) > MAX_SETTINGS_PER_USER
        {
            let most = format!("a profile has at most {MAX_SETTINGS_PER_USER} settings and values in lists");
            return Err(Refusal::new(Why::Invalid, most + "; long ones count more than once"));
        }
        let running = self.running.as_ref().ok_or_else(gone)?;
        self.planner.plan((running.child.id(), id), ask)
    }

    fn answer_plans(&mut self, service: &mut Service<'_>, moment: Moment) {
        while let Some(((process, id), ask, planned)) = self.planner.finished() {
            // The next process uses the same numbers for other requests.
            if self.running.as_ref().is_some_and(|running| running.child.id() == process) {
                let answer = match ask {
                    Ask::Apply { .. } | Ask::ReleaseNamed { .. } if planned.is_ok() => {
                        self.decide(ask, service, moment)
                    }
                    _ => planned,
                };
                self.show(service);
                self.answer(id, answer);
            }
        }
    }

    fn serves(&mut self, moment: Moment) {
        for end in self.orphans.values_mut() {
            *end = (moment.now + GRACE).min(*end);
        }
        if let Some(running) = &mut self.running {
            running.serves = true;
        }
        (self.attempts, self.complaint) = (0, String::new());
        self.notices.push(BusNotice::Serves(names(self.options.desktop)));
    }

    /// Returns the next request. Notices when the process has ended.
    fn next(&mut self, moment: Moment) -> Option<Request> {
        let running = self.running.as_mut()?;
        match running.from.try_recv() {
            Ok(request) => Some(request),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.lost(
                    "the process that speaks D-Bus has ended; programs' holds last 30 s longer, everything else goes on",
                    moment,
                );
                None
            }
        }
    }

    /// Handles the loss of the bus. Programs may come back with it, so their holds outlive it for a
    /// while.
    fn lost(&mut self, why: &str, moment: Moment) {
        // The process may have closed its socket without ending.
        self.stop();
        if self.complaint != why {
            self.notices.push(BusNotice::Lost(why.to_owned()));
            why.clone_into(&mut self.complaint);
        }
        for cookie in self.clients.keys() {
            self.orphans.entry(*cookie).or_insert(moment.now + MAX_GRACE);
        }
        let pause = RETRIES[self.attempts.min(RETRIES.len() - 1)];
        self.attempts += 1;
        self.next_attempt = moment.now + Duration::from_secs(pause);
    }

    fn connect(&mut self, service: &Service<'_>, moment: Moment) {
        match self.start() {
            Ok(running) => {
                self.running = Some(running);
                self.told = State::default();
                let state = self.look(service);
                self.told = state.clone();
                self.send(&Tell::State(state));
            }
            Err(error) => {
                let socket = self.options.socket.display();
                let why = format!("D-Bus is not served: {socket}: {error}; everything else goes on");
                self.lost(&why, moment);
            }
        }
    }

    /// Starts the process. It connects by itself, as its own user: with a connection of root's, an
    /// attacker who takes over the process could call other services as root.
    fn start(&self) -> io::Result<Running> {
        // If there is no bus at all, this gives a clear reason.
        std::fs::metadata(&self.options.socket)?;
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_write_timeout(Some(PATIENCE))?;
        let mut command = Command::new(&self.options.program);
        command.arg0("flyball").arg("hold-bus").arg(&self.options.socket);
        if self.options.desktop {
            command.arg("--desktop");
        }
        // Without NOTIFY_SOCKET and the other variables through which systemd and the service
        // communicate.
        command.env_clear().stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        let child = command.spawn()?;
        let (sender, from) = sync_channel(MAX_READ);
        let (reader, wake) = (ours.try_clone()?, self.wake.try_clone()?);
        std::thread::Builder::new().name("bus".to_owned()).spawn(move || read(reader, sender, &wake))?;
        Ok(Running { child, to: ours, from, serves: false })
    }

    fn send(&mut self, tell: &Tell) {
        let Some(running) = &self.running else { return };
        if write_tell(&running.to, tell).is_err() {
            // The process does not read. Its end is noticed like any other.
            let _ = running.to.shutdown(std::net::Shutdown::Both);
        }
    }

    fn answer(&mut self, id: u64, answer: Answer) {
        self.send(&Tell::Answer { id, answer });
    }

    /// Sends the state if it has changed.
    fn show(&mut self, service: &Service<'_>) {
        if self.running.is_none() {
            return;
        }
        let state = self.look(service);
        if state != self.told {
            self.told = state.clone();
            self.send(&Tell::State(state));
        }
    }

    fn look(&mut self, service: &Service<'_>) -> State {
        let store = service.store();
        let driver = scaling_driver(self.host).unwrap_or_else(|| "none".to_owned());
        let offered = |profile: &Profile| Offered { profile: *profile, driver: driver.clone() };
        let profiles: Vec<Offered> = self.profiles.keys().map(offered).collect();
        let mut drifted: Vec<String> = store.left.iter().map(|left| left.knob.to_string()).collect();
        drifted.sort_unstable();
        drifted.dedup();
        let in_force = |name: &HoldName| service.in_force().contains(name);
        let held = |hold: &Hold| HeldName {
            name: hold.name.to_string(),
            owner: hold.owner.to_string(),
            priority: hold.priority,
            in_force: in_force(&hold.name),
        };
        let in_store = |cookie: &u32| store.holds.iter().any(|hold| hold.owner.cookie() == Some(*cookie));
        // An administrator or a restore may have released holds.
        self.clients.retain(|cookie, _| in_store(cookie));
        self.orphans.retain(|cookie, _| in_store(cookie));
        if !store.holds.iter().any(|hold| is_chosen(&hold.owner)) {
            self.chosen = None;
        }
        State {
            active: Some(self.active(service)),
            profiles,
            cookies: self.clients.keys().copied().collect(),
            degraded: self.heat.degraded(self.host),
            holds: store.holds.iter().map(held).collect(),
            drifted,
        }
    }

    /// Returns the profile that a desktop shows: a program's, else the user's, else that of the
    /// strongest hold with one of the three profiles.
    fn active(&self, service: &Service<'_>) -> Profile {
        let of_hold = |name: &HoldName| {
            let hold = service.store().holds.iter().find(|hold| hold.name == *name)?;
            self.profiles.iter().find(|(_, (known, _))| hold.profile.as_ref() == Some(known))
        };
        // `PowerSaver` is the smallest.
        let client = self.clients.values().min().copied().or(self.chosen);
        let other = || service.in_force().iter().rev().find_map(of_hold).map(|(profile, _)| *profile);
        client.or_else(other).unwrap_or(Profile::Balanced)
    }

    /// Releases holds that ended while the holds could not be changed.
    fn end_clients(&mut self, service: &mut Service<'_>, moment: Moment) {
        if self.ending.is_empty() || self.end_after > moment.now {
            return;
        }
        let ending = std::mem::take(&mut self.ending);
        let released = requests::change(service, moment, |store| {
            store.release_where(|hold| hold.owner.cookie().is_some_and(|cookie| ending.contains(&cookie)));
            Ok(())
        });
        match released {
            Ok(_) => {
                self.clients.retain(|cookie, _| !ending.contains(cookie));
                self.orphans.retain(|cookie, _| !ending.contains(cookie));
                self.end_failures = 0;
            }
            Err(refusal) => {
                // Another flyball may have the lock. Report it once, and retry after a pause,
                // because each attempt writes the store.
                if self.end_failures == 0 {
                    self.notices.push(BusNotice::NotReleased(refusal.sentence));
                }
                let pause = RETRIES[self.end_failures.min(RETRIES.len() - 1)];
                self.end_failures += 1;
                self.end_after = moment.now + Duration::from_secs(pause);
                self.ending = ending;
            }
        }
    }

    /// Ends the process, together with the service.
    pub fn stop(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        // If this service may not kill the process of another user, do not wait for it.
        let _ = match running.child.kill() {
            Ok(()) => running.child.wait().map(Some),
            Err(_) => running.child.try_wait(),
        };
    }
}

/// Reads the process's requests until it ends.
fn read(from: UnixStream, to: SyncSender<Request>, mut wake: &UnixStream) {
    let mut from = BufReader::new(from);
    loop {
        // A line that is too long or is not a request ends the process: it is broken or was taken
        // over.
        let request = read_line::<Request>(&mut from, MAX_REQUESTED);
        let Ok(Some(request)) = request else { break };
        if to.send(request).is_err() {
            return;
        }
        let _ = wake.write(&[0]);
    }
    let _ = from.get_ref().shutdown(std::net::Shutdown::Both);
    // Dropping the sender tells the service that the process is gone. Wake it, so that it does not
    // notice only at the next comparison.
    drop(to);
    let _ = wake.write(&[0]);
}

fn drifted(drift: &Drift) -> Drifted {
    let pid = match &drift.cause {
        Cause::Written(by) | Cause::After { by, .. } => by.pid,
        _ => 0,
    };
    let colon = if drift.instance.is_empty() { "" } else { ":" };
    Drifted {
        knob: format!("{}{colon}{}", drift.knob, drift.instance),
        cpus: drift.cpus.to_string(),
        was: drift.wanted.clone(),
        is: drift.found.clone().unwrap_or_default(),
        by: drift.cause.to_string(),
        pid,
        action: drift.action.to_string(),
    }
}

#[cfg(test)]
mod tests;
