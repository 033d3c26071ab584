//! Tests `tune` with bad input, and with problems during a search. Each row has the exit code and
//! the words that the user needs.

use std::{fs, process::Command};

use flyball_testing::{Ran, flyball};

use crate::knobs::{KNOB, Service, ends};

/// Arguments of `tune`, the exit code, and words in the error.
const TYPED: &[(&str, i32, &[&str])] = &[
    // A nonexistent quantity, an invalid limit, two goals.
    (
        "--over epp=all --minimize watts",
        2,
        &["--minimize 'watts'\n              ^^^^^", "perf-per-watt", "this workload's"],
    ),
    (
        "--over epp=all --minimize energy --subject-to speed<=2%",
        2,
        &["'speed' is not", "--subject-to 'speed<=2%'\n                ^^^^^"],
    ),
    ("--over epp=all --minimize energy --subject-to time", 2, &["no <= or >=", "power <= 60"]),
    (
        "--over epp=all --minimize energy --subject-to time<=fast",
        2,
        &["not a number", "                      ^^^^"],
    ),
    ("--over epp=all --minimize energy --maximize power", 2, &["cannot be used with"]),
    ("--over epp=all", 2, &["--minimize"]),
    ("--over epp=all --minimize time --cap 10", 2, &["--cap 10", "--timeout 10", "smaller cap"]),
    // A quantity that cannot be measured here.
    ("--over epp=all --minimize dram-energy", 4, &["DRAM energy cannot be measured"]),
    ("--over epp=all --minimize platform-energy", 4, &["cannot be measured"]),
    // A knob that the machine or flyball does not have, and an invalid value.
    ("--over uncore-max-freq=1GHz,2GHz --minimize energy", 4, &["uncore-max-freq=1GHz"]),
    ("--over epq=power,performance --minimize energy", 2, &["epq"]),
    ("--over epp=fast,power --minimize energy", 2, &["fast"]),
    ("--over governor=performance,schedutil --minimize energy", 2, &["governor=schedutil"]),
    // Search spaces that are empty, have one setting, or are too large.
    ("--over epp=power --minimize energy", 2, &["name two values"]),
    (
        "--over epp=power,performance --without epp=power --without epp=performance --minimize energy",
        2,
        &["no combination"],
    ),
    (
        "--over max-freq=1GHz..2GHz:99 --over min-freq=1GHz..2GHz:99 --minimize energy",
        2,
        &["9801 settings", "99 of max-freq, 99 of min-freq"],
    ),
    // Settings that need another boot.
    ("--over driver=acpi-cpufreq,amd-pstate --minimize energy", 2, &["does not reboot", "in each boot"]),
    ("--over boot:amd_pstate=active,passive --minimize energy", 2, &["does not reboot"]),
    // Settings that a quiet machine excludes. Rejected before it is made quiet.
    (
        "--quiet=light --over epp=power,balance_power --minimize energy",
        2,
        &["--quiet=light sets", "governor=performance"],
    ),
];

#[test]
fn what_is_typed_wrong_is_answered_before_anything_runs() {
    let folder = tempfile::tempdir().expect("a directory");
    for (words, code, named) in TYPED {
        let ran = Ran::of(flyball!().current_dir(folder.path()).arg("tune").args(words.split(' ')).args([
            "-M",
            "sim:ryzen-5750g",
            "--workload",
            "gitsource",
        ]));
        assert_eq!(ran.code, *code, "{words}: {}", ran.text());
        for word in *named {
            assert!(ran.err.contains(word), "{words}: no '{word}' in: {}", ran.err);
        }
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a directory").count(), 0, "nothing ran");
}

#[test]
fn combinations_that_the_kernel_refuses_are_listed() {
    let words = "tune -n -M sim:gold-6138 --over governor=performance,powersave --over epp=performance,power --minimize energy \
                 --workload gitsource";
    let ran = Ran::of(flyball!().args(words.split_whitespace()));
    assert_eq!(ran.code, 0, "{}", ran.text());
    assert!(ran.out.contains("without governor=performance epp=power"), "{}", ran.out);
}

/// Searches the pool of a service whose load runs `line` before it prints its score.
fn with_load(service: &Service, line: &str) -> String {
    let path = service.machine.path().join("load");
    let load = fs::read_to_string(&path).expect("the load");
    let load = load.replacen("n=$(", &format!("{}\nn=$(", service.with_path(line)), 1);
    fs::write(&path, &load).expect("written");
    load
}

/// What a load does, the exit code of the search, and words in the output.
const LOADS: &[(&str, i32, &[&str])] = &[
    // The base fails, or prints no number.
    ("echo broken >&2; exit 7", 1, &["exit 7", "broken"]),
    ("echo no number; exit 0", 1, &["found no", "no number"]),
    ("echo 'score: 0'; exit 0", 1, &["'now' itself fails", "not a number above zero", "score: 0"]),
    // Another program overwrites the setting in each block; a CPU goes offline.
    ("echo 5 > DIR/pool", 1, &["three blocks in a row", "another program changed knob pool"]),
    (
        "f=DIR/sys/devices/system/cpu/online; case $(cat $f) in 0) echo 0-1 > $f;; *) echo 0 > $f;; esac",
        1,
        &["three blocks in a row", "online CPUs"],
    ),
    // Only once, so the block is repeated.
    (
        "[ -e DIR/once ] || [ $(cat DIR/run-directory/rounds.jsonl 2>/dev/null | wc -l) -lt 3 ] || { : > DIR/once; echo 5 > DIR/pool; }",
        0,
        &["block 1 does not count and is repeated"],
    ),
];

#[test]
fn what_happens_in_a_search_is_answered_with_everything_restored() {
    for (line, code, named) in LOADS {
        let service = Service::new(KNOB);
        with_load(&service, line);
        let ran = ends(service.tune(&[]), *code);
        for word in *named {
            assert!(ran.err.contains(word), "{line}: no '{word}' in: {}", ran.err);
        }
        if line.contains("echo 5") {
            // The first round, on the unchanged machine, wrote it before flyball did, so this was
            // the original value.
            service.machine.put("pool", "4");
        }
        service.is_restored();
    }
}

#[test]
fn noise_that_the_rounds_cannot_overcome_is_said_after_block_4() {
    let service = Service::new(KNOB);
    // 20 % of noise that depends on the number of stored rounds.
    with_load(
        &service,
        "r=$(cat DIR/run-directory/rounds.jsonl 2>/dev/null | wc -l); echo \"score: $((10000 + (r * r * 7919 + r * 104729) % 4001))\"; exit 0",
    );
    let ran = ends(service.tune(&["--max-runs", "60"]), 0);
    assert!(ran.err.contains("at this noise") && ran.err.contains("--within"), "{}", ran.err);
    service.is_restored();
}

#[test]
fn throttled_rounds_are_repeated_at_most_twice() {
    let service = Service::new(KNOB);
    let count = "cpu0/thermal_throttle/core_throttle_count";
    service.machine.put(&format!("sys/devices/system/cpu/{count}"), "0");
    // The best value always throttles, so that is its real performance.
    with_load(
        &service,
        &format!(
            "f=DIR/sys/devices/system/cpu/{count}; [ $(cat DIR/pool) = 8 ] && echo $(($(cat $f) + 1)) > $f"
        ),
    );
    let ran = ends(service.tune(&["--json"]), 0);
    let left_out = ran.err.matches("a round of 'pool=8' does not count: throttled").count();
    assert_eq!(left_out, 2, "{}", ran.err);
    assert_eq!(ran.json()["chosen"], "pool=8");
    service.is_restored();
}

#[test]
fn a_search_that_fresh_rounds_contradict_goes_on_once() {
    let service = Service::new(KNOB);
    // In fresh rounds, the chosen setting is worse than all others.
    with_load(
        &service,
        "[ -e DIR/run-directory/confirm ] && [ $(cat DIR/pool) = 8 ] && { echo 'score: 90000'; exit 0; }",
    );
    let ran = ends(service.tune(&["--json"]), 0);
    assert!(ran.err.contains("contradict the search; it goes on with them, once"), "{}", ran.err);
    assert_eq!(ran.json()["second"], true);
    assert_eq!(ran.json()["chosen"], "pool=16");
    assert!(service.machine.run_directory().join("confirm-2").exists());
    service.is_restored();
}

#[test]
fn a_limit_that_nothing_keeps_is_answered_with_the_nearest() {
    let service = Service::new(KNOB);
    let ran = ends(service.tune(&["--subject-to", "score >= 200000"]), 0);
    assert!(
        ran.out.contains("No setting keeps the limit score >= 200000 points/s; the nearest is 'pool=8', -"),
        "{}",
        ran.out
    );
    // The search knew it, so its fresh rounds do not contradict it.
    assert!(ran.out.contains("is the nearest to the limit of"), "{}", ran.out);
    assert!(!ran.text().contains("contradict"), "{}", ran.text());
    service.is_restored();
}

#[test]
fn a_search_claims_nothing_below_the_step_of_its_values() {
    for (line, why) in [
        ("echo 'score: 100000'; exit 0", "settings is not known: all values, or all of a case, are equal"),
        (
            "[ -e DIR/run-directory/confirm ] && { echo 'score: 100000'; exit 0; }",
            "The fresh rounds do not compare score: all values, or all of a case, are equal",
        ),
        (
            "echo \"score: $(($(cat DIR/pool) % 3 + 12))\"; exit 0",
            "settings is not known: values come in steps of at most ",
        ),
    ] {
        let service = Service::new(KNOB);
        with_load(&service, line);
        let ran = ends(service.tune(&["--max-runs", "40"]), 0);
        assert!(ran.out.contains(why), "{}", ran.out);
        service.is_restored();
    }
}

#[test]
fn a_full_disk_ends_the_search_with_everything_restored() {
    let service = Service::new(KNOB);
    let inner = service.tune(&[]);
    // Files of at most 16 blocks of 512 bytes, which rounds.jsonl exceeds.
    let mut limited = Command::new("sh");
    limited.current_dir(service.machine.path()).args(["-c", "ulimit -f 16; exec \"$@\"", "sh"]);
    limited.arg(inner.get_program()).args(inner.get_args());
    limited.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = ends(limited, 1);
    assert!(ran.err.contains("rounds.jsonl"), "{}", ran.err);
    service.is_restored();
    let kept = service.rounds();
    assert!(kept > 3, "{kept} rounds");
    let ran = ends(service.command(&["tune", "--resume", "run-directory", "--json"]), 0);
    assert_eq!(ran.json()["chosen"], "pool=8");
    service.is_restored();
}
