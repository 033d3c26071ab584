//! One client's connection: its input, its output, and its time limits.

use std::{
    io::{self, Read as _, Write as _},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustix::event::PollFlags;

use super::{ANSWER_TIME, Acceptor, HEAD_TIME, socket::Socket, tls::Session};
use crate::http::{MAX_HEAD, Request};

/// What a connection is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The rest of a request's head.
    Head,
    /// The next request, without a time limit.
    Idle,
    /// The check of its password.
    Judgement,
    /// The client taking the answer.
    Answer,
    Closed,
}

#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    session: Option<Session>,
    client: String,
    /// Unique among the server's connections.
    pub(super) number: u64,
    /// The request whose password is not checked yet.
    request: Option<Request>,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    pub(super) stage: Stage,
    keep_alive: bool,
    /// The client has closed its side and sends nothing more.
    has_ended: bool,
    /// When the stage began.
    since: Instant,
}

impl Connection {
    pub(super) fn new(
        socket: Socket,
        client: String,
        number: u64,
        acceptor: Option<&Acceptor>,
        now: Instant,
    ) -> io::Result<Connection> {
        match &socket {
            Socket::Tcp(tcp) => {
                tcp.set_nonblocking(true)?;
                // Head and body are sent together, so waiting for more data would be useless.
                tcp.set_nodelay(true)?;
            }
            Socket::Unix(unix) => unix.set_nonblocking(true)?,
        }
        // No TLS for unix sockets: the mode of the file decides who may connect.
        let acceptor = acceptor.filter(|_| matches!(socket, Socket::Tcp(_)));
        Ok(Connection {
            session: acceptor.map(Session::new).transpose()?,
            socket,
            client,
            number,
            request: None,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            stage: Stage::Head,
            keep_alive: true,
            has_ended: false,
            since: now,
        })
    }

    pub(super) fn client(&self) -> &str {
        &self.client
    }

    /// Keeps a request until its password is checked.
    pub(super) fn wait_for_judgement(&mut self, request: Request, now: Instant) {
        self.request = Some(request);
        self.enter(Stage::Judgement, now);
    }

    /// Returns the user and password that are not checked yet.
    pub(super) fn unjudged(&self) -> Option<&(String, String)> {
        self.request.as_ref()?.user.as_ref()
    }

    /// Takes the request whose password has been checked.
    pub(super) fn judged(&mut self) -> Option<Request> {
        self.request.take()
    }

    pub(super) fn input(&self) -> &[u8] {
        &self.input
    }

    /// Removes the bytes of a request from the input.
    pub(super) fn take(&mut self, length: usize) {
        self.input.drain(..length);
    }

    fn enter(&mut self, stage: Stage, now: Instant) {
        (self.stage, self.since) = (stage, now);
    }

    fn limit(&self) -> Option<Duration> {
        match self.stage {
            // Also if nothing was sent yet: Prometheus sends its head as soon as it has connected.
            Stage::Head => Some(HEAD_TIME),
            Stage::Answer => Some(ANSWER_TIME),
            // No time limit, so that nothing wakes up between scrapes. An idle client makes way for
            // new ones, and a password is checked within seconds.
            Stage::Idle | Stage::Judgement | Stage::Closed => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.since + self.limit()?)
    }

    /// Returns which connection to close first for a new one. `None` for one that is being checked
    /// or answered.
    pub(super) fn rank(&self) -> Option<(bool, Instant)> {
        match self.stage {
            Stage::Head | Stage::Idle => Some((self.stage == Stage::Idle, self.since)),
            Stage::Judgement | Stage::Answer | Stage::Closed => None,
        }
    }

    pub(super) fn interest(&self) -> PollFlags {
        let waits_to_write =
            self.stage == Stage::Answer || self.session.as_ref().is_some_and(Session::wants_write);
        match self.stage {
            Stage::Judgement => PollFlags::empty(),
            _ if waits_to_write => PollFlags::OUT,
            _ => PollFlags::IN,
        }
    }

    /// Closes the connection if its time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            if self.stage == Stage::Head && !self.input.is_empty() {
                super::refuse(self, 408, "text/plain; charset=utf-8", "");
                self.write(now);
            }
            self.stage = Stage::Closed;
        }
    }

    /// Reads what has arrived. Returns whether there is something to process.
    pub(super) fn read(&mut self, now: Instant) -> bool {
        if self.stage == Stage::Judgement {
            // In this stage only a close of both sides wakes it, so the client is gone.
            (self.stage, self.request) = (Stage::Closed, None);
        }
        if !matches!(self.stage, Stage::Head | Stage::Idle) {
            return false;
        }
        let before = self.input.len();
        let mut buffer = [0; 4096];
        // Limited, so that a client that sends endlessly does not block the others.
        while self.input.len() < MAX_HEAD {
            let room = buffer.len().min(MAX_HEAD - self.input.len());
            let result = match &mut self.session {
                Some(session) => session.read(&mut self.socket, &mut buffer[..room]),
                None => self.socket.read(&mut buffer[..room]),
            };
            match result {
                // A client that has sent a complete request and closed its side still gets the
                // answer.
                Ok(0) => {
                    self.has_ended = true;
                    break;
                }
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.stage = Stage::Closed;
                    return false;
                }
            }
        }
        if self.stage == Stage::Idle && !self.input.is_empty() {
            self.enter(Stage::Head, now);
        }
        if self.has_ended && self.input.is_empty() {
            self.stage = Stage::Closed;
            return false;
        }
        // One reading may hold several requests, so also process what is left of the last one.
        self.input.len() > before || !self.input.is_empty()
    }

    /// Closes the connection if the rest of a head can no longer arrive.
    pub(super) fn close_if_ended(&mut self) {
        if self.has_ended {
            self.stage = Stage::Closed;
        }
    }

    pub(super) fn send(&mut self, bytes: Vec<u8>, keep_alive: bool) {
        (self.output, self.sent, self.keep_alive) = (bytes, 0, keep_alive);
        self.enter(Stage::Answer, Instant::now());
    }

    /// Sends as much as the client takes.
    pub(super) fn write(&mut self, now: Instant) {
        while self.stage == Stage::Answer {
            let rest = &self.output[self.sent..];
            let result = match &mut self.session {
                Some(session) => session.write(&mut self.socket, rest),
                None => self.socket.write(rest),
            };
            match result {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return self.stage = Stage::Closed,
            }
            if self.sent >= self.output.len()
                && self.session.as_ref().is_none_or(|session| !session.wants_write())
            {
                // Free the memory, not only clear it: each idle client would keep half a megabyte.
                self.output = Vec::new();
                self.sent = 0;
                let next = match (self.keep_alive, self.input.is_empty()) {
                    (false, _) => Stage::Closed,
                    (true, true) => Stage::Idle,
                    (true, false) => Stage::Head,
                };
                if next == Stage::Closed {
                    self.finish();
                }
                self.enter(next, now);
            }
        }
    }

    /// Reads remaining input before the socket is closed. Otherwise the kernel would send a reset,
    /// which may overtake the answer.
    fn finish(&mut self) {
        let mut buffer = [0; 4096];
        // Bounded, in case the client never stops sending.
        for _ in 0..4 {
            if !matches!(self.socket.read(&mut buffer), Ok(count) if count > 0) {
                break;
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
