//! Commands that read what others wrote: what the process may still do while it reads.

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

/// Starts a command that reads from a FIFO, and waits until it is confined.
fn reading(command: &mut Command) -> Child {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while status(&child, "NoNewPrivs").as_deref() != Some("1") && start.elapsed() < Duration::from_secs(20) {
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
    // Its other end, and nothing in it.
    drop(File::options().write(true).open(&trace).unwrap());
    child.wait().unwrap();
    assert_eq!(privileges, "1");
    // Stored first if it is a trace.dat, so files may be written: CAP_DAC_OVERRIDE,
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

/// Names of files in all places where a confined command writes.
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
