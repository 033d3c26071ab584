//! `flyball guest` where it boots nothing: what is refused, and how.

use flyball_testing::flyball;
use std::{
    fs,
    process::{Command, Output},
};

fn flyball() -> Command {
    flyball!()
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
        (emulator, &["guest", "run", "z80", "--", "true"][..], 2, "unknown machine 'z80'"),
        (
            emulator,
            &["guest", "run", "ryzen-5750g", "--driver", "turbo", "--", "true"],
            2,
            "unknown driver 'turbo'",
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
