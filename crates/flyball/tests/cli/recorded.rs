//! Tests every reading command on every recorded machine. The tests are generated, so a new machine
//! only needs a new line.
//!
//! The machines are those in `machines/` of this repository. If their original recordings are
//! available (`$FLYBALL_SHARED/machines`, or `shared/machines` next to the workspace), both must
//! have the same content.

mod raw;
mod unpack;

use std::{
    path::{Path, PathBuf},
    process::Output,
};

use flyball_testing::{flyball, shared, skip};

/// Why a check failed.
type Failed = Box<dyn std::error::Error>;

/// Makes a module of each machine, and a test of each check.
macro_rules! machines {
    ($($machine:ident $name:literal),+ $(,)?) => {
        const MACHINES: &[&str] = &[$($name),+];
        $(mod $machine {
            checks!($name: show show_json show_all doctor get_json raw archive write_refused as_recorded);
        })+
    };
}

macro_rules! checks {
    ($name:literal: $($check:ident)+) => {
        $(#[test]
        fn $check() -> Result<(), super::Failed> {
            super::on($name, super::$check)
        })+
    };
}

machines! {
    adl0 "adl0",
    bdwup0 "bdwup0",
    clx2s0 "clx2s0",
    dell_latitude_5420_tgl "dell-latitude-5420-tgl",
    gnr0 "gnr0",
    icx2s0 "icx2s0",
    milan0 "milan0",
    skld0 "skld0",
    snr0 "snr0",
    spr1 "spr1",
    srf8 "srf8",
    turin0 "turin0",
}

fn on(name: &str, check: fn(&str, &Path) -> Result<(), Failed>) -> Result<(), Failed> {
    check(name, &flyball_testing::archive(name))
}

#[test]
fn each_machine_of_the_repository_is_tested() {
    let names: Vec<String> = flyball_testing::machines()
        .iter()
        .filter_map(|path| Some(path.file_name()?.to_str()?.trim_end_matches(".tar.zst").to_owned()))
        .collect();
    assert_eq!(names, MACHINES);
}

/// The machine in the repository equals what `flyball record` makes of its original recording.
fn as_recorded(name: &str, machine: &Path) -> Result<(), Failed> {
    let Some(folder) = shared(&format!("machines/{name}")) else {
        skip(1, "comparison of a machine with its recording", &format!("{name} is not here"));
        return Ok(());
    };
    let tree = unpack::tree(&folder, name)?;
    let folder = tempfile::tempdir()?;
    let [one, two] = [machine, &tree].map(|source| {
        let copy = folder.path().join("copy.tar.zst");
        stdout(source, &["record", "--force", &copy.display().to_string()])?;
        Ok::<_, Failed>(std::fs::read(&copy)?)
    });
    // To see the difference, run `record --print-what` on both. It omits file modes.
    assert!(one? == two?, "{name}: not what {} records as", tree.display());
    Ok(())
}

fn raw(name: &str, machine: &Path) -> Result<(), Failed> {
    raw::check(name, machine)
}

pub(crate) fn flyball(machine: &Path, arguments: &[&str]) -> Output {
    flyball!()
        .arg("-M")
        .arg(machine)
        .args(arguments)
        .env_remove("FLYBALL_STATE")
        .output()
        .expect("flyball runs")
}

/// Returns the standard output if the command succeeded.
///
/// # Errors
/// A description of what failed, with the file or the program.
pub(crate) fn stdout(machine: &Path, arguments: &[&str]) -> Result<String, Failed> {
    let output = flyball(machine, arguments);
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{arguments:?} ended with {}: {message}", output.status).into());
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string().into())
}

/// Compares the output with the reviewed text. Ignores the number of missing knobs, which grows
/// with every row of the table.
fn snapshot(name: &str, tree: &Path, text: &str) {
    let text = text.replace(&tree.display().to_string(), "MACHINE");
    let text = text.split("\nabsent").next().unwrap_or_default();
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name.to_owned(), text);
    });
}

/// Checks for text that must never be on a screen, on any machine.
fn judge_screen(text: &str) -> Result<(), Failed> {
    if text.contains('\x1b') {
        return Err("colour without a terminal".into());
    }
    if let Some(line) = text.lines().find(|line| line.ends_with(' ')) {
        return Err(format!("trailing blank: {line}").into());
    }
    if let Some(line) = text.lines().find(|line| line.chars().count() > 140) {
        return Err(format!("too wide for a screen: {line}").into());
    }
    Ok(())
}

fn show(name: &str, tree: &Path) -> Result<(), Failed> {
    let text = stdout(tree, &["show"])?;
    judge_screen(&text.replace(&tree.display().to_string(), "MACHINE"))?;
    let lines = text.lines().count();
    if lines > 60 {
        return Err(format!("{lines} lines are more than one screen").into());
    }
    if MACHINES.contains(&name) {
        snapshot(&format!("show@{name}"), tree, &text);
    }
    Ok(())
}

/// Compares the doctor's report with the reviewed one. Every ok must have evidence, and something
/// that a recording lacks is never called missing.
fn doctor(name: &str, tree: &Path) -> Result<(), Failed> {
    let output = flyball(tree, &["doctor"]);
    let text = String::from_utf8(output.stdout)?;
    if !matches!(output.status.code(), Some(0 | 8)) {
        return Err(format!("{}: {text}", output.status).into());
    }
    judge_screen(&text.replace(&tree.display().to_string(), "MACHINE"))?;
    let report: serde_json::Value = serde_json::from_slice(&flyball(tree, &["doctor", "--json"]).stdout)?;
    for finding in report["findings"].as_array().ok_or("no findings")? {
        let unseen = finding["evidence"].as_array().is_none_or(Vec::is_empty);
        if finding["verdict"] != "unknown" && unseen {
            return Err(format!("nothing was seen: {finding}").into());
        }
        if finding["what"].as_str().is_some_and(|what| what.contains("modprobe")) {
            return Err(format!("no remedy for a recording: {finding}").into());
        }
    }
    if MACHINES.contains(&name) {
        snapshot(&format!("doctor@{name}"), tree, &text);
    }
    Ok(())
}

/// Compares the full output of three different machines.
fn show_all(name: &str, tree: &Path) -> Result<(), Failed> {
    let text = stdout(tree, &["show", "--all"])?;
    if ["adl0", "milan0", "turin0"].contains(&name) {
        snapshot(&format!("show-all@{name}"), tree, &text);
    }
    Ok(())
}

fn json(machine: &Path, arguments: &[&str]) -> Result<serde_json::Value, Failed> {
    serde_json::from_str(&stdout(machine, arguments)?).map_err(|error| error.to_string().into())
}

/// For each knob and instance, the rows of `show --json` cover each of the machine's CPUs once.
fn show_json(_name: &str, tree: &Path) -> Result<(), Failed> {
    let shown = json(tree, &["show", "--json"])?;
    let online = shown["machine"]["online"].as_str().ok_or("no list of online CPUs")?.to_owned();
    let wanted: flyball_host::CpuList = online.parse()?;
    let mut seen: std::collections::BTreeMap<(String, String), flyball_host::CpuList> =
        std::collections::BTreeMap::default();
    for row in shown["rows"].as_array().ok_or("no rows")? {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let cpus: flyball_host::CpuList = text("cpus").parse()?;
        if row["value"].is_null() == (row["absent"].is_null() && row["error"].is_null()) {
            return Err(format!("neither a value nor a reason, or both: {row}").into());
        }
        let all = seen.entry((text("knob"), text("instance"))).or_default();
        let named =
            ["uncore", "power", "energy", "temperature", "elc"].iter().any(|s| text("knob").starts_with(s));
        if !named && all.intersects(&cpus) {
            return Err(format!("a CPU in two rows: {row}").into());
        }
        all.add(&cpus);
    }
    for ((knob, instance), cpus) in seen {
        let named =
            ["uncore", "power", "energy", "temperature", "elc"].iter().any(|start| knob.starts_with(start));
        if !named && cpus != wanted {
            return Err(format!("{knob}:{instance} covers {cpus}, not {wanted}").into());
        }
    }
    Ok(())
}

/// `get -c` returns the values of the given CPUs only. Text and JSON agree.
fn get_json(_name: &str, tree: &Path) -> Result<(), Failed> {
    let values = json(tree, &["get", "governor", "min-freq", "max-freq", "-c", "0", "--json"])?;
    let values = values.as_array().ok_or("no list")?;
    let knobs: Vec<&str> = values.iter().filter_map(|value| value["knob"].as_str()).collect();
    if knobs != ["governor", "min-freq", "max-freq"] || values.iter().any(|value| value["cpus"] != "0") {
        return Err(format!("not one value each for CPU 0: {values:?}").into());
    }
    let text = stdout(tree, &["get", "governor", "-c", "0"])?;
    let governor = values[0]["value"].as_str().unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    if words != ["governor", governor, "CPUs", "0"] {
        return Err(format!("text says {text}, JSON {governor}").into());
    }
    Ok(())
}

/// A recording of the machine gives the same answers as the tree.
fn archive(name: &str, tree: &Path) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file: PathBuf = folder.path().join(format!("{name}.tar.zst"));
    stdout(tree, &["record", &file.display().to_string()])?;
    let same = |arguments: &[&str]| -> Result<(), Failed> {
        let (from_tree, from_file) = (stdout(tree, arguments)?, stdout(&file, arguments)?);
        let from_tree = from_tree.replace(&tree.display().to_string(), "MACHINE");
        let from_file = from_file.replace(&file.display().to_string(), "MACHINE");
        if from_tree == from_file {
            Ok(())
        } else {
            Err(format!("{arguments:?} differs:\n{from_tree}\n{from_file}").into())
        }
    };
    same(&["show", "--all"])?;
    same(&["get", "--json", "epb", "hwp-request", "idle-state"])
}

/// Writing to a recorded machine is rejected with a message.
fn write_refused(_name: &str, tree: &Path) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let state = folder.path().display().to_string();
    let output = flyball(tree, &["set", "max-freq=min", "--state-dir", &state]);
    let message = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || !message.contains("record") {
        return Err(format!("{}: {message}", output.status).into());
    }
    Ok(())
}
