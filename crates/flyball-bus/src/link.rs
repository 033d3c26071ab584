//! The connection to the service: requests and answers, and messages that the service sends by
//! itself.

use std::{
    collections::HashMap,
    io::{self, BufReader},
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    mailbox::Mailbox,
    message::{Answer, Ask, MAX_REPORTED, MAX_REQUESTED, Refusal, Request, Tell, Why, read_line, write_line},
};

/// Limit on pending requests of all users other than root. A client that exceeds it is refused
/// without involving the service.
const MAX_WAITING: usize = 64;

/// Limit on pending requests of one user.
const MAX_WAITING_OF_USER: usize = 16;

/// A kind of question to polkit. The bus lets a connection wait for 128 answers
/// (`max_replies_per_connection`). Both kinds leave some of them for asking who a caller is, which
/// root's calls need too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// polkit answers at once whether the user is permitted without a dialogue.
    Quick,
    /// polkit waits for a password.
    Dialogue,
}

impl Question {
    /// Returns the limit on pending questions of this kind, for all users together. Dialogues do
    /// not count as quick questions, so users who may call without a password never wait for those
    /// who do not enter one.
    fn max_pending(self) -> usize {
        match self {
            Question::Quick => 32,
            Question::Dialogue => 64,
        }
    }
}

/// Limit on pending questions of one user, for each kind. Nobody has two dialogues open for long.
/// 32 users together can use up all dialogues.
const MAX_CHECKS_OF_USER: usize = 2;

/// An event for the main task.
pub(crate) enum News {
    Tell(Tell),
    /// Compare with the last state again.
    Look,
    /// The bus has closed the connection.
    BusGone,
}

#[derive(Default)]
struct Waiting {
    last: u64,
    answers: HashMap<u64, (Option<u32>, Arc<Mailbox<Answer>>)>,
}

/// The connection to the service; see the module.
pub(crate) struct Link {
    to: Mutex<UnixStream>,
    waiting: Mutex<Waiting>,
    /// The users about whom polkit is being asked, one entry per question.
    checks: Mutex<Vec<(u32, Question)>>,
    /// The user that the service runs as, which is not the user of this process.
    pub(crate) service_user: u32,
    pub(crate) news: Mailbox<News>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Starts the thread that reads the service's messages. It calls `gone` when the service has
    /// ended, or sends an invalid message.
    pub(crate) fn start(
        service: UnixStream,
        service_user: u32,
        gone: impl FnOnce() + Send + 'static,
    ) -> io::Result<Arc<Link>> {
        let from = service.try_clone()?;
        let link = Arc::new(Link {
            to: Mutex::new(service),
            waiting: Mutex::default(),
            checks: Mutex::default(),
            service_user,
            news: Mailbox::default(),
        });
        let reader = Arc::clone(&link);
        std::thread::Builder::new().name("service".to_owned()).spawn(move || {
            reader.read(from);
            gone();
        })?;
        Ok(link)
    }

    fn read(&self, from: UnixStream) {
        let mut from = BufReader::new(from);
        while let Ok(Some(tell)) = read_line::<Tell>(&mut from, MAX_REPORTED) {
            match tell {
                Tell::Answer { id, answer } => {
                    if let Some((_, mailbox)) = lock(&self.waiting).answers.remove(&id) {
                        mailbox.put(answer);
                    }
                }
                other => self.news.put(News::Tell(other)),
            }
        }
    }

    /// Returns whether this user's requests are limited: all users except root and the service's.
    pub(crate) fn is_bounded(&self, user: u32) -> bool {
        user != 0 && user != self.service_user
    }

    /// Counts a question to polkit about a user until the returned value is dropped.
    pub(crate) fn begin_check(&self, user: u32, question: Question) -> Result<Check<'_>, Refusal> {
        let mut checks = lock(&self.checks);
        let of_user = checks.iter().filter(|check| **check == (user, question)).count();
        let of_kind = checks.iter().filter(|(_, other)| *other == question).count();
        if of_user >= MAX_CHECKS_OF_USER || of_kind >= question.max_pending() {
            return Err(Refusal::new(Why::TooMany, "too many calls wait for an authorization"));
        }
        checks.push((user, question));
        Ok(Check { checks: &self.checks, of: (user, question) })
    }

    /// Sends a request to the service on behalf of a user, and waits for the answer. This process's
    /// own requests (`None`) are not limited: a hold must end with its program.
    pub(crate) async fn ask(&self, user: Option<u32>, ask: Ask) -> Answer {
        let mailbox = Arc::new(Mailbox::default());
        let id = {
            let mut waiting = lock(&self.waiting);
            let of_user = || waiting.answers.values().filter(|(other, _)| *other == user).count();
            let is_bounded = user.is_some_and(|user| self.is_bounded(user));
            if is_bounded && (waiting.answers.len() >= MAX_WAITING || of_user() >= MAX_WAITING_OF_USER) {
                return Err(Refusal::new(Why::TooMany, "too many calls wait for an answer"));
            }
            waiting.last += 1;
            let id = waiting.last;
            waiting.answers.insert(id, (user, Arc::clone(&mailbox)));
            id
        };
        // The service always reads, in a separate thread, so this does not block.
        if let Err(error) = write_line(&mut *lock(&self.to), &Request { id, ask }, MAX_REQUESTED) {
            lock(&self.waiting).answers.remove(&id);
            return Err(match error.kind() {
                io::ErrorKind::FileTooLarge => {
                    Refusal::new(Why::Invalid, format!("the request is refused: {error}"))
                }
                _ => Refusal::new(Why::Failed, format!("the service is gone: {error}")),
            });
        }
        mailbox.take().await
    }
}

/// A pending question to polkit.
pub(crate) struct Check<'a> {
    checks: &'a Mutex<Vec<(u32, Question)>>,
    of: (u32, Question),
}

impl Drop for Check<'_> {
    fn drop(&mut self) {
        let mut checks = lock(self.checks);
        if let Some(at) = checks.iter().position(|check| *check == self.of) {
            checks.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_to_polkit_leave_room_for_others() {
        let (service, _end) = UnixStream::pair().unwrap();
        let link = Link::start(service, 0, || ()).unwrap();
        let ask = |user, question| link.begin_check(user, question).ok();
        for (question, other) in
            [(Question::Dialogue, Question::Quick), (Question::Quick, Question::Dialogue)]
        {
            let of_few = (1000..1009).flat_map(|user| (0..20).filter_map(move |_| ask(user, question)));
            let held: Vec<_> = of_few.collect();
            assert_eq!(held.len(), 9 * MAX_CHECKS_OF_USER);
            assert!(ask(999, question).is_some());
            drop(held);
            let all: Vec<_> = (1000..2000).filter_map(|user| ask(user, question)).collect();
            assert_eq!(all.len(), question.max_pending());
            assert!(ask(1000, other).is_some() && ask(999, other).is_some());
        }
        // polkit is not asked about root.
        assert!(!link.is_bounded(0));
    }
}
