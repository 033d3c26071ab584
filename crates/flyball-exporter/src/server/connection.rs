//! One client's connection: bytes in, bytes out, and for how long.

use std::{
    io::{self, Read as _, Write as _},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustix::event::PollFlags;

use super::{ANSWER_TIME, Acceptor, HEAD_TIME, socket::Socket, tls::Session};
use crate::http::{MAX_HEAD, Request};

/// Stage of a connection, named after what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The rest of a head.
    Head,
    /// The next request, for as long as it takes.
    Idle,
    /// The judgement of its password.
    Judgement,
    /// The client, to take the answer.
    Answer,
    Closed,
}

#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    session: Option<Session>,
    client: String,
    /// No other connection of this server has it.
    pub(super) number: u64,
    /// The request whose password is not judged yet.
    request: Option<Request>,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    pub(super) stage: Stage,
    keep_alive: bool,
    /// True once the client has closed its side and sends nothing more.
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
                // Head and body are sent at once; nothing more comes that would be worth waiting
                // for.
                tcp.set_nodelay(true)?;
            }
            Socket::Unix(unix) => unix.set_nonblocking(true)?,
        }
        // Who may open the file of a unix socket is decided by its mode.
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

    /// Keeps a request until its password is judged.
    pub(super) fn wait_for_judgement(&mut self, request: Request, now: Instant) {
        self.request = Some(request);
        self.enter(Stage::Judgement, now);
    }

    /// The user and password that are not judged yet.
    pub(super) fn unjudged(&self) -> Option<&(String, String)> {
        self.request.as_ref()?.user.as_ref()
    }

    /// The request whose password has been judged.
    pub(super) fn judged(&mut self) -> Option<Request> {
        self.request.take()
    }

    pub(super) fn input(&self) -> &[u8] {
        &self.input
    }

    /// Takes the bytes of a request from the input.
    pub(super) fn take(&mut self, length: usize) {
        self.input.drain(..length);
    }

    fn enter(&mut self, stage: Stage, now: Instant) {
        (self.stage, self.since) = (stage, now);
    }

    fn limit(&self) -> Option<Duration> {
        match self.stage {
            // Also of one that has sent nothing: Prometheus sends its head with the connection.
            Stage::Head => Some(HEAD_TIME),
            Stage::Answer => Some(ANSWER_TIME),
            // Without end, so that nothing wakes up between scrapes; it gives its place when
            // another client needs it. One that is to be judged has its turn within seconds.
            Stage::Idle | Stage::Judgement | Stage::Closed => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.since + self.limit()?)
    }

    /// Which connection gives its place to a new one first; `None` for one that is being judged or
    /// answered.
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

    /// Ends it if its time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            if self.stage == Stage::Head && !self.input.is_empty() {
                super::refuse(self, 408, "text/plain; charset=utf-8", "");
                self.write(now);
            }
            self.stage = Stage::Closed;
        }
    }

    /// Reads what has come; whether there is something to look at.
    pub(super) fn read(&mut self, now: Instant) -> bool {
        if self.stage == Stage::Judgement {
            // Only an end wakes it, of both sides. The next one is judged instead.
            (self.stage, self.request) = (Stage::Closed, None);
        }
        if !matches!(self.stage, Stage::Head | Stage::Idle) {
            return false;
        }
        let before = self.input.len();
        let mut buffer = [0; 4096];
        // A client that sends without end is read again when the others had their turn.
        while self.input.len() < MAX_HEAD {
            let room = buffer.len().min(MAX_HEAD - self.input.len());
            let result = match &mut self.session {
                Some(session) => session.read(&mut self.socket, &mut buffer[..room]),
                None => self.socket.read(&mut buffer[..room]),
            };
            match result {
                // A client that has sent a whole request and ended its own side still gets the
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
        // Requests may have come together: what is left of the last reading is looked at too.
        self.input.len() > before || !self.input.is_empty()
    }

    /// Closes it if the rest of a head cannot come any more.
    pub(super) fn close_if_ended(&mut self) {
        if self.has_ended {
            self.stage = Stage::Closed;
        }
    }

    /// Takes an answer to be sent.
    pub(super) fn send(&mut self, bytes: Vec<u8>, keep_alive: bool) {
        (self.output, self.sent, self.keep_alive) = (bytes, 0, keep_alive);
        self.enter(Stage::Answer, Instant::now());
    }

    /// Sends what the client takes.
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
                // Not only cleared: half a megabyte for each idle client would stay.
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

    /// Reads what is still there before the socket is closed: the kernel would answer with a reset,
    /// which may overtake the answer.
    fn finish(&mut self) {
        let mut buffer = [0; 4096];
        // Bounded: a client that goes on sending is not waited for.
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
