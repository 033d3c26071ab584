//! The service's side of its D-Bus interfaces. It starts `flyball hold-bus`, a process that can
//! open and write nothing and speaks D-Bus; what that process asks for arrives here as a bounded
//! line with a type, and is decided here. Holds of programs and the choice of a user become holds
//! like those of the command line.

mod degraded;
mod plans;
mod requests;

use std::{
    collections::BTreeMap,
    io::{BufReader, Write as _},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, TryRecvError, channel},
    time::Duration,
};

use flyball_bus::{
    Ask, Drifted, HeldName, MAX_REQUESTED, Offered, Profile, Refusal, Request, State, Tell, Why, read_line,
    write_line,
};
use flyball_control::{Setting, Snapshot, plan::plan, write::state::StateDir};
use flyball_hold::{
    Cause, Desktop, Drift, Hold, HoldName, Moment, Notice, Owner, Service, Store, change_holds,
};
use flyball_host::{Host, topology::scaling_driver, watch::Watch};

use self::{degraded::Heat, plans::Planner};
use crate::{exit::Failure, output, process::own_program, profiles};

/// Pauses before the bus is tried again, in seconds. After the last one it is tried with the
/// regular verify.
const RETRIES: [u64; 4] = [1, 5, 20, 60];

/// How long a program's hold outlives the connection to the bus that it came by, once there is
/// another connection: the program may hold again.
const GRACE: Duration = Duration::from_secs(30);

/// Until when such holds last if there is no other connection.
const MAX_GRACE: Duration = Duration::from_secs(300);

/// How long a process that does not read may keep the service waiting.
const PATIENCE: Duration = Duration::from_secs(1);

/// The hold of the profile that a user chose. Stronger than those of hold.toml, weaker than those
/// of `hold add`.
const CHOSEN: (&str, u32) = ("desktop", 80);

/// The holds of programs: `power-saver` beats `performance`, and both beat what the user chose.
const PREFIX: &str = "desktop:";

/// The file with the chosen profile, in the directory that lasts over boots.
const CHOICE: &str = "desktop";

/// A process that speaks D-Bus.
struct Running {
    child: Child,
    to: UnixStream,
    from: Receiver<Request>,
    serves: bool,
}

/// See the module.
pub(super) struct Bus<'a> {
    host: &'a dyn Host,
    state: StateDir,
    /// The bus's socket; `None` without `--bus`.
    socket: Option<PathBuf>,
    desktop: bool,
    /// Where the choice of a user outlives a boot.
    kept: Option<PathBuf>,
    profiles: BTreeMap<Profile, (String, Vec<Setting>)>,
    /// Written to by the thread that reads, so that the service's one wait ends.
    wake: UnixStream,
    /// `None` without `--bus`.
    planner: Option<Planner>,
    running: Option<Running>,
    attempts: usize,
    next_attempt: Duration,
    /// The holds of programs, by cookie.
    clients: BTreeMap<u32, Profile>,
    /// Those to be released as soon as the holds can be changed.
    ending: Vec<u32>,
    /// When releasing those is tried again, if it failed.
    end_after: Duration,
    end_failures: usize,
    /// Holds of programs whose connection is lost, and when they end.
    orphans: BTreeMap<u32, Duration>,
    chosen: Option<Profile>,
    heat: Heat,
    told: State,
    /// Said once, not at each attempt.
    complaint: String,
}

/// The driver of the first policy.
fn driver(host: &dyn Host) -> String {
    scaling_driver(host).unwrap_or_else(|| "none".to_owned())
}

impl<'a> Bus<'a> {
    pub(super) fn new(
        host: &'a dyn Host,
        state: StateDir,
        socket: Option<&Path>,
        desktop: bool,
        watch: &mut Watch,
        open: &dyn Fn() -> Result<Box<dyn Host>, Failure>,
    ) -> Result<Bus<'a>, Failure> {
        let fail = |error: std::io::Error| Failure::failed(format!("cannot make a socket: {error}"));
        let (ours, wake) = UnixStream::pair().map_err(fail)?;
        ours.set_nonblocking(true).map_err(fail)?;
        // Full means that the service is going to wake anyway.
        wake.set_nonblocking(true).map_err(fail)?;
        watch.wake_by(ours.into());
        let planner = match socket {
            Some(_) => Some(Planner::start(open()?, wake.try_clone().map_err(fail)?).map_err(fail)?),
            None => None,
        };
        Ok(Bus {
            host,
            state,
            socket: socket.map(Path::to_owned),
            desktop,
            // systemd sets it for a unit with StateDirectory=.
            kept: std::env::var_os("STATE_DIRECTORY").map(|folder| Path::new(&folder).join(CHOICE)),
            profiles: BTreeMap::new(),
            wake,
            planner,
            running: None,
            attempts: 0,
            next_attempt: Duration::ZERO,
            clients: BTreeMap::new(),
            ending: Vec::new(),
            end_after: Duration::ZERO,
            end_failures: 0,
            orphans: BTreeMap::new(),
            chosen: None,
            heat: Heat::of(host),
            told: State::default(),
            complaint: String::new(),
        })
    }

    /// Begins with a service that has just started: reads the three profiles, ends holds of
    /// programs that an earlier service had, and restores the choice of the last boot.
    pub(super) fn begin(&mut self, service: &Service<'_>, desktop: &Desktop) {
        if self.socket.is_none() || !self.desktop {
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
            let settings = match profiles::read(&name) {
                Ok(named) => named.profile.intent.settings,
                Err(error) => {
                    eprintln!("note: the desktop is not offered {profile}: {error}");
                    continue;
                }
            };
            let intent = flyball_control::Intent { settings };
            // What the machine refuses is not offered: a desktop cannot show why a choice fails.
            let planned = Snapshot::for_intent(self.host, &intent)
                .map_err(|error| error.to_string())
                .and_then(|snapshot| plan(&snapshot, &intent).map_err(|error| error.to_string()));
            match planned {
                Ok(_) => _ = self.profiles.insert(profile, (name, intent.settings)),
                Err(error) => eprintln!("note: the desktop is not offered {profile}: {error}"),
            }
        }
        let holds = &service.store().holds;
        // Cookies are of one connection to the bus: no program can release these any more.
        let clients = holds.iter().filter_map(|hold| hold.name.as_str().strip_prefix(PREFIX)?.parse().ok());
        self.ending = clients.filter(|cookie| !self.clients.contains_key(cookie)).collect();
        let chosen = holds.iter().find(|hold| hold.name.as_str() == CHOSEN.0);
        match chosen {
            Some(hold) => {
                let of_name = |(_, (name, _)): &(&Profile, &(String, Vec<Setting>))| {
                    hold.profile.as_ref() == Some(name)
                };
                self.chosen = self.profiles.iter().find(of_name).map(|(profile, _)| *profile);
            }
            None => {
                let kept = self.kept.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
                if let Some(profile) = kept.and_then(|name| name.trim().parse().ok())
                    && let Err(refusal) = self.choose(profile, Owner::Boot)
                {
                    eprintln!("flyball: the desktop's {profile}: {}", refusal.sentence);
                }
            }
        }
    }

    /// How long until there is something to do here.
    pub(super) fn sleep_for(&self, now: Duration) -> Duration {
        let waits = self.socket.is_some() && self.running.is_none();
        let attempt = waits.then_some(self.next_attempt);
        let end = (!self.ending.is_empty()).then_some(self.end_after);
        let next = attempt.into_iter().chain(end).chain(self.orphans.values().copied()).min();
        next.map_or(Duration::MAX, |next| next.saturating_sub(now))
    }

    /// Passes something that is worth a line in the log to clients.
    pub(super) fn tell(&mut self, notice: &Notice) {
        if let Notice::Drift(drift) = notice
            && self.running.as_ref().is_some_and(|running| running.serves)
        {
            self.send(&Tell::Drifted(drifted(drift)));
        }
    }

    /// Does what was asked, and shows what changed.
    pub(super) fn handle(&mut self, service: &Service<'_>, moment: Moment) {
        if self.socket.is_none() {
            return;
        }
        if self.running.is_none() && self.next_attempt <= moment.now {
            self.connect(service, moment);
        }
        self.answer_plans();
        let mut store = None;
        while let Some(request) = self.next(moment) {
            if let Ask::Serving { names } = &request.ask {
                self.serves(names, moment);
                self.answer(request.id, Ok(serde_json::Value::Null));
                continue;
            }
            if let Ask::Plan { settings } = request.ask {
                if let Err(refusal) = self.plan(request.id, settings) {
                    self.answer(request.id, Err(refusal));
                }
                continue;
            }
            let (answer, changed) = self.decide(request.ask, service, moment);
            if changed.is_some() {
                store = changed;
            }
            // Before the answer: a client that reads a property after its call must see what it
            // did.
            self.show(store.as_ref().unwrap_or(service.store()), service);
            self.answer(request.id, answer);
        }
        let is_over = |(cookie, end): (&u32, &Duration)| (*end <= moment.now).then_some(*cookie);
        let over: Vec<u32> = self.orphans.iter().filter_map(is_over).collect();
        self.orphans.retain(|cookie, _| !over.contains(cookie));
        self.ending.extend(over);
        if let Some(changed) = self.end_clients(moment) {
            store = Some(changed);
        }
        self.show(store.as_ref().unwrap_or(service.store()), service);
    }

    /// Has the settings planned; the answer comes later.
    fn plan(&self, id: u64, settings: Vec<Setting>) -> Result<(), Refusal> {
        let gone = || Refusal::new(Why::Failed, "plans are not made any more");
        let planner = self.planner.as_ref().ok_or_else(gone)?;
        let running = self.running.as_ref().ok_or_else(gone)?;
        planner.plan((running.child.id(), id), settings)
    }

    fn answer_plans(&mut self) {
        while let Some(((process, id), answer)) = self.planner.as_ref().and_then(Planner::finished) {
            // The numbers of a process that has ended mean other requests to the next one.
            if self.running.as_ref().is_some_and(|running| running.child.id() == process) {
                self.answer(id, answer);
            }
        }
    }

    fn serves(&mut self, names: &[String], moment: Moment) {
        for end in self.orphans.values_mut() {
            *end = (moment.now + GRACE).min(*end);
        }
        if let Some(running) = &mut self.running {
            running.serves = true;
        }
        (self.attempts, self.complaint) = (0, String::new());
        // A log that cannot be written is not a reason to stop.
        let _ = output::line(format!("D-Bus: {}", names.join(", ")));
    }

    /// The next request; notes when the process has ended.
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

    /// Programs may come back with the bus: their holds outlive it for a while.
    fn lost(&mut self, why: &str, moment: Moment) {
        // It may have closed its socket without ending.
        self.stop();
        if self.complaint != why {
            eprintln!("flyball: {why}");
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
        let Some(socket) = self.socket.clone() else { return };
        match self.start(&socket) {
            Ok(running) => {
                self.running = Some(running);
                self.told = State::default();
                let state = self.look(service.store(), service);
                self.told = state.clone();
                self.send(&Tell::State(state));
            }
            Err(error) => {
                let why =
                    format!("D-Bus is not served: {}: {error}; everything else goes on", socket.display());
                self.lost(&why, moment);
            }
        }
    }

    /// The connection is made here, because the process may make none; nothing of D-Bus is read
    /// here.
    fn start(&self, socket: &Path) -> std::io::Result<Running> {
        let bus = UnixStream::connect(socket)?;
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_write_timeout(Some(PATIENCE))?;
        let mut command =
            Command::new(own_program().map_err(|error| std::io::Error::other(error.to_string()))?);
        command.arg0("flyball").arg("hold-bus");
        if self.desktop {
            command.arg("--desktop");
        }
        // What systemd says to the service is not for this process.
        command.env_clear().stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::from(OwnedFd::from(bus)));
        let child = command.spawn()?;
        let (sender, from) = channel();
        let (reader, wake) = (ours.try_clone()?, self.wake.try_clone()?);
        std::thread::Builder::new().name("bus".to_owned()).spawn(move || read(reader, sender, &wake))?;
        Ok(Running { child, to: ours, from, serves: false })
    }

    fn send(&mut self, tell: &Tell) {
        let Some(running) = &self.running else { return };
        if write_line(&running.to, tell).is_err() {
            // A process that does not read: its end is noticed as that of any other.
            let _ = running.to.shutdown(std::net::Shutdown::Both);
        }
    }

    fn answer(&mut self, id: u64, answer: flyball_bus::Answer) {
        self.send(&Tell::Answer { id, answer });
    }

    /// Sends the state if it is another one.
    fn show(&mut self, store: &Store, service: &Service<'_>) {
        if self.running.is_none() {
            return;
        }
        let state = self.look(store, service);
        if state != self.told {
            self.told = state.clone();
            self.send(&Tell::State(state));
        }
    }

    fn look(&mut self, store: &Store, service: &Service<'_>) -> State {
        let name = |profile: Profile| {
            let driver = driver(self.host);
            Offered { profile, driver }
        };
        let profiles: Vec<Offered> = self.profiles.keys().copied().map(name).collect();
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
        let in_store =
            |cookie: &u32| store.holds.iter().any(|hold| hold.name.as_str() == client_name(*cookie));
        // Released by an administrator, or by a restore.
        self.clients.retain(|cookie, _| in_store(cookie));
        self.orphans.retain(|cookie, _| in_store(cookie));
        if !store.holds.iter().any(|hold| hold.name.as_str() == CHOSEN.0) {
            self.chosen = None;
        }
        State {
            active: Some(self.active(store, service)),
            profiles,
            cookies: self.clients.keys().copied().collect(),
            degraded: self.heat.degraded(self.host),
            holds: store.holds.iter().map(held).collect(),
            drifted,
        }
    }

    /// The profile that a desktop shows: of programs, of the user, else of the strongest hold that
    /// stands for one of the three.
    fn active(&self, store: &Store, service: &Service<'_>) -> Profile {
        let of_hold = |name: &HoldName| {
            let hold = store.holds.iter().find(|hold| hold.name == *name)?;
            self.profiles.iter().find(|(_, (known, _))| hold.profile.as_ref() == Some(known))
        };
        // `PowerSaver` is the first.
        let client = self.clients.values().min().copied().or(self.chosen);
        let other = || service.in_force().iter().rev().find_map(of_hold).map(|(profile, _)| *profile);
        client.or_else(other).unwrap_or(Profile::Balanced)
    }

    /// Releases what ended while the holds could not be changed.
    fn end_clients(&mut self, moment: Moment) -> Option<Store> {
        if self.ending.is_empty() || self.end_after > moment.now {
            return None;
        }
        let ending = std::mem::take(&mut self.ending);
        let released = self.change(|store| {
            for cookie in &ending {
                // It may have been released by an administrator.
                if let Ok(name) = client_name(*cookie).parse() {
                    let _ = store.release(&name);
                }
            }
            Ok(())
        });
        match released {
            Ok(store) => {
                self.clients.retain(|cookie, _| !ending.contains(cookie));
                self.orphans.retain(|cookie, _| !ending.contains(cookie));
                self.end_failures = 0;
                Some(store)
            }
            Err(refusal) => {
                // Another flyball may have the machine. Said once, and tried again after a pause:
                // each attempt writes the store.
                if self.end_failures == 0 {
                    eprintln!("flyball: programs' holds cannot be released yet: {}", refusal.sentence);
                }
                let pause = RETRIES[self.end_failures.min(RETRIES.len() - 1)];
                self.end_failures += 1;
                self.end_after = moment.now + Duration::from_secs(pause);
                self.ending = ending;
                None
            }
        }
    }

    /// Ends with the service.
    pub(super) fn stop(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        // One of another user that this service may not end is not waited for.
        let _ = match running.child.kill() {
            Ok(()) => running.child.wait().map(Some),
            Err(_) => running.child.try_wait(),
        };
    }
}

fn client_name(cookie: u32) -> String {
    format!("{PREFIX}{cookie}")
}

/// Reads what the process asks, until it ends.
fn read(from: UnixStream, to: Sender<Request>, mut wake: &UnixStream) {
    let mut from = BufReader::new(from);
    loop {
        // A line that is too long or is not a request ends the process: it is broken, or not ours
        // any more.
        let request = read_line::<Request>(&mut from, MAX_REQUESTED);
        let Ok(Some(request)) = request else { break };
        if to.send(request).is_err() {
            return;
        }
        let _ = wake.write(&[0]);
    }
    let _ = from.get_ref().shutdown(std::net::Shutdown::Both);
    // The service finds the other end of the channel closed, which it must not learn from the next
    // comparison.
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
