//! flyball on the kernel's own cppc_cpufreq: an emulated aarch64 machine whose CPPC registers are
//! in memory.
//!
//! `lab/scripts/arm-guest` boots it, with what `arm-guest --fetch` has put into the cache, and runs
//! `arm.sh`. The static flyball for aarch64 that it carries is named by `FLYBALL_ARM`
//! (`dist/build --static aarch64`).

use std::{path::PathBuf, process::Command};

use libtest_mimic::Failed;

use crate::guest::{self, SuiteCase};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/arm-guest");

fn run(kernel: &str, machine: &str) -> Result<(), Failed> {
    let flyball = std::env::var("FLYBALL_ARM")?;
    let checks = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/arm.sh");
    let output = Command::new("nice")
        .args(["-n", "5", SCRIPT, "--kernel", kernel, "--machine", machine])
        .args(["--file", &format!("{flyball}:flyball"), "--file", checks])
        .args(["--", "sh", "./arm.sh", "./flyball", machine])
        .output()?;
    guest::judge(&output, if kernel == "6.12" { 15 } else { 30 })
}

/// Why a kernel cannot be booted here.
fn missing(kernel: &str) -> Option<String> {
    let fetched = flyball_guest::cache::Cache::of_user().ok()?.root().join("arm");
    let has = |path: PathBuf| path.is_dir();
    if !has(fetched.join("qemu")) || !has(fetched.join(format!("kernel-{kernel}"))) {
        return Some(format!("no aarch64 kernel {kernel}: lab/scripts/arm-guest --fetch --kernel {kernel}"));
    }
    std::env::var_os("FLYBALL_ARM").is_none().then(|| "FLYBALL_ARM names no flyball for aarch64".to_owned())
}

/// The boots of this suite.
pub(crate) fn suite() -> Vec<SuiteCase> {
    let cases = [("7.3", "altra"), ("7.3", "grace"), ("7.2", "altra"), ("6.12", "altra")];
    let case = |(kernel, machine): (&'static str, &'static str)| SuiteCase {
        name: format!("{kernel}-{machine}"),
        kernel: String::new(),
        everyday: false,
        missing: missing(kernel),
        test: Box::new(move || run(kernel, machine)),
    };
    cases.map(case).into()
}
