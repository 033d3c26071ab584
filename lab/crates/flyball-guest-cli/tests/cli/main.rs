//! `flyball guest` without booting anything: invalid requests and their messages.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "../program/mod.rs"]
mod program;

use std::{fs, process::Output};

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
    // A fake emulator that reports a recent version, to get to the checks after it.
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
        let output = program::command()
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
    let list = program::command()
        .args(["--json", "guest", "list"])
        .env("FLYBALL_CACHE", empty.path())
        .output()
        .unwrap();
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    assert!(list["machines"].as_array().is_some_and(|machines| machines.len() >= 9));
    assert_eq!(list["kernels"].as_array().map(Vec::len), Some(0));
}

/// A kernel that cannot be booted gives no result: exit code 125, which `git bisect run` skips. An
/// invalid argument gives 2.
#[test]
fn a_test_that_cannot_be_run_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = home.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let emulator = file("qemu", b"#!/bin/sh\necho QEMU emulator version 11.1.3\n");
    fs::set_permissions(&emulator, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let junk = file("bzImage", &[0; 4096]);
    // The header of a bzImage without a kernel.
    let mut head = vec![0; 1024];
    head[0x202..0x206].copy_from_slice(b"HdrS");
    head[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
    head[0x24c..0x250].copy_from_slice(&(1_u32 << 20).to_le_bytes());
    let cut = file("cut", &head);
    let record = file("record", b"no record");
    file("tree/.config", b"CONFIG_SMP=y\n");
    let tree = home.path().join("tree").to_str().unwrap().to_owned();
    let empty = home.path().join("empty").to_str().unwrap().to_owned();
    fs::create_dir(&empty).unwrap();
    for (words, code, said) in [
        (&["guest", "test", "z80"][..], 2, "unknown machine 'z80'"),
        (
            &["guest", "test", "--only", "speed"],
            2,
            "unknown topic 'speed' (expected contract, lifecycle, selftests, difference, behaviour)",
        ),
        (&["guest", "test", "--driver", "amd-pstate=activ"], 2, "no driver or mode 'amd-pstate=activ'"),
        (&["guest", "test", "i7-2600", "--driver", "amd-pstate"], 2, "they have intel_pstate=active,hwp-off"),
        (&["guest", "test", "--against", "/no/such/record"], 2, "cannot read /no/such/record"),
        (&["guest", "test", "--against", &record], 2, "does not hold saved behaviour"),
        (&["guest", "fuzz", "z80"], 2, "unknown machine 'z80'"),
        (&["guest", "fuzz", "all"], 2, "fuzz takes one machine"),
        (&["guest", "fuzz", "ryzen-5750g", "--driver", "amd-pstate"], 2, "name one mode: amd-pstate=active,"),
        (&["--kernel", &junk, "guest", "fuzz"], 125, "neither a bzImage"),
        (&["--kernel", &junk, "guest", "test"], 125, "neither a bzImage"),
        (&["--kernel", &cut, "guest", "test"], 125, "truncated"),
        (&["--kernel", &tree, "guest", "test"], 125, "run make"),
        (&["--kernel", &empty, "guest", "test"], 125, "no .config"),
        (&["--kernel", "/no/such/bzImage", "guest", "test"], 125, "cannot read /no/such/bzImage"),
        (&["--kernel", "5.99", "guest", "test"], 125, "flyball guest fetch --kernel 5.99"),
    ] {
        let mut run = program::command();
        run.args(words).env("FLYBALL_CACHE", home.path().join("cache")).env("FLYBALL_QEMU", &emulator);
        let output = run.output().unwrap();
        let (found, text) = ended(&output);
        assert!(
            found == code && text.contains(said),
            "{words:?}: {found}, wanted {code} and '{said}': {text}"
        );
        // One sentence, and nothing on standard output that a KTAP reader would take for a result.
        assert_eq!((text.lines().count(), output.stdout.len()), (1, 0), "{words:?}: {text}");
    }
    let mut run = program::command();
    run.args(["guest", "test"])
        .env("FLYBALL_CACHE", home.path().join("cache"))
        .env("FLYBALL_QEMU", "/no/such/qemu");
    let (code, text) = ended(&run.output().unwrap());
    assert!(code == 125 && text.contains("/no/such/qemu"), "{code}: {text}");
}

/// A cache that another user can write to: programs in it would run as the current user.
#[test]
fn a_cache_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let shared = tempfile::tempdir().unwrap();
    let cache = shared.path().join("flyball-cache");
    let bin = cache.join("guest/qemu/root/usr/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(cache.join("guest/qemu/root/usr/lib/x86_64-linux-gnu")).unwrap();
    let ran = shared.path().join("ran");
    for program in [
        bin.join("qemu-system-x86_64"),
        cache.join("guest/qemu/root/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
    ] {
        fs::write(&program, format!("#!/bin/sh\necho ran >> {}\n", ran.display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    let mut run = program::command();
    run.args(["guest", "run", "ryzen-5750g", "--", "true"]).env("FLYBALL_CACHE", &cache);
    let (code, text) = ended(&run.output().unwrap());
    assert!(code == 125 && text.contains("FLYBALL_CACHE"), "{code}: {text}");
    // If no variable sets the location, flyball does not look for a cache in the temporary
    // directory.
    let mut run = program::command();
    run.args(["guest", "run", "ryzen-5750g", "--", "true"]).env("TMPDIR", shared.path());
    run.env_remove("FLYBALL_CACHE").env_remove("XDG_CACHE_HOME").env("HOME", shared.path().join("home"));
    run.env("FLYBALL_QEMU", "/nonexistent/qemu");
    run.output().unwrap();
    assert!(!ran.exists());
}

/// A Debian package, given as a kernel, with a link that leads out of the cache.
#[test]
fn a_hostile_package_writes_nothing_outside() {
    let root = tempfile::tempdir().unwrap();
    let victim = root.path().join("victim");
    fs::create_dir(&victim).unwrap();
    let link = format!("-> {}", victim.display());
    let tar = flyball_testing::tar(&[("boot/x", &link), ("boot/x/passwd", "root")], 0o4755);
    let data = zstd::encode_all(tar.as_slice(), 1).unwrap();
    let mut deb = b"!<arch>\n".to_vec();
    deb.extend(
        format!("{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", "data.tar.zst", 0, 0, 0, 100_644, data.len()).bytes(),
    );
    deb.extend(data);
    let package = root.path().join("evil.deb");
    fs::write(&package, deb).unwrap();
    let emulator = root.path().join("qemu");
    fs::write(&emulator, "#!/bin/sh\necho QEMU emulator version 11.1.3\n").unwrap();
    fs::set_permissions(&emulator, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut run = program::command();
    run.arg("--kernel").arg(&package).args(["guest", "run", "ryzen-5750g", "--", "true"]);
    run.env("FLYBALL_CACHE", root.path().join("cache")).env("FLYBALL_QEMU", &emulator);
    let (code, text) = ended(&run.output().unwrap());
    assert!(code == 125 && text.contains("no kernel image"), "{code}: {text}");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
}
