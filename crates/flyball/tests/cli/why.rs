//! `flyball why` on simulated machines with known limits, on a recorded one, and with wrong words.

use flyball_testing::{Ran, flyball};
use serde_json::Value;

fn why(words: &[&str]) -> Ran {
    Ran::of(flyball!().args(words).env("NO_COLOR", "1"))
}

#[test]
fn who_set_a_limit_and_what_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("machine");
    let machine = ["-M", "sim:gold-6138", "--sim-state", state.to_str().unwrap()];
    let run = |words: &[&str]| why(&[&machine[..], words].concat());
    assert_eq!(run(&["set", "governor=performance", "max-freq=2.5GHz"]).code, 0);
    let ran = run(&["why", "2", "-t", "1s", "--workload", "spin", "--pin", "2", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.text());
    let found = &ran.json()["cpus"][0];
    let number = |value: &Value| value.as_f64().unwrap();
    let step = &found["steps"][0];
    assert_eq!((&step["limiter"], &step["knob"]), (&"max-freq".into(), &"max-freq".into()), "{found}");
    assert!(step["by"].as_str().unwrap().contains("max-freq=2.5GHz"), "{found}");
    let steps = found["steps"].as_array().unwrap();
    let sum: f64 = steps.iter().map(|step| number(&step["mhz"])).sum::<f64>() + number(&found["rest"]);
    assert!((sum - (number(&found["highest"]) - number(&found["mhz"]))).abs() < 1e-6, "{found}");
    assert!(found["sentence"].as_str().unwrap().starts_with("2.50 of 3.70 GHz: 1.20 lost to"), "{found}");
    // A CPU that sleeps has no speed.
    let ran = run(&["why", "7", "-t", "1s"]);
    assert!(ran.out.contains("CPUs 7\n  asleep"), "{}", ran.text());
}

#[test]
fn a_recording_shows_limits() {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/milan0.facts");
    let ran = why(&["-M", recorded, "why", "3"]);
    assert_eq!(ran.code, 0, "{}", ran.text());
    assert!(ran.out.contains("MHz at most  max-freq: scaling_max_freq"), "{}", ran.text());
}

#[test]
fn wrong_words_are_refused() {
    for words in [
        &["why", "-t", "1ms"][..],
        &["why", "-t", "2h"],
        &["why", "-t", "5"],
        &["-M", "sim:gold-6138", "why", "900"],
        &["-M", "sim:gold-6138", "why", "--workload", "nonsense"],
        &["-M", "sim:gold-6138", "why", "--pin", "3"],
        &["why", "--workload", "spin"],
    ] {
        let ran = why(words);
        assert_eq!(ran.code, 2, "{words:?}: {}", ran.text());
    }
}
