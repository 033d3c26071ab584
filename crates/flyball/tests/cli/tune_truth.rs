//! Compares what `tune` chooses on simulated machines with the truth: every setting, measured in
//! many rounds.

use std::{collections::BTreeMap, fs, path::Path};

use flyball_testing::{Ran, flyball};
use serde_json::Value;

/// A machine, its search space, and more arguments for both commands.
struct Case {
    name: &'static str,
    machine: &'static str,
    over: &'static [&'static str],
    more: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        name: "4 x 6 settings",
        machine: "sim:ryzen-5750g",
        over: &[
            "max-freq=1.2GHz,2GHz,2.8GHz,3.4GHz,4GHz,4.6GHz",
            "epp=performance,balance_performance,balance_power,power",
        ],
        more: &[],
    },
    Case {
        name: "uncore",
        machine: "sim:gold-6138",
        over: &[
            "uncore-max-freq=1.2GHz,1.4GHz,1.6GHz,1.8GHz,2GHz",
            "max-freq=1.2GHz,1.8GHz,2.4GHz,3GHz,3.7GHz",
        ],
        more: &[],
    },
    Case {
        name: "levels and features",
        machine: "sim:sst-guide",
        over: &[
            "sst-level=0,4",
            "sst-bf=on,off",
            "sst-tf=on,off",
            "sst-cp=on,off",
            "max-freq=1.8GHz,2.4GHz,max",
        ],
        more: &[],
    },
    Case {
        name: "two kinds of cores",
        machine: "sim:hybrid-laptop",
        over: &[
            "max-freq@0-7=1.2GHz,2GHz,2.8GHz,3.6GHz,4.4GHz",
            "epp=performance,balance_performance,balance_power,power",
        ],
        more: &[],
    },
    Case {
        name: "forbidden combinations",
        machine: "sim:gold-6138",
        over: &[
            "governor=performance,powersave",
            "epp=performance,balance_performance,balance_power,power",
            "max-freq=1.8GHz,2.4GHz,3GHz",
        ],
        more: &[],
    },
    Case {
        name: "a knob that does nothing",
        machine: "sim:ryzen-5750g",
        over: &["latency-limit=2us,100us,1000us", "max-freq=1.2GHz,2GHz,2.8GHz,3.4GHz,4GHz,4.6GHz"],
        more: &[],
    },
    Case {
        name: "a neighbour that comes and goes",
        machine: "sim:ryzen-5750g",
        over: &[
            "max-freq=1.2GHz,2GHz,2.8GHz,3.4GHz,4GHz,4.6GHz",
            "epp=performance,balance_performance,balance_power,power",
        ],
        more: &["--pin", "0-7", "--beside", "bursts", "--beside-pin", "8-15"],
    },
];

/// The limit in all cases: time may increase by at most a quarter.
const LIMIT: f64 = 1.25;

fn json(folder: &Path, words: &[&str]) -> Value {
    let ran = Ran::of(flyball!().current_dir(folder).args(words).args(["--model", "short.toml", "--json"]));
    assert_eq!(ran.code, 0, "{words:?}: {}", ran.text());
    ran.json()
}

/// Returns the mean energy and time of each setting of a case.
fn truth(folder: &Path, case: &Case, search: &[&str], rounds: &str) -> BTreeMap<String, (f64, f64)> {
    let plan = json(folder, &[search, &["-n"]].concat());
    let arms = plan["searched"]["arms"].as_array().expect("arms");
    let names: Vec<&str> = arms.iter().filter_map(|arm| arm["name"].as_str()).collect();
    let mut words = vec!["compare", "-M", case.machine, "--rounds", rounds, "--seed", "99", "-o", "truth"];
    words.extend(names.iter().flat_map(|name| ["--arm", name]));
    json(folder, &[&words, case.more].concat());
    let report = fs::read(folder.join("truth/report.json")).expect("a report");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let mean = |arm: &Value, quantity: &str| {
        let summaries = arm["summaries"].as_array().expect("summaries");
        let found = summaries.iter().find(|one| one["quantity"] == quantity).expect("the quantity");
        found["mean"].as_f64().expect("a mean")
    };
    let of = |arm: &Value| {
        (arm["name"].as_str().expect("a name").to_owned(), (mean(arm, "energy"), mean(arm, "performance")))
    };
    report["arms"].as_array().expect("arms").iter().map(of).collect()
}

/// Searches of a case with several seeds: prints a line per search, and returns how many were
/// right.
fn searches(case: &Case, rounds: &str, seeds: u64) -> u64 {
    let folder = tempfile::tempdir().expect("a directory");
    fs::write(folder.path().join("short.toml"), crate::tune::MODEL).expect("written");
    let mut search = vec!["tune", "-M", case.machine, "--minimize", "energy", "--subject-to", "time <= +25%"];
    search.extend(case.over.iter().flat_map(|over| ["--over", over]));
    search.extend(case.more);
    let truth = truth(folder.path(), case, &search, rounds);
    let base = truth["now"].1;
    let allowed = truth.values().filter(|(_, time)| *time <= LIMIT * base);
    let best = allowed.map(|(energy, _)| *energy).fold(f64::INFINITY, f64::min);
    // What `compare` would take: its default number of rounds for each setting.
    let exhaustive = 15 * truth.len() as u64;
    let mut right = 0;
    for seed in 0..seeds {
        let (number, directory) = (format!("{}", 7000 + seed), format!("run-{seed}"));
        let found =
            json(folder.path(), &[&search[..], &["--seed", &number, "--directory", &directory]].concat());
        let chosen = found["chosen"].as_str().expect("a name");
        let (energy, time) = (truth[chosen].0 / best - 1.0, truth[chosen].1 / base - 1.0);
        // A fresh block has at most three settings.
        let fresh = found["confirmed"]["rounds"].as_u64().unwrap_or(0) * 3;
        let used = found["search"]["rounds"].as_u64().expect("rounds") + fresh;
        let is_right = energy <= 0.01 && time <= LIMIT - 1.0 + 0.005;
        right += u64::from(is_right && 3 * used <= exhaustive);
        println!(
            "{:<32} {:<16} {:>3} settings: {chosen}: energy {:+.2} % of the best allowed, time {:+.1} %, {used} rounds of {exhaustive}",
            case.name,
            case.machine,
            truth.len(),
            100.0 * energy,
            100.0 * time
        );
    }
    right
}

#[test]
fn a_search_finds_what_many_rounds_of_every_setting_show() {
    // FLYBALL_TUNE_TRUTH=200 measures every setting of all machines in 200 rounds, which takes
    // minutes.
    match std::env::var("FLYBALL_TUNE_TRUTH") {
        Err(_) => assert_eq!(searches(&CASES[0], "4", 1), 1),
        Ok(rounds) => {
            let seeds = 5;
            let right: u64 = CASES.iter().map(|case| searches(case, &rounds, seeds)).sum();
            let all = seeds * CASES.len() as u64;
            println!("{right} of {all} right, in at most a third of the exhaustive rounds");
            assert!(20 * right >= 19 * all, "{right} of {all}");
        }
    }
}
