//! Tests what commands print for people: answers to settings, folded lists, simulated machines.

use flyball_testing::{Ran, Tree, flyball, skip};

#[track_caller]
fn run(code: i32, words: &[&str]) -> Ran {
    let ran = Ran::of(flyball!().args(words).env("NO_COLOR", "1").stdin(std::process::Stdio::null()));
    assert_eq!(ran.code, code, "{words:?}: {}", ran.text());
    ran
}

#[test]
fn a_hybrid_simulated_machine_has_core_types() {
    let epp = run(0, &["-M", "sim:hybrid-laptop", "get", "epp", "-c", "type:E", "--json"]).json();
    assert_eq!(epp.as_array().unwrap().len(), 8);
    let facts = run(0, &["-M", "sim:hybrid-laptop", "show", "--json"]).json();
    assert_eq!(facts["machine"]["core_types"], serde_json::json!({ "P": "0-7", "E": "8-15" }));
}

#[test]
fn kinds_of_cores_and_caches_are_selected_by_name() {
    let cpus = |machine: &str, selector: &str| {
        let machine = format!("sim:{machine},kernel=7.2");
        let plan = run(0, &["-M", &machine, "plan", "epp=power", "-c", selector, "--json"]).json();
        let of = |change: &serde_json::Value| change["cpus"].as_str().unwrap().to_owned();
        let mut cpus: Vec<u32> = Vec::new();
        for change in plan["changes"].as_array().unwrap() {
            cpus.extend(of(change).parse::<flyball_host::CpuList>().unwrap().iter());
        }
        flyball_host::CpuList::from_iter(cpus).to_string()
    };
    for (machine, selector, expected) in [
        ("zen6-client", "type:P", "0-7"),
        ("zen6-client", "type:E", "8-15"),
        ("zen6-client", "type:LP", "16-19"),
        ("zen6-client", "ccd:1", "8-15"),
        ("lunar-laptop", "type:LP", "4-7"),
        ("x3d-laptop", "cache:big", "0-7,16-23"),
        ("x3d-laptop", "ccd:0-1", "0-31"),
    ] {
        assert_eq!(cpus(machine, selector), expected, "{machine} {selector}");
    }
    for (machine, selector, message) in [
        ("zen6-client", "type:turbo", "core types here: P E LP"),
        ("lunar-laptop", "type:E", "possible here: P LP"),
        ("x3d-laptop", "type:P", "their types are not known"),
        ("x3d-laptop", "ccd:2", "possible here: 0 1"),
        ("x3d-laptop", "cache:small", "possible here: big"),
        ("ryzen-5750g", "cache:big", "no L3 cache is larger than another"),
    ] {
        let ran = run(2, &["-M", &format!("sim:{machine}"), "get", "epp", "-c", selector]);
        assert!(ran.err.contains(message), "{machine} {selector}: {}", ran.err);
    }
    let shown = run(0, &["-M", "sim:zen6-client", "show"]).out;
    assert!(shown.contains("LP cores: 16-19; kinds of cores by highest_perf and L3"), "{shown}");
    assert!(
        run(0, &["-M", "sim:x3d-laptop,kernel=7.2", "show"]).out.contains("ccd 0 (96 MiB L3): 0-7,16-23")
    );
}

#[test]
fn every_requested_setting_is_answered() {
    let asked = ["governor=performance", "turbo=off", "max-freq=2GHz", "epp=performance", "idle-state=C1"];
    let text = run(0, &[&["-M", "sim:gold-6138", "set"][..], &asked].concat()).out;
    for answer in [
        "governor of",
        "turbo: off",
        "max-freq of",
        "performance, through the settings above",
        "idle-state:C6 of",
    ] {
        assert!(text.contains(answer), "{answer}: {text}");
    }
}

#[test]
fn a_plan_marks_what_is_decided_later() {
    let plan = ["-M", "sim:gold-6138", "plan", "turbo=off", "max-freq=2.5GHz"];
    assert_eq!(run(0, &plan).out.matches("(provisional)").count(), 2);
    assert_eq!(run(0, &["-M", "sim:gold-6138", "plan", "turbo=off"]).out.matches("(provisional)").count(), 0);
}

#[test]
fn a_failure_counts_what_it_restored() {
    for (nth, restored) in
        [(1, "nothing to restore"), (2, "restored 1 setting:"), (6, "restored 5 settings:")]
    {
        let rule = format!("write cpufreq/policy*/scaling_max_freq fails EIO nth {nth}");
        let ran = run(1, &["-M", "sim:ryzen-5750g", "--sim-fault", &rule, "set", "max-freq=2GHz"]);
        assert!(ran.err.contains(restored), "{nth}: {}", ran.err);
    }
}

#[test]
fn lists_of_equal_writes_are_folded() {
    let tree = Tree::new();
    let state = tree.path().join("state");
    let machine = format!("sim:gold-6138,state={}", state.display());
    run(0, &["-M", &machine, "set", "governor=performance", "turbo=off", "max-freq=2GHz", "idle-state=C1"]);
    let preview = run(0, &["-M", &machine, "restore", "-n"]).out;
    assert!(preview.lines().count() < 12 && preview.contains("policy{0-39}"), "{preview}");
    let plan = run(0, &["-M", "sim:tpmi-large", "sst", "base-freq", "enable", "-a", "--dry-run"]).out;
    assert!(plan.lines().count() < 24 && plan.contains("domain {0-2}: class 0 minimum MHz"), "{plan}");
}

#[test]
fn what_was_recorded_of_a_simulated_machine_says_so() {
    let tree = Tree::new();
    let path = |name: &str| tree.path().join(name).to_str().unwrap().to_owned();
    let (archive, trace, page) = (path("x.tar.zst"), path("t.dat"), path("t.html"));
    run(0, &["-M", "sim:i7-2600", "record", &archive]);
    assert_eq!(run(0, &["-M", &archive, "show", "--json"]).json()["simulated"], true);
    assert!(run(0, &["-M", &archive, "show"]).out.contains("simulated, recorded in"));
    let machine = "sim:ryzen-5750g,boot=amd_pstate=passive";
    run(0, &["-M", machine, "trace", "record", "-o", &trace, "--", "gitsource", "--amount", "200"]);
    let report = run(0, &["trace", "report", &trace, "--html", &page]).out;
    assert!(report.contains("machine: sim:ryzen-5750g") && report.contains(", simulated"), "{report}");
    assert_eq!(run(0, &["trace", "report", &trace, "--json"]).json()["simulated"], true);
    assert!(std::fs::read_to_string(page).unwrap().contains("simulated</h1>"));
}

#[test]
fn flyball_alone_shows_what_there_is() {
    let alone = run(0, &[]);
    assert!(alone.err.is_empty() && alone.out.lines().count() <= 23, "{}", alone.text());
    for (words, code) in [(&["--json"][..], 2), (&["no-such-command"], 2), (&["-h"], 0), (&["help"], 0)] {
        run(code, words);
    }
}

#[test]
fn short_help_leaves_simulated_machines_and_names_of_knobs_out() {
    for command in ["show", "set", "get", "compare", "man", "completions", "report"] {
        let short = run(0, &[command, "-h"]).out;
        assert!(!short.contains("--sim-fault") && !short.contains("hwp-dynamic-boost"), "{short}");
    }
    assert!(run(0, &["show", "--help"]).out.contains("--sim-fault"));
    assert!(!run(0, &["man", "--help"]).out.contains("--machine"));
}

#[test]
fn colours_are_as_asked() {
    let coloured = |words: &[&str]| {
        let ran =
            Ran::of(flyball!().args(["-M", "sim:i7-2600", "doctor"]).args(words).env_remove("NO_COLOR"));
        ran.out.contains("\u{1b}[")
    };
    assert!(!coloured(&[]) && coloured(&["--color=always"]) && !coloured(&["--color", "never"]));
}

#[test]
fn common_words_find_their_knob() {
    for (word, knob) in [
        ("ht", "smt"),
        ("c-state", "idle-state"),
        ("C6", "idle-state:C6"),
        ("tdp", "power-limit"),
        ("rapl", "power-limit"),
        ("pl1", "power-limit"),
        ("no_turbo", "turbo"),
        ("hwp", "hwp-dynamic-boost"),
        ("cpu-min", "min-freq"),
    ] {
        let said = run(2, &["-M", "sim:gold-6138", "get", word]).err;
        assert!(said.contains(&format!("did you mean '{knob}'")), "{word}: {said}");
    }
    // A fact cannot be set, only a knob.
    let said = run(2, &["-M", "sim:gold-6138", "set", "freq=2GHz"]).err;
    assert!(said.contains("did you mean 'max-freq'"), "{said}");
    let found = run(0, &["explain", "ratio", "--json"]);
    assert!(!found.json().as_array().unwrap().is_empty());
}

#[test]
fn get_prints_bare_values() {
    assert_eq!(run(0, &["-M", "sim:gold-6138", "get", "--bare", "governor"]).out, "powersave\n");
    assert_eq!(run(0, &["-M", "sim:hybrid-laptop", "get", "--bare", "max-freq"]).out, "4700000\n3400000\n");
    assert_eq!(run(0, &["-M", "sim:gold-6138", "get", "--bare", "turbo"]).out, "on\n");
}

#[test]
fn settings_name_their_own_cpus() {
    let plan = run(0, &["-M", "sim:gold-6138", "plan", "governor@0-3=performance", "--json"]).json();
    assert_eq!(plan["changes"].as_array().unwrap().len(), 4);
    run(0, &["-M", "sim:gold-6138", "set", "governor@4=performance", "epp@0=power"]);
}

#[test]
fn two_comparisons_of_one_second_have_directories_of_their_own() {
    let tree = Tree::new();
    let start = || {
        flyball!()
            .args(["-M", "sim:ryzen-5750g", "compare", "--matrix", "epp=performance,power", "--rounds", "1"])
            .args(["--workload", "sched-pipe", "--amount", "100"])
            .current_dir(tree.path())
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut all: Vec<_> = (0..4).map(|_| start()).collect();
    assert!(all.iter_mut().all(|child| child.wait().unwrap().success()));
    assert_eq!(std::fs::read_dir(tree.path()).unwrap().count(), 4);
}

/// The sessions in README and docs equal the program's output, and each command has one.
#[test]
fn sessions_of_the_pages_are_what_the_program_prints() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/sessions.md")).unwrap();
    let help = run(0, &["--help"]).out;
    let rows = help.lines().take_while(|line| *line != "Common options:");
    // Lines with more indentation continue a description.
    let rows = rows.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let commands: Vec<&str> = rows.filter_map(|row| row.split(' ').next()).collect();
    assert!(commands.len() > 30, "{commands:?}");
    for command in commands.into_iter().filter(|command| !["guest", "help"].contains(command)) {
        assert!(page.contains(&format!("$ flyball {command} ")), "docs/sessions.md lacks {command}");
    }
    if cfg!(not(feature = "parquet")) {
        return skip(1, "comparison of sessions", "this build has no `results`");
    }
    let program = flyball!().get_program().to_owned();
    let mut script = std::process::Command::new(root.join("scripts/sessions"));
    let ran = Ran::of(script.arg("--check").env("FLYBALL", program));
    assert_eq!(ran.code, 0, "{}", ran.text());
}

#[test]
fn the_table_of_a_comparison_fits_and_ends_with_the_best() {
    let tree = Tree::new();
    let out = tree.path().join("run");
    let matrix = ["--matrix", "driver=acpi-cpufreq,amd-pstate", "--matrix", "governor=schedutil,performance"];
    let options = ["--rounds", "12", "--seed", "1", "--workload", "gitsource", "--amount", "50", "-o"];
    let words =
        [&["-M", "sim:ryzen-5750g", "compare"][..], &matrix, &options, &[out.to_str().unwrap()]].concat();
    let text = run(0, &words).out;
    // Sentences are wrapped at the terminal's width, but tables must fit it.
    let sentence = |line: &&str| {
        ["machine", "lowest", "fastest", "driver=", "unclear", "note", "medians"]
            .iter()
            .any(|word| line.starts_with(word))
    };
    // In a pipe, the table is printed whole. A narrow terminal gets it in two parts.
    assert!(text.lines().filter(|line| !sentence(line)).all(|line| line.chars().count() <= 120), "{text}");
    assert!(text.contains("  4  amd-pstate    performance\n"), "{text}");
    let last: Vec<&str> = text.lines().rev().take(3).collect();
    assert!(last.iter().any(|line| line.starts_with("fastest: ")), "{text}");
    assert!(last.iter().any(|line| line.contains("best per watt: ")), "{text}");
}

#[test]
fn tips_name_no_other_command() {
    let said = run(2, &["gui"]).err;
    assert!(!said.contains("guardian"), "{said}");
    assert!(run(2, &["comparee"]).err.contains("'compare'"));
    let said = run(2, &["sim", "run", "--", "nproc"]).err;
    assert!(said.contains("<NAME>") && !said.contains("flyball run"), "{said}");
    assert!(run(2, &["explain", "watt"]).err.contains("power-limit"));
}

#[test]
fn a_name_of_a_simulated_machine_is_recognised() {
    let said = run(2, &["-M", "ryzen-5750g", "show"]).err;
    assert!(said.contains("did you mean -M sim:ryzen-5750g"), "{said}");
}

#[test]
fn equal_cpus_of_a_trace_share_a_row() {
    let tree = Tree::new();
    let trace = tree.path().join("t.dat").to_str().unwrap().to_owned();
    let machine = "sim:ryzen-5750g,boot=amd_pstate=passive";
    run(0, &["-M", machine, "trace", "record", "-o", &trace, "--", "gitsource", "--amount", "300"]);
    let rows = run(0, &["trace", "report", &trace]).out;
    let cpus = rows
        .lines()
        .skip_while(|line| !line.starts_with("CPU"))
        .skip(1)
        .take_while(|line| !line.starts_with("three"));
    assert!((1..12).contains(&cpus.count()), "{rows}");
}
