//! `flyball trace diagnose`: finds what is wrong in a trace.

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
    input::{Input, say_what_is_missing, simulated},
    traced_machine,
};

/// Arguments of `trace diagnose`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flyball trace diagnose trace.dat                         a trace recorded by flyball describes its machine
  flyball trace diagnose --topology trace.txt              any trace of this machine
  flyball trace diagnose --topology=server.tar.zst trace.txt    a trace of a machine recorded by `flyball record`
  flyball trace diagnose --topology=lscpu.txt trace.dat    topology from the output of `lscpu -p=CPU,CORE,SOCKET`

The topology shows which CPUs share a core, so that conflicting requests of siblings are found. The kernel's command line \
(nohz_full, isolcpus) explains why a driver was not called.

Exit codes: 0 nothing worse than a note, 8 a warning, 9 a fault.")]
pub struct Args {
    #[command(flatten)]
    input: Input,

    /// The trace's machine: a recording, or the output of `lscpu -p` in a file; without a value this machine (or -M).
    #[arg(long, value_name = "MACHINE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    topology: Option<String>,

    /// Show at most this many findings of each kind.
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
    // Before the trace is read: a wrong name should not cost the time to read it.
    let given = match args.topology.as_deref() {
        None => None,
        Some("") => Some(traced_machine::of_host(&*context.open()?)?),
        Some(from) => Some(traced_machine::of_text(from)?),
    };
    let names = Arc::new(Names::default());
    let mut diagnoser = Diagnoser::new(Limits::default(), Vec::new()).with_names(names.clone());
    let (mut records, mut requests) = (0u64, 0u64);
    let summary = args.input.read_batches(&names, &mut |batch| {
        for record in batch {
            records += 1;
            requests += u64::from(matches!(record.event, Event::AmdPerf(_) | Event::Intel(_)));
            diagnoser.add(record);
        }
        Ok(())
    })?;
    // What the user gave has precedence over what the trace says of its machine.
    if let Some(known) = given.as_ref().or(summary.machine.as_ref()) {
        diagnoser = diagnoser.with_siblings(known.siblings());
        if let Some(isolation) = known.isolation() {
            let chosen = |cpu| args.input.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu));
            diagnoser = diagnoser.with_isolation(isolation.only(chosen));
        }
    }
    let findings = diagnoser.findings(summary.clock);
    let output = context.output.about_simulated(simulated(&summary).is_some());
    if let Some(machine) = simulated(&summary) {
        eprintln!("flyball: this trace is of {machine}, which is simulated");
    }
    output.object(
        || Output { trace: &summary, findings: &findings },
        || match findings.as_slice() {
            [] => format!("{}\n", silence(records, requests, summary.clock.nanoseconds())),
            findings => render(findings, args.most),
        },
    )?;
    // An empty list in JSON would look like a healthy machine.
    if context.output.is_json() && !summary.clock.nanoseconds() {
        eprintln!("flyball: {}", silence(records, requests, false));
    }
    let whole = say_what_is_missing(&summary);
    Ok(match findings.iter().map(|finding| finding.severity).max() {
        // Findings come before damage: what was found in the readable part is true.
        Some(Severity::Fault) => Exit::Fault,
        Some(Severity::Warning) => Exit::Warning,
        _ if !whole => Exit::Failed,
        _ => Exit::Done,
    })
}

/// Why there are no findings.
fn silence(records: u64, requests: u64, timed: bool) -> String {
    if records == 0 {
        "the trace contains no records".to_owned()
    } else if !timed {
        "the trace clock is a counter, not a time source, so nothing can be judged; record with --clock mono"
            .to_owned()
    } else if requests == 0 {
        format!(
            "no problems found in {records} records, but none of them is a request whose effect can be judged \
             (amd_pstate_perf, pstate_sample)"
        )
    } else {
        format!("no problems found in {records} records")
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
                "{word}: {} more of the same kind (--most, or --json for all)",
                findings.len() - most
            );
        }
        if let Some(finding) = findings.first() {
            let _ = writeln!(out, "    {}", finding.remedy);
        }
    }
    out
}
