//! Tests holds on a machine of plain files: the commands, the service that notices other programs'
//! writes, and what is left after kill -9.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use flyball_testing::{Ran, flyball, skip};

use crate::change::Machine;

const GOVERNOR: &str = "cpufreq/policy0/scaling_governor";
const MAX: &str = "cpufreq/policy0/scaling_max_freq";

#[test]
fn holds_are_an_overlay_and_leave_nothing_behind() {
    let machine = Machine::new(2);
    let first = machine.dump();
    machine.expect(0, &["hold", "add", "low", "max-freq=2GHz", "governor=performance"]);
    machine.expect(0, &["hold", "add", "high", "max-freq=3GHz", "-c", "0", "--priority", "200"]);
    // Added later, but with lower priority.
    machine.expect(0, &["hold", "add", "later", "max-freq=1GHz", "--priority", "150"]);
    assert_eq!(
        (machine.read(MAX), machine.read("cpufreq/policy1/scaling_max_freq")),
        ("3000000".into(), "1000000".into())
    );
    let status = machine.json(0, &["hold", "status"]);
    assert_eq!(status["holds"].as_array().unwrap().len(), 3);
    let decided: Vec<&str> =
        status["knobs"].as_array().unwrap().iter().map(|knob| knob["hold"].as_str().unwrap()).collect();
    assert_eq!(decided, ["low", "high", "later"]);
    machine.expect(0, &["hold", "release", "high"]);
    assert_eq!(machine.read(MAX), "1000000");
    machine.expect(0, &["hold", "release", "low"]);
    assert_eq!((machine.read(GOVERNOR), machine.read(MAX)), ("powersave".into(), "1000000".into()));
    machine.expect(0, &["hold", "release", "later"]);
    assert_eq!(machine.dump(), first);
    // A profile's name alone is also the name of the hold.
    machine.expect(0, &["hold", "add", "powersave"]);
    assert_eq!(machine.json(0, &["hold", "list"])[0]["profile"], "powersave");
    machine.expect(0, &["hold", "release", "powersave"]);
    let nothing = machine.json(0, &["restore"]);
    assert_eq!(nothing["undone"], serde_json::json!([]), "no transaction is left");
    assert_eq!(nothing["restoration"]["remembered"], 0);
}

#[test]
fn what_a_user_sets_while_a_hold_is_in_force_is_what_a_release_leaves() {
    let machine = Machine::new(1);
    machine.expect(0, &["hold", "add", "a", "max-freq=2GHz"]);
    let set = machine.expect(0, &["set", "max-freq=3GHz"]);
    assert!(set.err.contains("the hold a"), "{}", set.err);
    machine.expect(5, &["hold", "status"]);
    machine.expect(0, &["hold", "add", "a", "max-freq=2GHz"]);
    assert_eq!(machine.read(MAX), "2000000");
    machine.expect(0, &["hold", "release", "a"]);
    assert_eq!(machine.read(MAX), "3000000");
    machine.expect(0, &["restore"]);
    assert_eq!(machine.read(MAX), "4600000");
}

#[test]
fn what_a_user_set_while_a_hold_was_in_force_is_named_when_it_stays() {
    let machine = Machine::new(2);
    machine.expect(0, &["hold", "add", "a", "max-freq=2GHz", "-c", "0"]);
    assert!(machine.expect(0, &["hold", "list"]).out.contains("max-freq@0=2 GHz"));
    machine.expect(0, &["set", "max-freq=3GHz", "-c", "0"]);
    let status = machine.expect(5, &["hold", "status"]).out;
    assert!(status.contains("max-freq of CPU 0: 3 GHz, but a sets 2 GHz"), "{status}");
    let released = machine.expect(0, &["hold", "release", "a"]).out;
    assert_eq!(released, "released: a\nmax-freq of CPU 0 stays at 3 GHz: it was set while a was in force\n");
}

#[test]
fn a_hold_that_has_ended_does_not_count_and_can_be_released() {
    let machine = Machine::new(1);
    let first = machine.dump();
    machine.expect(0, &["hold", "add", "a", "max-freq=2GHz", "--for", "1s"]);
    std::thread::sleep(Duration::from_millis(1100));
    let list = machine.json(0, &["hold", "list"]);
    assert_eq!(
        (&list[0]["in_force"], &list[0]["because"]),
        (&false.into(), &"its time is over".into()),
        "without a service it is still there"
    );
    machine.expect(0, &["hold", "release", "a"]);
    assert_eq!(machine.dump(), first);
}

#[test]
fn a_profile_is_held_while_a_command_runs() {
    let machine = Machine::new(1);
    let first = machine.dump();
    let profile = machine.path().join("fast.toml");
    std::fs::write(&profile, "governor = \"performance\"\n").unwrap();
    let profile = profile.to_str().unwrap();
    let governor = machine.file(GOVERNOR);
    let ran = machine.expect(
        7,
        &["run", "--hold", profile, "--", "sh", "-c", &format!("cat '{}'; exit 7", governor.display())],
    );
    assert_eq!(ran.out, "performance\n");
    assert_eq!(machine.dump(), first);
    // flyball itself is killed. The next command that changes holds releases the hold.
    let mut run = machine.command(&["run", "--hold", profile, "--", "sleep", "60"]);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert!(eventually(|| machine.read(GOVERNOR) == "performance"));
    let list = machine.json(0, &["hold", "list"]);
    assert_eq!(list[0]["name"], format!("run-{}", run.id()));
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(machine.json(0, &["hold", "list"])[0]["in_force"], false);
    machine.expect(0, &["hold", "add", "b", "max-freq=2GHz"]);
    assert_eq!(machine.read(GOVERNOR), "powersave");
    machine.expect(2, &["run", "--hold", "nothing-of-the-kind", "--", "true"]);
}

#[test]
fn restore_releases_all_holds() {
    let machine = Machine::new(1);
    let first = machine.dump();
    machine.expect(0, &["hold", "add", "a", "governor=performance"]);
    machine.expect(0, &["restore"]);
    assert_eq!(machine.dump(), first);
    assert_eq!(machine.json(0, &["hold", "list"]), serde_json::json!([]));
    // A killed restore may have removed the journal, but not the holds.
    machine.expect(0, &["hold", "add", "a", "governor=performance"]);
    std::fs::remove_file(machine.path().join("run/flyball/journal")).unwrap();
    machine.expect(0, &["restore"]);
    assert_eq!(machine.json(0, &["hold", "list"]), serde_json::json!([]));
}

/// `restore` works even if /run is full or read-only.
#[test]
fn restore_needs_neither_space_nor_a_file_that_can_be_written() {
    for (how, code) in [("cat /dev/zero >\"$dir/filler\" 2>&1", 0), ("mount -o remount,ro \"$dir\"", 3)] {
        let machine = Machine::new(1);
        let first = machine.dump();
        let dir = machine.path().join("run/flyball");
        std::fs::create_dir_all(&dir).unwrap();
        let script = format!(
            "dir=$1; shift; mount -t tmpfs -o size=64k,mode=755 none \"$dir\" || exit 77\n\
             \"$@\" hold add a governor=performance max-freq=2GHz || exit 78\n{how}\n\"$@\" restore"
        );
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", &script, "sh"]).arg(&dir).arg(env!("CARGO_BIN_EXE_flyball"));
        let ran = Ran::of(command.args(["-M", &format!("tree:{}", machine.path().display())]));
        if ran.code == 77 || ran.err.contains("unshare:") {
            return skip(1, "holds", "no mount namespace can be made");
        }
        assert_eq!(ran.code, code, "{how}: {}", ran.text());
        assert_eq!(machine.dump(), first, "{how}: {}", ran.text());
    }
}

/// A command that runs during a hold saves the hold's values. These must not be restored later.
#[test]
fn restore_knows_what_was_there_before_a_released_hold() {
    let machine = Machine::new(2);
    let first = machine.dump();
    machine.expect(0, &["hold", "add", "a", "max-freq=2GHz"]);
    machine.expect(0, &["set", "governor=performance"]);
    machine.expect(0, &["hold", "release", "a"]);
    machine.expect(0, &["restore"]);
    assert_eq!(machine.dump(), first);
}

#[test]
fn a_release_can_be_looked_at_first() {
    let machine = Machine::new(2);
    machine.expect(0, &["hold", "add", "low", "max-freq=2GHz"]);
    machine.expect(0, &["hold", "add", "high", "max-freq=3GHz", "governor=performance", "--priority", "200"]);
    let held = machine.dump();
    let look = machine.json(0, &["hold", "release", "high", "--dry-run"]);
    let restored = look["planned"]["restored"].as_array().unwrap();
    let of =
        |file: &str| restored.iter().filter(|one| one["location"].as_str().unwrap().ends_with(file)).count();
    assert_eq!((of("scaling_governor"), of("scaling_max_freq")), (2, 0), "{look}");
    assert_eq!((&restored[0]["was"], &restored[0]["now"]), (&"powersave".into(), &"performance".into()));
    let text = machine.expect(0, &["hold", "release", "high", "-n"]).out;
    assert!(text.starts_with("would release: high\n") && text.contains("2000000"), "{text}");
    let all = machine.expect(0, &["hold", "release", "--all", "-n"]).out;
    assert!(all.contains("3000000 -> 4600000") && all.contains("performance -> powersave"), "{all}");
    machine.expect(2, &["hold", "release", "none", "-n"]);
    assert_eq!(machine.dump(), held, "nothing was written");
    assert_eq!(machine.json(0, &["hold", "list"]).as_array().unwrap().len(), 2);
    // The release does what it announced.
    machine.expect(0, &["hold", "release", "high"]);
    assert_eq!((machine.read(GOVERNOR), machine.read(MAX)), ("powersave".into(), "2000000".into()));
}

#[test]
fn a_lock_that_is_held_for_a_moment_is_waited_for() {
    let machine = Machine::new(1);
    machine.expect(0, &["hold", "add", "a", "max-freq=2GHz"]);
    let hold = |seconds: &str| {
        // flock(1) on the lock of the machine's own directory.
        let lock = machine.path().join("run/flyball/lock");
        let mut flock = Command::new("flock");
        let flock = flock.arg("-o").arg(lock).args(["sh", "-c", &format!("echo; exec sleep {seconds}")]);
        let mut flock = flock.stdout(Stdio::piped()).spawn().unwrap();
        std::io::Read::read_exact(flock.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        flock
    };
    let mut brief = hold("0.5");
    machine.expect(0, &["hold", "add", "b", "governor=performance"]);
    brief.wait().unwrap();
    let mut long = hold("60");
    let begin = Instant::now();
    let words = machine.expect(6, &["hold", "release", "b"]).err;
    assert!(begin.elapsed() >= Duration::from_secs(2), "it gave up at once");
    assert!(words.contains("waiting up to 2 s"), "{words}");
    // The service must not wait for a command's lock: it continues with everything else.
    long.kill().unwrap();
    long.wait().unwrap();
    machine.expect(0, &["hold", "release", "--all"]);
}

#[test]
fn what_cannot_be_held_is_refused_and_changes_nothing() {
    let machine = Machine::new(1);
    machine.expect(0, &["hold", "add", "a", "governor=performance"]);
    let (files, holds) = (machine.dump(), machine.json(0, &["hold", "list"]));
    for (code, words) in [
        (2, &["add", "a b", "governor=performance"] as &[_]),
        (2, &["add", "b", "governor=fast"]),
        (2, &["add", "b", "governor"]),
        (2, &["add", "b"]),
        (4, &["add", "b", "turbo=off"]),
        (2, &["add", "b", "max-freq=9GHz"]),
        (2, &["add", "b", "epb=0", "--when", "wind=strong"]),
        (2, &["add", "b", "governor=powersave", "--when", "unit=a.target"]),
        (2, &["add", "b", "governor=powersave", "--when", "cgroup=../a"]),
        (2, &["add", "b", "governor=powersave", "--when", "pressure=cpu"]),
        (2, &["add", "b", "governor=powersave", "--when", "for=soon"]),
        (2, &["add", "b", "governor=powersave", "--when", "power"]),
        (2, &["add", "b", "governor=powersave", "--when", "time=9-5"]),
        (2, &["add", "b", "governor=powersave", "--for", "soon"]),
        (2, &["add", "b", "governor=powersave", "--while-pid", "999999999"]),
        (2, &["add", "b", "governor=powersave", "--priority", "1001"]),
        (2, &["release", "b"]),
        (2, &["release"]),
        (2, &["run", "--config", "/nowhere/hold.toml"]),
    ] {
        let ran = machine.expect(code, &[&["hold"], words].concat());
        assert!(ran.out.is_empty() && !ran.err.is_empty(), "{words:?}: {}", ran.text());
    }
    assert_eq!((machine.dump(), machine.json(0, &["hold", "list"])), (files, holds));
    // Exit code 2 means that nothing was done, so another program's value stays too.
    machine.poke(GOVERNOR, "powersave");
    let files = machine.dump();
    machine.expect(2, &["hold", "add", "b", "max-freq=9GHz"]);
    assert_eq!(machine.dump(), files);
}

/// A service of a machine; killed when it is dropped.
struct Service(Child);

impl Service {
    /// Returns `None` without permission to watch files for writes.
    fn start(machine: &Machine, words: &[&str]) -> Option<Service> {
        if !flyball_process::is_root() {
            skip(1, "service", "it needs root for fanotify");
            return None;
        }
        let mut command = machine.command(&[&["hold", "run"], words].concat());
        let service = Service(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let runs =
            || machine.json_of_any_code(&["hold", "status"])["service"]["process"]["pid"] == service.0.id();
        assert!(eventually(runs), "the service does not start");
        Some(service)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine {
    pub(crate) fn json_of_any_code(&self, words: &[&str]) -> serde_json::Value {
        let ran = Ran::of(&mut self.command(&[words, &["--json"]].concat()));
        serde_json::from_str(&ran.out).unwrap_or_default()
    }

    /// Another program writes a setting.
    fn poke(&self, name: &str, value: &str) {
        let file = self.file(name);
        let status = Command::new("sh")
            .arg("-c")
            .arg(format!("echo {value} > '{}'; sleep 0.2", file.display()))
            .status();
        assert!(status.unwrap().success());
    }
}

fn eventually(is: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        if is() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn another_program_is_noticed_named_and_corrected_until_the_service_gives_way() {
    let machine = Machine::new(2);
    machine.expect(0, &["hold", "add", "a", "governor=performance"]);
    let Some(service) = Service::start(&machine, &[]) else { return };
    machine.poke(GOVERNOR, "powersave");
    assert!(eventually(|| machine.read(GOVERNOR) == "performance"));
    let last = || {
        machine.json_of_any_code(&["hold", "status"])["drifts"].as_array().and_then(|all| all.last().cloned())
    };
    assert!(eventually(|| last().is_some()));
    let drift = last().unwrap();
    assert_eq!(
        (&drift["action"], &drift["knob"], &drift["cpus"]),
        (&"corrected".into(), &"governor".into(), &"0".into())
    );
    assert_eq!(drift["cause"]["written"]["name"], "sh");
    assert_eq!((&drift["wanted"], &drift["found"]), (&"performance".into(), &"powersave".into()));
    for _ in 0..5 {
        machine.poke(GOVERNOR, "powersave");
    }
    assert!(eventually(|| last().is_some_and(|drift| drift["action"] == "gave-way")));
    assert_eq!(machine.read(GOVERNOR), "powersave");
    machine.expect(5, &["hold", "status"]);
    // A second service is rejected, and the first one notices what commands do.
    machine.expect(6, &["hold", "run"]);
    machine.expect(0, &["hold", "add", "a", "governor=performance"]);
    assert_eq!(machine.read(GOVERNOR), "performance");
    machine.poke(GOVERNOR, "powersave");
    let pid = service.0.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    assert!(eventually(|| machine.json_of_any_code(&["hold", "status"])["service"].is_null()));
    // Settings outlive the service.
    assert_eq!(machine.json(0, &["hold", "list"])[0]["name"], "a");
    drop(service);
    machine.expect(0, &["hold", "release", "--all"]);
    assert_eq!(machine.read(GOVERNOR), "powersave");
}

#[test]
fn a_hold_that_yields_gives_its_place_to_the_other_program_for_good() {
    let machine = Machine::new(2);
    machine.expect(0, &["hold", "add", "a", "max-freq=2GHz", "--on-drift", "yield"]);
    machine.expect(0, &["hold", "add", "b", "governor=performance", "--on-drift", "report"]);
    let Some(_service) = Service::start(&machine, &[]) else { return };
    machine.poke(MAX, "1500000");
    machine.poke(GOVERNOR, "powersave");
    let actions = || {
        let status = machine.json_of_any_code(&["hold", "status"]);
        let drifts = status["drifts"].as_array().cloned().unwrap_or_default();
        drifts.iter().map(|drift| drift["action"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert!(eventually(|| actions() == ["yielded", "reported"]), "{:?}", actions());
    machine.expect(0, &["hold", "release", "--all"]);
    assert_eq!(machine.read(MAX), "1500000", "the other program's");
    assert_eq!(machine.read("cpufreq/policy1/scaling_max_freq"), "4600000");
    assert_eq!(machine.read(GOVERNOR), "powersave");
}

#[test]
fn what_counts_as_clamped_is_tried_again_when_another_program_writes_it() {
    let machine = Machine::new(1);
    machine.expect(0, &["hold", "add", "a", "max-freq=2GHz", "--on-drift", "report"]);
    let Some(service) = Service::start(&machine, &[]) else { return };
    machine.poke(MAX, "1500000");
    let store = machine.path().join("run/flyball/holds");
    let text = || std::fs::read_to_string(&store).unwrap();
    assert!(eventually(|| text().contains("\"reported\"")), "{}", text());
    service.kill();
    // The state after another program writes in the middle of a correction: reading back gives
    // another value.
    let clamped = text().replace("\"because\": \"reported\"", "\"because\": \"clamped\"");
    let clamped = clamped.replace("\"on_drift\": \"report\"", "\"on_drift\": \"correct\"");
    std::fs::write(&store, clamped).unwrap();
    let Some(_service) = Service::start(&machine, &[]) else { return };
    assert_eq!(machine.read(MAX), "1500000", "left");
    assert!(text().contains("clamped"), "{}", text());
    machine.poke(MAX, "1600000");
    assert!(eventually(|| machine.read(MAX) == "2000000"), "{}", text());
    // The store is saved after the machine was changed.
    assert!(eventually(|| !text().contains("clamped")), "{}", text());
}

#[test]
fn a_service_that_is_killed_at_any_moment_is_continued() {
    const KILLS: u64 = 300;
    let machine = Machine::new(2);
    let first = machine.dump();
    let mut random = 1u64;
    for round in 0..KILLS {
        let Some(service) = Service::start(&machine, &[]) else { return };
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let governor = if round % 2 == 0 { "performance" } else { "powersave" };
        let argument = format!("governor={governor}");
        // Run a command and another program at the same time.
        let mut add = machine.command(&["hold", "add", "a", &argument, "max-freq=2GHz"]);
        let mut add = add.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(random >> 50));
        std::fs::write(machine.file(MAX), "3000000\n").unwrap();
        std::thread::sleep(Duration::from_micros((random >> 20) % 30_000));
        service.kill();
        add.wait().unwrap();
    }
    let _ = Ran::of(&mut machine.command(&["hold", "add", "a", "governor=performance", "max-freq=2GHz"]));
    machine.expect(0, &["hold", "status"]);
    assert_eq!((machine.read(GOVERNOR), machine.read(MAX)), ("performance".into(), "2000000".into()));
    machine.expect(0, &["hold", "release", "--all"]);
    assert_eq!(machine.read(GOVERNOR), "powersave");
    let mut last = machine.dump();
    // The other program's last value may have been there when the hold was added again.
    last.insert(machine.file(MAX), first[&machine.file(MAX)].clone());
    assert_eq!(last, first);
}

/// The service trusts its configuration as root.
#[test]
fn a_configuration_that_others_may_write_is_refused() {
    let machine = Machine::new(1);
    let config = machine.path().join("hold.toml");
    std::fs::write(&config, "[[when]]\nprofile = \"latency\"\n").unwrap();
    std::fs::set_permissions(&config, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let run = ["hold", "run", "--config", config.to_str().unwrap()];
    let said = machine.expect(2, &run).err;
    assert!(said.contains("another user could have written it"), "{said}");
    // A FIFO without a writer reads as a file without holds.
    std::fs::remove_file(&config).unwrap();
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    let said = machine.expect(2, &run).err;
    assert!(said.contains("not a regular file"), "{said}");
    // The same for a profile in the configuration.
    std::fs::remove_file(&config).unwrap();
    let profile = machine.path().join("mine.toml");
    std::fs::write(&profile, "governor = \"performance\"\n").unwrap();
    std::fs::set_permissions(&profile, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    std::fs::write(&config, format!("[[when]]\nprofile = \"{}\"\n", profile.display())).unwrap();
    let first = machine.dump();
    let Some(service) = Service::start(&machine, &run[2..]) else { return };
    let status = machine.json(5, &["hold", "status"]);
    let error = status["config_error"].as_str().unwrap();
    assert!(error.contains("another user could have written it"), "{error}");
    assert_eq!(machine.dump(), first);
    drop(service);
}

#[test]
fn a_configuration_that_is_wrong_writes_nothing_and_says_where() {
    let machine = Machine::new(1);
    let config = machine.path().join("hold.toml");
    let first = machine.dump();
    std::fs::write(
        &config,
        "[[when]]\nprofile = \"./none.toml\"\n[[when]]\nprofile = \"latency\"\nwind = \"strong\"\n",
    )
    .unwrap();
    let words = ["--config", config.to_str().unwrap()];
    let Some(service) = Service::start(&machine, &words) else { return };
    let status = machine.json(5, &["hold", "status"]);
    let error = status["config_error"].as_str().unwrap();
    assert!(error.contains("hold.toml:5:1: ") && error.contains("wind"), "{error}");
    assert_eq!((machine.dump(), &status["holds"]), (first.clone(), &serde_json::json!([])));
    drop(service);
    // An error in a profile counts as one in the configuration.
    let profile = machine.path().join("fast.toml");
    std::fs::write(&profile, "\ngovernor = \"performance\"\ngovenor = \"x\"\n").unwrap();
    let text = format!("[[when]]\nprofile = \"{}\"\n", profile.display());
    std::fs::write(&config, &text).unwrap();
    let service = Service::start(&machine, &words).unwrap();
    let status = machine.json(5, &["hold", "status"]);
    assert!(status["config_error"].as_str().unwrap().contains("fast.toml line 3"), "{status}");
    assert_eq!(machine.dump(), first);
    drop(service);
    // If this machine does not support a profile, that is reported, and none of its settings is
    // written.
    std::fs::write(&profile, "governor = \"performance\"\nturbo = false\n").unwrap();
    let service = Service::start(&machine, &words).unwrap();
    let status = machine.json(5, &["hold", "status"]);
    assert!(status["failure"].as_str().is_some_and(|failure| failure.contains("turbo")), "{status}");
    assert_eq!(machine.dump(), first);
    drop(service);
    std::fs::write(&profile, "governor = \"performance\"\n").unwrap();
    let _service = Service::start(&machine, &words).unwrap();
    // A second service is rejected and changes nothing.
    machine.expect(6, &["hold", "run"]);
    assert!(eventually(|| machine.read(GOVERNOR) == "performance"));
    machine.expect(2, &["hold", "release", machine.json(0, &["hold", "list"])[0]["name"].as_str().unwrap()]);
    machine.expect(0, &["hold", "release", "--all"]);
    assert_eq!(machine.dump(), first);
}

/// Holds the machine's lock for some seconds, like another command.
pub(crate) fn hold_lock(machine: &Machine, seconds: u32) -> std::process::Child {
    let script = format!("exec 9<>\"$1\"; flock 9; echo; sleep {seconds}");
    let mut lock = Command::new("sh");
    lock.args(["-c", &script, "sh"]).arg(machine.journal().with_file_name("lock"));
    let mut locked = lock.stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(locked.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    locked
}

/// The CPU time of a process, in ticks of 10 ms.
fn spent(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Reloads with a file that cannot be read, and while another command has the lock.
#[test]
fn a_reload_ends_no_service() {
    let machine = Machine::new(1);
    let (config, profile) = (machine.path().join("hold.toml"), machine.path().join("fast.toml"));
    std::fs::write(&profile, "governor = \"performance\"\n").unwrap();
    let text = format!("[[when]]\nprofile = \"{}\"\n", profile.display());
    std::fs::write(&config, &text).unwrap();
    let Some(service) = Service::start(&machine, &["--config", config.to_str().unwrap()]) else { return };
    let reload = || {
        let pid = service.0.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    };
    let error = || machine.json_of_any_code(&["hold", "status"])["config_error"].clone();
    std::fs::remove_file(&config).unwrap();
    reload();
    assert!(eventually(|| error().as_str().is_some_and(|error| error.contains("cannot read"))));
    assert_eq!(machine.read(GOVERNOR), "performance", "the last configuration counts");
    let mut locked = hold_lock(&machine, 3);
    std::fs::write(&config, &text).unwrap();
    reload();
    // It waits for the lock without busy polling.
    let before = spent(service.0.id());
    assert!(locked.wait().unwrap().success());
    assert!(spent(service.0.id()) - before < 50, "{} ticks", spent(service.0.id()) - before);
    assert!(eventually(|| error().is_null()), "{}", error());
    assert_eq!(
        machine.json_of_any_code(&["hold", "status"])["service"]["process"]["pid"],
        service.0.id(),
        "another service"
    );
}

#[test]
fn units_users_heat_and_limits_bring_holds_in_force() {
    let machine = Machine::new(2);
    let group = |path: &str| machine.path().join("sys/fs/cgroup").join(path);
    std::fs::create_dir_all(group("system.slice")).unwrap();
    std::fs::write(group("cgroup.procs"), "").unwrap();
    let sensor = machine.path().join("sys/class/hwmon/hwmon0");
    std::fs::create_dir_all(&sensor).unwrap();
    std::fs::write(sensor.join("name"), "coretemp\n").unwrap();
    let heat = |degrees: u32| std::fs::write(sensor.join("temp1_input"), format!("{degrees}000\n")).unwrap();
    heat(50);
    machine.expect(0, &["hold", "add", "db", "governor=performance", "--when", "unit=db.service"]);
    machine.expect(0, &["hold", "add", "ann", "min-freq=2GHz", "--when", "user=1000"]);
    let hot = ["hold", "add", "hot", "max-freq=1GHz", "--when", "temperature=90C", "--when", "for=2s"];
    machine.expect(0, &[&hot[..], &["--priority", "300"]].concat());
    let Some(_service) = Service::start(&machine, &[]) else { return };
    let why = machine.expect(0, &["hold", "status", "--why"]).out;
    assert!(why.contains("hold db is not in force: db.service has no processes"), "{why}");
    assert!(why.contains("the temperature is read every 2s, because the kernel does not report it"), "{why}");
    let set = |path: &str, populated: u32| {
        std::fs::create_dir_all(group(path)).unwrap();
        std::fs::write(group(path).join("cgroup.events"), format!("populated {populated}\n")).unwrap();
    };
    set("system.slice/db.service", 1);
    assert!(eventually(|| machine.read(GOVERNOR) == "performance"));
    set("user.slice/user-1000.slice", 1);
    assert!(eventually(|| machine.read("cpufreq/policy0/scaling_min_freq") == "2000000"));
    set("system.slice/db.service", 0);
    assert!(eventually(|| machine.read(GOVERNOR) == "powersave"));
    set("user.slice/user-1000.slice", 0);
    assert!(eventually(|| machine.read("cpufreq/policy0/scaling_min_freq") == "800000"));
    heat(95);
    let start = Instant::now();
    assert!(eventually(|| machine.read(MAX) == "1000000"));
    assert!(start.elapsed() > Duration::from_secs(2), "for=2s");
    assert!(eventually(|| machine.json_of_any_code(&["hold", "list"])[2]["in_force"] == true));
    heat(60);
    assert!(eventually(|| machine.read(MAX) == "4600000"));
}

/// A full file system: with a file size limit of one block, settings can be written but a journal
/// cannot.
#[test]
fn without_room_for_the_journal_nothing_is_set_and_the_old_holds_stay() {
    let machine = Machine::new(2);
    machine.expect(0, &["hold", "add", "a", "max-freq=2GHz"]);
    let (files, holds) = (machine.dump(), machine.json(0, &["hold", "list"]));
    for words in [&["hold", "add", "b", "governor=performance"] as &[_], &["hold", "run"]] {
        let command = machine.command(words);
        let mut limited = Command::new("sh");
        limited.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"]).arg(command.get_program());
        limited.args(command.get_args()).env("NO_COLOR", "1").stdin(Stdio::null());
        let ran = Ran::of(&mut limited);
        assert_eq!(ran.code, 1, "{words:?}: {}", ran.text());
        assert!(ran.err.contains("File too large"), "{}", ran.err);
        assert_eq!((machine.dump(), machine.json(0, &["hold", "list"])), (files.clone(), holds.clone()));
    }
    machine.expect(0, &["hold", "add", "b", "governor=performance"]);
    machine.expect(0, &["hold", "release", "--all"]);
    assert_eq!((machine.read(GOVERNOR), machine.read(MAX)), ("powersave".into(), "4600000".into()));
}

#[test]
fn what_is_held_at_boot_is_added_when_the_service_starts() {
    let machine = Machine::new(1);
    machine.expect(0, &["hold", "add", "calm", "powersave", "--at-boot", "--priority", "7"]);
    machine.expect(2, &["hold", "add", "b", "governor=performance", "--at-boot"]);
    let active = machine.path().join("var/lib/flyball/active");
    assert_eq!(std::fs::read_to_string(&active).unwrap(), "# NAME PRIORITY PROFILE\ncalm 7 powersave\n");
    // A reboot resets the kernel's settings, and removes the holds.
    let boot_id = machine.path().join("proc/sys/kernel/random/boot_id");
    std::fs::write(&boot_id, "3f1f7a44-0000-4000-8000-000000000002\n").unwrap();
    assert_eq!(machine.json(0, &["hold", "list"]), serde_json::json!([]));
    let Some(service) = Service::start(&machine, &[]) else { return };
    let list = machine.json(0, &["hold", "list"]);
    assert_eq!((&list[0]["name"], &list[0]["owner"]), (&"calm".into(), &"boot".into()));
    machine.expect(0, &["hold", "release", "calm"]);
    assert_eq!(std::fs::read_to_string(&active).unwrap(), "# NAME PRIORITY PROFILE\n");
    drop(service);
    // An invalid line adds nothing, and is reported.
    std::fs::write(&active, "# x\ncalm seven powersave\n").unwrap();
    let _service = Service::start(&machine, &[]).unwrap();
    let status = machine.json(5, &["hold", "status"]);
    assert!(status["config_error"].as_str().unwrap().contains("active:2:1: "), "{status}");
    assert_eq!(status["holds"], serde_json::json!([]));
}

#[test]
fn a_profile_is_applied_at_boot_by_a_unit_and_other_lines_are_only_printed() {
    let machine = Machine::new(1);
    let first = machine.dump();
    // A program that writes the same knobs.
    std::fs::create_dir_all(machine.path().join("proc/77")).unwrap();
    std::fs::write(machine.path().join("proc/77/comm"), "tuned\n").unwrap();
    let ran = machine.expect(0, &["apply", "powersave", "--at-boot"]);
    assert!(
        ran.out.contains("flyball-apply@powersave.service applies powersave at each boot"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("/etc/tmpfiles.d/flyball-powersave.conf"), "{}", ran.out);
    assert!(ran.err.contains("tuned (pid 77) also writes "), "{}", ran.err);
    assert!(ran.err.contains("systemctl disable --now tuned.service"), "{}", ran.err);
    let units = machine.path().join("etc/systemd/system");
    let link =
        std::fs::read_link(units.join("multi-user.target.wants/flyball-apply@powersave.service")).unwrap();
    assert_eq!(link.to_str().unwrap(), "/etc/systemd/system/flyball-apply@.service");
    let unit = std::fs::read_to_string(units.join("flyball-apply@.service")).unwrap();
    assert!(unit.contains("Type=oneshot") && unit.contains("/flyball apply %i"), "{unit}");
    assert_eq!(machine.dump(), first, "at boot, not now");
    // Running it again creates no files.
    assert_eq!(machine.json(0, &["apply", "powersave", "--at-boot"])["made"], serde_json::json!([]));
    machine.expect(2, &["apply", "governor=performance", "--at-boot"]);
    assert!(machine.expect(0, &["hold", "add", "a", "governor=performance"]).err.contains("tuned (pid 77)"));
}

#[test]
fn events_are_rehearsed_against_a_configuration() {
    let tree = flyball_testing::Tree::new();
    let policy = "/sys/devices/system/cpu/cpufreq/policy0";
    tree.put(
        "hold.toml",
        "[[when]]\nprofile = \"./cool.toml\"\npower = \"battery\"\n[[when]]\nprofile = \"./game.toml\"\nunit = \"game.service\"\n",
    );
    tree.put("cool.toml", "governor = \"powersave\"\nmax-freq = \"2GHz\"\n");
    tree.put("game.toml", "max-freq = \"3GHz\"\n");
    tree.put(
        "events",
        format!(
            "10s power battery\n20s starts unit game.service\n30s writes {policy}/scaling_max_freq 1500000 as tuned\n\
             40s ends unit game.service\n1h resume 8h\n"
        ),
    );
    let rehearse = |words: &[&str]| {
        let mut command = flyball!();
        command.current_dir(tree.path()).env("NO_COLOR", "1");
        command.args([
            "-M",
            "sim:ryzen-5750g",
            "hold",
            "rehearse",
            "--config",
            "hold.toml",
            "--events",
            "events",
        ]);
        Ran::of(command.args(words))
    };
    let ran = rehearse(&["--json"]);
    assert_eq!(ran.code, 0, "{}", ran.text());
    let answer = ran.json();
    let did = |event: &str| {
        let steps = answer["steps"].as_array().unwrap();
        let step =
            steps.iter().find(|step| step["event"].as_str().is_some_and(|text| text.starts_with(event)));
        step.unwrap()["did"].to_string()
    };
    assert!(did("power battery").contains("in force: config-1"), "{answer}");
    assert!(did("starts unit").contains("config-2"), "{answer}");
    let drift = did("writes");
    assert!(drift.contains("written by tuned") && drift.contains("corrected"), "{drift}");
    let knobs = answer["status"]["knobs"].as_array().unwrap();
    assert!(knobs.iter().any(|knob| knob["knob"] == "max-freq" && knob["wanted"] == "2 GHz"), "{answer}");
    let out = rehearse(&[]).out;
    assert!(out.contains("max-freq of CPUs"), "{out}");
    // The rehearsal has its own clock.
    assert!(!out.contains(" ago"), "{out}");
    // It has no processes either.
    assert!(!out.contains("(pid ") && !out.contains("service:"), "{out}");
    tree.put("events", "10s power wind\n");
    let ran = rehearse(&[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("events:1:1: 'power wind' is not an event"), "{}", ran.err);
    tree.put("events", "");
    tree.put("hold.toml", "[[when]]\nprofile = \"./none.toml\"\n");
    assert_eq!(rehearse(&[]).code, 5, "a profile that is not there");
}

/// Runs a command on a simulated machine whose state is stored below `tree`.
fn on_kept(tree: &flyball_testing::Tree, machine: &str, code: i32, words: &[&str]) -> Ran {
    let mut command = flyball!();
    command.args(["-M", machine, "--sim-state"]).arg(tree.path().join("machine"));
    let ran = Ran::of(command.arg("--state-dir").arg(tree.path().join("state")).args(words));
    assert_eq!(ran.code, code, "{words:?}: {}", ran.text());
    ran
}

#[test]
fn cpus_that_are_offline_are_named_and_not_called_held() {
    let tree = flyball_testing::Tree::new();
    let run = |code: i32, words: &[&str]| on_kept(&tree, "sim:ryzen-5750g,boot=nosmt", code, words);
    let added = run(0, &["hold", "add", "fast", "governor=performance"]);
    assert!(!added.err.contains("left out"), "{}", added.err);
    let status = run(0, &["hold", "status"]).out;
    let expected = "governor of CPUs 0-7: performance, held by fast\n\
                    governor of CPUs 8-15: offline; fast sets performance when they are online\n";
    assert!(status.contains(expected), "{status}");
}

#[test]
fn verify_and_status_name_the_hold_and_the_command_that_decide() {
    let tree = flyball_testing::Tree::new();
    let run = |code: i32, words: &[&str]| on_kept(&tree, "sim:ryzen-5750g", code, words);
    run(0, &["hold", "add", "night", "max-freq=2GHz", "--priority", "200"]);
    run(0, &["hold", "add", "trial", "max-freq=3GHz"]);
    let verified = run(5, &["verify", "max-freq=3GHz"]);
    assert!(verified.err.contains("the hold night sets max-freq of CPUs 0-15 to 2 GHz"), "{}", verified.err);
    let answer = run(5, &["verify", "max-freq=3GHz", "--json"]).json();
    assert_eq!(answer["held_by"][0]["hold"], "night", "{answer}");
    run(0, &["set", "max-freq=1GHz"]);
    let status = run(5, &["hold", "status"]).out;
    assert!(status.contains("but night sets 2 GHz (set by 'flyball "), "{status}");
    let refused = run(2, &["hold", "release"]);
    assert!(refused.err.contains("--all"), "{}", refused.err);
}

#[test]
fn the_service_needs_a_kernel_that_reports() {
    let ran = Ran::of(flyball!().args(["-M", "sim:ryzen-5750g", "hold", "run"]));
    assert_eq!(ran.code, 2, "{}", ran.text());
}

#[test]
fn a_configuration_is_checked_without_a_change() {
    let machine = Machine::new(1);
    let first = machine.dump();
    let config = machine.path().join("hold.toml");
    let check = |exit: i32, text: &str, words: &[&str]| {
        std::fs::write(&config, text).unwrap();
        machine.expect(exit, &[&["hold", "check", config.to_str().unwrap()], words].concat())
    };
    let good = "[[when]]\nprofile = \"balanced\"\n[[when]]\nprofile = \"latency\"\nkernel = \"<2.6\"\n";
    let out = check(0, good, &[]).out;
    assert!(
        out.contains("good, 2 entries") && out.contains("line 3: latency: not for this machine"),
        "{out}"
    );
    let error = check(2, "[[when]]\nprofile = \"latncy\"\n", &[]).err;
    assert!(error.contains("hold.toml:2:11: ") && error.contains("latncy"), "{error}");
    let error = check(2, "[[when]]\nprofile = \"balanced\"\nvendor = \"arm\"\n", &[]).err;
    assert!(error.contains("hold.toml:3:10: "), "{error}");
    std::fs::write(machine.path().join("no.toml"), "epb = 6\n").unwrap();
    let text = format!("[[when]]\nprofile = \"{}\"\n", machine.path().join("no.toml").display());
    let out = check(4, &text, &["--strict"]).out;
    assert!(out.contains("refused by this machine"), "{out}");
    assert_eq!(machine.dump(), first);
}

#[test]
fn a_hold_that_the_machine_refuses_is_in_force_nowhere() {
    let machine = Machine::new(1);
    let profile = machine.path().join("absent.toml");
    std::fs::write(&profile, "epb = 6\n").unwrap();
    let config = machine.path().join("hold.toml");
    std::fs::write(&config, format!("[[when]]\nprofile = \"{}\"\n", profile.display())).unwrap();
    let Some(service) = Service::start(&machine, &["--config", config.to_str().unwrap()]) else { return };
    // The service retries for a moment, because a driver may be creating its files.
    let is_refused = || {
        let status = machine.json_of_any_code(&["hold", "status"]);
        status["failure"].as_str().is_some_and(|why| why.contains("hold 'config-1"))
    };
    assert!(eventually(is_refused));
    let status = machine.json(5, &["hold", "status"]);
    assert_eq!(status["holds"][0]["in_force"], false, "{status}");
    assert!(status["holds"][0]["because"].as_str().unwrap().contains("epb"), "{status}");
    assert!(machine.expect(0, &["hold", "list"]).out.contains("no: "));
    let metrics = machine.expect(0, &["exporter", "--stdout"]).out;
    for line in ["flyball_hold_failed 1", "flyball_hold_service_up 1"] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(metrics.lines().any(|line| line.starts_with("flyball_hold_active{") && line.ends_with(" 0")));
    drop(service);
    let metrics = machine.expect(0, &["exporter", "--stdout"]).out;
    assert!(metrics.contains("flyball_hold_service_up 0"), "{metrics}");
}
