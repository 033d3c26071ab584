//! The sockets and the configuration of `flyball exporter`, and signals that stop it.

use std::{
    os::unix::{net::UnixStream, process::CommandExt as _},
    process::Command,
    time::Duration,
};

use flyball_exporter::{
    Collector,
    serve::{AskDoctor, serve},
    server::{Acceptor, Address, Listener, Server},
    web_config::{self, Guard, WebConfig},
};
use flyball_host::Host;
use flyball_process::{notify, sockets_of_service};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::{Args, PORT};
use crate::{
    context::Context,
    exit::{Exit, Failure},
    process::own_program,
};

/// Sockets, and what clients need for access.
pub(super) struct Web {
    listeners: Vec<Listener>,
    guard: Guard,
    acceptor: Option<Acceptor>,
    path: String,
}

impl Web {
    /// Reads the configuration, and starts listening.
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
        // If TLS fails, never fall back to plain HTTP.
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
    // Also use sockets from the service manager without the option, unless addresses are given, so
    // that one unit works with and without its `.socket` unit.
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
        // A kernel without IPv6 does not have this address.
        match Address::Tcp(format!("[::1]:{PORT}")).listen() {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                return Err(fail(&format!("[::1]:{PORT}"), error));
            }
            other => found.extend(other.into_iter().flatten()),
        }
    }
    Ok(found)
}

/// Returns a socket that becomes readable when a signal requests the end.
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

/// Waits for this time. Returns whether a signal arrived.
pub(super) fn wait_for(stopped: &UnixStream, time: Duration) -> Result<bool, Failure> {
    // Not with a socket timeout: a confined process may not call setsockopt(2).
    flyball_process::is_readable_within(stopped, time).map_err(Failure::failed)
}

/// Serves until a signal arrives.
pub(super) fn run(
    context: &Context,
    host: &dyn Host,
    collector: Collector<'_>,
    web: Web,
    with_doctor: bool,
) -> Result<Exit, Failure> {
    let command = || {
        let mut command = Command::new(own_program().ok()?);
        command.arg0("flyball").args(context.machine.arguments()).args(["doctor", "--json"]);
        Some(command)
    };
    let on_unreadable =
        || eprintln!("note: the doctor's answers cannot be read; the metrics keep those of before");
    let doctor = AskDoctor { command: &command, on_unreadable: &on_unreadable };
    let stopped = signals()?;
    let mut server = Server::new(web.listeners, web.guard, web.acceptor, web.path);
    notify("READY=1");
    serve(host, collector, &mut server, stopped, with_doctor.then_some(doctor))
        .map_err(|error| Failure::failed(format!("cannot wait for clients: {error}")))?;
    notify("STOPPING=1");
    Ok(Exit::Done)
}
