//! `flyball guest record` and `flyball guest shell`, each booted once with the newest kernel of the
//! cache.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use flyball_guest::cache::Cache;
use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::{guest::SuiteCase, program};

/// Exit code and standard error.
fn ended(output: &Output) -> (i32, String) {
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn a_recording_is_read_by_trace_report(kernel: &str) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("rec");
    let note = dir.path().join("note");
    fs::write(&note, "from the host\n").unwrap();
    let file = format!("{}:a-note", note.display());
    let command = "cat a-note; echo schedutil > /sys/devices/system/cpu/cpufreq/policy0/scaling_governor
        i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); done; echo kept > out/file; no-such-command";
    let output = program::command()
        .args(["--kernel", kernel, "guest", "record", "ryzen-5750g", "--driver", "amd-pstate=passive"])
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
    let report =
        program::command().args(["trace", "report", "--json"]).arg(out.join("trace.txt")).output().unwrap();
    let (code, errors) = ended(&report);
    assert_eq!(code, 0, "{errors}");
    assert!(
        String::from_utf8_lossy(&report.stdout).contains("amd_pstate_perf"),
        "the driver's decisions are in it"
    );
}

fn a_shell_runs_a_script_that_is_piped_in(kernel: &str) {
    let mut child = program::command()
        .args(["--kernel", kernel, "guest", "shell", "ryzen-5750g", "--cpus", "1"])
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

/// Opens a terminal of 37 rows and 91 columns: the user's end, and the program's end.
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

fn a_shell_takes_what_is_typed(kernel: &str) {
    let (mut person, program) = terminal();
    let mut child = program::command()
        .args(["--kernel", kernel, "guest", "shell", "sst-guide", "--cpus", "2"])
        .env("TERM", "vt220")
        .stdin(program.try_clone().unwrap())
        .stdout(program)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Behaves like a user: types when the shell prompts, and waits. Reading fails once nobody has
    // the other end open.
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

/// The boots of this suite.
pub(crate) fn suite() -> Vec<SuiteCase> {
    let newest = Cache::of_user().expect("the cache is this user's own").kernel_versions().pop();
    type Test = fn(&str);
    let tests: [(&str, Test); 3] = [
        ("a_recording_is_read_by_trace_report", a_recording_is_read_by_trace_report),
        ("a_shell_runs_a_script_that_is_piped_in", a_shell_runs_a_script_that_is_piped_in),
        ("a_shell_takes_what_is_typed", a_shell_takes_what_is_typed),
    ];
    let suited = |(name, test): (&str, Test)| {
        let kernel = newest.clone().unwrap_or_default();
        SuiteCase {
            name: name.to_owned(),
            kernel: kernel.clone(),
            everyday: true,
            missing: newest.is_none().then(|| "no kernels in the cache: flyball guest fetch".to_owned()),
            test: Box::new(move || {
                test(&kernel);
                Ok(())
            }),
        }
    };
    tests.into_iter().map(suited).collect()
}
