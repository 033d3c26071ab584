//! Values that read back differently from what was written: temporarily, because a driver recreates
//! its policies during a change of mode, or always, because the kernel clamps them.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use flyball_control::{Intent, Setting, write::state::StateDir};
use flyball_hold::{Action, Config, Drift, LeftBecause, Notice, Rehearsal, events, status};
use flyball_host::{Host, HostError};
use flyball_simhost::{SimHost, SimSetup};

const MAX: &str = "/sys/devices/system/cpu/cpufreq/policy2/scaling_max_freq";

/// A machine on which a number of writes to one file are undone at once.
struct Losing {
    host: SimHost,
    lost: AtomicUsize,
}

impl Host for Losing {
    flyball_host::forward!(
        host: kind, name, read_into, list, exists, writable, link, msr, write_msr, isst, now, sleep
    );

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), HostError> {
        self.host.write(path, bytes)?;
        let is_lost = |left: usize| left.checked_sub(1);
        if path == MAX && self.lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_lost).is_ok() {
            self.host.write(path, b"3000000")?;
        }
        Ok(())
    }
}

fn profiles(name: &str) -> Result<Vec<Setting>, String> {
    Intent::from_arguments(&[name], None).map(|intent| intent.settings).map_err(|error| error.to_string())
}

/// Another program changes the limit, and this many writes of the correction are lost. Returns the
/// drifts within ten seconds, whether the hold is in effect then, and why it was left.
fn corrected(lost: usize) -> (Vec<Drift>, bool, Vec<LeftBecause>) {
    let host = Losing {
        host: SimHost::open(&SimSetup::parse("ryzen-5750g").unwrap()).unwrap(),
        lost: AtomicUsize::new(0),
    };
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::new(folder.path().join("state"));
    let config = Config::parse(b"[[when]]\nprofile = \"max-freq=2GHz\"\n", "hold.toml");
    let mut rehearsal = Rehearsal::start(&host, state, config, &profiles).unwrap();
    assert_eq!(host.read(MAX).unwrap(), "2000000");
    let text = format!("1s writes {MAX} 3000000 as tuned");
    let mut done = rehearsal.done();
    for event in events(text.as_bytes(), "events").unwrap() {
        done.extend(rehearsal.until(Duration::from_millis(900)));
        host.host.write(MAX, b"3000000").unwrap();
        host.lost.store(lost, Ordering::SeqCst);
        done.extend(rehearsal.play(&event).unwrap());
    }
    done.extend(rehearsal.until(Duration::from_secs(10)));
    let drifts = done.into_iter().filter_map(|done| match done.notice {
        Notice::Drift(drift) => Some(*drift),
        _ => None,
    });
    let (facts, now) = rehearsal.facts();
    let status = status(&host, rehearsal.service().store(), &facts, now);
    let left = rehearsal.service().store().left.iter().map(|left| left.because.clone()).collect();
    (drifts.collect(), status.knobs.iter().all(|knob| knob.holds), left)
}

#[test]
fn what_a_driver_undoes_for_a_moment_is_brought_about_and_one_drift() {
    // The event itself is a write to the file, and each correction may write it twice.
    for lost in 2..6 {
        let (drifts, holds, left) = corrected(lost);
        assert!(holds, "{lost} lost: {drifts:?} {left:?}");
        assert_eq!(left, [], "{lost}");
        assert_eq!(drifts.len(), 1, "{lost}: {drifts:?}");
        assert_eq!(drifts[0].action, Action::Corrected, "{lost}");
    }
}

#[test]
fn what_is_never_taken_is_left_after_five_tries() {
    let (drifts, holds, left) = corrected(usize::MAX);
    assert!(!holds);
    assert_eq!(left, [LeftBecause::Clamped]);
    assert_eq!(drifts.len(), 1, "{drifts:?}");
    assert!(matches!(drifts[0].action, Action::Failed(_)), "{drifts:?}");
}
