//! The arguments of `compare`.

use std::path::PathBuf;

use super::rounds::RoundArgs;
use crate::{commands::report::Forms, run_as::RunAs, workloads};

/// Options that the file of `--experiment` may have, by their ids; on the command line they exclude
/// `--experiment`.
pub(super) const OPTIONS: [&str; 29] = [
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
    "unit",
    "better",
    "prepare",
];

/// Arguments of `compare`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Arms run in turn: every block has one round of each arm, in random order. Only rounds of the same block are compared with \
each other, so slow drift cancels out. The first arm is the baseline. Settings are restored at the end, also after Ctrl-C \
(completed rounds are kept) or a crash.

An arm is 'NAME: KNOB=VALUE KNOB=VALUE'. KNOB@CPUS=VALUE applies to some CPUs only; 'now' is the machine as it is. \
driver=NAME, boot=WORD and boot:PARAMETER=VALUE need another boot; such arms wait for --resume.

With --quiet the machine is made quiet first, for the CPUs of --pin, and restored last; the settings of an arm are applied \
on top. Load of other tasks, stolen time, interrupts and memory pressure are monitored in every round. A round under bad \
conditions is shown but does not count, whatever its value. A condition that is bad in most rounds of an arm and may be \
caused by the arm itself (changing frequency, heat) is accepted.

Under sudo the command, --prepare and servers run as the user who called sudo, and the run directory belongs to that user; \
--as-root keeps them root, --user names another user. --resume prints the command that the directory names, and asks \
before it runs that of another user's directory.

Examples:
  flyball compare --arm now --arm 'perf: governor=performance' --prepare 'make clean' -- make -j8
  flyball compare --matrix governor=performance,powersave --matrix turbo=on,off --workload sched-pipe --pin 2-3
  flyball compare --arm now --arm 'epp: epp=balance_power' --until 1% -- tbench -t 20 8
  flyball compare --trace --arm 'gov: governor=schedutil' --arm 'auto: driver-mode=active' -- ./bench
  flyball compare --arm now --arm slow:max-freq=2GHz --metric 'score: ([0-9.]+)' --unit points/s -- ./bench
  flyball compare --arm 'pstate:' --arm 'acpi: driver=acpi-cpufreq' -- ./bench
  flyball compare --arm now --arm off:turbo=off --pin 0 --beside spin --beside-pin 2 -- ./bench
  flyball compare --selftest tbench -M sim:ryzen-5750g
  flyball compare --experiment turbo.toml -o results/node1
  flyball compare --resume DIR             after the boot that the second arm needs: run the missing rounds
  flyball compare --quiet=light --pin 3 --arm now --arm 'c1: latency-limit=2us' -- ./bench

Exit codes: 0 done, 1 failed (settings are restored), 2 cannot be used as typed, 3 restoring failed too, 4 the machine \
does not have this knob, 6 another flyball holds the machine, 130 stopped by Ctrl-C or a signal (settings are restored).")]
pub struct Args {
    /// An arm: 'NAME: KNOB=VALUE ...', or 'now'. The first arm is the baseline.
    #[arg(long, value_name = "ARM")]
    pub(super) arm: Vec<String>,

    /// A knob with several values; all combinations of several --matrix become arms.
    #[arg(long, value_name = "KNOB=V1,V2")]
    pub(super) matrix: Vec<String>,

    /// The kernel's amd-pstate selftest: arms of both drivers and both of its governors, its
    /// workload and its three rounds, traced; report.csv has its layout. Its -t is --amount here,
    /// -p --jobs, -l --rounds, -o --output.
    #[arg(long, value_enum, value_name = "TEST", conflicts_with_all = ["arm", "matrix", "workload", "model", "command", "observer"])]
    pub(super) selftest: Option<Selftest>,

    /// Number of blocks, each with one round of every arm [default: 15; with --selftest 3].
    // The exact test of 15 pairs reaches p = 2/2^15, enough for 99 % with dozens of arms.
    #[arg(long, alias = "runs", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) rounds: Option<u32>,

    /// Instead of a number of blocks: continue until half the width of every arm's confidence
    /// interval is below this, or, with 'decided', until each arm is known to differ or to be
    /// within 0.5 %. The intervals stay true however often one looks.
    #[arg(long, value_name = "PERCENT|decided", value_parser = parse_until, conflicts_with = "rounds")]
    pub(super) until: Option<Until>,

    /// Maximum number of blocks with --until.
    // A bound for --until: noise may keep an interval wide however many rounds there are.
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) max_rounds: u32,

    #[command(flatten)]
    pub(super) measuring: RoundArgs,

    /// The run directory [default: flyball-compare-DATE-TIME].
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,

    /// A file with the whole comparison, the same for every machine of a fleet; the seed is each
    /// machine's own.
    #[arg(long, value_name = "FILE", conflicts_with_all = OPTIONS.into_iter().chain(["arm", "selftest", "command", "resume"]))]
    pub(super) experiment: Option<PathBuf>,

    /// Continue a comparison that was stopped, or whose other arms needed another boot.
    // All of these are in the manifest: rounds of another kind could not be compared with those
    // that are there.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["arm", "matrix", "selftest", "output", "rounds", "until", "seed", "trace", "observer", "quiet", "knob", "command", "workload"])]
    pub(super) resume: Option<PathBuf>,

    /// Print the arms' writes, the order and the duration; run nothing.
    #[arg(short = 'n', long)]
    pub(super) dry_run: bool,

    /// With --resume: run the command of a directory that belongs to another user without asking.
    #[arg(long, requires = "resume")]
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

fn parse_until(text: &str) -> Result<Until, String> {
    match text {
        "decided" => Ok(Until::Decided),
        _ => super::rounds::parse_percent(text)
            .map(Until::HalfWidth)
            .map_err(|why| format!("{why}, or 'decided'")),
    }
}

/// The parts of the kernel's selftest that measure (tools/testing/selftests/amd-pstate/run.sh, -c).
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Selftest {
    Tbench,
    Gitsource,
}

impl Args {
    /// With what --selftest stands for.
    pub(super) fn expanded(&self) -> Args {
        let mut args = self.clone();
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
                workloads::Known::Tbench
            }
            Selftest::Gitsource => workloads::Known::Gitsource,
        });
        args
    }

    /// The run directory, for a caller that must know it before the comparison runs.
    pub(in crate::commands) fn directory(&self) -> PathBuf {
        let named = self.resume.as_ref().or(self.output.as_ref()).cloned();
        // Named here, so that a second boot can resume it; the guest's clock would name it
        // differently.
        named.unwrap_or_else(|| PathBuf::from(format!("flyball-compare-{}", crate::time::stamp())))
    }

    /// Whether the command line names it.
    pub(in crate::commands) fn names_directory(&self) -> bool {
        self.resume.is_some() || self.output.is_some()
    }

    /// Whether an earlier comparison is continued.
    pub(in crate::commands) fn resumes(&self) -> bool {
        self.resume.is_some()
    }

    /// Whether the comparison is only described.
    pub fn dry_run(&self) -> bool {
        self.dry_run
    }
}
