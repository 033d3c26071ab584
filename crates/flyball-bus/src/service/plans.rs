//! Plans of clients, in a thread of their own: the service answers others and corrects drift
//! meanwhile.

use std::{
    io::{self, Write as _},
    os::unix::net::UnixStream,
    sync::mpsc::{Receiver, SyncSender, channel, sync_channel},
    time::{Duration, Instant},
};

use flyball_control::{Intent, Setting, Snapshot, plan::plan};
use flyball_host::Host;

use crate::{Answer, Refusal, Why};

/// Plans that wait.
const MAX_WAITING: usize = 8;

/// How long a plan may wait for the ones before it.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Who asks: the process that speaks D-Bus, and its number of the request.
pub(super) type Asker = (u32, u64);

/// See the module. The thread ends with this value.
pub(super) struct Planner {
    to: SyncSender<(Asker, Vec<Setting>, Instant)>,
    from: Receiver<(Asker, Answer)>,
}

impl Planner {
    /// Starts the thread, with the machine opened for it alone. Each answer writes a byte to
    /// `wake`.
    pub(super) fn start(host: Box<dyn Host>, mut wake: UnixStream) -> io::Result<Planner> {
        let (to, asked) = sync_channel::<(Asker, Vec<Setting>, Instant)>(MAX_WAITING);
        let (answers, from) = channel();
        let answer = move || {
            while let Ok((asker, settings, since)) = asked.recv() {
                let waited = since.elapsed();
                let answer = if waited < MAX_WAIT { planned(&*host, settings) } else { Err(busy()) };
                if answers.send((asker, answer)).is_err() {
                    return;
                }
                // Full means that the service is going to wake anyway.
                let _ = wake.write(&[0]);
            }
        };
        std::thread::Builder::new().name("plans".to_owned()).spawn(answer)?;
        Ok(Planner { to, from })
    }

    /// Plans these settings some time.
    ///
    /// # Errors
    /// Too many plans wait already.
    pub(super) fn plan(&self, asker: Asker, settings: Vec<Setting>) -> Result<(), Refusal> {
        self.to.try_send((asker, settings, Instant::now())).map_err(|_| busy())
    }

    /// A plan that is ready.
    pub(super) fn finished(&self) -> Option<(Asker, Answer)> {
        self.from.try_recv().ok()
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
