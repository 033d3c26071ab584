//! The server of a round. It starts before the meters, and the round waits until it answers. After
//! the load, it ends with everything that it started.

use std::{
    fs::File,
    net::{TcpStream, ToSocketAddrs as _},
    os::unix::fs::FileExt as _,
    time::Duration,
};

use flyball_host::{Host, Process};
use flyball_process::User;

use super::MeasureError;
use crate::{
    arm::Arm,
    workload::{Command, Stop, Workload as _, WorkloadError},
};

/// How long a server may take to become ready, unless --timeout sets it.
const MAX_START: Duration = Duration::from_secs(60);

/// Time between two looks at a server that is not ready.
const TICK: Duration = Duration::from_millis(20);

/// How long a connection may take.
const MAX_CONNECT: Duration = Duration::from_millis(500);

/// Time that a server without `--ready` gets.
const SETTLE: Duration = Duration::from_millis(500);

/// How long a server may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes that are read from the end of its output.
const KEPT: u64 = 64 * 1024;

/// A running server. Dropping it ends the server, whatever ended the round.
pub(super) struct Served {
    arm: String,
    process: Option<Box<dyn Process>>,
    log: File,
}

impl Served {
    /// Starts the arm's server, if it has one, and waits until it is ready.
    pub(super) fn start(
        host: &dyn Host,
        arm: &Arm,
        user: Option<User>,
        timeout: Option<Duration>,
        stop: &Stop,
    ) -> Result<Option<Served>, MeasureError> {
        let most = timeout.unwrap_or(MAX_START);
        let program = arm.program.as_ref();
        let Some((program, server)) = program.and_then(|one| Some((one, one.server.as_ref()?))) else {
            return Ok(None);
        };
        let in_place = |argv: Vec<String>| {
            let mut command = Command::new(argv);
            command.directory.clone_from(&program.directory);
            command.user.clone_from(&user);
            command
        };
        if let Some(port) = server.ready.as_deref().filter(|ready| accepts(ready) == Some(true)) {
            // The load would measure the server that has the port.
            let failure = format!("port {port} is in use before its server has started");
            return Err(MeasureError::Failed { arm: arm.name.clone(), failure, output: String::new() });
        }
        let (process, log) = in_place(server.argv.clone()).start_logged(host)?;
        let mut served = Served { arm: arm.name.clone(), process: Some(process), log };
        let Some(ready) = &server.ready else {
            host.sleep(SETTLE);
            served.check()?;
            return Ok(Some(served));
        };
        let began = host.now();
        loop {
            if stop.is_requested() {
                return Err(WorkloadError::Stopped.into());
            }
            served.check()?;
            let is_ready = match (ready.strip_prefix("line:"), accepts(ready)) {
                (Some(text), _) => served.output().contains(text),
                (_, Some(accepts)) => accepts,
                _ => {
                    let mut probe = in_place(["/bin/sh", "-c", ready].map(str::to_owned).to_vec());
                    probe.limit = Some(most);
                    probe.run(host, TICK, &mut || (), stop)?.failure.is_none()
                }
            };
            if is_ready {
                return Ok(Some(served));
            }
            if host.now().saturating_sub(began) > most {
                let failure =
                    format!("its server is not ready after {} s (--ready {ready})", most.as_secs_f64());
                return Err(served.failed(failure));
            }
            host.sleep(TICK);
        }
    }

    /// Fails if the server has ended.
    pub(super) fn check(&mut self) -> Result<(), MeasureError> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let io = |cause| WorkloadError::Io { what: "wait for the server".to_owned(), cause };
        let ended = process.wait(Duration::ZERO).map_err(io)?;
        ended.map_or(Ok(()), |ended| Err(self.failed(format!("its server ended early: {}", ended.status))))
    }

    fn failed(&self, failure: String) -> MeasureError {
        MeasureError::Failed { arm: self.arm.clone(), failure, output: self.output() }
    }

    /// The end of what it printed, read without moving its write position.
    fn output(&self) -> String {
        let length = self.log.metadata().map_or(0, |data| data.len());
        let mut bytes = vec![0; length.min(KEPT) as usize];
        let read = self.log.read_at(&mut bytes, length.saturating_sub(KEPT)).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            // The rounds are what counts; a server that does not end in time is killed.
            let _ = process.stop(STOP_TIMEOUT);
        }
    }
}

/// Returns whether a port accepts connections; `None` if `ready` is not a port.
fn accepts(ready: &str) -> Option<bool> {
    let (host, port) = ready.rsplit_once(':').unwrap_or(("localhost", ready));
    let is_host = host != "line" && !host.contains(char::is_whitespace);
    let port: u16 = port.parse().ok().filter(|_| is_host)?;
    let connects = |address| TcpStream::connect_timeout(&address, MAX_CONNECT).is_ok();
    Some((host, port).to_socket_addrs().is_ok_and(|mut addresses| addresses.any(connects)))
}
