//! The arguments of `tune`.

use std::path::PathBuf;

use flyball_compare::workloads::{Direction, WorkloadArgs};
use flyball_measure::preset::Reader;
use flyball_tune::Preset;

use crate::{
    commands::{
        compare::rounds::{RoundArgs, parse_percent},
        report::RESULTS,
    },
    run_as::RunAs,
};

#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
A setting is one combination of values here. The search runs blocks of at most six, including the machine as it is ('now'). \
A model chooses the next block, and ends the search when it is 99 % sure of the best setting. The winner of a noisy \
search looks better than it really is, so flyball runs 'now', the winner and the runner-up again, like 'flyball compare', \
and reports only these rounds.

QUANTITY is time, energy, power, perf-per-watt, performance (the workload's own metric, also by its name), dram-energy, \
platform-energy, latency, temperature, user-time or system-time.

VALUES are separated by commas (epp=performance,power), a range (max-freq=1.2GHz..3GHz:4, four values), or 'all' if the \
machine lists the knob's values. --knob FILE adds knobs of your own programs: TOML tables such as [pool] with \
values = [4, 8, 16], read = 'myctl get pool' and write = 'myctl set pool {value}'. Combinations that the machine rejects \
are skipped and listed.

Examples:
  flyball tune --over max-freq=1.6GHz..4.6GHz:6 --over epp=all --minimize energy --subject-to 'time <= +5%' -- ./bench
  flyball tune --over governor=powersave,performance --over turbo=on,off --maximize perf-per-watt --workload sched-pipe
  flyball tune -n -M sim:gold-6138 --over uncore-max-freq=1.2GHz..2GHz:3 --minimize energy --workload gitsource
  flyball tune --over epp=all --minimize power --subject-to 'performance >= -2%' --metric 'requests: ([0-9.]+)' -- ./serve-for-10s
  flyball tune -n --over epp=all --minimize energy -- ./bench
  flyball tune --preset efficiency -- ./bench
  flyball tune --knob knobs.toml --over pool=4,8,16 --minimize p99 --metric 'p99: ([0-9.]+) us' -- ./load
  flyball tune --resume DIR   continue after Ctrl-C

Exit codes: 0 done, even if nothing is better than 'now'; 1 failed (settings are restored), 2 invalid arguments, \
3 restoring failed too, 4 no meter for the quantity, 6 another flyball command is changing the machine, 130 stopped by \
Ctrl-C or a signal (settings are restored).")]
pub(crate) struct Args {
    /// A knob and the values to try; may be repeated.
    #[arg(long, value_name = "KNOB=VALUES", required_unless_present_any = ["resume", "preset"])]
    pub(super) over: Vec<String>,

    /// Knobs and goal for a purpose. efficiency: least energy, time <= +5%; latency: least time;
    /// power-cap=WATTS: least time, power <= WATTS.
    #[arg(long, value_name = "PURPOSE", conflicts_with_all = ["over", "minimize", "maximize", "subject_to"])]
    pub(super) preset: Option<Preset>,

    /// Skip combinations with all of these settings: 'governor=performance epp=power'.
    #[arg(long, value_name = "SETTINGS")]
    pub(super) without: Vec<String>,

    /// Quantity to minimize.
    #[arg(long, value_name = "QUANTITY", conflicts_with = "maximize", required_unless_present_any = ["maximize", "resume", "preset"])]
    pub(super) minimize: Option<String>,

    /// Quantity to maximize.
    #[arg(long, value_name = "QUANTITY")]
    pub(super) maximize: Option<String>,

    /// Limit on the choice: 'time <= +5%'. Also 'performance >= -2%' (percentages are against
    /// 'now'), or 'power <= 60'.
    #[arg(long, value_name = "LIMIT")]
    pub(super) subject_to: Option<String>,

    /// Ignore differences up to this.
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_percent, hide_short_help = true)]
    pub(super) within: f64,

    /// Maximum number of rounds [default: 200]. The default is 400 for more than 100 settings. The
    /// confirmation comes on top.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(10..=10_000))]
    pub(super) max_runs: Option<u32>,

    /// Maximum time, without the confirmation.
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) max_time: Option<u32>,

    /// Stop a round that takes longer than TIMES x the baseline median [default: 3 if time is
    /// minimized or limited by a percentage]. The round's setting counts as breaking the
    /// limit, and is dropped the second time.
    #[arg(long, value_name = "TIMES", value_parser = parse_times, hide_short_help = true)]
    pub(super) cap: Option<f64>,

    /// Stop a round that takes longer than TIMES (a factor) x the baseline median. The round
    /// counts as failed. A setting that fails twice is dropped.
    #[arg(long, value_name = "TIMES", default_value = "10", value_parser = parse_times, hide_short_help = true)]
    pub(super) timeout: f64,

    /// Quantity that decides between settings that are equal within --within.
    #[arg(long, value_name = "QUANTITY", default_value = "time", hide_short_help = true)]
    pub(super) prefer: String,

    /// End the search by intervals that do not rely on a model. This takes several times as many
    /// rounds, and often reaches --max-runs.
    #[arg(long, hide_short_help = true)]
    pub(super) strict: bool,

    #[command(flatten)]
    pub(super) measuring: RoundArgs,

    /// Write the chosen settings as a profile.
    #[arg(short, long, value_name = "PROFILE", help_heading = RESULTS)]
    pub(super) output: Option<PathBuf>,

    /// Directory for the results [default: flyball-tune-DATE-TIME].
    #[arg(long, value_name = "DIR", help_heading = RESULTS, hide_short_help = true)]
    pub(super) directory: Option<PathBuf>,

    /// Continue an interrupted search.
    #[arg(long, value_name = "DIR", help_heading = RESULTS, conflicts_with_all = ["over", "without", "minimize", "maximize", "subject_to", "preset", "max_time", "strict", "cap", "timeout", "directory", "seed", "observer", "quiet", "trace", "knob", "command", "workload"])]
    pub(super) resume: Option<PathBuf>,

    /// With --resume: do not ask before running a command from another user's directory.
    #[arg(long, requires = "resume", help_heading = RESULTS, hide_short_help = true)]
    pub(super) yes: bool,

    /// Show the search space, and run nothing.
    #[arg(short = 'n', long, help_heading = RESULTS)]
    pub(super) dry_run: bool,

    #[command(flatten)]
    pub(super) run_as: RunAs,

    #[command(flatten)]
    pub(super) workload: WorkloadArgs,
}

fn parse_times(text: &str) -> Result<f64, &'static str> {
    let times = text.trim().parse().ok().filter(|times| (1.5..=1000.0).contains(times));
    times.ok_or("write a number from 1.5 to 1000, as 3")
}

impl Args {
    /// Returns the workload, with the direction of its own metric if the goal or the limit implies
    /// it.
    pub(super) fn with_direction(&self) -> WorkloadArgs {
        let mut workload = self.workload.clone();
        let name = workload.metric.as_deref().and_then(Reader::name_of);
        let is_metric = |text: &str| text.trim() == "performance" || Some(text.trim()) == name;
        let names_metric = |goal: &Option<String>| goal.as_deref().is_some_and(is_metric);
        let of_limit = |sign: &str| {
            let limit = self.subject_to.as_deref().and_then(|limit| limit.split_once(sign));
            limit.is_some_and(|(quantity, _)| is_metric(quantity))
        };
        if workload.better.is_none() && workload.metric.is_some() {
            workload.better = if names_metric(&self.minimize) || of_limit("<=") {
                Some(Direction::Lower)
            } else if names_metric(&self.maximize) || of_limit(">=") {
                Some(Direction::Higher)
            } else {
                None
            };
        }
        workload
    }
}
