//! `flyball results`: stores years of results in Parquet files, and finds shifts in them.

#[cfg(feature = "parquet")]
pub(crate) mod data;
#[cfg(feature = "parquet")]
mod print;
#[cfg(feature = "parquet")]
mod run;

use std::path::PathBuf;

use flyball_process::confine::Confinement;

use crate::{
    exit::{Exit, Failure},
    output::Reporter,
};

/// Arguments of `results`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A dataset is a directory of Parquet files that only grows: any number of processes may add to it, and DuckDB, Polars and Spark read it. \
Results that are added twice are stored once. Builds with the feature `parquet` have this command.

Examples:
  flyball results add results flyball-compare-20260131-120000    store a comparison
  flyball results add results collected/                         collected results, one folder per host
  flyball results add results --host node1 hyperfine.json        other tools' results, too
  flyball results list results
  flyball results shifts results --since 2026-01-01              what got faster or slower, where, and what changed with it
  flyball results export results rounds > rounds.csv

Exit codes: 0 done, 1 a file cannot be written, 2 usage, no dataset, or nothing of what was given can be added, 4 this build has no \
Parquet, 6 another process has the dataset locked for a minute.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Store run directories, reports and snapshots of flyball, and results of hyperfine, pyperf,
    /// Google Benchmark and fio.
    Add(Add),
    /// List what was added, a line per input.
    List(List),
    /// Print an input: its host, facts and settings, and a summary of its results.
    Show(Show),
    /// Print rows as CSV.
    Export(Export),
    /// Find shifts over months by host and benchmark, and name what changed with them.
    Shifts(Shifts),
}

#[derive(Debug, clap::Args)]
struct Add {
    /// The dataset's directory, created if missing.
    #[arg(value_name = "DATASET")]
    dataset: PathBuf,

    /// Run directories, result files, or directories that contain them (at most three levels deep).
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Host of inputs that do not name one [default: the folder that an input is found in].
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Time of inputs that have none, such as 2026-01-31T12:00:00Z [default: when
    /// the file was written].
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
}

/// Which rows.
#[derive(Debug, Clone, clap::Args)]
struct Which {
    /// Only this host.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Only what was measured from this day or time on (UTC), such as 2026-01-31.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
}

#[derive(Debug, clap::Args)]
struct List {
    /// The dataset's directory.
    #[arg(value_name = "DATASET")]
    dataset: PathBuf,

    #[command(flatten)]
    which: Which,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// The dataset's directory.
    #[arg(value_name = "DATASET")]
    dataset: PathBuf,

    /// The input, by the first characters of its id.
    #[arg(value_name = "ID")]
    id: String,
}

#[derive(Debug, clap::Args)]
struct Export {
    /// The dataset's directory.
    #[arg(value_name = "DATASET")]
    dataset: PathBuf,

    /// Rows of which kind.
    #[arg(value_name = "KIND", value_enum)]
    kind: Rows,

    #[command(flatten)]
    which: Which,
}

/// A kind of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Rows {
    Rounds,
    Findings,
    Settings,
}

#[derive(Debug, clap::Args)]
struct Shifts {
    /// The dataset's directory.
    #[arg(value_name = "DATASET")]
    dataset: PathBuf,

    /// Only this benchmark.
    #[arg(long, value_name = "NAME")]
    benchmark: Option<String>,

    #[command(flatten)]
    which: Which,

    /// Share of the reported series that really shifted, at least, on average. In 40 to 60 runs
    /// whose neighbours correlate by 0.8, it was 85 to 95 % instead of 99 %.
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0)]
    confidence: f64,
}

impl Args {
    /// Adds the files to read, and the dataset for writing if something is added to it.
    pub(crate) fn files(&self, files: &mut Confinement) {
        match &self.action {
            Action::Add(add) => {
                add.paths.iter().for_each(|path| files.read(path));
                files.read(&add.dataset);
                files.write_in(&add.dataset);
            }
            Action::List(List { dataset, .. })
            | Action::Show(Show { dataset, .. })
            | Action::Export(Export { dataset, .. })
            | Action::Shifts(Shifts { dataset, .. }) => files.read(dataset),
        }
    }
}

#[cfg(feature = "parquet")]
pub(crate) fn run(output: &Reporter, args: &Args) -> Result<Exit, Failure> {
    match &args.action {
        Action::Add(args) => run::add(output, args),
        Action::List(args) => run::list(output, args),
        Action::Show(args) => run::show(output, args),
        Action::Export(args) => run::export(output, args),
        Action::Shifts(args) => run::shifts(output, args),
    }
}

/// Reports which build has this command.
#[cfg(not(feature = "parquet"))]
pub(crate) fn run(_output: &Reporter, _args: &Args) -> Result<Exit, Failure> {
    Err(Failure::not_here("this build has no Parquet files: build with `--features parquet`"))
}
