//! Random sequences on the small kernel of flyball-control's tests: holds are added, released and
//! end, a user and other programs write, and the service is killed at any call. While holds are in
//! force, the machine has their settings. After the last one it is as before, byte for byte.
//!
//! FLYBALL_MODEL_SCHEDULES sets the number of sequences, PROPTEST_RNG_SEED selects them.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[allow(dead_code, reason = "shared with the tests of flyball-control, which use more of it")]
#[path = "../../flyball-control/tests/control/fake.rs"]
mod fake;

use std::{collections::BTreeMap, time::Duration};

use fake::{CPU, Driver, Faults, Kernel};
use flyball_control::{
    Intent, Location, Snapshot,
    plan::{Plan, plan},
    write::{
        journal::Purpose,
        restore::Restoration,
        state::StateDir,
        transaction::{Scope, Transaction, restore},
    },
};
use flyball_hold::{
    Action, ChangeError, Config, Effective, End, Facts, Hold, Moment, OnDrift, OnExit, Owner, Service, Store,
    change_holds,
};
use flyball_host::watch::{Event, LocalTime, Writer};
use proptest::{prelude::*, test_runner::TestCaseError};

const SETTINGS: &[(&str, Option<&str>)] = &[
    ("governor=performance", None),
    ("governor=powersave", Some("0-1")),
    ("epp=power", None),
    ("epp=balance_power", Some("1")),
    ("max-freq=2GHz", None),
    ("max-freq=3GHz", Some("0")),
    ("min-freq=1.5GHz", None),
    ("turbo=off", None),
    ("boost=off", Some("0")),
    ("epb=15", None),
    ("epb=0", Some("0")),
    ("idle-state=C1", None),
    ("latency-limit=20us", Some("2-3")),
    ("uncore-max-freq=1.8GHz", None),
    ("max-perf-pct=60", None),
];

/// Writes of another program, each to a knob of a setting above.
const POKES: &[(&str, &str)] = &[
    ("cpufreq/policy0/scaling_governor", "powersave"),
    ("cpufreq/policy2/scaling_governor", "performance"),
    ("cpufreq/policy0/scaling_max_freq", "2200000"),
    ("cpufreq/policy0/energy_performance_preference", "balance_performance"),
    ("cpu0/power/energy_perf_bias", "9"),
    ("cpu2/power/pm_qos_resume_latency_us", "77"),
];

#[derive(Debug, Clone)]
enum Step {
    Add {
        name: usize,
        settings: Vec<usize>,
        priority: u32,
    },
    Release {
        name: usize,
    },
    /// The user sets a knob that no hold wants.
    Set(usize),
    /// Time passes; a hold with an end may end.
    Wait(u64),
    Poke(usize),
    /// The process of the next step dies at this call, before or after its effect.
    Die {
        at: usize,
        after: bool,
        torn: usize,
    },
    /// The service is started again.
    Restart,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let settings = proptest::collection::vec(0..SETTINGS.len(), 1..4);
    let step = prop_oneof![
        5 => (0..NAMES.len(), settings, 0u32..4).prop_map(|(name, settings, priority)| Step::Add { name, settings, priority }),
        3 => (0..NAMES.len()).prop_map(|name| Step::Release { name }),
        2 => (0..SETTINGS.len()).prop_map(Step::Set),
        1 => (1u64..100).prop_map(Step::Wait),
        4 => (0..POKES.len()).prop_map(Step::Poke),
        2 => (0usize..300, any::<bool>(), 0usize..400).prop_map(|(at, after, torn)| Step::Die { at, after, torn }),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..12)
}

fn kernels() -> impl Strategy<Value = (Driver, usize, u32)> {
    let driver = prop_oneof![Just(Driver::AmdPstate), Just(Driver::IntelPstate), Just(Driver::AcpiCpufreq)];
    (driver, 1usize..3, 0u32..3)
}

fn moment(now: u64) -> Moment {
    let local = LocalTime { minutes: 0, seconds: 0 };
    Moment { now: Duration::from_secs(now), unix: now, local }
}

fn hold(name: usize, settings: &[usize], priority: u32, now: u64) -> Hold {
    let mut intent = Intent::default();
    for &index in settings {
        let (argument, cpus) = SETTINGS[index];
        intent.settings.extend(Intent::from_arguments(&[argument], cpus).unwrap().settings);
    }
    // Priorities differ, because on a tie the newer hold wins and the model would have to know the
    // order.
    let end = (name == 3).then(|| Duration::from_secs(now + 50));
    Hold {
        name: NAMES[name].parse().unwrap(),
        owner: Owner::User(0),
        priority,
        profile: None,
        settings: intent.settings,
        condition: None,
        end: End { at: end, process: None },
        on_drift: OnDrift::Correct,
        on_exit: OnExit::Keep,
        since: now,
    }
}

fn start<'k>(kernel: &'k Kernel, state: &StateDir, now: u64) -> Service<'k> {
    let lock = state.lock("hold run").expect("the machine is free");
    let profiles = |_: &str| Ok(Vec::new());
    Service::start(kernel, state.clone(), lock, Vec::new(), Ok(Config::default()), &profiles, moment(now))
        .unwrap()
}

/// Releasing one hold works even if the remaining ones cannot be planned, and the error names them.
#[test]
fn a_hold_that_is_refused_blocks_no_release() {
    let kernel = Kernel::new(Driver::IntelPstate, 4, 1, 0);
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::new(folder.path().join("state"));
    let first = kernel.dump();
    let change = |change: &dyn Fn(&mut Store) -> Result<(), flyball_hold::StoreError>| {
        change_holds(&kernel, &state, "test", moment(0), change)
    };
    let good = hold(0, &[2], 100, 0);
    change(&|store| store.add(good.clone())).unwrap();
    assert_ne!(kernel.dump(), first);
    let mut store = Store::load(&state, &kernel).unwrap();
    let mut refused = hold(1, &[], 100, 0);
    refused.settings = Intent::from_arguments(&["max-freq=99GHz"], None).unwrap().settings;
    store.add(refused.clone()).unwrap();
    store.save(&state).unwrap();
    let changed = change(&|store| store.release(&good.name).map(drop)).unwrap();
    assert_eq!(differences(&first, &kernel.dump(), &[]), "");
    let failure = changed.store.failure.unwrap();
    assert!(failure.contains(refused.name.as_str()) && failure.contains("not in force"), "{failure}");
}

/// If the machine cannot be read for a while, the other holds' settings stay, and the failure names
/// them.
#[test]
fn a_release_on_a_machine_that_cannot_be_read_keeps_other_holds() {
    let mut named = 0;
    for failing in 0..12 {
        let kernel = Kernel::new(Driver::IntelPstate, 4, 1, 0);
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(folder.path().join("state"));
        let change = |change: &dyn Fn(&mut Store) -> Result<(), flyball_hold::StoreError>| {
            change_holds(&kernel, &state, "test", moment(0), change)
        };
        let (stays, goes) = (hold(0, &[2], 100, 0), hold(1, &[7, 9], 100, 0));
        change(&|store| store.add(stays.clone())).unwrap();
        let expected = kernel.dump();
        change(&|store| store.add(goes.clone())).unwrap();
        let events = (0..failing).map(|call| (call, fake::Event::Fail(5))).collect();
        kernel.arm(Faults { events, ..Faults::default() }, state.journal());
        let released = change(&|store| store.release(&goes.name).map(drop));
        kernel.revive();
        let own = set_by(&kernel, std::slice::from_ref(&goes));
        let gone: Vec<&str> = own.keys().map(|path| &path[path.rfind("cpu").unwrap()..]).collect();
        assert_eq!(differences(&expected, &kernel.dump(), &gone), "", "{failing} calls fail");
        let failure = released.ok().and_then(|changed| changed.store.failure).unwrap_or_default();
        named += usize::from(failure.contains("'a' is not in force"));
        // The next snapshot shows which hold sets what.
        change(&|store| store.release(&"none".parse().unwrap()).map(drop).or(Ok(()))).unwrap();
        assert_eq!(differences(&expected, &kernel.dump(), &[]), "", "{failing} calls fail");
    }
    assert!(named > 0, "the machine could be read");
}

/// Only the owner and root change a hold, and users cannot fill the store.
#[test]
fn holds_belong_to_their_owners() {
    let kernel = Kernel::new(Driver::IntelPstate, 1, 1, 0);
    let mut store = Store::empty(&kernel);
    let named =
        |name: &str, owner: Owner| Hold { name: name.parse().unwrap(), owner, ..hold(0, &[], 100, 0) };
    let client = Owner::Client { cookie: 1, user: 1000, name: "config".to_owned() };
    store.add(named("of-config", Owner::Config)).unwrap();
    store.add_by(None, named("of-root", Owner::User(0))).unwrap();
    store.add_by(Some(1000), named("of-client", client)).unwrap();
    for name in ["of-config", "of-root", "of-client"] {
        let taken = store.add_by(Some(1001), named(name, Owner::User(1001)));
        assert!(taken.is_err() && store.release_by(Some(1001), &name.parse().unwrap()).is_err(), "{name}");
    }
    assert!(store.release_by(None, &"of-config".parse().unwrap()).is_err());
    store.release_by(Some(1000), &"of-client".parse().unwrap()).unwrap();
    let add = |store: &mut Store, user: u32, number: u32| {
        store.add_by(Some(user), named(&format!("h{user}-{number}"), Owner::User(user))).is_ok()
    };
    let added = |store: &mut Store, user: u32| (0..70).filter(|number| add(store, user, *number)).count();
    assert_eq!((added(&mut store, 1), added(&mut store, 2), added(&mut store, 3)), (16, 16, 0));
    store.add_by(None, named("another", Owner::User(0))).unwrap();
    // Settings are limited too, over all holds together. A replaced hold does not count.
    let mut store = Store::empty(&kernel);
    let mut add = |user: u32, name: &str, count: usize| {
        let settings = vec![hold(0, &[0], 100, 0).settings[0].clone(); count];
        let hold = Hold { settings, ..named(name, Owner::User(user)) };
        store.add_by((user != 0).then_some(user), hold).is_ok()
    };
    assert!(add(1, "a", 200) && add(1, "b", 56) && !add(1, "c", 1) && add(1, "a", 199) && add(1, "c", 1));
    assert!(!add(2, "d", 257) && add(2, "d", 256) && !add(3, "e", 1) && add(0, "f", 300));
    // Long texts count too: in a profile, settings share a selector's text, in a hold they do not.
    let mut store = Store::empty(&kernel);
    let mut add = |bytes: usize| {
        let mut settings = hold(0, &[0], 100, 0).settings;
        settings[0].on = Some("0,".repeat(bytes / 2));
        store.add_by(Some(1), Hold { settings, ..named("long", Owner::User(1)) }).is_ok()
    };
    assert!(add(60 << 10) && !add(65 << 10));
}

/// If a user could write the list of holds, that user would be root. Every user may read it.
#[test]
fn a_list_of_holds_that_others_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let kernel = Kernel::new(Driver::IntelPstate, 1, 1, 0);
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::new(folder.path().join("state"));
    let change =
        || change_holds(&kernel, &state, "test", moment(0), |store| store.add(hold(0, &[2], 100, 0)));
    change().unwrap();
    let path = state.path().join(Store::NAME);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o646)).unwrap();
    let refused = Store::load(&state, &kernel).map(drop).unwrap_err().to_string();
    assert!(refused.contains("another user could have written"), "{refused}");
    assert!(change().is_err());
}

/// Checks by planning that the holds are in effect: if the machine accepts the plan, it has no
/// changes left.
fn is_held(kernel: &Kernel, state: &StateDir) -> Result<(), TestCaseError> {
    let store = Store::load(state, kernel).unwrap();
    let effective = Effective::new(&store.holds, &Facts::default());
    if effective.intent.is_empty() || store.failure.is_some() {
        return Ok(());
    }
    let snapshot = Snapshot::for_intent(kernel, &effective.intent).unwrap();
    let wanted = effective.without(&store.left, &snapshot);
    let plan = plan(&snapshot, &wanted);
    prop_assert!(plan.as_ref().is_ok_and(Plan::is_empty), "{:?} for {:?}", plan, wanted);
    Ok(())
}

type Dump = BTreeMap<String, Result<String, i32>>;

fn differences(first: &Dump, now: &Dump, poked: &[&str]) -> String {
    let is_poked = |path: &String| poked.iter().any(|poked| path.ends_with(poked));
    let paths = first.keys().chain(now.keys().filter(|path| !first.contains_key(*path)));
    let lines = paths.filter(|path| first.get(*path) != now.get(*path) && !is_poked(path));
    lines.map(|path| format!("{path}: {:?} became {:?}\n", first.get(path), now.get(path))).collect()
}

#[derive(Debug, Default)]
struct Counts {
    held: usize,
    corrected: usize,
    died: usize,
    exact: usize,
    set: usize,
}

fn run(
    (driver, per_policy, lag): (Driver, usize, u32),
    steps: &[Step],
    counts: &mut Counts,
) -> Result<(), TestCaseError> {
    let kernel = Kernel::new(driver, 4, per_policy, lag);
    let memory = std::path::Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let state = StateDir::new(folder.path().join("state"));
    let first = kernel.dump();
    let mut now = 0;
    let mut service = start(&kernel, &state, now);
    for step in steps {
        match step {
            Step::Die { at, after, torn } => {
                let faults = Faults { die_at: Some((*at, *after)), torn: *torn, ..Faults::default() };
                kernel.arm(faults, state.journal());
                continue;
            }
            Step::Add { name, settings, priority } => {
                let hold = hold(*name, settings, *priority, now);
                add_or_release(&kernel, &state, now, |store| store.add(hold.clone()))?;
            }
            Step::Release { name } => {
                let name = NAMES[*name].parse().unwrap();
                add_or_release(&kernel, &state, now, |store| store.release(&name).map(drop))?;
            }
            Step::Set(index) => counts.set += usize::from(set(&kernel, &state, *index)),
            Step::Wait(seconds) => now += seconds,
            Step::Restart => service = start(&kernel, &state, now),
            Step::Poke(index) => {
                let (path, value) = POKES[*index];
                let by = Writer { pid: 4711, name: Some("other".to_owned()), unit: None };
                // Settings that no hold sets belong to the other program afterwards. Here they
                // would only make the end hard to judge.
                if is_wanted(&kernel, &state, path) && kernel.poke(path, value).is_ok() {
                    service.handle(vec![Event::Written { path: format!("{CPU}/{path}"), by }], moment(now));
                }
            }
        }
        let event = |name: &str| Event::File { name: name.to_owned() };
        service.handle(vec![event(Store::NAME), event("lock")], moment(now));
        let notices = service.notices();
        counts.corrected += notices.iter().filter(|notice| matches!(notice, flyball_hold::Notice::Drift(drift) if drift.action == Action::Corrected)).count();
        if kernel.is_dead() {
            counts.died += 1;
            kernel.revive();
            service = start(&kernel, &state, now);
        }
        kernel.revive();
        // Work of a process that died may need another look.
        service.handle(vec![Event::Lost], moment(now));
        is_held(&kernel, &state)?;
        counts.held += 1;
    }
    drop(service);
    // Disarm a death that has not happened yet.
    kernel.revive();
    let changed = change_holds(&kernel, &state, "release", moment(now), |store| {
        store.clear();
        Ok(())
    });
    let changed = changed.unwrap();
    prop_assert!(changed.brought.restored.is_exact(), "{}", changed.brought.restored);
    let left = restore(&kernel, &state, "restore", Scope::All).unwrap();
    prop_assert!(Restoration::is_exact(&left.restoration), "{}", left.restoration);
    prop_assert_eq!(differences(&first, &kernel.dump(), &[]), "");
    counts.exact += 1;
    Ok(())
}

/// Returns the locations that an intent sets.
fn targets(kernel: &Kernel, intent: &Intent) -> Vec<Location> {
    let Ok(snapshot) = Snapshot::for_intent(kernel, intent) else { return Vec::new() };
    let targets = flyball_control::plan::targets(&snapshot, intent).unwrap_or_default();
    targets.into_iter().map(|target| target.location).collect()
}

/// Returns the locations that holds want.
fn wanted(kernel: &Kernel, state: &StateDir) -> Vec<Location> {
    let store = Store::load(state, kernel).unwrap();
    targets(kernel, &Effective::new(&store.holds, &Facts::default()).intent)
}

fn is_wanted(kernel: &Kernel, state: &StateDir, path: &str) -> bool {
    let path = format!("{CPU}/{path}");
    kernel.pause(|kernel| wanted(kernel, state).iter().any(|location| location.path() == Some(&path)))
}

/// Runs `flyball set` while holds are in force. Returns whether the setting was kept.
fn set(kernel: &Kernel, state: &StateDir, index: usize) -> bool {
    let (argument, cpus) = SETTINGS[index];
    let intent = Intent::from_arguments(&[argument], cpus).unwrap();
    let is_free = kernel.pause(|kernel| {
        let wanted = wanted(kernel, state);
        targets(kernel, &intent).iter().all(|location| !wanted.contains(location))
    });
    if !is_free {
        return false;
    }
    let begun = Transaction::begin(kernel, state, Purpose::Set, "set", None);
    let kept = begun.is_ok_and(|mut transaction| {
        transaction.apply(&intent, &|| false).is_ok() && transaction.keep().is_ok()
    });
    if kernel.is_dead() {
        // Act as the guardian of the killed process.
        kernel.revive();
        restore(kernel, state, "guardian", Scope::Open).unwrap();
    }
    kept
}

/// Changes the holds as a command does. If its process dies, the store stays as it was at that
/// moment.
fn add_or_release(
    kernel: &Kernel,
    state: &StateDir,
    now: u64,
    change: impl Fn(&mut Store) -> Result<(), flyball_hold::StoreError>,
) -> Result<(), TestCaseError> {
    let mut at_death = None;
    let changed = change_holds(kernel, state, "add", moment(now), |store| {
        change(store)?;
        at_death = Some(store.clone());
        Ok(())
    });
    match changed {
        Ok(_) => {}
        Err(_) if kernel.is_dead() => {
            // This test's process continued and took the hold back. A killed process would not.
            if let Some(mut store) = at_death {
                store.save(state).unwrap();
            }
        }
        // The settings contradict each other, or this machine lacks them.
        Err(ChangeError::Bring(_) | ChangeError::Store(_)) => {}
        Err(error) => return Err(TestCaseError::fail(error.to_string())),
    }
    Ok(())
}

#[test]
fn holds_are_an_overlay_and_leave_nothing_behind() {
    let count = std::env::var("FLYBALL_MODEL_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let config = ProptestConfig {
        cases: count.unwrap_or(300),
        failure_persistence: None,
        max_shrink_iters: 5_000,
        ..ProptestConfig::default()
    };
    let mut counts = Counts::default();
    let counted = std::cell::RefCell::new(&mut counts);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result =
        runner.run(&(kernels(), steps()), |(kernel, steps)| run(kernel, &steps, *counted.borrow_mut()));
    if let Err(error) = result {
        panic!("{error}");
    }
    println!("{counts:?}");
    let all = [counts.exact, counts.corrected, counts.died, counts.set];
    assert!(all.iter().all(|count| *count > 0), "{counts:?}: nothing was proven");
}

/// How the file system of the state directory fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Lack {
    Space,
    Writes,
}

/// The variable for the path of a small, separate file system.
const SMALL: &str = "FLYBALL_TEST_SMALL_FILE_SYSTEM";

/// Makes the file system fail, or work again.
fn fail(folder: &std::path::Path, lack: Lack, fails: bool) {
    let filler = folder.join("filler");
    match lack {
        Lack::Space if fails => {
            let mut file = std::fs::File::create(filler).unwrap();
            for size in [4096, 1] {
                while std::io::Write::write_all(&mut file, &vec![b'x'; size]).is_ok() {}
            }
        }
        Lack::Space => std::fs::remove_file(filler).unwrap(),
        Lack::Writes => {
            let how = if fails { "remount,ro" } else { "remount,rw" };
            assert!(
                std::process::Command::new("mount").args(["-o", how]).arg(folder).status().unwrap().success()
            );
        }
    }
}

/// Returns the locations that these holds set, if they can be planned.
fn set_by(kernel: &Kernel, holds: &[Hold]) -> BTreeMap<String, String> {
    let effective = Effective::new(holds, &Facts::default());
    let targets = Snapshot::for_intent(kernel, &effective.intent)
        .ok()
        .and_then(|snapshot| flyball_control::plan::targets(&snapshot, &effective.intent).ok());
    let paths = targets
        .unwrap_or_default()
        .into_iter()
        .filter_map(|target| Some((target.location.path()?.to_owned(), target.knob.to_string())));
    paths.collect()
}

/// Releases one hold on a full or read-only file system, among any holds and faults. Each setting
/// of the hold must be gone or named, and everything must return when there is space.
fn release_without(
    folder: &std::path::Path,
    (driver, per_policy, lag): (Driver, usize, u32),
    holds: &[(usize, Vec<usize>, u32)],
    (lack, released, faults): (Lack, usize, &[(usize, fake::Event)]),
    exact: &mut usize,
) -> Result<(), TestCaseError> {
    let kernel = Kernel::new(driver, 4, per_policy, lag);
    let state = StateDir::new(folder.join("state"));
    let _ = std::fs::remove_dir_all(state.path());
    let first = kernel.dump();
    for (name, settings, priority) in holds {
        add_or_release(&kernel, &state, 0, |store| store.add(hold(*name, settings, *priority, 0)))?;
    }
    let before = Store::load(&state, &kernel).unwrap();
    let name = NAMES[released];
    let (of_it, remaining): (Vec<Hold>, Vec<Hold>) =
        before.holds.iter().cloned().partition(|hold| hold.name.as_str() == name);
    let own = set_by(&kernel, &of_it);
    // A second machine that never had any but the remaining holds.
    let other = Kernel::new(driver, 4, per_policy, lag);
    let other_state = StateDir::new(folder.join("other"));
    let _ = std::fs::remove_dir_all(other_state.path());
    for hold in &remaining {
        add_or_release(&other, &other_state, 0, |store| store.add(hold.clone()))?;
    }
    let expected = other.dump();
    fail(folder, lack, true);
    kernel.arm(fake::Faults { events: faults.to_vec(), ..Faults::default() }, state.journal());
    let result = change_holds(&kernel, &state, "release", moment(0), |store| {
        store.release(&name.parse().unwrap()).map(drop)
    });
    kernel.revive();
    let told = match &result {
        Ok(changed) => format!("{} {:?}", changed.brought.restored, changed.store.failure),
        Err(error) => error.to_string(),
    };
    fail(folder, lack, false);
    let now = kernel.dump();
    let is_gone = |path: &&String| [&first, &expected].iter().any(|dump| dump.get(*path) == now.get(*path));
    for path in own.keys().filter(|path| !is_gone(path)) {
        prop_assert!(
            told.contains(path.as_str()),
            "{path}: {:?} is {:?}: {told}",
            first.get(path),
            now.get(path)
        );
    }
    *exact += usize::from(!own.is_empty() && own.keys().all(|path| is_gone(&path)));
    let changed = change_holds(&kernel, &state, "release", moment(0), |store| {
        store.clear();
        Ok(())
    });
    prop_assert!(changed.unwrap().brought.restored.is_exact());
    prop_assert_eq!(differences(&first, &kernel.dump(), &[]), "");
    Ok(())
}

#[test]
fn a_release_needs_neither_space_nor_a_file_that_can_be_written() {
    let Ok(folder) = std::env::var(SMALL) else {
        let folder = tempfile::tempdir().unwrap();
        let mut again = std::process::Command::new("unshare");
        let script = "mount -t tmpfs -o size=256k none \"$1\" || exit 77; shift; exec \"$@\"";
        again
            .args(["-rm", "sh", "-c", script, "sh"])
            .arg(folder.path())
            .arg(std::env::current_exe().unwrap());
        again.args([
            "--exact",
            "a_release_needs_neither_space_nor_a_file_that_can_be_written",
            "--nocapture",
        ]);
        let ran = again.env(SMALL, folder.path()).output().unwrap();
        let text = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
        if ran.status.code() == Some(77) || text.contains("unshare:") {
            eprintln!("skipped: 1 small file system: no mount namespace can be made");
            return;
        }
        println!("{text}");
        assert!(ran.status.success());
        return;
    };
    let count = std::env::var("FLYBALL_MODEL_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let config = ProptestConfig {
        cases: count.unwrap_or(100),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let settings = proptest::collection::vec(0..SETTINGS.len(), 1..4);
    let holds = proptest::collection::vec((0..NAMES.len(), settings, 0u32..4), 1..5);
    let lack = prop_oneof![Just(Lack::Space), Just(Lack::Writes)];
    let event = prop_oneof![Just(fake::Event::Fail(5)), Just(fake::Event::Fail(16)), Just(fake::Event::Lose)];
    let faults = proptest::collection::vec((0usize..200, event), 0..4);
    let exact = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(
        &(kernels(), holds, lack, 0..NAMES.len(), faults),
        |(kernel, holds, lack, released, faults)| {
            let mut count = exact.get();
            let done =
                release_without(folder.as_ref(), kernel, &holds, (lack, released, &faults), &mut count);
            exact.set(count);
            done
        },
    );
    if let Err(error) = result {
        panic!("{error}");
    }
    println!("{} releases were exact", exact.get());
    assert!(exact.get() > 0, "nothing was proven");
}
