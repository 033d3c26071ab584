//! `selftests`: the kernel's own unit tests of amd-pstate (drivers/cpufreq/amd-pstate-ut.c), where the kernel has them built in or
//! as a module.

use super::{Bench, Topic};
use crate::{
    boots::{CannotTell, Job},
    mode::Mode,
    report::Test,
};

pub struct SelfTests;

/// The prefix of the module's messages.
const PREFIX: &str = "amd_pstate_ut: ";
/// Lines before a failed test that are shown.
const LINES: usize = 5;

impl Topic for SelfTests {
    fn name(&self) -> &'static str {
        "selftests"
    }

    fn about(&self) -> &'static str {
        "the kernel's own unit tests of amd-pstate"
    }

    fn applies(&self, mode: &Mode) -> bool {
        mode.is_amd_pstate()
    }

    fn run(&self, bench: &Bench<'_>, mode: &Mode) -> Result<Vec<Test>, CannotTell> {
        // Built in, they have run already.
        let command = "modprobe amd_pstate_ut 2>/dev/null; dmesg".to_owned();
        let job = Job { files: Vec::new(), command, ..Job::agent(String::new(), bench.seed) };
        let ended = bench.kernel.boot(mode, &job)?;
        let mut tests = read(&ended.output);
        if tests.is_empty() {
            tests.push(Test::skip("selftests", "the kernel has no amd_pstate_ut (X86_AMD_PSTATE_UT)"));
        }
        for message in ended.messages() {
            tests.push(Test::kernel_report(&message.kind, message.text));
        }
        Ok(tests)
    }
}

/// The tests of a log: `amd_pstate_ut: 4    amd_pstate_ut_check_freq    success!`, after what a failed one has to say.
fn read(log: &str) -> Vec<Test> {
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

    #[test]
    fn a_log_is_read() {
        let log = "[    0.9] amd_pstate_ut: 1    amd_pstate_ut_acpi_cpc_valid\t success!\n\
            [    0.9] other: 2 x failed\n\
            [    0.9] amd_pstate_ut: amd_pstate_ut_check_freq cpu0 max=1 >= nominal=2\n\
            [    0.9] amd_pstate_ut: 2    amd_pstate_ut_check_freq\t failed!\n\
            [    1.0] amd_pstate_ut: 3    amd_pstate_ut_epp\t skipped\n";
        let found: Vec<(String, Outcome, usize)> =
            read(log).into_iter().map(|test| (test.name, test.outcome, test.details.len())).collect();
        assert_eq!(
            found,
            [
                ("acpi_cpc_valid".to_owned(), Outcome::Pass, 0),
                ("check_freq".to_owned(), Outcome::Fail, 2),
                ("epp".to_owned(), Outcome::Skip, 0)
            ]
        );
        assert!(read("no such lines").is_empty());
    }
}
