//! The arguments of `compare`.

use std::path::PathBuf;

use clap::{CommandFactory as _, FromArgMatches as _};
use flyball_compare::{programs::ProgramArgs, workloads};

use super::rounds::RoundArgs;
use crate::{
    commands::report::{Forms, RESULTS},
    run_as::RunAs,
};

/// Ids of the options that the file of `--experiment` may have. On the command line, they cannot be
/// used together with `--experiment`.
pub(super) const OPTIONS: [&str; 50] = [
    "matrix",
    "rounds",
    "until",
    "max_rounds",
    "warm_up",
    "cool_down",
    "interval",
    "confidence",
    "seed",
    "observer",
    "ignore_failure",
    "power_command",
    "trace",
    "knob",
    "quiet",
    "workload",
    "model",
    "amount",
    "jobs",
    "file",
    "source",
    "target",
    "pin",
    "beside",
    "beside_pin",
    "metric",
    "suite",
    "unit",
    "better",
    "exact",
    "prepare",
    "command_name",
    "in",
    "parameter",
    "shell",
    "env",
    "input",
    "setup",
    "rebuild",
    "conclude",
    "cleanup",
    "aa",
    "same_output",
    "serve",
    "load",
    "ready",
    "timeout",
    "max_time",
    "fixed_layout",
    "min_rounds",
];

/// Ids of other options that describe a comparison and that its file does not have.
const OTHERS: [&str; 10] = [
    "arm",
    "arms",
    "selftest",
    "command",
    "bisect",
    "build",
    "no_shell",
    "parameter_scan",
    "parameter_step_size",
    "parameter_list",
];

/// Arguments of `compare`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Compare programs: flyball compare ./old ./new. A bare word is an arm of settings if it is 'now' or begins with KNOB= of a \
knob that flyball knows; any other word is a program, which must exist here or in PATH. flyball splits a program into words as \
a shell does, but starts it without one (--shell uses one). Programs need no root, no cpufreq and no energy meter.

Each block runs every arm once, in random order. flyball compares only rounds of the same block, so slow drift cancels \
out. The first arm is the baseline. Settings are restored at the end, even after Ctrl-C (completed rounds are kept) or a \
crash.

An arm is 'NAME: KNOB=VALUE KNOB=VALUE'. KNOB@CPUS=VALUE sets some CPUs only, and 'now' is the machine as it is. Arms \
with driver=NAME, boot=WORD or boot:PARAMETER=VALUE need another boot and wait for --resume.

--quiet makes the machine quiet for the CPUs of --pin, applies each arm on top, and watches other load, stolen time, \
interrupts and memory pressure. Rounds under bad conditions are shown but do not count, unless the arm itself seems to \
cause the condition (changing frequency, heat).

Under sudo, the command, --prepare and servers run as the user who called sudo, and the run directory belongs to that \
user. --as-root keeps root, and --user picks another user.

Examples:
  flyball compare ./old ./new
  flyball compare './old --fast' './new --fast' --input data.txt --same-output
  flyball compare --in old-checkout,new-checkout --setup make -- make bench
  flyball compare ./old ./new --matrix governor=performance,powersave
  flyball compare --bisect v1.0..main --build 'make -j2' -- ./bench
  flyball compare --suite go --in old,new -- go test -run '^$' -bench .
  flyball compare --parameter threads=1..8 './bench --threads={threads}'
  flyball compare --arm now --arm 'perf: governor=performance' --prepare 'make clean' -- make -j8
  flyball compare --matrix governor=performance,powersave --matrix turbo=on,off --workload sched-pipe --pin 2-3
  flyball compare --arm now --arm 'epp: epp=balance_power' --until 1% -- tbench -t 20 8
  flyball compare --trace --arm 'gov: governor=schedutil' --arm 'auto: driver-mode=active' -- ./bench
  flyball compare --arm now --arm slow:max-freq=2GHz --metric 'score: ([0-9.]+)' --unit points/s -- ./bench
  flyball compare --arm 'pstate:' --arm 'acpi: driver=acpi-cpufreq' -- ./bench
  flyball compare --arm now --arm off:turbo=off --pin 0 --beside spin --beside-pin 2 -- ./bench
  flyball compare --selftest tbench -M sim:ryzen-5750g
  flyball compare --experiment turbo.toml -o results/node1
  flyball compare --resume DIR             after another boot: run the missing rounds
  flyball compare --quiet=light --pin 3 --arm now --arm 'c1: latency-limit=2us' -- ./bench

Exit codes: 0 done, 1 failed (settings are restored) or no round of an arm counts, 2 invalid arguments, 3 restoring failed too, 4 the machine lacks \
a knob, 6 another flyball command is changing the machine, 12 over a limit of --fail-if, 13 cannot tell (--fail-if, --bisect), 130 stopped by Ctrl-C or a signal (settings are restored).")]
pub(crate) struct Args {
    /// An arm: 'NAME: KNOB=VALUE ...', or 'now'. The first arm is the baseline.
    #[arg(long, value_name = "ARM")]
    pub(super) arm: Vec<String>,

    /// Arms from all combinations of values. May be repeated.
    #[arg(long, value_name = "KNOB=V1,V2")]
    pub(super) matrix: Vec<String>,

    /// Run the kernel's amd-pstate selftest: both drivers and governors, three traced rounds.
    /// report.csv has its layout. The kernel's -t is --amount here, its -p is --jobs, -l is
    /// --rounds.
    #[arg(long, value_enum, value_name = "TEST", conflicts_with_all = ["arm", "arms", "matrix", "workload", "model", "command", "observer"], hide_short_help = true)]
    pub(super) selftest: Option<Selftest>,

    /// Rounds per arm [default: 15]. A block has one round of every arm. The default is 20 with
    /// --suite and 3 with --selftest. Programs without hooks that would take less than 3 s in all
    /// run more often: as often as fits into 3 s, at most 200 times.
    #[arg(long, alias = "runs", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) rounds: Option<u32>,

    /// Continue to this precision, or to 'decided'. The precision is half the width of the
    /// confidence interval. An arm is decided when it is known to differ from the baseline or,
    /// from the 15th block on, to be within 0.5 % of it. With --fail-if, it is decided when it is
    /// known to be over or within each limit. The intervals stay valid although flyball looks after
    /// every second block.
    #[arg(long, value_name = "PERCENT|decided", value_parser = parse_until, conflicts_with = "rounds")]
    pub(super) until: Option<Until>,

    /// With --until or --bisect: maximum number of blocks [default: 200].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000), hide_short_help = true)]
    pub(super) max_rounds: Option<u32>,

    /// Begin no block that would end after this time, which includes the warm-up: 90s, 10min. Two
    /// blocks run at least, so two long ones can go beyond it. With --resume, the time begins
    /// again. The verdict is as sound as after a fixed number of rounds.
    #[arg(long, value_name = "TIME", conflicts_with = "bisect", value_parser = super::rounds::parse_timeout, hide_short_help = true)]
    pub(super) max_time: Option<f64>,

    /// With --until: minimum number of blocks [default: 6].
    #[arg(long, alias = "min-runs", value_name = "COUNT", requires = "until", conflicts_with = "rounds", value_parser = clap::value_parser!(u32).range(3..=100_000), hide_short_help = true)]
    pub(super) min_rounds: Option<u32>,

    /// Find the commit between these two that changed COMMAND's speed. Each commit that runs is
    /// checked out and built once, in a directory of its own below TMPDIR.
    #[arg(long, value_name = "GOOD..BAD", requires = "command", conflicts_with_all = ["arm", "arms", "matrix", "in", "parameter", "aa", "same_output", "fail_if", "rounds", "until", "workload", "model", "suite", "setup", "rebuild", "cleanup", "serve", "load"], hide_short_help = true)]
    pub(super) bisect: Option<String>,

    /// With --bisect: shell command that builds a commit. Commits that do not build are skipped.
    #[arg(long, value_name = "COMMAND", requires = "bisect", hide_short_help = true)]
    pub(super) build: Option<String>,

    /// Fail a round that takes longer than this. --setup, --prepare and --conclude have no limit.
    #[arg(long, value_name = "TIME", value_parser = super::rounds::parse_timeout)]
    pub(super) timeout: Option<f64>,

    /// Give programs the same environment in every round. By default its size is random, so that
    /// the result does not depend on one alignment of the stack.
    #[arg(long, hide_short_help = true)]
    pub(super) fixed_layout: bool,

    #[command(flatten)]
    pub(super) programs: ProgramArgs,

    #[command(flatten)]
    pub(super) measuring: RoundArgs,

    /// Directory for the results. The default is flyball-compare-DATE-TIME.
    #[arg(short, long, value_name = "DIR", value_parser = parse_directory, help_heading = RESULTS)]
    pub(super) output: Option<PathBuf>,

    /// Read the comparison from a file (docs/fleet.md). Each machine of a fleet gets its own random
    /// order.
    #[arg(long, value_name = "FILE", help_heading = RESULTS, conflicts_with_all = OPTIONS.into_iter().chain(OTHERS).chain(["resume"]), hide_short_help = true)]
    pub(super) experiment: Option<PathBuf>,

    /// Continue a comparison, after an interruption or another boot.
    // What describes the comparison is in the manifest: rounds of another kind could not be
    // compared with those that are there. The power command is not, because it may hold a password.
    #[arg(long, value_name = "DIR", help_heading = RESULTS, conflicts_with_all = OPTIONS.into_iter().filter(|id| *id != "power_command").chain(OTHERS).chain(["output"]))]
    pub(super) resume: Option<PathBuf>,

    /// Show writes and duration, and run nothing.
    #[arg(short = 'n', long, help_heading = RESULTS)]
    pub(super) dry_run: bool,

    /// With --resume: do not ask before running a command from another user's directory.
    #[arg(long, requires = "resume", help_heading = RESULTS, hide_short_help = true)]
    pub(super) yes: bool,

    #[command(flatten)]
    pub(super) forms: Forms,

    #[command(flatten)]
    pub(super) run_as: RunAs,

    #[command(flatten)]
    pub(super) workload: workloads::WorkloadArgs,
}

/// When a comparison without a number of blocks ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Until {
    HalfWidth(f64),
    Decided,
}

/// Parses a directory. Rejects hyperfine's values of `--output`, which say where programs print to.
fn parse_directory(text: &str) -> Result<PathBuf, String> {
    match text {
        "null" | "pipe" | "inherit" => Err(format!(
            "it names the directory for the results, and --output {text} of hyperfine is not needed here: what programs \
             print goes to a file (write ./{text} for a directory of that name)"
        )),
        _ => Ok(PathBuf::from(text)),
    }
}

fn parse_until(text: &str) -> Result<Until, &'static str> {
    match text {
        "decided" => Ok(Until::Decided),
        _ => super::rounds::parse_percent(text)
            .map(Until::HalfWidth)
            .map_err(|_| "write a percentage above 0, as 1% or 0.5%, or 'decided'"),
    }
}

/// The parts of the kernel's selftest that measure (tools/testing/selftests/amd-pstate/run.sh, -c).
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Selftest {
    Tbench,
    Gitsource,
}

/// The arguments as if they had been typed.
#[derive(clap::Parser)]
#[command(name = "flyball compare", disable_help_flag = true)]
pub(super) struct Typed {
    #[command(flatten)]
    args: Args,
}

impl Args {
    /// Parses the words as arguments of a command line.
    ///
    /// # Errors
    /// What is wrong, without the usage, which would be that of the command line.
    pub(in crate::commands) fn from_words(words: &[String]) -> Result<Args, String> {
        let typed = Typed::command()
            .try_get_matches_from(["flyball compare"].into_iter().chain(words.iter().map(String::as_str)));
        typed.and_then(|matches| Typed::from_arg_matches(&matches)).map(|typed| typed.args).map_err(|error| {
            let text = error.to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        })
    }

    /// Returns the arguments with those that --selftest stands for.
    pub(super) fn expanded(&self) -> Args {
        let mut args = self.clone();
        // In hyperfine, `none` means no shell.
        args.programs.shell = args.programs.shell.filter(|shell| shell != "none");
        let Some(test) = self.selftest else { return args };
        // all_scaling_names and tbench_governors, in the order of the script's comparisons.
        for driver in ["acpi-cpufreq", "amd-pstate"] {
            for governor in ["ondemand", "schedutil"] {
                args.arm.push(format!("{driver}-{governor}: driver={driver} governor={governor}"));
            }
        }
        args.measuring.trace = true;
        // LOOP_TIMES and TIME_LIMIT.
        args.rounds.get_or_insert(3);
        args.workload.workload = Some(match test {
            Selftest::Tbench => {
                args.workload.amount.get_or_insert(100);
                workloads::BuiltIn::Tbench
            }
            Selftest::Gitsource => workloads::BuiltIn::Gitsource,
        });
        args
    }

    /// Returns the run directory, for a caller that needs it before the comparison runs.
    pub(in crate::commands) fn directory(&self) -> PathBuf {
        let named = self.resume.as_ref().or(self.output.as_ref()).cloned();
        // Choose the name here, so that a second boot can resume it: the guest's clock would give
        // another name.
        named.unwrap_or_else(|| PathBuf::from(format!("flyball-compare-{}", crate::time::stamp())))
    }

    /// Returns whether the command line names the directory.
    pub(in crate::commands) fn names_directory(&self) -> bool {
        self.resume.is_some() || self.output.is_some()
    }

    /// Returns the maximum number of rounds for --until and --bisect. Noise may keep an interval
    /// wide however many rounds there are.
    pub(super) fn max_rounds(&self) -> usize {
        self.max_rounds.unwrap_or(200) as usize
    }

    /// Returns whether an earlier comparison is continued.
    pub(in crate::commands) fn resumes(&self) -> bool {
        self.resume.is_some()
    }

    /// Returns whether the comparison is only described.
    pub(crate) fn dry_run(&self) -> bool {
        self.dry_run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An option of `compare` either describes the comparison, which the manifest does with
    /// --resume, or can be combined with --resume.
    #[test]
    fn every_option_is_refused_or_taken_with_resume() {
        const TAKEN: [&str; 10] = [
            "resume",
            "dry_run",
            "yes",
            "power_command",
            "export_markdown",
            "export_json",
            "fail_if",
            "user",
            "as_root",
            "help",
        ];
        let mut command = Typed::command();
        command.build();
        let resume = command.get_arguments().find(|one| one.get_id() == "resume").expect("an option");
        let refused = command.get_arg_conflicts_with(resume);
        for option in command.get_arguments() {
            let is_refused = refused.iter().any(|one| one.get_id() == option.get_id())
                || command.get_arg_conflicts_with(option).iter().any(|one| one.get_id() == "resume");
            assert_ne!(is_refused, TAKEN.contains(&option.get_id().as_str()), "{}", option.get_id());
        }
        for words in [["--timeout=1s"], ["--warm-up=3"], ["--fixed-layout"], ["-N"], ["--max-time=1s"]] {
            let words = words.map(str::to_owned).into_iter().chain(["--resume=x".to_owned()]);
            let refused = Args::from_words(&words.collect::<Vec<_>>()).expect_err("it would be ignored");
            assert!(refused.contains("cannot be used with"), "{refused}");
        }
    }
}
