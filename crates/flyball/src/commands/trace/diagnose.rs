//! `flyball trace diagnose`: finds problems in a trace.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use flyball_host::CpuList;
use flyball_process::confine::Confinement;
use flyball_trace::{
    Event, Machine, NameId, Names, Record, TraceSummary,
    diagnose::{Diagnoser, Finding, Limits, Severity},
    events::TABLE,
};

use crate::{
    context::Context,
    exit::{Exit, Failure},
    machine::MachineArg,
};

use super::{
    input::{Input, print_losses, simulated},
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
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// The trace's machine: a recording, or the output of `lscpu -p` in a file; without a value
    /// this machine (or -M).
    #[arg(long, value_name = "MACHINE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    topology: Option<String>,

    /// Show at most this many findings of each kind.
    #[arg(long, value_name = "N", default_value_t = 5)]
    most: usize,
}

impl Args {
    /// Adds the trace and the description of its machine. Returns `false` if that is the live
    /// machine.
    pub(crate) fn files(&self, machine: &MachineArg, files: &mut Confinement) -> bool {
        self.input.files(files);
        match self.topology.as_deref() {
            None => true,
            // Without a value, the option means the machine of -M, or else the live one, whose
            // files cannot be listed.
            Some("") => machine.files(files),
            // The name of a machine, or a file with the output of lscpu(1).
            Some(from) => {
                files.read(from);
                from.parse::<MachineArg>().is_ok_and(|machine| machine.files(files))
            }
        }
    }
}

#[derive(schemars::JsonSchema, serde::Serialize)]
pub(crate) struct Output<'a> {
    trace: &'a flyball_trace::TraceSummary,
    findings: &'a [Finding],
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    // Before reading the trace, which takes time: the name may be wrong.
    let given = match args.topology.as_deref() {
        None => None,
        Some("") => Some(traced_machine::from_host(&*context.open()?)?),
        Some(from) => Some(traced_machine::from_text(from)?),
    };
    let names = Arc::new(Names::default());
    let mut judge = Judge::new(names.clone());
    let summary = args.input.read_batches(&names, &mut |batch| {
        judge.add(batch);
        Ok(())
    })?;
    let Diagnosis { findings, seen } = judge.finish(&summary, given.as_ref(), args.input.cpus.as_ref());
    let output = context.output.about_simulated(simulated(&summary).is_some());
    if let Some(machine) = simulated(&summary) {
        eprintln!("flyball: this trace is of {machine}, which is simulated");
    }
    output.object(
        || Output { trace: &summary, findings: &findings },
        || match findings.as_slice() {
            [] => format!("{}\n", seen.silence()),
            findings => render(findings, args.most),
        },
    )?;
    // Explain an empty list in JSON, which would look like a healthy machine.
    if context.output.is_json() && (!seen.is_timed || seen.judged == 0) {
        eprintln!("flyball: {}", seen.silence());
    }
    // Call both, without short-circuiting, so that both messages are printed.
    let (is_whole, is_read) = (print_losses(&summary), seen.print_unread());
    Ok(exit(&findings, is_whole && is_read))
}

/// Returns the exit code for the findings. `whole`: the complete trace was read.
pub(super) fn exit(findings: &[Finding], whole: bool) -> Exit {
    match findings.iter().map(|finding| finding.severity).max() {
        // Findings have priority over damage, because those in the readable part are true.
        Some(Severity::Fault) => Exit::Fault,
        Some(Severity::Warning) => Exit::Warning,
        _ if !whole => Exit::Failed,
        _ => Exit::Done,
    }
}

/// Collects findings while the records of a trace pass through.
pub(super) struct Judge {
    names: Arc<Names>,
    diagnoser: Diagnoser,
    seen: TraceContents,
    others: BTreeMap<NameId, u64>,
}

/// The result of a [`Judge`].
pub(super) struct Diagnosis {
    pub(super) findings: Vec<Finding>,
    pub(super) seen: TraceContents,
}

impl Judge {
    pub(super) fn new(names: Arc<Names>) -> Judge {
        let diagnoser = Diagnoser::new(Limits::default(), Vec::new()).with_names(names.clone());
        Judge { names, diagnoser, seen: TraceContents::default(), others: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, batch: &[Record]) {
        for record in batch {
            self.seen.records += 1;
            match record.event {
                // These two have APERF and MPERF, which show the effect of a request.
                Event::AmdPerf(_) | Event::Intel(_) => self.seen.judged += 1,
                Event::AmdRequest(_) => self.seen.without_counters += 1,
                Event::Other(name) => *self.others.entry(name).or_default() += 1,
                _ => {}
            }
            self.diagnoser.add(record);
        }
    }

    /// Returns the findings. `given` is the machine that the user named, and `cpus` are the chosen
    /// CPUs.
    pub(super) fn finish(
        self,
        summary: &TraceSummary,
        given: Option<&Machine>,
        cpus: Option<&CpuList>,
    ) -> Diagnosis {
        let Judge { names, mut diagnoser, mut seen, others } = self;
        // The user's machine takes precedence over the description in the trace.
        if let Some(known) = given.or(summary.machine.as_ref()) {
            diagnoser = diagnoser.with_siblings(known.siblings());
            if let Some(isolation) = known.isolation() {
                // CPUs that were not chosen have no records and would look silent.
                let chosen = |cpu| cpus.is_none_or(|cpus| cpus.contains(cpu));
                diagnoser = diagnoser.with_isolation(isolation.only(chosen));
            }
        }
        seen.is_timed = summary.clock.nanoseconds();
        // Known events that passed through by name only have fields that cannot be read.
        seen.unread =
            others.iter().filter(|(id, _)| is_known(&names.name(**id))).map(|(_, count)| count).sum();
        Diagnosis { findings: diagnoser.findings(summary.clock), seen }
    }
}

/// Returns whether the library reads the fields of events with this name.
fn is_known(name: &str) -> bool {
    TABLE.iter().any(|row| row.name == name)
}

/// Counts of a trace's contents.
#[derive(Debug, Default)]
pub(super) struct TraceContents {
    records: u64,
    /// Requests with counters, whose effect can be judged.
    judged: u64,
    /// Requests from kernel 5.17, which has no counters.
    without_counters: u64,
    /// Records of known events with unexpected fields.
    unread: u64,
    is_timed: bool,
}

impl TraceContents {
    /// Prints on stderr what could not be read. Returns whether everything was read.
    pub(super) fn print_unread(&self) -> bool {
        if self.unread > 0 {
            eprintln!(
                "flyball: {} records have fields that cannot be read; they were not judged",
                self.unread
            );
        }
        self.unread == 0
    }

    /// Explains why there are no findings.
    pub(super) fn silence(&self) -> String {
        let TraceContents { records, judged, without_counters, unread, is_timed } = *self;
        if records == 0 {
            "the trace contains no records".to_owned()
        } else if !is_timed {
            "the trace clock is a counter, not a time source, so nothing can be judged; record with --clock mono"
                .to_owned()
        } else if judged == 0 && without_counters > 0 {
            format!(
                "nothing was judged: the {without_counters} requests have neither frequency nor counters (amd_pstate_perf of \
                 kernel 5.17), so their effect is not known; `flyball trace report` shows what was requested"
            )
        } else if judged == 0 && unread > 0 {
            format!("nothing was judged: {unread} of {records} records have fields that cannot be read")
        } else if judged == 0 {
            format!(
                "no problems found in {records} records, but none of them is a request whose effect can be judged \
                 (amd_pstate_perf, pstate_sample)"
            )
        } else {
            format!("no problems found in {} records", records - unread)
        }
    }
}

pub(super) fn render(findings: &[Finding], most: usize) -> String {
    let mut out = String::new();
    let mut kinds: BTreeMap<_, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        // The map is sorted for the output, the worst first.
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
        // All findings of a kind have the same remedy, so print it once.
        if let Some(finding) = findings.first() {
            let _ = writeln!(out, "    {}", finding.remedy);
        }
    }
    out
}
