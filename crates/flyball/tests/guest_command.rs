//! `flyball guest` as a command: what is refused and how, and one boot each of `record` and `shell`.
//!
//! Boots need the newest kernel of the cache that `flyball guest fetch` fills; without one they are skipped, with a count.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{
    fs,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use flyball_guest::cache::Cache;
use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

mod guest;

fn flyball() -> Command {
    Command::new(env!("CARGO_BIN_EXE_flyball"))
}

/// Exit code and standard error.
fn ended(output: &Output) -> (i32, String) {
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_cannot_be_is_refused() {
    let empty = tempfile::tempdir().unwrap();
    let junk = empty.path().join("bzImage");
    fs::write(&junk, vec![0u8; 4096]).unwrap();
    let junk = junk.to_str().unwrap();
    // An emulator that says it is new enough, so that what comes after it is reached.
    let emulator = empty.path().join("qemu");
    fs::write(&emulator, "#!/bin/sh\necho QEMU emulator version 11.1.3\n").unwrap();
    fs::set_permissions(&emulator, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let emulator = emulator.to_str().unwrap();
    let old = "/bin/true";
    for (qemu, words, code, said) in [
        (emulator, &["guest", "run", "z80", "--", "true"][..], 2, "no machine 'z80'"),
        (
            emulator,
            &["guest", "run", "ryzen-5750g", "--driver", "turbo", "--", "true"],
            2,
            "no driver 'turbo'",
        ),
        (emulator, &["guest", "run", "ryzen-5750g", "--cpus", "99", "--", "true"], 2, "too many"),
        (emulator, &["guest", "run", "sst-guide", "--interface", "cppc-msr", "--", "true"], 2, "Intel"),
        (emulator, &["guest", "run", "ryzen-5750g", "--interface", "x", "--", "true"], 2, "cppc-mailbox"),
        (emulator, &["guest", "run", "ryzen-5750g", "--memory", "8", "--", "true"], 2, "256 MB"),
        (emulator, &["guest", "run", "ryzen-5750g", "--cycles", "0", "--", "true"], 2, "--cycles"),
        (emulator, &["guest", "run", "ryzen-5750g"], 2, "required"),
        (
            emulator,
            &["--kernel", "5.99", "guest", "run", "ryzen-5750g", "--", "true"],
            4,
            "flyball guest fetch --kernel 5.99",
        ),
        (
            emulator,
            &["--kernel", junk, "guest", "run", "ryzen-5750g", "--", "true"],
            125,
            "neither a bzImage",
        ),
        (old, &["guest", "run", "ryzen-5750g", "--", "true"], 125, "does not say its version"),
        ("/nonexistent/qemu", &["guest", "run", "ryzen-5750g", "--", "true"], 125, "/nonexistent/qemu"),
        (emulator, &["guest", "record", "ryzen-5750g", "--", "true"], 2, "--out"),
        (emulator, &["-M", "guest:ryzen-5750g,what=1", "show"], 2, "what=1"),
        (emulator, &["-M", "guest:ryzen-5750g", "guest", "list"], 2, "-M"),
        (
            emulator,
            &["-M", "guest:ryzen-5750g", "compare", "--arm", "now", "-o", "/tmp/x", "--", "true"],
            2,
            "below",
        ),
    ] {
        let output = flyball()
            .args(words)
            .env("FLYBALL_CACHE", empty.path())
            .env("FLYBALL_QEMU", qemu)
            .output()
            .unwrap();
        let (found, text) = ended(&output);
        assert!(
            found == code && text.contains(said),
            "{words:?}: {found}, wanted {code} and '{said}': {text}"
        );
    }
    let list =
        flyball().args(["--json", "guest", "list"]).env("FLYBALL_CACHE", empty.path()).output().unwrap();
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    assert!(list["machines"].as_array().is_some_and(|machines| machines.len() >= 9));
    assert_eq!(list["kernels"].as_array().map(Vec::len), Some(0));
}

/// The newest kernel that can be booted.
fn kernel(test: &str) -> Option<String> {
    let newest = Cache::of_user().kernel_versions().pop();
    let why = match &newest {
        None => Some("no kernels in the cache: flyball guest fetch".to_owned()),
        Some(kernel) => guest::missing(kernel),
    };
    if let Some(why) = why {
        eprintln!("skipped: 1 ({test}): {why}");
        return None;
    }
    newest
}

#[test]
fn a_recording_is_read_by_trace_report() {
    let Some(kernel) = kernel("a_recording_is_read_by_trace_report") else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("rec");
    let note = dir.path().join("note");
    fs::write(&note, "from the host\n").unwrap();
    let file = format!("{}:a-note", note.display());
    let command = "cat a-note; echo schedutil > /sys/devices/system/cpu/cpufreq/policy0/scaling_governor
        i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); done; echo kept > out/file; no-such-command";
    let output = flyball()
        .args(["--kernel", &kernel, "guest", "record", "ryzen-5750g", "--driver", "amd-pstate=passive"])
        .args(["--closed", "--cpus", "1", "--file", &file, "--out"])
        .arg(&out)
        .args(["--", command])
        .output()
        .unwrap();
    let (code, errors) = ended(&output);
    assert_eq!(
        (code, String::from_utf8_lossy(&output.stdout).as_ref()),
        (127, "from the host\n"),
        "{errors}"
    );
    assert!(errors.contains("no-such-command"), "{errors}");
    assert_eq!(fs::read_to_string(out.join("file")).unwrap(), "kept\n");
    for name in ["registers.log", "silicon.log"] {
        assert!(fs::read_to_string(out.join(name)).unwrap().lines().count() > 1, "{name}");
    }
    let report = flyball().args(["trace", "report", "--json"]).arg(out.join("trace.txt")).output().unwrap();
    let (code, errors) = ended(&report);
    assert_eq!(code, 0, "{errors}");
    assert!(
        String::from_utf8_lossy(&report.stdout).contains("amd_pstate_perf"),
        "the driver's decisions are in it"
    );
}

#[test]
fn a_shell_runs_a_script_that_is_piped_in() {
    let Some(kernel) = kernel("a_shell_runs_a_script_that_is_piped_in") else { return };
    let mut child = flyball()
        .args(["--kernel", &kernel, "guest", "shell", "ryzen-5750g", "--cpus", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"echo one\nif true; then\n  echo two\nfi\nexit 3\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let (code, errors) = ended(&output);
    assert_eq!((code, String::from_utf8_lossy(&output.stdout).as_ref()), (3, "one\ntwo\n"), "{errors}");
}

/// A terminal of 37 rows and 91 columns: the side that a person has, and the one that a program gets.
fn terminal() -> (fs::File, OwnedFd) {
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&person).unwrap();
    unlockpt(&person).unwrap();
    let name = ptsname(&person, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let program = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
    let size = Winsize { ws_row: 37, ws_col: 91, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&program, size).unwrap();
    (fs::File::from(person), program)
}

#[test]
fn a_shell_takes_what_is_typed() {
    let Some(kernel) = kernel("a_shell_takes_what_is_typed") else { return };
    let (mut person, program) = terminal();
    let mut child = flyball()
        .args(["--kernel", &kernel, "guest", "shell", "sst-guide", "--cpus", "2"])
        .env("TERM", "vt220")
        .stdin(program.try_clone().unwrap())
        .stdout(program)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // As a person does: types when the shell asks, and waits. Reading ends with an error when nobody has the other side.
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let mut part = [0; 4096];
        let mut typed = false;
        while let Ok(count @ 1..) = person.read(&mut part) {
            text.extend_from_slice(&part[..count]);
            if !typed && text.contains(&b'#') {
                typed = true;
                let _ = person.write_all(
                    b"echo cpus=$(nproc) $TERM size=$(stty size); \
                      cat /sys/devices/system/cpu/intel_pstate/status; exit 9\n",
                );
            }
        }
        text
    });
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(240) {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output().unwrap();
    let text = reader.join().unwrap();
    let (code, errors) = ended(&output);
    let text = String::from_utf8_lossy(&text);
    let shown = text.contains("cpus=2 vt220 size=37 91") && text.contains("active");
    assert!(code == 9 && shown, "{code}: {text}{errors}");
}
