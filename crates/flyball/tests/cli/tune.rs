//! Tests `tune` on simulated machines: a complete search with its confirmation, a stopped search,
//! and wrong input.

use std::{fs, path::Path};

use flyball_testing::{Ran, flyball};
use serde_json::Value;

/// A model that takes less than a second and is partly bound by memory: the highest frequencies
/// cost much energy and save little time.
pub(crate) const MODEL: &str = r#"
name = "short"
title = "eight tasks that are partly bound by memory"
about = "Less than a second of work."
unit = "steps"
[variation]
cycles = 0.004
memory = 0.004
[[task]]
count = 8
place = "fixed"
cycles = 1e6
memory_ns = 400_000
turns = 10_000
"#;

const SPACE: [&str; 12] = [
    "-M",
    "sim:ryzen-5750g",
    "--over",
    "max-freq=1.6GHz..4.6GHz:4",
    "--over",
    "epp=performance,power",
    "--minimize",
    "energy",
    "--subject-to",
    "time <= +25%",
    "--model",
    "short.toml",
];

fn tune(folder: &Path, words: &[&str]) -> Ran {
    Ran::of(flyball!().current_dir(folder).arg("tune").args(words))
}

fn json(ran: &Ran) -> Value {
    assert_eq!(ran.code, 0, "{}", ran.text());
    serde_json::from_str(&ran.out).expect("JSON")
}

/// Every other setting takes longer than the limit allows and uses less energy.
#[test]
fn better_settings_beyond_the_limit_are_named() {
    let folder = tempfile::tempdir().expect("a directory");
    fs::write(folder.path().join("short.toml"), MODEL).expect("written");
    let space = "-M sim:ryzen-5750g --over max-freq=2GHz,3GHz --minimize energy --subject-to time<=+1% --model short.toml";
    let words: Vec<&str> = space.split(' ').chain(["--seed", "1", "--directory", "run"]).collect();
    let ran = tune(folder.path(), &words);
    assert_eq!(ran.code, 0, "{}", ran.text());
    let said = "By the model, 'max-freq=3GHz' changes energy by -";
    let line =
        ran.out.lines().find(|line| line.starts_with(said)).unwrap_or_else(|| panic!("{}", ran.text()));
    assert!(line.contains("but it breaks the limit: wall time +"), "{line}");
}

#[test]
fn a_search_ends_with_a_confirmed_profile() {
    let folder = tempfile::tempdir().expect("a directory");
    fs::write(folder.path().join("short.toml"), MODEL).expect("written");
    let run = |words: &[&str]| tune(folder.path(), &[&SPACE[..], words].concat());
    let found = json(&run(&["--seed", "1", "--directory", "run", "-o", "saving.toml", "--json"]));
    assert_eq!(found["simulated"], true);
    assert_eq!(found["keeps_now"], false, "{found:#}");
    assert_eq!(found["confirmed"]["keeps_limit"], true, "{found:#}");
    let change = found["confirmed"]["objective"]["change"].as_f64().expect("a change");
    assert!(change < -0.4, "{found:#}");
    // The limit excludes the lower frequencies, which take less energy.
    let chosen = found["chosen"].as_str().expect("a name");
    assert!(chosen.contains("epp=power"), "{chosen}");

    let text = fs::read_to_string(folder.path().join("saving.toml")).expect("a profile");
    assert!(text.contains("found by flyball tune on sim:ryzen-5750g (simulated)"), "{text}");
    // The machine accepts the profile, and the rounds are those of a comparison.
    let plan =
        Ran::of(flyball!().current_dir(folder.path()).args(["-M", "sim:ryzen-5750g", "plan", "saving.toml"]));
    assert_eq!(plan.code, 0, "{}", plan.text());
    for directory in ["run", "run/confirm"] {
        let report = Ran::of(flyball!().current_dir(folder.path()).args(["report", directory]));
        assert_eq!(report.code, 0, "{}", report.text());
    }
    // The verdict can be recomputed from the rounds alone.
    let report = json(&Ran::of(flyball!().current_dir(folder.path()).args(["report", "run", "--json"])));
    for what in ["chosen", "search", "confirmed", "influence"] {
        assert_eq!(report[what], found[what], "{what}");
    }
    assert!(folder.path().join("run/search.html").exists());

    // A fresh round with four times the energy is reported, because the median hides it.
    let log = folder.path().join("run/confirm/rounds.jsonl");
    let mut rounds: Vec<Value> = fs::read_to_string(&log)
        .expect("rounds")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let odd = rounds.iter_mut().find(|round| round["arm"] == 1).expect("a round of the setting");
    for series in odd["readings"]["energy"].as_array_mut().expect("meters") {
        let first = series[0][1].as_u64().expect("a count");
        let last = series.as_array_mut().and_then(|all| all.last_mut()).expect("a reading");
        last[1] = (first + 4 * (last[1].as_u64().expect("a count") - first)).into();
    }
    let lines: Vec<String> = rounds.iter().map(Value::to_string).collect();
    fs::write(&log, lines.join("\n") + "\n").expect("written");
    let text = Ran::of(flyball!().current_dir(folder.path()).args(["report", "run"])).out;
    assert!(text.contains(" in typical rounds (-"), "{text}");
    assert!(text.contains(&format!("Fresh rounds of {chosen}: energy far from the others")), "{text}");

    // Remove half of the rounds and the confirmation. The search continues with the same next block
    // as before.
    let log = folder.path().join("run/rounds.jsonl");
    let rounds = fs::read_to_string(&log).expect("rounds");
    let lines: Vec<&str> = rounds.lines().collect();
    let kept = lines.len() / 2;
    fs::write(&log, lines[..kept].join("\n") + "\n").expect("written");
    fs::remove_dir_all(folder.path().join("run/confirm")).expect("removed");
    let again = json(&tune(folder.path(), &["-M", "sim:ryzen-5750g", "--resume", "run", "--json"]));
    assert_eq!(again["confirmed"]["keeps_limit"], true, "{again:#}");
    let order = |text: &str| -> Vec<(u64, u64)> {
        let rounds = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        rounds
            .filter(|round| round["warm_up"] != true)
            .map(|round| (round["block"].as_u64().unwrap(), round["arm"].as_u64().unwrap()))
            .collect()
    };
    let (before, after) = (order(&rounds), order(&fs::read_to_string(&log).expect("rounds")));
    let block = before[kept - 2].0;
    let members = |rounds: &[(u64, u64)]| -> Vec<u64> {
        rounds.iter().filter(|(of, _)| *of == block).map(|(_, arm)| *arm).collect()
    };
    assert_eq!(members(&before), members(&after));
}

/// A 'latency-limit' of at least 1 s has no effect here, so no value can be shown to be better.
#[test]
fn a_search_without_a_gain_chooses_nothing_and_writes_no_profile() {
    let folder = tempfile::tempdir().expect("a directory");
    fs::write(folder.path().join("short.toml"), MODEL).expect("written");
    let space = ["-M", "sim:ryzen-5750g", "--over", "latency-limit=1s,1.1s,1.2s", "--minimize", "time"];
    for seed in ["1", "2", "3"] {
        let words = ["--model", "short.toml", "--seed", seed, "--directory", seed, "-o", "p.toml"];
        let ran = tune(folder.path(), &[&space[..], &words].concat());
        assert_eq!(ran.code, 0, "{}", ran.text());
        assert!(ran.out.starts_with("Keep the machine as it is: "), "{}", ran.out);
        assert!(!ran.out.contains("influence"), "{}", ran.out);
        assert!(ran.err.contains("p.toml is not written"), "{}", ran.err);
        assert!(!folder.path().join("p.toml").exists());
        let report = json(&Ran::of(flyball!().current_dir(folder.path()).args(["report", seed, "--json"])));
        assert_eq!((&report["chosen"], &report["keeps_now"]), (&"now".into(), &true.into()), "{report:#}");
    }
}

#[test]
fn what_would_be_searched_is_listed() {
    let folder = tempfile::tempdir().expect("a directory");
    let ran = tune(
        folder.path(),
        &[
            "-M",
            "sim:ryzen-5750g",
            "-n",
            "--over",
            "epp=all",
            "--over",
            "governor=all",
            "--without",
            "governor=powersave epp=power",
            "--minimize",
            "energy",
            "--workload",
            "gitsource",
        ],
    );
    assert_eq!(ran.code, 0, "{}", ran.text());
    // The performance governor of amd-pstate-epp accepts no other preference.
    assert!(ran.out.contains("governor=performance"), "{}", ran.out);
    assert!(ran.out.contains(": --without"), "{}", ran.out);
    assert_eq!(fs::read_dir(folder.path()).expect("a directory").count(), 0);
}

#[test]
fn wrong_input_is_named() {
    let folder = tempfile::tempdir().expect("a directory");
    let sim = ["-M", "sim:ryzen-5750g", "--workload", "gitsource"];
    for (words, code, named) in [
        (&["--over", "epp=performance,power", "--minimize", "watts"][..], 2, "'watts' is not a quantity"),
        (&["--over", "epp=performance,power"], 2, "--minimize"),
        (&["--minimize", "energy"], 2, "--over"),
        (
            &["--minimize", "energy", "--maximize", "performance", "--over", "epp=power,performance"],
            2,
            "--maximize",
        ),
        (&["--over", "epp=power,performance", "--minimize", "energy", "--prefer", "beauty"], 2, "'beauty'"),
        (&["--preset", "speed"], 2, "efficiency, latency or power-cap"),
        (&["--preset", "power-cap=0"], 2, "power-cap=WATTS"),
        (&["--preset", "latency", "--over", "epp=power,performance"], 2, "--over"),
        (
            &["--over", "epp=power,performance", "--minimize", "energy", "--power-command", "echo 5"],
            2,
            "this machine",
        ),
        (&["--over", "epp", "--minimize", "energy"], 2, "write KNOB=VALUES"),
        (&["--over", "epp=power", "--minimize", "energy"], 2, "nothing to choose from"),
        (&["--over", "epp=power,power", "--minimize", "energy"], 2, "named twice"),
        (&["--over", "epq=power,performance", "--minimize", "energy"], 2, "epq"),
        (&["--over", "epp=fast,power", "--minimize", "energy"], 2, "fast"),
        (&["--over", "driver=a,b", "--minimize", "energy"], 2, "does not reboot"),
        (&["--over", "max-freq=1GHz..2GHz:1", "--minimize", "energy"], 2, "LOW..HIGH:COUNT"),
        (
            &["--over", "max-freq=1GHz..2GHz:99", "--over", "min-freq=1GHz..2GHz:99", "--minimize", "energy"],
            2,
            "9801 settings",
        ),
        (
            &["--over", "epp=power,performance", "--minimize", "energy", "--subject-to", "time 5%"],
            2,
            "no <= or >=",
        ),
        (
            &["--over", "epp=power,performance", "--minimize", "energy", "--subject-to", "time <= -5%"],
            2,
            "'now' itself",
        ),
        (&["--over", "epp=power,performance", "--minimize", "dram-energy"], 4, "cannot be measured"),
        (&["--over", "epp=power,performance", "--minimize", "energy", "--max-runs", "3"], 2, "10..=10000"),
    ] {
        let ran = tune(folder.path(), &[words, &sim[..]].concat());
        assert_eq!(ran.code, code, "{words:?}: {}", ran.text());
        assert!(ran.err.contains(named), "{words:?}: {}", ran.err);
    }
    let ran = tune(folder.path(), &["--resume", "."]);
    assert_eq!(ran.code, 2, "{}", ran.text());
    assert_eq!(fs::read_dir(folder.path()).expect("a directory").count(), 0);
}

#[test]
fn a_preset_is_printed_before_it_is_used() {
    let folder = tempfile::tempdir().expect("a directory");
    let run = |preset: &str| {
        tune(folder.path(), &["-M", "sim:ryzen-5750g", "-n", "--preset", preset, "--workload", "gitsource"])
    };
    for (preset, limit) in [("efficiency", "<= +5 %"), ("power-cap=30", "<= 30 W"), ("latency", "wall time")]
    {
        let ran = run(preset);
        assert_eq!(ran.code, 0, "{}", ran.text());
        assert!(ran.err.contains("the preset is --over epp="), "{}", ran.err);
        assert!(ran.out.contains(limit), "{}", ran.out);
    }
}

#[test]
fn a_search_shares_the_options_of_compare() {
    let folder = tempfile::tempdir().expect("a directory");
    fs::write(folder.path().join("short.toml"), MODEL).expect("written");
    // The quiet level chooses governor and preference itself.
    let quiet = ["-M", "sim:ryzen-5750g", "--over", "max-freq=1.6GHz..4.6GHz:4", "--minimize", "energy"];
    let ran = tune(
        folder.path(),
        &[&quiet[..], &["--model", "short.toml", "--quiet=light", "--directory", "quiet"]].concat(),
    );
    assert_eq!(ran.code, 0, "{}", ran.text());
    assert!(ran.err.contains("best so far") && ran.err.contains(" left"), "{}", ran.err);
    for directory in ["quiet", "quiet/confirm"] {
        let manifest = folder.path().join(directory).join("manifest.json");
        let Ok(manifest) = fs::read_to_string(manifest) else { continue };
        let manifest: Value = serde_json::from_str(&manifest).expect("JSON");
        assert_eq!(manifest["quiet"]["level"], "light", "{directory}");
    }
}

#[test]
fn a_strict_search_ends_with_its_rounds() {
    let folder = tempfile::tempdir().expect("a directory");
    fs::write(folder.path().join("short.toml"), MODEL).expect("written");
    let run = |words: &[&str]| tune(folder.path(), &[&SPACE[..], words].concat());
    let found = json(&run(&["--seed", "1", "--strict", "--max-runs", "40", "--json"]));
    assert!(found["search"]["rounds"].as_u64().is_some_and(|rounds| rounds <= 40), "{found:#}");
    assert_eq!(found["confirmed"]["keeps_limit"], true, "{found:#}");
}
