//! `flyball doctor`: checks whether a machine is set up well, and suggests changes.

pub(crate) mod render;
mod trace_checks;

use std::{path::PathBuf, sync::atomic::Ordering};

use flyball_control::{
    Intent,
    doctor::{self, Finding, Group, KnobValue, Options, Report, Verdict},
    write::{
        journal::{Journal, Purpose},
        transaction::Transaction,
    },
};

use flyball_process::confine::Confinement;

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
    output::Reporter,
};

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every check has a stable id, a verdict (ok, note, warning, fault, unknown), evidence with its path, the reason why it \
matters, and what to do. A check whose files cannot be read is unknown, never ok.

Examples:
  flyball doctor                      this machine, worst findings first
  flyball doctor -v                   with evidence for all checks, also those that are ok
  flyball doctor --only driver.hwp    one check
  flyball doctor --storpool           also check a Xeon Scalable against StorPool's recommendations
  flyball doctor -M DIR --json        a recorded machine, as JSON
  flyball doctor --fix -n             the writes that would fix what flyball can set
  flyball doctor --trace t.dat        also check a trace of the driver's decisions
  flyball doctor --write --only amd-pstate    the kernel's amd-pstate unit tests, without its module

Exit codes: 0 nothing worse than a note, 8 a warning, 9 a fault, 4 the processors are hidden (a virtual machine or a \
container). Unknown checks do not affect the exit code.")]
#[expect(clippy::struct_excessive_bools, reason = "options of a command line")]
pub(crate) struct Args {
    /// Show evidence and reason for all checks.
    #[arg(short, long)]
    verbose: bool,

    /// Only run checks whose id starts with one of these, such as `driver` or `conflict.epb-epp`.
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,

    /// Also check StorPool's recommendations for Xeon Scalable processors.
    #[arg(long)]
    storpool: bool,

    /// Show the fixes that flyball can set, and apply them without asking, all or none.
    #[arg(long, conflicts_with = "list")]
    fix: bool,

    /// With --fix: print the writes; write nothing.
    #[arg(short = 'n', long, requires = "fix")]
    dry_run: bool,

    /// Also run the amd-pstate unit tests that write preferences and modes. Every write is
    /// journaled and restored, also after a crash.
    #[arg(long, conflicts_with_all = ["fix", "list"])]
    write: bool,

    /// Also check a trace of this machine (trace.dat or text, see `flyball trace record`): whether
    /// the driver was called on isolated CPUs, and whether the frequency followed the requests.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "fix"])]
    trace: Option<PathBuf>,

    /// List the checks with their reasons and what they read.
    #[arg(long)]
    list: bool,
}

impl Args {
    /// Adds the trace; `false` if the command may change the machine.
    pub(crate) fn files(&self, files: &mut Confinement) -> bool {
        self.trace.iter().for_each(|trace| files.read(trace));
        !(self.fix || self.write)
    }
}

/// Runs the checks and prints the findings.
pub(crate) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    if args.list {
        return list(&context.output);
    }
    for wanted in &args.only {
        known(wanted, args)?;
    }
    let host = context.open()?;
    let mut report = doctor::examine(&*host, Options { storpool: args.storpool })?;
    if let Ok(Some(journal)) = context.state().map(|state| Journal::load(&state).ok().flatten()) {
        report.note_choices(&*host, &journal);
    }
    // Stop here: without control files, the other options would only fail one by one.
    if report.not_visible.is_some() {
        left_out(args);
    }
    if args.write && report.not_visible.is_none() {
        let found = write_tests(context, &*host)?;
        if found.is_empty() {
            eprintln!("flyball: --write has no tests for this machine: amd-pstate is not its driver");
        }
        // Insert after the read-only tests of the group.
        let place = report.findings.iter().rposition(|finding| finding.group == Group::AmdPstate);
        let place = place.map_or(report.findings.len(), |place| place + 1);
        report.findings.splice(place..place, found);
    }
    if let Some(file) = &args.trace
        && report.not_visible.is_none()
    {
        let found = trace_checks::findings(&*host, file)?;
        // Insert before StorPool's recommendations.
        let place = report.findings.iter().position(|finding| finding.group == Group::Recommended);
        let place = place.unwrap_or(report.findings.len());
        report.findings.splice(place..place, found);
    }
    // Filter last, because options add findings above.
    if !args.only.is_empty() {
        report
            .findings
            .retain(|finding| args.only.iter().any(|wanted| finding.id.starts_with(wanted.as_str())));
    }
    if args.fix && report.not_visible.is_none() {
        return fix(context, &*host, &report, args.dry_run);
    }
    context.output.about(&*host).object(|| &report, || render::render(&report, args.verbose))?;
    Ok(if report.not_visible.is_some() {
        // Neither a fault nor ok: scripts can skip, as for any missing device.
        Exit::NotHere
    } else {
        match report.worst() {
            Verdict::Fault => Exit::Fault,
            Verdict::Warning => Exit::Warning,
            _ => Exit::Done,
        }
    })
}

/// Notes which options have no effect because the processors' control files are hidden.
fn left_out(args: &Args) {
    if let Some(file) = &args.trace {
        eprintln!(
            "flyball: --trace also needs the machine's files, which are missing here; to check the trace alone: \
             flyball trace diagnose {}",
            file.display()
        );
    }
    for (asked, option) in [(args.write, "--write"), (args.fix, "--fix"), (args.storpool, "--storpool")] {
        if asked {
            eprintln!("flyball: {option} has no effect here: there is no driver");
        }
    }
}

/// Rejects an unknown check, and one that needs another option.
fn known(wanted: &str, args: &Args) -> Result<(), Failure> {
    let starts = |id: &str| id.starts_with(wanted);
    let usage = |message: String| Err(Failure::usage(message));
    let mut checks = doctor::CHECKS.iter().copied().flatten().filter(|check| starts(check.id)).peekable();
    if checks.peek().is_some() {
        return if !args.storpool && checks.all(|check| check.group() == Group::Recommended) {
            usage(format!("{wanted} is one of StorPool's recommendations: give --storpool too"))
        } else {
            Ok(())
        };
    }
    if doctor::amd_pstate_write::ids().any(|(id, _)| starts(id)) {
        return if args.write {
            Ok(())
        } else {
            usage(format!("{wanted} writes to the machine: give --write too"))
        };
    }
    if trace_checks::CHECKS.iter().any(|check| starts(check.id)) {
        return if args.trace.is_some() {
            Ok(())
        } else {
            usage(format!("{wanted} needs a trace: give --trace FILE too"))
        };
    }
    usage(format!("no check id starts with '{wanted}'; 'flyball doctor --list' lists them"))
}

/// Runs the tests that write, in a transaction that is always rolled back.
fn write_tests(context: &Context, host: &dyn flyball_host::Host) -> Result<Vec<Finding>, Failure> {
    change::must_be_writable(host)?;
    let state = context.state()?;
    let interrupted = change::interrupts()?;
    // A simulated machine ends with this process, so there is nothing for a guardian to restore.
    let guardian = match host.kind() {
        flyball_host::Kind::Simulated => None,
        _ => Some(context.guardian(&state)?),
    };
    let mut transaction =
        Transaction::begin(host, &state, Purpose::Doctor, &change::command_line(), guardian)?;
    for note in transaction.notes() {
        eprintln!("note: {note}");
    }
    // Check the result after restoring: a failed test must not leave its settings behind.
    let found =
        doctor::amd_pstate_write::examine(host, &mut transaction, &|| interrupted.load(Ordering::Relaxed));
    let restoration = transaction.end();
    if !restoration.is_exact() {
        return Err(Failure::new(Exit::HalfDone, restoration.to_string()));
    }
    Ok(found?)
}

/// Plans the recommended settings, prints the plan, and applies it.
fn fix(
    context: &Context,
    host: &dyn flyball_host::Host,
    report: &Report,
    dry_run: bool,
) -> Result<Exit, Failure> {
    let settings = report.settings();
    if settings.is_empty() {
        let found = report.findings.iter().any(|finding| finding.verdict > Verdict::Unknown);
        eprintln!(
            "flyball: {}",
            if found {
                "none of the findings can be fixed by a setting; the report above says what can be done"
            } else {
                "nothing was found that needs to be fixed"
            }
        );
        return Ok(Exit::Done);
    }
    let settings =
        settings.iter().map(KnobValue::setting).collect::<Result<_, _>>().map_err(Failure::failed)?;
    let intent = Intent { settings };
    if dry_run {
        return super::plan::print(context, host, &intent, false);
    }
    // JSON output is a single document, the result of applying.
    if !context.output.is_json() {
        super::plan::print(context, host, &intent, false)?;
    }
    change::apply(context, host, &intent)
}

/// Lists every check, including those of --storpool, --trace and --write.
fn list(output: &Reporter) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    for check in doctor::CHECKS.iter().copied().flatten() {
        let group = check.group();
        let option = (group == Group::Recommended).then_some("--storpool");
        let doctor::Check { id, why, looks, .. } = *check;
        rows.push(render::Row { id, group, why, looks, option });
    }
    for check in trace_checks::CHECKS {
        let (group, option) = (Group::Trace, Some("--trace"));
        rows.push(render::Row { id: check.id, group, why: check.why, looks: check.looks, option });
    }
    for (id, why) in doctor::amd_pstate_write::ids() {
        let looks = "what the files read after writes, which are restored";
        rows.push(render::Row { id, group: Group::AmdPstate, why, looks, option: Some("--write") });
    }
    output.list(|| rows.iter().collect(), || render::list(&rows))?;
    Ok(Exit::Done)
}
