//! `selftests`: the kernel's own tests. For amd-pstate the unit tests
//! (drivers/cpufreq/amd-pstate-ut.c), if the kernel has them built in or as a module; for cpufreq
//! the scripts in tools/testing/selftests/cpufreq, if the kernel is in its source tree.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use super::{Bench, Topic};
use crate::{
    boots::{CannotTell, Job},
    mode::Mode,
    report::Test,
};

pub(super) struct SelfTests;

/// The prefix of the module's messages.
const PREFIX: &str = "amd_pstate_ut: ";
/// Maximum number of lines of a failed test to show.
const LINES: usize = 5;
/// The arguments of the scripts: all tests except sleep, modules, and two that take hours here.
const SCRIPTS: &[&str] = &["basic", "sptest1", "sptest2"];
/// The shell of the scripts.
const BASH: &str = "/bin/bash";

impl Topic for SelfTests {
    fn name(&self) -> &'static str {
        "selftests"
    }

    fn about(&self) -> &'static str {
        "the kernel's own tests: amd-pstate-ut, and the cpufreq scripts of its tree"
    }

    fn applies(&self, mode: &Mode) -> bool {
        mode.shape.is_none()
    }

    fn run(&self, bench: &Bench<'_>, mode: &Mode) -> Result<Vec<Test>, CannotTell> {
        let mut command = String::new();
        let copies = scripts(bench.kernel.selftests());
        if copies.is_ok() {
            let all = SCRIPTS.join(" ");
            let _ = write!(
                command,
                "cd cpufreq; for t in {all}; do ../bash ./main.sh -t $t > /tmp/$t 2>&1; r=$?; \
                 tail -n {LINES} /tmp/$t | sed s/^/cpufreq./; echo cpufreq.$t $r; done; "
            );
        }
        if mode.is_amd_pstate() {
            // If built in, the tests have already run.
            command.push_str("modprobe amd_pstate_ut 2>/dev/null; dmesg");
        }
        let mut tests = Vec::new();
        if !command.is_empty() {
            let copies = copies.as_ref().cloned().unwrap_or_default();
            let job = Job { files: Vec::new(), copies, command, ..Job::agent(String::new(), bench.seed) };
            let ended = bench.kernel.boot(mode, &job)?;
            tests = of_amd_pstate(&ended.output);
            if tests.is_empty() && mode.is_amd_pstate() {
                tests
                    .push(Test::skip("amd-pstate-ut", "the kernel has no amd_pstate_ut (X86_AMD_PSTATE_UT)"));
            }
            tests.extend(of_scripts(&ended.output));
            if let Some(cut) = &ended.cut {
                tests.push(Test::fail("runs-to-the-end", vec![cut.clone(), ended.last_words()]));
            }
            for message in ended.messages() {
                tests.push(Test::kernel_report(&message.kind, message.text));
            }
        }
        tests.extend(copies.err().map(|why| Test::skip("cpufreq", why)));
        Ok(tests)
    }
}

/// Files that the scripts need in the guest, or why they cannot run.
fn scripts(selftests: Option<&Path>) -> Result<Vec<PathBuf>, &'static str> {
    let selftests = selftests.ok_or("the kernel does not lie in its source tree")?;
    let directories = ["cpufreq", "kselftest"].map(|name| selftests.join(name));
    if !directories[0].join("main.sh").exists() {
        return Err("the kernel's tree has no tools/testing/selftests/cpufreq/main.sh");
    }
    if !Path::new(BASH).exists() {
        return Err("this host has no /bin/bash, which the scripts need");
    }
    let there = directories.into_iter().filter(|directory| directory.is_dir());
    Ok(there.chain([PathBuf::from(BASH)]).collect())
}

/// Parses the ends of the scripts: `cpufreq.basic 0`, after the last lines that each printed.
fn of_scripts(output: &str) -> Vec<Test> {
    // tools/testing/selftests/kselftest/ktap_helpers.sh
    const SKIP: &str = "4";
    let mut tests = Vec::new();
    let mut said: Vec<String> = Vec::new();
    for line in output.lines().filter_map(|line| line.strip_prefix("cpufreq.")) {
        let end = line.split_once(' ').filter(|(name, _)| SCRIPTS.contains(name));
        let Some((name, code)) = end else {
            said.push(line.to_owned());
            continue;
        };
        let name = format!("cpufreq.{name}");
        let said = std::mem::take(&mut said);
        tests.push(match code {
            "0" => Test::pass(name),
            SKIP => Test::skip(name, said.join(" ")),
            code => Test::fail(name, [said, vec![format!("it ended with code {code}")]].concat()),
        });
    }
    tests
}

/// Parses a log's tests: `amd_pstate_ut: 4    amd_pstate_ut_check_freq    success!`, after the
/// messages of a failed one.
fn of_amd_pstate(log: &str) -> Vec<Test> {
    let mut tests = Vec::new();
    let mut said: Vec<String> = Vec::new();
    for line in log.lines() {
        let Some((_, text)) = line.split_once(PREFIX) else { continue };
        let mut words = text.split_whitespace();
        let number = words.next().and_then(|word| word.parse::<u32>().ok());
        let (Some(_), Some(name)) = (number, words.next()) else {
            said.push(text.trim().to_owned());
            continue;
        };
        let end = words.collect::<Vec<_>>().join(" ");
        let name = name.trim_start_matches("amd_pstate_ut_");
        tests.push(if end.starts_with("success") {
            Test::pass(name)
        } else if end.starts_with("skip") {
            Test::skip(name, "the kernel skipped it")
        } else {
            let mut details = said.split_off(said.len().saturating_sub(LINES));
            details.push(end);
            Test::fail(name, details)
        });
        said.clear();
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Outcome;

    /// Name, outcome and number of lines of each test.
    fn ends(tests: Vec<Test>) -> Vec<(String, Outcome, usize)> {
        tests.into_iter().map(|test| (test.name, test.outcome, test.details.len())).collect()
    }

    #[test]
    fn a_log_is_read() {
        let log = "[    0.9] amd_pstate_ut: 1    amd_pstate_ut_acpi_cpc_valid\t success!\n\
            [    0.9] other: 2 x failed\n\
            [    0.9] amd_pstate_ut: amd_pstate_ut_check_freq cpu0 max=1 >= nominal=2\n\
            [    0.9] amd_pstate_ut: 2    amd_pstate_ut_check_freq\t failed!\n\
            [    1.0] amd_pstate_ut: 3    amd_pstate_ut_epp\t skipped\n";
        let found = ends(of_amd_pstate(log));
        assert_eq!(
            found,
            [
                ("acpi_cpc_valid".to_owned(), Outcome::Pass, 0),
                ("check_freq".to_owned(), Outcome::Fail, 2),
                ("epp".to_owned(), Outcome::Skip, 0)
            ]
        );
        assert!(of_amd_pstate("no such lines").is_empty());
    }

    #[test]
    fn ends_of_scripts_are_read() {
        let output = "cpufreq.ok 1 Completed successfully\ncpufreq.basic 0\n\
            cpufreq.skip all tests: must be run as root\ncpufreq.sptest1 4\n\
            cpufreq.No cpu is managed\ncpufreq.sptest2 1\ncpufreq/policy0 x\n";
        let found = ends(of_scripts(output));
        assert_eq!(
            found,
            [
                ("cpufreq.basic".to_owned(), Outcome::Pass, 0),
                ("cpufreq.sptest1".to_owned(), Outcome::Skip, 0),
                ("cpufreq.sptest2".to_owned(), Outcome::Fail, 2),
            ]
        );
    }

    #[test]
    fn scripts_need_a_tree() {
        let tree = tempfile::tempdir().unwrap();
        assert!(scripts(None).unwrap_err().contains("source tree"));
        assert!(scripts(Some(tree.path())).unwrap_err().contains("main.sh"));
        std::fs::create_dir(tree.path().join("cpufreq")).unwrap();
        std::fs::write(tree.path().join("cpufreq/main.sh"), "").unwrap();
        if Path::new(BASH).exists() {
            assert_eq!(scripts(Some(tree.path())).unwrap().len(), 2);
        }
    }
}
