//! Tests the program `flyball top`: in a terminal, recording and replaying, and with wrong input.

mod pty;
mod recording;
mod screens;
mod wrong;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use flyball_testing::{Ran, flyball};

/// Writes a machine file with this many CPUs.
fn machine(folder: &Path, cpus: u32) -> PathBuf {
    let (packages, count, threads) = match cpus {
        1 => (1, 1, 1),
        2..=16 => (1, cpus / 2, 2),
        _ => (2, cpus / 4, 2),
    };
    let path = folder.join(format!("cpus-{cpus}.toml"));
    let made = flyball!().args(["sim", "show", "gold-6138", "--toml"]).output().unwrap();
    let mut text = String::new();
    for line in String::from_utf8(made.stdout).unwrap().lines() {
        let key = line.split(' ').next().unwrap_or_default();
        let line = match key {
            "packages" => format!("packages = {packages}"),
            "count" => format!("count = {count}"),
            "threads" => format!("threads = {threads}"),
            _ => line.to_owned(),
        };
        text += &(line + "\n");
    }
    std::fs::write(&path, text).unwrap();
    path
}

/// `flyball top` of a machine file or a simulated machine.
fn top(machine: &str, words: &[&str]) -> Command {
    let mut command = flyball!();
    command.args(["-M", machine, "top"]).args(words);
    command
}

#[track_caller]
fn run(command: &mut Command) -> Ran {
    Ran::of(command.env("NO_COLOR", "1").stdin(Stdio::null()))
}

/// Each line can be understood without another command, because it has the CPU numbers and the
/// governors' names.
#[test]
fn a_line_of_json_explains_itself() {
    let ran = run(&mut top("sim:i7-2600", &["--samples", "1", "--json"]));
    let line = ran.json();
    assert_eq!(line["numbers"].as_array().map(Vec::len), line["cpus"].as_array().map(Vec::len));
    let place = line["cpus"][0]["governor"].as_u64().unwrap() as usize;
    assert_eq!(line["governors"][place], "schedutil", "{line}");
}
