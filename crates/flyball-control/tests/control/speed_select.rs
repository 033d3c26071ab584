//! Speed Select through the knobs: plans that follow its rules, apply and restore on both
//! interfaces, and a failure at every point.

use flyball_control::{
    Id, Intent, Snapshot,
    plan::{Note, Plan, PlanError, Refusal, Remark, plan},
    write::{
        journal::Purpose,
        state::StateDir,
        transaction::{self, Scope, Transaction},
    },
};
use flyball_host::Errno;
use flyball_sst_fake::FakeMachine;

/// Creates a folder in memory if possible: the journal flushes at every step, which happens some
/// thousand times here.
fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn intent(settings: &[&str]) -> Intent {
    Intent::from_arguments(settings, None).unwrap()
}

fn planned_for(fake: &FakeMachine, intent: &Intent) -> Result<Plan, PlanError> {
    plan(&Snapshot::for_intent(fake, intent).unwrap(), intent)
}

fn planned(fake: &FakeMachine, settings: &[&str]) -> Result<Plan, PlanError> {
    planned_for(fake, &intent(settings))
}

/// Returns the costs in the plan's notes.
fn costs(plan: &Plan) -> Vec<&str> {
    let notes = plan.notes.iter();
    notes
        .filter_map(
            |note| if let Remark::Cost { cost, .. } = &note.remark { Some(cost.as_str()) } else { None },
        )
        .collect()
}

fn steps(plan: &Plan) -> Vec<String> {
    plan.changes.iter().map(|change| format!("{}={} on {}", change.knob, change.new, change.place)).collect()
}

/// Returns the first reason for refusing these settings.
fn refused(fake: &FakeMachine, settings: &[&str]) -> Refusal {
    match planned(fake, settings) {
        Err(PlanError::Refused(refusals)) => refusals[0].clone(),
        other => panic!("{settings:?}: {other:?}"),
    }
}

/// Returns the values accepted instead of this refused one.
fn accepted(fake: &FakeMachine, setting: &str) -> String {
    match refused(fake, &[setting]) {
        Refusal::Value { accepted, .. } => accepted,
        other => panic!("{setting}: {other:?}"),
    }
}

#[test]
fn base_freq_brings_what_it_stands_on_and_says_its_cost() {
    for tpmi in [false, true] {
        let fake = FakeMachine::guide(tpmi);
        let plan = planned(&fake, &["sst-bf=on"]).unwrap();
        assert_eq!(
            steps(&plan),
            [
                "sst-cp=1 on power domain 0:0",
                "sst-cp-priority=ordered on power domain 0:0",
                "sst-cp=1 on power domain 1:0",
                "sst-cp-priority=ordered on power domain 1:0",
                "sst-bf=1 on power domain 0:0",
                "sst-bf=1 on power domain 1:0",
            ]
        );
        assert!(plan.changes[0].because.contains("sst-bf=on needs classes of service"), "{plan:?}");
        let cost = "8 CPUs (5,6,8,13,33,34,36,41) at 3000 MHz, 20 CPUs at 2400 MHz instead of 2600 MHz";
        assert!(costs(&plan).iter().any(|note| note.contains(cost)), "{:?}", plan.notes);
        assert!(fake.take_log().is_empty(), "planning wrote");
    }
}

#[test]
fn contradictions_are_refused_before_the_first_write() {
    for tpmi in [false, true] {
        let fake = FakeMachine::guide(tpmi);
        assert!(matches!(
            refused(&fake, &["sst-bf=on", "sst-cp=off"]),
            Refusal::FeatureNeedsCorePower { .. }
        ));
        let crossed = refused(&fake, &["clos-min:1=3GHz", "clos-max:1=2GHz"]);
        assert!(matches!(crossed, Refusal::ClassRange { min, max, .. } if min > max), "{crossed:?}");
        // The refusal must list the accepted values.
        for (setting, words) in [
            ("clos-1-max=26GHz", "25.5 GHz"),
            ("sst-level=7", "levels are 0, 1, 2, 3, 4"),
            ("clos=4", "0 to 3"),
            ("clos-weight:2=16", "0 to 15"),
            ("sst-cp-priority=odd", "ordered or proportional"),
            ("trl=0xzz", "hexadecimal"),
        ] {
            let accepted = accepted(&fake, setting);
            assert!(accepted.contains(words), "{setting}: {accepted}");
        }
        fake.put("/sys/devices/system/cpu/intel_pstate/no_turbo", "1");
        assert!(matches!(refused(&fake, &["sst-tf=on"]), Refusal::TurboFreqNeedsTurbo { .. }));
        assert!(planned(&fake, &["sst-tf=on", "turbo=on"]).is_ok());
        fake.set(|state| (state.turbo_freq, state.qos, state.core_power) = (true, true, true));
        assert!(matches!(refused(&fake, &["sst-cp=off"]), Refusal::CorePowerUnderTurboFreq { .. }));
        assert!(planned(&fake, &["sst-cp=off", "sst-tf=off"]).is_ok());
        fake.set(|state| state.level = 4);
        let lacks = refused(&fake, &["sst-bf=on"]);
        assert!(
            matches!(&lacks, Refusal::LevelLacksFeature { level: 4, levels, .. } if *levels == [0, 1]),
            "{lacks:?}"
        );
        fake.set(|state| state.locked = true);
        assert!(matches!(refused(&fake, &["sst-level=0"]), Refusal::LevelLocked { .. }));
        assert!(fake.take_log().is_empty());
    }
}

#[test]
fn the_snapshot_for_an_intent_has_all_that_its_plan_looks_at() {
    for tpmi in [false, true] {
        let fake = FakeMachine::guide(tpmi);
        assert!(crate::settings::plan_every_knob(&fake, 3) > 10);
        assert!(fake.take_log().is_empty(), "planning wrote");
    }
}

#[test]
fn rounding_and_siblings_are_told() {
    let fake = FakeMachine::guide(true);
    let plan = planned(&fake, &["clos-min:1=2650MHz"]).unwrap();
    assert_eq!(plan.changes[0].new, "2600");
    assert!(plan.changes[0].because.contains("cut to whole hundreds"), "{:?}", plan.changes[0]);
    let one = Intent::from_arguments(&["clos=2"], Some("3")).unwrap();
    let plan = planned_for(&fake, &one).unwrap();
    assert_eq!(plan.changes.len(), 1);
    assert_eq!(plan.changes[0].cpus.to_string(), "3,31");
    let spans = |note: &Note| matches!(&note.remark, Remark::SpansMore { place, .. } if place.cpus.to_string() == "3,31");
    assert!(plan.notes.iter().any(spans), "{:?}", plan.notes);
}

#[test]
fn a_level_change_says_what_goes_with_it() {
    let fake = FakeMachine::guide(false);
    fake.set(|state| (state.base_freq, state.qos, state.core_power) = (true, true, true));
    let plan = planned(&fake, &["sst-level=4"]).unwrap();
    let goes_off = |note: &Note| matches!(&note.remark, Remark::FeatureGoesOff { feature: "base-freq", place, .. } if place.to_string() == "power domain 0:0");
    assert!(plan.notes.iter().any(goes_off), "{:?}", plan.notes);
    assert!(
        costs(&plan).iter().any(|cost| cost.contains("base 2800 MHz instead of 2600 MHz")),
        "{:?}",
        plan.notes
    );
    let outside = |note: &Note| matches!(&note.remark, Remark::CpusStayOnline { cpus, .. } if cpus.to_string().starts_with("4,6,12,13,32,34,40,41"));
    assert!(plan.notes.iter().any(outside), "{:?}", plan.notes);
}

/// All settings at once, in an order that no firmware would accept.
const ALL: &[&str] = &[
    "sst-tf=on",
    "sst-bf=on",
    "clos-max:3=2GHz",
    "clos-min:3=1GHz",
    "clos-weight:1=5",
    "clos-min:0=2.6GHz",
    "sst-level=1",
    "trl=0x2020202020202020",
    "clos=3",
];

#[test]
fn applied_restored_and_failed_at_every_point() {
    for tpmi in [false, true] {
        let folder = memory();
        let state = StateDir::new(folder.path());
        let fake = FakeMachine::guide(tpmi);
        fake.set(|state| {
            state.assoc[4] = 2;
            (state.qos, state.core_power, state.base_freq) = (true, true, true);
        });
        let before = fake.everything();
        fake.fail_at(usize::MAX, Errno::NXIO);
        let mut transaction = Transaction::begin(&fake, &state, Purpose::Set, "test", None).unwrap();
        let applied = transaction.apply(&intent(ALL), &|| false).unwrap();
        assert!(applied.clamped().next().is_none(), "{:?}", applied.clamped().collect::<Vec<_>>());
        for package in 0..2 {
            let now = fake.state(package, 0);
            assert_eq!(
                (now.level, now.base_freq, now.turbo_freq, now.qos, now.ordered),
                (1, true, true, true, true)
            );
            assert_eq!(now.trl, 0x2020_2020_2020_2020);
            assert_eq!((now.clos[3] >> 8, now.assoc[0], now.assoc[13]), (0x140a, 3, 3));
        }
        let writes = fake.changes();
        let again = planned(&fake, ALL).unwrap();
        assert!(again.is_empty(), "{:?}", steps(&again));
        assert!(transaction.end().is_exact());
        assert_eq!(fake.everything(), before, "restored");
        // Now a failure at each of those writes.
        assert!(writes > 25, "{writes}");
        for at in 0..writes {
            fake.fail_at(at, Errno::NOTTY);
            let mut transaction = Transaction::begin(&fake, &state, Purpose::Set, "test", None).unwrap();
            assert!(
                transaction.apply(&intent(ALL), &|| false).is_err(),
                "write {at} failed and nobody noticed"
            );
            let restoration = transaction.end();
            assert!(restoration.is_exact(), "write {at}: {restoration}");
            assert_eq!(fake.everything(), before, "after a failure of write {at}");
        }
        fake.heal();
    }
}

/// All settings at once on a machine of eight CPUs, including CPUs that go offline or are set
/// apart.
const SMALL: &[&str] = &[
    "sst-level=1",
    "sst-bf=on",
    "clos-max:3=2GHz",
    "clos-weight:1=5",
    "trl=0x2020202020202020",
    "clos=3",
    "sst-apart=3,7",
];

#[test]
fn any_call_may_fail_at_any_point_and_the_machine_is_as_it_was() {
    for tpmi in [false, true] {
        let folder = memory();
        let state = StateDir::new(folder.path());
        let fake = FakeMachine::small(tpmi);
        fake.set(|state| {
            (state.qos, state.core_power, state.turbo_freq, state.ordered) = (true, true, true, true);
            state.assoc[2] = 1;
        });
        let mut wanted = intent(SMALL);
        wanted.settings.extend(Intent::from_arguments(&["online=off"], Some("2,6")).unwrap().settings);
        let before = fake.everything();
        fake.fail_calls(usize::MAX..usize::MAX, Errno::NXIO);
        let mut transaction = Transaction::begin(&fake, &state, Purpose::Set, "test", None).unwrap();
        transaction.apply(&wanted, &|| false).unwrap();
        let calls = fake.calls();
        assert_eq!((fake.state(0, 0).level, fake.state(0, 0).base_freq), (1, true));
        assert_eq!(fake.everything().0["/sys/devices/system/cpu/online"], "0,1,3-5,7");
        assert!(transaction.end().is_exact());
        let with_restoring = fake.calls();
        assert_eq!(fake.everything(), before, "restored");
        assert!(calls > 100 && with_restoring > calls, "{calls}, {with_restoring}");
        let errno = if tpmi { Errno::NOTTY } else { Errno::NXIO };
        let again = || {
            let restored = transaction::restore(&fake, &state, "restore", Scope::All).unwrap();
            assert!(restored.restoration.is_exact(), "{}", restored.restoration);
        };
        for at in 0..with_restoring {
            // A single failure, such as a busy mailbox. If flyball did not notice it, it must be
            // harmless.
            fake.fail_calls(at..at + 1, errno);
            let mut transaction = Transaction::begin(&fake, &state, Purpose::Set, "test", None).unwrap();
            let _ = transaction.apply(&wanted, &|| false);
            let applied = fake.calls();
            let restoration = transaction.end();
            if !restoration.is_exact() {
                // The fault hit the restore itself, which must report it.
                assert!(at >= applied, "call {at}: {restoration}");
                again();
            }
            assert_eq!(fake.everything().1, before.1, "after a failure of call {at}");
            assert_eq!(fake.everything().0, before.0, "after a failure of call {at}");
        }
        for at in (0..calls).step_by(7) {
            // A permanent failure, such as a driver that was removed. Nothing can be restored then,
            // and flyball must not claim otherwise. When the driver is back, the journal can still
            // restore.
            fake.fail_calls(at..usize::MAX, errno);
            let mut transaction = Transaction::begin(&fake, &state, Purpose::Set, "test", None).unwrap();
            let _ = transaction.apply(&wanted, &|| false);
            drop(transaction);
            fake.heal();
            again();
            assert_eq!(fake.everything().1, before.1, "the driver gone at call {at}");
            assert_eq!(fake.everything().0, before.0, "the driver gone at call {at}");
        }
        assert_eq!(fake.hazards(), Vec::<String>::new());
    }
}

#[test]
fn cpus_go_apart_with_the_level_and_come_back() {
    let folder = memory();
    let state = StateDir::new(folder.path());
    let fake = FakeMachine::guide(true);
    let before = fake.everything();
    assert!(accepted(&fake, "sst-apart=3,90").contains("90"));
    let of = |cpus: &str, words: &[&str]| Intent::from_arguments(words, Some(cpus)).unwrap();
    let outside = planned_for(&fake, &of("package:0", &["sst-apart=3,14"])).unwrap_err();
    assert!(matches!(outside, PlanError::Refused(_)), "{outside}");
    let wanted = of("package:0", &["sst-level=4", "sst-apart=4,6,12,13,32,34,40,41"]);
    let plan = planned_for(&fake, &wanted).unwrap();
    assert!(
        !plan.notes.iter().any(|note| matches!(&note.remark, Remark::CpusStayOnline { .. })),
        "{:?}",
        plan.notes
    );
    let mut transaction = Transaction::begin(&fake, &state, Purpose::Set, "test", None).unwrap();
    transaction.apply(&wanted, &|| false).unwrap();
    let files = fake.everything().0;
    assert_eq!(files["/sys/fs/cgroup/flyball-sst-0-0/cpuset.cpus"], "4,6,12,13,32,34,40,41");
    assert_eq!(files["/sys/fs/cgroup/flyball-sst-0-0/cpuset.cpus.partition"], "isolated");
    assert_eq!(files["/sys/devices/system/cpu/online"], "0-55");
    assert!(transaction.end().is_exact());
    assert_eq!(fake.everything(), before);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(120))]
    #[test]
    fn no_wish_reaches_a_driver_unchecked(
        wishes in proptest::collection::vec(
            "(sst-level|sst-bf|sst-tf|sst-cp|clos|clos-(min|max|weight|epp):[0-9])=(on|off|min|max|[0-9]{1,6}|[0-9]{1,3}00MHz)",
            1..6,
        ),
        cpus in "([0-9]|0-7|2,6|[5-9]-9)",
        dead: bool,
    ) {
        let folder = memory();
        let state = StateDir::new(folder.path());
        let fake = FakeMachine::small(true).with_io_domains(1);
        let fake = if dead { fake.with_dead_domain() } else { fake };
        let before = fake.everything();
        let words: Vec<&str> = wishes.iter().map(String::as_str).collect();
        if let Ok(wanted) = Intent::from_arguments(&words, Some(&cpus)) {
            let mut transaction = Transaction::begin(&fake, &state, Purpose::Set, "test", None).unwrap();
            let _ = transaction.apply(&wanted, &|| false);
            proptest::prop_assert!(transaction.end().is_exact());
        }
        proptest::prop_assert_eq!(fake.hazards(), Vec::<String>::new());
        proptest::prop_assert_eq!(fake.everything(), before);
    }
}

#[test]
fn a_change_that_was_cut_off_is_restored_by_the_next() {
    let folder = memory();
    let state = StateDir::new(folder.path());
    let fake = FakeMachine::guide(false);
    let before = fake.everything();
    let mut transaction = Transaction::begin(&fake, &state, Purpose::Set, "test", None).unwrap();
    transaction.apply(&intent(&["sst-level=4", "sst-cp=on"]), &|| false).unwrap();
    // As if killed: the transaction's own restore must not run, and its lock goes with the process.
    let text = std::fs::read_dir(folder.path()).unwrap().count();
    assert!(text > 0, "no journal");
    drop(transaction);
    assert_eq!(fake.everything(), before);
}

/// If a processor lacks classes of service, nothing can switch them on, and nothing reports that
/// they are off.
#[test]
fn core_power_is_refused_where_the_processor_lacks_it() {
    for tpmi in [false, true] {
        let fake = FakeMachine::small(tpmi);
        assert!(planned(&fake, &["sst-cp=on"]).is_ok());
        fake.set(|state| state.lacks_core_power = true);
        assert!(planned(&fake, &["sst-cp=on"]).is_err(), "tpmi {tpmi}");
        let snapshot = Snapshot::take_knobs(&fake, &[Id::SstCp]).unwrap();
        let place = snapshot.places(Id::SstCp).unwrap()[0].clone();
        assert_eq!(snapshot.value(Id::SstCp, &place).unwrap(), None, "tpmi {tpmi}");
    }
}

/// An I/O die belongs to no CPU: it is selected only with its whole package.
#[test]
fn io_dies_go_with_their_package_only() {
    let fake = FakeMachine::small(true).with_io_domains(1);
    let domains = |on: Option<&str>| -> Vec<String> {
        let intent = Intent::from_arguments(&["sst-cp=on"], on).unwrap();
        let plan = planned_for(&fake, &intent).unwrap();
        let of_core_power = plan.changes.iter().filter(|change| change.knob == Id::SstCp);
        of_core_power.map(|change| change.place.clone()).collect()
    };
    assert!(domains(None).iter().any(|place| place.ends_with(":1")), "{:?}", domains(None));
    assert!(!domains(Some("0")).iter().any(|place| place.ends_with(":1")), "{:?}", domains(Some("0")));
}
