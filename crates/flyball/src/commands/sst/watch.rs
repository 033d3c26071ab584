//! `flyball sst watch`: follows level changes by a management controller.

use std::{sync::atomic::Ordering, time::Duration};

use flyball_host::{Kind, thermal::CapabilityEvents, topology::TopologyFile};
use flyball_process::notify;
use flyball_sst::follow::{Event, Exclusion, Follower};

use super::Session;
use crate::{
    change,
    exit::{Exit, Failure},
    output::line,
    time::span_within,
};

/// Arguments of `watch`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Poll at this interval, instead of waiting for the kernel's thermal netlink events
    /// (processors with hardware feedback) [default without such events: 2s].
    #[arg(short = 'w', long, value_name = "TIME", value_parser = span_within(Duration::from_secs(1), Duration::from_secs(86_400)))]
    poll: Option<Duration>,

    /// Isolate CPUs in cgroup v2 partitions instead of taking them offline.
    #[arg(short = 'g', long)]
    cgroup: bool,

    /// Apply the current level once and exit.
    #[arg(long)]
    once: bool,
}

fn report(events: &[Event]) -> Result<(), Failure> {
    for event in events {
        line(event)?;
    }
    // Report only the last status, as the service manager keeps only one.
    if let Some(last) = events.iter().rev().find(|event| matches!(event, Event::Level { .. })) {
        notify(&format!("STATUS={last}"));
    }
    Ok(())
}

/// Returns whether the processor reports changes (hardware feedback).
fn has_feedback(session: &Session<'_>) -> bool {
    session.machine.topology().flags.contains("hfi")
}

pub(super) fn run(session: &Session<'_>, args: &Args) -> Result<Exit, Failure> {
    change::must_be_writable(session.host)?;
    let layout = session.layout()?;
    let live = session.host.kind() == Kind::Live;
    if live {
        // The kernel has no topology of offline CPUs, so store it where intel-speed-select does.
        // Only the first time: later, CPUs may be offline and would be missing.
        if let Some(file) = TopologyFile::for_host(session.host).filter(|file| !file.exists()) {
            if let Err(error) = file.store(session.host, layout.map.room) {
                eprintln!("note: cannot save the topology of CPUs that go offline: {error}");
            }
        }
    }
    let means = if args.cgroup { Exclusion::Cgroup } else { Exclusion::Hotplug };
    let mut follower = Follower::new(means);
    let mut look = || session.ask(follower.look(layout, session.host));
    let first = look()?;
    report(&first)?;
    // The loop would retry rejected events, but with --once there is no second attempt.
    if args.once {
        let refused = first.iter().any(|event| matches!(event, Event::Refused(_)));
        return Ok(if refused { Exit::Failed } else { Exit::Done });
    }
    let stopped = change::interrupts()?;
    let events = match args.poll {
        None if live && has_feedback(session) => match CapabilityEvents::subscribe() {
            Ok(events) => Some(events),
            Err(error) => {
                eprintln!("note: this kernel sends no events ({error}); polling every 2 s");
                None
            }
        },
        _ => None,
    };
    let pause = args.poll.unwrap_or(Duration::from_secs(2));
    // After the first pass: the service is ready when its CPUs match the level.
    notify("READY=1");
    while !stopped.load(Ordering::Relaxed) {
        match &events {
            Some(events) => match events.wait(Duration::from_secs(1)) {
                // The timeout: nothing happened.
                Ok(changes) if changes.is_empty() => continue,
                Ok(_) => {}
                // EINTR: a signal, checked at the head of the loop. ENOBUFS: events were lost
                // (netlink(7)), so read the level again.
                Err(error) if matches!(error.errno.0, 4 | 105) => {}
                Err(error) => return Err(error.into()),
            },
            None => {
                let mut left = pause;
                while !left.is_zero() && !stopped.load(Ordering::Relaxed) {
                    // Signals only set a flag, so sleep in short steps to notice it soon.
                    let nap = left.min(Duration::from_millis(200));
                    session.host.sleep(nap);
                    left -= nap;
                }
            }
        }
        if !stopped.load(Ordering::Relaxed) {
            match look() {
                Ok(events) => report(&events)?,
                // Continue: the driver may be about to be reloaded.
                Err(failure) => eprintln!("flyball: {failure}"),
            }
        }
    }
    // Leave the CPUs as the level requires. `flyball restore` does not affect them.
    notify("STOPPING=1");
    Ok(Exit::Done)
}
