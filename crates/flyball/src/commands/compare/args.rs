//! The command line of `compare`: what can be said, and how numbers in it are read.

use std::path::PathBuf;

use flyball_control::quiet::Level;
use flyball_measure::Schedule;

use crate::workloads;

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Arms run in turns: every block has a round of each, in an order drawn anew. Rounds of one block are compared with each
other, so that what drifts over the hours does not count. The first arm is what the others are compared with. Settings
are put back at the end, also after Ctrl-C (which keeps what was measured) or a crash.

  flyball compare --arm now --arm 'perf: governor=performance' -- make -j8
  flyball compare --matrix governor=performance,powersave --matrix turbo=on,off --workload sched-pipe --pin 2-3
  flyball compare --arm now --arm 'epp: epp=balance_power' --until 1% -- tbench -t 20 8
  flyball compare --trace --arm 'gov: governor=schedutil' --arm 'auto: amd-mode=active' -- ./bench
  flyball compare --arm now --arm slow:max-freq=2GHz --metric 'score: ([0-9.]+)' --unit points/s -- ./bench
  flyball compare --arm 'pstate:' --arm 'acpi: driver=acpi-cpufreq' -- ./bench    says how to boot for the arm that waits
  flyball compare --resume DIR                                                   after that boot: the rounds that are missing

With --quiet the machine is made quiet first, for the CPUs of --pin, and put back last; what an arm sets comes on top.
Others' load, stolen time, interrupts and memory pressure are watched in every round. A round whose conditions were bad
is shown and left out, whatever its value; what is bad in most rounds of an arm and can be its own doing (a frequency
that moves, heat) counts.

  flyball compare --quiet=light --pin 3 --arm now --arm 'c1: latency-limit=2us' -- ./bench

An arm is 'NAME: KNOB=VALUE KNOB=VALUE'; KNOB@CPUS=VALUE sets it on some CPUs only; 'now' is the machine as it is.
driver=NAME, boot=WORD and boot:PARAMETER=VALUE need another boot; such arms wait for --resume.

Exit: 0 done, 1 failed (settings are back), 2 cannot be used as typed, 3 putting back failed too, 4 this machine has no
such knob, 6 another flyball holds the machine, 130 stopped by Ctrl-C or a signal (settings are back).")]
pub struct Args {
    /// An arm: 'NAME: KNOB=VALUE ...', or 'now'. The first is what the others are compared with.
    #[arg(long, value_name = "ARM")]
    pub(super) arm: Vec<String>,

    /// A knob with several values; all combinations with other --matrix are arms.
    #[arg(long, value_name = "KNOB=V1,V2")]
    pub(super) matrix: Vec<String>,

    /// Blocks, each with a round of every arm.
    #[arg(long, value_name = "COUNT", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) rounds: u32,

    /// Instead of a number of blocks: go on until the difference of every arm is known this well (half the width of
    /// its confidence interval).
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, conflicts_with = "rounds")]
    pub(super) until: Option<f64>,

    /// Blocks at most, with --until.
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) max_rounds: u32,

    /// Rounds of each arm at the start that do not count.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(super) warm_up: u32,

    /// Pause before each round, for the processor to cool down.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = parse_seconds)]
    pub(super) cool_down: f64,

    /// Time between two readings of the meters in a round; a minute at most, since energy counters go round.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.25, value_parser = parse_interval)]
    pub(super) interval: f64,

    /// Confidence of intervals and verdicts, in percent.
    #[arg(long, value_name = "PERCENT", default_value = "99%", value_parser = parse_confidence)]
    pub(super) confidence: f64,

    /// Seed of the order; if not given, drawn and recorded.
    #[arg(long, value_name = "NUMBER")]
    pub(super) seed: Option<u64>,

    /// Record the driver's decisions in each round (trace-*.dat in the run directory): decisions a second, the
    /// frequency while running and the lag become columns of the report; `flyball trace report` shows a round's.
    #[arg(long)]
    pub(super) trace: bool,

    /// Keep the machine quiet around all rounds (light, steady or fixed; see flyball quiet), beneath the arms' own
    /// settings, and leave rounds out of the verdict whose conditions were bad.
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "steady")]
    pub(super) quiet: Option<Level>,

    /// Leave rounds out in which the workload fails, instead of ending.
    #[arg(long)]
    pub(super) ignore_failure: bool,

    /// The run directory; if not given, flyball-compare-DATE-TIME here.
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,

    /// Continue a comparison: one that was stopped, or one whose other arms needed this boot.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["arm", "matrix", "output", "rounds", "until", "seed", "trace", "quiet", "command", "workload"])]
    pub(super) resume: Option<PathBuf>,

    /// Print the arms' writes, the order and the time, and do nothing.
    #[arg(short = 'n', long)]
    pub(super) dry_run: bool,

    #[command(flatten)]
    pub(super) workload: workloads::WorkloadArgs,
}

impl Args {
    /// The run directory, for a caller that has to know it before the comparison runs.
    #[cfg(feature = "guest")]
    pub(in crate::commands) fn directory(&self) -> PathBuf {
        let named = self.resume.as_ref().or(self.output.as_ref()).cloned();
        named.unwrap_or_else(|| PathBuf::from(format!("flyball-compare-{}", crate::time::stamp())))
    }

    /// Whether the command line says which directory that is.
    #[cfg(feature = "guest")]
    pub(in crate::commands) fn names_directory(&self) -> bool {
        self.resume.is_some() || self.output.is_some()
    }

    /// Whether an earlier comparison goes on.
    #[cfg(feature = "guest")]
    pub(in crate::commands) fn resumes(&self) -> bool {
        self.resume.is_some()
    }

    /// Whether nothing is run.
    pub fn dry_run(&self) -> bool {
        self.dry_run
    }
}

fn parse_number(text: &str, what: &str) -> Result<f64, String> {
    text.trim().parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(|| format!("write {what}"))
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let what = "a percentage above 0, as 1% or 0.5%";
    let value = parse_number(text.trim().trim_end_matches('%'), what)? / 100.0;
    if value > 0.0 && value < 1.0 { Ok(value) } else { Err(format!("write {what}")) }
}

fn parse_confidence(text: &str) -> Result<f64, String> {
    let value = parse_percent(text)?;
    if (0.5..=0.9999).contains(&value) { Ok(value) } else { Err("write 50% to 99.99%".to_owned()) }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let what = "seconds, as 5 or 0.5";
    let value = parse_number(text.trim().trim_end_matches('s'), what)?;
    if (0.0..=86_400.0).contains(&value) { Ok(value) } else { Err(format!("write {what}, a day at most")) }
}

fn parse_interval(text: &str) -> Result<f64, String> {
    let most = Schedule::LONGEST_INTERVAL;
    parse_seconds(text).ok().filter(|seconds| *seconds <= most).ok_or_else(|| {
        format!("write seconds, as 0.5, {most} at most: a server's energy counter goes round in little more")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_and_seconds_are_read() {
        assert_eq!(parse_percent("1%"), Ok(0.01));
        assert_eq!(parse_percent("0.5"), Ok(0.005));
        for bad in ["0%", "-1%", "100%", "x", "", "nan", "inf"] {
            assert!(parse_percent(bad).is_err(), "{bad}");
        }
        assert!(parse_confidence("10%").is_err());
        assert_eq!(parse_seconds("2.5s"), Ok(2.5));
        assert!(parse_seconds("-1").is_err());
        assert_eq!(parse_interval("60"), Ok(60.0));
        assert!(parse_interval("61").is_err() && parse_interval("x").is_err());
    }
}
