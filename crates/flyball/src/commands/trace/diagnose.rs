//! `flyball trace diagnose`: what is wrong, in words.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use flyball_trace::{
    Event, Names,
    diagnose::{Diagnoser, Finding, Limits, Severity},
};

use crate::{
    context::Context,
    exit::{Exit, Failure},
};

use super::{
    input::{Input, say_what_is_missing},
    known,
};

/// Arguments of `trace diagnose`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0 if there is nothing worse than a note, 8 for warnings, 9 for faults.
Examples:
  flyball trace diagnose trace.dat                         a trace of flyball knows its machine
  flyball trace diagnose --topology trace.txt              any trace of this machine
  flyball trace diagnose --topology=server.tar.zst trace.txt    of a machine that `flyball record` recorded
  flyball trace diagnose --topology=lscpu.txt trace.dat    of one whose `lscpu -p=CPU,CORE,SOCKET` is known

What is known of the machine: which CPUs share a core, so that two that disagree are found; and the kernel's command
line (nohz_full, isolcpus), which explains a driver that was not called.")]
pub struct Args {
    #[command(flatten)]
    input: Input,

    /// The trace's machine: this one (or -M) if nothing is named, or a recording, or a file of `lscpu -p`.
    #[arg(long, value_name = "MACHINE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    topology: Option<String>,

    /// Show at most this many findings of a kind.
    #[arg(long, value_name = "N", default_value_t = 5)]
    most: usize,
}

#[derive(serde::Serialize)]
struct Output<'a> {
    trace: &'a flyball_trace::TraceSummary,
    findings: &'a [Finding],
}

/// Reads the trace and prints the findings.
pub fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    // Asked before the trace is read, so that a wrong name costs nothing.
    let given = match args.topology.as_deref() {
        None => None,
        Some("") => Some(known::of_host(&*context.open()?)?),
        Some(from) => Some(known::of_text(from)?),
    };
    let names = Arc::new(Names::default());
    let mut diagnoser = Diagnoser::new(Limits::default(), Vec::new()).with_names(names.clone());
    let (mut records, mut requests) = (0u64, 0u64);
    let summary = args.input.read(&names, false, &mut |record, _| {
        records += 1;
        requests += u64::from(matches!(record.event, Event::AmdPerf(_) | Event::Intel(_)));
        diagnoser.add(record);
        Ok(())
    })?;
    if let Some(known) = given.as_ref().or(summary.machine.as_ref()) {
        diagnoser = diagnoser.with_siblings(known.siblings());
        if let Some(isolation) = known.isolation() {
            let chosen = |cpu| args.input.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu));
            diagnoser = diagnoser.with_isolation(isolation.only(chosen));
        }
    }
    let findings = diagnoser.findings(summary.clock);
    context.output.object(
        || Output { trace: &summary, findings: &findings },
        || match findings.as_slice() {
            [] => format!("{}\n", silence(records, requests, summary.clock.nanoseconds())),
            findings => render(findings, args.most),
        },
    )?;
    if context.output.is_json() && !summary.clock.nanoseconds() {
        eprintln!("flyball: {}", silence(records, requests, false));
    }
    let whole = say_what_is_missing(&summary);
    Ok(match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Fault) => Exit::Fault,
        Some(Severity::Warning) => Exit::Warning,
        _ if !whole => Exit::Failed,
        _ => Exit::Done,
    })
}

/// What it means that nothing was found.
fn silence(records: u64, requests: u64, timed: bool) -> String {
    if records == 0 {
        "the trace holds no records: there is nothing to judge".to_owned()
    } else if !timed {
        "the trace's clock counts no time, so nothing can be judged; record with --clock mono".to_owned()
    } else if requests == 0 {
        format!(
            "nothing is wrong in these {records} records, but none of them is a request whose effect can be judged \
             (amd_pstate_perf, pstate_sample)"
        )
    } else {
        format!("nothing is wrong in these {records} records, as far as they tell")
    }
}

fn render(findings: &[Finding], most: usize) -> String {
    let mut out = String::new();
    let mut kinds: BTreeMap<_, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        kinds.entry((std::cmp::Reverse(finding.severity), finding.kind)).or_default().push(finding);
    }
    for ((severity, _), findings) in kinds {
        let word = match severity.0 {
            Severity::Fault => "FAULT",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        for finding in findings.iter().take(most) {
            let who = finding.cpu.map_or_else(|| "machine".to_owned(), |cpu| format!("CPU {cpu}"));
            let doubt = if finding.uncertain { " (uncertain: records were lost in this time)" } else { "" };
            let _ = writeln!(
                out,
                "{word}: {who}, {:.3} s to {:.3} s: {}{doubt}",
                finding.from, finding.to, finding.what
            );
            for evidence in &finding.evidence {
                let _ = writeln!(out, "    {evidence}");
            }
        }
        if findings.len() > most {
            let _ = writeln!(
                out,
                "{word}: and {} more of the same kind (--most, or --json for all)",
                findings.len() - most
            );
        }
        if let Some(finding) = findings.first() {
            let _ = writeln!(out, "    {}", finding.remedy);
        }
    }
    out
}
