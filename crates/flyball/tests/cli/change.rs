//! Tests the commands that change a machine, on a machine of plain files: exit codes, writes, and
//! what is left after kill -9.

use flyball_testing::{Ran, Tree, flyball};
use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// A machine of plain files with its state directory inside.
pub(crate) struct Machine {
    tree: Tree,
}

impl Machine {
    pub(crate) fn new(cpus: usize) -> Machine {
        let tree = Tree::new();
        let put = |path: String, text: &str| tree.put(path, format!("{text}\n"));
        let cpu = "sys/devices/system/cpu";
        for name in ["online", "present", "possible"] {
            put(format!("{cpu}/{name}"), &format!("0-{}", cpus - 1));
        }
        put(format!("{cpu}/offline"), "");
        put("proc/sys/kernel/random/boot_id".to_owned(), "3f1f7a44-0000-4000-8000-5a5a5a5a5a5a");
        for number in 0..cpus {
            let policy = format!("{cpu}/cpufreq/policy{number}");
            for (name, value) in [
                ("related_cpus", number.to_string().as_str()),
                ("affected_cpus", number.to_string().as_str()),
                ("scaling_driver", "intel_pstate"),
                ("scaling_governor", "powersave"),
                ("scaling_available_governors", "performance powersave"),
                ("energy_performance_preference", "balance_performance"),
                (
                    "energy_performance_available_preferences",
                    "default performance balance_performance balance_power power",
                ),
                ("scaling_min_freq", "800000"),
                ("scaling_max_freq", "4600000"),
                ("cpuinfo_min_freq", "800000"),
                ("cpuinfo_max_freq", "4600000"),
            ] {
                put(format!("{policy}/{name}"), value);
            }
            put(format!("{cpu}/cpu{number}/power/pm_qos_resume_latency_us"), "0");
        }
        Machine { tree }
    }

    pub(crate) fn path(&self) -> &Path {
        self.tree.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join("sys/devices/system/cpu").join(name)
    }

    /// Returns the content of a file below the folder of the CPUs.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap().trim().to_owned()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = flyball!();
        command.arg("-M").arg(format!("tree:{}", self.path().display())).args(arguments);
        command.env("NO_COLOR", "1").stdin(Stdio::null());
        command
    }

    /// Runs and checks the exit code.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, arguments: &[&str]) -> Ran {
        let ran = Ran::of(&mut self.command(arguments));
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.text());
        ran
    }

    /// Runs with `--json` and checks the exit code. Returns the output.
    #[track_caller]
    pub(crate) fn json(&self, code: i32, arguments: &[&str]) -> serde_json::Value {
        self.expect(code, &[arguments, &["--json"]].concat()).json()
    }

    /// Returns the length of a list in the output, such as planned or made changes.
    fn count(&self, list: &str, arguments: &[&str]) -> usize {
        self.json(0, arguments)[list].as_array().unwrap().len()
    }

    /// Every file of sys.
    pub(crate) fn dump(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.path().join("sys")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if name.starts_with('.') && name.ends_with(".new") {
                    // Left by a killed write to a plain file. A kernel has no such files.
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let content = std::fs::read(&path).unwrap();
                    files.insert(path, content);
                }
            }
        }
        files
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.path().join("run/flyball/journal")
    }

    /// Waits until a condition is true, for at most half a minute.
    fn wait_for(&self, what: &str, is: impl Fn() -> bool) {
        let start = Instant::now();
        while !is() {
            assert!(start.elapsed() < Duration::from_secs(30), "{what} did not come");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn settings_are_applied_verified_and_restored() {
    let tree = Machine::new(4);
    let first = tree.dump();
    let plan = tree.json(0, &["plan", "governor=performance", "max-freq=2GHz", "-c", "1-2"]);
    let changes = plan["changes"].as_array().unwrap();
    let governor =
        changes.iter().find(|change| change["knob"] == "governor" && change["cpus"] == "1").unwrap();
    assert!(governor["location"].as_str().unwrap().ends_with("policy1/scaling_governor"), "{governor}");
    assert_eq!((&governor["old"], &governor["new"]), (&"powersave".into(), &"performance".into()));
    assert!(changes.iter().all(|change| change["cpus"] != "0"), "{plan}");
    assert_eq!(first, tree.dump(), "a plan writes nothing");
    assert!(!tree.journal().exists());

    tree.expect(0, &["set", "max-freq=2GHz", "latency-limit=20us", "-c", "1-2"]);
    assert_eq!(tree.read("cpufreq/policy1/scaling_max_freq"), "2000000");
    assert_eq!(tree.read("cpufreq/policy0/scaling_max_freq"), "4600000");
    assert_eq!(tree.count("made", &["set", "max-freq=2GHz", "-c", "1-2"]), 0);
    assert_eq!(tree.count("drifted", &["verify", "max-freq=2GHz", "-c", "1-2"]), 0);

    std::fs::write(tree.file("cpufreq/policy2/scaling_max_freq"), "3000000\n").unwrap();
    tree.tree.put("proc/77/comm", "thermald\n");
    let report = tree.json(5, &["verify", "max-freq=2GHz", "-c", "1-2"]);
    let drifted = report["drifted"].as_array().unwrap();
    assert_eq!(drifted.len(), 1, "{report}");
    assert_eq!(
        (&drifted[0]["knob"], &drifted[0]["cpus"], &drifted[0]["old"], &drifted[0]["new"]),
        (&"max-freq".into(), &"2".into(), &"3000000".into(), &"2000000".into())
    );
    assert!(report["owners"].to_string().contains("thermald"), "{report}");

    assert_eq!(tree.count("undo", &["restore", "-n"]), 1);
    tree.expect(0, &["restore"]);
    assert_eq!(first, tree.dump());
    assert!(!tree.journal().exists());
    assert_eq!(tree.count("undone", &["restore"]), 0);
}

#[test]
fn mistakes_have_their_exit_code_and_their_remedy() {
    let tree = Machine::new(4);
    let first = tree.dump();
    for (code, arguments, words) in [
        (2, &["set", "govenor=performance"][..], "governor"),
        (2, &["set", "governor=ondemand"], "performance, powersave"),
        (2, &["set", "max-freq=2000000"], "unit"),
        (2, &["set", "max-freq=5GHz"], "4.6 GHz"),
        (2, &["set", "min-freq=3GHz", "max-freq=2GHz"], "above"),
        (2, &["set", "governor=performance", "epp=power"], "EBUSY"),
        (2, &["set", "governor=performance", "-c", "9"], "0-3"),
        (2, &["set", "governor=performance", "-c", "x"], "CPU"),
        (2, &["set", "driver=acpi-cpufreq"], "fact"),
        (2, &["set", "governor"], "KNOB=VALUE"),
        (2, &["apply", "/nonexistent.toml"], "nonexistent"),
        (4, &["set", "turbo=off"], "turbo"),
        (4, &["set", "uncore-max-freq=1GHz"], "uncore"),
    ] {
        let ran = tree.expect(code, arguments);
        assert!(ran.err.contains(words), "{arguments:?}: {}", ran.err);
    }
    assert_eq!(first, tree.dump());
}

#[test]
fn a_write_that_fails_is_undone_and_named() {
    let tree = Machine::new(4);
    let first = tree.dump();
    // A directory in the file's place, because root can write a read-only file.
    let refusing = tree.file("cpufreq/policy3/scaling_governor");
    let mut rights = std::fs::metadata(&refusing).unwrap().permissions();
    rights.set_readonly(true);
    std::fs::set_permissions(&refusing, rights).unwrap();
    let words = tree.expect(1, &["set", "governor=performance"]).err;
    assert!(words.contains("policy3/scaling_governor") && words.contains("EACCES"), "{words}");
    assert_eq!(first, tree.dump());
}

#[test]
fn a_profile_goes_round() {
    let tree = Machine::new(4);
    let first = tree.dump();
    let profile = tree.path().join("p.toml");
    std::fs::write(&profile, "governor = \"performance\"\n[cpus.\"2-3\"]\nmax-freq = \"2GHz\"\n").unwrap();
    let saved = tree.path().join("saved.toml");
    let (profile, saved) = (profile.to_str().unwrap(), saved.to_str().unwrap());
    tree.expect(0, &["save", saved]);
    tree.expect(2, &["save", saved]);
    tree.expect(0, &["save", "--force", saved]);
    assert_eq!(tree.count("changes", &["plan", saved]), 0, "a saved profile changes nothing");
    tree.expect(0, &["apply", profile]);
    tree.expect(0, &["verify", profile]);
    tree.expect(5, &["verify", saved]);
    tree.expect(0, &["apply", saved]);
    tree.expect(0, &["verify", saved]);
    assert_eq!(first, tree.dump());
    std::fs::write(profile, "governor = \"performance\"\nmax-freq = 2000000\n").unwrap();
    assert!(tree.expect(2, &["apply", profile]).err.contains("line 2"));
    std::fs::write(profile, "governor = \"perf").unwrap();
    tree.expect(2, &["apply", profile]);
    tree.expect(0, &["restore"]);
    assert_eq!(first, tree.dump());
}

#[test]
fn restore_last_counts_what_is_still_in_effect() {
    let tree = Machine::new(8);
    for setting in ["governor=performance", "max-freq=2GHz", "latency-limit=30us"] {
        tree.expect(0, &["set", setting]);
    }
    for left in ["the settings of 2 earlier commands", "the settings of 1 earlier command are", ""] {
        let note = tree.expect(0, &["restore", "--last"]).err;
        assert!(note.contains(left) && note.contains("earlier") != left.is_empty(), "{note}");
    }
}

#[test]
fn killed_with_sigkill_it_is_restored() {
    let tree = Machine::new(96);
    let first = tree.dump();
    let mut caught = 0;
    for round in 0..12u64 {
        let mut child = tree
            .command(&["set", "governor=performance", "min-freq=1GHz", "max-freq=2GHz", "latency-limit=30us"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        tree.wait_for("the journal", || tree.journal().exists() || child_is_done(&child));
        std::thread::sleep(Duration::from_millis(3 * round));
        child.kill().unwrap();
        if child.wait().unwrap().signal() == Some(9) {
            caught += 1;
            let next = Ran::of(&mut tree.command(&["set", "governor=performance"]));
            // If it was killed before the first record or after the last, nothing is pending.
            if next.code == 1 {
                assert!(next.err.contains("restore --last"), "the remedy is named: {}", next.err);
            }
        }
        tree.expect(0, &["restore"]);
        assert_eq!(first, tree.dump(), "round {round}");
    }
    assert!(caught > 0, "none was killed in the middle");
}

fn child_is_done(child: &std::process::Child) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    state.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('Z'))
}

#[test]
fn the_guardian_restores_when_flyball_is_killed() {
    let tree = Machine::new(8);
    let first = tree.dump();
    let mut child = tree
        .command(&["run", "governor=performance", "--", "sleep", "60"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let governor = tree.file("cpufreq/policy7/scaling_governor");
    tree.wait_for("the governor", || {
        std::fs::read_to_string(&governor).is_ok_and(|text| text == "performance\n")
    });
    // While the lock is held, a second command fails and names the holder.
    let words = tree.expect(6, &["set", "governor=powersave"]).err;
    assert!(words.contains(&format!("(pid {})", child.id())), "{words}");
    child.kill().unwrap();
    child.wait().unwrap();
    tree.wait_for("the guardian", || !tree.journal().exists());
    assert_eq!(first, tree.dump());
}

/// Settings that would slow the machine to a crawl, or could not be undone, are rejected before
/// anything is written.
#[test]
fn power_limits_of_nothing_and_windows_that_cannot_come_back_are_refused() {
    let tree = Machine::new(2);
    for (name, value) in [
        ("name", "package-0"),
        ("constraint_0_name", "short_term"),
        ("constraint_0_power_limit_uw", "150000000"),
        ("constraint_0_time_window_us", "2440"),
        ("constraint_0_max_power_uw", "0"),
    ] {
        tree.tree.put(format!("sys/class/powercap/intel-rapl:0/{name}"), format!("{value}\n"));
    }
    let first = tree.dump();
    for (setting, words) in [
        ("power-limit=max", "no maximum power"),
        ("power-limit=min", "65W"),
        ("power-limit=0W", "at least 1 W"),
        ("power-limit=15mW", "at least 1 W"),
        ("power-window=10ms", "could not be restored"),
    ] {
        let ran = tree.expect(2, &["set", setting]);
        assert!(ran.err.contains(words), "{setting}: {}", ran.err);
    }
    assert_eq!(first, tree.dump());
    tree.expect(0, &["set", "power-limit=65W"]);
    assert_eq!(tree.count("made", &["set", "power-window=2440us"]), 0);
    tree.expect(0, &["restore"]);
    assert_eq!(first, tree.dump());
}

/// A Speed Select level brings its own power limits. Undoing a power limit set in the same command
/// must restore the original.
#[test]
fn a_level_and_a_power_limit_together_are_undone_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = flyball!();
        command.args(["-M", "sim:tpmi-small", "--sim-state", "box"]).args(arguments);
        let ran = Ran::of(command.current_dir(folder.path()));
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.text());
        ran.out
    };
    let settings = || {
        let knobs = ["power-limit", "trl", "uncore-max-freq", "uncore-min-freq", "max-freq", "sst-level"];
        run(&["get", "--json"].iter().chain(&knobs).copied().collect::<Vec<_>>())
    };
    let first = settings();
    run(&["set", "sst-level=3", "power-limit:long_term=40W"]);
    assert_ne!(first, settings());
    run(&["restore"]);
    assert_eq!(first, settings());
}

/// Once the limits of a package's entry are written, the driver rejects values outside of them for
/// a cluster. Clusters of IO dies have other ranges than those of cores.
#[test]
fn limits_of_uncore_clusters_are_set_and_undone() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &str| {
        let mut command = flyball!();
        command.args(["-M", "sim:tpmi-small", "--sim-state", "box"]).args(words.split(' '));
        let ran = Ran::of(command.current_dir(folder.path()));
        assert_eq!(ran.code, 0, "{words}: {}", ran.text());
        ran.out
    };
    let settings = || run("get --json uncore-min-freq uncore-max-freq");
    let first = settings();
    assert!(first.contains("2500000") && first.contains("2200000"), "{first}");
    for steps in [
        &["apply latency", "verify latency"][..],
        &["set uncore-max-freq=min", "set uncore-max-freq=max", "set uncore-min-freq=max"],
        &["set uncore-min-freq=max", "set uncore-min-freq=min", "set uncore-min-freq:uncore01=1GHz"],
        &["set uncore-max-freq=1GHz uncore-min-freq=1GHz", "apply realtime", "apply hpc", "verify hpc"],
        &[
            "set uncore-min-freq:package_00_die_00=2GHz",
            "set uncore-min-freq:uncore00=2.2GHz",
            "apply powersave",
        ],
    ] {
        for step in steps {
            run(step);
        }
        run("restore");
        assert_eq!(first, settings(), "{steps:?}");
    }
}

/// A file size limit acts like a full file system: a write fails in the middle of a line.
#[test]
fn a_journal_that_cannot_be_written_leaves_nothing_changed_and_nothing_open() {
    let tree = Machine::new(8);
    tree.expect(0, &["set", "max-freq=2GHz", "-c", "0"]);
    let kept = tree.dump();
    let journal = std::fs::read(tree.journal()).unwrap();
    let mut limited = Command::new("sh");
    let script = r#"ulimit -f 4; exec "$0" "$@""#;
    limited.args(["-c", script, env!("CARGO_BIN_EXE_flyball"), "-M"]);
    limited.arg(format!("tree:{}", tree.path().display()));
    let ran = Ran::of(limited.args(["set", "governor=performance", "min-freq=1GHz"]));
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_eq!(kept, tree.dump());
    let now = std::fs::read(tree.journal()).unwrap();
    assert!(now.starts_with(&journal));
    // The next command finds a valid journal with nothing pending.
    assert_eq!(tree.count("undo", &["restore", "-n"]), 1);
    tree.expect(0, &["set", "governor=performance"]);
    tree.expect(0, &["restore"]);
    assert!(!tree.journal().exists(), "a damaged journal would be kept");
}

/// Settings that can never be restored must not block later changes.
#[test]
fn what_cannot_be_restored_can_be_forgotten() {
    let tree = Machine::new(2);
    tree.expect(0, &["set", "governor=performance", "max-freq=2GHz"]);
    std::fs::remove_dir_all(tree.file("cpufreq/policy1")).unwrap();
    let words = tree.expect(3, &["restore"]).text();
    assert!(words.contains("policy1") && words.contains("--forget"), "{words}");
    assert!(tree.journal().exists());
    tree.expect(3, &["restore", "--forget"]);
    assert!(!tree.journal().exists());
    assert_eq!(tree.count("undone", &["restore"]), 0);
    assert_eq!(tree.read("cpufreq/policy0/scaling_governor"), "powersave");
}

#[test]
fn a_journal_of_an_earlier_boot_is_not_replayed() {
    let tree = Machine::new(2);
    tree.expect(0, &["set", "governor=performance"]);
    let boot = tree.path().join("proc/sys/kernel/random/boot_id");
    std::fs::write(&boot, "00000000-0000-4000-8000-000000000000\n").unwrap();
    let before = tree.dump();
    assert_eq!(tree.count("undone", &["restore"]), 0);
    assert_eq!(before, tree.dump());
    // It does not block other changes.
    tree.expect(0, &["set", "governor=powersave"]);
    tree.expect(0, &["restore"]);
    assert_eq!(before, tree.dump());
}

#[test]
fn a_recording_is_planned_for_and_never_written() {
    let tree = Machine::new(2);
    let first = tree.dump();
    let folder = tree.path().to_str().unwrap();
    let run = |arguments: &[&str]| Ran::of(flyball!().arg("-M").arg(folder).args(arguments));
    let plan = run(&["plan", "governor=performance", "--json"]);
    assert_eq!(plan.json()["changes"].as_array().unwrap().len(), 2);
    assert_eq!(run(&["set", "governor=performance"]).code, 2);
    assert_eq!(first, tree.dump());
}

/// If stdout or stderr cannot be written (a full disk behind `>log`), the exit code says so, and
/// the settings are as the command reports.
#[test]
fn an_output_that_cannot_be_written_is_no_reason_to_leave_a_change_half_done() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let governor = |tree: &Machine| tree.read("cpufreq/policy1/scaling_governor");
    let tree = Machine::new(2);
    // A failure's own code is more useful than that of an unwritten message.
    for (words, code) in [(&["set", "governor=performance"][..], 10), (&["set", "turbo=off"], 4)] {
        assert_eq!(Ran::of(tree.command(words).stderr(full())).code, code, "{words:?}");
    }
    assert_eq!(governor(&tree), "performance");
    let ran = Ran::of(tree.command(&["restore"]).stdout(full()));
    assert_eq!((ran.code, governor(&tree).as_str()), (10, "powersave"), "{}", ran.err);
    let ran = Ran::of(tree.command(&["set", "governor=performance"]).stdout(full()));
    assert_eq!((ran.code, governor(&tree).as_str()), (10, "performance"), "{}", ran.err);
    assert!(tree.journal().exists(), "it can be restored");
    tree.expect(0, &["restore"]);
    // The command's own code is kept, and everything is restored.
    for code in [0, 7] {
        let mut command = tree.command(&["run", "governor=performance", "--user", "root", "--"]);
        command.args(["sh", "-c", &format!("exit {code}")]).stderr(full());
        let ended = Ran::of(&mut command).code;
        // Without root, the command cannot run as another user.
        assert!(ended == code || ended == 2, "{ended}");
        assert_eq!(governor(&tree), "powersave");
    }
}

/// With a file size limit (`ulimit -f`), the kernel sends SIGXFSZ, whose default action would kill
/// flyball between its writes and the commit.
#[test]
fn a_limit_on_files_leaves_nothing_half_done() {
    let tree = Machine::new(8);
    let read =
        || (0..8).map(|cpu| tree.read(&format!("cpufreq/policy{cpu}/scaling_governor"))).collect::<Vec<_>>();
    let first = read();
    let mut failed = 0;
    // Blocks of 512 bytes, from none to more than the journal needs.
    for blocks in [0, 1, 2, 4, 6, 8, 12, 16, 64] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -f {blocks}; exec \"$0\" \"$@\"")]);
        let set = tree.command(&["set", "governor=performance"]);
        command.arg(set.get_program()).args(set.get_args()).env("NO_COLOR", "1");
        let ran = Ran::of(&mut command);
        match ran.code {
            0 => assert!(read().iter().all(|governor| governor == "performance")),
            1 => failed += 1,
            code => panic!("{blocks} blocks: {code}: {}", ran.text()),
        }
        if ran.code == 1 {
            assert_eq!(read(), first, "{blocks} blocks: {}", ran.text());
        }
        tree.expect(0, &["restore"]);
        assert_eq!(read(), first);
    }
    assert!((1..9).contains(&failed), "{failed} failed");
}

/// Without /sys, every command ends with the same exit code.
#[test]
fn a_machine_without_sysfs_is_one_that_lacks_what_is_asked_for() {
    let tree = Tree::new();
    std::fs::create_dir_all(tree.path().join("sys")).unwrap();
    for words in [
        &["show"][..],
        &["get", "governor"],
        &["set", "governor=performance"],
        &["plan", "governor=performance"],
        &["verify", "governor=performance"],
        &["save", "-"],
        &["run", "governor=performance", "--", "true"],
        &["compare", "--arm", "now", "--arm", "x: governor=performance", "--", "true"],
    ] {
        let mut command = flyball!();
        command.arg("-M").arg(format!("tree:{}", tree.path().display())).args(words).current_dir(tree.path());
        let ran = Ran::of(&mut command);
        assert_eq!(ran.code, 4, "{words:?}: {}", ran.text());
    }
}
