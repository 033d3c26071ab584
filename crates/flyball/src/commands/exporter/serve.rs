//! What the server of `flyball exporter` serves, and what else it waits for: signals, and the
//! doctor in another process.

use std::{
    io::Read as _,
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixStream,
    },
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use flyball_exporter::{
    Collector, Format,
    collect::doctor::Findings,
    server::{Acceptor, Address, Handler, Listener, Server},
    web_config::{self, Guard, WebConfig},
};
use flyball_host::Host;
use flyball_process::{release_freed_memory, release_start_code, sockets_of_service};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::{Args, PORT};
use crate::{
    context::Context,
    exit::{Exit, Failure},
    process::own_program,
    service_manager::notify,
};

/// How often the doctor looks.
const DOCTOR_EVERY: Duration = Duration::from_secs(600);
/// Scrapes after which what they needed for the first time is given back.
const WARM_UP: u8 = 3;
/// Bytes of its report: a hundred times a long one.
const MAX_REPORT: usize = 4 << 20;

/// Sockets and what is asked of clients.
pub(super) struct Web {
    listeners: Vec<Listener>,
    guard: Guard,
    acceptor: Option<Acceptor>,
    path: String,
}

impl Web {
    /// Reads the configuration, and listens.
    pub(super) fn open(args: &Args) -> Result<Web, Failure> {
        let path = args.telemetry_path.clone();
        if !path.starts_with('/')
            || path == "/"
            || path == "/-/healthy"
            || path.contains(['?', '#', '"', '<', ' '])
        {
            return Err(Failure::usage(format!(
                "'{path}' is not a path for metrics; it begins with / and is not /"
            )));
        }
        let config = read_config(args)?;
        // Never plain HTTP in place of what was asked for.
        let acceptor = config.tls.as_ref().map(Acceptor::new).transpose().map_err(Failure::usage)?;
        let has_users = !config.users.is_empty();
        let listeners = listeners(args)?;
        for listener in &listeners {
            if listener.is_open_to_others() && (acceptor.is_none() || !has_users) {
                let lacks = if acceptor.is_none() { "TLS" } else { "a password" };
                eprintln!(
                    "warning: other machines can read the metrics on {listener} without {lacks} (--web.config.file)"
                );
            }
            eprintln!("flyball: listening on {listener}");
        }
        let guard = Guard::new(config.users).map_err(|error| Failure::failed(format!("eventfd: {error}")))?;
        Ok(Web { listeners, guard, acceptor, path })
    }
}

fn read_config(args: &Args) -> Result<WebConfig, Failure> {
    let Some(path) = &args.config else { return Ok(WebConfig::default()) };
    let fail = |error: std::io::Error| Failure::usage(format!("cannot read {}: {error}", path.display()));
    let file = std::fs::File::open(path).map_err(fail)?;
    let bytes = flyball_files::read_bounded(file, web_config::MAX_BYTES).map_err(fail)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::usage(format!("{}: it is not UTF-8", path.display())))?;
    let folder = path.parent().unwrap_or(std::path::Path::new(""));
    WebConfig::parse(&text, folder).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

fn listeners(args: &Args) -> Result<Vec<Listener>, Failure> {
    let fail = |what: &dyn std::fmt::Display, error: std::io::Error| {
        Failure::failed(format!("cannot listen on {what}: {error}"))
    };
    // Without the option too, unless addresses are named: so one unit serves with and without its
    // `.socket` unit.
    let sockets = if args.listen.is_empty() { sockets_of_service() } else { Vec::new() };
    if args.systemd_socket && sockets.is_empty() {
        return Err(Failure::usage(
            "--web.systemd-socket: the service manager passed no socket (LISTEN_FDS)",
        ));
    }
    if !sockets.is_empty() {
        let taken = sockets.into_iter().map(Listener::inherited).collect::<Result<Vec<_>, _>>();
        return taken.map_err(|error| fail(&"a socket of the service manager", error));
    }
    let mut found = Vec::new();
    for address in &args.listen {
        found.extend(address.listen().map_err(|error| fail(address, error))?);
    }
    if args.listen.is_empty() {
        let address = Address::Tcp(format!("127.0.0.1:{PORT}"));
        found.extend(address.listen().map_err(|error| fail(&address, error))?);
        // A kernel without IPv6 has no such address.
        match Address::Tcp(format!("[::1]:{PORT}")).listen() {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                return Err(fail(&format!("[::1]:{PORT}"), error));
            }
            other => found.extend(other.into_iter().flatten()),
        }
    }
    Ok(found)
}

/// A socket that becomes readable when a signal asks for the end.
pub(super) fn signals() -> Result<UnixStream, Failure> {
    let (ours, theirs) = UnixStream::pair().map_err(Failure::failed)?;
    ours.set_nonblocking(true).map_err(Failure::failed)?;
    for signal in [SIGTERM, SIGINT] {
        let theirs = theirs.try_clone().map_err(Failure::failed)?;
        signal_hook::low_level::pipe::register(signal, theirs)
            .map_err(|error| Failure::failed(format!("cannot catch signal {signal}: {error}")))?;
    }
    Ok(ours)
}

/// Waits for this time; whether a signal came.
pub(super) fn wait_for(stopped: &UnixStream, time: Duration) -> Result<bool, Failure> {
    // Not by a timeout of the socket: setsockopt(2) is no call of a confined process.
    flyball_process::is_readable_within(stopped, time).map_err(Failure::failed)
}

/// The doctor in another process, and what it has printed so far.
struct Doctor {
    child: Child,
    out: ChildStdout,
    report: Vec<u8>,
}

struct Exporter<'h, 'c> {
    context: &'c Context,
    host: &'h dyn Host,
    collector: Collector<'h>,
    stopped: UnixStream,
    doctor: Option<Doctor>,
    /// Scrapes so far, up to one more than those that warm up.
    scrapes: u8,
    /// When it is to look next, if it is.
    next_doctor: Option<Instant>,
    /// When the energy counters were read last.
    metered: Instant,
    /// When a simulated machine's time was last that of the day.
    advanced: Instant,
}

/// Serves until a signal comes.
pub(super) fn run(
    context: &Context,
    host: &dyn Host,
    collector: Collector<'_>,
    web: Web,
    with_doctor: bool,
) -> Result<Exit, Failure> {
    let now = Instant::now();
    let mut exporter = Exporter {
        context,
        host,
        collector,
        stopped: signals()?,
        doctor: None,
        scrapes: 0,
        next_doctor: with_doctor.then_some(now),
        metered: now,
        advanced: now,
    };
    let mut server = Server::new(web.listeners, web.guard, web.acceptor, web.path);
    notify("READY=1");
    server
        .run(&mut exporter)
        .map_err(|error| Failure::failed(format!("cannot wait for clients: {error}")))?;
    notify("STOPPING=1");
    exporter.end_doctor();
    Ok(Exit::Done)
}

impl Handler for Exporter<'_, '_> {
    fn metrics(&mut self, client: &str, format: Format) -> String {
        // The time of a machine in software passes only here, as fast as ours.
        if self.host.software().is_some() {
            let passed = self.advanced.elapsed();
            self.host.sleep(passed);
            self.advanced += passed;
        }
        self.metered = Instant::now();
        self.scrapes = (self.scrapes + 1).min(WARM_UP + 1);
        self.collector.scrape(client, format)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let doctor = self.doctor.as_ref().map(|doctor| doctor.out.as_fd());
        [self.stopped.as_fd()].into_iter().chain(doctor).collect()
    }

    fn tick(&mut self) -> Option<Option<Duration>> {
        if self.stopped.read(&mut [0]).is_ok() {
            return None;
        }
        if let 1..=WARM_UP = self.scrapes {
            // The first scrape reads every file once, opens it, and asks for Speed Select: code and
            // memory that later ones do not use. The next ones have what only theirs use.
            release_freed_memory();
            release_start_code();
        }
        let now = Instant::now();
        self.read_doctor();
        if self.doctor.is_none() && self.next_doctor.is_some_and(|next| next <= now) {
            self.next_doctor = Some(now + DOCTOR_EVERY);
            self.doctor = start_doctor(self.context);
        }
        // Between scrapes that are far apart a counter could go round unseen.
        let within = self.collector.meters_within();
        if within.is_some_and(|within| now.duration_since(self.metered) >= within) {
            self.collector.follow_meters();
            self.metered = now;
        }
        let meters = within.map(|within| self.metered + within);
        let next = meters.into_iter().chain(self.next_doctor).min();
        Some(next.map(|next| next.saturating_duration_since(now)))
    }
}

impl Exporter<'_, '_> {
    /// Takes what the doctor has printed, and its report when it has ended.
    fn read_doctor(&mut self) {
        let Some(doctor) = &mut self.doctor else { return };
        let mut buffer = [0; 1 << 14];
        loop {
            match doctor.out.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) if doctor.report.len() + count <= MAX_REPORT => {
                    doctor.report.extend_from_slice(&buffer[..count]);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                // More than a report, or none: it is ended below.
                Ok(_) | Err(_) => break,
            }
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        match Findings::parse(&doctor.report, at) {
            Ok(findings) => self.collector.set_findings(findings),
            Err(_) => {
                eprintln!("note: the doctor's answers cannot be read; the metrics keep those of before");
            }
        }
        self.end_doctor();
    }

    fn end_doctor(&mut self) {
        if let Some(mut doctor) = self.doctor.take() {
            // Mostly it has ended; its number must be given back in any case.
            let _ = doctor.child.kill();
            let _ = doctor.child.wait();
        }
    }
}

/// Starts the doctor. Where no process can be started, its metrics are absent.
fn start_doctor(context: &Context) -> Option<Doctor> {
    let mut command = Command::new(own_program().ok()?);
    std::os::unix::process::CommandExt::arg0(&mut command, "flyball");
    command.args(context.machine.arguments()).args(["doctor", "--json"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let out = child.stdout.take()?;
    if flyball_process::set_nonblocking(&out).is_err() {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    Some(Doctor { child, out, report: Vec::new() })
}
