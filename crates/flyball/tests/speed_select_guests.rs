//! Speed Select in guests with the real drivers of all three kinds: the drop-in against the unmodified tool, and what
//! `flyball sst` does, judged by that tool.
//!
//! Needs the laboratory (`$FLYBALL_SHARED/lab` or `../shared/lab`), and the unmodified intel-speed-select v1.26 with its C
//! library in the folder `$FLYBALL_SST_TOOL` (the laboratory's `sst/fetch-sst-tool.sh sid FOLDER` makes it). Two boots
//! and some two minutes a guest: only `$FLYBALL_SST_GUESTS` says which run (`icx-7.2,gnr-6.12`, or `all`). What is not
//! run is counted.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use libtest_mimic::{Arguments, Failed, Trial};

const GUESTS: &[&str] =
    &["clx-6.12", "clx-7.2", "icx-6.12", "icx-7.2", "spr-7.2", "emr-7.2", "gnr-6.12", "gnr-7.2", "srf-7.2"];

/// What the guests need, or why they do not run.
struct Laboratory {
    script: PathBuf,
    machines: PathBuf,
    tool: PathBuf,
}

fn laboratory() -> Result<Laboratory, String> {
    let shared = std::env::var_os("FLYBALL_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let machines = std::env::var_os("FLYBALL_MACHINES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../machines"), PathBuf::from);
    let script = shared.join("lab/sst/run-sst-guest.sh");
    if !script.is_file() {
        return Err(format!("no laboratory at {}", script.display()));
    }
    let tool = std::env::var_os("FLYBALL_SST_TOOL").map(PathBuf::from).unwrap_or_default();
    if !tool.join("intel-speed-select").is_file() {
        return Err("no unmodified tool: FLYBALL_SST_TOOL names no folder that holds it".to_owned());
    }
    Ok(Laboratory { script, machines, tool })
}

fn guest(laboratory: &Laboratory, name: &str, script: &str, argument: &str) -> Result<(String, i32), Failed> {
    let (class, kernel) = name.split_once('-').unwrap_or((name, "7.2"));
    let folder = tempfile::tempdir()?;
    let programs = folder.path().join("fb");
    std::fs::create_dir(&programs)?;
    std::fs::copy(env!("CARGO_BIN_EXE_flyball"), programs.join("intel-speed-select"))?;
    for library in ["/lib/x86_64-linux-gnu/libgcc_s.so.1", "/usr/lib64/libgcc_s.so.1"] {
        if Path::new(library).exists() {
            std::fs::copy(library, programs.join("libgcc_s.so.1"))?;
            break;
        }
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/speed-select");
    let dump = |machine: &str| laboratory.machines.join(machine).join("sys/kernel/debug/tpmi-0000:00:03.1");
    let mut command = Command::new(&laboratory.script);
    match class {
        "gnr" => {
            command.env("SST_DUMP", dump("gnr0")).env("SST_TPMI", "levels=3");
        }
        "srf" => {
            command.env("SST_DUMP", dump("srf8"));
        }
        _ => {}
    }
    let output = command
        .args([class, "--kernel", kernel, "--timeout", "400", "--file"])
        .arg(format!("{}:t26", laboratory.tool.display()))
        .arg("--file")
        .arg(format!("{}:fb", programs.display()))
        .arg("--file")
        .arg(own.join("commands"))
        .arg("--")
        .arg(own.join(script))
        .arg(argument)
        .output()?;
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code().unwrap_or(-1)))
}

/// What each command came to, without help texts and the kernel's own lines.
fn records(transcript: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in transcript.lines() {
        if let Some(words) = line.strip_prefix("### ") {
            found.push((words.to_owned(), String::new()));
        } else if let Some((_, text)) = found.last_mut() {
            // Lines of the kernel's log follow the last record.
            if !line.starts_with("[ ") {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    for (_, text) in &mut found {
        if let Some(at) = text.find("\nUsage:\n") {
            let after = text[at..].find("[stderr]").map_or(text.len(), |end| at + end);
            text.replace_range(at..after, "");
        }
    }
    found
}

/// Documented differences that show in these commands.
fn differs_on_purpose(class: &str, words: &str) -> bool {
    // The level's mesh limits are written right; the unmodified tool would kill the kernel for domains without registers.
    class.starts_with("gnr") && words.contains("set-config-level") && words.contains("-o")
}

fn same_as_the_tool(laboratory: &Laboratory, name: &str) -> Result<(), Failed> {
    let (tool, _) = guest(laboratory, name, "transcript.sh", "tool")?;
    let (ours, _) = guest(laboratory, name, "transcript.sh", "dropin")?;
    let (tool, ours) = (records(&tool), records(&ours));
    if tool.len() < 50 || tool.len() != ours.len() {
        return Err(format!("{} commands by the tool, {} by the drop-in", tool.len(), ours.len()).into());
    }
    let mut wrong = String::new();
    for ((words, tool), (_, ours)) in tool.iter().zip(&ours) {
        if tool != ours && !differs_on_purpose(name, words) {
            wrong.push_str(&format!("=== {words}\n--- tool\n{tool}--- drop-in\n{ours}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.into()) }
}

fn restored(laboratory: &Laboratory, name: &str) -> Result<(), Failed> {
    let (text, code) = guest(laboratory, name, "restore.sh", "")?;
    if code == 0 && text.contains("failures: 0") { Ok(()) } else { Err(text.into()) }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let wanted = std::env::var("FLYBALL_SST_GUESTS").unwrap_or_default();
    let chosen: Vec<&str> = GUESTS
        .iter()
        .copied()
        .filter(|name| wanted == "all" || wanted.split(',').any(|one| one == *name))
        .collect();
    let skipped = GUESTS.len() - chosen.len();
    if skipped > 0 {
        eprintln!("skipped {skipped} guests: FLYBALL_SST_GUESTS does not name them");
    }
    let mut trials = Vec::new();
    if !chosen.is_empty() {
        match laboratory() {
            Err(why) => eprintln!("skipped {} guests: {why}", chosen.len()),
            Ok(laboratory) => {
                let laboratory = std::sync::Arc::new(laboratory);
                for name in chosen {
                    for (kind, run) in [
                        ("same-as-the-tool", same_as_the_tool as fn(&Laboratory, &str) -> Result<(), Failed>),
                        ("restored", restored),
                    ] {
                        let laboratory = std::sync::Arc::clone(&laboratory);
                        trials.push(Trial::test(format!("{name}::{kind}"), move || run(&laboratory, name)));
                    }
                }
            }
        }
    }
    // One emulator at a time.
    let arguments = Arguments { test_threads: Some(1), ..arguments };
    libtest_mimic::run(&arguments, trials).exit_code()
}
