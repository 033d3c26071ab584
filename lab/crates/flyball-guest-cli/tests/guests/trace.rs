//! Records a real driver's own events in a guest while a CPU goes offline and comes back.
//!
//! By default one boot, of the newest kernel in the cache of `flyball guest fetch`;
//! `FLYBALL_GUEST_TESTS=all` boots all of them. Skipped boots are counted.

use serde_json::Value;

use crate::{
    guest::{self, SuiteCase},
    program,
};

fn part<'a>(text: &'a str, name: &str) -> &'a str {
    let rest = text.split(&format!("--- {name}\n")).nth(1).unwrap_or_default();
    rest.split("\n--- ").next().unwrap_or_default()
}

fn a_cpu_that_comes_and_goes_is_recorded(kernel: &str) {
    let flyball = format!("{}:flyball", program::flyball());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/trace.sh");
    let options = [
        "ryzen-5750g",
        "--driver",
        "amd-pstate=passive",
        "--closed",
        "--cpus",
        "2",
        "--file",
        &flyball,
        "--file",
        script,
    ];
    let output = guest::run(kernel, &options, &["sh", "./trace.sh"]).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = || format!("{kernel}: {text}\n--- stderr\n{}", String::from_utf8_lossy(&output.stderr));
    for line in ["record exit 0", "instances: 0"] {
        assert!(text.lines().any(|have| have == line), "no line '{line}' in {}", all());
    }
    let summary: Value = serde_json::from_str(part(&text, "summary")).unwrap_or_else(|_| panic!("{}", all()));
    let number = |value: &Value, name: &str| value[name].as_u64().unwrap_or(u64::MAX);
    assert_eq!(
        number(&summary, "received") + number(&summary, "lost"),
        number(&summary, "written"),
        "{}",
        all()
    );
    let second = summary["cpus"].as_array().and_then(|cpus| cpus.iter().find(|cpu| cpu["cpu"] == 1));
    assert!(second.is_some_and(|cpu| number(cpu, "received") > 0), "{}", all());
    let report: Value = serde_json::from_str(part(&text, "report")).unwrap_or_else(|_| panic!("{}", all()));
    assert_eq!(report["report"]["records"], summary["received"], "{}", all());
    assert_eq!(report["report"]["driver"], "amd-pstate", "{}", all());
    // The machine as the recording describes it: it had two CPUs, and one was offline.
    let machine = &report["trace"]["machine"];
    assert_eq!(
        (machine["online"].as_str(), machine["possible"].as_str()),
        (Some("0"), Some("0-1")),
        "{}",
        all()
    );
    assert!(!part(&text, "diagnosis").contains("FAULT"), "{}", all());
}

/// The boots of this suite.
pub(crate) fn suite() -> Vec<SuiteCase> {
    let suited = |kernel: &'static str| SuiteCase {
        name: format!("{kernel}-a_cpu_that_comes_and_goes_is_recorded"),
        kernel: kernel.to_owned(),
        everyday: kernel == "7.2",
        missing: None,
        test: Box::new(move || {
            a_cpu_that_comes_and_goes_is_recorded(kernel);
            Ok(())
        }),
    };
    ["6.1", "6.12", "7.2"].into_iter().map(suited).collect()
}
