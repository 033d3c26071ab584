//! Speed Select through the knobs: plans that know the rules, apply and restore on both interfaces, a failure at
//! every point.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use flyball_control::{
    Intent, Machine,
    plan::{Plan, PlanError, plan},
    write::{hold::Hold, state::StateDir},
};
use flyball_host::Errno;
use flyball_sst::player::Player;

fn intent(settings: &[&str]) -> Intent {
    Intent::from_arguments(settings, None).unwrap()
}

fn planned(player: &Player, settings: &[&str]) -> Result<Plan, PlanError> {
    plan(&Machine::inspect(player).unwrap(), &intent(settings))
}

fn steps(plan: &Plan) -> Vec<String> {
    plan.changes.iter().map(|change| format!("{}={} on {}", change.knob, change.new, change.place)).collect()
}

fn refused(player: &Player, settings: &[&str]) -> String {
    match planned(player, settings) {
        Err(PlanError::Refused(words)) => words.join("\n"),
        other => panic!("{settings:?}: {other:?}"),
    }
}

#[test]
fn base_freq_brings_what_it_stands_on_and_says_its_cost() {
    for tpmi in [false, true] {
        let player = Player::guide(tpmi);
        let plan = planned(&player, &["sst-bf=on"]).unwrap();
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
        assert!(plan.notes.iter().any(|note| note.contains(cost)), "{:?}", plan.notes);
        assert!(player.take_log().is_empty(), "planning wrote");
    }
}

#[test]
fn contradictions_are_refused_before_the_first_write() {
    for tpmi in [false, true] {
        let player = Player::guide(tpmi);
        assert!(refused(&player, &["sst-bf=on", "sst-cp=off"]).contains("works on classes of service"));
        assert!(refused(&player, &["clos-min:1=3GHz", "clos-max:1=2GHz"]).contains("above its maximum"));
        assert!(refused(&player, &["clos-1-max=26GHz"]).contains("25.5 GHz"));
        assert!(refused(&player, &["sst-level=7"]).contains("levels are 0, 1, 2, 3, 4"));
        assert!(refused(&player, &["clos=4"]).contains("classes 0 to 3"));
        assert!(refused(&player, &["clos-weight:2=16"]).contains("0 to 15"));
        assert!(refused(&player, &["sst-cp-priority=odd"]).contains("ordered or proportional"));
        assert!(refused(&player, &["trl=0xzz"]).contains("hexadecimal"));
        player.put("/sys/devices/system/cpu/intel_pstate/no_turbo", "1");
        assert!(refused(&player, &["sst-tf=on"]).contains("needs turbo"));
        assert!(planned(&player, &["sst-tf=on", "turbo=on"]).is_ok());
        player.set(|state| (state.turbo_freq, state.qos, state.core_power) = (true, true, true));
        assert!(refused(&player, &["sst-cp=off"]).contains("sst-tf=off as well"));
        assert!(planned(&player, &["sst-cp=off", "sst-tf=off"]).is_ok());
        player.set(|state| state.level = 4);
        assert!(refused(&player, &["sst-bf=on"]).contains("levels with it: 0, 1"));
        player.set(|state| state.locked = true);
        assert!(refused(&player, &["sst-level=0"]).contains("locked"));
        assert!(player.take_log().is_empty());
    }
}

#[test]
fn rounding_and_siblings_are_told() {
    let player = Player::guide(true);
    let plan = planned(&player, &["clos-min:1=2650MHz"]).unwrap();
    assert_eq!(plan.changes[0].new, "2600");
    assert!(plan.changes[0].because.contains("cut to whole hundreds"), "{:?}", plan.changes[0]);
    let machine = Machine::inspect(&player).unwrap();
    let one = Intent::from_arguments(&["clos=2"], Some("3")).unwrap();
    let plan = flyball_control::plan::plan(&machine, &one).unwrap();
    assert_eq!(plan.changes.len(), 1);
    assert_eq!(plan.changes[0].cpus.to_string(), "3,31");
    assert!(plan.notes.iter().any(|note| note.contains("3,31")), "{:?}", plan.notes);
}

#[test]
fn a_level_change_says_what_goes_with_it() {
    let player = Player::guide(false);
    player.set(|state| (state.base_freq, state.qos, state.core_power) = (true, true, true));
    let plan = planned(&player, &["sst-level=4"]).unwrap();
    let notes = plan.notes.join("\n");
    assert!(notes.contains("base-freq of power domain 0:0 is on and goes off with the level"), "{notes}");
    assert!(notes.contains("base 2800 MHz instead of 2600 MHz"), "{notes}");
    assert!(notes.contains("CPUs 4,6,12,13,32,34,40,41 offline"), "{notes}");
}

/// Everything at once, in an order that no firmware would take.
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
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(folder.path());
        let player = Player::guide(tpmi);
        player.set(|state| {
            state.assoc[4] = 2;
            (state.qos, state.core_power, state.base_freq) = (true, true, true);
        });
        let before = player.everything();
        player.fail_at(usize::MAX, Errno::NXIO);
        let mut hold = Hold::begin(&player, &state, "test", None).unwrap();
        let applied = hold.apply(&intent(ALL), &|| false).unwrap();
        assert!(applied.clamped().next().is_none(), "{:?}", applied.clamped().collect::<Vec<_>>());
        for package in 0..2 {
            let now = player.state(package, 0);
            assert_eq!(
                (now.level, now.base_freq, now.turbo_freq, now.qos, now.ordered),
                (1, true, true, true, true)
            );
            assert_eq!(now.trl, 0x2020_2020_2020_2020);
            assert_eq!((now.clos[3] >> 8, now.assoc[0], now.assoc[13]), (0x140a, 3, 3));
        }
        let writes = player.changes();
        let again = planned(&player, ALL).unwrap();
        assert!(again.is_empty(), "{:?}", steps(&again));
        assert!(hold.end().is_exact());
        assert_eq!(player.everything(), before, "restored");
        // Now a failure at each of those writes.
        assert!(writes > 25, "{writes}");
        for at in 0..writes {
            player.fail_at(at, Errno::NOTTY);
            let mut hold = Hold::begin(&player, &state, "test", None).unwrap();
            assert!(hold.apply(&intent(ALL), &|| false).is_err(), "write {at} failed and nobody noticed");
            let restoration = hold.end();
            assert!(restoration.is_exact(), "write {at}: {restoration}");
            assert_eq!(player.everything(), before, "after a failure of write {at}");
        }
        player.heal();
    }
}

#[test]
fn a_change_that_was_cut_off_is_put_back_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::new(folder.path());
    let player = Player::guide(false);
    let before = player.everything();
    let mut hold = Hold::begin(&player, &state, "test", None).unwrap();
    hold.apply(&intent(&["sst-level=4", "sst-cp=on"]), &|| false).unwrap();
    // As if killed: nothing of the hold's own undoing runs; its lock goes with the process.
    let text = std::fs::read_dir(folder.path()).unwrap().count();
    assert!(text > 0, "no journal");
    drop(hold);
    assert_eq!(player.everything(), before);
}
