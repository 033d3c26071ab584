//! `flyball trace diagnose`: what is wrong, in words.

use std::{collections::BTreeMap, sync::Arc};

use flyball_trace::{
    Names,
    diagnose::{Diagnoser, Finding, Limits, Severity},
};

use crate::{
    cli::Cli,
    exit::{Exit, Failure},
    machine,
};

use super::input::{Input, say_what_is_missing};

/// Arguments of `trace diagnose`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0 if there is nothing worse than a note, 8 for warnings, 9 for faults.
With --topology, CPUs that share a core on this machine (or on -M) are compared with each other.")]
pub struct Args {
    #[command(flatten)]
    input: Input,

    /// Compare the CPUs of one core, as this machine (or -M) has them.
    #[arg(long)]
    topology: bool,

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
pub fn run(cli: &Cli, args: &Args) -> Result<Exit, Failure> {
    let siblings = if args.topology { siblings(cli)? } else { Vec::new() };
    let mut diagnoser = Diagnoser::new(Limits::default(), siblings);
    let mut records = 0u64;
    let summary = args.input.read(&Arc::new(Names::default()), false, &mut |record, _| {
        records += 1;
        diagnoser.add(record);
        Ok(())
    })?;
    let findings = diagnoser.findings(summary.clock);
    if cli.json {
        let output = Output { trace: &summary, findings: &findings };
        let text = serde_json::to_string_pretty(&output)
            .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        println!("{text}");
    } else {
        print(&findings, args.most);
        if findings.is_empty() {
            println!("nothing is wrong in these {records} records, as far as they tell");
        }
    }
    if !summary.clock.nanoseconds() {
        eprintln!(
            "flyball: the trace's clock counts no time, so nothing can be judged; record with --clock mono"
        );
    }
    let whole = say_what_is_missing(&summary);
    Ok(match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Fault) => Exit::Fault,
        Some(Severity::Warning) => Exit::Warning,
        _ if !whole => Exit::Failed,
        _ => Exit::Done,
    })
}

fn print(findings: &[Finding], most: usize) {
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
            let doubt =
                if finding.unsafe_for_losses { " (unsafe: records of this time were lost)" } else { "" };
            println!("{word}: {who}, {:.3} s to {:.3} s: {}{doubt}", finding.from, finding.to, finding.what);
        }
        if findings.len() > most {
            println!(
                "{word}: and {} more of the same kind (--most, or --json for all)",
                findings.len() - most
            );
        }
        if let Some(finding) = findings.first() {
            println!("    {}", finding.remedy);
        }
    }
}

/// Pairs of CPUs that share a core.
fn siblings(cli: &Cli) -> Result<Vec<(u32, u32)>, Failure> {
    let host = machine::open(&cli.machine)?;
    let mut pairs = Vec::new();
    for name in host.list("/sys/devices/system/cpu")? {
        let Some(cpu) = name.strip_prefix("cpu").and_then(|number| number.parse::<u32>().ok()) else {
            continue;
        };
        let path = format!("/sys/devices/system/cpu/{name}/topology/thread_siblings_list");
        let Some(text) = host.read_optional(&path)? else { continue };
        let Ok(list) = text.parse::<flyball_host::CpuList>() else { continue };
        pairs.extend(list.iter().filter(|other| *other > cpu).map(|other| (cpu, other)));
    }
    Ok(pairs)
}
