//! Tests `trace record` on the live machine: killed, twice at once, into a closed pipe, onto a full
//! disk, and without permission. Needs root and tracefs. Without them, the tests are skipped with a
//! message.

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::MutexGuard,
    time::{Duration, Instant},
};

use flyball_host::{Host, Live, tracefs::Tracefs};
use flyball_testing::{flyball, skip};

/// Returns the machine's tracefs and exclusive use of it. `None` if nothing can be recorded.
fn turn() -> Option<(Tracefs, MutexGuard<'static, ()>)> {
    let guard = crate::alone();
    let tracefs = Live::new().tracefs().ok().filter(|tracefs| {
        let probe =
            Path::new(&tracefs.root()).join("instances").join(format!("flyball-test-{}", std::process::id()));
        std::fs::create_dir(&probe).is_ok() && std::fs::remove_dir(&probe).is_ok()
    });
    if tracefs.is_none() {
        skip(1, "recording", "needs root and tracefs");
    }
    Some((tracefs?, guard))
}

fn record(words: &[&str], file: &Path) -> Command {
    let mut command = flyball!();
    command.args(["trace", "record", "--only", "-e", "sched:sched_switch", "-o"]).arg(file).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the number of records of a trace, which must be complete.
#[track_caller]
fn records(file: &Path) -> u64 {
    let output = flyball!().args(["trace", "report", "--json"]).arg(file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    value["report"]["records"].as_u64().unwrap()
}

/// The instances of a process that records.
fn instances(tracefs: &Tracefs, pid: u32) -> Vec<PathBuf> {
    let prefix = format!("flyball-{pid}-");
    let names = tracefs.directories("instances").unwrap();
    names
        .into_iter()
        .filter(|name| name.starts_with(&prefix))
        .map(|name| Path::new(&tracefs.root()).join("instances").join(name))
        .collect()
}

/// Returns instances whose process has ended. Others may be recording at the same time.
fn left(tracefs: &Tracefs) -> Vec<String> {
    let mut names = tracefs.directories("instances").unwrap();
    names.retain(|name| {
        let pid = name.strip_prefix("flyball-").and_then(|rest| rest.split('-').next());
        pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    });
    names
}

fn wait_until_recording(tracefs: &Tracefs, child: &mut Child) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let on = |path: &PathBuf| {
            std::fs::read_to_string(path.join("tracing_on")).is_ok_and(|text| text.trim() == "1")
        };
        if instances(tracefs, child.id()).iter().any(on) {
            return;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended before it recorded");
        assert!(Instant::now() < deadline, "it does not record");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_a_killed_recording_leaves_is_removed_by_the_next() {
    let Some((tracefs, _turn)) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut child = record(&[], &folder.path().join("killed.dat")).spawn().unwrap();
    wait_until_recording(&tracefs, &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(instances(&tracefs, child.id()).len(), 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file is left");
    let next = record(&["-t", "100ms"], &folder.path().join("next.dat")).output().unwrap();
    let said = stderr(&next);
    assert_eq!(next.status.code(), Some(0), "{said}");
    assert!(said.contains(&format!("removed flyball-{}-", child.id())), "{said}");
    assert_eq!(instances(&tracefs, child.id()).len(), 0);
}

#[test]
fn two_record_at_once() {
    let Some((tracefs, _turn)) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let files = ["one.dat", "two.dat"].map(|name| folder.path().join(name));
    let mut children = files.clone().map(|file| record(&["-t", "120s"], &file).spawn().unwrap());
    for child in &mut children {
        wait_until_recording(&tracefs, child);
    }
    std::thread::sleep(Duration::from_millis(300));
    for (child, file) in children.into_iter().zip(&files) {
        let pid = child.id();
        let stopped = Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap();
        assert!(stopped.success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(records(file) > 0);
        assert_eq!(instances(&tracefs, pid).len(), 0);
    }
}

#[test]
fn a_reader_that_goes_away_ends_a_live_recording() {
    let Some((_tracefs, _turn)) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("live.dat");
    // Would run for ten minutes if nothing ended it.
    let mut child = record(&["--live", "-t", "600s"], &file).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert!(line.contains("sched_switch: prev_comm="), "{line}");
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(records(&file) > 0);
}

/// Runs a recording in a new mount namespace, after the commands in `before`.
fn unshared(before: &str, file: &Path) -> Option<Output> {
    let words = "exec \"$0\" trace record --only -e sched:sched_switch -t 300ms -o \"$1\"";
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-ec", &format!("{before}\n{words}")])
        .arg(env!("CARGO_BIN_EXE_flyball"))
        .arg(file)
        .output();
    let output = output.ok().filter(|output| !stderr(output).contains("unshare failed"));
    if output.is_none() {
        skip(1, "recording", "no mount namespaces here");
    }
    output
}

#[test]
fn a_full_disk_is_said_and_nothing_is_left() {
    let Some((tracefs, _turn)) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().display();
    let before = format!("mount -t tmpfs -o size=48k none {small}; trap 'ls -A {small}; :' EXIT");
    // `exec` would lose the trap.
    let before = format!(
        "{before}\nset +e; \"$0\" trace record --only -e sched:sched_switch -t 300ms -o \"$1\"; code=$?; exit $code"
    );
    let Some(output) = unshared(&before, &folder.path().join("full.dat")) else { return };
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "nothing is left on it");
    assert_eq!(left(&tracefs), Vec::<String>::new());
}

#[test]
fn tracefs_need_not_be_mounted() {
    let Some((_tracefs, _turn)) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.dat");
    let before = "umount -l /sys/kernel/debug/tracing 2>/dev/null || :\numount -l /sys/kernel/tracing 2>/dev/null || :\n\
                  umount -l /sys/kernel/debug 2>/dev/null || :";
    let Some(output) = unshared(before, &file) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(records(&file) > 0);
}

#[test]
fn without_the_right_to_it_says_what_it_needs() {
    let Some((_tracefs, _turn)) = turn() else { return };
    let place = Path::new("/tmp/unwritten.dat");
    // Other users may not have access to the program.
    let Ok(output) = record(&["-t", "100ms"], place).uid(65534).gid(65534).output() else {
        skip(1, "recording", "others may not run this program here");
        return;
    };
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("needs root"), "{said}");
}

#[test]
fn places_that_cannot_be_are_refused_before_anything_is_recorded() {
    let Some((tracefs, _turn)) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("missing/trace.dat");
    let output = record(&["-t", "60s"], &place).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("/missing"), "{said}");
    assert_eq!(left(&tracefs), Vec::<String>::new());
}
