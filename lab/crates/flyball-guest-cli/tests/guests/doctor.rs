//! `doctor` on real kernels. Its amd-pstate tests are compared verdict by verdict with the kernel's
//! own amd-pstate-ut module in the same boot; every file that the tests write to must be the same
//! before and after; misconfigured boots must be diagnosed; and the changes of `doctor --fix` and
//! `quiet`, and their restoration, are checked with other tools.
//!
//! Kernels come from the cache of `flyball guest fetch`, and the modules from
//! `lab/scripts/amd-pstate-ut.sh` (no distribution builds them). Missing ones are skipped and
//! counted. By default only the newest kernel's module and one misconfigured boot are tested;
//! `FLYBALL_GUEST_TESTS=all` tests all.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use flyball_guest::cache::Cache;
use libtest_mimic::Failed;
use serde_json::Value;

use crate::{
    guest::{self, SuiteCase},
    program,
};

struct Boot {
    name: &'static str,
    /// True if it is tested by default too.
    usual: bool,
    kernel: &'static str,
    options: &'static [&'static str],
    /// True if the kernel's module is loaded and compared too.
    module: bool,
    /// Findings that must be reported: id, verdict, part of the text or fix.
    findings: &'static [(&'static str, &'static str, &'static str)],
}

const GOOD: &[(&str, &str, &str)] = &[("driver.present", "ok", "amd-pstate"), ("driver.best", "ok", "")];

const BOOTS: &[Boot] = &[
    Boot {
        name: "amd-pstate-ut, registers, active, 7.2",
        usual: true,
        kernel: "7.2",
        options: &["ryzen-5750g", "--driver", "amd-pstate=active"],
        module: true,
        findings: GOOD,
    },
    Boot {
        name: "amd-pstate-ut, mailbox, passive, 7.2",
        usual: false,
        kernel: "7.2",
        options: &["ryzen-5750g", "--interface", "cppc-mailbox", "--driver", "amd-pstate=passive"],
        module: true,
        findings: &[("driver.mode", "note", "amd_pstate=passive on the command line")],
    },
    Boot {
        name: "amd-pstate-ut, registers, guided, 6.12",
        usual: false,
        kernel: "6.12",
        options: &["ryzen-5750g", "--driver", "amd-pstate=guided"],
        module: true,
        findings: GOOD,
    },
    Boot {
        name: "amd-pstate-ut, mailbox, passive, 6.1",
        usual: false,
        kernel: "6.1",
        options: &["ryzen-5750g", "--interface", "cppc-mailbox", "--driver", "amd-pstate=passive"],
        module: true,
        findings: GOOD,
    },
    Boot {
        name: "amd-pstate-ut, registers, passive, 6.1",
        usual: false,
        kernel: "6.1",
        options: &["ryzen-5750g", "--driver", "amd-pstate=passive"],
        module: true,
        findings: GOOD,
    },
    Boot {
        name: "amd_pstate=disable",
        usual: false,
        kernel: "7.2",
        options: &["ryzen-5750g", "--append", "amd_pstate=disable"],
        module: false,
        findings: &[("driver.best", "warning", "remove amd_pstate=disable")],
    },
    Boot {
        name: "initcall_blacklist",
        usual: false,
        kernel: "7.2",
        options: &["ryzen-5750g", "--append", "initcall_blacklist=amd_pstate_init"],
        module: false,
        findings: &[("driver.best", "warning", "remove the amd_pstate entry from initcall_blacklist")],
    },
    Boot {
        name: "no CPPC in firmware",
        usual: true,
        kernel: "7.2",
        options: &["ryzen-5750g", "--interface", "p-states"],
        module: false,
        findings: &[("driver.best", "warning", "look for CPPC")],
    },
    Boot {
        name: "intel_pstate=disable",
        usual: false,
        kernel: "6.12",
        options: &["gold-6138", "--append", "intel_pstate=disable"],
        module: false,
        findings: &[
            ("driver.best", "warning", "remove intel_pstate=disable"),
            ("driver.hwp", "warning", "remove intel_pstate=disable"),
        ],
    },
    Boot {
        name: "intel_pstate=no_hwp",
        usual: false,
        kernel: "6.12",
        options: &["gold-6138", "--append", "intel_pstate=no_hwp"],
        module: false,
        findings: &[("driver.best", "ok", ""), ("driver.hwp", "warning", "remove intel_pstate=no_hwp")],
    },
];

/// The parts of the script's output, by heading.
fn parts(text: &str) -> BTreeMap<&str, &str> {
    let mut parts = BTreeMap::new();
    for part in text.split("--- ").skip(1) {
        let (heading, body) = part.split_once('\n').unwrap_or((part, ""));
        parts.entry(heading).or_insert(body);
    }
    parts
}

fn report(parts: &BTreeMap<&str, &str>, name: &str) -> Result<Value, String> {
    let text = parts.get(name).ok_or_else(|| format!("no part '{name}'"))?;
    serde_json::from_str(text).map_err(|error| format!("part '{name}': {error}"))
}

/// A boot in which `doctor --fix` and `quiet` are checked with other tools (`guest/quiet.sh`): the
/// values during a run, and that every file is restored after success, Ctrl-C, kill -9, `quiet off`
/// and `restore`.
struct QuietBoot {
    name: &'static str,
    usual: bool,
    kernel: &'static str,
    options: &'static [&'static str],
}

const TOUCHING: &[QuietBoot] = &[
    QuietBoot {
        name: "doctor --fix and quiet, amd-pstate, 7.2",
        usual: true,
        kernel: "7.2",
        options: &["ryzen-5750g", "--driver", "amd-pstate=active"],
    },
    QuietBoot {
        name: "doctor --fix and quiet, amd-pstate, 6.1",
        usual: false,
        kernel: "6.1",
        options: &["ryzen-5750g", "--driver", "amd-pstate=passive", "--interface", "cppc-mailbox"],
    },
    QuietBoot {
        name: "doctor --fix and quiet, acpi-cpufreq, 6.12",
        usual: false,
        kernel: "6.12",
        options: &["ryzen-5750g", "--driver", "acpi-cpufreq"],
    },
    QuietBoot {
        name: "doctor --fix and quiet, intel_pstate, 6.12",
        usual: false,
        kernel: "6.12",
        options: &["gold-6138"],
    },
    QuietBoot {
        name: "doctor --fix and quiet, intel_pstate, 7.2",
        usual: false,
        kernel: "7.2",
        options: &["gold-6138"],
    },
];

/// Boots, runs the script and checks the lines of its output.
fn touch(boot: &QuietBoot) -> Result<(), Failed> {
    let flyball = format!("{}:flyball.bin", program::flyball());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/quiet.sh:quiet.sh");
    let options = [boot.options, &["--modules", "msr", "--file", &flyball, "--file", script]].concat();
    // A comparison takes long in an emulator, so the default run leaves it out.
    let also: &[&str] = if boot.usual { &[] } else { &["compare"] };
    let command = [&["sh", "./quiet.sh", "./flyball.bin"], also].concat();
    let output = guest::run(boot.kernel, &options, &command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let held = text.lines().filter(|line| line.starts_with("ok ")).count();
    if held < 50 || text.contains("not ok") || !text.lines().any(|line| line == "done") {
        return Err(format!("{text}\n--- stderr\n{}", String::from_utf8_lossy(&output.stderr)).into());
    }
    println!("{}: {held} checks held", boot.name);
    Ok(())
}

/// The results of the kernel's module, by test: `4    amd_pstate_ut_check_freq  success!`.
fn module_said(text: &str) -> BTreeMap<String, bool> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            words.next()?.parse::<u32>().ok()?;
            let name = words.next()?.to_owned();
            Some((name, words.next()?.starts_with("success")))
        })
        .collect()
}

/// The doctor's results for the same tests.
fn doctor_said(report: &Value) -> BTreeMap<String, bool> {
    let findings = report["findings"].as_array().cloned().unwrap_or_default();
    findings
        .iter()
        .filter_map(|finding| {
            let test = finding.get("kernel_test")?;
            Some((test["name"].as_str()?.to_owned(), test["passes"].as_bool()?))
        })
        .collect()
}

fn judge(boot: &Boot, text: &str) -> Result<(), String> {
    let parts = parts(text);
    let plain = report(&parts, "doctor")?;
    for (id, verdict, words) in boot.findings {
        let finding = plain["findings"].as_array().and_then(|all| all.iter().find(|f| f["id"] == *id));
        let finding = finding.ok_or_else(|| format!("no finding {id}"))?;
        if finding["verdict"] != *verdict || !finding.to_string().contains(words) {
            return Err(format!("{id}: wanted {verdict} with '{words}', got {finding}"));
        }
    }
    if !boot.module {
        return Ok(());
    }
    if !parts.contains_key("same before and after") {
        return Err(format!("files differ: {:?}", parts.get("different after")));
    }
    let written = report(&parts, "write")?;
    for (name, doctor) in [("kernel", written), ("kernel-limited", report(&parts, "limited")?)] {
        let theirs = module_said(parts.get(name).copied().unwrap_or_default());
        let ours = doctor_said(&doctor);
        if theirs.len() < 4 {
            return Err(format!("the module said only {theirs:?}"));
        }
        // The second run leaves out the tests that write.
        let differs: Vec<_> = theirs
            .iter()
            .filter(|(test, passes)| match ours.get(*test) {
                Some(ours) => ours != *passes,
                None => name == "kernel",
            })
            .collect();
        if !differs.is_empty() {
            return Err(format!("{name}: the module says {differs:?}, the doctor {ours:?}"));
        }
        if name == "kernel-limited" && theirs.get("amd_pstate_ut_check_freq") != Some(&false) {
            return Err("the limit was no trouble to the module".to_owned());
        }
        println!("{}: {name}: {} verdicts agree", boot.name, theirs.len().min(ours.len()));
    }
    Ok(())
}

fn run(boot: &Boot, module: Option<&Path>) -> Result<(), Failed> {
    let flyball = &program::flyball();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/doctor.sh");
    let mut command = Command::new("nice");
    command.args(["-n", "10", flyball, "--kernel", boot.kernel, "guest", "run"]).args(boot.options);
    command.args(["--modules", "msr", "--timeout", "1500"]);
    command.arg("--file").arg(format!("{flyball}:flyball.bin"));
    command.arg("--file").arg(format!("{}:doctor.sh", script.display()));
    if let Some(module) = module {
        command.arg("--file").arg(format!("{}:ut.ko", module.display()));
    }
    command.args(["--", "sh", "doctor.sh", "./flyball.bin"]).args(module.map(|_| "/job/ut.ko"));
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    judge(boot, &text).map_err(|why| {
        format!("{why}\n--- stdout\n{text}\n--- stderr\n{}", String::from_utf8_lossy(&output.stderr)).into()
    })
}

/// The module for a kernel, if it has been built.
fn module_for(cache: &Cache, kernel: &str) -> Option<PathBuf> {
    let version = cache.kernel_version(kernel)?;
    Some(cache.root().join("ut").join(format!("{version}.ko"))).filter(|path| path.is_file())
}

/// The boots of this suite.
pub(crate) fn suite() -> Vec<SuiteCase> {
    let cache = Cache::of_user().expect("the cache is this user's own");
    let diagnosed = BOOTS.iter().map(|boot| {
        let module = module_for(&cache, boot.kernel).filter(|_| boot.module);
        let unbuilt = boot.module && module.is_none();
        SuiteCase {
            name: boot.name.to_owned(),
            kernel: boot.kernel.to_owned(),
            everyday: boot.usual,
            missing: unbuilt.then(|| "its module is not built: lab/scripts/amd-pstate-ut.sh".to_owned()),
            test: Box::new(move || run(boot, module.as_deref())),
        }
    });
    let touched = TOUCHING.iter().map(|boot| SuiteCase {
        name: boot.name.to_owned(),
        kernel: boot.kernel.to_owned(),
        everyday: boot.usual,
        missing: None,
        test: Box::new(move || touch(boot)),
    });
    diagnosed.chain(touched).collect()
}
