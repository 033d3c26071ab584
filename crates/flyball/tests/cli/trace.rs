//! Tests `flyball trace` as a user runs it, on traces written here.

use flyball_testing::flyball;
use std::{
    io::Write,
    path::Path,
    process::{Output, Stdio},
};

fn flyball(arguments: &[&str], input: Option<&str>) -> Output {
    let mut command = flyball!();
    command.arg("trace").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    if let Some(input) = input {
        // A command that rejects its arguments does not read stdin.
        let _ = stdin.write_all(input.as_bytes());
    }
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A second of two CPUs, one of them beyond the 256 that the kernel's tracer supports. The task's
/// name is `job[12]`.
fn trace() -> String {
    let mut text = String::from("# tracer: nop\n#\n");
    for step in 0..200u64 {
        let cpu = if step % 2 == 0 { 0 } else { 300 };
        let time = 1_000_000 + step * 5_000;
        text.push_str(&format!(
            "{:>16}-{:<7} [{cpu:03}] d..2. {:5}.{:06}: amd_pstate_perf: amd_min_perf=15 amd_des_perf={} \
             amd_max_perf=166 freq=3300000 mperf=750 aperf=750 tsc=1000 cpu_id={cpu} fast_switch=true\n",
            "job[12]",
            4711,
            time / 1_000_000,
            time % 1_000_000,
            if step / 20 % 2 == 0 { 100 } else { 50 },
        ));
    }
    text
}

#[test]
fn text_from_a_pipe_becomes_a_table_and_json() {
    let table = flyball(&["report", "-"], Some(&trace()));
    assert_eq!((table.status.code(), stderr(&table)), (Some(0), String::new()));
    assert!(stdout(&table).contains("amd_pstate_perf 200"));
    let json = flyball(&["report", "--json", "-c", "300", "-"], Some(&trace()));
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(value["report"]["cpus"][0]["cpu"], 300);
    assert_eq!(value["report"]["cpus"][0]["samples"], 100);
    assert_eq!(value["report"]["cpus"][0]["load"]["mean"], 75.0);
    assert_eq!(value["report"]["cpus"].as_array().unwrap().len(), 1);
    assert_eq!(value["trace"]["stored"], "text");
}

#[test]
fn the_tracers_files_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let done = flyball(&["report", "--csv", out.to_str().unwrap(), "-"], Some(&trace()));
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let all = read("cpu.csv");
    let mut lines = all.lines();
    assert!(lines.next().unwrap().starts_with("common_cpu, common_secs, common_usecs, min_perf, des_perf"));
    assert_eq!(
        lines.next().unwrap(),
        "CPU_000, 00001, 010000, 15, 100, 166, 3.3000, 750, 750, 1000, 75.00, 10.000, 3, 0.010, job[12]-4711"
    );
    assert_eq!((lines.count(), read("cpu300.csv").lines().count()), (197, 100));
}

#[test]
fn a_page_and_pictures_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let arguments =
        ["report", "--html", &path("page.html"), "--plots", &path("plots"), "--plot-format", "svg", "-"];
    let done = flyball(&arguments, Some(&trace()));
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert!(std::fs::metadata(path("page.html")).unwrap().len() > 10_000);
    for name in [
        "cpu000_frequency.svg",
        "cpu300_des_perf.svg",
        "cpu300_load.svg",
        "all_cpu_frequencies.svg",
        "cpu000_des_perf_vs_samples.svg",
        "all_cpu_des_perf_vs_samples.svg",
    ] {
        assert!(Path::new(&path("plots")).join(name).exists(), "{name}");
    }
}

#[test]
fn intel_traces_have_the_pictures_of_their_tracer() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..50)
        .map(|step| {
            format!(
                "{:>16}-{:<7} [{:03}] d.h2. {:5}.{:06}: pstate_sample: core_busy=97 scaled=80 from=20 to={} mperf=900 \
                 aperf=950 tsc=1000 freq=2900000 io_boost=4\n",
                "job",
                7,
                step % 2,
                1,
                10_000 + step * 5_000,
                20 + step % 9
            )
        })
        .collect();
    let words = ["report", "--plots", folder.path().to_str().unwrap(), "--plot-format", "svg", "-"];
    let done = flyball(&words, Some(&text));
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    // All pictures that intel_pstate_tracer.py draws.
    for name in ["perf_busy", "perf_busy_vs_samples", "durations", "loads"] {
        assert!(folder.path().join(format!("cpu001_{name}.svg")).exists(), "{name}");
    }
    for name in
        ["pstates_vs_samples", "pstates", "loads", "frequencies", "durations", "scaled", "boost", "ghz"]
    {
        assert!(folder.path().join(format!("all_cpu_{name}.svg")).exists(), "{name}");
    }
}

#[test]
fn lines_come_back_as_they_were() {
    let printed = flyball(&["report", "--print", "-"], Some(&trace()));
    let trace = trace();
    let kept: Vec<&str> = trace.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(stdout(&printed).lines().collect::<Vec<_>>(), kept);
}

#[test]
fn damage_is_said_and_not_fatal() {
    let text = trace();
    let damaged = format!("{}nonsense\n{}", &text[..text.len() - 100], "more of it");
    let cut = flyball(&["report", "--json", "-"], Some(&damaged));
    assert_eq!(cut.status.code(), Some(1));
    assert!(stderr(&cut).contains("at byte"), "it says where: {}", stderr(&cut));
    let report: serde_json::Value = serde_json::from_slice(&cut.stdout).unwrap();
    assert_eq!(report["report"]["events"][0]["count"], 199, "{report}");
    let refused = flyball(&["report", "-"], Some("PERFILE2 and so on"));
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let missing = flyball(&["report", "/nonexistent/trace.dat"], None);
    assert_eq!(missing.status.code(), Some(2));
    let raw = flyball(&["report", "-"], Some("\0\0\0\0\0\0\0\0"));
    assert_eq!(raw.status.code(), Some(2), "{}", stderr(&raw));
}

#[test]
fn a_cpu_that_falls_silent_is_diagnosed() {
    let text: String = trace()
        .lines()
        .filter(|line| !(line.contains("[300]") && (line.contains(" 1.2") || line.contains(" 1.3"))))
        .map(|line| line.replace("mperf=750", "mperf=950") + "\n")
        .collect();
    let healthy = flyball(&["diagnose", "-"], Some(&text));
    assert!(!stdout(&healthy).contains("no decision"), "{}", stdout(&healthy));
    let silent: String = text
        .lines()
        .filter(|line| {
            let number =
                line.split(": amd").next().and_then(|head| head.rsplit(' ').next()).unwrap_or_default();
            let second: f64 = number.parse().unwrap_or(0.0);
            !(line.contains("[300]") && (1.1..1.9).contains(&second))
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let found = flyball(&["diagnose", "-"], Some(&silent));
    assert_eq!(found.status.code(), Some(9), "{}", stdout(&found));
    assert!(
        stdout(&found).contains("CPU 300") && stdout(&found).contains("no decision for 0.8"),
        "{}",
        stdout(&found)
    );
    // The kernel's command line explains it. Here, a directory with the machine's files has it.
    let machine = tempfile::tempdir().unwrap();
    let cpus = machine.path().join("sys/devices/system/cpu");
    std::fs::create_dir_all(cpus.join("cpu0/topology")).unwrap();
    std::fs::create_dir_all(machine.path().join("proc")).unwrap();
    std::fs::write(cpus.join("possible"), "0-511\n").unwrap();
    std::fs::write(cpus.join("cpu0/topology/thread_siblings_list"), "0,256\n").unwrap();
    for (command_line, words) in [
        ("ro nohz_full=300", "runs CPU 300 without a tick (nohz_full=300)"),
        ("ro", "the kernel ticks on CPU 300"),
    ] {
        std::fs::write(machine.path().join("proc/cmdline"), command_line).unwrap();
        let topology = format!("--topology={}", machine.path().display());
        let found = flyball(&["diagnose", &topology, "-"], Some(&silent));
        assert!(stdout(&found).contains(words), "{}{}", stdout(&found), stderr(&found));
        assert_eq!(found.status.code(), Some(9));
    }
    let wrong = flyball(&["diagnose", "--topology=/nonexistent", "-"], Some(&silent));
    assert_eq!(wrong.status.code(), Some(2), "{}", stderr(&wrong));
}

#[test]
fn what_cannot_be_judged_is_not_called_right() {
    let line = "bash-12 [001] d..2. 100.000001: amd_pstate_perf: amd_min_perf=15 amd_des_perf=39 amd_max_perf=166 \
                freq=3300050 mperf=10 aperf=20 tsc=100 cpu_id=1 changed=false fast_switch=true\n";
    let idle = "<idle>-0 [001] d..2. 100.000001: cpu_idle: state=1 cpu_id=1\n";
    let hot = "<idle>-0 [001] d.h1. 100.100001: thermal_apic_entry: vector=250\n";
    for (text, code, words) in [
        ("", 0, "the trace contains no records"),
        ("# tracer: nop\n#\n", 0, "the trace contains no records"),
        (line.replace("100.000001", "100000001").as_str(), 0, "is a counter, not a time source"),
        (idle, 0, "none of them is a request"),
        (line, 0, "no problems found in 1 records"),
        (hot, 8, "CPU 1, 100.100 s to 100.100 s: its thermal interrupt fired"),
    ] {
        let said = flyball(&["diagnose", "-"], Some(text));
        assert_eq!(said.status.code(), Some(code), "{text}: {}{}", stdout(&said), stderr(&said));
        assert!(stdout(&said).contains(words), "{text}: {}{}", stdout(&said), stderr(&said));
    }
    // A counter that no kernel writes is reported and excluded from all numbers.
    let unreadable = line.replace("tsc=100", "tsc=99999999999999999999999");
    let said = flyball(&["report", "-"], Some(&unreadable));
    let words = "left out: 1 records of amd_pstate_perf with fields that cannot be read";
    assert!(stdout(&said).contains(words) && !stdout(&said).contains("events: amd"), "{}", stdout(&said));
    assert!(stderr(&flyball(&["report", "-"], Some(""))).contains("contains no records"));
}
