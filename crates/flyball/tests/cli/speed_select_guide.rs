//! Runs every command of the kernel's Speed Select guide in order, on the simulated machine
//! modelled after it. The output must equal the guide's. Lines that differ because of the guide's
//! older tool or its example are listed, and each of them must occur.
//!
//! The guide is read from `$FLYBALL_SHARED/sources` (or `../shared` next to the workspace). Without
//! it, the test is skipped with the number of commands. The guide's measurements (turbostat, perf
//! bench) are compared by `flyball sim check sst-guide`, and below by `flyball compare`.

use flyball_testing::{flyball, shared, skip};
use std::path::Path;

/// A command and the output that the guide prints for it, without indentation and without lines
/// that say that something was omitted.
struct Block {
    command: String,
    lines: Vec<String>,
}

fn blocks(guide: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut open = false;
    for line in guide.lines() {
        let text = line.trim();
        // A command follows a # and maybe a space, in the first two columns. Some of perf's output
        // begins like that too.
        let command = line.strip_prefix(" #").or_else(|| line.strip_prefix('#')).map(str::trim);
        let perf = text.starts_with("# Running") || text.starts_with("# Executed");
        match command {
            Some(command) if !perf => {
                found.push(Block { command: command.to_owned(), lines: Vec::new() });
                open = true;
            }
            // Text in the first column ends a command's output.
            _ if !line.starts_with([' ', '\t'])
                && !text.is_empty()
                && !text.chars().all(|c| c.is_ascii_digit()) =>
            {
                open = false;
            }
            _ if open && !text.is_empty() && text != "..." => {
                found.last_mut().unwrap().lines.push(text.to_owned());
            }
            _ => {}
        }
    }
    found
}

/// Part of the command, line of the guide, output of v1.26 on this machine ("" for nothing),
/// reason.
const KNOWN: &[(&str, &str, &str, &str)] = &[
    ("", "Executing on CPU model: X", "Executing on CPU model:106[0x6a]", MODEL),
    ("get-lock-status", "get-lock-status:0", "get-lock-status:unlocked", WORDS),
    (
        "--info",
        "Intel(R) SST-BF (feature base-freq) is not supported",
        "Intel(R) SST-BF (feature base-freq) is supported",
        OTHER,
    ),
    ("-c 0 core-power info", "package-1", "", OTHER),
    ("core-power enable", "cpu-6", "cpu-14", OTHER),
    ("core-power config", "cpu-6", "cpu-14", OTHER),
    ("get-config -c 0", "cpu-24", "cpu-14", OTHER),
    ("get-assoc", "package-1", "package-0", OTHER),
    ("-c 12,13 turbo-freq enable", "die-0", "die-IO", NOWHERE),
    ("-c 12,13 turbo-freq enable", "cpu-63", "cpu-None", NOWHERE),
    (
        "core-power config",
        "clos epp is not specified, default: 0",
        "clos epp is not specified or invalid, default: 0",
        WORDS,
    ),
    (
        "core-power config",
        "clos frequency weight is not specified, default: 0",
        "clos frequency weight is not specified or invalid, default: 0",
        WORDS,
    ),
    (
        "core-power config",
        "clos min is not specified, default: 0 MHz",
        "clos min is not specified, default: 0",
        WORDS,
    ),
    (
        "core-power config",
        "clos max is not specified, default: 25500 MHz",
        "clos max is not specified, default: Max frequency (ratio 0xff)",
        WORDS,
    ),
    (
        "core-power config",
        "clos desired is not specified, default: 0",
        "clos desired is not supported on this platform",
        WORDS,
    ),
    ("base-freq info", "speed-select-base-freq", "speed-select-base-freq-properties", WORDS),
    ("turbo-freq info", "speed-select-turbo-freq", "speed-select-turbo-freq-properties", WORDS),
];

const MODEL: &str = "the guide does not say the model";
const WORDS: &str = "later versions have other words for it";
const OTHER: &str = "the guide took this from another machine, or another state of it";
const NOWHERE: &str = "a result that belongs to no CPU has another place in later versions";

/// Returns why a command is not run here, if it is not.
fn not_here(command: &str) -> Option<&'static str> {
    [
        ("cd ", "building the tool"),
        ("make", "building the tool"),
        ("--help", "help is in words of our own"),
        ("stress", "load: flyball sim check sst-guide"),
        ("turbostat", "measured by flyball sim check sst-guide"),
        ("taskset", "measured by flyball sim check sst-guide, and below"),
        ("--oob", "a daemon that waits for a management controller"),
    ]
    .into_iter()
    .find_map(|(part, reason)| command.contains(part).then_some(reason))
}

/// Returns what the guide must have done before a command without mentioning it.
fn unsaid(command: &str, number: usize, blocks: &[Block]) -> Vec<&'static str> {
    let first = |part: &str| blocks.iter().position(|block| block.command.contains(part));
    if command.starts_with("intel-speed-select -c 0 perf-profile info") && first(command) == Some(number) {
        // "In the system under test here, SST-BF is supported at the base performance level 0".
        return vec!["intel-speed-select perf-profile set-config-level -l 0 -o", "echo 0 > no_turbo"];
    }
    if command.contains("turbo-freq enable") {
        return vec!["echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo"];
    }
    Vec::new()
}

fn run(state: &Path, command: &str) -> String {
    let machine = format!("sim:sst-guide,state={}", state.display());
    let mut words: Vec<&str> = command.split_whitespace().collect();
    let mut flyball = flyball!();
    flyball.args(["-M", &machine]);
    match words[0] {
        "intel-speed-select" => flyball.args(&words),
        "cat" => flyball.args(["get", "base-freq"]),
        "echo" => flyball.args(["set", if words[1] == "1" { "turbo=off" } else { "turbo=on" }]),
        _ => panic!("what is '{}'?", words.remove(0)),
    };
    let output = flyball.output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    // The tool prints notes on stdout, and results on stderr.
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn every_command_of_the_guide_in_its_order() {
    let Some(guide) = shared("sources/speed-select-guide.txt") else {
        skip(27, "commands of the Speed Select guide", "no sources/speed-select-guide.txt");
        return;
    };
    let guide = std::fs::read_to_string(guide).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("machine");
    let all = blocks(&guide);
    let mut met = vec![false; KNOWN.len()];
    let (mut ran, mut compared) = (0, 0);
    let mut wrong = String::new();
    for (number, block) in all.iter().enumerate() {
        if not_here(&block.command).is_some() {
            continue;
        }
        for command in unsaid(&block.command, number, &all) {
            run(&state, command);
        }
        let said = run(&state, &block.command);
        ran += 1;
        let mut ours = said.lines().map(str::trim);
        for line in &block.lines {
            let known =
                KNOWN.iter().position(|(part, theirs, ..)| block.command.contains(part) && line == theirs);
            let mut line = line.as_str();
            // Replace the line only if the rest of our output lacks it: of two such results, only
            // the second is at another CPU on this machine.
            if let Some(index) = known {
                let instead = KNOWN[index].2;
                let later = ours.clone().any(|ours| ours == line);
                if instead.is_empty() || !later {
                    met[index] = true;
                    line = instead;
                }
                if line.is_empty() {
                    break;
                }
            }
            if block.command.starts_with("cat") {
                // flyball's form of this line. After a change of level, some CPUs are offline.
                line = if line == "2600000" {
                    "base-freq  2.6 GHz  CPUs 0"
                } else {
                    "base-freq  2.8 GHz  CPUs 0"
                };
            }
            compared += 1;
            let there = |ours: &str| ours == line || line.starts_with("base-freq") && ours.starts_with(line);
            if !ours.any(there) {
                wrong.push_str(&format!("{}\n  not there: {line}\n{said}\n", block.command));
                break;
            }
        }
    }
    eprintln!("{ran} commands run, {compared} lines compared");
    assert!(wrong.is_empty(), "{wrong}");
    assert!(ran >= 20 && compared > 150, "{ran} commands, {compared} lines");
    let never: Vec<_> = KNOWN.iter().zip(&met).filter(|(_, met)| !**met).collect();
    assert!(never.is_empty(), "known differences that do not occur: {never:?}");
}

/// Compares two arms on the guide's machine. Returns their median times for a million operations.
fn compare(arms: [&str; 2], more: &[&str]) -> [f64; 2] {
    let folder = tempfile::tempdir().unwrap();
    let output = flyball!()
        .args(["--json", "compare", "-M", "sim:sst-guide", "--rounds", "2", "--warm-up", "0", "--seed", "1"])
        .args(["--arm", arms[0], "--arm", arms[1]])
        .args(more)
        .arg("-o")
        .arg(folder.path().join("run"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    [0, 1].map(|arm| {
        let summaries = report["arms"][arm]["summaries"].as_array().unwrap();
        let time = summaries.iter().find(|summary| summary["quantity"] == "performance").unwrap();
        time["median"].as_f64().unwrap()
    })
}

/// Repeats the guide's measurements: seconds for a million operations of perf bench sched pipe.
#[test]
fn the_guides_experiments_are_one_command_each() {
    let near = |ours: f64, theirs: f64| {
        assert!((ours / theirs - 1.0).abs() < 0.03, "{ours:.3} s, the guide has {theirs} s");
    };
    // Use a tenth of the operations, since each takes equally long.
    let pipe = ["--workload", "sched-pipe", "--amount", "100000", "--pin", "5,6"];
    let [before, after] = compare(["base: turbo=off", "base-freq: turbo=off sst-bf=on max-freq=max"], &pipe);
    near(before * 10.0, 6.102);
    near(after * 10.0, 5.627);
    // Level 4 raises the base frequency from 2600 to 2800 MHz. The share of the time that consists
    // of cycles decreases accordingly.
    let pipe = ["--workload", "sched-pipe", "--amount", "100000", "--pin", "5,7"];
    let [level_0, level_4] =
        compare(["level-0: turbo=off", "level-4: turbo=off sst-level=4 max-freq=max"], &pipe);
    near(level_0 * 10.0, 6.102);
    let share = 8213.0 * (1.0 / 2.6 - 1.0 / 2.8) / 6102.0;
    assert!((level_4 / level_0 - (1.0 - share)).abs() < 0.015, "{level_0} {level_4}");
    // With twelve busy CPUs.
    let busy = ["--workload", "sched-pipe", "--amount", "100000", "--pin", "12,13", "--beside", "spin"];
    let busy = [&busy[..], &["--beside-pin", "0-11"]].concat();
    let [before, after] = compare(["turbo:", "turbo-freq: sst-tf=on clos=3 clos@12,13=0"], &busy);
    near(before * 10.0, 5.705);
    near(after * 10.0, 5.510);
    assert!(after < before);
}
