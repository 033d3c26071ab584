//! Real kernels with real cpufreq drivers, in an emulator: settings, restore, crashes, judged from outside.
//!
//! One boot per kernel and driver runs `guest/settings.sh`, which changes settings with flyball and looks at the
//! result with cat. The laboratory that boots the kernels is not part of this repository: it is looked for in
//! `$FLYBALL_SHARED/lab` or `../shared/lab`. Where it, a kernel or the emulator is missing, the guests are skipped, and
//! how many were is said.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use libtest_mimic::{Arguments, Failed, Trial};

/// One boot.
struct Guest {
    kernel: &'static str,
    driver: &'static str,
    /// What the laboratory is told.
    options: &'static [&'static str],
    /// Modes to switch through, and a governor that the driver's other modes have.
    modes: &'static str,
    governor: &'static str,
}

const GUESTS: &[Guest] = &[
    amd("6.1", "passive", "", "schedutil"),
    amd("6.12", "active", "passive guided", "schedutil"),
    amd("7.2", "active", "passive guided", "ondemand"),
    amd("7.2", "guided", "passive active", "conservative"),
    acpi("6.1"),
    acpi("6.12"),
    acpi("7.2"),
    intel("6.1"),
    intel("6.12"),
    intel("7.2"),
];

const fn amd(kernel: &'static str, mode: &'static str, modes: &'static str, governor: &'static str) -> Guest {
    let options: &'static [&'static str] = match mode.as_bytes() {
        b"passive" => &["--driver", "amd-pstate", "--mode", "passive"],
        b"guided" => &["--driver", "amd-pstate", "--mode", "guided"],
        _ => &["--driver", "amd-pstate", "--mode", "active"],
    };
    let driver = match mode.as_bytes() {
        b"passive" => "amd-pstate-passive",
        b"guided" => "amd-pstate-guided",
        _ => "amd-pstate-active",
    };
    Guest { kernel, driver, options, modes, governor }
}

const fn acpi(kernel: &'static str) -> Guest {
    let options = &["--driver", "acpi-cpufreq", "--mods", "cpufreq_ondemand"];
    Guest { kernel, driver: "acpi-cpufreq", options, modes: "", governor: "ondemand" }
}

const fn intel(kernel: &'static str) -> Guest {
    Guest {
        kernel,
        driver: "intel-pstate",
        options: &["--msrs", "intel-hwp"],
        modes: "passive",
        governor: "schedutil",
    }
}

/// The laboratory and its cache, or why there is none.
fn laboratory() -> Result<(PathBuf, PathBuf), String> {
    let shared = std::env::var_os("FLYBALL_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let script = shared.join("lab/run-guest.sh");
    if !script.is_file() {
        return Err(format!("no laboratory at {}", script.display()));
    }
    let cache = std::env::var_os("LAB_CACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/cpufreq-lab")));
    let cache =
        cache.filter(|cache| cache.join("kernels").is_dir()).ok_or("the laboratory has no kernels yet")?;
    let there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    for program in ["qemu-system-x86_64", "python3"] {
        if !there(program) {
            return Err(format!("{program} is not installed"));
        }
    }
    Ok((script, cache))
}

fn has_kernel(cache: &Path, version: &str) -> bool {
    let kernels = std::fs::read_dir(cache.join("kernels")).into_iter().flatten().flatten();
    kernels.map(|entry| entry.file_name().to_string_lossy().into_owned()).any(|name| {
        name.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '+', '-']))
    })
}

/// Boots the guest; once more where the emulator stopped before the script's end with no check having failed. QEMU 7.2
/// now and then runs stale code where the kernel patches itself, and the guest hangs or oopses (the laboratory's notes
/// count 1 boot in 36). A check that failed is never given a second chance.
fn boot(lab: &Path, guest: &Guest) -> Result<(), Failed> {
    match attempt(lab, guest) {
        Err(Stopped::Emulator(first)) => {
            eprintln!(
                "{}-{}: the guest stopped in the middle, booted again: {first}",
                guest.kernel, guest.driver
            );
            attempt(lab, guest).map_err(|stopped| match stopped {
                Stopped::Emulator(words) | Stopped::Check(words) => words.into(),
            })
        }
        Err(Stopped::Check(words)) => Err(words.into()),
        Ok(()) => Ok(()),
    }
}

/// Why a guest is no success.
enum Stopped {
    /// It did not come to the end of the script, and nothing was wrong until then.
    Emulator(String),
    /// A check failed.
    Check(String),
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Stopped {
        Stopped::Check(error.to_string())
    }
}

fn attempt(lab: &Path, guest: &Guest) -> Result<(), Stopped> {
    let mut script = tempfile::NamedTempFile::new()?;
    script.write_all(include_bytes!("guest/settings.sh"))?;
    let path = script.into_temp_path();
    let flyball = env!("CARGO_BIN_EXE_flyball");
    // The laboratory joins the script's arguments with blanks: a wrapper keeps the quotes.
    let mut wrapper = tempfile::NamedTempFile::new()?;
    writeln!(wrapper, "#!/bin/sh\nexec sh ./settings ./flyball '{}' '{}'", guest.modes, guest.governor)?;
    let wrapper = wrapper.into_temp_path();
    let output = Command::new("nice")
        .args(["-n", "10"])
        .arg(lab)
        .args(["--kernel", guest.kernel, "--root", "host", "--timeout", "400"])
        .args(guest.options)
        .arg("--file")
        .arg(format!("{flyball}:flyball"))
        .arg("--file")
        .arg(format!("{}:settings", path.display()))
        .arg("--")
        .arg(&wrapper)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let wrong: Vec<&str> = text.lines().filter(|line| line.starts_with("not ok")).collect();
    let right = text.lines().filter(|line| line.starts_with("ok ")).count();
    if wrong.is_empty() && right > 20 && text.lines().any(|line| line == "done") && output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let tail: Vec<&str> = errors.lines().rev().take(30).collect();
    let last = text.lines().last().unwrap_or_default();
    let words = format!(
        "{} checks held, {} did not; {}; last line '{last}'\n{}\n--- stderr\n{}",
        right,
        wrong.len(),
        output.status,
        wrong.join("\n"),
        tail.into_iter().rev().collect::<Vec<_>>().join("\n")
    );
    let stopped = wrong.is_empty() && !text.lines().any(|line| line == "done");
    Err(if stopped { Stopped::Emulator(words) } else { Stopped::Check(words) })
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One emulator at a time: each wants a core of its own.
    arguments.test_threads = Some(1);
    let laboratory = laboratory();
    let mut skipped = Vec::new();
    let trials = GUESTS
        .iter()
        .map(|guest| {
            let name = format!("{}-{}", guest.kernel, guest.driver);
            let missing = match &laboratory {
                Err(why) => Some(why.clone()),
                Ok((_, cache)) if !has_kernel(cache, guest.kernel) => {
                    Some(format!("no kernel {}", guest.kernel))
                }
                Ok((_, cache)) if guest.driver == "intel-pstate" && !cache.join("qemu/qemu").exists() => {
                    Some("the emulator with registers is not fetched".to_owned())
                }
                Ok(_) => None,
            };
            let ignored = missing.is_some();
            if let Some(why) = missing {
                skipped.push(format!("{name} ({why})"));
            }
            let lab = laboratory.as_ref().map(|(lab, _)| lab.clone()).unwrap_or_default();
            Trial::test(name, move || boot(&lab, guest)).with_ignored_flag(ignored)
        })
        .collect();
    if !skipped.is_empty() {
        eprintln!("skipped: {} of {} guests: {}", skipped.len(), GUESTS.len(), skipped.join(", "));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
