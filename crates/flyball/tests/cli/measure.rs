//! Tests `compare`, `run` and `report` as a user runs them: on the live machine without settings,
//! and on a tree of plain files, where the workload itself can see its arm.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use flyball_testing::{Ran, Tree, flyball, skip};
use serde_json::Value;

/// A machine of plain files: two CPUs in one policy, and a driver with two governors.
pub(crate) struct Machine {
    tree: Tree,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        let machine = Machine { tree: Tree::new() };
        let cpu = "sys/devices/system/cpu";
        for (path, text) in [
            ("online", "0-1"),
            ("possible", "0-1"),
            ("present", "0-1"),
            ("cpu0/topology/physical_package_id", "0"),
            ("cpu0/topology/core_id", "0"),
            ("cpu1/topology/physical_package_id", "0"),
            ("cpu1/topology/core_id", "1"),
            ("cpufreq/policy0/affected_cpus", "0 1"),
            ("cpufreq/policy0/related_cpus", "0 1"),
            ("cpufreq/policy0/scaling_driver", "acpi-cpufreq"),
            ("cpufreq/policy0/scaling_governor", "schedutil"),
            ("cpufreq/policy0/scaling_available_governors", "performance powersave schedutil"),
            ("cpufreq/policy0/cpuinfo_min_freq", "1000000"),
            ("cpufreq/policy0/cpuinfo_max_freq", "3000000"),
            ("cpufreq/policy0/scaling_min_freq", "1000000"),
            ("cpufreq/policy0/scaling_max_freq", "3000000"),
            ("cpufreq/policy0/scaling_cur_freq", "2000000"),
        ] {
            machine.put(&format!("{cpu}/{path}"), text);
        }
        for number in 0..2 {
            let link = machine.path().join(format!("{cpu}/cpu{number}/cpufreq"));
            std::os::unix::fs::symlink("../cpufreq/policy0", link).expect("a link");
        }
        machine.put("proc/cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: A Processor\n");
        machine.put("proc/cmdline", "quiet");
        machine.put("proc/sys/kernel/random/boot_id", "one");
        machine
    }

    pub(crate) fn path(&self) -> &Path {
        self.tree.path()
    }

    pub(crate) fn put(&self, path: &str, line: &str) {
        self.tree.put(path, format!("{line}\n"));
    }

    fn governor_file(&self) -> PathBuf {
        self.path().join("sys/devices/system/cpu/cpufreq/policy0/scaling_governor")
    }

    pub(crate) fn governor(&self) -> String {
        fs::read_to_string(self.governor_file()).expect("it is there").trim().to_owned()
    }

    pub(crate) fn run_directory(&self) -> PathBuf {
        self.path().join("run-directory")
    }

    pub(crate) fn flyball(&self, words: &[&str]) -> Command {
        let mut command = flyball(&["-M", &format!("tree:{}", self.path().display())]);
        command.args(words);
        command
    }

    pub(crate) fn wait_for(&self, governor: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.governor() != governor {
            assert!(Instant::now() < deadline, "the governor is {}, not {governor}", self.governor());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn flyball(words: &[&str]) -> Command {
    let mut command = flyball!();
    command.args(words).stdin(Stdio::null());
    command
}

#[track_caller]
fn ends(mut command: Command, code: i32) -> Ran {
    let ran = Ran::of(&mut command);
    assert_eq!(ran.code, code, "{}", ran.text());
    ran
}

fn report(directory: &Path) -> Value {
    let bytes = fs::read(directory.join("report.json")).expect("there is a report");
    serde_json::from_slice(&bytes).expect("it is JSON")
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
}

/// docs/dev/sentences.md lists the printed sentences, with the conditions under which they are
/// true.
#[test]
fn every_listed_sentence_is_one_that_the_code_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &Path| fs::read_to_string(path).expect("a file of the repository");
    let mut code = String::new();
    let mut open: Vec<PathBuf> = ["flyball-measure/src", "flyball-tune/src", "flyball/src/commands"]
        .map(|folder| root.join("crates").join(folder))
        .to_vec();
    open.push(root.join("crates/flyball-results/src"));
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
        } else {
            code += &read(&path);
        }
    }
    // Join sentences of two lines, and allow for inserted names and numbers.
    let joined: String = code.split("\\\n").map(str::trim_start).collect();
    let page = read(&root.join("docs/dev/sentences.md"));
    let rows: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert!(rows.len() > 30, "{rows:?}");
    for row in rows {
        for piece in row.split("...").map(str::trim).filter(|piece| piece.len() > 3) {
            assert!(joined.contains(piece), "no code prints '{piece}' of '{row}'");
        }
    }
}

#[test]
fn a_setting_against_itself_on_the_running_machine() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("run");
    let name = directory.to_str().expect("UTF-8");
    let command = flyball(&[
        "compare",
        "--arm",
        "a:",
        "--arm",
        "b:",
        "--rounds",
        "10",
        "--seed",
        "5",
        "-o",
        name,
        "--workload",
        "sched-pipe",
        "--amount",
        "300",
    ]);
    ends(command, 0);
    let report = report(&directory);
    assert_eq!(report["schedule"]["confidence"], 0.99);
    assert_eq!(report["arms"][0]["rounds"], 10);
    assert_eq!(report["comparisons"][0]["pairs"], 10);
    assert_eq!(report["schedule"]["seed"], 5);
    for file in ["manifest.json", "rounds.jsonl", "report.html", "report.csv", "performance.svg"] {
        assert!(directory.join(file).metadata().is_ok_and(|data| data.len() > 100), "{file}");
    }
    // There must be energy, or a reason for its absence.
    let energy = report["arms"][0]["summaries"]
        .as_array()
        .is_some_and(|all| all.iter().any(|s| s["quantity"] == "energy"));
    assert_eq!(report["no_energy"].is_null(), energy);
    // Rebuilding the report from the raw readings gives the same report.
    let before = fs::read(directory.join("report.json")).expect("it is there");
    fs::remove_file(directory.join("report.html")).expect("it is there");
    ends(flyball(&["report", name]), 0);
    assert!(directory.join("report.html").exists() && directory.join("performance.png").exists());
    assert_eq!(fs::read(directory.join("report.json")).expect("it is there"), before);
}

#[test]
fn simulated_rounds_are_traced_by_the_simulated_kernel() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("run");
    let name = directory.to_str().expect("UTF-8");
    let words = [
        "-M",
        "sim:ryzen-5750g",
        "compare",
        "--trace",
        "--arm",
        "fast: driver-mode=passive governor=schedutil",
        "--arm",
        "slow: driver-mode=passive governor=schedutil max-freq=2GHz",
        "--rounds",
        "1",
        "--warm-up",
        "0",
        "-o",
        name,
        "--workload",
        "spin",
    ];
    ends(flyball(&words), 0);
    let report = report(&directory);
    let ghz = |arm: usize| {
        let summaries = report["arms"][arm]["summaries"].as_array()?;
        summaries.iter().find(|summary| summary["quantity"] == "trace-frequency")?["median"].as_f64()
    };
    let (fast, slow) = (ghz(0).expect("it is traced"), ghz(1).expect("it is traced"));
    assert!(fast > 3.0 && (1.5..=2.05).contains(&slow), "{fast} {slow}");
    let trace = directory.join("trace-0-0000-1.dat");
    ends(flyball(&["trace", "report", "--json", trace.to_str().expect("UTF-8")]), 0);
}

#[test]
fn rounds_are_traced() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("run");
    let name = directory.to_str().expect("UTF-8");
    let words =
        ["compare", "--trace", "--arm", "a:", "--arm", "b:", "--rounds", "2", "--seed", "5", "-o", name];
    let mut command = flyball(&words);
    command.args(["--", "true"]);
    let ran = Ran::of(&mut command);
    if ran.code == 4 {
        // Without root or tracefs, it fails before it creates anything.
        assert!(!directory.exists());
        skip(1, "comparison with traces", "needs root and tracefs");
        return;
    }
    assert_eq!(ran.code, 0, "{}", ran.text());
    let rounds = fs::read_to_string(directory.join("rounds.jsonl")).expect("there are rounds");
    let rounds: Vec<Value> =
        rounds.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let traced: Vec<&str> = rounds.iter().filter_map(|round| round["trace"]["file"].as_str()).collect();
    assert_eq!((rounds.len(), traced.len()), (6, 4), "a warm-up and two rounds of two arms: {rounds:?}");
    for file in &traced {
        let path = directory.join(file);
        ends(flyball(&["trace", "report", "--json", path.to_str().expect("UTF-8")]), 0);
    }
    let report = report(&directory);
    let decisions = report["arms"][0]["summaries"]
        .as_array()
        .and_then(|all| all.iter().find(|summary| summary["quantity"] == "decisions"))
        .expect("decisions are summed up");
    assert_eq!(decisions["points"].as_array().map(Vec::len), Some(2));
    // A tree of files cannot be traced.
    let tree = Machine::new();
    let words = ["compare", "--trace", "--arm", "now", "--arm", "b:", "--", "true"];
    ends(tree.flyball(&words), 4);
}

/// A workload that prints a value that depends on its governor, with a little independent noise.
fn workload(tree: &Machine) -> String {
    format!(
        "n=$(cat {0}/n 2>/dev/null || echo 0); echo $((n+1)) > {0}/n; \
         case $(cat {1}) in performance) v=2000;; powersave) v=1000;; *) v=1500;; esac; \
         echo speed: $((v + n * 7 % 5))",
        tree.path().display(),
        tree.governor_file().display()
    )
}

#[test]
fn arms_are_applied_and_everything_is_restored() {
    let tree = Machine::new();
    let directory = tree.run_directory();
    let script = workload(&tree);
    let mut command = tree.flyball(&[
        "compare",
        "--arm",
        "now",
        "--matrix",
        "governor=performance,powersave",
        "--rounds",
        "10",
        "--metric",
        "speed: ([0-9]+)",
        "--unit",
        "ops/s",
        "-o",
    ]);
    command.arg(&directory).args(["--", "sh", "-c", &script]);
    ends(command, 0);
    assert_eq!(tree.governor(), "schedutil");
    let report = report(&directory);
    assert_eq!(report["comparisons"][0]["verdict"], "better");
    assert_eq!(report["comparisons"][1]["verdict"], "worse");
    for (comparison, change) in [(0, 1.0 / 3.0), (1, -1.0 / 3.0)] {
        let found = report["comparisons"][comparison]["change"].as_f64().expect("it is judged");
        assert!((found - change).abs() < 0.01, "{found}");
    }
    // `report` also reads flyball's own CSV, like the selftest's.
    let csv = directory.join("report.csv");
    let mut command = flyball(&["report", "--json"]);
    command.arg(&csv);
    let read = ends(command, 0).json();
    let pairs = read["pairs"].as_array().expect("pairs of arms");
    let compared =
        |pair: &&Value| (&pair["base"], &pair["compared"]) == (&"now".into(), &"governor=powersave".into());
    assert!(pairs.iter().any(|pair| compared(&pair)), "{read}");
}

#[test]
fn ctrl_c_stops_restores_and_keeps() {
    let tree = Machine::new();
    let directory = tree.run_directory();
    let marker = tree.path().join("pids");
    let script = format!("echo $$ >> {}; sleep 60 & sleep 60", marker.display());
    let mut command = tree.flyball(&[
        "compare",
        "--arm",
        "a: governor=performance",
        "--arm",
        "b: governor=powersave",
        "-o",
    ]);
    command
        .arg(&directory)
        .args(["--warm-up", "0", "--", "sh", "-c", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !marker.exists() {
        assert!(Instant::now() < deadline, "the workload does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_ne!(tree.governor(), "schedutil");
    signal(&child, "-INT");
    let started = Instant::now();
    let output = child.wait_with_output().expect("it ends");
    assert!(started.elapsed() < Duration::from_secs(20));
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{words}");
    assert_eq!(tree.governor(), "schedutil");
    assert!(words.contains("--resume"), "it says how to continue: {words}");
    // The workload's whole process group has ended.
    let group = fs::read_to_string(&marker).expect("it is there");
    let gone = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        !runs_in_group(group.trim())
    });
    assert!(gone, "the workload's group still runs");
}

/// Returns whether a process of the group runs. A zombie does not count.
fn runs_in_group(group: &str) -> bool {
    let Ok(entries) = fs::read_dir("/proc") else { return false };
    entries.flatten().any(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let mut words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let state = words.next();
        words.nth(1) == Some(group) && !matches!(state, None | Some("Z" | "X"))
    })
}

#[test]
fn a_killed_comparison_is_restored_by_its_guardian() {
    let tree = Machine::new();
    let mut command = tree.flyball(&[
        "compare",
        "--arm",
        "a: governor=performance",
        "--arm",
        "b: governor=performance",
        "-o",
    ]);
    // The workload's child leads its own group, which a signal to the workload's group does not
    // reach.
    let note = tree.path().join("group");
    let script =
        format!("setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600' & wait", note.display());
    command.arg(tree.run_directory()).args(["--", "sh", "-c", &script]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    tree.wait_for("performance");
    let group = eventually(|| fs::read_to_string(&note).ok()).expect("the workload runs");
    assert!(runs_in_group(group.trim()));
    signal(&child, "-KILL");
    child.wait().expect("it is dead");
    tree.wait_for("schedutil");
    eventually(|| (!runs_in_group(group.trim())).then_some(()))
        .expect("what the workload started is ended too");
}

/// Waits for a result, for at most a minute.
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    (0..3000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        look()
    })
}

#[test]
fn a_stopped_comparison_is_continued() {
    let tree = Machine::new();
    let directory = tree.run_directory();
    let script = workload(&tree);
    // The seventh run interrupts flyball.
    let script = format!("{script}; if [ $n = 6 ]; then kill -INT $PPID; sleep 20; fi");
    let mut command = tree.flyball(&[
        "compare",
        "--arm",
        "now",
        "--arm",
        "fast: governor=performance",
        "--rounds",
        "9",
        "--metric",
        "speed: ([0-9]+)",
        "--unit",
        "ops/s",
        "-o",
    ]);
    command.arg(&directory).args(["--", "sh", "-c", &script]);
    ends(command, 130);
    assert_eq!(tree.governor(), "schedutil");
    let mut command = tree.flyball(&["compare", "--resume"]);
    command.arg(&directory);
    ends(command, 0);
    let report = report(&directory);
    assert_eq!(report["comparisons"][0]["pairs"], 9);
    assert_eq!(report["comparisons"][0]["verdict"], "better");
    // Resuming on another machine is rejected.
    let mut command = flyball(&["compare", "--resume"]);
    command.arg(&directory);
    ends(command, 2);
}

#[test]
fn arms_of_another_boot_wait() {
    let tree = Machine::new();
    let directory = tree.run_directory();
    let script = workload(&tree);
    let mut command = tree.flyball(&[
        "compare",
        "--arm",
        "acpi: driver=acpi-cpufreq",
        "--arm",
        "pstate: driver=amd-pstate-epp",
        "--rounds",
        "5",
        "--metric",
        "speed: ([0-9]+)",
        "--unit",
        "ops/s",
        "-o",
    ]);
    command.arg(&directory).args(["--", "sh", "-c", &script]);
    ends(command, 0);
    assert_eq!(report(&directory)["arms"][1]["waits_for"], "amd_pstate=active");
    // Simulate the other boot.
    tree.put("proc/sys/kernel/random/boot_id", "two");
    tree.put("proc/cmdline", "quiet amd_pstate=active");
    tree.put("sys/devices/system/cpu/cpufreq/policy0/scaling_driver", "amd-pstate-epp");
    let mut command = tree.flyball(&["compare", "--resume"]);
    command.arg(&directory);
    ends(command, 0);
    let report = report(&directory);
    assert_eq!(report["comparisons"][0]["paired"], false);
    assert_eq!((&report["arms"][0]["boots"], &report["arms"][1]["boots"]), (&[0].into(), &[1].into()));
}

#[test]
fn run_gives_the_commands_exit_code_and_puts_back() {
    let tree = Machine::new();
    let see = format!("cat {}; exit 7", tree.governor_file().display());
    let ran = ends(tree.flyball(&["run", "governor=performance", "--", "sh", "-c", &see]), 7);
    assert_eq!(ran.out.trim(), "performance");
    assert_eq!(tree.governor(), "schedutil");
    ends(tree.flyball(&["run", "governor=performance", "--", "sh", "-c", "kill -TERM $$"]), 128 + 15);
    ends(tree.flyball(&["run", "governor=performance", "--", "/no/such/program"]), 127);
    assert_eq!(tree.governor(), "schedutil");
    // An invalid value is rejected before the command runs.
    assert_eq!(ends(tree.flyball(&["run", "governor=fast", "--", "sh", "-c", "echo ran"]), 2).out, "");
    let profile = tree.path().join("p.toml");
    fs::write(&profile, "governor = \"powersave\"\n").expect("it can be written");
    let profile = profile.to_str().expect("UTF-8").to_owned();
    let see = format!("cat {}", tree.governor_file().display());
    let ran = ends(tree.flyball(&["run", "--profile", &profile, "--", "sh", "-c", &see]), 0);
    assert_eq!(ran.out.trim(), "powersave");
}

#[test]
fn a_dry_run_writes_nothing() {
    let tree = Machine::new();
    let mut command =
        tree.flyball(&["compare", "-n", "--arm", "now", "--arm", "fast: governor=performance", "-o"]);
    command.arg(tree.run_directory()).args(["--", "sh", "-c", "echo ran > ran"]).current_dir(tree.path());
    ends(command, 0);
    assert_eq!(tree.governor(), "schedutil");
    assert!(!tree.run_directory().exists() && !tree.path().join("ran").exists());
}

#[test]
fn what_cannot_be_is_refused_with_a_remedy() {
    let tree = Machine::new();
    for (words, code, want) in [
        (&["compare", "--arm", "now", "--", "true"][..], 2, "two arms"),
        (&["compare", "--arm", "now", "--arm", "x: govenor=performance", "--", "true"], 2, "governor"),
        (&["compare", "--arm", "now", "--arm", "x: governor=fast", "--", "true"], 2, "powersave"),
        (&["compare", "--arm", "now", "--arm", "x: epp=power", "--", "true"], 4, "x"),
        (&["compare", "--arm", "a:", "--arm", "b:"], 2, "nothing to run"),
        (&["compare", "--arm", "a:", "--arm", "b:", "--metric", "bogus", "--", "true"], 2, "tbench"),
        (
            &["compare", "--arm", "a:", "--arm", "b:", "--metric", "a(b)c(d)", "--unit", "x/s", "--", "true"],
            2,
            "one group",
        ),
        (&["compare", "--arm", "a:", "--arm", "b:", "--workload", "io-4k"], 2, "--file"),
        (&["compare", "--arm", "a:", "--arm", "b:", "--until", "0%", "--", "true"], 2, "percentage"),
        (&["compare", "--arm", "a: driver=nonsense", "--arm", "b:", "--", "true"], 2, "amd-pstate"),
        (&["run", "--", "true"], 2, "no settings"),
        (&["report", "/no/such/place"], 2, "run directory"),
    ] {
        let mut command = tree.flyball(words);
        command.current_dir(tree.path());
        let ran = ends(command, code);
        assert!(ran.err.contains(want), "{words:?}: {}", ran.err);
        assert_eq!(tree.governor(), "schedutil");
    }
    let left: Vec<_> = fs::read_dir(tree.path())
        .expect("it is there")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("flyball-compare"))
        .collect();
    assert_eq!(left, Vec::<String>::new(), "a refusal leaves nothing behind");
    // A failing workload ends the comparison. The error includes its output, and settings are
    // restored.
    let mut command = tree.flyball(&["compare", "--arm", "a: governor=performance", "--arm", "now", "-o"]);
    command.arg(tree.run_directory()).args(["--", "sh", "-c", "echo broken pipe dream; exit 3"]);
    let words = ends(command, 1).err;
    assert!(words.contains("exit 3") && words.contains("broken pipe dream"), "{words}");
    assert_eq!(tree.governor(), "schedutil");
}

/// The manifest may come from another user's directory.
#[test]
fn a_manifest_with_impossible_numbers_is_refused() {
    let tree = Machine::new();
    let mut command =
        tree.flyball(&["compare", "--arm", "a:", "--arm", "b:", "--rounds", "1", "--warm-up", "0", "-o"]);
    command.arg(tree.run_directory()).args(["--", "true"]);
    ends(command, 0);
    let file = tree.run_directory().join("manifest.json");
    let good: Value = serde_json::from_slice(&fs::read(&file).expect("it is there")).expect("it is JSON");
    let path = tree.run_directory().to_str().expect("UTF-8").to_owned();
    for (key, value) in [
        ("confidence", 5.0),
        ("confidence", 0.0),
        ("confidence", -1.0),
        ("interval", -1.0),
        ("cool_down", 1e300),
    ] {
        let mut bad = good.clone();
        bad["schedule"][key] = value.into();
        fs::write(&file, bad.to_string()).expect("it can be written");
        for words in [&["report", &path][..], &["compare", "--resume", &path]] {
            ends(tree.flyball(words), 2);
        }
    }
    fs::write(&file, good.to_string()).expect("it can be written");
    ends(tree.flyball(&["report", &path]), 0);
}

#[test]
fn a_selftest_file_is_checked() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("selftest.gitsource.csv");
    let sheet = "\
Governor, Round, Des-perf, Freq, Load, Time, Energy, Performance Per Watt
Unit, , , GHz, , s, J, 1/J
amd-pstate-ondemand, 1, , , , 100.5, 200, 0.005000000
amd-pstate-ondemand, 2, , , , 101.5, 250, 0.004000000
amd-pstate-ondemand, 3, , , , 1102.5, 400, 0.002500000
amd-pstate-ondemand, Average, , , , 101.5, 283.333, 0.003529415
amd-pstate-schedutil, 1, , , , 90, 400, 0.002500000
amd-pstate-schedutil, 2, , , , 91, 400, 0.002500000
amd-pstate-schedutil, 3, , , , 92, 400, 0.002500000
amd-pstate-schedutil, Average, , , , 91, 400, 0.002500000
amd-pstate-ondemand VS amd-pstate-schedutil, Comprison(%), , , , 10.3448, 41.1766, -29.1667
";
    fs::write(&file, sheet).expect("it can be written");
    let mut command = flyball(&["report", "--json"]);
    command.arg(&file).arg("-o").arg(place.path().join("out"));
    let data = ends(command, 0).json();
    assert!(place.path().join("out/gitsource_time.png").exists());
    assert_eq!(data["test"], "gitsource");
    let wrong: Vec<_> = data["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .filter(|check| check["agrees"] == false)
        .map(|check| (check["line"].as_u64(), check["computed"].as_str()))
        .collect();
    // A round's time has an extra digit, which its average reveals, and a comparison has the wrong
    // sign.
    assert_eq!(wrong, [(Some(6), Some("434.833")), (Some(11), Some("-10.3448"))]);
    // With three rounds each, no difference can be shown at 99 %, however large it is.
    let time = data["pairs"].as_array().and_then(|pairs| pairs.iter().find(|pair| pair["column"] == "time"));
    let time = time.expect("times are compared");
    assert_eq!((&time["smallest_p"], &time["shown"]), (&0.1.into(), &false.into()));
}
