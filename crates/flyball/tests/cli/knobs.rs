//! Tests a user's own knobs in searches and comparisons, on a machine of plain files with a program
//! whose pool is a file. Everything must be restored, whatever fails or is killed, and a stopped
//! search must end like one that was not stopped.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use flyball_testing::Ran;
use serde_json::Value;

use crate::measure::Machine;

/// A machine with a service that has a pool, and a load whose score depends on pool and governor.
pub(crate) struct Service {
    pub machine: Machine,
}

pub(crate) const KNOB: &str =
    "[pool]\nvalues = [4, 8, 16]\nordered = true\nread = 'cat DIR/pool'\nwrite = 'echo {value} > DIR/pool'\n";

impl Service {
    pub(crate) fn new(knob: &str) -> Service {
        let machine = Machine::new();
        machine.put("pool", "4");
        let service = Service { machine };
        service.knob(knob);
        // The noise, up to 0.4 %, depends on the number of stored rounds, so a round that is
        // repeated after a kill has the same noise.
        let load = "cd DIR || exit 1\n\
            n=$(cat run-directory/rounds.jsonl run-directory/confirm*/rounds.jsonl 2>/dev/null | wc -l)\n\
            p=$(cat pool); g=$(cat sys/devices/system/cpu/cpufreq/policy0/scaling_governor)\n\
            case $p in 8) s=1200;; 16) s=1100;; *) s=1000;; esac\n\
            case $g in performance) s=$((s + 100));; powersave) s=$((s - 200));; esac\n\
            echo \"score: $((s * 100 + (n * 7919 + p * 31) % 401))\"\n";
        service.machine.put("load", &service.with_path(load));
        service
    }

    pub(crate) fn with_path(&self, text: &str) -> String {
        text.replace("DIR", &self.machine.path().display().to_string())
    }

    fn knob(&self, text: &str) {
        self.machine.put("knobs.toml", &self.with_path(text));
    }

    fn pool(&self) -> String {
        fs::read_to_string(self.machine.path().join("pool")).expect("it is there").trim().to_owned()
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.machine.flyball(words);
        command.current_dir(self.machine.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn tune(&self, words: &[&str]) -> Command {
        let space = "tune --knob knobs.toml --over pool=4,8,16 --maximize score --unit points/s --seed 1 --directory run-directory";
        let mut all: Vec<&str> = space.split(' ').collect();
        all.extend(words);
        all.extend(["--metric", "score: ([0-9]+)", "--", "sh", "load"]);
        self.command(&all)
    }

    /// Asserts that settings and journal are as before flyball.
    #[track_caller]
    pub(crate) fn is_restored(&self) {
        assert_eq!((self.pool().as_str(), self.machine.governor().as_str()), ("4", "schedutil"));
        assert!(!self.has_writes(), "the journal is empty");
    }

    /// Returns whether the journal has something to restore. A process that was killed before its
    /// first write leaves only the beginning of an entry.
    fn has_writes(&self) -> bool {
        let journal = fs::read_to_string(self.machine.path().join("run/flyball/journal"));
        journal.is_ok_and(|text| text.contains("{\"write\":"))
    }

    pub(crate) fn rounds(&self) -> usize {
        fs::read_to_string(self.machine.run_directory().join("rounds.jsonl"))
            .map_or(0, |text| text.lines().count())
    }
}

#[track_caller]
pub(crate) fn ends(mut command: Command, code: i32) -> Ran {
    let ran = Ran::of(&mut command);
    assert_eq!(ran.code, code, "{}", ran.text());
    ran
}

/// Returns the parts of a verdict that must not depend on how often the search was stopped.
fn verdict(ran: &Ran) -> (Value, Value) {
    let json = ran.json();
    (json["chosen"].clone(), json["keeps_now"].clone())
}

#[test]
fn a_search_sets_knobs_of_the_user_and_restores_them() {
    let service = Service::new(KNOB);
    let ran =
        ends(service.tune(&["--over", "governor=performance,powersave", "-o", "best.toml", "--json"]), 0);
    assert_eq!(verdict(&ran).0, "pool=8 governor=performance");
    service.is_restored();
    let profile = fs::read_to_string(service.machine.path().join("best.toml")).expect("a profile");
    assert!(profile.contains("# pool=8") && profile.contains("governor"), "{profile}");
    let again = ends(service.command(&["report", "run-directory", "--json"]), 0);
    assert_eq!(verdict(&again), verdict(&ran));
}

#[test]
fn a_comparison_takes_them_too() {
    let service = Service::new(KNOB);
    let words = "compare --knob knobs.toml --arm now --arm pool=8 --rounds 9 -o run-directory --unit points/s --metric";
    let words: Vec<&str> = words.split(' ').chain(["score: ([0-9]+)", "--", "sh", "load"]).collect();
    ends(service.command(&words), 0);
    service.is_restored();
    let bytes = fs::read(service.machine.run_directory().join("report.json")).expect("a report");
    let report: Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(report["comparisons"][0]["verdict"], "better");
}

/// A printed value may not be the current one, so the old value is always written back.
#[test]
fn a_knob_whose_value_does_not_show_is_written_back() {
    let service = Service::new(
        "[pool]\nvalues = [4, 8, 16]\nread = 'echo 4'\nwrite = 'echo {value} >> DIR/log; echo {value} > DIR/pool'\n",
    );
    let ran = ends(service.tune(&["--without", "pool=4"]), 1);
    assert!(
        ran.out.contains("No other setting could be run") && ran.err.contains("every setting but 'now'"),
        "{}",
        ran.text()
    );
    service.is_restored();
    let log = fs::read_to_string(service.machine.path().join("log")).expect("writes");
    assert!(log.contains("8\n4\n") && log.ends_with("4\n"), "{log}");
}

#[test]
fn a_knob_that_fails_is_rolled_back_and_left_out() {
    // 8, the best value, fails, and 16 reads back as another value. Only 4 and now remain.
    let service = Service::new(
        "[pool]\nvalues = [4, 8, 16]\nread = 'cat DIR/pool'\n\
         write = 'echo {value} > DIR/pool; case {value} in 8) echo full >&2; exit 3;; 16) echo 5 > DIR/pool;; esac'\n",
    );
    let ran = ends(service.tune(&["--json"]), 0);
    service.is_restored();
    assert!(ran.err.contains("exit status: 3: full"), "{}", ran.err);
    assert!(ran.err.contains("pool=16 was written and reads '5'"), "{}", ran.err);
    let rounds = fs::read_to_string(service.machine.run_directory().join("rounds.jsonl")).expect("rounds");
    let failed = |arm: usize| {
        let of_arm = format!("\"arm\":{arm},");
        rounds.lines().filter(|line| line.contains(&of_arm) && line.contains("\"failure\"")).count()
    };
    assert_eq!((failed(2), failed(3)), (2, 2), "each is tried twice");
}

#[test]
fn a_knob_that_sometimes_fails_stays_in_the_search() {
    let service = Service::new(
        "[pool]\nvalues = [4, 8, 16]\nread = 'cat DIR/pool'\n\
         write = 'echo x >> DIR/count; [ $(wc -l < DIR/count) = 4 ] && exit 1; echo {value} > DIR/pool'\n",
    );
    let ran = ends(service.tune(&["--json"]), 0);
    assert_eq!(verdict(&ran).0, "pool=8");
    service.is_restored();
}

#[test]
fn a_base_that_cannot_be_read_ends_the_search() {
    for (knob, why) in [
        ("read = 'date +%N'\nwrite = 'echo {value} > DIR/pool'", "the same each time"),
        ("read = 'cat DIR/none'\nwrite = 'echo {value} > DIR/pool'", "No such file"),
        ("read = 'echo a b'\nwrite = 'echo {value} > DIR/pool'", "not one word"),
    ] {
        let service = Service::new(&format!("[pool]\nvalues = [4, 8, 16]\n{knob}\n"));
        let ran = ends(service.tune(&[]), 1);
        assert!(ran.err.contains(why), "{}", ran.err);
        service.is_restored();
    }
}

#[test]
fn a_knob_without_read_is_restored_by_its_own_command() {
    let service = Service::new(
        "[pool]\nvalues = [4, 8, 16]\nwrite = 'echo {value} > DIR/pool'\nrestore = 'echo 4 > DIR/pool; echo x >> DIR/restored'\n",
    );
    let ran = ends(service.tune(&["--json"]), 0);
    assert_eq!(verdict(&ran).0, "pool=8");
    service.is_restored();
    assert!(service.machine.path().join("restored").exists());
    // A failed restore is reported, and stays in the journal.
    service.knob("[pool]\nvalues = [4, 8, 16]\nwrite = 'echo {value} > DIR/pool'\nrestore = 'test -e DIR/allowed && echo 4 > DIR/pool'\n");
    fs::remove_dir_all(service.machine.run_directory()).expect("removed");
    let ran = ends(service.tune(&[]), 3);
    assert!(ran.err.contains("knob pool"), "{}", ran.err);
    service.machine.put("allowed", "");
    ends(service.command(&["restore"]), 0);
    service.is_restored();
}

#[test]
fn files_that_cannot_be_trusted_or_used_are_refused() {
    let service = Service::new(KNOB);
    for (text, named) in [
        ("[pool]\nvalues = [4, 8]\nwrite = 'echo {value}'\n", "'read' or 'restore'"),
        (
            "[pool]\nvalues = [[4], 8]\nread = 'cat x'\nwrite = 'echo {value}'\n",
            "a value is a word in quotes or a number",
        ),
        ("[epp]\nvalues = [4, 8]\nread = 'cat x'\nwrite = 'echo {value}'\n", "choose another"),
        ("[pool]\nvalues = [4, 8, 16]\nread = 'cat x'\nwrite = 'echo 8'\n", "{value}"),
        ("[pool]\nvalues = [4, 8]\nread = 'cat x'\nwrite = 'echo {value}'\n", "the values of pool are 4, 8"),
        ("pool = 3\n", "knobs.toml"),
    ] {
        service.knob(text);
        let ran = ends(service.tune(&[]), 2);
        assert!(ran.err.contains(named), "{}", ran.err);
    }
    service.knob(KNOB);
    if flyball_process::is_root() {
        let path = service.machine.path().join("knobs.toml");
        let mode = |mode: u32| {
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("its mode");
        };
        mode(0o666);
        let ran = ends(service.tune(&[]), 2);
        assert!(ran.err.contains("other users can write to it"), "{}", ran.err);
        mode(0o644);
        std::os::unix::fs::chown(&path, Some(4242), None).expect("its owner");
        let ran = ends(service.tune(&[]), 2);
        assert!(ran.err.contains("belongs to user 4242"), "{}", ran.err);
    }
    // A simulated machine does not run the user's programs.
    let mut command = flyball_testing::flyball!();
    command.current_dir(service.machine.path()).args(
        "tune -M sim:ryzen-5750g --knob knobs.toml --over pool=4,8 --minimize time --workload gitsource"
            .split(' '),
    );
    assert!(ends(command, 2).err.contains("is a model"));
    service.is_restored();
}

fn wait(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_there() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(pid: u32, name: &str) {
    // The process may already have ended.
    let _ = Command::new("kill")
        .args([name, &pid.to_string()])
        .stderr(Stdio::null())
        .status()
        .expect("kill runs");
}

fn guardian_of(child: &Child) -> Option<u32> {
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let all = fs::read_to_string(children).ok()?;
    all.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.windows(8).any(|word| word == b"guardian"))
    })
}

#[test]
fn without_a_guardian_restore_undoes_them() {
    let service = Service::new(KNOB);
    let mut child = service.tune(&[]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
    wait("a value is set", || service.pool() == "16");
    signal(guardian_of(&child).expect("a guardian"), "-KILL");
    child.kill().expect("killed");
    child.wait().expect("dead");
    // The commands are in the journal, so the file is not needed.
    fs::remove_file(service.machine.path().join("knobs.toml")).expect("removed");
    ends(service.command(&["restore"]), 0);
    service.is_restored();
}

/// Kills searches at random moments, resumes them until they finish, and compares the results with
/// a search that was not stopped.
fn kills(seed: u64, searches: usize) {
    let undisturbed = Service::new(KNOB);
    let space = ["--over", "governor=performance,powersave", "--json"];
    let expected = verdict(&ends(undisturbed.tune(&space), 0));
    let mut state = seed;
    let mut random = |below: u64| {
        // A linear congruential generator, which gives the same moments for the same seed.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut killed, mut interrupted) = (0, 0);
    for _ in 0..searches {
        let service = Service::new(KNOB);
        let mut rounds = 0;
        loop {
            let is_begun = service.machine.run_directory().join("search.json").exists();
            if !is_begun && service.machine.run_directory().exists() {
                // Killed before the search was described, so nothing has run.
                fs::remove_dir_all(service.machine.run_directory()).expect("removed");
            }
            let mut command = if is_begun {
                service.command(&["tune", "--resume", "run-directory", "--json"])
            } else {
                service.tune(&space)
            };
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
            let until = Instant::now() + Duration::from_millis(100 + random(2000));
            let mut ended = None;
            while Instant::now() < until && ended.is_none() {
                std::thread::sleep(Duration::from_millis(2));
                ended = child.try_wait().expect("a status");
            }
            if ended.is_some() {
                let output = child.wait_with_output().expect("its output");
                if output.status.code() == Some(6) {
                    // The guardian has restored and is about to release the lock.
                    continue;
                }
                assert!(output.status.success(), "{}", output.status);
                let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
                assert_eq!((json["chosen"].clone(), json["keeps_now"].clone()), expected, "seed {seed}");
                break;
            }
            if random(3) == 0 {
                interrupted += 1;
                signal(child.id(), "-INT");
            } else {
                killed += 1;
                child.kill().expect("killed");
            }
            child.wait().expect("dead");
            // After a kill, the guardian restores and then releases the lock.
            wait("everything is restored", || {
                service.pool() == "4" && service.machine.governor() == "schedutil" && !service.has_writes()
            });
            assert!(service.rounds() >= rounds, "rounds are kept");
            rounds = service.rounds();
        }
        service.is_restored();
    }
    println!(
        "{searches} searches, {killed} kills, {interrupted} interrupts, seed {seed}: all restored, same verdict"
    );
}

#[test]
fn killed_searches_are_restored_and_end_as_others() {
    // FLYBALL_TUNE_KILLS sets the number of searches.
    let searches = std::env::var("FLYBALL_TUNE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    kills(20_261_123, searches);
}
