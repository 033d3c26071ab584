//! The trace that the user named: which file, CPUs and threads, and what raw pages need.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use flyball_files::read_bounded;
use flyball_host::CpuList;
use flyball_process::confine::Confinement;
use flyball_trace::{
    Clock, DetailSink, EventFormat, Names, PageHeader, RawDescription, Record, RecordSink, Stored, Tasks,
    TextOptions, Trace, TraceError, TraceSummary, concerns,
};

use crate::exit::{Exit, Failure};

/// Arguments of every command that reads a trace.
#[derive(Debug, clap::Args)]
pub(super) struct Input {
    /// The trace: trace.dat, text of trace or trace_pipe (also gzip or zstd), raw pages; - for a
    /// pipe.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Only these CPUs: 0-3,7.
    #[arg(short = 'c', long, value_name = "LIST")]
    pub cpus: Option<CpuList>,

    /// Threads that read text; if not given, one for each 512 MiB of the file, and at most one for
    /// each CPU.
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,

    /// For raw pages: a directory with the kernel's events/ (header_page and */*/format); tracefs
    /// itself will do.
    #[arg(long, value_name = "DIR")]
    pub events: Option<PathBuf>,

    /// For raw pages: the CPU whose pages they are; the number in the file's name if not given.
    #[arg(long, value_name = "CPU")]
    pub raw_cpu: Option<u32>,

    /// For raw pages: bytes of a sub-buffer, if not 4096.
    #[arg(long, value_name = "BYTES")]
    pub page_size: Option<u32>,
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Failure {
        // A damaged or foreign file is wrong input (2). A file that could not be read is a failure
        // (1).
        let exit = match &error {
            TraceError::Io { path, .. } if path.as_os_str() == "stdout" => Exit::Unwritten,
            TraceError::Io { error, .. } if error.kind() == std::io::ErrorKind::FileTooLarge => Exit::Usage,
            TraceError::Io { .. } => Exit::Failed,
            TraceError::Damaged { .. } | TraceError::Unsupported(_) => Exit::Usage,
        };
        Failure::new(exit, error.to_string())
    }
}

impl Input {
    pub(super) fn files(&self, files: &mut Confinement) {
        files.read(&self.file);
        if !self.file.is_file() {
            // A trace.dat from a pipe is first stored in a temporary file.
            files.write_in(&std::env::temp_dir());
        }
        if let Some(events) = &self.events {
            // Names and clock of a copy of tracefs are next to its events/.
            files.read(events.parent().unwrap_or(events));
            files.read(events);
        }
    }

    /// Opens the trace and passes all records of the chosen CPUs to `sink`, with the fields of
    /// events that pass through.
    pub(super) fn read_details(
        &self,
        names: &Arc<Names>,
        sink: &mut DetailSink<'_>,
    ) -> Result<TraceSummary, Failure> {
        let (trace, raw, options) = self.open()?;
        let chosen = self.chosen();
        let wanted = |record: &Record| {
            chosen.as_ref().is_none_or(|chosen| {
                concerns(record, |cpu| chosen.get(cpu as usize).copied().unwrap_or(false))
            })
        };
        let summary = trace.read_details(&options, raw, names, &mut |clock, record, detail| {
            if wanted(record) { sink(clock, record, detail) } else { Ok(()) }
        })?;
        self.must_be_trace(summary)
    }

    /// Like [`Input::read_details`], but without details, and in batches.
    pub(super) fn read_batches(
        &self,
        names: &Arc<Names>,
        sink: &mut RecordSink<'_>,
    ) -> Result<TraceSummary, Failure> {
        let (trace, raw, options) = self.open()?;
        let Some(chosen) = self.chosen() else {
            return self.must_be_trace(trace.read(&options, raw, names, sink)?);
        };
        let chosen = |cpu: u32| chosen.get(cpu as usize).copied().unwrap_or(false);
        let mut some = Vec::new();
        let summary = trace.read(&options, raw, names, &mut |records| {
            some.clear();
            some.extend(records.iter().filter(|record| concerns(record, chosen)));
            sink(&some)
        })?;
        self.must_be_trace(summary)
    }

    /// Rejects text that has no line of a trace.
    fn must_be_trace(&self, summary: TraceSummary) -> Result<TraceSummary, Failure> {
        match &summary.text {
            Some(text) if text.lines > 0 && text.unparsed == text.lines => Err(Failure::usage(format!(
                "{} is not a trace: none of its {} lines is one of the kernel's trace text",
                self.file.display(),
                text.lines
            ))),
            _ => Ok(summary),
        }
    }

    fn open(&self) -> Result<(Trace, Option<RawDescription>, TextOptions), Failure> {
        let trace = if self.file == Path::new("-") {
            Trace::from_reader(Box::new(std::io::stdin()), &self.file)?
        } else {
            // A missing file, or one that is not a trace, is a mistake on the command line.
            Trace::open(&self.file).map_err(Failure::usage)?
        };
        // Text and trace.dat describe themselves. Raw pages do not tell their formats, clock and
        // CPU.
        let raw = if trace.stored() == Stored::RawPages { self.raw()? } else { None };
        let threads = self.threads.unwrap_or_else(|| self.default_threads());
        Ok((trace, raw, TextOptions { threads, ..TextOptions::default() }))
    }

    /// A second thread moves records between cores, which costs a quarter more CPU time (`cargo
    /// bench -p flyball-trace -- --only command`). For smaller files it saves a tenth of a second
    /// at most. A pipe may have any length.
    fn default_threads(&self) -> NonZeroUsize {
        const FOR_ONE_THREAD: u64 = 512 << 20;
        let most = flyball_process::confine::processors();
        let size =
            std::fs::metadata(&self.file).ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
        let wanted = size
            .map_or(most.get(), |size| 1 + usize::try_from(size / FOR_ONE_THREAD).unwrap_or(usize::MAX - 1));
        NonZeroUsize::new(wanted).map_or(most, |wanted| wanted.min(most))
    }

    /// Returns the chosen CPUs as a table, because looking up a set for each record is slower.
    fn chosen(&self) -> Option<Vec<bool>> {
        let cpus = self.cpus.as_ref()?;
        let mut chosen = Vec::new();
        for cpu in cpus.iter().filter(|cpu| *cpu < flyball_trace::MAX_CPUS) {
            if chosen.len() <= cpu as usize {
                chosen.resize(cpu as usize + 1, false);
            }
            chosen[cpu as usize] = true;
        }
        Some(chosen)
    }

    fn raw(&self) -> Result<Option<RawDescription>, Failure> {
        let Some(directory) = &self.events else { return Ok(None) };
        let formats = read_formats(directory)?;
        if formats.is_empty() {
            let message = format!("{}: no format file in any GROUP/EVENT below it", directory.display());
            return Err(Failure::usage(message));
        }
        let read = |path: PathBuf| read_format(&path).ok();
        let root = directory.parent().unwrap_or(directory);
        let header = read(directory.join("header_page"))
            .or_else(|| read(directory.join("events/header_page")))
            // The default is the layout of 64-bit kernels (include/linux/ring_buffer.h), which fits
            // nearly every trace.
            .and_then(|bytes| PageHeader::parse(&bytes).ok())
            .unwrap_or_default();
        let near = |name: &str| read(directory.join(name)).or_else(|| read(root.join(name)));
        let name = self.file.file_stem().unwrap_or_default().to_string_lossy();
        // The file name usually has the CPU: `cpu3`, `cpu3.raw`.
        let digits: String =
            name.chars().rev().take_while(char::is_ascii_digit).collect::<Vec<_>>().iter().rev().collect();
        Ok(Some(RawDescription {
            cpu: self.raw_cpu.or_else(|| digits.parse().ok()).unwrap_or(0),
            formats,
            header,
            page_size: self.page_size.unwrap_or(0),
            clock: near("trace_clock")
                .map_or(Clock::Local, |bytes| Clock::chosen(&String::from_utf8_lossy(&bytes))),
            tasks: near("saved_cmdlines").map_or_else(Tasks::default, |bytes| Tasks::parse(&bytes)),
        }))
    }
}

/// Reads a file of tracefs. The longest is saved_cmdlines, with some MB if it was enlarged.
fn read_format(path: &Path) -> std::io::Result<Vec<u8>> {
    read_bounded(std::fs::File::open(path)?, 64 << 20)
}

/// Reads the format files below `directory`, which is an events directory or contains one.
fn read_formats(directory: &Path) -> Result<Vec<EventFormat>, Failure> {
    let events = directory.join("events");
    let root = if events.is_dir() { events } else { directory.to_owned() };
    let failed = |path: &Path, error: std::io::Error| {
        Failure::usage(format!("cannot read {}: {error}", path.display()))
    };
    let mut formats = Vec::new();
    for group in std::fs::read_dir(&root).map_err(|error| failed(&root, error))?.flatten() {
        // events/ and events/GROUP also have files (enable, filter, header_page).
        let Ok(events) = std::fs::read_dir(group.path()) else { continue };
        for event in events.flatten() {
            let Ok(bytes) = read_format(&event.path().join("format")) else { continue };
            let system = group.file_name().to_string_lossy().into_owned();
            let format = EventFormat::parse(&system, &bytes).map_err(|error| {
                Failure::usage(format!("{}/format is damaged {error}", event.path().display()))
            })?;
            formats.push(format);
        }
    }
    Ok(formats)
}

/// Returns the simulated machine on which a trace was recorded, if it says so: `sim:ryzen-5750g`.
pub(super) fn simulated(summary: &TraceSummary) -> Option<&str> {
    let (_, machine) = summary.writer.as_deref()?.strip_suffix(SIMULATED)?.split_once(", of ")?;
    Some(machine)
}

/// Returns the text that names a trace's writer, as stored in the file.
pub(crate) fn writer(machine: &str, simulated: bool) -> String {
    let version = env!("CARGO_PKG_VERSION");
    if simulated {
        format!("flyball {version}, of {machine}{SIMULATED}")
    } else {
        format!("flyball {version}")
    }
}

const SIMULATED: &str = " (simulated)";

/// Prints on stderr what is damaged, missing or lost. Returns whether the trace was complete.
pub(super) fn print_losses(summary: &TraceSummary) -> bool {
    // A file damaged throughout has a problem per page.
    for problem in summary.problems.iter().take(20) {
        eprintln!("flyball: {problem}");
    }
    if summary.problems.len() > 20 {
        eprintln!("flyball: and {} more places", summary.problems.len() - 20);
    }
    if !summary.problems.is_empty() {
        eprintln!("flyball: the report covers only the readable part");
    }
    if let Some(lost) = summary.lost().filter(|lost| *lost > 0) {
        let read: u64 = summary.buffers.iter().flat_map(|buffer| &buffer.cpus).map(|cpu| cpu.records).sum();
        // Print the share, too: a thousand lost records matter less out of ten million than out of
        // two thousand.
        let share = lost as f64 * 100.0 / (lost as f64 + read as f64);
        eprintln!(
            "flyball: {lost} records ({share:.1} %) were lost while recording; use a larger buffer (record -b)"
        );
    }
    summary.problems.is_empty()
}
