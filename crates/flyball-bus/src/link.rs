//! The connection to the service: questions and their answers, and what it says by itself.

use std::{
    collections::HashMap,
    io::BufReader,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    mailbox::Mailbox,
    message::{Answer, Ask, MAX_REPORTED, Refusal, Request, Tell, Why, read_line, write_line},
};

/// Questions of all users but root that wait for an answer. A client that asks without end is
/// refused before the service hears of it.
const MAX_WAITING: usize = 64;

/// Such questions of one user.
const MAX_WAITING_OF_USER: usize = 16;

/// Questions to polkit of all users that wait for an answer. The bus lets a connection wait for 128
/// answers (`max_replies_per_connection`), and the others are for asking who a caller is: root's
/// calls need that too.
const MAX_CHECKS: usize = 96;

/// Such questions of one user. They wait as long as the user does not answer a dialogue, and nobody
/// has two dialogues open at a time for long. 48 users together can use up all of them.
const MAX_CHECKS_OF_USER: usize = 2;

/// What the main task waits for.
pub(crate) enum News {
    Tell(Tell),
    /// The last state is to be compared again.
    Look,
    /// The service has ended, or sends what is not a message.
    ServiceGone,
    /// The bus has closed the connection.
    BusGone,
}

#[derive(Default)]
struct Waiting {
    last: u64,
    answers: HashMap<u64, (Option<u32>, Arc<Mailbox<Answer>>)>,
}

/// See the module.
pub(crate) struct Link {
    to: Mutex<UnixStream>,
    waiting: Mutex<Waiting>,
    /// The users for whom polkit is being asked, once for each question.
    checks: Mutex<Vec<u32>>,
    /// The user that the service runs as, who is not the user of this process.
    pub(crate) service_user: u32,
    pub(crate) news: Mailbox<News>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Starts the thread that reads what the service sends.
    pub(crate) fn start(service: UnixStream, service_user: u32) -> std::io::Result<Arc<Link>> {
        let from = service.try_clone()?;
        let link = Arc::new(Link {
            to: Mutex::new(service),
            waiting: Mutex::default(),
            checks: Mutex::default(),
            service_user,
            news: Mailbox::default(),
        });
        let reader = Arc::clone(&link);
        std::thread::Builder::new().name("service".to_owned()).spawn(move || reader.read(from))?;
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
        self.news.put(News::ServiceGone);
    }

    /// Returns whether there are bounds for what this user has asked for: for all but root and the
    /// service's.
    pub(crate) fn is_bounded(&self, user: u32) -> bool {
        user != 0 && user != self.service_user
    }

    /// Counts a question to polkit about a user until the answer is dropped.
    pub(crate) fn begin_check(&self, user: u32) -> Result<Check<'_>, Refusal> {
        let mut checks = lock(&self.checks);
        let of_user = checks.iter().filter(|other| **other == user).count();
        if of_user >= MAX_CHECKS_OF_USER || checks.len() >= MAX_CHECKS {
            return Err(Refusal::new(Why::TooMany, "too many calls wait for an authorization"));
        }
        checks.push(user);
        Ok(Check { checks: &self.checks, user })
    }

    /// Asks the service for a user, and waits for its answer. What this process asks by itself
    /// (`None`) is not bounded: a hold must end with its program.
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
        // The service reads all the time in a thread of its own, so this does not wait.
        if let Err(error) = write_line(&mut *lock(&self.to), &Request { id, ask }) {
            lock(&self.waiting).answers.remove(&id);
            return Err(Refusal::new(Why::Failed, format!("the service is gone: {error}")));
        }
        mailbox.take().await
    }
}

/// A question to polkit that waits for an answer.
pub(crate) struct Check<'a> {
    checks: &'a Mutex<Vec<u32>>,
    user: u32,
}

impl Drop for Check<'_> {
    fn drop(&mut self) {
        let mut checks = lock(self.checks);
        if let Some(at) = checks.iter().position(|user| *user == self.user) {
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
        let link = Link::start(service, 0).unwrap();
        let held: Vec<_> = (1000..1009)
            .flat_map(|user| (0..20).map(move |_| user))
            .filter_map(|user| link.begin_check(user).ok())
            .collect();
        assert_eq!(held.len(), 9 * MAX_CHECKS_OF_USER);
        let other = link.begin_check(999).ok().unwrap();
        drop(held);
        assert!(link.begin_check(1000).is_ok());
        drop(other);
        let all: Vec<_> = (1000..2000).filter_map(|user| link.begin_check(user).ok()).collect();
        assert_eq!(all.len(), MAX_CHECKS);
        // Root is not asked about.
        assert!(!link.is_bounded(0));
    }
}
