//! Changes of Speed Select on simulated machines, with one call or write failing at each possible
//! point. Afterwards the machine is in its old state, including CPUs that were to go offline; if
//! the call is retried, the machine is in the new state.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use flyball_control::{
    intent::Intent,
    write::{journal::Purpose, state::StateDir, transaction::Transaction},
};
use flyball_sim::{Errno, Fault, Op};
use flyball_simhost::{SimHost, SimSetup};

const NODE: &str = "/dev/isst_interface";
const ONLINE: &str = "/sys/devices/system/cpu/cpu*/online";

/// Settings, each for all CPUs or for some.
type Settings = &'static [(&'static str, Option<&'static str>)];

fn intent(wanted: Settings) -> Intent {
    let mut intent = Intent::default();
    for (setting, cpus) in wanted {
        intent.settings.extend(Intent::from_arguments(&[*setting], *cpus).unwrap().settings);
    }
    intent
}

/// The result of a change, and the machine before and after it.
struct Outcome {
    result: Result<(), String>,
    before: String,
    after: String,
    /// Number of accesses that the fault watched.
    seen: u32,
}

/// Applies settings on a freshly booted machine with one fault.
fn apply(machine: &str, wanted: Settings, fault: Fault) -> Outcome {
    let simulated = SimHost::open(&SimSetup::parse(machine).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::new(folder.path());
    let before = simulated.with(|machine| {
        machine.inject(fault);
        machine.settings()
    });
    let mut transaction = Transaction::begin(&simulated, &state, Purpose::Set, "test", None).unwrap();
    let result = match transaction.apply(&intent(wanted), &|| false) {
        Ok(_) => transaction.keep().map_err(|error| error.to_string()),
        Err(error) => {
            let _ = transaction.end();
            Err(error.to_string())
        }
    };
    simulated.with(|machine| {
        assert!(machine.kernel_fault().is_none(), "{:?}", machine.kernel_fault());
        let seen = machine.faults()[0].seen();
        Outcome { result, before, after: machine.settings(), seen }
    })
}

/// Makes each access of a kind fail in turn, or an evenly spaced selection (all with
/// `FLYBALL_ALL_FAULTS` set). Returns how often the change failed, and how often it succeeded
/// nevertheless.
fn everywhere(machine: &str, wanted: Settings, pattern: &str, op: Op, errno: Errno) -> (u32, u32) {
    let clean = apply(machine, wanted, Fault::errno(pattern, op, errno).at(u32::MAX));
    assert_eq!(clean.result, Ok(()), "{machine} {wanted:?}");
    assert_ne!(clean.after, clean.before, "{machine} {wanted:?} changes nothing");
    let (mut failed, mut done) = (0, 0);
    let stride = if std::env::var_os("FLYBALL_ALL_FAULTS").is_some() { 1 } else { (clean.seen / 3).max(1) };
    for nth in (1..=clean.seen).filter(|nth| nth % stride == 1 % stride) {
        let outcome = apply(machine, wanted, Fault::errno(pattern, op, errno).at(nth));
        let what = || {
            format!("{machine} {wanted:?}, {op:?} {nth} of {} {errno:?}: {:?}", clean.seen, outcome.result)
        };
        let expected = if outcome.result.is_ok() { &clean.after } else { &outcome.before };
        let differs = expected.lines().zip(outcome.after.lines()).find(|(a, b)| a != b);
        assert_eq!(differs, None, "{}", what());
        match outcome.result {
            Ok(()) => done += 1,
            Err(_) => failed += 1,
        }
    }
    (failed, done)
}

const BASE_FREQ: Settings = &[("sst-bf=on", None)];
const TURBO_FREQ: Settings = &[("sst-tf=on", None), ("clos=3", None), ("clos=0", Some("1,2"))];
const CLASSES: Settings =
    &[("sst-cp=on", None), ("clos-1-min=1GHz", None), ("clos-1-max=2GHz", None), ("clos=1", Some("3"))];
/// Levels with the CPUs that they exclude.
const GUIDE_LEVEL: Settings = &[("sst-level=4", None), ("online=off", Some("4,6,12,13,32,34,40,41"))];
const SMALL_LEVEL: Settings = &[("sst-level=3", None), ("online=off", Some("1,3,5,7,17,19,21,23"))];

#[test]
fn any_call_that_fails_leaves_the_machine_as_it_was() {
    let mut report = String::new();
    for (machine, all) in [
        ("sst-guide", [BASE_FREQ, TURBO_FREQ, CLASSES, GUIDE_LEVEL]),
        ("tpmi-small,kernel=7.2", [BASE_FREQ, TURBO_FREQ, CLASSES, SMALL_LEVEL]),
    ] {
        for wanted in all {
            // One permanent error, and one after which a mailbox command is retried.
            for errno in [Errno::PERM, Errno::BUSY] {
                let (failed, done) = everywhere(machine, wanted, NODE, Op::Ioctl, errno);
                assert!(failed + done >= 3, "{machine}: {failed} failed, {done} done");
                report.push_str(&format!("{machine} {}: {failed} failed, {done} done\n", wanted[0].0));
            }
        }
        let level = all[3];
        let (failed, _) = everywhere(machine, level, ONLINE, Op::Write, Errno::BUSY);
        assert!(failed > 0, "a CPU that does not go offline");
        report.push_str(&format!("{machine} online: {failed} failed\n"));
    }
    eprint!("{report}");
}
