//! The arguments for rounds that `compare` and `tune` share, and the parsing of their numbers.

use std::path::PathBuf;

use flyball_control::quiet::Level;
use flyball_measure::Schedule;
use flyball_text::span;

use crate::quiet_machine::Observer;

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Rounds")]
pub(crate) struct RoundArgs {
    /// Warm-up rounds per arm, not counted.
    #[arg(long, alias = "warmup", value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub warm_up: u32,

    /// Pause before each round to let the processor cool down.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_seconds, hide_short_help = true)]
    pub cool_down: f64,

    /// Time between meter readings, at most a minute: later, energy counters can wrap around.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_interval, hide_short_help = true)]
    pub interval: f64,

    /// Confidence level of intervals and verdicts.
    #[arg(long, value_name = "PERCENT", default_value = "99%", value_parser = parse_confidence)]
    pub confidence: f64,

    /// Random seed of the order [default: random, and recorded].
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    pub seed: Option<u64>,

    /// When to read meters. With none, only before and after a round, because reading wakes CPUs.
    /// The energy of rounds of more than a minute can then be wrong, because counters wrap around.
    #[arg(long, value_enum, value_name = "WHICH", hide_short_help = true)]
    pub observer: Option<Observer>,

    /// Skip rounds in which the workload fails, instead of stopping. Exit codes, as in
    /// --ignore-failure=1,2, are taken as success: such rounds are measured.
    #[arg(long, value_name = "CODES", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = parse_ignored, hide_short_help = true)]
    pub ignore_failure: Option<Ignored>,

    /// Command that prints the power of the whole machine in watts. It runs in a shell every
    /// second, on CPUs that --pin leaves free, with flyball's rights (under sudo as root):
    /// ipmitool, curl for Redfish, a power strip. A round needs two readings.
    // After --resume it must be given again: it may hold a password, and directories belong to
    // other users too.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["observer", "dry_run"], hide_short_help = true)]
    pub power_command: Option<String>,

    /// Record the driver's decisions in each round. The report gets decisions per second, frequency
    /// while running and lag (time until the frequency follows a request). `flyball trace report`
    /// shows a round's trace-*.dat in full.
    #[arg(long, conflicts_with = "observer")]
    pub trace: bool,

    /// TOML file with knobs of your own: commands that read, write and restore a value. Under
    /// sudo, the file must belong to root or to you, and nobody else may be able to write to it.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub knob: Vec<PathBuf>,

    /// Make the machine quiet first. LEVEL is light, steady or fixed (see flyball quiet). Rounds
    /// under bad conditions do not count.
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "steady")]
    pub quiet: Option<Level>,
}

/// Failures of the workload that do not stop a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ignored {
    /// Rounds that fail do not count.
    All,
    /// These exit codes are not failures.
    Codes(Vec<i32>),
}

fn parse_ignored(text: &str) -> Result<Ignored, &'static str> {
    if text.is_empty() {
        return Ok(Ignored::All);
    }
    let code = |text: &str| text.trim().parse().ok().filter(|code| (1..=255).contains(code));
    let codes: Option<Vec<i32>> = text.split(',').map(code).collect();
    codes.map(Ignored::Codes).ok_or("write exit codes from 1 to 255, as in 1,2")
}

pub(crate) fn parse_timeout(text: &str) -> Result<f64, String> {
    parse_seconds(text)
        .and_then(|seconds| if seconds > 0.0 { Ok(seconds) } else { Err("give more than 0 s".to_owned()) })
}

fn parse_number(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|value| value.is_finite())
}

pub(crate) fn parse_percent(text: &str) -> Result<f64, &'static str> {
    let value = parse_number(text.trim().trim_end_matches('%')).map(|percent| percent / 100.0);
    value
        .filter(|value| *value > 0.0 && *value < 1.0)
        .ok_or("write a percentage above 0 and below 100, as 1% or 0.5%")
}

fn parse_confidence(text: &str) -> Result<f64, &'static str> {
    let value = parse_percent(text)?;
    // Above this range, hardly any number of rounds decides. Below it, chance does.
    if (0.5..=0.9999).contains(&value) { Ok(value) } else { Err("write 50% to 99.99%") }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = span::parse(text).map_err(|error| error.to_string())?.as_secs_f64();
    if seconds <= 86_400.0 { Ok(seconds) } else { Err("give at most a day".to_owned()) }
}

fn parse_interval(text: &str) -> Result<f64, String> {
    let most = Schedule::LONGEST_INTERVAL;
    let seconds = parse_seconds(text)?;
    if seconds <= most {
        Ok(seconds)
    } else {
        Err(format!("give at most {most} s: server energy counters wrap around not long after that"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_read() {
        assert_eq!(parse_ignored(""), Ok(Ignored::All));
        assert_eq!(parse_ignored("1,2"), Ok(Ignored::Codes(vec![1, 2])));
        for bad in ["0", "256", "x", "1,"] {
            assert!(parse_ignored(bad).is_err(), "{bad}");
        }
    }

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
