//! `flyball top`: shows each CPU's requested and delivered speed on a screen, as text, or as data.
//! Also records and replays.

mod live;
pub(crate) mod print;
pub(super) mod replay;

use std::{path::PathBuf, sync::OnceLock, time::Duration};

use flyball_monitor::{Touch, file};
use flyball_process::confine::Confinement;
use flyball_text::span;
use flyball_top::keys;

use crate::{
    context::Context,
    exit::{Exit, Failure},
    terminal,
    time::span_within,
};

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Args {
    /// Time between samples, 50ms to 1h.
    #[arg(short, long, value_name = "TIME", default_value = "1s",
        value_parser = span_within(Duration::from_millis(50), Duration::from_secs(3600)))]
    interval: Duration,

    /// End after this many samples (-n N does the same).
    // -n is --dry-run in all other commands; here it is as in top, vmstat and iostat.
    #[arg(short_alias = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    samples: Option<u64>,

    /// Print a line per CPU and sample, as CSV.
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Print only these columns of --csv, in this order, and read only what they need.
    #[arg(long, value_name = "NAMES", requires = "csv", value_delimiter = ',', hide_possible_values = true,
        value_parser = clap::builder::PossibleValuesParser::new(print::COLUMNS.map(|column| column.0)))]
    columns: Vec<String>,

    /// Also record to this file; without a terminal, only record. Each earlier day (UTC) has a file
    /// of its own, FILE.DATE.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    record: Option<PathBuf>,

    /// Delete recordings of earlier days that are older than this: 7d, 12h.
    #[arg(long, value_name = "TIME", requires = "record", value_parser = span::parse)]
    keep: Option<Duration>,

    /// Maximum size of a recording: 500MB, 2GB. flyball deletes the oldest day first. If the
    /// current file reaches the size, the recording ends.
    #[arg(long, value_name = "SIZE", requires = "record", value_parser = size)]
    size: Option<u64>,

    /// Show a recording.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,

    /// Write the columns of --csv to this Parquet file (builds with feature `parquet`).
    #[arg(long, value_name = "FILE", requires = "replay", conflicts_with_all = ["csv", "json"])]
    parquet: Option<PathBuf>,

    /// Begin a replay at this time: 14:05, 14:05:30 (UTC), or -90s, -5m, -2h before its end.
    #[arg(long, value_name = "TIME", requires = "replay", allow_hyphen_values = true, value_parser = at)]
    at: Option<flyball_top::state::Jump>,

    /// Which CPUs may be interrupted for their counters: none, those that ran since the last
    /// sample, or all.
    #[arg(long, value_name = "WHICH", default_value = "ran")]
    touch: TouchArg,

    /// Speed up a simulated machine's time by this factor.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = factor, hide_short_help = true)]
    speed: f64,

    /// The files of the recording to replay. They are looked for before this process is confined to
    /// them.
    #[arg(skip)]
    found: OnceLock<Vec<PathBuf>>,

    /// Watch while a command runs (on a simulated machine: a workload model). Its output is hidden.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// For [`Touch`].
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TouchArg {
    None,
    Ran,
    All,
}

impl From<TouchArg> for Touch {
    fn from(arg: TouchArg) -> Touch {
        match arg {
            TouchArg::None => Touch::Nothing,
            TouchArg::Ran => Touch::Ran,
            TouchArg::All => Touch::All,
        }
    }
}

fn after_help() -> String {
    format!(
        "\
Examples:
  flyball top                                          the screen; one sample as text if stdout is a pipe
  flyball top -M sim:epyc-512 -- tbench                a simulated machine under load
  flyball top --samples 5 --csv > top.csv              a line per CPU and sample
  flyball top --samples 5 --csv --columns cpu,khz      fewer of its columns, which costs less
  flyball top --record top.fbt --keep 7d --size 2GB    record, as a service does
  flyball top --replay top.fbt --at -2h                what it was two hours before the end

Keys:
{}
By default top wakes no CPU: a sleeping CPU has no speed and is shown as asleep. A wide table also has wake-ups per second and the \
idle state that costs most. docs/top.md explains the columns and the recording.

Exit codes: 0 done, 2 a time or recording cannot be used, or a recording reached its --size, 10 stdout or the \
recording could not be written.",
        keys::help()
    )
}

pub(super) fn at(text: &str) -> Result<flyball_top::state::Jump, String> {
    flyball_top::state::time(text).ok_or_else(|| "give 14:05, 14:05:30, -90s, -5m or -2h".to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    let error = || "give bytes with their unit: 500MB, 2GB, 1GiB".to_owned();
    let split = text.find(|char: char| char.is_ascii_alphabetic()).ok_or_else(error)?;
    let number: f64 = text[..split].trim().parse().map_err(|_| error())?;
    let unit: f64 = match &text[split..] {
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        _ => return Err(error()),
    };
    Ok((number * unit) as u64)
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (0.01..=1e6).contains(factor));
    factor.ok_or_else(|| "give a factor from 0.01 to 1000000".to_owned())
}

impl Args {
    /// Adds the files of a recording. Returns `false` for the live machine, whose files cannot be
    /// listed in advance.
    pub(crate) fn files(&self, files: &mut Confinement) -> bool {
        let Some(replay) = &self.replay else { return false };
        for file in self.found.get_or_init(|| file::shards(replay).unwrap_or_default()) {
            files.read(file);
        }
        if let Some(file) = &self.parquet {
            files.write(file);
        }
        // For the screen's size, and for its keys if stdin is not a terminal.
        files.terminal();
        true
    }

    /// Adds the files that it writes while watching a machine. Returns `false` if it also runs
    /// programs.
    pub(crate) fn only_watches(&self, files: &mut Confinement) -> bool {
        if let Some(file) = &self.record {
            files.write(file);
        }
        files.terminal();
        self.command.is_empty()
    }

    /// Returns whether one of the columns in `names` is requested, or all are.
    fn shows(&self, names: &[&str]) -> bool {
        self.columns.is_empty() || self.columns.iter().any(|column| names.contains(&column.as_str()))
    }

    fn form(&self, context: &Context) -> Form {
        if self.csv {
            Form::Csv
        } else if context.output.is_json() {
            Form::Json
        } else if cfg!(feature = "tui") && terminal::is_screen() {
            Form::Screen
        } else {
            Form::Text
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Screen,
    Text,
    Csv,
    Json,
}

/// Shows the machine or the recording.
pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let form = args.form(context);
    if let Some(path) = &args.replay {
        return replay::run(context, args, path, form);
    }
    live::run(context, args, form)
}
