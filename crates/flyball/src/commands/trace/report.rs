//! `flyball trace report`: statistics of a trace.

use std::{
    fmt::Write as _,
    fs::File,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use comfy_table::{CellAlignment, Table, presets};
use flyball_trace::{
    Names, Record, TraceError, TraceSummary,
    csv::CsvFiles,
    html::write_page,
    report::{Analyser, CpuReport, Range, Report},
    series::SeriesSet,
};

use crate::{
    context::Context,
    exit::{Exit, Failure},
};

use super::{
    input::{Input, say_what_is_missing},
    plots,
};

/// Arguments of `trace report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flyball trace report trace.dat                    per CPU, per task
  flyball trace report --csv out trace.txt          cpu.csv and cpuNNN.csv as the kernel's tracers write them
  cat /sys/kernel/tracing/trace | flyball trace report -
  flyball trace report --json trace.dat | jq '.report.cpus[] | {cpu, load}'

Load is MPERF/TSC of each sample, averaged over samples, as in the kernel's scripts; C0 is the sum of all MPERF divided by \
the sum of all TSC. A CPU's first record describes the time before the trace and is left out of both. Lag is the time from \
a changed request until the measured frequency has covered half the difference.")]
pub struct Args {
    #[command(flatten)]
    input: Input,

    /// Write cpu.csv, and a cpuNNN.csv per CPU, to this directory, with the columns of the kernel's tracers.
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
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "png", requires = "plots")]
    plot_format: plots::Format,

    /// Write requests and samples as a Parquet file (builds with feature `parquet`).
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,

    /// Print every record as a line in the kernel's format, instead of the report.
    #[arg(long, conflicts_with = "json")]
    print: bool,

    /// Show this many tasks.
    #[arg(long, value_name = "N", default_value_t = 10)]
    tasks: usize,

    /// Show the time at each performance level of each CPU.
    #[arg(long)]
    levels: bool,
}

/// What --json prints.
#[derive(serde::Serialize)]
struct Output<'a> {
    trace: &'a TraceSummary,
    report: &'a Report,
}

/// Reads the trace and prints the report.
pub fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let names = Arc::new(Names::default());
    let mut analyser = Analyser::new();
    let mut csv = args.csv.as_ref().map(|path| CsvFiles::create(path, !args.no_per_cpu)).transpose()?;
    let mut series = (args.html.is_some() || args.plots.is_some()).then(SeriesSet::default);
    let mut samples = args.plots.is_some().then(SeriesSet::by_sample);
    let mut columns = args.parquet.as_deref().map(columns::create).transpose()?;
    let mut lines = args.print.then(|| BufWriter::with_capacity(1 << 16, std::io::stdout()));
    let all_names = names.clone();
    let mut add = |records: &[Record]| -> Result<(), TraceError> {
        analyser.add_all(records);
        for record in records {
            if let Some(series) = &mut series {
                series.add(record);
            }
            if let Some(samples) = &mut samples {
                samples.add(record);
            }
            if let Some(columns) = &mut columns {
                columns.add(record)?;
            }
            if let Some(csv) = &mut csv {
                csv.add(record)?;
            }
        }
        Ok(())
    };
    let summary = match &mut lines {
        None => args.input.read_batches(&names, &mut add)?,
        Some(lines) => args.input.read(&names, true, &mut |record, detail| {
            let line = record.line(flyball_trace::Clock::Local);
            let written = match record.event {
                flyball_trace::Event::Other(id) => {
                    writeln!(lines, "{}{}: {detail}", line.start(), all_names.name(id))
                }
                _ => writeln!(lines, "{line}"),
            };
            written.map_err(|error| TraceError::io("write", "stdout", error))?;
            add(std::slice::from_ref(record))
        })?,
    };
    let report = analyser.report(summary.clock, &names);
    if let Some(mut lines) = lines {
        lines.flush().map_err(|error| Failure::failed(format!("cannot write: {error}")))?;
    }
    if let Some(columns) = columns {
        columns.finish()?;
    }
    if let Some(mut series) = series {
        if let (Some(directory), Some(samples)) = (&args.plots, &mut samples) {
            let seconds = summary.clock.nanoseconds();
            let count = plots::write(directory, args.plot_format, &mut series, samples, seconds)?;
            eprintln!("flyball: {count} pictures in {}", directory.display());
        }
        if let Some(path) = &args.html {
            page(path, &args.input.file, &report, series)?;
        }
    }
    if let (Some(csv), Some(path)) = (csv, &args.csv) {
        let (rows, others) = csv.finish()?;
        if rows == 0 {
            eprintln!(
                "flyball: no rows for {}: the tracers' files need two amd_pstate_perf or pstate_sample records of a CPU",
                path.display()
            );
        }
        if others > 0 {
            eprintln!("flyball: {others} records of the other driver are not in {}", path.display());
        }
    }
    let rendered = || if args.print { String::new() } else { render(&summary, &report, args) };
    context.output.object(|| Output { trace: &summary, report: &report }, rendered)?;
    if report.records == 0 && report.losses.is_empty() {
        eprintln!("flyball: the trace contains no records");
    }
    let whole = say_what_is_missing(&summary);
    Ok(if whole { Exit::Done } else { Exit::Failed })
}

/// Parquet where it is built in; elsewhere the option says how to get it.
mod columns {
    use std::path::Path;

    #[cfg(feature = "parquet")]
    pub type Columns = flyball_trace::parquet::ParquetFile;

    #[cfg(feature = "parquet")]
    pub fn create(path: &Path) -> Result<Columns, crate::exit::Failure> {
        Ok(Columns::create(path)?)
    }

    /// Cannot be made.
    #[cfg(not(feature = "parquet"))]
    pub enum Columns {}

    #[cfg(not(feature = "parquet"))]
    impl Columns {
        pub fn add(&mut self, _record: &flyball_trace::Record) -> Result<(), flyball_trace::TraceError> {
            match *self {}
        }

        pub fn finish(self) -> Result<u64, flyball_trace::TraceError> {
            match self {}
        }
    }

    #[cfg(not(feature = "parquet"))]
    pub fn create(_path: &Path) -> Result<Columns, crate::exit::Failure> {
        let message = "this build cannot write Parquet files: build with `--features parquet`, or use --csv";
        Err(crate::exit::Failure::usage(message))
    }
}

fn page(path: &Path, trace: &Path, report: &Report, series: SeriesSet) -> Result<(), Failure> {
    let write = || -> std::io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        write_page(&mut out, &format!("Trace of {}", trace.display()), report, series)?;
        out.flush()
    };
    write().map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}

fn render(summary: &TraceSummary, report: &Report, args: &Args) -> String {
    let mut out = String::new();
    let unit = if report.clock.nanoseconds() { "s" } else { " ticks" };
    let driver = report.driver.unwrap_or("no P-state driver's");
    let _ = writeln!(
        out,
        "{driver} events: {} records in {:.3}{unit}, from {:.6}{unit}",
        report.records, report.duration, report.start
    );
    if let Some(uname) = &summary.uname {
        let _ = writeln!(out, "kernel: {uname}");
    }
    let events: Vec<String> =
        report.events.iter().map(|event| format!("{} {}", event.name, event.count)).collect();
    let _ =
        writeln!(out, "events: {}", if events.is_empty() { "none".to_owned() } else { events.join(", ") });
    let lost = report.losses.iter().fold(0u64, |sum, loss| sum.saturating_add(loss.records));
    if !report.losses.is_empty() {
        let places: u64 = report.losses.iter().map(|loss| loss.places).sum();
        let _ = writeln!(
            out,
            "lost inside the trace: {lost} records at {places} places on {} CPUs",
            report.losses.len()
        );
    }
    for event in &report.unread {
        let _ = writeln!(
            out,
            "left out: {} records of {} with fields that cannot be read",
            event.count, event.name
        );
    }
    if report.impossible_cpus > 0 {
        let _ = writeln!(out, "left out: {} records of CPU numbers that cannot be", report.impossible_cpus);
    }
    if report.cpus.iter().any(|cpu| cpu.samples > 0) {
        let _ = writeln!(out, "\n{}", cpu_table(report));
    }
    if report.cpus.iter().any(|cpu| !cpu.idle.is_empty()) {
        let _ = writeln!(out, "\n{}", idle_table(report));
    }
    if args.levels {
        let _ = writeln!(out, "\n{}", level_table(report));
    }
    if !report.tasks.is_empty() && args.tasks > 0 {
        let _ = writeln!(out, "\n{}", task_table(report, args.tasks));
    }
    out
}

fn table(heads: &[&str], left: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(heads.iter().copied());
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if at >= left {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn range(range: Option<Range>, digits: usize) -> String {
    range.map_or_else(String::new, |range| {
        format!("{:.*} {:.*} {:.*}", digits.min(2), range.min, digits, range.mean, digits.min(2), range.max)
    })
}

fn optional(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.digits$}"))
}

fn cpu_table(report: &Report) -> Table {
    let level = if report.driver == Some("intel_pstate") { "P-state" } else { "desired" };
    let mut table = table(
        &[
            "CPU",
            "samples",
            "min",
            level,
            "max",
            "GHz",
            "load %",
            "C0 %",
            "decisions",
            "/s",
            "fast %",
            "lag ms",
            "gap s",
        ],
        1,
    );
    let levels = |range: Option<Range>| {
        range.map_or_else(String::new, |range| {
            if range.min == range.max {
                format!("{:.0}", range.min)
            } else {
                format!("{:.0}-{:.0}", range.min, range.max)
            }
        })
    };
    for cpu in report.cpus.iter().filter(|cpu| cpu.samples > 0) {
        let CpuReport { lag, .. } = cpu;
        table.add_row([
            cpu.cpu.to_string(),
            cpu.samples.to_string(),
            levels(cpu.min_perf),
            range(cpu.des_perf, 0),
            levels(cpu.max_perf),
            range(cpu.ghz, 3),
            range(cpu.load, 1),
            optional(cpu.c0, 1),
            cpu.decisions.to_string(),
            optional(cpu.decisions_per_second, 1),
            optional(cpu.fast_switch, 0),
            lag.map_or_else(String::new, |lag| format!("{:.1} ({:.1})", lag.median_ms, lag.p95_ms)),
            optional(cpu.longest_gap_seconds, 3),
        ]);
    }
    table
}

fn idle_table(report: &Report) -> Table {
    let mut table = table(&["CPU", "idle state", "entries", "seconds", "share %"], 1);
    for cpu in &report.cpus {
        for idle in &cpu.idle {
            table.add_row([
                cpu.cpu.to_string(),
                idle.state.to_string(),
                idle.entries.to_string(),
                format!("{:.3}", idle.seconds),
                optional(idle.share, 1),
            ]);
        }
    }
    table
}

fn level_table(report: &Report) -> Table {
    let mut table = table(&["CPU", "level", "samples", "seconds"], 1);
    for cpu in &report.cpus {
        for level in &cpu.levels {
            table.add_row([
                cpu.cpu.to_string(),
                level.level.to_string(),
                level.samples.to_string(),
                format!("{:.3}", level.seconds),
            ]);
        }
    }
    table
}

fn task_table(report: &Report, count: usize) -> Table {
    let mut table = table(&["task", "PID", "samples", "desired", "GHz", "load %"], 1);
    for task in report.tasks.iter().take(count) {
        table.add_row([
            task.name.to_string(),
            task.pid.to_string(),
            task.samples.to_string(),
            range(task.des_perf, 0),
            range(task.ghz, 3),
            range(task.load, 1),
        ]);
    }
    table
}
