//! Apply and restore as a transaction, over a small kernel that fails and dies. After `apply`,
//! `plan` is empty. After `restore`, every file equals its first content, whatever failed and
//! wherever the process was killed.

use std::path::PathBuf;

use crate::fake::{self, Driver, Faults, Kernel};
use flyball_control::{
    Id, Intent, ReadError, Snapshot,
    plan::{Change, Hint, Note, PlanError, Refusal, Remark, plan},
    write::{
        journal::Purpose,
        restore::{NotRestored, NotRestoredReason, Restoration},
        state::StateDir,
        transaction::{self, ApplyError, Outcome, Scope, Transaction},
    },
};
use flyball_host::Errno;
use proptest::{prelude::*, test_runner::TestCaseError};

/// Settings to draw intents from: argument and selector.
const SETTINGS: &[(&str, Option<&str>)] = &[
    ("governor=performance", None),
    ("governor=powersave", None),
    ("governor=powersave", Some("0")),
    ("governor=ondemand", None),
    ("governor=userspace", Some("0-1")),
    ("epp=power", None),
    ("epp=balance_power", Some("1")),
    ("epp=77", None),
    ("epp=performance", None),
    ("max-freq=2GHz", None),
    ("max-freq=4.6GHz", None),
    ("max-freq=min", Some("0")),
    ("max-freq=max", None),
    ("min-freq=1.5GHz", None),
    ("min-freq=min", None),
    ("min-freq=max", Some("1")),
    ("turbo=off", None),
    ("turbo=on", None),
    ("boost=off", Some("0")),
    ("driver-mode=active", None),
    ("driver-mode=passive", None),
    ("driver-mode=guided", None),
    ("online=off", Some("1")),
    ("online=on", None),
    ("epb=15", None),
    ("epb=0", Some("0")),
    ("idle-state=C1", None),
    ("idle-state:C6=off", Some("0")),
    ("latency-limit=20us", None),
    ("latency-limit=n/a", Some("1")),
    ("setspeed=2GHz", None),
    ("uncore-max-freq=1.8GHz", None),
    ("uncore-min-freq=1.2GHz", None),
    ("min-perf-pct=40", None),
    ("max-perf-pct=60", None),
];

/// Earlier changes by others. Any of these may fail, as on a real machine.
const HISTORY: &[(&str, &str)] = &[
    ("amd_pstate/status", "passive"),
    ("amd_pstate/status", "guided"),
    ("amd_pstate/status", "disable"),
    ("intel_pstate/status", "passive"),
    ("cpufreq/policy0/scaling_governor", "powersave"),
    ("cpufreq/policy0/scaling_governor", "performance"),
    ("cpufreq/policy0/scaling_governor", "ondemand"),
    ("cpufreq/policy0/scaling_governor", "userspace"),
    ("cpufreq/policy0/scaling_setspeed", "1700000"),
    ("cpufreq/policy2/scaling_governor", "performance"),
    ("cpufreq/policy0/energy_performance_preference", "balance_power"),
    ("cpufreq/policy2/energy_performance_preference", "200"),
    ("cpufreq/policy0/scaling_max_freq", "2500000"),
    ("cpufreq/policy0/scaling_min_freq", "900000"),
    ("cpufreq/policy2/scaling_min_freq", "4000000"),
    ("cpufreq/ondemand/rate", "77"),
    ("cpufreq/schedutil/rate", "500"),
    ("cpufreq/boost", "0"),
    ("intel_pstate/no_turbo", "1"),
    ("cpufreq/policy2/boost", "0"),
    ("intel_pstate/max_perf_pct", "80"),
    ("cpu1/online", "0"),
    ("cpu2/online", "0"),
    ("cpu3/online", "0"),
    ("cpu0/power/energy_perf_bias", "4"),
    ("cpu0/cpuidle/state2/disable", "1"),
    ("cpu1/power/pm_qos_resume_latency_us", "55"),
];

#[derive(Debug, Clone)]
pub(crate) struct Scene {
    driver: Driver,
    per_policy: usize,
    lag: u32,
    history: Vec<usize>,
    intents: Vec<Vec<usize>>,
}

pub(crate) fn scenes() -> impl Strategy<Value = Scene> {
    let driver = prop_oneof![Just(Driver::AmdPstate), Just(Driver::IntelPstate), Just(Driver::AcpiCpufreq)];
    let history = proptest::collection::vec(0..HISTORY.len(), 0..8);
    let intent = proptest::collection::vec(0..SETTINGS.len(), 1..5);
    (driver, 1usize..3, 0u32..4, history, proptest::collection::vec(intent, 1..4)).prop_map(
        |(driver, per_policy, lag, history, intents)| Scene { driver, per_policy, lag, history, intents },
    )
}

impl Scene {
    pub(crate) fn kernel(&self) -> Kernel {
        let kernel = Kernel::new(self.driver, 4, self.per_policy, self.lag);
        for &index in &self.history {
            let (path, value) = HISTORY[index];
            let _ = kernel.poke(path, value);
        }
        kernel
    }

    pub(crate) fn intents(&self) -> Vec<Intent> {
        let intent = |choice: &Vec<usize>| {
            let mut intent = Intent::default();
            for &index in choice {
                let (argument, cpus) = SETTINGS[index];
                intent.settings.extend(Intent::from_arguments(&[argument], cpus).unwrap().settings);
            }
            intent
        };
        self.intents.iter().map(intent).collect()
    }
}

pub(crate) struct Place {
    _folder: tempfile::TempDir,
    pub state: StateDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        let folder = tempfile::tempdir_in(memory()).unwrap();
        let state = StateDir::new(folder.path().join("state"));
        Place { _folder: folder, state }
    }
}

/// Uses memory, because flushing to a disk would take most of the time.
fn memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// Applies one intent as `flyball set` does. Returns whether it was applied without a clamp.
fn set(kernel: &Kernel, state: &StateDir, intent: &Intent) -> Result<bool, ApplyError> {
    let mut transaction =
        Transaction::begin(kernel, state, Purpose::Set, "set", None).expect("the machine is free");
    match transaction.apply(intent, &|| false) {
        Ok(applied) => {
            let clamped = applied.clamped().next().is_some();
            transaction.keep().expect("the journal can be written");
            Ok(!clamped)
        }
        Err(error) => {
            drop(transaction);
            Err(error)
        }
    }
}

pub(crate) type Dump = std::collections::BTreeMap<String, Result<String, i32>>;

/// Lists the files that differ, with both contents; empty if none does. If a change of the driver
/// removed the policy of an offline CPU, bringing the CPU online creates the policy again. When the
/// CPU goes offline, the policy's files stay and refuse reads and writes (EBUSY).
fn differences(first: &Dump, now: &Dump) -> String {
    let paths: std::collections::BTreeSet<&String> = first.keys().chain(now.keys()).collect();
    let is_made = |path: &String| {
        let is_busy = now.get(path) == Some(&Err(Errno::BUSY.0));
        is_busy && !first.contains_key(path) && path.contains("/cpufreq/policy")
    };
    let lines = paths.into_iter().filter(|path| first.get(*path) != now.get(*path) && !is_made(path));
    lines.map(|path| format!("{path}: {:?} became {:?}\n", first.get(path), now.get(path))).collect()
}

pub(crate) fn is_planned(kernel: &Kernel, intent: &Intent) -> bool {
    let snapshot = Snapshot::for_intent(kernel, intent).unwrap();
    let holds = |change: &Change| change.provisional && change.old.as_deref() == Some(&change.new);
    plan(&snapshot, intent).is_ok_and(|plan| plan.changes.iter().all(holds))
}

fn all(kernel: &Kernel, state: &StateDir, scope: Scope) -> bool {
    transaction::restore(kernel, state, "restore", scope).expect("the machine is free").restoration.is_exact()
}

/// Checks whether an inexact restore has a valid reason. A change of the driver's mode removed
/// policies whose CPUs were offline. Or the setting could not be read at first: its CPU was
/// offline, an earlier command moved it or its read failed, and a later command brought the CPU
/// online. Or a policy may not boost as before while boost is off for the machine.
fn may_be_inexact(kernel: &Kernel, restoration: &Restoration, first: &Dump) -> Result<(), TestCaseError> {
    let before = |path: &str| first.get(path).cloned();
    let is_true = |left: &NotRestored| {
        let path = left.location.path().unwrap_or_default();
        let was_hidden = before(path).is_none_or(|content| content == Err(Errno::BUSY.0));
        kernel.has_lost_policies()
            || match left.because {
                NotRestoredReason::WasLost => false,
                NotRestoredReason::WasNotRead => was_hidden,
                _ if left.location.name() == "boost" => {
                    was_hidden
                        && before(&format!("{}/cpufreq/boost", fake::CPU)) == Some(Ok("0\n".to_owned()))
                }
                _ => was_hidden && left.wanted.starts_with("unreadable"),
            }
    };
    prop_assert!(restoration.left.iter().all(is_true), "{}", restoration);
    Ok(())
}

/// Restores everything. A restore that reports itself exact must be exact, and any other must have
/// a valid reason.
fn all_back(kernel: &Kernel, state: &StateDir, first: &Dump) -> Result<(), TestCaseError> {
    let restored = transaction::restore(kernel, state, "restore", Scope::All).expect("the machine is free");
    if restored.restoration.is_exact() {
        prop_assert_eq!(differences(first, &kernel.dump()), "");
    } else {
        may_be_inexact(kernel, &restored.restoration, first)?;
        prop_assert!(state.journal().exists());
    }
    Ok(())
}

/// Returns the number of random scenes for each property; FLYBALL_CASES asks for more.
fn cases() -> u32 {
    std::env::var("FLYBALL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Without faults: a plan after its application is empty, and restore brings every file back.
    #[test]
    fn applied_is_planned_and_restored_is_first(scene in scenes()) {
        let (kernel, place) = (scene.kernel(), Place::new());
        let first = kernel.dump();
        for intent in scene.intents() {
            let before = kernel.dump();
            match set(&kernel, &place.state, &intent) {
                Ok(true) => prop_assert!(is_planned(&kernel, &intent), "planned again: {:?}", plan(&Snapshot::for_intent(&kernel, &intent).unwrap(), &intent)),
                Ok(false) => {}
                Err(error) if error.restoration().is_none_or(Restoration::is_exact) => {
                    prop_assert_eq!(differences(&before, &kernel.dump()), "", "{}", error);
                }
                Err(error) => {
                    let inexact = error.restoration().expect("it is not exact");
                    may_be_inexact(&kernel, inexact, &before)?;
                }
            }
        }
        all_back(&kernel, &place.state, &first)?;
    }

    /// A plan writes nothing, whatever it contains.
    #[test]
    fn planning_writes_nothing(scene in scenes()) {
        let kernel = scene.kernel();
        let first = kernel.dump();
        for intent in scene.intents() {
            let _ = plan(&Snapshot::for_intent(&kernel, &intent).unwrap(), &intent);
        }
        prop_assert!(kernel.writes().is_empty());
        prop_assert_eq!(differences(&first, &kernel.dump()), "");
    }

    /// If any one write fails, the transaction is restored, even on top of an earlier one.
    #[test]
    fn a_failed_write_is_undone(scene in scenes(), at in 0usize..30, errno in prop_oneof![
        Just(Errno::BUSY), Just(Errno::INVAL), Just(Errno::IO), Just(Errno::PERM)
    ]) {
        let (kernel, place) = (scene.kernel(), Place::new());
        let first = kernel.dump();
        for intent in scene.intents() {
            let before = kernel.dump();
            kernel.arm(Faults { fail_write: Some((at, errno.0)), ..Faults::default() }, place.state.journal());
            let outcome = set(&kernel, &place.state, &intent);
            let writes = kernel.writes();
            let hit = writes.len() > at;
            kernel.revive();
            match outcome {
                Ok(_) => prop_assert!(!hit, "a failed write went unnoticed"),
                Err(error) => {
                    match error.restoration().filter(|restoration| !restoration.is_exact()) {
                        Some(inexact) => may_be_inexact(&kernel, inexact, &before)?,
                        None => prop_assert_eq!(differences(&before, &kernel.dump()), "", "{}", error),
                    }
                    // The fault may hit a write of the restoration, after a real refusal by the
                    // kernel.
                    if let ApplyError::Refused { error, .. } = &error {
                        let refused = |write: &String| write.starts_with(&format!("{}=", error.path));
                        let is_fault = writes.iter().position(refused) == Some(at);
                        prop_assert!(!is_fault || error.errno == errno, "{:?}", (error, &writes));
                    }
                }
            }
        }
        all_back(&kernel, &place.state, &first)?;
    }

    /// If any one read fails temporarily, a restore that reports itself exact is exact.
    #[test]
    fn a_failed_read_loses_nothing(scene in scenes(), at in 0usize..600, errno in prop_oneof![
        Just(Errno::BUSY), Just(Errno::IO), Just(Errno::AGAIN), Just(Errno::NOENT)
    ]) {
        let (kernel, place) = (scene.kernel(), Place::new());
        let first = kernel.dump();
        kernel.arm(Faults { fail_read: Some((at, errno.0)), ..Faults::default() }, place.state.journal());
        for intent in scene.intents() {
            let _ = set(&kernel, &place.state, &intent);
        }
        kernel.revive();
        all_back(&kernel, &place.state, &first)?;
    }

    /// A process killed at any moment, with a torn journal, can be restored, even if restoring is
    /// killed too.
    #[test]
    fn killed_anywhere_is_restored(
        scene in scenes(), at in 0.0f64..1.0, after in any::<bool>(), torn in 0usize..400, again in 0.0f64..1.5
    ) {
        // Count the calls of a whole run, to die at each of them with equal probability.
        let calls = {
            let (kernel, place) = (scene.kernel(), Place::new());
            kernel.arm(Faults::default(), place.state.journal());
            for intent in scene.intents() {
                let _ = set(&kernel, &place.state, &intent);
            }
            kernel.calls()
        };
        let (kernel, place) = (scene.kernel(), Place::new());
        let first = kernel.dump();
        let die = (calls as f64 * at) as usize;
        kernel.arm(Faults { die_at: Some((die, after)), torn, ..Faults::default() }, place.state.journal());
        for intent in scene.intents() {
            if set(&kernel, &place.state, &intent).is_err() && kernel.calls() > die {
                break;
            }
        }
        kernel.revive();
        if again < 1.0 {
            let die = (60.0 * again) as usize;
            kernel.arm(Faults { die_at: Some((die, after)), ..Faults::default() }, place.state.journal());
            let _ = transaction::restore(&kernel, &place.state, "restore", Scope::All);
            kernel.revive();
        }
        all_back(&kernel, &place.state, &first)?;
    }

    /// `--last` goes back to the state before the last command. Arms of a comparison all start from
    /// the same state.
    #[test]
    fn steps_back_are_exact(scene in scenes()) {
        let (kernel, place) = (scene.kernel(), Place::new());
        let mut stack = vec![kernel.dump()];
        for intent in scene.intents() {
            let writes = kernel.writes().len();
            if set(&kernel, &place.state, &intent).is_err() {
                // The change is undone except for the policies that it removed.
                if kernel.has_lost_policies() {
                    *stack.last_mut().unwrap() = kernel.dump();
                }
            } else if kernel.writes().len() > writes {
                stack.push(kernel.dump());
            }
        }
        while stack.len() > 1 {
            stack.pop();
            let outcome = transaction::restore(&kernel, &place.state, "restore", Scope::Last).unwrap();
            if !outcome.restoration.is_exact() {
                may_be_inexact(&kernel, &outcome.restoration, stack.last().unwrap())?;
                return Ok(());
            }
            prop_assert_eq!(differences(stack.last().unwrap(), &kernel.dump()), "");
        }
        let first = kernel.dump();
        let mut transaction = Transaction::begin(&kernel, &place.state, Purpose::Set, "compare", None).unwrap();
        for intent in scene.intents() {
            let _ = transaction.apply(&intent, &|| false);
            let restoration = transaction.restore();
            if !restoration.is_exact() {
                may_be_inexact(&kernel, &restoration, &first)?;
                return Ok(());
            }
            prop_assert_eq!(differences(&first, &kernel.dump()), "");
        }
        drop(transaction);
        // A policy that a change of the driver removed cannot come back: then the journal stays.
        prop_assert!(!place.state.journal().exists() || kernel.has_lost_policies());
    }
}

/// A change of the driver's mode that the kernel refuses removes no policy, so the settings of an
/// offline CPU's policy are not lost.
#[test]
fn a_refused_mode_loses_nothing() {
    let kernel = Kernel::new(Driver::AmdPstate, 4, 1, 0);
    kernel.poke("cpu1/online", "0").unwrap();
    let (place, first) = (Place::new(), kernel.dump());
    kernel.arm(Faults { fail_write: Some((0, Errno::BUSY.0)), ..Faults::default() }, place.state.journal());
    let intent = Intent::from_arguments(&["driver-mode=passive"], None).unwrap();
    let error = set(&kernel, &place.state, &intent).unwrap_err();
    assert!(error.restoration().is_some_and(Restoration::is_exact), "{error}");
    assert_eq!(differences(&first, &kernel.dump()), "");
    assert!(!place.state.journal().exists());
}

/// One arm of a comparison brings a CPU online; when it is offline again, another arm changes the
/// driver's mode, which removes the CPU's policy.
#[test]
fn what_an_arm_has_read_can_be_lost_with_a_later_one() {
    let kernel = Kernel::new(Driver::AmdPstate, 4, 1, 0);
    kernel.poke("cpu1/online", "0").unwrap();
    let place = Place::new();
    let mut transaction =
        Transaction::begin(&kernel, &place.state, Purpose::Compare, "compare", None).unwrap();
    let mut restored = |words: &[&str]| {
        let _ = transaction.apply(&Intent::from_arguments(words, None).unwrap(), &|| false).unwrap();
        transaction.restore()
    };
    assert!(restored(&["online=on", "governor=powersave"]).is_exact());
    let restoration = restored(&["driver-mode=passive"]);
    assert!(restoration.left.iter().any(|left| left.because == NotRestoredReason::WasLost), "{restoration}");
}

/// The preference hidden by `performance` survives, although no file showed it.
#[test]
fn the_hidden_preference_comes_back() {
    let kernel = Kernel::new(Driver::IntelPstate, 4, 1, 0);
    kernel.poke("cpufreq/policy0/energy_performance_preference", "balance_power").unwrap();
    kernel.poke("cpufreq/policy0/scaling_governor", "performance").unwrap();
    let place = Place::new();
    let intent = Intent::from_arguments(&["governor=powersave", "epp=power"], None).unwrap();
    set(&kernel, &place.state, &intent).unwrap();
    assert!(all(&kernel, &place.state, Scope::All));
    kernel.poke("cpufreq/policy0/scaling_governor", "powersave").unwrap();
    let path = format!("{}/cpufreq/policy0/energy_performance_preference", fake::CPU);
    assert_eq!(kernel.dump()[&path], Ok("balance_power\n".to_owned()));
}

/// If flyball dies after restoring or committing, its guardian leaves the settings of earlier
/// commands alone.
#[test]
fn what_was_meant_to_stay_is_not_the_guardians() {
    let kernel = Kernel::new(Driver::AmdPstate, 4, 1, 0);
    let place = Place::new();
    let intent = |words: &str| Intent::from_arguments(&[words], None).unwrap();
    set(&kernel, &place.state, &intent("max-freq=2GHz")).unwrap();
    let kept = kernel.dump();
    let mut transaction = Transaction::begin(&kernel, &place.state, Purpose::Set, "run", None).unwrap();
    transaction.apply(&intent("turbo=off"), &|| false).unwrap();
    assert!(transaction.end().is_exact());
    let restored = transaction::restore(&kernel, &place.state, "guardian", Scope::Open).unwrap();
    assert_eq!(restored.undone, []);
    assert_eq!(differences(&kept, &kernel.dump()), "");
    assert!(all(&kernel, &place.state, Scope::Last));
    assert_ne!(differences(&kept, &kernel.dump()), "");
}

/// A setting that an earlier command moved as a side effect is not the value that a later command
/// restores.
#[test]
fn limits_that_percentages_had_moved_go_back_to_the_first_ones() {
    let kernel = Kernel::new(Driver::IntelPstate, 4, 1, 0);
    kernel.poke("intel_pstate/status", "passive").unwrap();
    let place = Place::new();
    let first = kernel.dump();
    for words in [["min-perf-pct=40"], ["min-freq=2GHz"]] {
        set(&kernel, &place.state, &Intent::from_arguments(&words, None).unwrap()).unwrap();
    }
    assert!(all(&kernel, &place.state, Scope::All));
    assert_eq!(differences(&first, &kernel.dump()), "");
}

#[test]
fn interrupts_go_back_to_the_cpus_that_were_offline() {
    let kernel = Kernel::new(Driver::AmdPstate, 4, 1, 0);
    let place = Place::new();
    let first = kernel.dump();
    let intent = Intent::from_arguments(&["online=off"], Some("2-3")).unwrap();
    set(&kernel, &place.state, &intent).unwrap();
    assert_ne!(first["/proc/irq/2/smp_affinity_list"], kernel.dump()["/proc/irq/2/smp_affinity_list"]);
    assert!(all(&kernel, &place.state, Scope::All));
    assert_eq!(differences(&first, &kernel.dump()), "");
}

#[test]
fn an_interrupt_between_two_steps_puts_everything_back() {
    let kernel = Kernel::new(Driver::AmdPstate, 4, 1, 2);
    let place = Place::new();
    let first = kernel.dump();
    let intent = Intent::from_arguments(&["governor=powersave", "epp=power", "max-freq=2GHz"], None).unwrap();
    let mut transaction = Transaction::begin(&kernel, &place.state, Purpose::Set, "set", None).unwrap();
    let looks = std::cell::Cell::new(0);
    let error = transaction.apply(&intent, &|| looks.replace(looks.get() + 1) == 2).unwrap_err();
    assert!(matches!(&error, ApplyError::Interrupted { restoration } if restoration.is_exact()), "{error}");
    drop(transaction);
    assert_eq!(first, kernel.dump());
}

/// If another program changes a setting back while flyball is still running, the setting is not
/// reported as applied.
#[test]
fn what_is_overridden_meanwhile_is_reported() {
    let kernel = Kernel::new(Driver::AmdPstate, 4, 1, 0);
    let place = Place::new();
    let intent = Intent::from_arguments(&["governor=powersave", "max-freq=2GHz"], None).unwrap();
    let mut transaction = Transaction::begin(&kernel, &place.state, Purpose::Set, "set", None).unwrap();
    let looks = std::cell::Cell::new(0);
    let meddle = || {
        if looks.replace(looks.get() + 1) == 1 {
            kernel.poke("cpufreq/policy2/scaling_governor", "performance").unwrap();
        }
        false
    };
    let applied = transaction.apply(&intent, &meddle).unwrap();
    let other: Vec<_> = applied.clamped().collect();
    assert_eq!(other.len(), 1, "{other:?}");
    assert_eq!(other[0].change.cpus.to_string(), "2");
    assert_eq!(other[0].outcome, Outcome::Overridden("performance".to_owned()));
    assert!(transaction.end().is_exact());
}

/// A driver change removes the policy of offline CPUs, and its settings cannot be read before. The
/// plan says so, and the restore does not claim to be exact.
#[test]
fn what_goes_with_the_driver_while_its_cpu_is_offline_is_named() {
    let kernel = Kernel::new(Driver::AmdPstate, 4, 1, 0);
    for (path, value) in [("cpufreq/policy3/scaling_max_freq", "2000000"), ("cpu3/online", "0")] {
        kernel.poke(path, value).unwrap();
    }
    let place = Place::new();
    let intent = Intent::from_arguments(&["driver-mode=passive"], None).unwrap();
    let planned = plan(&Snapshot::for_intent(&kernel, &intent).unwrap(), &intent).unwrap();
    let loses =
        |note: &Note| matches!(&note.remark, Remark::DriverModeLoses { cpus, .. } if cpus.to_string() == "3");
    assert!(planned.notes.iter().any(loses), "{:?}", planned.notes);
    set(&kernel, &place.state, &intent).unwrap();
    let restored = transaction::restore(&kernel, &place.state, "restore", Scope::All).unwrap().restoration;
    assert!(!restored.left.is_empty(), "{restored}");
    for left in &restored.left {
        assert_eq!(left.because, NotRestoredReason::WasLost, "{restored}");
        assert!(left.location.to_text().contains("/policy3/"), "{restored}");
    }
    assert!(place.state.journal().exists());
    // If the CPU is online, its settings are saved and restored.
    let kernel = Kernel::new(Driver::AmdPstate, 4, 1, 0);
    kernel.poke("cpufreq/policy3/scaling_max_freq", "2000000").unwrap();
    let (place, first) = (Place::new(), kernel.dump());
    set(&kernel, &place.state, &intent).unwrap();
    assert!(all(&kernel, &place.state, Scope::All));
    assert_eq!(differences(&first, &kernel.dump()), "");
    // Between passive and guided mode the driver keeps its policies.
    kernel.poke("amd_pstate/status", "passive").unwrap();
    kernel.poke("cpu3/online", "0").unwrap();
    set(&kernel, &place.state, &Intent::from_arguments(&["driver-mode=guided"], None).unwrap()).unwrap();
    assert!(all(&kernel, &place.state, Scope::All));
}

/// The tunables that all policies of a governor share disappear when the last CPU of the last
/// policy goes offline, and come back with the defaults.
#[test]
fn shared_tunables_come_back_with_the_last_cpu_of_their_governor() {
    for driver in [Driver::AcpiCpufreq, Driver::IntelPstate, Driver::AmdPstate] {
        let kernel = Kernel::new(driver, 4, 1, 0);
        let status = if driver == Driver::AmdPstate { "amd_pstate/status" } else { "intel_pstate/status" };
        let _ = kernel.poke(status, "passive");
        for (path, value) in
            [("cpufreq/policy1/scaling_governor", "ondemand"), ("cpufreq/ondemand/rate", "77")]
        {
            kernel.poke(path, value).unwrap();
        }
        let (place, first) = (Place::new(), kernel.settings());
        let intent = Intent::from_arguments(&["online=off"], Some("1")).unwrap();
        set(&kernel, &place.state, &intent).unwrap();
        assert!(!kernel.settings()["tunables"].contains("ondemand"));
        assert!(all(&kernel, &place.state, Scope::All));
        assert_eq!(kernel.settings(), first);
    }
}

/// If a CPU goes offline, its hidden settings are listed and kept for later, and do not block other
/// commands.
#[test]
fn a_cpu_that_goes_offline_meanwhile_is_restored_when_it_is_back() {
    let kernel = Kernel::new(Driver::AmdPstate, 4, 1, 0);
    let (place, first) = (Place::new(), kernel.dump());
    let intent = |words: &str| Intent::from_arguments(&[words], None).unwrap();
    let mut transaction = Transaction::begin(&kernel, &place.state, Purpose::Set, "set", None).unwrap();
    transaction.apply(&intent("max-freq=2GHz"), &|| false).unwrap();
    kernel.poke("cpu3/online", "0").unwrap();
    let left = transaction.end().left;
    assert!(
        left.iter().all(|left| left.because == NotRestoredReason::CannotBeRead) && !left.is_empty(),
        "{left:?}"
    );
    set(&kernel, &place.state, &intent("epb=0")).unwrap_err();
    set(&kernel, &place.state, &intent("latency-limit=20us")).unwrap();
    assert!(!all(&kernel, &place.state, Scope::All));
    kernel.poke("cpu3/online", "1").unwrap();
    assert!(all(&kernel, &place.state, Scope::All));
    // The other program's hotplug moved an interrupt; flyball did not.
    let first: Dump = first.into_iter().filter(|(path, _)| !path.starts_with("/proc/irq/")).collect();
    let now = kernel.dump().into_iter().filter(|(path, _)| !path.starts_with("/proc/irq/")).collect();
    assert_eq!(differences(&first, &now), "");
}

/// A write that the kernel accepts and drops is reported as lost, even if the error is about a
/// setting that depends on it.
#[test]
fn a_lost_write_is_reported_as_lost() {
    let writes_of = |words: &[&str]| {
        let kernel = Kernel::new(Driver::AmdPstate, 4, 1, 0);
        let place = Place::new();
        kernel.arm(Faults::default(), place.state.journal());
        set(&kernel, &place.state, &Intent::from_arguments(words, None).unwrap()).unwrap();
        kernel.calls()
    };
    for (words, knob) in [
        (&["driver-mode=passive", "governor=ondemand"][..], Id::DriverMode),
        (&["max-freq=2GHz"], Id::MaxFreq),
    ] {
        let calls = writes_of(words);
        let mut seen = false;
        for at in 0..calls {
            let (kernel, place) = (Kernel::new(Driver::AmdPstate, 4, 1, 0), Place::new());
            let events = vec![(at, fake::Event::Lose)];
            kernel.arm(Faults { events, ..Faults::default() }, place.state.journal());
            let mut transaction =
                Transaction::begin(&kernel, &place.state, Purpose::Set, "set", None).unwrap();
            let lost = match transaction.apply(&Intent::from_arguments(words, None).unwrap(), &|| false) {
                Ok(applied) => applied.clamped().cloned().collect(),
                Err(ApplyError::Replan { not_held, .. } | ApplyError::Refused { not_held, .. }) => not_held,
                Err(error) => panic!("{error}"),
            };
            for made in lost.iter().filter(|made| made.change.knob == knob) {
                assert!(matches!(made.outcome, Outcome::Lost(_)), "{made}");
                seen = true;
            }
        }
        assert!(seen, "{words:?}");
    }
}

/// A comparison in quiet: between arms the machine goes back to the baseline, at the end to the
/// original state.
#[test]
fn with_a_baseline_restore_goes_there_and_end_goes_all_the_way() {
    let kernel = Kernel::new(Driver::AmdPstate, 4, 1, 2);
    let place = Place::new();
    let first = kernel.dump();
    let intent = |words: &[&str]| Intent::from_arguments(words, None).unwrap();
    let mut transaction =
        Transaction::begin(&kernel, &place.state, Purpose::Set, "compare --quiet", None).unwrap();
    transaction.apply(&intent(&["governor=powersave", "turbo=off", "max-freq=2GHz"]), &|| false).unwrap();
    transaction.set_baseline();
    let baseline = kernel.dump();
    assert_ne!(first, baseline);
    for arm in [&["epp=power", "max-freq=1.5GHz"][..], &["governor=performance", "turbo=on"]] {
        transaction.apply(&intent(arm), &|| false).unwrap();
        assert_ne!(baseline, kernel.dump());
        assert!(transaction.restore().is_exact());
        assert_eq!(differences(&baseline, &kernel.dump()), "", "after {arm:?}");
    }
    // A failed arm goes back to the baseline as well.
    transaction.apply(&intent(&["epp=power"]), &|| true).unwrap_err();
    assert_eq!(differences(&baseline, &kernel.dump()), "");
    assert!(transaction.end().is_exact());
    assert_eq!(differences(&first, &kernel.dump()), "");
}

#[test]
fn the_snapshot_for_an_intent_has_all_that_its_plan_looks_at() {
    for driver in [Driver::AmdPstate, Driver::IntelPstate, Driver::AcpiCpufreq] {
        let kernel = Kernel::new(driver, 4, 1, 0);
        assert!(crate::settings::plan_every_knob(&kernel, usize::MAX / 2) > 10, "{driver:?}");
        assert!(kernel.writes().is_empty());
    }
}

#[test]
fn a_plan_from_a_snapshot_for_another_intent_is_an_error() {
    let kernel = Kernel::new(Driver::AmdPstate, 4, 1, 0);
    let of = |argument: &str| Intent::from_arguments(&[argument], None).unwrap();
    let snapshot = Snapshot::for_intent(&kernel, &of("epb=0")).unwrap();
    for argument in ["governor=performance", "max-freq=2GHz", "idle-state=C1", "smt=off", "sst-level=1"] {
        let error = plan(&snapshot, &of(argument)).unwrap_err();
        assert!(matches!(error, PlanError::Read(ReadError::NotTaken(_))), "{argument}: {error}");
    }
}

#[test]
fn couplings_are_refused_before_the_first_write() {
    let kernel = Kernel::new(Driver::AmdPstate, 4, 1, 0);
    let refusal = |arguments: &[&str]| {
        let intent = Intent::from_arguments(arguments, None).unwrap();
        match plan(&Snapshot::for_intent(&kernel, &intent).unwrap(), &intent) {
            Err(PlanError::Refused(refusals)) => refusals[0].clone(),
            other => panic!("{arguments:?}: {other:?}"),
        }
    };
    type Expected = fn(&Refusal) -> bool;
    let couplings: [(&[&str], Expected); 8] = [
        (&["epp=power"], |it| matches!(it, Refusal::PreferenceUnderPerformance { .. })),
        (&["min-freq=3GHz", "max-freq=2GHz"], |it| matches!(it, Refusal::Crossed { .. })),
        (&["driver-mode=passive", "epp=power"], |it| matches!(it, Refusal::PreferenceNeedsActiveMode { .. })),
        (&["driver-mode=disable", "governor=performance"], |it| matches!(it, Refusal::NoPolicies { .. })),
        (&["setspeed=2GHz"], |it| matches!(it, Refusal::SpeedNeedsUserspace { .. })),
        (&["turbo=off", "boost=on"], |it| matches!(it, Refusal::BoostUnderTurboOff { .. })),
        (&["governor=ondemand"], |it| matches!(it, Refusal::Value { hint: Some(Hint::PassiveMode), .. })),
        (
            &["max-freq=9GHz"],
            |it| matches!(it, Refusal::Value { accepted, .. } if accepted.contains("4.6 GHz")),
        ),
    ];
    for (arguments, expected) in couplings {
        let found = refusal(arguments);
        assert!(expected(&found), "{arguments:?}: {found:?}");
    }
    for (arguments, knob) in [
        (&["governor=schedutil", "driver-mode=active"][..], Id::Governor),
        (&["driver-mode=sideways"], Id::DriverMode),
    ] {
        let found = refusal(arguments);
        assert!(matches!(found, Refusal::Value { knob: of, .. } if of == knob), "{found:?}");
    }
    assert!(kernel.writes().is_empty());
}

/// Both drivers refuse the firmware's preference under `performance`, unless it is 0.
#[test]
fn the_default_preference_is_refused_under_performance() {
    for driver in [Driver::AmdPstate, Driver::IntelPstate] {
        let kernel = Kernel::new(driver, 4, 1, 0);
        (0..4).for_each(|cpu| {
            kernel.poke(&format!("cpufreq/policy{cpu}/scaling_governor"), "powersave").unwrap();
        });
        let planned = |words: &[&str]| {
            let intent = Intent::from_arguments(words, None).unwrap();
            plan(&Snapshot::for_intent(&kernel, &intent).unwrap(), &intent)
        };
        assert!(planned(&["epp=default"]).is_ok(), "{driver:?}");
        match planned(&["governor=performance", "epp=default"]) {
            Err(PlanError::Refused(refusals)) => {
                assert!(matches!(refusals[0], Refusal::PreferenceUnderPerformance { .. }), "{refusals:?}");
            }
            other => panic!("{driver:?}: {other:?}"),
        }
    }
}

#[test]
fn a_policy_whose_cpus_are_offline_is_left_alone() {
    let kernel = Kernel::new(Driver::AmdPstate, 4, 1, 0);
    kernel.poke("cpu1/online", "0").unwrap();
    let intent = Intent::from_arguments(&["epp=power", "governor=powersave"], None).unwrap();
    let place = Place::new();
    let first = kernel.dump();
    kernel.arm(Faults::default(), place.state.journal());
    set(&kernel, &place.state, &intent).unwrap();
    assert!(kernel.writes().iter().all(|write| !write.contains("policy1/")), "{:?}", kernel.writes());
    assert!(is_planned(&kernel, &intent));
    assert!(all(&kernel, &place.state, Scope::All));
    assert_eq!(differences(&first, &kernel.dump()), "");
}

#[test]
fn a_number_is_not_taken_for_the_word_that_stands_there() {
    let path = format!("{}/cpufreq/policy0/energy_performance_preference", fake::CPU);
    for (before, wanted, after) in [
        ("performance", "77", "77"),
        ("balance_performance", "0", "performance"),
        ("power", "128", "balance_performance"),
        ("192", "190", "190"),
    ] {
        let kernel = Kernel::new(Driver::IntelPstate, 4, 1, 0);
        kernel.poke("cpufreq/policy0/scaling_governor", "powersave").unwrap();
        kernel.poke("cpufreq/policy0/energy_performance_preference", before).unwrap();
        let intent = Intent::from_arguments(&[format!("epp={wanted}").as_str()], Some("0")).unwrap();
        assert!(!is_planned(&kernel, &intent), "{before} is not {wanted}");
        set(&kernel, &Place::new().state, &intent).unwrap();
        assert_eq!(kernel.dump()[&path], Ok(format!("{after}\n")));
        assert!(is_planned(&kernel, &intent), "{before} became {wanted}");
    }
}
