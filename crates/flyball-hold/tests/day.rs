//! A service's day in accelerated time, on a simulated machine: how often it wakes up, what that
//! costs, and that it leaks nothing. Also storms: hotplug, another writer every second, clock
//! jumps.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{
    fmt::Write as _,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use flyball_control::{Intent, Setting, Snapshot, plan::targets, write::state::StateDir};
use flyball_hold::{Config, Notice, Rehearsal, TimedEvent, TimedNotice, VERIFY_EVERY, events};
use flyball_simhost::{SimHost, SimSetup};

const CONFIG: &str = "[[when]]\nprofile = \"governor=powersave\"\n\
                      [[when]]\nprofile = \"max-freq=2GHz\"\npower = \"battery\"\n\
                      [[when]]\nprofile = \"max-freq=3GHz\"\nunit = \"game.service\"\n\
                      [[when]]\nprofile = \"epp=power\"\ntime = \"22:00-06:00\"\n";

/// Profiles of this test have a single setting.
fn profiles(name: &str) -> Result<Vec<Setting>, String> {
    Intent::from_arguments(&[name], None).map(|intent| intent.settings).map_err(|error| error.to_string())
}

/// Plays events to a service. Returns its actions and how often it woke up.
fn play(machine: &str, text: &str, until: Duration, each_hour: &mut dyn FnMut()) -> (Vec<TimedNotice>, u64) {
    let host = SimHost::open(&SimSetup::parse(machine).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::new(folder.path().join("state"));
    let config = Config::parse(CONFIG.as_bytes(), "hold.toml");
    let mut rehearsal = Rehearsal::start(&host, state, config, &profiles).unwrap();
    let played: Vec<TimedEvent> = events(text.as_bytes(), "events").unwrap();
    let mut done = rehearsal.done();
    let mut hour = 0;
    for event in &played {
        while hour * 3600 < event.at.as_secs() {
            done.extend(rehearsal.until(Duration::from_secs(hour * 3600)));
            each_hour();
            hour += 1;
        }
        done.extend(rehearsal.play(event).unwrap());
    }
    done.extend(rehearsal.until(until));
    each_hour();
    let (facts, now) = rehearsal.facts();
    let status = flyball_hold::status(&host, rehearsal.service().store(), &facts, now);
    assert!(status.failure.is_none() && status.config_error.is_none(), "{status:?}");
    let at_fault = status.knobs.iter().filter(|knob| !knob.holds && knob.left.is_none());
    assert_eq!(at_fault.count(), 0, "{:?}", status.knobs);
    (done, rehearsal.wake_ups)
}

/// The tests share their process's memory, which one of them measures.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns the memory that this process uses, in KiB, and its processor time in seconds.
fn used() -> (u64, f64) {
    // As `hold run` does after each wake-up.
    flyball_process::release_freed_memory();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    // utime and stime, in ticks of USER_HZ.
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    (line.split_whitespace().next().unwrap().parse().unwrap(), ticks as f64 / 100.0)
}

#[test]
fn a_day_keeps_nothing_and_wakes_up_once_a_minute() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::new();
    for hour in 0..24 {
        let at = |minute: u32| hour * 60 + minute;
        for (minute, event) in [
            (1, "power battery"),
            (10, "starts unit game.service"),
            (20, "writes /sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq 1500000 as tuned"),
            (30, "ends unit game.service"),
            (40, "power ac"),
            (50, "resume 0s"),
        ] {
            // The first moment of a rehearsal has no minutes.
            let _ = writeln!(text, "{}min {event}", at(minute));
        }
    }
    let mut memory = Vec::new();
    let before = used().1;
    let day = Duration::from_secs(24 * 3600);
    let (done, wake_ups) = play("ryzen-5750g", &text, day, &mut || memory.push(used().0));
    let seconds = used().1 - before;
    let corrected = done.iter().filter(|done| matches!(done.notice, Notice::Drift(_))).count();
    println!(
        "a day: {wake_ups} wake-ups ({} per hour), {corrected} drifts, {seconds:.2} s of CPU with the machine's; memory {} to {} KiB",
        wake_ups / 24,
        memory[1],
        memory[memory.len() - 1]
    );
    assert_eq!(corrected, 24);
    let verifies = day.as_secs() / VERIFY_EVERY.as_secs();
    let most = verifies + 24 * 6 + 10;
    assert!(wake_ups <= most, "{wake_ups} wake-ups, where {most} have a reason");
    // The first hours fill caches. The list of recent changes grows by one per hour. The
    // allocator's memory differs from hour to hour.
    let first = memory[6..12].iter().max();
    let last = memory[20..].iter().min();
    assert!(last.zip(first).is_some_and(|(last, first)| *last <= first + 512), "memory grows: {memory:?}");
}

#[test]
fn storms_end_with_everything_held_or_left_with_a_warning() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Each CPU goes offline and online 20 times, one CPU per second.
    let mut hotplug = String::new();
    for second in 0..160 {
        let cpu = 1 + second / 2 % 4;
        let verb = if second % 2 == 0 { "offline" } else { "online" };
        let _ = writeln!(hotplug, "{}s {verb} {cpu}", second + 1);
    }
    let (done, _) = play("ryzen-5750g", &hotplug, Duration::from_secs(400), &mut || ());
    assert!(!done.iter().any(|done| matches!(done.notice, Notice::Failed(_))), "{done:?}");
    // Another writer every second for five minutes: 5 corrections, then a warning and an attempt
    // after each pause of 1, 2 and 4 minutes. The last attempt succeeds, because the writer has
    // ended.
    let mut writer = String::new();
    for second in 1..300 {
        let _ = writeln!(
            writer,
            "{second}s writes /sys/devices/system/cpu/cpufreq/policy0/scaling_governor performance as stubborn"
        );
    }
    let (done, _) = play("ryzen-5750g", &writer, Duration::from_secs(500), &mut || ());
    let count = |action: &flyball_hold::Action| {
        let is =
            |done: &&TimedNotice| matches!(&done.notice, Notice::Drift(drift) if drift.action == *action);
        done.iter().filter(is).count()
    };
    let (corrected, warnings) =
        (count(&flyball_hold::Action::Corrected), count(&flyball_hold::Action::GaveWay));
    assert_eq!((corrected, warnings), (8, 3), "{done:?}");
    // The wall clock jumps between day and night, every second.
    let mut clock = String::new();
    for second in 1..100 {
        let time = if second % 2 == 0 { "12:00" } else { "23:00" };
        let _ = writeln!(clock, "{second}s clock {time}");
    }
    let (done, _) = play("ryzen-5750g", &clock, Duration::from_secs(200), &mut || ());
    let changes = done.iter().filter(|done| matches!(done.notice, Notice::InForce(_))).count();
    assert_eq!(changes, 100, "the start, and each jump");
}

/// Another tool changes the level by an ioctl, which the kernel reports to nobody. The regular
/// comparison finds it.
#[test]
fn a_level_of_speed_select_that_changes_is_noticed_and_nothing_else_is_lost() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let host = SimHost::open(&SimSetup::parse("sst-guide").unwrap()).unwrap();
    let level = |number: &str| {
        let intent = Intent::from_arguments(&[&format!("sst-level={number}")], None).unwrap();
        let snapshot = Snapshot::for_intent(&host, &intent).unwrap();
        targets(&snapshot, &intent).unwrap().into_iter().map(|target| target.location).collect::<Vec<_>>()
    };
    let set = |number: &str| {
        for location in level(number) {
            location.write(&host, number.as_bytes()).unwrap();
        }
    };
    let play = |config: &str| {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(folder.path().join("state"));
        let config = Config::parse(config.as_bytes(), "hold.toml");
        let mut rehearsal = Rehearsal::start(&host, state, config, &profiles).unwrap();
        rehearsal.until(3 * VERIFY_EVERY);
        rehearsal.done();
        set("4");
        // Only every tenth comparison plans from scratch, so none of these does.
        let done = rehearsal.until(4 * VERIFY_EVERY + Duration::from_secs(1));
        let (facts, now) = rehearsal.facts();
        let status = flyball_hold::status(&host, rehearsal.service().store(), &facts, now);
        assert!(status.failure.is_none() && status.knobs.iter().all(|knob| knob.holds), "{status:?}");
        done.into_iter().filter(|done| matches!(done.notice, Notice::Drift(_))).count()
    };
    // The level's other changes are corrected, but the level belongs to the other tool.
    let one = |profile: &str| format!("[[when]]\nprofile = \"{profile}\"\n");
    play(&(one("governor=performance") + &one("max-freq=2GHz")));
    set("0");
    // A held level is set again.
    assert_eq!(play(&one("sst-level=0")), 1, "both packages in one report");
    for location in level("0") {
        assert_eq!(location.read(&host).unwrap(), b"0");
    }
}
