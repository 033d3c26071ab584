//! Tests `quiet` on the live machine, with its real files. Everything that it would change is read
//! completely before and after, after success, after Ctrl-C and after kill -9. If it may not write
//! here, or has nothing to write, the test is skipped with a message.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use flyball_testing::{flyball, skip};
use serde_json::Value;

/// Returns the benchmark's CPU: the last online one, if there is more than one.
fn benchmark_cpu() -> Option<String> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let last = online.trim().rsplit([',', '-']).next()?.to_owned();
    (last != "0").then_some(last)
}

fn flyball(arguments: &[&str]) -> Command {
    let mut command = flyball!();
    command.args(arguments).env_remove("FLYBALL_STATE");
    command
}

/// Returns the files that quiet would write here.
fn touched(cpu: &str) -> Vec<String> {
    let output = flyball(&["--json", "quiet", "-n", "--level", "fixed", "--cpus", cpu]).output().unwrap();
    let Ok(preview) = serde_json::from_slice::<Value>(&output.stdout) else { return Vec::new() };
    let locations = |list: &Value| -> Vec<String> {
        let all = list.as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|one| one["location"].as_str().map(str::to_owned)).collect()
    };
    let mut paths = locations(&preview["extras"]);
    paths.extend(locations(&preview["plan"]["changes"]));
    paths.retain(|path| path.starts_with('/'));
    paths.push("/proc/irq/default_smp_affinity".to_owned());
    paths.push("/sys/kernel/mm/transparent_hugepage/enabled".to_owned());
    paths.push("/proc/sys/kernel/randomize_va_space".to_owned());
    paths
}

fn contents(paths: &[String]) -> BTreeMap<String, String> {
    let read = |path: &String| Some((path.clone(), std::fs::read_to_string(path).ok()?));
    paths.iter().filter_map(read).collect()
}

/// Waits until the files have their old content: a guardian needs a moment.
fn assert_same(when: &str, before: &BTreeMap<String, String>, paths: &[String]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let after = contents(paths);
        if after == *before {
            println!("{when}: {} files are as they were", before.len());
            return;
        }
        if Instant::now() > deadline {
            let differing: Vec<_> =
                before.iter().filter(|(path, text)| after.get(*path) != Some(text)).collect();
            panic!("{when}: {differing:?} were, now {after:?}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Starts quiet with a command that reports when it runs, and waits for that.
fn start(folder: &Path, cpu: &str) -> Child {
    let mark = folder.join("runs");
    let _ = std::fs::remove_file(&mark);
    let state = folder.join("state");
    let script = format!("echo > {}; exec sleep 300", mark.display());
    let child =
        flyball(&["--state-dir", state.to_str().unwrap(), "quiet", "--level", "fixed", "--cpus", cpu])
            .args(["--", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while !mark.exists() {
        assert!(Instant::now() < deadline, "the command in quiet did not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    child
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn every_file_is_as_it_was_after_success_ctrl_c_and_kill_9() {
    let _turn = crate::alone();
    let Some(cpu) = benchmark_cpu() else {
        skip(1, "test of quiet", "one CPU only");
        return;
    };
    let paths = touched(&cpu);
    let before = contents(&paths);
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let state = state.to_str().unwrap();
    let look = ["--state-dir", state, "quiet", "--level", "fixed", "--cpus", &cpu, "--"];
    let inside =
        flyball(&look).args(["cat", "/proc/sys/kernel/perf_event_max_sample_rate"]).output().unwrap();
    if !inside.status.success() {
        skip(1, "test of quiet", String::from_utf8_lossy(&inside.stderr).trim());
        return;
    }
    assert_same("success", &before, &paths);
    // It did change something in the meantime, if there is something to change.
    let rate = "/proc/sys/kernel/perf_event_max_sample_rate";
    if before.contains_key(rate) && std::fs::File::options().write(true).open(rate).is_ok() {
        assert_eq!(String::from_utf8_lossy(&inside.stdout).trim(), "1");
    }

    let mut child = start(folder.path(), &cpu);
    signal(&child, "-INT");
    child.wait().unwrap();
    assert_same("Ctrl-C", &before, &paths);

    let mut child = start(folder.path(), &cpu);
    signal(&child, "-KILL");
    child.wait().unwrap();
    assert_same("kill -9", &before, &paths);

    // Everything is also restored after a failing command.
    let failed = flyball(&look).args(["sh", "-c", "exit 7"]).status().unwrap();
    assert_eq!(failed.code(), Some(7));
    assert_same("a command that fails", &before, &paths);
}
