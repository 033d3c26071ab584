//! Names and values from other people: a recorded machine, a trace, a run directory and files whose
//! names and content have control characters for the terminal. None of these may reach the
//! terminal, whatever the command.

use std::{fs, path::Path, process::Stdio};

use flyball_testing::{Ran, Tree, flyball};
use serde_json::Value;

/// Sets the clipboard (OSC 52), clears the screen, reverses the text's direction, and starts a
/// forged line.
const HOSTILE: &str = "\u{1b}]52;c;cm0=\u{7}\u{1b}[35m\u{9b}2J\u{202e}\u{fdd8}";

/// Runs a command and checks its whole output, as text and as JSON, with and without colours.
#[track_caller]
fn clean(words: &[&str]) -> Vec<Ran> {
    let mut all = Vec::new();
    for json in [false, true] {
        for colour in [false, true] {
            let mut command = flyball!();
            if json {
                command.arg("--json");
            }
            command.args(words).stdin(Stdio::null());
            if colour {
                command.env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR");
            } else {
                command.env("NO_COLOR", "1");
            }
            let ran = Ran::of(&mut command);
            assert_clean(&ran, colour, words);
            all.push(ran);
        }
    }
    all
}

#[track_caller]
fn assert_clean(ran: &Ran, colour: bool, words: &[&str]) {
    let mut text = ran.text();
    if colour {
        // The last two are those of clap's messages.
        for own in ["0", "1", "2", "32", "36", "90", "33", "1;33", "1;31", "4", "31"] {
            text = text.replace(&format!("\u{1b}[{own}m"), "");
        }
    }
    let bad = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
    let found = text.find(|char| bad(char) || matches!(char, '\u{202e}' | '\u{fdd8}' | '\u{fffd}'));
    assert!(found.is_none(), "{words:?} (colours: {colour}): {text:?}");
}

/// Writes a machine whose texts are all hostile, except where numbers and lists must be readable.
fn machine() -> Tree {
    let tree = Tree::new();
    let cpu = "sys/devices/system/cpu";
    for (file, text) in [("online", "0-1"), ("present", "0-1"), ("possible", "0-1")] {
        tree.put(format!("{cpu}/{file}"), format!("{text}\n"));
    }
    let mut cpuinfo = String::new();
    for number in 0..2 {
        cpuinfo.push_str(&format!(
            "processor\t: {number}\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 80\nmodel name\t: CPU {HOSTILE}\n\
             microcode\t: {HOSTILE}\nphysical id\t: 0\ncore id\t\t: {number}\nflags\t\t: fpu {HOSTILE}\n\n"
        ));
        for (file, text) in [
            ("related_cpus", number.to_string()),
            ("scaling_driver", HOSTILE.to_owned()),
            ("scaling_governor", format!("{HOSTILE}\nflyball: all is well")),
            ("scaling_available_governors", format!("performance {HOSTILE}")),
            ("scaling_min_freq", HOSTILE.to_owned()),
            ("scaling_max_freq", "3000000".to_owned()),
            ("cpuinfo_min_freq", "800000".to_owned()),
            ("cpuinfo_max_freq", "3000000".to_owned()),
            ("energy_performance_preference", HOSTILE.to_owned()),
            ("energy_performance_available_preferences", HOSTILE.to_owned()),
        ] {
            tree.put(format!("{cpu}/cpufreq/policy{number}/{file}"), format!("{text}\n"));
        }
        tree.put(format!("{cpu}/cpu{number}/cpuidle/state0/name"), format!("{HOSTILE}\n"));
        tree.put(format!("{cpu}/cpu{number}/cpuidle/state0/disable"), format!("{HOSTILE}\n"));
    }
    tree.put("proc/cpuinfo", cpuinfo);
    tree.put("proc/cmdline", format!("quiet nohz_full={HOSTILE}\n"));
    tree.put("proc/sys/kernel/osrelease", format!("6.12{HOSTILE}\n"));
    tree.put("proc/version", format!("Linux version 6.12{HOSTILE}\n"));
    tree.put("proc/modules", format!("{HOSTILE} 1 0 - Live 0x0\n"));
    tree.put(format!("{cpu}/amd_pstate/status"), format!("{HOSTILE}\n"));
    tree.put("sys/devices/virtual/dmi/id/product_name", format!("{HOSTILE}\n"));
    tree
}

#[test]
fn a_recorded_machine_cannot_write_to_the_terminal() {
    let tree = machine();
    let machine = tree.path().to_str().unwrap();
    let out = Tree::new();
    let saved = out.path().join("saved.toml");
    let record = out.path().join("record");
    let quiet = ["-M", machine];
    for words in [
        &["show"][..],
        &["show", "--all"],
        &["get", "governor"],
        &["get", "driver"],
        &["get", "min-freq"],
        &["get", "epp"],
        &["plan", "governor=performance"],
        &["plan", "governor=x", "epp=1"],
        &["verify", "governor=performance"],
        &["why"],
        &["set", "governor=performance"],
        &["doctor"],
        &["doctor", "-v"],
        &["save", saved.to_str().unwrap()],
        &["sst"],
        &["restore"],
        &["record", record.to_str().unwrap()],
        &["trace", "record", "--time", "1"],
        &["quiet"],
    ] {
        clean(&[&quiet[..], words].concat());
    }
    // Hostile text is shown with escapes, not dropped.
    let governor = &clean(&["-M", machine, "get", "governor"])[0];
    assert!(governor.out.contains("\\u{1b}]52;c;cm0=\\u{7}"), "{governor:?}");
    assert!(governor.out.lines().all(|line| !line.starts_with("flyball: all is well")), "{governor:?}");
}

#[test]
fn a_trace_cannot_write_to_the_terminal() {
    let tree = Tree::new();
    // A task's name has at most 16 bytes.
    let name = "\u{1b}]52;c;cm0=\u{7}";
    let mut text = String::from("# tracer: nop\n");
    for step in 0..400u64 {
        text.push_str(&format!(
            "{name:>16}-{:<7} [{:03}] d..2. {:5}.{:06}: amd_pstate_perf: amd_min_perf=15 amd_des_perf={} \
             amd_max_perf=166 freq=3300000 mperf=990 aperf=750 tsc=1000 cpu_id={} fast_switch=true\n",
            77,
            step % 2,
            100 + step / 20,
            step % 20 * 50_000,
            15 + step % 50,
            step % 2,
        ));
    }
    text.push_str(&format!("{:>16}-{:<7} [000] d..2.   200.000000: {HOSTILE}: x={HOSTILE}\n", "a", 5));
    text.push_str(&format!(
        "{:>16}-{:<7} [000] d..2.   200.000001: sched_switch: prev_comm={HOSTILE} prev_pid=1 \
        prev_prio=120 prev_state=S ==> next_comm={HOSTILE} next_pid=2 next_prio=120\n",
        "a", 5
    ));
    let file = format!("{HOSTILE}.txt");
    tree.put(&file, &text);
    let file = tree.path().join(file);
    let file = file.to_str().unwrap();
    let page = tree.path().join("page.html");
    clean(&["trace", "report", file, "--html", page.to_str().unwrap()]);
    clean(&["trace", "diagnose", file]);
    clean(&["doctor", "--trace", file]);
    let mut print = flyball!();
    let printed = Ran::of(print.args(["trace", "report", "--print", file]).stdin(Stdio::null()));
    assert_clean(&printed, false, &["--print"]);
    assert_eq!(printed.out.lines().filter(|line| line.contains("amd_pstate_perf:")).count(), 400);
    assert!(!fs::read_to_string(page).unwrap().contains("<script>alert"));
    // The file or event directory does not exist, and the error names it.
    let gone = tree.path().join(format!("gone{HOSTILE}"));
    clean(&["trace", "report", gone.to_str().unwrap()]);
    clean(&["trace", "report", file, "--csv", &format!("{file}/x")]);
}

#[test]
fn names_of_files_and_options_cannot_write_to_the_terminal() {
    let tree = Tree::new();
    tree.put(format!("{HOSTILE}.toml"), format!("[{HOSTILE}\ngovernor = \"{HOSTILE}\"\n"));
    let profile = tree.path().join(format!("{HOSTILE}.toml"));
    let profile = profile.to_str().unwrap();
    clean(&["-M", "sim:ryzen-5750g", "apply", profile]);
    clean(&["-M", "sim:ryzen-5750g", "set", &format!("governor={HOSTILE}")]);
    clean(&["-M", "sim:ryzen-5750g", "get", HOSTILE]);
    clean(&["-M", &format!("sim:{HOSTILE}"), "show"]);
    clean(&["-M", HOSTILE, "show"]);
    clean(&["-M", profile, "show"]);
    clean(&["--no-such-option", HOSTILE]);
    clean(&[HOSTILE]);
    clean(&["report", profile]);
    clean(&["sim", "show", HOSTILE]);
    clean(&["explain", HOSTILE]);
}

/// Replaces every string in a JSON value.
fn poison(value: &mut Value, keep: &[&str]) {
    match value {
        Value::String(text) if !keep.contains(&text.as_str()) => text.push_str(HOSTILE),
        Value::Array(items) => items.iter_mut().for_each(|item| poison(item, keep)),
        Value::Object(fields) => fields.values_mut().for_each(|field| poison(field, keep)),
        _ => {}
    }
}

fn poison_one(value: &mut Value, pointer: &str) {
    if let Some(Value::String(text)) = value.pointer_mut(pointer) {
        *text = format!("=1+1{text}{HOSTILE}\n<script>alert(1)</script>");
    }
}

#[test]
fn a_run_directory_cannot_write_to_the_terminal() {
    let tree = Tree::new();
    let run = tree.path().join("run");
    let name = run.to_str().unwrap();
    let made = Ran::of(
        flyball!()
            .args([
                "-M",
                "sim:ryzen-5750g",
                "compare",
                "--arm",
                "a:",
                "--arm",
                "b: epp=power",
                "--rounds",
                "3",
                "--seed",
            ])
            .args(["5", "--workload", "sched-pipe", "--amount", "300", "-o", name])
            .stdin(Stdio::null()),
    );
    assert_eq!(made.code, 0, "{}", made.text());
    let manifest = fs::read_to_string(run.join("manifest.json")).unwrap();
    // First replace all strings, which many readers reject, then only free text, which all readers
    // accept.
    let mut all: Value = serde_json::from_str(&manifest).unwrap();
    poison(&mut all, &[]);
    fs::write(run.join("manifest.json"), all.to_string()).unwrap();
    clean(&["report", name]);
    let mut some: Value = serde_json::from_str(&manifest).unwrap();
    for pointer in [
        "/workload/name",
        "/workload/metric/name",
        "/workload/metric/unit",
        "/machine/name",
        "/machine/processor",
        "/machine/kernel",
        "/machine/host",
    ] {
        poison_one(&mut some, pointer);
    }
    fs::write(run.join("manifest.json"), some.to_string()).unwrap();
    let report = &clean(&["report", name])[0];
    assert_eq!(report.code, 0, "{}", report.text());
    assert_no_script(&run.join("report.html"));
    let sheet = fs::read_to_string(run.join("report.csv")).unwrap();
    let formula = |cell: &str| cell.trim_start().starts_with(['=', '+', '@']);
    assert!(!sheet.lines().flat_map(|line| line.split(',')).any(formula), "{sheet}");
}

fn assert_no_script(page: &Path) {
    assert!(!fs::read_to_string(page).unwrap().contains("<script>alert"), "{}", page.display());
}
