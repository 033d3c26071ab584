//! Tests commands that read files of other users: what the process may still do while reading.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use flyball_testing::{Ran, archive, flyball, skip};

/// A line of /proc/PID/status.
fn status(child: &Child, key: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(str::trim));
    line.map(str::to_owned)
}

/// Starts a command that reads from a FIFO, and waits until it is confined. The system call filter
/// is the last step.
fn reading(command: &mut Command) -> Child {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while status(&child, "Seccomp").as_deref() != Some("2") && start.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(10));
    }
    child
}

fn fifo(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

#[test]
fn a_reader_of_files_has_no_other_rights() {
    let folder = tempfile::tempdir().unwrap();
    let trace = fifo(folder.path());
    let mut child = reading(flyball!().args(["trace", "report"]).arg(&trace));
    let line = |key: &str| status(&child, key).unwrap_or_default();
    let (privileges, filter, effective) = (line("NoNewPrivs"), line("Seccomp"), line("CapEff"));
    let (permitted, ambient) = (line("CapPrm"), line("CapAmb"));
    // Open and close the other end without writing.
    drop(File::options().write(true).open(&trace).unwrap());
    child.wait().unwrap();
    assert_eq!(privileges, "1");
    // A trace.dat is stored in a file first, so writing files is allowed: CAP_DAC_OVERRIDE,
    // CAP_DAC_READ_SEARCH and CAP_FOWNER.
    let allowed = 1 << 1 | 1 << 2 | 1 << 3;
    for set in [effective, permitted, ambient] {
        assert_eq!(u64::from_str_radix(&set, 16).unwrap() & !allowed, 0, "{set}");
    }
    if filter == "0" {
        return skip(1, "a filter of system calls", "this kernel has none");
    }
    assert_eq!(filter, "2");
}

/// Tests every place where a confined command writes a named file.
#[test]
fn outputs_are_written_where_they_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::copy(archive("adl0"), at("machine.tar.zst")).unwrap();
    fs::create_dir(at("there")).unwrap();
    let run = |words: &[&str]| {
        let mut command = flyball!();
        command.current_dir(folder.path()).args(["-M", "machine.tar.zst"]).args(words);
        let ran = Ran::of(&mut command);
        assert_eq!(ran.code, 0, "{words:?}: {}", ran.text());
        ran
    };
    run(&["save", "profile.toml"]);
    run(&["save", "--force", "there/profile.toml"]);
    assert_eq!(run(&["save", "/dev/stdout", "--force"]).out, fs::read_to_string(at("profile.toml")).unwrap());
    run(&["verify", "profile.toml"]);
    run(&["plan", "profile.toml"]);
    run(&["record", "copy.tar.zst"]);
    run(&["record", "there/copy.tar.zst"]);
    run(&["record", "there/copy.tar.zst", "--force"]);
    let simulated = |words: &[&str]| {
        let mut command = flyball!();
        command
            .current_dir(folder.path())
            .args(["-M", "sim:machine.tar.zst", "--sim-state", "box"])
            .args(words);
        let ran = Ran::of(&mut command);
        assert_eq!(ran.code, 0, "{words:?}: {}", ran.text());
    };
    simulated(&["show"]);
    simulated(&["set", "governor=performance"]);
    simulated(&["get", "governor"]);
    simulated(&["restore"]);
}

/// Every call of a reader is on the list. This test is needed because with glibc, a rejected call
/// may have no other visible effect.
#[test]
fn no_call_of_a_reader_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::copy(archive("adl0"), at("machine.tar.zst")).unwrap();
    let prepare = |words: &[&str]| {
        let ran = Ran::of(flyball!().current_dir(folder.path()).args(words));
        assert_eq!(ran.code, 0, "{words:?}: {}", ran.text());
    };
    let simulated = "sim:hybrid-laptop";
    prepare(&[
        "-M",
        simulated,
        "compare",
        "--arm",
        "now",
        "--arm",
        "epp=power",
        "--rounds",
        "8",
        "-o",
        "run",
        "--workload",
        "spin",
    ]);
    prepare(&["-M", simulated, "top", "--record", "seen", "--samples", "3"]);
    let passive = "sim:hybrid-laptop,boot=intel_pstate=passive";
    prepare(&["-M", passive, "trace", "record", "-o", "trace.dat", "--", "spin"]);
    prepare(&["results", "add", "results", "run"]);
    let recorded = [
        "show",
        "get governor",
        "doctor",
        "save profile.toml",
        "profiles",
        "record copy.tar.zst",
        "top --samples 1",
        "set -n governor=performance",
        "apply -n balanced",
        "exporter --stdout",
        "intel-speed-select -o levels perf-profile info",
    ];
    let others = [
        "why --replay seen",
        "top --replay seen --samples 1",
        "trace report trace.dat",
        "trace report --csv csv trace.dat",
        "report run",
        "report run -o elsewhere --export-json x.json",
        "quiet shifts x.json",
        "results list results",
        "results shifts results",
        "-M sim:hybrid-laptop show",
        "-M sim:hybrid-laptop why --workload spin",
        "-M sim:hybrid-laptop plan throughput",
        "-M sim:hybrid-laptop verify balanced",
    ];
    for line in
        recorded.map(|line| format!("-M machine.tar.zst {line}")).into_iter().chain(others.map(str::to_owned))
    {
        let mut strace = Command::new("strace");
        strace.current_dir(folder.path()).args(["-f", "-qq", "-s", "16", "-o", "calls"]);
        let Ok(ran) = strace.arg(env!("CARGO_BIN_EXE_flyball")).args(line.split(' ')).output() else {
            return skip(1, "calls of readers", "strace is not installed");
        };
        let calls = fs::read_to_string(at("calls")).unwrap();
        if calls.is_empty() {
            return skip(1, "calls of readers", "strace may not trace here");
        }
        let confined = calls.split_once("SECCOMP_MODE_FILTER").map_or(calls.as_str(), |(_, after)| after);
        let refused: Vec<&str> = confined.lines().filter(|line| line.contains("= -1 EPERM")).collect();
        assert!(refused.is_empty(), "{line}: {refused:#?}");
        assert!(matches!(ran.status.code(), Some(0 | 4 | 5)), "{line}: {ran:?}");
    }
}

/// Uses a recorded machine, for which the command is confined.
#[test]
fn a_textfile_is_written_again_until_a_signal_comes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flyball.prom");
    let mut command = flyball!();
    command.arg("-M").arg(archive("adl0")).args(["exporter", "--every", "1s", "--textfile"]).arg(&file);
    let mut child = command.spawn().unwrap();
    let mut written = || {
        let start = Instant::now();
        while !file.exists() && start.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_millis(10));
        }
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}: {:?}", child.try_wait()))
    };
    let first = written();
    fs::remove_file(&file).unwrap();
    assert!(first.contains("flyball_build_info") && written().contains("flyball_build_info"));
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// In a run directory from somebody else, a FIFO in the report's place must not block the command.
#[test]
fn a_report_waits_for_no_fifo() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| Ran::of(flyball!().current_dir(folder.path()).args(words));
    let compared = "-M sim:hybrid-laptop compare --arm now --arm epp=power --rounds 8 -o run --workload spin";
    let ran = run(&compared.split(' ').collect::<Vec<_>>());
    assert_eq!(ran.code, 0, "{}", ran.text());
    for name in ["report.html", "report.csv"] {
        let file = folder.path().join("run").join(name);
        fs::remove_file(&file).unwrap();
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
        let ran = run(&["report", "run"]);
        assert!(ran.code == 1 && ran.err.contains("it is not a regular file"), "{}", ran.text());
        fs::remove_file(&file).unwrap();
        assert_eq!(run(&["report", "run"]).code, 0);
    }
}
