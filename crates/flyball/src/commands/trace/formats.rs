//! The output files of `trace report`. Each format is a [`Format`] and a line in [`chosen`].

use std::{
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use flyball_files::Replacement;
use flyball_process::confine::Confinement;
use flyball_trace::{
    Machine, Record, TraceError, TraceSummary,
    csv::CsvFiles,
    html::{Head, write_page},
    report::Report,
    series::SeriesSet,
};

use crate::exit::Failure;

use super::{input::simulated, plots};

/// The options that ask for files.
#[derive(Debug, clap::Args)]
pub(super) struct Files {
    /// Write cpu.csv, and a cpuNNN.csv per CPU, to this directory, with the columns of the kernel's
    /// tracers.
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,

    /// With --csv: write only cpu.csv, no file per CPU.
    #[arg(long, requires = "csv")]
    no_per_cpu: bool,

    /// Write an HTML page with plots, for any number of CPUs and samples.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write a picture of each value for each CPU, and for all CPUs together, to this directory.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,

    /// File format of --plots.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t, requires = "plots")]
    plot_format: plots::Format,

    /// Write requests and samples as a Parquet file (builds with feature `parquet`).
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
}

impl Files {
    pub(super) fn files(&self, files: &mut Confinement) {
        for folder in self.csv.iter().chain(&self.plots) {
            files.write_in(folder);
        }
        for file in self.html.iter().chain(&self.parquet) {
            files.write(file);
        }
    }
}

/// Writes a file, or a directory of files, from a trace's records.
pub(super) trait Format {
    /// Adds records, in the order of time.
    fn add(&mut self, records: &[Record]) -> Result<(), TraceError>;

    /// Writes pending output, and prints notes for the user on stderr.
    fn finish(self: Box<Self>, summary: &TraceSummary, report: &Report) -> Result<(), Failure>;
}

/// Returns the requested formats. `trace` is the input file.
pub(super) fn chosen(args: &Files, trace: &Path) -> Result<Vec<Box<dyn Format + Send>>, Failure> {
    let mut formats: Vec<Box<dyn Format + Send>> = Vec::new();
    if let Some(path) = &args.parquet {
        formats.push(parquet(path)?);
    }
    if let Some(directory) = &args.plots {
        formats.push(Box::new(Plots {
            directory: directory.clone(),
            format: args.plot_format,
            over_time: SeriesSet::default(),
            // The kernel's tracers plot some pictures over the sample number instead of time.
            over_samples: SeriesSet::by_sample(),
        }));
    }
    if let Some(path) = &args.html {
        let title = format!("Trace of {}", trace.display());
        formats.push(Box::new(Page { path: path.clone(), title, series: SeriesSet::default() }));
    }
    if let Some(directory) = &args.csv {
        // Last, because it creates a directory and files at once: if another option fails, nothing
        // should be left behind.
        let files = CsvFiles::create(directory, !args.no_per_cpu)?;
        formats.push(Box::new(Csv { directory: directory.clone(), files }));
    }
    Ok(formats)
}

/// cpu.csv and cpuNNN.csv of the kernel's tracers.
struct Csv {
    directory: PathBuf,
    files: CsvFiles,
}

impl Format for Csv {
    fn add(&mut self, records: &[Record]) -> Result<(), TraceError> {
        records.iter().try_for_each(|record| self.files.add(record))
    }

    fn finish(self: Box<Self>, _: &TraceSummary, _: &Report) -> Result<(), Failure> {
        let directory = self.directory.display();
        let (rows, others) = self.files.finish()?;
        if rows == 0 {
            // The kernel's scripts fail in this case too.
            return Err(Failure::usage(format!(
                "no rows for {directory}: the tracers' files need two amd_pstate_perf or pstate_sample records of a CPU \
                 with counters"
            )));
        }
        // The driver was switched during the trace, and the columns only fit one driver.
        if others > 0 {
            eprintln!("flyball: {others} records of the other driver are not in {directory}");
        }
        Ok(())
    }
}

/// The tracers' pictures.
struct Plots {
    directory: PathBuf,
    format: plots::Format,
    over_time: SeriesSet,
    over_samples: SeriesSet,
}

impl Format for Plots {
    fn add(&mut self, records: &[Record]) -> Result<(), TraceError> {
        for record in records {
            self.over_time.add(record);
            self.over_samples.add(record);
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, summary: &TraceSummary, _: &Report) -> Result<(), Failure> {
        let seconds = summary.clock.nanoseconds();
        let (time, samples) = (&mut self.over_time, &mut self.over_samples);
        let machine = simulated(summary);
        let count = plots::write(&self.directory, self.format, time, samples, seconds, machine)?;
        eprintln!("flyball: {count} pictures in {}", self.directory.display());
        Ok(())
    }
}

/// One HTML page with the plots.
struct Page {
    path: PathBuf,
    title: String,
    series: SeriesSet,
}

impl Format for Page {
    fn add(&mut self, records: &[Record]) -> Result<(), TraceError> {
        for record in records {
            self.series.add(record);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, summary: &TraceSummary, report: &Report) -> Result<(), Failure> {
        let Page { path, mut title, series } = *self;
        let mut banner = None;
        if let Some(machine) = simulated(summary) {
            title = format!("{title}: {machine}, simulated");
            banner = Some(format!("Simulated: {machine}. A model made this trace, not hardware."));
        }
        let head = Head { title, banner, facts: facts(summary) };
        let write = || -> std::io::Result<()> {
            let (file, replacement) = Replacement::create(&path)?;
            // Buffered: the page of a long trace has some megabytes, written in small pieces.
            let mut out = BufWriter::with_capacity(1 << 20, file);
            write_page(&mut out, &head, report, series)?;
            out.flush()?;
            replacement.finish()
        };
        write().map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
    }
}

/// Returns the trace's description of its machine.
fn facts(summary: &TraceSummary) -> Vec<(&'static str, String)> {
    let machine = summary.machine.as_ref();
    let of = |get: fn(&Machine) -> &Option<String>| machine.and_then(|machine| get(machine).clone());
    let facts = [
        ("processor", of(|machine| &machine.processor)),
        ("kernel", summary.uname.clone()),
        ("driver", of(|machine| &machine.driver)),
        ("kernel command line", of(|machine| &machine.command_line)),
        ("CPUs online", of(|machine| &machine.online)),
        ("recorded by", summary.writer.clone()),
    ];
    facts.into_iter().filter_map(|(word, fact)| Some((word, fact.filter(|fact| !fact.is_empty())?))).collect()
}

#[cfg(feature = "parquet")]
fn parquet(path: &Path) -> Result<Box<dyn Format + Send>, Failure> {
    Ok(Box::new(flyball_trace::parquet::ParquetFile::create(path)?))
}

/// In builds without the feature, says how to get it.
#[cfg(not(feature = "parquet"))]
fn parquet(_: &Path) -> Result<Box<dyn Format + Send>, Failure> {
    let message = "this build cannot write Parquet files: build with `--features parquet`, or use --csv";
    Err(Failure::usage(message))
}

#[cfg(feature = "parquet")]
impl Format for flyball_trace::parquet::ParquetFile {
    fn add(&mut self, records: &[Record]) -> Result<(), TraceError> {
        records.iter().try_for_each(|record| self.add(record))
    }

    fn finish(self: Box<Self>, _: &TraceSummary, _: &Report) -> Result<(), Failure> {
        (*self).finish()?;
        Ok(())
    }
}
