//! Plans of clients' settings, made in a separate thread, so that the service can answer others and
//! correct drift meanwhile. Root's plans come first. Other users take turns with one plan each. A
//! user's release waits behind that user's plans.

use std::{
    io::{self, Write as _},
    os::unix::net::UnixStream,
    sync::mpsc::{Receiver, SyncSender, channel, sync_channel},
    time::{Duration, Instant},
};

use flyball_control::{Intent, Setting, Snapshot, plan::plan};
use flyball_host::Host;

use super::requests::by;
use crate::{Answer, Ask, Refusal, Why};

/// Limit on waiting requests of all users other than root, and separately of root.
const MAX_WAITING: usize = 64;

/// Limit on unfinished plans of one user other than root. With releases there may be twice as many
/// requests.
const MAX_OF_USER: usize = 2;

/// How long a plan may wait for earlier ones.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The source of a request: the process that speaks D-Bus, and its number of the request.
pub(super) type Asker = (u32, u64);

/// A request with settings to plan, or a request that waits behind such.
struct Job {
    /// The user. 0 also for the user that the service runs as.
    user: u32,
    asker: Asker,
    ask: Ask,
    since: Instant,
}

/// The planning thread; see the module. It ends with this value.
pub(super) struct Planner {
    to: SyncSender<Job>,
    from: Receiver<(Asker, Ask, Answer)>,
    /// The user whose request the thread handles.
    current: Option<u32>,
    waiting: Vec<Job>,
}

impl Planner {
    /// Starts the thread. The machine is opened only for it. Each answer writes a byte to `wake`.
    pub(super) fn start(host: Box<dyn Host>, mut wake: UnixStream) -> io::Result<Planner> {
        let (to, jobs) = sync_channel::<Job>(1);
        let (answers, from) = channel();
        let answer = move || {
            while let Ok(Job { asker, ask, since, .. }) = jobs.recv() {
                let answer = match &ask {
                    Ask::ReleaseNamed { .. } => Ok(serde_json::Value::Null),
                    Ask::Plan { settings, .. } | Ask::Apply { settings, .. }
                        if since.elapsed() < MAX_WAIT =>
                    {
                        planned(&*host, settings.clone())
                    }
                    _ => Err(busy()),
                };
                if answers.send((asker, ask, answer)).is_err() {
                    return;
                }
                // If it is full, the service will wake anyway.
                let _ = wake.write(&[0]);
            }
        };
        std::thread::Builder::new().name("plans".to_owned()).spawn(answer)?;
        Ok(Planner { to, from, current: None, waiting: Vec::new() })
    }

    /// Queues a request whose settings must be planned. Returns a request that need not wait, for a
    /// decision now.
    ///
    /// # Errors
    /// Too many plans wait already.
    pub(super) fn plan(&mut self, asker: Asker, ask: Ask) -> Result<Option<Ask>, Refusal> {
        let (user, is_release) = match &ask {
            Ask::Plan { user, .. } | Ask::Apply { user, .. } => (by(*user).unwrap_or(0), false),
            Ask::ReleaseNamed { user, .. } => (by(*user).unwrap_or(0), true),
            _ => return Ok(Some(ask)),
        };
        let is_users = |job: &&Job| job.user == user;
        let of_user = self.waiting.iter().filter(is_users).count() + usize::from(self.current == Some(user));
        let of_kind = self.waiting.iter().filter(|job| (job.user == 0) == (user == 0)).count();
        let is_full = |most: usize| of_kind >= MAX_WAITING || user != 0 && of_user >= most;
        // A release always works: if there is no room, it skips the queue.
        if is_release && (of_user == 0 || is_full(2 * MAX_OF_USER)) {
            return Ok(Some(ask));
        }
        if !is_release && is_full(MAX_OF_USER) {
            return Err(busy());
        }
        self.waiting.push(Job { user, asker, ask, since: Instant::now() });
        self.next();
        Ok(None)
    }

    /// If the thread is idle, gives it its next request.
    fn next(&mut self) {
        if self.current.is_some() || self.waiting.is_empty() {
            return;
        }
        let job = self.waiting.remove(self.waiting.iter().position(|job| job.user == 0).unwrap_or(0));
        self.current = Some(job.user);
        // The thread ends only with this value, so this cannot fail.
        let _ = self.to.send(job);
    }

    /// Returns a finished plan with its request.
    pub(super) fn finished(&mut self) -> Option<(Asker, Ask, Answer)> {
        let finished = self.from.try_recv().ok()?;
        if let Some(user) = self.current.take() {
            // The user's other requests wait until all other users have had a turn.
            self.waiting.sort_by_key(|job| job.user == user);
        }
        self.next();
        Some(finished)
    }
}

fn busy() -> Refusal {
    Refusal::new(Why::TooMany, "too many plans wait; try again later")
}

fn planned(host: &dyn Host, settings: Vec<Setting>) -> Answer {
    let intent = Intent { settings };
    let invalid = |error: &dyn std::fmt::Display| Refusal::new(Why::Invalid, error);
    let snapshot = Snapshot::for_intent(host, &intent).map_err(|error| invalid(&error))?;
    let plan = plan(&snapshot, &intent).map_err(|error| invalid(&error))?;
    serde_json::to_value(plan).map_err(|error| Refusal::new(Why::Failed, error))
}

#[cfg(test)]
mod tests {
    use flyball_simhost::{SimHost, SimSetup};

    use super::*;

    /// Makes settings of `arguments`, each with many values that no machine has.
    fn lists(arguments: &[&str], cpus: Option<&str>, values: usize) -> Vec<Setting> {
        let mut settings = Intent::from_arguments(arguments, cpus).unwrap().settings;
        for setting in &mut settings {
            setting.optional = true;
            setting.otherwise = vec![setting.wanted.clone(); values];
        }
        settings
    }

    /// Users can block neither other users' nor root's plans, and a release stays behind its user's
    /// plans.
    #[test]
    fn plans_of_a_user_are_few_and_in_order() {
        let host = SimHost::open(&SimSetup::parse("i7-2600").unwrap()).unwrap();
        let mut planner = Planner::start(Box::new(host), UnixStream::pair().unwrap().0).unwrap();
        let mut ask = |id, ask| planner.plan((1, id), ask).map(|now| now.is_some());
        let plan = |user| Ask::Plan { settings: Vec::new(), user };
        let release = |user| Ask::ReleaseNamed { name: "x".to_owned(), user };
        // Two plans each of so many users that no other user finds room.
        let first: Vec<u64> = (101..=132).map(|user| 10 * user).collect();
        for (user, id) in (101..).zip(&first) {
            assert_eq!((ask(*id, plan(user)), ask(id + 1, plan(user))), (Ok(false), Ok(false)));
        }
        assert_eq!(ask(0, plan(101)).unwrap_err().why, Why::TooMany);
        assert_eq!(ask(1, release(101)), Ok(false));
        assert_eq!(ask(2, plan(8)).unwrap_err().why, Why::TooMany);
        assert_eq!(ask(2, release(8)), Ok(true));
        assert!((3..6).all(|id| ask(id, plan(0)) == Ok(false)) && ask(6, release(0)) == Ok(false));
        let second = first.iter().map(|id| id + 1);
        let expected: Vec<u64> =
            [1010, 3, 4, 5, 6].into_iter().chain(first[1..].to_vec()).chain(second).chain([1]).collect();
        let mut order = Vec::new();
        while order.len() < expected.len() {
            order.extend(planner.finished().map(|((_, id), ..)| id));
            std::thread::yield_now();
        }
        assert_eq!(order, expected);
        assert!(matches!(planner.plan((1, 8), release(101)), Ok(Some(_))), "nothing waits any more");
    }

    /// On 512 CPUs. Before rounds were limited, the worst profile needed 200 times as much.
    #[test]
    fn the_worst_profile_of_the_allowed_size_takes_little_longer_than_one_setting() {
        let host = SimHost::open(&SimSetup::parse("epyc-512").unwrap()).unwrap();
        // Measure the thread's CPU time, because other tests run in parallel.
        let spent = || -> f64 {
            let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            stat.split(' ').next().unwrap().parse().unwrap()
        };
        let time = |settings: &[Setting]| {
            let start = spent();
            let answer = planned(&host, settings.to_vec());
            ((spent() - start) / 1e6, answer.is_ok())
        };
        let one = Intent::from_arguments(&["governor=powersave"], None).unwrap().settings;
        let (usual, is_planned) = (0..3).map(|_| time(&one)).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        assert!(is_planned);
        let wrong = ["max-freq=90GHz", "min-freq=90GHz", "governor=none", "epp=none"];
        let right = ["max-freq=3GHz", "min-freq=2GHz", "governor=performance", "epp=performance"];
        let of_parts = |count: usize| -> Vec<Setting> {
            let parts = (0..count).map(|first| format!("{first}-511"));
            parts.flat_map(|cpus| Intent::from_arguments(&right, Some(&cpus)).unwrap().settings).collect()
        };
        for (what, settings) in [
            ("one list", lists(&wrong[..1], None, 255)),
            ("four lists", lists(&wrong, None, 63)),
            ("settings of parts", of_parts(64)),
            ("settings and a list", [of_parts(55), lists(&wrong[..1], None, 35)].concat()),
            ("settings and lists", [of_parts(40), lists(&wrong, None, 23)].concat()),
        ] {
            let ratio = time(&settings).0 / usual;
            println!("{what}: {} settings, {ratio:.0} times {usual:.0} ms", settings.len());
            assert!(ratio < 100.0, "{what}: {ratio:.0} times the plan of one setting");
        }
    }
}
