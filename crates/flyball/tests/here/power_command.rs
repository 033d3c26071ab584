//! Tests `compare --power-command` with commands that print watts, on the live machine.

use flyball_testing::{Ran, flyball};

struct Place(tempfile::TempDir);

impl Place {
    fn compare(&self, words: &[&str]) -> Ran {
        let mut command = flyball!();
        command.current_dir(self.0.path()).arg("--state-dir").arg(self.0.path().join("state"));
        Ran::of(command.arg("compare").args(words))
    }

    /// Returns the first arm's values of a quantity.
    fn points(&self, quantity: &str) -> Vec<f64> {
        let text = std::fs::read_to_string(self.0.path().join("out/report.json")).unwrap();
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let all = report["arms"][0]["summaries"].as_array().unwrap();
        let found = all.iter().find(|summary| summary["quantity"] == quantity);
        let points = found.and_then(|summary| summary["points"].as_array().cloned()).unwrap_or_default();
        points.iter().filter_map(|point| point["value"].as_f64()).collect()
    }
}

#[test]
fn the_power_of_a_command_is_summed_over_the_round() {
    let _turn = crate::alone();
    let place = Place(tempfile::tempdir().unwrap());
    let one = ["--arm", "now", "--arm", "b:", "--rounds", "1", "--warm-up", "0", "-o", "out"];
    let run = |command: &str, seconds: &str| {
        let _ = std::fs::remove_dir_all(place.0.path().join("out"));
        place.compare(&[&one[..], &["--power-command", command, "--", "sleep", seconds]].concat())
    };
    let ran = run("echo 'Instantaneous power reading:  120 Watts'", "2.6");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let (joules, watts) = (place.points("platform"), place.points("platform-power"));
    assert!(joules.len() == 1 && (300.0..400.0).contains(&joules[0]), "{joules:?}");
    assert!(watts.len() == 1 && (watts[0] - 120.0).abs() < 0.1, "{watts:?}");
    // If it were resumed without the command, the remaining rounds would lack power.
    let resumed = place.compare(&["--resume", "out"]);
    assert!(resumed.code == 2 && resumed.err.contains("--power-command"), "{}", resumed.err);
    // A round that is too short has no power, and the user is told.
    let short = run("echo 120", "0.1");
    assert!(short.code == 0 && short.err.contains("2 rounds have no power"), "{}", short.err);
    assert!(place.points("platform").is_empty());
    // Later failures of the command are counted. The remaining readings do not cover the round.
    let failing = run("test -e first && exit 4; touch first; echo 90 W", "2.6");
    assert!(failing.code == 0 && failing.err.contains("runs failed"), "{}", failing.err);
    assert!(place.points("platform").is_empty());
    // A command that fails at once stops the comparison before anything is created.
    let wrong = run("echo no watts", "0.1");
    assert!(wrong.code == 1 && wrong.err.contains("printed no number"), "{}", wrong.err);
    assert!(!place.0.path().join("out").exists());
    let simulated = place.compare(&[
        "-M",
        "sim:ryzen-5750g",
        "--arm",
        "now",
        "--arm",
        "b:",
        "--power-command",
        "echo 1",
        "--workload",
        "spin",
    ]);
    assert_eq!(simulated.code, 2, "{}", simulated.err);
}
