//! Answers scrapes over HTTP: one thread, one poll(2), no work between scrapes.
//!
//! Every client has limits: the size of a head, the time for a head, the time to take the answer,
//! and the number of connections. If a new client connects and all places are taken, the connection
//! with the oldest unfinished head is closed, or else the one that has been idle for longest. So
//! two hundred clients that send a byte now and then cannot keep Prometheus out.

mod connection;
mod listen;
mod socket;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "server/tls_unavailable.rs"]
mod tls;

use std::{
    io::{self, Write as _},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::connection::{Connection, Stage};
pub use self::{
    listen::{Address, AddressError, Listener},
    tls::{Acceptor, TlsError},
};
use crate::{
    Format,
    http::{self, Head, Request},
    web_config::{Admission, Guard},
};

/// Maximum number of connections, except those whose password is not checked yet.
pub const MAX_CONNECTIONS: usize = 8;
/// Maximum number of connections whose password is not checked yet. The last one waits some
/// seconds.
pub const MAX_UNJUDGED: usize = 56;
/// Time limit for a request's head, from its first byte or from the start of the connection.
pub const HEAD_TIME: Duration = Duration::from_secs(5);
/// Time limit for the client to take the answer.
pub const ANSWER_TIME: Duration = Duration::from_secs(10);

const TEXT: &str = "text/plain; charset=utf-8";

/// Produces the content of the server's answers.
pub trait Handler {
    fn metrics(&mut self, client: &str, format: Format) -> String;

    /// Descriptors to wait for besides those of the clients.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Does what is due. Called after each wait. Returns how long the next wait may take, if
    /// limited, or `None` to stop the server.
    fn tick(&mut self) -> Option<Option<Duration>>;
}

#[derive(Debug)]
pub struct Server {
    listeners: Vec<Listener>,
    connections: Vec<Connection>,
    guard: Guard,
    acceptor: Option<Acceptor>,
    path: String,
    /// Number of the next connection.
    next: u64,
    /// The client whose password was checked last.
    judged: String,
}

impl Server {
    /// `path` is the path of the metrics, normally `/metrics`.
    pub fn new(listeners: Vec<Listener>, guard: Guard, acceptor: Option<Acceptor>, path: String) -> Server {
        Server { listeners, connections: Vec::new(), guard, acceptor, path, next: 0, judged: String::new() }
    }

    /// Serves until the handler stops it.
    ///
    /// # Errors
    /// poll(2) failed. A client's errors only close its connection.
    pub fn run(&mut self, handler: &mut dyn Handler) -> io::Result<()> {
        while let Some(wait) = handler.tick() {
            let ready = self.wait(handler, wait)?;
            let now = Instant::now();
            // Serve existing clients before new ones: a flood of new ones must not push out a
            // client that has sent a request.
            for (connection, _) in
                self.connections.iter_mut().zip(&ready.connections).filter(|(_, ready)| **ready)
            {
                serve(connection, now, &self.guard, &self.path, handler);
            }
            for (index, _) in ready.listeners.iter().enumerate().filter(|(_, ready)| **ready) {
                self.accept(index, now, handler);
            }
            // After accepting new clients, because nothing else may wake the server for them.
            self.judge(now, handler);
            for connection in &mut self.connections {
                connection.expire(now);
            }
            self.connections.retain(|connection| connection.stage != Stage::Closed);
        }
        Ok(())
    }

    /// Answers the client whose password has been checked, and starts to check another one. Prefers
    /// another client, so that a client with many connections keeps none out.
    fn judge(&mut self, now: Instant, handler: &mut dyn Handler) {
        if let Some((number, admission)) = self.guard.verdict()
            && let Some(connection) = self.connections.iter_mut().find(|one| one.number == number)
            && let Some(request) = connection.judged()
        {
            admit(connection, &request, admission, &self.path, handler);
            serve(connection, now, &self.guard, &self.path, handler);
        }
        let waiting = self.connections.iter().filter_map(|one| Some((one, one.unjudged()?)));
        let next = waiting.min_by_key(|(one, _)| (one.client() == self.judged, one.number));
        if let Some((connection, user)) = next.filter(|_| self.guard.is_free()) {
            self.judged = connection.client().to_owned();
            self.guard.hash(connection.number, user);
        }
    }

    fn wait(&self, handler: &dyn Handler, wait: Option<Duration>) -> io::Result<Ready> {
        let deadline = self.connections.iter().filter_map(Connection::deadline).min();
        let until = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let wait = wait.into_iter().chain(until).min();
        let extra = handler.descriptors();
        let mut polled: Vec<PollFd<'_>> = Vec::new();
        polled.extend(
            self.listeners.iter().map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)),
        );
        polled
            .extend(self.connections.iter().map(|one| PollFd::from_borrowed_fd(one.as_fd(), one.interest())));
        // `judge` checks the guard's descriptor after each wait, and `tick` those of the handler.
        polled.push(PollFd::from_borrowed_fd(self.guard.as_fd(), PollFlags::IN));
        polled.extend(extra.into_iter().map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)));
        // Rounded up: a wait that ends just before a deadline would be followed by waits of zero
        // length.
        let time =
            wait.map(|wait| wait + Duration::from_millis(1)).and_then(|wait| Timespec::try_from(wait).ok());
        match poll(&mut polled, time.as_ref()) {
            // A signal. The handler finds out from its descriptor.
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut ready = polled.iter().map(|one| !one.revents().is_empty());
        Ok(Ready {
            listeners: ready.by_ref().take(self.listeners.len()).collect(),
            connections: ready.take(self.connections.len()).collect(),
        })
    }

    fn accept(&mut self, index: usize, now: Instant, handler: &mut dyn Handler) {
        // Accept only a few at a time, so that existing clients have their turn in between.
        for _ in 0..MAX_CONNECTIONS / 2 {
            let Ok(Some((socket, client))) = self.listeners[index].accept() else { return };
            // Drop a client whose connection cannot be set up.
            self.next += 1;
            let Ok(mut connection) = Connection::new(socket, client, self.next, self.acceptor.as_ref(), now)
            else {
                continue;
            };
            let unjudged = self.connections.iter().filter(|one| one.unjudged().is_some()).count();
            if self.connections.len() - unjudged >= MAX_CONNECTIONS {
                match (0..self.connections.len())
                    .filter_map(|at| Some((self.connections[at].rank()?, at)))
                    .min()
                {
                    Some((_, at)) => drop(self.connections.swap_remove(at)),
                    None => {
                        refuse(&mut connection, 503, "text/plain", "");
                        connection.write(now);
                        continue;
                    }
                }
            }
            // Its request has usually arrived already. Answer it before accepting others.
            serve(&mut connection, now, &self.guard, &self.path, handler);
            if connection.unjudged().is_some() && unjudged >= MAX_UNJUDGED {
                refuse(&mut connection, 503, TEXT, "");
                connection.write(now);
                continue;
            }
            self.connections.push(connection);
        }
    }
}

struct Ready {
    listeners: Vec<bool>,
    connections: Vec<bool>,
}

/// Reads and answers requests of a connection until it would block.
fn serve(connection: &mut Connection, now: Instant, guard: &Guard, path: &str, handler: &mut dyn Handler) {
    loop {
        connection.write(now);
        if !connection.read(now) {
            return;
        }
        match http::parse(connection.input()) {
            Head::Partial => return connection.close_if_ended(),
            Head::Refused(status) => refuse(connection, status, TEXT, ""),
            Head::Request(request) => {
                // Before the answer: the rest of the input decides whether another request is
                // waiting.
                connection.take(request.length);
                // For every page, like exporter-toolkit: even whether a path exists is information.
                match guard.judge(request.user.as_ref()) {
                    Admission::Unknown => return connection.wait_for_judgement(request, now),
                    admission => admit(connection, &request, admission, path, handler),
                }
            }
        }
    }
}

/// Answers a request if its user is admitted.
fn admit(
    connection: &mut Connection,
    request: &Request,
    admission: Admission,
    path: &str,
    handler: &mut dyn Handler,
) {
    match admission {
        Admission::Admitted => answer(connection, request, path, handler),
        _ => refuse(connection, 401, TEXT, "WWW-Authenticate: Basic\r\n"),
    }
}

/// Answers with only a status, and closes the connection.
fn refuse(connection: &mut Connection, status: u16, content_type: &str, more: &str) {
    let body = format!("{}\n", http::reason(status));
    let head = http::answer(status, content_type, body.len(), false, more);
    // Close: after a head that was not understood, the next request cannot be found.
    connection.send([head.into_bytes(), body.into_bytes()].concat(), false);
}

fn answer(connection: &mut Connection, request: &Request, path: &str, handler: &mut dyn Handler) {
    let mut more = "";
    let (status, content_type, body) = match request.path.as_str() {
        found if found == path => {
            let text = handler.metrics(connection.client(), request.format);
            more = "Vary: Accept, Accept-Encoding\r\n";
            (200, request.format.content_type(), text.into_bytes())
        }
        "/-/healthy" => (200, TEXT, b"OK\n".to_vec()),
        "/" => (200, "text/html; charset=utf-8", page(path).into_bytes()),
        _ => (404, TEXT, b"Not Found\n".to_vec()),
    };
    // The other pages are too short to compress.
    let packed = (request.gzip && request.path == path).then(|| pack(&body)).flatten();
    let (body, more) = match packed {
        Some(packed) => (packed, "Vary: Accept, Accept-Encoding\r\nContent-Encoding: gzip\r\n"),
        None => (body, more),
    };
    let mut bytes = http::answer(status, content_type, body.len(), request.keep_alive, more).into_bytes();
    if !request.is_head {
        bytes.extend(body);
    }
    connection.send(bytes, request.keep_alive);
}

/// Compresses with gzip level 1. The text shrinks to a tenth, and more effort takes more time than
/// it saves.
fn pack(body: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok()
}

fn page(path: &str) -> String {
    format!(
        "<!doctype html><title>flyball exporter</title><h1>flyball exporter</h1><p>Version {}</p><p><a href=\"{path}\">Metrics</a></p>\n",
        env!("CARGO_PKG_VERSION")
    )
}
