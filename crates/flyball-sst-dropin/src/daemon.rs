//! `--oob`: follows level changes by a management controller.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    display::Id,
    online,
    session::{Ended, Session},
};

/// Services of the process for the daemon.
pub trait Daemon {
    /// From now on, signals end the daemon between two looks.
    fn begin(&mut self) {}
    /// Goes into the background.
    ///
    /// # Errors
    /// The exit code of this process: it cannot go into the background, or a background process has
    /// taken over.
    fn detach(&mut self) -> Result<(), Ended>;
    /// Returns whether the kernel reports changes of capability (CONFIG_INTEL_HFI_THERMAL).
    fn can_listen(&mut self) -> bool;
    /// Waits at most `time` for CPUs whose capability the firmware changed; `None` if the kernel
    /// does not report such changes.
    fn changes(&mut self, time: Duration) -> Option<Vec<u32>>;
    /// Returns whether the process was asked to end.
    fn stopped(&self) -> bool;
}

/// `--oob` and its options.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub requested: bool,
    pub foreground: bool,
    pub interval: Option<u64>,
}

/// Minimum time between two looks at a domain, because one level change raises an event for each
/// CPU (`process_level_change` in isst-daemon.c).
const QUIET: Duration = Duration::from_secs(2);

/// Time of the last look and level seen then, by package, die and domain.
type Seen = BTreeMap<(i32, i32, i32), (Duration, Option<u8>)>;

pub(super) fn run(
    session: &mut Session<'_>,
    request: &Request,
    daemon: &mut dyn Daemon,
) -> Result<(), Ended> {
    if session.debug {
        session.warn("OOB mode is enabled in debug mode\n");
    }
    // Before printing that it is enabled. The original prints that first, and its background
    // process then ends unnoticed.
    if request.interval.is_none() {
        if !has_events(session) {
            session.warn("CPU Doesn't support HFI\n");
            return Err(refused(session));
        }
        if !daemon.can_listen() {
            return Err(refused(session));
        }
    }
    // With a poll interval the original stays in the foreground, although its help does not mention
    // it.
    if !request.foreground && request.interval.is_none() && !session.debug {
        session.warn("OOB mode is enabled and will run as daemon\n");
        daemon.detach()?;
    }
    daemon.begin();
    let mut seen = Seen::new();
    let Some(interval) = request.interval else {
        while !daemon.stopped() {
            // A second, so that a signal is noticed even without an event.
            let Some(cpus) = daemon.changes(Duration::from_secs(1)) else { return Err(refused(session)) };
            for cpu in cpus {
                let id = session.id(cpu);
                follow(session, &id, &mut seen)?;
            }
        }
        return Ok(());
    };
    while !daemon.stopped() {
        // In short sleeps, so that a signal ends the daemon at once.
        for _ in 0..interval.saturating_mul(10) {
            if daemon.stopped() {
                return Ok(());
            }
            session.host.sleep(Duration::from_millis(100));
        }
        for id in session.power_domains()? {
            follow(session, &id, &mut seen)?;
        }
    }
    Ok(())
}

fn has_events(session: &Session<'_>) -> bool {
    session.info.flags.contains("hfi")
}

fn refused(session: &mut Session<'_>) -> Ended {
    session.warn("HFI initialization failed\n");
    session.warn("Must specify poll-interval\n");
    session.warn("OOB mode enable failed\n");
    session.failed = true;
    Ended(0)
}

/// Switches a domain's CPUs to those of the current level if the level changed. The first look
/// counts as a change.
fn follow(session: &mut Session<'_>, id: &Id, seen: &mut Seen) -> Result<(), Ended> {
    // Outside the original's arrays (per_package_levels_info), or a CPU that the driver does not
    // know.
    if id.package < 0 || id.die < 0 || id.domain < 0 {
        return Ok(());
    }
    let now = session.host.now();
    let last = seen.entry((id.package, id.die, id.domain)).or_insert((Duration::ZERO, None));
    // Never skip the first look, which matches the CPUs to the level at start.
    if last.1.is_some() && now.saturating_sub(last.0) < QUIET {
        return Ok(());
    }
    last.0 = now;
    let before = last.1;
    // The original returns here too, and tries again at the next event.
    let Ok(levels) = session.levels(id)? else { return Ok(()) };
    // A locked level cannot have changed, whatever the event was about.
    if levels.locked || before == Some(levels.current) {
        return Ok(());
    }
    seen.insert((id.package, id.die, id.domain), (now, Some(levels.current)));
    let cores = session.at(id, |access, place| access.level_cores(place, levels.current));
    let Ok(cores) = session.ask(cores)? else { return Ok(()) };
    let cpus = session.of_cores(id, cores);
    if session.cgroup && online::enable_cpusets(session) {
        // process_level_change() ignores the result too.
        let _ = online::partition(session, id, &cpus, levels.current);
        return Ok(());
    }
    online::set_online(session, id, &cpus, false)
}
