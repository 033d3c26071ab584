//! The driver's decisions in each round of a comparison: recorded while it runs, summarized for the
//! report.

use std::path::{Path, PathBuf};

use flyball_host::{
    Errno, Host, HostError,
    tracefs::{LOCKED_DOWN, is_locked_down},
};
use flyball_measure::{RoundTracer, Sampled, TraceNote, TracerError};
use flyball_process::User;
use flyball_trace::{
    Names, Record, TextOptions, Trace,
    live::{Capture, CaptureError, CaptureOptions},
    report::{Analyser, CpuReport, Range, Report},
};

/// Why a round could not be traced.
#[derive(Debug, thiserror::Error)]
enum RoundTraceError {
    #[error("cannot trace: {0}")]
    Host(#[from] HostError),
    #[error("cannot trace: {0}")]
    Capture(#[from] CaptureError),
    #[error("cannot trace: {0}")]
    Read(#[from] flyball_trace::TraceError),
    #[error("cannot trace: {}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("cannot trace: it was not begun")]
    NotBegun,
}

/// Why the rounds of a comparison cannot be traced on a machine.
#[derive(Debug, thiserror::Error)]
pub enum NotTraceable {
    /// A recording or a directory of files has no tracefs.
    #[error("--trace: only this machine and simulated ones can be traced, not files")]
    Files,
    #[error(
        "--trace: {error}; {}",
        if *locked_down { LOCKED_DOWN } else { "tracing needs root, and a kernel with tracefs" }
    )]
    Tracefs { error: HostError, locked_down: bool },
    #[error("--trace: this kernel has none of the events that report performance requests")]
    NoEvents,
}

/// Records each round in its own trace instance.
pub struct RoundTraces {
    directory: PathBuf,
    /// The owner of the traces, if not the user of this process.
    owner: Option<User>,
    /// The writer that the files name.
    writer: String,
    /// Distinguishes recordings of a machine.
    trace_id: fn(&dyn Host) -> u64,
    capture: Option<Capture>,
}

impl RoundTraces {
    /// Fails if the machine cannot be traced, before anything is written.
    pub fn check(host: &dyn Host) -> Result<(), NotTraceable> {
        let tracefs = host.tracefs().map_err(|error| match error.errno {
            Errno::NOSYS => NotTraceable::Files,
            _ => NotTraceable::Tracefs { error, locked_down: is_locked_down(host) },
        })?;
        if CaptureOptions::default_events(&tracefs).is_empty() {
            return Err(NotTraceable::NoEvents);
        }
        Ok(())
    }

    /// Prepares to record. Pages are kept in `directory` until a round ends.
    pub fn new(
        directory: &Path,
        owner: Option<&User>,
        writer: String,
        trace_id: fn(&dyn Host) -> u64,
    ) -> RoundTraces {
        RoundTraces {
            directory: directory.to_owned(),
            owner: owner.cloned(),
            writer,
            trace_id,
            capture: None,
        }
    }
}

impl RoundTracer for RoundTraces {
    fn begin(&mut self, host: &dyn Host) -> Result<(), TracerError> {
        // Opened again for each round: drivers, and with them their events, can change between
        // arms.
        let tracefs = host.tracefs().map_err(RoundTraceError::from)?;
        let options = CaptureOptions {
            events: CaptureOptions::default_events(&tracefs),
            // All CPUs: the driver may decide for the workload's CPU on another one.
            cpus: None,
            buffer_kib: None,
            clock: None,
            directory: self.directory.clone(),
            writer: self.writer.clone(),
            machine: None,
            trace_id: (self.trace_id)(host),
        };
        self.capture = Some(Capture::start(host, &options, None).map_err(RoundTraceError::from)?);
        Ok(())
    }

    fn attend(&mut self) -> Result<(), TracerError> {
        match &mut self.capture {
            Some(capture) => capture.poll().map_err(|error| RoundTraceError::from(error).into()),
            None => Ok(()),
        }
    }

    fn end(&mut self, directory: &Path, name: &str) -> Result<TraceNote, TracerError> {
        let Some(capture) = self.capture.take() else { return Err(RoundTraceError::NotBegun.into()) };
        let file = format!("{name}.dat");
        let path = directory.join(&file);
        // Version 6: kernelshark and older trace-cmd read it.
        let summary = capture.stop(&path).map_err(RoundTraceError::from)?;
        if let Some(owner) = &self.owner {
            // The file is made as root, which tracefs requires.
            owner.give(&path).map_err(|error| RoundTraceError::File { path: path.clone(), error })?;
        }
        // Read back from the file, not summarized meanwhile: decoding would take CPU time from the
        // round.
        let report = report(&path)?;
        Ok(note(file, summary.received, summary.lost, &report))
    }

    fn abandon(&mut self) {
        self.capture = None;
    }
}

fn report(path: &Path) -> Result<Report, RoundTraceError> {
    let names = std::sync::Arc::new(Names::default());
    let mut analyser = Analyser::new();
    let mut sink = |records: &[Record]| {
        for record in records {
            analyser.add(record);
        }
        Ok(())
    };
    let summary = Trace::open(path)?.read(&TextOptions::default(), None, &names, &mut sink)?;
    Ok(analyser.report(summary.clock, &names))
}

/// Summarizes all CPUs of a report.
fn note(file: String, records: u64, lost: u64, report: &Report) -> TraceNote {
    let cpus = &report.cpus;
    // Without a P-state driver's events, a change of frequency counts as a decision.
    let decisions = match report.driver {
        Some(_) => cpus.iter().map(|cpu| cpu.decisions).sum(),
        None => cpus.iter().map(|cpu| cpu.frequency_events).sum(),
    };
    let mut lags: Vec<(f64, u64)> =
        cpus.iter().filter_map(|cpu| cpu.lag).map(|lag| (lag.median_ms, lag.count)).collect();
    // The weighted median of the CPUs' medians: the report does not keep single lags.
    lags.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: u64 = lags.iter().map(|(_, count)| count).sum();
    let mut below = 0;
    let lag_ms = lags.iter().find_map(|(lag, count)| {
        below += count;
        // The first lag that half of all changes do not exceed.
        (below * 2 >= all).then_some(*lag)
    });
    // Weighted by MPERF, the time that a CPU was not idle: an idle CPU's frequency says nothing
    // about the work.
    let running: f64 = cpus.iter().map(|cpu| cpu.running_mperf).sum();
    let ghz = (running > 0.0).then(|| {
        cpus.iter().filter_map(|cpu| Some(cpu.running_ghz? * cpu.running_mperf)).sum::<f64>() / running
    });
    TraceNote { file, records, lost, decisions, ghz, sampled: sampled(cpus), lag_ms }
}

/// Returns the means that the kernel's selftest computes over all rows of cpu.csv
/// (tools/testing/selftests/amd-pstate/tbench.sh, parse_tbench).
fn sampled(cpus: &[CpuReport]) -> Option<Sampled> {
    let mean = |of: fn(&CpuReport) -> Option<Range>| {
        let (sum, count) = cpus
            .iter()
            .filter_map(|cpu| Some((of(cpu)?.mean, cpu.samples as f64)))
            .fold((0.0, 0.0), |sums, (mean, count)| (sums.0 + mean * count, sums.1 + count));
        (count > 0.0).then(|| sum / count)
    };
    let des_perf = mean(|cpu| cpu.des_perf)?;
    Some(Sampled { des_perf, ghz: mean(|cpu| cpu.ghz), load: mean(|cpu| cpu.load) })
}

#[cfg(test)]
mod tests {
    use flyball_trace::report::Lag;

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
}
