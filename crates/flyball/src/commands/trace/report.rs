//! `flyball trace report`: statistics of a trace.

use std::{
    io::{BufWriter, Write as _},
    sync::Arc,
};

use flyball_process::confine::Confinement;
use flyball_trace::{
    Event, Names, Record, RecordSink, TraceError, TraceSummary,
    report::{Analyser, Report},
};

use crate::{
    context::Context,
    exit::{Exit, Failure},
    terminal,
};

use super::{
    formats,
    input::{Input, print_losses, simulated},
    tables,
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
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    files: formats::Files,

    /// Print every record as a line in the kernel's format, instead of the report.
    #[arg(long, conflicts_with = "json")]
    print: bool,

    /// Show this many tasks.
    #[arg(long, value_name = "N", default_value_t = 10)]
    tasks: usize,
}

impl Args {
    /// Adds the trace and the output files.
    pub(crate) fn files(&self, files: &mut Confinement) {
        self.input.files(files);
        self.files.files(files);
    }
}

/// The output of --json.
#[derive(schemars::JsonSchema, serde::Serialize)]
pub(crate) struct Output<'a> {
    trace: &'a TraceSummary,
    report: &'a Report,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let names = Arc::new(Names::default());
    let mut analyser = Analyser::new();
    // Before reading the trace, which takes time: an output file may not be writable.
    let mut formats = formats::chosen(&args.files, &args.input.file)?;
    let mut add = |records: &[Record]| -> Result<(), TraceError> {
        analyser.add_all(records);
        formats.iter_mut().try_for_each(|format| format.add(records))
    };
    let summary = if args.print {
        print(&args.input, &names, &mut add)?
    } else {
        args.input.read_batches(&names, &mut add)?
    };
    let report = analyser.report(summary.clock, &names);
    for format in formats {
        format.finish(&summary, &report)?;
    }
    let rendered = || {
        if args.print { String::new() } else { tables::render(&summary, &report, args.tasks) }
    };
    let output = context.output.about_simulated(simulated(&summary).is_some());
    output.object(|| Output { trace: &summary, report: &report }, rendered)?;
    // A trace with losses but no records is reported below.
    if report.records == 0 && report.losses.is_empty() {
        eprintln!("flyball: the trace contains no records");
    }
    let unread: u64 = report.unread.iter().map(|event| event.count).sum();
    if unread > 0 {
        eprintln!("flyball: {unread} records have fields that cannot be read; the report leaves them out");
    }
    let whole = print_losses(&summary) && unread == 0;
    Ok(if whole { Exit::Done } else { Exit::Failed })
}

/// Reads the trace and prints each record as a line.
fn print(input: &Input, names: &Arc<Names>, add: &mut RecordSink<'_>) -> Result<TraceSummary, Failure> {
    // Buffered, because stdout flushes at each line, and a trace has millions.
    let mut lines = BufWriter::with_capacity(1 << 16, terminal::stdout());
    let summary = input.read_details(names, &mut |clock, record, detail| {
        let line = record.line(clock);
        let written = match record.event {
            Event::Other(id) => writeln!(lines, "{}{}: {detail}", line.start(), names.name(id)),
            _ => writeln!(lines, "{line}"),
        };
        written.map_err(|error| TraceError::io("write", "stdout", error))?;
        add(std::slice::from_ref(record))
    })?;
    crate::output::checked(lines.flush())?;
    Ok(summary)
}
