//! `compare` on real kernels with real drivers, in an emulator whose guest time, energy and frequency follow what the
//! driver asks for: a difference that is there must be found, one that is not must not, and the kernel's own files,
//! read with cat, must change during the run and be the same before and after.
//!
//! The laboratory is not part of this repository: `$FLYBALL_SHARED/lab` or `../shared/lab`. Where it, a kernel or the
//! emulator is missing the guests are skipped, and how many were is said.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

/// One boot and the arms that are compared in it.
struct Guest {
    name: &'static str,
    kernel: &'static str,
    options: &'static [&'static str],
    arms: &'static [&'static str],
    /// For each arm but the first: the verdict in performance, and the least and most change in percent.
    expected: &'static [(&'static str, f64, f64)],
    /// What cat must have seen meanwhile.
    during: &'static [&'static str],
}

const GUESTS: &[Guest] = &[
    Guest {
        name: "governors of amd-pstate passive, 7.2",
        kernel: "7.2",
        options: &["--mode", "passive", "--msrs", "amd-cppc"],
        arms: &["fast: governor=performance", "slow: governor=powersave", "again: governor=performance"],
        // 4683 against 1129 MHz.
        expected: &[("worse", 250.0, 380.0), ("no-difference-shown", -3.0, 3.0)],
        during: &["performance", "powersave"],
    },
    Guest {
        name: "preferences of intel_pstate active, 7.2",
        kernel: "7.2",
        options: &["--msrs", "intel-hwp"],
        arms: &["fast: governor=performance", "power: governor=powersave epp=power"],
        expected: &[("worse", 30.0, 400.0)],
        during: &["performance performance", "powersave power"],
    },
    Guest {
        name: "driver modes of amd-pstate, 6.12",
        kernel: "6.12",
        options: &["--mode", "active", "--msrs", "amd-cppc"],
        arms: &[
            "passive: driver-mode=passive governor=performance",
            "active: driver-mode=active governor=powersave max-freq=2GHz",
        ],
        expected: &[("worse", 80.0, 200.0)],
        during: &["performance", "powersave"],
    },
];

/// The launcher of the closed loop and the cache of kernels, or why there is none.
fn laboratory() -> Result<(PathBuf, PathBuf), String> {
    let shared = std::env::var_os("FLYBALL_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let script = shared.join("lab/loop/run-loop.sh");
    if !script.is_file() {
        return Err(format!("no laboratory at {}", script.display()));
    }
    let cache = std::env::var_os("LAB_CACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/cpufreq-lab")))
        .unwrap_or_default();
    if !cache.join("kernels").is_dir() {
        return Err("the laboratory has no kernels yet".to_owned());
    }
    if !cache.join("qemu/qemu").exists() {
        return Err("the laboratory has no emulator of its own yet".to_owned());
    }
    Ok((script, cache))
}

fn has_kernel(cache: &Path, version: &str) -> bool {
    let kernels = std::fs::read_dir(cache.join("kernels")).into_iter().flatten().flatten();
    kernels.map(|entry| entry.file_name().to_string_lossy().into_owned()).any(|name| {
        name.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '+', '-']))
    })
}

fn boot(lab: &Path, guest: &Guest) -> Result<(), Failed> {
    let place = tempfile::tempdir()?;
    std::fs::write(place.path().join("compare"), include_bytes!("guest/compare.sh"))?;
    // The laboratory joins the script's arguments with blanks: a wrapper keeps the quotes.
    let wrapper = place.path().join("wrapper");
    let arms: Vec<String> = guest.arms.iter().map(|arm| format!("'{arm}'")).collect();
    std::fs::write(&wrapper, format!("#!/bin/sh\nexec sh ./compare ./flyball {}\n", arms.join(" ")))?;
    let output = Command::new("nice")
        .args(["-n", "10"])
        .arg(lab)
        .args(["--kernel", guest.kernel, "--cpus", "2", "--root", "host", "--timeout", "300"])
        .args(guest.options)
        .arg("--file")
        .arg(format!("{}:flyball", env!("CARGO_BIN_EXE_flyball")))
        .arg("--file")
        .arg(format!("{}:compare", place.path().join("compare").display()))
        .arg("--")
        .arg(&wrapper)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = || format!("{text}\n--- stderr\n{}", String::from_utf8_lossy(&output.stderr));
    for line in ["exit 0", "same before and after"] {
        if !text.lines().any(|have| have == line) {
            return Err(format!("no line '{line}' in\n{}", all()).into());
        }
    }
    for seen in guest.during {
        if !text.lines().any(|line| line.strip_prefix("during: ").is_some_and(|line| line.starts_with(seen)))
        {
            return Err(format!("'{seen}' was never in the kernel's files\n{}", all()).into());
        }
    }
    let report = text.split("--- report\n").nth(1).ok_or_else(|| format!("no report in\n{}", all()))?;
    let report: Value = serde_json::from_str(report).map_err(|error| format!("{error}\n{}", all()))?;
    let comparisons = report["comparisons"].as_array().cloned().unwrap_or_default();
    for (index, (verdict, least, most)) in guest.expected.iter().enumerate() {
        let found = comparisons
            .iter()
            .find(|comparison| comparison["quantity"] == "performance" && comparison["arm"] == index + 1)
            .ok_or_else(|| format!("arm {} was not compared\n{}", index + 1, all()))?;
        let change = found["change"].as_f64().unwrap_or(f64::NAN) * 100.0;
        if found["verdict"] != *verdict || !(*least..=*most).contains(&change) {
            return Err(format!(
                "arm {}: {} by {change:.1} %, wanted {verdict} by {least} to {most} %\n{}",
                index + 1,
                found["verdict"],
                all()
            )
            .into());
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One at a time: the emulator needs the whole machine.
    arguments.test_threads = Some(1);
    let (lab, cache) = match laboratory() {
        Ok(found) => found,
        Err(why) => {
            eprintln!("skipped {}: {why}", GUESTS.len());
            return ExitCode::SUCCESS;
        }
    };
    let (here, missing): (Vec<&Guest>, Vec<&Guest>) =
        GUESTS.iter().partition(|guest| has_kernel(&cache, guest.kernel));
    if !missing.is_empty() {
        eprintln!("skipped {}: no such kernel in the laboratory's cache", missing.len());
    }
    let trials = here
        .into_iter()
        .map(|guest| {
            let lab = lab.clone();
            Trial::test(guest.name, move || boot(&lab, guest))
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
