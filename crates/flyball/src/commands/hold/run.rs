//! `flyball hold run`: the service. Waits for kernel notifications and passes them to
//! `flyball_hold::Service`.

use std::{
    fs::File,
    io,
    ops::ControlFlow,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use flyball_control::{
    Setting,
    write::{
        state::{Lock, LockError, StateDir},
        transaction::TransactionError,
    },
};
use flyball_files::check_trusted;
use flyball_hold::{
    Active, Config, ConfigError, Desktop, Journald, Moment, Notice, Presence, Service, Store, Watched,
    concerns_processors,
};
use flyball_host::watch::{Event, Watch};
use flyball_process::notify;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::bus::{self, Bus};
use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
    machine::MachineArg,
    output, process,
    profiles::{self, NamedProfile},
};

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Configuration: which profile is held when [default: /etc/flyball/hold.toml, if it exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Serve org.flyball.Control1 on this bus [default socket: /run/dbus/system_bus_socket].
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, default_missing_value = SYSTEM_BUS)]
    bus: Option<PathBuf>,

    /// Serve the desktop's power profiles too, in place of power-profiles-daemon.
    #[arg(long, requires = "bus")]
    desktop: bool,
}

/// Socket of the system bus (the D-Bus specification, "well-known message bus instances").
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";

pub(super) const CONFIG: &str = "/etc/flyball/hold.toml";

/// Maximum bytes of a configuration, many times what the maximum number of entries takes.
const MAX_CONFIG: u64 = 1 << 20;

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let root = match &context.machine {
        MachineArg::Live => PathBuf::from("/"),
        MachineArg::Tree(root) => root
            .canonicalize()
            .map_err(|error| Failure::usage(format!("cannot use {}: {error}", root.display())))?,
        other => {
            return Err(Failure::usage(format!(
                "'{other}' has no kernel that reports changes: the service runs on this machine, and in a guest"
            )));
        }
    };
    // The D-Bus process must have nothing open except its two sockets and the log.
    flyball_process::keep_descriptors();
    let host = context.open()?;
    let state = context.state()?;
    let stopped = process::flag_on(&[SIGTERM, SIGINT])?;
    let reloads = process::flag_on(&[SIGHUP])?;
    let mut watch = Watch::new();
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        // A signal writes a byte to a pipe, which ends the wait. A flag alone would only be noticed
        // at the next event.
        wake_on(signal, &mut watch)?;
    }
    let journal = Journald::from_stdout();
    let mut summary = String::new();
    let mut presence = None;
    let mut bus = bus::open(context, &*host, args.bus.as_deref(), args.desktop, &mut watch)?;
    let mut shares = false;
    // The desktop's profiles of the last configuration that could be read.
    let mut desktop = Desktop::default();
    let mut lock = state.lock(&change::command_line()).map_err(TransactionError::Lock)?;
    loop {
        let is_reload = presence.is_some();
        if presence.is_none() {
            // Load before showing this service's presence, so that the store does not name a
            // service that has ended.
            let other = Store::load(&state, &*host)?.service;
            presence = Presence::show(&state)?;
            if presence.is_none() {
                let pid = other.map(|other| format!(" (pid {})", other.process.pid)).unwrap_or_default();
                return Err(Failure::new(Exit::Locked, format!("the service runs already{pid}")));
            }
        }
        if !std::mem::replace(&mut shares, true)
            && let Err(error) = flyball_monitor::readings::start(context.open()?, state.path())
        {
            eprintln!("note: energy and speed are not shared with users who may not read them: {error}");
        }
        // Subscribe before the first write, so that no change is missed.
        let blind = subscribe(&mut watch, &root, state.path());
        // Only drop what came before the initial comparison. A later write is news, whatever else
        // is reported with it.
        drop_old_news(&mut watch);
        let live = matches!(context.machine, MachineArg::Live);
        let config = match read_config(args.config.as_deref(), live, check_trusted) {
            Err(failure) if is_reload => Err(unreadable(args.config.as_deref(), &failure)),
            read => read?,
        };
        let active = Active::load(&root);
        let config = config.and_then(|config| Ok(Config { active: active?, ..config }));
        if let Ok(config) = &config {
            desktop.clone_from(&config.desktop);
        }
        let mut service =
            Service::start(&*host, state.clone(), lock, blind, config, &profile_of, Moment::here())?;
        change::note_neighbours(&*host, service.store().holds.iter().flat_map(|hold| &hold.settings));
        report(&mut service, &mut bus, &journal, &mut summary)?;
        if let Some(bus) = &mut bus {
            bus.begin(&mut service, &desktop, &profile_of, Moment::here());
            bus::report(bus);
        }
        notify("READY=1");
        flyball_process::release_start_code();
        let ends = || next_lock(&state, &stopped, &reloads);
        let next = serve(&mut service, &mut watch, &root, &mut bus, &ends, &mut |service, bus| {
            report(service, bus, &journal, &mut summary)
        })?;
        if let Some(next) = next {
            reloads.store(false, Ordering::Relaxed);
            lock = next;
            continue;
        }
        notify("STOPPING=1");
        bus.iter_mut().for_each(Bus::stop);
        return stop(service, &journal);
    }
}

/// Returns whether the service continues, ends (without a lock), or reloads with the lock. While
/// another command has the lock, the service continues: it serves the bus and makes no corrections.
fn next_lock(
    state: &StateDir,
    stopped: &AtomicBool,
    reloads: &AtomicBool,
) -> Result<ControlFlow<Option<Lock>>, TransactionError> {
    if stopped.load(Ordering::Relaxed) {
        return Ok(ControlFlow::Break(None));
    }
    match reloads.load(Ordering::Relaxed).then(|| state.lock(&change::command_line())) {
        None | Some(Err(LockError::Held { .. })) => Ok(ControlFlow::Continue(())),
        Some(taken) => taken.map(|lock| ControlFlow::Break(Some(lock))).map_err(TransactionError::Lock),
    }
}

fn stop(service: Service<'_>, journal: &Journald) -> Result<Exit, Failure> {
    // Another command has the lock, so leave everything as it is.
    match service.stop(Moment::here()) {
        Ok(notices) => {
            notices.iter().try_for_each(|notice| line(journal, notice))?;
        }
        Err(error) => eprintln!("flyball: {error}"),
    }
    Ok(Exit::Done)
}

/// A file that cannot be read must not end the service, as it may be about to be replaced.
fn unreadable(path: Option<&Path>, failure: &Failure) -> ConfigError {
    let file = path.unwrap_or(Path::new(CONFIG)).display().to_string();
    ConfigError { file, line: 1, column: 1, what: failure.to_string() }
}

fn wake_on(signal: i32, watch: &mut Watch) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::failed(format!("cannot catch signal {signal}: {error}"));
    let (ours, theirs) = UnixStream::pair().map_err(fail)?;
    ours.set_nonblocking(true).map_err(fail)?;
    signal_hook::low_level::pipe::register(signal, theirs).map_err(fail)?;
    watch.wake_by(ours.into());
    Ok(())
}

/// Subscribes to all kernel notifications. Returns the names of those that are not available here.
fn subscribe(watch: &mut Watch, root: &Path, state: &Path) -> Vec<String> {
    let mut blind = Vec::new();
    let mut try_to = |what: &str, result: std::io::Result<()>| {
        if let Err(error) = result {
            blind.push(format!("{what} ({error})"));
        }
    };
    try_to(
        "writes of other programs, and which program it was",
        watch.writes_below(root, concerns_processors),
    );
    try_to("CPUs and power supplies that come and go", watch.devices());
    try_to("sleep and the clock", watch.clock());
    try_to("commands that change holds", watch.files(state));
    for blind in &blind {
        eprintln!("note: not noticed, but for a comparison every minute: {blind}");
    }
    blind
}

/// Drops reports from before the first comparison, which reads their effect anyway.
fn drop_old_news(watch: &mut Watch) {
    let _ = watch.wait(Some(Duration::ZERO));
}

/// Reads hold.toml. The service trusts it as root, so `check` rejects a file that others can write.
pub(super) fn read_config(
    path: Option<&Path>,
    live: bool,
    check: impl FnOnce(&File) -> io::Result<()>,
) -> Result<Result<Config, ConfigError>, Failure> {
    let fixed = Path::new(CONFIG);
    let path = match path {
        Some(path) => path,
        None if live && fixed.exists() => fixed,
        None => return Ok(Ok(Config::default())),
    };
    let fail = |error: io::Error| Failure::usage(format!("cannot read {}: {error}", path.display()));
    let file = flyball_files::open_input(path).map_err(fail)?;
    check(&file).map_err(fail)?;
    let bytes = flyball_files::read_bounded(file, MAX_CONFIG).map_err(fail)?;
    Ok(Config::parse(&bytes, &path.display().to_string()))
}

pub(super) fn settings_of(name: &str) -> Result<Vec<Setting>, String> {
    settings(profiles::read(name))
}

/// Like [`settings_of`], but for a service that runs as root: only reads files that no other user
/// can have written.
fn profile_of(name: &str) -> Result<Vec<Setting>, String> {
    settings(profiles::read_for_service(name))
}

fn settings(read: Result<NamedProfile, Failure>) -> Result<Vec<Setting>, String> {
    read.map(|named| named.profile.intent.settings).map_err(|failure| failure.to_string())
}

fn line(journal: &Journald, notice: &Notice) -> Result<(), Failure> {
    if journal.send(notice) { Ok(()) } else { output::line(notice) }
}

/// Reports events in the journal and on the bus. `summary` is the status for the service manager.
fn report(
    service: &mut Service<'_>,
    bus: &mut Option<Bus>,
    journal: &Journald,
    summary: &mut String,
) -> Result<(), Failure> {
    for notice in service.notices() {
        line(journal, &notice)?;
        if let Some(bus) = bus {
            bus.tell(&notice);
        }
    }
    let now = service.summary();
    if now != *summary {
        // A newline would end the value (sd_notify(3)).
        notify(&format!("STATUS={}", now.replace('\n', " ")));
        *summary = now;
    }
    Ok(())
}

/// Callback that reports what the service did.
type Report<'a> = dyn FnMut(&mut Service<'_>, &mut Option<Bus>) -> Result<(), Failure> + 'a;

/// Serves until the service ends (`None`) or reloads with the lock.
fn serve(
    service: &mut Service<'_>,
    watch: &mut Watch,
    root: &Path,
    bus: &mut Option<Bus>,
    ends: &dyn Fn() -> Result<ControlFlow<Option<Lock>>, TransactionError>,
    report: &mut Report<'_>,
) -> Result<Option<Lock>, Failure> {
    let mut followed = Watched::default();
    loop {
        if let ControlFlow::Break(next) = ends()? {
            return Ok(next);
        }
        if let Some(bus) = bus {
            bus.handle(service, Moment::here());
            bus::report(bus);
        }
        // Something that is watched only from now on may have changed before, so check it without
        // waiting.
        let is_new = follow(service, watch, root, &mut followed);
        let now = Moment::here().now;
        let bus_sleep = bus.as_ref().map_or(Duration::MAX, |bus| bus.sleep_for(now));
        let wait = if is_new { Duration::ZERO } else { service.sleep_for(now).min(bus_sleep) };
        let mut events = watch
            .wait(Some(wait))
            .map_err(|error| Failure::failed(format!("cannot wait for events: {error}")))?;
        if is_new {
            events.push(Event::Group);
        }
        for event in &events {
            if let Event::Ended { pid } = event {
                followed.processes.remove(pid);
            }
        }
        notify("WATCHDOG=1");
        service.handle(events, Moment::here());
        report(service, bus)?;
        flyball_process::release_freed_memory();
    }
}

/// Watches the processes and groups that holds name. Returns whether a new group is watched.
fn follow(service: &mut Service<'_>, watch: &mut Watch, root: &Path, followed: &mut Watched) -> bool {
    let wanted = service.watched();
    for pid in wanted.processes {
        // If it has ended in the meantime, the next event or the comparison every minute notices
        // that.
        if !followed.processes.contains(&pid) && watch.process(pid).is_ok() {
            followed.processes.insert(pid);
        }
    }
    let mut blind = Vec::new();
    for program in wanted.programs {
        if !followed.programs.contains(&program) {
            if let Err(error) = watch.program(&program) {
                blind.push(format!("starts of {} ({error})", program.display()));
            }
            followed.programs.insert(program);
        }
    }
    watch.keep_pressures(|name| wanted.pressures.iter().any(|pressure| pressure.to_string() == name));
    for pressure in &wanted.pressures {
        if !followed.pressures.contains(pressure) {
            let file = root.join("proc/pressure").join(pressure.file());
            if let Err(error) = watch.pressure(&pressure.to_string(), &file, &pressure.trigger()) {
                blind.push(format!("the pressure {pressure} ({error})"));
            }
        }
    }
    followed.pressures = wanted.pressures;
    let groups = wanted.groups.iter().map(|group| root.join(group.trim_start_matches('/'))).collect();
    let is_new = watch.groups(&groups).unwrap_or_else(|error| {
        blind.push(format!("control groups ({error})"));
        false
    });
    for what in blind {
        service.cannot_notice(what);
    }
    is_new
}
