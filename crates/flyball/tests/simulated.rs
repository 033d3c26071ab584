//! Commands on simulated machines, from outside.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::process::{Command, Output};

const FLYBALL: &str = env!("CARGO_BIN_EXE_flyball");

fn flyball(arguments: &[&str]) -> Output {
    let state = tempfile::tempdir().unwrap();
    Command::new(FLYBALL).arg("--state-dir").arg(state.path()).args(arguments).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn faults_by_rule() {
    let machine = ["-M", "sim:ryzen-5750g", "--sim-fault"];
    let with = |rule: &str, rest: &[&str]| flyball(&[&machine[..], &[rule], rest].concat());
    // The third write fails: what was written before it is put back, and the file is named.
    let failed = with("write cpufreq/policy*/scaling_max_freq fails EIO nth 3", &["set", "max-freq=2GHz"]);
    assert!(!failed.status.success());
    assert!(err(&failed).contains("policy2/scaling_max_freq"), "{}", err(&failed));
    // A list of CPUs keeps its comma on the way.
    let online = with("offline 3,5 after 0s", &["get", "online"]);
    assert!(out(&online).contains("off  CPUs 3,5"), "{}", out(&online));
    // Firmware that holds a CPU is seen in its frequency, not in its settings.
    let idle =
        with("write cpufreq/policy0/scaling_governor is lost", &["set", "-c", "0", "governor=performance"]);
    assert!(!idle.status.success(), "a write that is lost must be noticed: {}", err(&idle));
    // What is wrong is told, with the forms.
    let wrong = with("fan broken", &["show"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", err(&wrong));
    assert!(
        err(&wrong).contains("'broken'")
            && err(&wrong).contains(flyball_sim::FAULT_FORMS.lines().next().unwrap())
    );
    let nowhere = with("write cpufreq/policy*/scaling_speed fails EIO", &["get", "governor"]);
    assert!(nowhere.status.success() && err(&nowhere).contains("has no file"), "{}", err(&nowhere));
    let live = flyball(&["--sim-fault", "offline 3", "show"]);
    assert!(!live.status.success() && err(&live).contains("-M sim:NAME"), "{}", err(&live));
    // Help knows every form.
    let help = out(&flyball(&["sim", "--help"]));
    for form in flyball_sim::FAULT_FORMS.lines() {
        assert!(help.contains(form), "{form}");
    }
}
