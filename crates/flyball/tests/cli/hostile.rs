//! Recorded machines made by an attacker: flyball may fail on them, but must not hang, fill the
//! memory, or read files outside.

use std::{
    fs,
    os::unix::fs::{chown, lchown, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use flyball_testing::{flyball as program, tar};

/// Runs flyball on a machine with 1.5 GB of address space. A process that needs more aborts without
/// an exit code.
fn flyball(machine: &Path, words: &[&str]) -> Output {
    let start = Instant::now();
    let mut run = Command::new("sh");
    run.args(["-c", "ulimit -v 1500000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_flyball"), "-M"]);
    let output = run.arg(machine).args(words).output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(60), "{} took {:?}", machine.display(), start.elapsed());
    output
}

fn archive(folder: &Path, entries: &[(&str, &str)]) -> PathBuf {
    let path = folder.join("machine.tar.zst");
    fs::write(&path, zstd::encode_all(tar(entries, 0o644).as_slice(), 19).unwrap()).unwrap();
    path
}

const HEAD: (&str, &str) = ("flyball.json", "{\"format\": 1}");

#[test]
fn small_archives_that_grow_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let deep = format!("sys/{}y", "x/".repeat(60_000));
    let error = format!("5|/{deep}\n");
    let long = format!("-> {}", "y/".repeat(40_000));
    let bombs: [&[(&str, &str)]; 3] = [
        &[HEAD, (&deep, "1")],
        &[HEAD, ("sys/x", "1"), ("errors.txt", &error)],
        &[HEAD, ("sys/devices/system/cpu/online", &long)],
    ];
    for entries in bombs {
        let machine = archive(folder.path(), entries);
        assert!(fs::metadata(&machine).unwrap().len() < 1000, "it is a small file");
        let output = flyball(&machine, &["show"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.len() < 2000, "{} bytes of message", text.len());
    }
}

/// Every CPU's attribute is a link to the same file of 16 MiB.
#[test]
fn a_file_with_many_names_does_not_fill_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let large = "a".repeat(16 << 20);
    let links: Vec<String> =
        (0..1000).map(|n| format!("sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor")).collect();
    let mut entries = vec![HEAD, ("sys/devices/system/cpu/online", "0-999\n"), ("sys/large", large.as_str())];
    entries.extend(links.iter().map(|path| (path.as_str(), "-> /sys/large")));
    let machine = archive(folder.path(), &entries);
    // Either flyball's own bounds or a failed allocation ends it.
    let output = flyball(&machine, &["get", "governor"]);
    assert_ne!(output.status.code(), Some(101), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Advancing a machine to the end of a day takes minutes. The caller's own limit is lower.
#[test]
fn what_takes_too_long_ends_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let run = |limit: &str, words: &[&str]| {
        let mut run = Command::new("sh");
        run.args(["-c", &format!("{limit} exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_flyball")]);
        run.args(words).current_dir(folder.path()).output().unwrap()
    };
    let described = run("", &["sim", "show", "ryzen-5750g", "--toml"]).stdout;
    fs::write(folder.path().join("machine.toml"), described).unwrap();
    let machine = ["-M", "sim:./machine.toml", "--sim-state", "box"];
    assert!(run("", &[&machine[..], &["get", "governor"]].concat()).status.success());
    let mut state = fs::File::options().append(true).open(folder.path().join("box")).unwrap();
    std::io::Write::write_all(&mut state, b"until 82800000000000\n").unwrap();
    drop(state);
    let output = run("ulimit -S -t 1;", &[&machine[..], &["get", "governor"]].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(11), "{text}");
    assert!(text.contains("processor time") && output.stdout.is_empty(), "{text}");
}

#[test]
fn a_stack_that_is_too_small_is_named() {
    for (limit, code) in [(200, 1), (2048, 0)] {
        let mut run = Command::new("sh");
        run.args(["-c", &format!("ulimit -s {limit}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_flyball")]);
        let output = run.args(["-M", "sim:ryzen-5750g", "get", "governor"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), text.contains("limit on the stack")),
            (Some(code), code == 1),
            "{text}"
        );
    }
}

#[test]
fn a_directory_leads_nowhere_and_never_waits() {
    let folder = tempfile::tempdir().unwrap();
    let machine = folder.path().join("machine");
    let cpus = machine.join("sys/devices/system/cpu");
    let policy = cpus.join("cpufreq/policy0");
    fs::create_dir_all(&policy).unwrap();
    fs::create_dir_all(machine.join("proc")).unwrap();
    fs::write(folder.path().join("secret"), "topsecret\n").unwrap();
    for name in ["online", "present", "possible"] {
        fs::write(cpus.join(name), "0\n").unwrap();
    }
    fs::write(policy.join("affected_cpus"), "0\n").unwrap();
    fs::write(policy.join("scaling_driver"), "acpi-cpufreq\n").unwrap();
    symlink(folder.path().join("secret"), policy.join("scaling_governor")).unwrap();
    symlink("/dev/zero", machine.join("proc/cpuinfo")).unwrap();
    let fifo = policy.join("scaling_max_freq");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for words in
        [&["show", "--all"][..], &["get", "governor"], &["doctor"], &["plan", "governor=performance"]]
    {
        let output = flyball(&machine, words);
        assert!(output.status.code().is_some_and(|code| code != 101), "{words:?}");
        let text = [output.stdout, output.stderr].concat();
        assert!(!String::from_utf8_lossy(&text).contains("topsecret"), "{words:?}");
    }
    let record = folder.path().join("record.tar.zst");
    flyball(&machine, &["record", record.to_str().unwrap()]);
    let copy = zstd::decode_all(fs::read(&record).unwrap().as_slice()).unwrap();
    assert!(!String::from_utf8_lossy(&copy).contains("topsecret"));
    // The same file as the description of a simulated machine.
    let simulated = format!("sim:{}", machine.display());
    let output = flyball(Path::new(&simulated), &["show"]);
    assert!(output.status.code().is_some_and(|code| code != 101 && code != 0));
}

/// Tests every command with bytes that are not UTF-8 in an argument, in the environment and in a
/// file name.
#[test]
fn bytes_that_are_no_text_cause_no_panic() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
    let odd = OsStr::from_bytes(b"caf\xe9");
    let help = String::from_utf8(flyball_testing::flyball!().arg("--help").output().unwrap().stdout).unwrap();
    let commands = help.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands: Vec<&str> = commands
        .filter(|word| {
            !word.is_empty() && word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-')
        })
        .filter(|word| !word.starts_with('-'))
        .collect();
    assert!(commands.len() > 15, "{commands:?}");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(odd), "").unwrap();
    for command in commands {
        for words in [vec![odd], vec![OsStr::new("--"), odd], vec![OsStr::new("-n"), odd]] {
            let mut process = flyball_testing::flyball!();
            process.args(["-M", "sim:i7-2600", command]).args(&words).env("TERM", odd).env("SUDO_USER", odd);
            let ran = process.current_dir(folder.path()).output().unwrap();
            let said = String::from_utf8_lossy(&ran.stderr);
            assert!(
                !said.contains("panicked") && ran.status.code() != Some(101),
                "{command} {words:?}: {said}"
            );
        }
    }
}

/// Every option of root that names an output, through a link that another user has put on the way.
#[test]
fn no_output_of_root_goes_through_a_link_of_another_user() {
    let folder = tempfile::tempdir().unwrap();
    let (theirs, ours) = (folder.path().join("theirs"), folder.path().join("ours"));
    fs::create_dir(&theirs).unwrap();
    fs::create_dir(&ours).unwrap();
    symlink(&ours, theirs.join("way")).unwrap();
    if lchown(theirs.join("way"), Some(65534), None).and_then(|()| chown(&theirs, Some(65534), None)).is_err()
    {
        flyball_testing::skip(1, "links of another user", "only root can make them");
        return;
    }
    let out = theirs.join("way/new");
    let out = out.to_str().unwrap();
    let flyball = |words: &[&str]| {
        let words = words.iter().map(|word| word.replace("OUT", out));
        program!().current_dir(&folder).args(words).env_remove("SUDO_UID").output().unwrap()
    };
    let sim = ["-M", "sim:ryzen-5750g"];
    let made = flyball(&[&sim[..], &["trace", "record", "-o", "rec.dat", "-t", "0.1"]].concat());
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let compare = ["compare", "--arm", "now", "--arm", "b:", "--rounds", "2", "-o"];
    let made = flyball(&[&sim[..], &compare, &["run", "--workload", "spin"]].concat());
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let commands: [&[&str]; 16] = [
        &["-M", "sim:ryzen-5750g", "record", "OUT"],
        &["-M", "sim:ryzen-5750g", "save", "OUT"],
        &["-M", "sim:ryzen-5750g", "trace", "record", "-o", "OUT", "-t", "0.1"],
        &["trace", "report", "rec.dat", "--csv", "OUT"],
        &["trace", "report", "rec.dat", "--html", "OUT"],
        &["trace", "report", "rec.dat", "--plots", "OUT"],
        &["report", "run", "-o", "OUT"],
        &["results", "add", "OUT", "run"],
        &[
            "-M",
            "sim:ryzen-5750g",
            "compare",
            "--arm",
            "a:",
            "--arm",
            "b:",
            "-o",
            "OUT",
            "--workload",
            "spin",
        ],
        &["-M", "sim:ryzen-5750g", "top", "--record", "OUT", "--samples", "2"],
        &["-M", "sim:ryzen-5750g", "--sim-state", "OUT", "show"],
        &["-M", "sim:tpmi-small", "intel-speed-select", "-o", "OUT", "perf-profile", "info"],
        &["-M", "sim:ryzen-5750g", "exporter", "--textfile", "OUT"],
        &["-M", "sim:ryzen-5750g", "exporter", "--web.listen-address", "unix:OUT"],
        &["man", "--dir", "OUT"],
        &["trace", "report", "rec.dat", "--csv", "OUT/below"],
    ];
    for words in commands {
        let ran = flyball(words);
        let text = String::from_utf8_lossy(&ran.stderr);
        // The kernel's tool has already closed stderr.
        let is_named = text.contains("link of user 65534") || words.contains(&"intel-speed-select");
        assert!(!ran.status.success() && is_named, "{words:?}: {text}");
        assert_eq!(fs::read_dir(&ours).unwrap().count(), 0, "{words:?}");
    }
}
