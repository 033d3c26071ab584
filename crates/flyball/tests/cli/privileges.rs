//! Compares docs/privileges.md with the program: every command has a row, and commands that need no
//! privileges work for a user without any.

use std::{
    collections::BTreeMap,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Output},
};

use flyball_testing::{flyball, skip};

/// The table's first two columns.
fn table() -> BTreeMap<String, String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/privileges.md");
    let text = std::fs::read_to_string(page).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let (command, rest) = row.split_once("` | ").unwrap();
        (command.to_owned(), rest.split(" |").next().unwrap().to_owned())
    })
    .collect()
}

#[test]
fn every_command_has_its_row() {
    let offered = flyball!().args(["complete", "--", ""]).output().unwrap();
    let offered = String::from_utf8(offered.stdout).unwrap();
    let names = offered.lines().map(|line| line.split('\t').next().unwrap().to_owned());
    let names: Vec<String> = names.filter(|name| name != "help").collect();
    assert!(names.len() > 15);
    let table = table();
    for name in names {
        assert!(table.contains_key(&name), "docs/privileges.md has no row for {name}");
    }
}

/// Runs flyball as nobody, in a directory that nobody can read.
fn as_nobody(words: &[&str]) -> Option<Output> {
    const NOBODY: u32 = 65_534;
    let mut run = Command::new(env!("CARGO_BIN_EXE_flyball"));
    run.args(words).current_dir("/").env_remove("FLYBALL_CACHE").env("HOME", "/nonexistent");
    run.uid(NOBODY).gid(NOBODY).output().ok()
}

#[test]
fn what_needs_nothing_works_without_rights() {
    let table = table();
    let none = |command: &str| table.get(command).is_some_and(|needs| needs == "none");
    if as_nobody(&["--version"]).is_none_or(|output| !output.status.success()) {
        return skip(
            1,
            "commands of a user without rights",
            "only root can become one, who must reach the program",
        );
    }
    const SIM: [&str; 2] = ["-M", "sim:ryzen-5750g"];
    for (command, words) in [
        ("show", &["show", "--all"][..]),
        ("get", &["get", "governor"]),
        ("explain", &["explain", "governor"]),
        ("doctor", &["doctor"]),
        ("plan", &["plan", "governor=powersave"]),
        ("sim", &["sim", "list"]),
        ("man", &["man"]),
        ("completions", &["completions", "bash"]),
    ] {
        assert!(none(command), "{command}");
        for machine in [&SIM[..], &[]] {
            let words = [machine, words].concat();
            let output = as_nobody(&words).unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            // 4: this machine has no such driver. Otherwise 0, or a code for the command's
            // findings.
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 4 | 5 | 8 | 9)), "{words:?}: {code:?} {text}");
        }
    }
}

#[test]
fn what_needs_root_says_so() {
    let table = table();
    if as_nobody(&["--version"]).is_none_or(|output| !output.status.success()) {
        return skip(
            1,
            "commands of a user without rights",
            "only root can become one, who must reach the program",
        );
    }
    for command in ["set", "apply", "restore", "quiet", "sst"] {
        assert_eq!(table.get(command).map(String::as_str), Some("root"), "{command}");
    }
    let output = as_nobody(&["trace", "record", "-o", "/nonexistent/x", "--", "true"]).unwrap();
    assert!(!output.status.success());
    let output = as_nobody(&["set", "governor=performance"]).unwrap();
    assert!(!output.status.success());
}
