//! Guests for this program's tests: `flyball guest run` with kernels and the emulator from the
//! cache of `flyball guest fetch`.
//!
//! By default a few guests are booted; `FLYBALL_GUEST_TESTS=all` boots all of them. Skipped guests
//! are counted.

use std::{
    path::Path,
    process::{Command, ExitCode, Output},
};

use flyball_guest::{cache::Cache, guest::find_plugin, qemu::Qemu};
use flyball_testing::skip;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::program;

/// Whether to boot all guests.
pub(crate) fn all() -> bool {
    std::env::var_os("FLYBALL_GUEST_TESTS").is_some_and(|value| value == "all")
}

/// Returns why no guest can be booted here, if so: the emulator, the plug-in or the kernel is
/// missing.
pub(crate) fn missing(kernel: &str) -> Option<String> {
    let cache = Cache::of_user().expect("the cache is this user's own");
    let beside = Path::new(env!("CARGO_BIN_EXE_flyball-guest")).parent().unwrap_or(Path::new("/"));
    let plugin =
        ["", "deps/"].iter().any(|dir| beside.join(format!("{dir}libflyball_guest_plugin.so")).is_file());
    match Qemu::find(&cache) {
        Err(why) => Some(why.to_string()),
        Ok(_) if !plugin && find_plugin().is_err() => Some("the plug-in is not built".to_owned()),
        Ok(_) if cache.kernel_version(kernel).is_none() => {
            Some(format!("no kernel {kernel}: flyball guest fetch --kernel {kernel}"))
        }
        Ok(_) => None,
    }
}

/// Boots a guest and runs `command` in it, at low priority. Boots once more if QEMU kept a
/// breakpoint of the kernel's, like flyball-guest's tests.
pub(crate) fn run(kernel: &str, options: &[&str], command: &[&str]) -> std::io::Result<Output> {
    let timeout: &[&str] = if options.contains(&"--timeout") { &[] } else { &["--timeout", "1800"] };
    let run = || {
        Command::new("nice")
            .args(["-n", "5", &program::flyball(), "--kernel", kernel, "guest", "run"])
            .args(timeout)
            .args(options)
            .arg("--")
            .args(command)
            .output()
    };
    let first = run()?;
    let is_of_qemu =
        first.status.code() == Some(125) && String::from_utf8_lossy(&first.stderr).contains("Oops: int3");
    if is_of_qemu { run() } else { Ok(first) }
}

/// Boots a guest and runs a script of this folder in it, with the path of flyball and `words`. The
/// script prints `ok WHAT` or `not ok WHAT` for each check, more than `least` in all, and `done` at
/// its end.
pub(crate) fn run_checks(
    kernel: &str,
    options: &[&str],
    script: &str,
    words: &[&str],
    least: usize,
) -> Result<(), Failed> {
    let flyball = format!("{}:flyball", program::flyball());
    let file = format!("{}/tests/guests/{script}", env!("CARGO_MANIFEST_DIR"));
    let look = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/kills.d/look.sh");
    let options = [options, &["--file", &flyball, "--file", &file, "--file", look]].concat();
    let script = format!("./{script}");
    judge(&run(kernel, &options, &[&["sh", &script, "./flyball"], words].concat())?, least)
}

/// Reads what a script of checks printed: see [`run_checks`].
pub(crate) fn judge(output: &Output, least: usize) -> Result<(), Failed> {
    let text = String::from_utf8_lossy(&output.stdout);
    let wrong: Vec<&str> = text.lines().filter(|line| line.starts_with("not ok")).collect();
    let right = text.lines().filter(|line| line.starts_with("ok ")).count();
    if wrong.is_empty() && right > least && text.lines().any(|line| line == "done") && output.status.success()
    {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let tail: Vec<&str> = errors.lines().rev().take(40).collect();
    Err(format!(
        "{right} checks held, {} did not; {}; last line '{}'\n{}\n--- stderr\n{}",
        wrong.len(),
        output.status,
        text.lines().last().unwrap_or_default(),
        wrong.join("\n"),
        tail.into_iter().rev().collect::<Vec<_>>().join("\n")
    )
    .into())
}

/// One boot: its name in the suite, what it boots, whether it is booted by default, and its checks.
pub(crate) struct SuiteCase {
    pub name: String,
    /// Empty for a guest that `flyball guest` does not boot.
    pub kernel: String,
    pub everyday: bool,
    /// What is missing for it, beyond what every guest needs.
    pub missing: Option<String>,
    pub test: Box<dyn FnOnce() -> Result<(), Failed> + Send>,
}

/// Runs suites, one emulator at a time, because each needs a core of its own. Skipped boots are
/// counted by suite.
pub(crate) fn run_suites(suites: Vec<(&str, Vec<SuiteCase>)>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let chosen = |name: &str| arguments.filter.as_ref().is_none_or(|filter| name.contains(filter));
    let mut trials = Vec::new();
    for (suite, guests) in suites {
        let (mut count, mut skipped) = (0, Vec::new());
        for guest in guests {
            let name = format!("{suite}::{}", guest.name);
            let lacks = || if guest.kernel.is_empty() { None } else { missing(&guest.kernel) };
            let why = match guest.missing.or_else(lacks) {
                None if !guest.everyday && !all() => Some("FLYBALL_GUEST_TESTS is not all".to_owned()),
                why => why,
            };
            let ignored = why.is_some();
            if chosen(&name) {
                count += 1;
                skipped.extend(why.map(|why| format!("{} ({why})", guest.name)));
            }
            trials.push(Trial::test(name, guest.test).with_ignored_flag(ignored));
        }
        if !skipped.is_empty() {
            skip(skipped.len(), &format!("of {count} {suite}"), &skipped.join(", "));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
