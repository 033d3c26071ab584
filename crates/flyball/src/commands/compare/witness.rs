//! The driver's decisions in each round of a comparison: recorded beside it, summed up for the report.
//!
//! On this machine a trace instance of the round's own is recorded ([`Live`]). A simulated machine is asked through its
//! tracefs, as any program would ask it ([`OnHost`]).

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use flyball_host::{Host, Kind, tracefs::is_locked_down};
use flyball_measure::{RoundTracer, SettingsError, TraceNote};
use flyball_trace::{
    Names, Record, TextOptions, Trace,
    dat::DatVersion,
    live::{Capture, CaptureOptions},
    report::{Analyser, Report},
};

use crate::exit::Failure;

fn words(error: impl std::fmt::Display) -> SettingsError {
    SettingsError(format!("cannot trace: {error}"))
}

/// Whether this machine can be traced: said before anything is written.
pub(super) fn check(host: &dyn Host) -> Result<(), Failure> {
    if host.kind() != Kind::Live {
        return Err(Failure::not_here(
            "--trace: only this machine and simulated ones can be traced, not files",
        ));
    }
    let tracefs = host.tracefs().map_err(|error| {
        let why = if is_locked_down(host) {
            "the kernel is locked down (confidentiality): nobody can trace"
        } else {
            "tracing needs root, and a kernel with tracefs"
        };
        Failure::not_here(format!("--trace: {error}; {why}"))
    })?;
    if CaptureOptions::default_events(&tracefs).is_empty() {
        return Err(Failure::not_here(
            "--trace: this kernel has none of the events that tell performance requests",
        ));
    }
    Ok(())
}

/// Records this machine.
pub(super) struct Live {
    directory: PathBuf,
    capture: Option<Capture>,
}

impl Live {
    /// Ready to record; pages are kept in `directory` until a round ends.
    pub(super) fn new(host: &dyn Host, directory: &Path) -> Result<Live, Failure> {
        check(host)?;
        Ok(Live { directory: directory.to_owned(), capture: None })
    }
}

impl RoundTracer for Live {
    fn begin(&mut self, host: &dyn Host) -> Result<(), SettingsError> {
        // Opened anew for each round: drivers come and go between arms, and their events with them.
        let tracefs = host.tracefs().map_err(words)?;
        let options = CaptureOptions {
            events: CaptureOptions::default_events(&tracefs),
            cpus: None,
            buffer_kib: None,
            page_kib: None,
            clock: None,
            directory: self.directory.clone(),
            writer: concat!("flyball ", env!("CARGO_PKG_VERSION")).to_owned(),
            machine: None,
            trace_id: 0,
        };
        self.capture = Some(Capture::start(host, &options, None).map_err(words)?);
        Ok(())
    }

    fn end(&mut self, directory: &Path, name: &str) -> Result<TraceNote, SettingsError> {
        let Some(capture) = self.capture.take() else { return Err(words("it was not begun")) };
        let file = format!("{name}.dat");
        let path = directory.join(&file);
        let summary = capture.stop(&path, DatVersion::Six).map_err(words)?;
        let report = report(&path)?;
        Ok(note(file, summary.received, summary.lost, &report))
    }

    fn abandon(&mut self) {
        self.capture = None;
    }
}

/// Where tracefs is on a machine in software.
const TRACING: &str = "/sys/kernel/tracing";
/// KiB of each CPU: a round of a simulated machine is not read while it runs.
const BUFFER_KIB: &str = "16384";

/// Asks a machine's own tracefs, in its global buffer: nobody else uses that of a machine in software.
pub(super) struct OnHost {
    pub(super) machine: flyball_simhost::SimHost,
}

impl OnHost {
    fn write(host: &dyn Host, name: &str, value: &str) -> Result<(), SettingsError> {
        host.write(&format!("{TRACING}/{name}"), value.as_bytes()).map_err(words)
    }
}

impl RoundTracer for OnHost {
    fn begin(&mut self, host: &dyn Host) -> Result<(), SettingsError> {
        let here: Vec<String> = flyball_trace::events::decisions()
            .filter(|event| host.read(&format!("{TRACING}/events/{event}/format")).is_ok())
            .collect();
        if here.is_empty() {
            return Err(words(format!("{} has no trace events", host.name())));
        }
        Self::write(host, "tracing_on", "0")?;
        Self::write(host, "buffer_size_kb", BUFFER_KIB)?;
        for event in here {
            Self::write(host, &format!("events/{event}/enable"), "1")?;
        }
        // Any write to it empties it.
        Self::write(host, "trace", "0")?;
        Self::write(host, "tracing_on", "1")
    }

    fn end(&mut self, directory: &Path, name: &str) -> Result<TraceNote, SettingsError> {
        let host = &self.machine;
        Self::write(host, "tracing_on", "0")?;
        let text = host.read(&format!("{TRACING}/trace")).map_err(words)?;
        let file = format!("{name}.txt.gz");
        let path = directory.join(&file);
        pack(&path, &text).map_err(|error| words(format!("{}: {error}", path.display())))?;
        let (records, lost) = counts(&text);
        let report = report(&path)?;
        Ok(note(file, records.unwrap_or(report.records), lost, &report))
    }

    fn abandon(&mut self) {}
}

/// A round of a large machine is tens of megabytes of text.
fn pack(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = flate2::write::GzEncoder::new(std::fs::File::create(path)?, flate2::Compression::fast());
    file.write_all(text.as_bytes())?;
    // Reading a file of a machine leaves its last newline out.
    file.write_all(b"\n")?;
    file.finish().map(|_| ())
}

/// Records in the text and lost ones, by its header: `entries-in-buffer/entries-written: 5/7`.
fn counts(text: &str) -> (Option<u64>, u64) {
    let found = text.lines().take_while(|line| line.starts_with('#')).find_map(|line| {
        let (_, rest) = line.split_once("entries-in-buffer/entries-written: ")?;
        let (kept, written) = rest.split_whitespace().next()?.split_once('/')?;
        Some((kept.parse::<u64>().ok()?, written.parse::<u64>().ok()?))
    });
    found.map_or((None, 0), |(kept, written)| (Some(kept), written.saturating_sub(kept)))
}

fn report(path: &Path) -> Result<Report, SettingsError> {
    let names = std::sync::Arc::new(Names::default());
    let mut analyser = Analyser::new();
    let mut sink = |records: &[Record]| {
        for record in records {
            analyser.add(record);
        }
        Ok(())
    };
    let summary = Trace::open(path)
        .and_then(|trace| trace.read(&TextOptions::default(), None, &names, &mut sink))
        .map_err(words)?;
    Ok(analyser.report(summary.clock, &names))
}

/// All CPUs of a report together.
fn note(file: String, records: u64, lost: u64, report: &Report) -> TraceNote {
    let cpus = &report.cpus;
    // Without a P-state driver's events, a change of frequency is what a decision is.
    let decisions = match report.driver {
        Some(_) => cpus.iter().map(|cpu| cpu.decisions).sum(),
        None => cpus.iter().map(|cpu| cpu.frequency_events).sum(),
    };
    let mut lags: Vec<(f64, u64)> =
        cpus.iter().filter_map(|cpu| cpu.lag).map(|lag| (lag.median_ms, lag.count)).collect();
    lags.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: u64 = lags.iter().map(|(_, count)| count).sum();
    let mut below = 0;
    let lag_ms = lags.iter().find_map(|(lag, count)| {
        below += count;
        (below * 2 >= all).then_some(*lag)
    });
    let running: f64 = cpus.iter().map(|cpu| cpu.running_mperf).sum();
    let ghz = (running > 0.0).then(|| {
        cpus.iter().filter_map(|cpu| Some(cpu.running_ghz? * cpu.running_mperf)).sum::<f64>() / running
    });
    TraceNote { file, records, lost, decisions, ghz, lag_ms }
}

#[cfg(test)]
mod tests {
    use flyball_trace::report::{CpuReport, Lag};

    use super::*;

    #[test]
    fn cpus_count_by_what_they_did() {
        let names = Names::default();
        let mut report = Analyser::new().report(flyball_trace::Clock::Mono, &names);
        report.driver = Some("amd-pstate");
        let cpu = |mperf: f64, ghz: f64, lag: f64, count: u64| CpuReport {
            decisions: 10,
            running_mperf: mperf,
            running_ghz: Some(ghz),
            lag: Some(Lag { count, median_ms: lag, p95_ms: lag, max_ms: lag }),
            ..CpuReport::default()
        };
        report.cpus = vec![cpu(300.0, 4.0, 9.0, 1), cpu(100.0, 2.0, 2.0, 5)];
        let found = note("x".into(), 5, 1, &report);
        assert_eq!((found.decisions, found.ghz, found.lag_ms), (20, Some(3.5), Some(2.0)));
        assert_eq!((found.records, found.lost), (5, 1));
        report.driver = None;
        report.cpus[0].frequency_events = 3;
        report.cpus[0].lag = None;
        report.cpus.truncate(1);
        let found = note("x".into(), 5, 1, &report);
        assert_eq!((found.decisions, found.lag_ms), (3, None));
    }

    #[test]
    fn headers_tell_what_was_lost() {
        assert_eq!(
            counts("# tracer: nop\n# entries-in-buffer/entries-written: 5/7   #P:2\n x\n"),
            (Some(5), 2)
        );
        assert_eq!(counts("x\n"), (None, 0));
    }
}
