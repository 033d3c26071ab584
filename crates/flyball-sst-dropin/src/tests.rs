//! Compares the drop-in with recorded output of the kernel's tool on a machine like the guide's,
//! and tests hostile words.

use std::time::Duration;

use flyball_host::Host;
use proptest::prelude::*;

use flyball_sst_fake::FakeMachine;

use crate::{Daemon, Ended, Environment, run};

/// A daemon that cannot detach, gets no events, and ends after some sleeps.
struct Idle(std::cell::Cell<u32>);

impl Daemon for Idle {
    fn can_listen(&mut self) -> bool {
        true
    }

    fn detach(&mut self) -> Result<(), Ended> {
        Err(Ended(0))
    }
    fn changes(&mut self, _: Duration) -> Option<Vec<u32>> {
        None
    }
    fn stopped(&self) -> bool {
        self.0.set(self.0.get() + 1);
        self.0.get() > 40
    }
}

struct Output {
    out: String,
    err: String,
    code: u8,
}

fn tool(host: &dyn Host, words: &[&str], root: bool) -> Output {
    let args: Vec<String> =
        std::iter::once("intel-speed-select").chain(words.iter().copied()).map(str::to_owned).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut daemon = Idle(std::cell::Cell::new(0));
    let environment = Environment { host, root, out: &mut out, err: &mut err, daemon: &mut daemon };
    let code = run(&args, environment);
    Output { out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap(), code }
}

fn golden() -> Option<String> {
    std::fs::read_to_string(flyball_testing::shared("facts/sst-golden-outputs.md")?).ok()
}

/// The machine on which a chapter of the record was made.
fn machine_of(part: u32, heading: &str, words: &[&str]) -> FakeMachine {
    let machine = FakeMachine::guide(part == 3);
    match heading {
        "Locked system" => machine.set(|state| state.locked = true),
        "JSON: error mixed with results" if words.contains(&"perf-profile") => {
            machine.set(|state| state.locked = true);
        }
        "JSON: error mixed with results" => machine.set(|state| {
            (state.turbo_freq, state.qos, state.core_power) = (true, true, true);
        }),
        "Turbo disabled through no_turbo" => {
            machine.put("/sys/devices/system/cpu/intel_pstate/no_turbo", "1");
        }
        "Base-freq enable on a level without base-freq" => machine.set(|state| state.level = 4),
        _ => {}
    }
    if heading.contains("IO-die") { machine.with_io_domains(1) } else { machine }
}

#[test]
fn prints_what_the_tool_printed() {
    let Some(text) = golden() else {
        eprintln!("skipped 1 check: the record of the tool's outputs is not here");
        return;
    };
    let (mut part, mut heading, mut compared) = (0, String::new(), 0);
    let mut machine = None;
    let mut lines = text.lines().peekable();
    let mut wrong = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with("# Part ") {
            part += 1;
        } else if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut heading);
            machine = None;
        } else if let Some(command) = line.strip_prefix("$ intel-speed-select ") {
            let words: Vec<&str> = command.split_whitespace().collect();
            let (mut out, mut err, mut code) = (String::new(), String::new(), None);
            let mut stream = 0;
            while let Some(line) = lines.next_if(|line| !line.starts_with("```") && !line.starts_with("$ ")) {
                match line {
                    "[stdout]" => stream = 1,
                    "[stderr]" => stream = 2,
                    _ if line.starts_with("[rc=") => {
                        code = line["[rc=".len()..].trim_end_matches(']').parse::<u8>().ok();
                        stream = 0;
                    }
                    _ if stream == 1 => out += &format!("{line}\n"),
                    _ if stream == 2 => err += &format!("{line}\n"),
                    _ => {}
                }
            }
            if heading.starts_with("JSON: error mixed") {
                machine = None;
            }
            let host = machine.get_or_insert_with(|| machine_of(part, &heading, &words));
            if words.contains(&"-o") && words.contains(&"/tmp/result.txt") {
                continue;
            }
            let got = tool(host, &words, true);
            compared += 1;
            // A record without a code is the beginning of an output.
            let same = match code {
                Some(code) => got.out == out && got.err == err && got.code == code,
                None => got.out == out && got.err.starts_with(&err),
            };
            if !same {
                wrong.push(format!(
                    "part {part}, {heading}: {command}\n--- expected (code {code:?})\n{out}{err}--- got (code {})\n{}{}",
                    got.code, got.out, got.err
                ));
            }
        }
    }
    eprintln!("{compared} outputs compared");
    assert!(compared > 80, "only {compared} outputs found in the record");
    assert!(wrong.is_empty(), "{} of {compared} differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn results_go_into_a_file_and_warnings_with_them_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("result");
    let got = tool(&FakeMachine::guide(false), &["-o", file.to_str().unwrap(), "core-power", "enable"], true);
    assert_eq!((got.err.as_str(), got.code), ("", 0));
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.starts_with(
        " package-0\n  die-0\n    cpu-0\n      core-power\n        enable:success\n package-1\n"
    ));
}

#[test]
fn strict_says_what_happened() {
    let machine = FakeMachine::guide(false);
    let good = tool(&machine, &["--strict", "-f", "json", "perf-profile", "get-config-levels"], true);
    assert_eq!(good.code, 0);
    assert!(good.err.starts_with("Intel(R) Speed Select Technology\n"));
    let json: serde_json::Value = serde_json::from_str(&good.out).unwrap();
    assert_eq!(json["package-1:die-0:cpu-14"]["get-config-levels"], "4");
    for (words, code) in [
        (vec!["--strict", "bogus", "info"], 2),
        (vec!["--strict"], 2),
        (vec!["--strict", "perf-profile", "info", "-l", "x"], 1),
        (vec!["--strict", "core-power", "get-assoc"], 1),
        (vec!["--strict", "-c", "999", "core-power", "get-assoc"], 1),
        (vec!["--strict", "core-power", "config", "-c", "4"], 1),
    ] {
        assert_eq!(tool(&machine, &words, true).code, code, "{words:?}");
    }
}

#[test]
fn debug_mode_prints_every_call_on_stdout_and_leaves_the_results_alone() {
    for (tpmi, line) in [
        (false, "mbox_cmd response: cpu:0 command:7f sub_command:0 parameter:0 req_data:0 resp:80000401\n"),
        (true, "call 9: 0000"),
    ] {
        let plain = tool(&FakeMachine::guide(tpmi), &["perf-profile", "get-config-levels"], true);
        let traced = tool(&FakeMachine::guide(tpmi), &["-d", "perf-profile", "get-config-levels"], true);
        assert_eq!((&traced.err, traced.code), (&plain.err, plain.code));
        assert!(traced.out.contains("Debug Mode ON\n") && traced.out.contains(line), "{}", traced.out);
        let wrote = tool(&FakeMachine::guide(tpmi), &["-d", "turbo-mode", "disable"], true);
        assert!(wrote.out.contains("write /sys/devices/system/cpu/cpu5/cpufreq/scaling_max_freq: 2600000\n"));
    }
}

#[test]
fn an_ordinary_user_reads_and_does_not_write() {
    let machine = FakeMachine::guide(true);
    let before = machine.everything();
    let got = tool(&machine, &["core-power", "enable"], false);
    assert_eq!(got.code, 1);
    assert!(got.err.contains("Error: Insufficient privileges\n"), "{}", got.err);
    assert_eq!(tool(&machine, &["turbo-mode", "set-trl", "-t", "0x1"], false).code, 1);
    assert_eq!(tool(&machine, &["core-power", "info"], false).code, 0);
    assert_eq!(machine.everything(), before);
}

#[test]
fn a_user_limit_outlives_turbo_mode() {
    let machine = FakeMachine::guide(false);
    machine.put("/sys/devices/system/cpu/cpu3/cpufreq/scaling_max_freq", "2000000");
    let _ = tool(&machine, &["turbo-mode", "enable"], true);
    assert_eq!(machine.read("/sys/devices/system/cpu/cpu3/cpufreq/scaling_max_freq").unwrap(), "2000000");
    let _ = tool(&machine, &["turbo-mode", "disable"], true);
    assert_eq!(machine.read("/sys/devices/system/cpu/cpu5/cpufreq/scaling_max_freq").unwrap(), "2600000");
    let _ = tool(&machine, &["turbo-mode", "enable"], true);
    assert_eq!(machine.read("/sys/devices/system/cpu/cpu5/cpufreq/scaling_max_freq").unwrap(), "3200000");
}

#[test]
fn a_refused_association_is_reported() {
    let machine = FakeMachine::guide(true);
    machine.fail_at(0, flyball_host::Errno::NOTTY);
    let got = tool(&machine, &["-c", "1", "core-power", "assoc", "-c", "1"], true);
    assert!(got.err.contains("assoc:failed(error -1)"), "{}", got.err);
}

#[test]
fn values_that_would_spill_reach_no_driver() {
    for tpmi in [false, true] {
        let machine = FakeMachine::guide(tpmi);
        for words in [
            "core-power config -c 1 -n 30000 -m 2000",
            "core-power config -c 1 -m 99999999999",
            "core-power config -c 260",
            "-c 70000 core-power assoc -c 1",
            "perf-profile set-config-level -l 256",
            "perf-profile info -l 5",
            "base-freq info -l 300",
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            let _ = tool(&machine, &words, true);
        }
        assert_eq!(machine.take_log(), Vec::<String>::new(), "tpmi: {tpmi}");
    }
    let machine = FakeMachine::guide(true);
    let got = tool(&machine, &["core-power", "enable", "-p", "2"], true);
    assert!(got.err.contains("enable:failed(error -1)"));
    assert!(machine.take_log().is_empty());
}

#[test]
fn domains_without_registers_and_levels_that_do_not_exist_reach_no_driver() {
    let numbers =
        ["0", "1", "3", "4", "5", "7", "8", "15", "63", "64", "254", "255", "256", "65536", "4294967295"];
    for machine in [FakeMachine::guide(true).with_dead_domain(), FakeMachine::small(true).with_io_domains(1)]
    {
        for number in numbers {
            for command in [
                format!("perf-profile info -l {number}"),
                format!("perf-profile set-config-level -l {number} -o"),
                format!("base-freq info -l {number}"),
                format!("turbo-freq info -l {number} -b {number}"),
                format!("core-power config -c {number} -w {number} -n {number} -m {number}"),
                format!("core-power config -c 1 -w {number} -n {number}00 -d {number}"),
                format!("core-power get-config -c {number}"),
                format!("core-power enable -p {number}"),
                format!("-c 0-55 core-power assoc -c {number}"),
                format!("-c {number} core-power get-assoc"),
                "-c 0-55 core-power get-assoc".to_owned(),
                "-c 12,13 base-freq enable -a".to_owned(),
                "-c 12,13 turbo-freq enable -a".to_owned(),
                "--oob -n -w 1".to_owned(),
            ] {
                let words: Vec<&str> = command.split(' ').collect();
                let _ = tool(&machine, &words, true);
                assert_eq!(machine.hazards(), Vec::<String>::new(), "{command}");
            }
        }
    }
}

#[test]
fn follows_a_level_that_another_agent_set() {
    let machine = FakeMachine::guide(false);
    machine.set(|state| state.level = 4);
    let got = tool(&machine, &["--oob", "-n", "-w", "1"], true);
    assert!(got.err.contains("offline cpu 13\n"), "{}", got.err);
    assert_eq!(machine.read("/sys/devices/system/cpu/cpu32/online").unwrap(), "0");
    assert_eq!(machine.read("/sys/devices/system/cpu/cpu33/online").unwrap(), "1");
}

const WORDS: &[&str] = &[
    "perf-profile",
    "base-freq",
    "turbo-freq",
    "core-power",
    "turbo-mode",
    "info",
    "enable",
    "disable",
    "config",
    "get-config",
    "assoc",
    "get-assoc",
    "set-config-level",
    "get-trl",
    "set-trl",
    "get-lock-status",
    "-l",
    "-c",
    "-a",
    "-o",
    "0",
    "1",
    "4",
    "7",
    "255",
    "256",
    "-1",
    "0x1f",
    "0-3",
    "3-0",
    "1..5",
    "-t",
    "-b",
    "-r",
    "avx2",
    "-p",
    "-n",
    "-m",
    "-w",
    "-e",
    "1000",
    "2650",
    "99999",
    "--cpu",
    "--level",
    "--auto",
    "-f",
    "json",
    "-g",
    "-u",
    "-d",
    "--",
    "-h",
    "--retry",
    "x",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn no_words_panic_or_hang_or_leave_the_classes_odd(
        picks in proptest::collection::vec(0..WORDS.len(), 0..8),
        machine in 0..4u8,
    ) {
        let machine = match machine {
            0 => FakeMachine::guide(false),
            1 => FakeMachine::guide(true),
            2 => FakeMachine::guide(true).with_io_domains(2),
            _ => FakeMachine::guide(true).with_dead_domain(),
        };
        let words: Vec<&str> = picks.into_iter().map(|pick| WORDS[pick]).collect();
        // -o would create files.
        prop_assume!(!words.contains(&"-o"));
        let got = tool(&machine, &words, true);
        prop_assert!([0, 1, 3, 255].contains(&got.code));
        prop_assert_eq!(machine.hazards(), Vec::<String>::new());
        for package in 0..2 {
            let state = machine.state(package, 0);
            prop_assert!(usize::from(state.level) < 5);
            prop_assert!(state.assoc.iter().all(|&class| class < 4));
        }
    }
}

/// The background process would end unnoticed, so `--oob` must fail without the processor's events.
#[test]
fn oob_without_events_is_not_called_enabled() {
    let got = tool(&FakeMachine::guide(false), &["--oob"], true);
    let all = format!("{}{}", got.out, got.err);
    assert!(all.contains("Doesn't support HFI") && all.contains("OOB mode enable failed"), "{all}");
    assert!(!all.contains("OOB mode is enabled"), "{all}");
}
