//! `flyball doctor`: is this machine set up as it should be, and what should change?

mod render;
mod trace;

use std::{path::PathBuf, sync::atomic::Ordering};

use flyball_control::{
    Intent, Setting,
    doctor::{self, Finding, Group, KnobValue, Options, Report, Verdict},
    write::hold::Hold,
};

use crate::{
    change,
    context::Context,
    exit::{Exit, Failure},
    output::Reporter,
};

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every check has a stable id, a verdict (ok, note, warning, fault, unknown), the evidence with its path, why it
matters and what to do. No check says ok where it could not look.

Exit: 0 nothing worse than a note, 8 a warning, 9 a fault, 4 the machine hides its processors (a virtual machine or a
container). What could not be looked at makes no exit code.

  flyball doctor                      this machine, the worst first
  flyball doctor -v                   with evidence for everything, the good included
  flyball doctor --only driver.hwp    one check
  flyball doctor --storpool           also hold a Xeon Scalable against StorPool's page
  flyball doctor -M DIR --json        a recorded machine, as data
  flyball doctor --fix -n             the writes that would mend what flyball can set
  flyball doctor --trace t.dat        with what a trace of the driver's decisions shows
  flyball doctor --write --only amd-pstate    the kernel's amd-pstate unit tests, without its module")]
pub struct Args {
    /// Show evidence and reason for every check, not only for those that found something.
    #[arg(short, long)]
    verbose: bool,

    /// Only checks whose id starts with one of these, such as `driver` or `conflict.epb-epp`.
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,

    /// Also hold the machine against StorPool's values for Xeon Scalable processors.
    #[arg(long)]
    storpool: bool,

    /// Apply what flyball itself can set of the fixes, as one transaction, after showing it.
    #[arg(long, conflicts_with = "list")]
    fix: bool,

    /// With --fix: show the writes, and make none.
    #[arg(short = 'n', long, requires = "fix")]
    dry_run: bool,

    /// Also run the amd-pstate unit tests that write: preferences, changes of mode, their attributes. Every write is
    /// journaled before and put back after, also after a crash.
    #[arg(long, conflicts_with_all = ["fix", "list"])]
    write: bool,

    /// Also look at a trace of this machine's driver (trace.dat or text, as `flyball trace record` writes them): was the
    /// driver called on the CPUs that the kernel leaves alone, and did the frequency follow?
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "fix"])]
    trace: Option<PathBuf>,

    /// List the checks: what each is for, and what it looks at.
    #[arg(long)]
    list: bool,
}

/// Examines the machine and prints what was found.
pub fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    if args.list {
        return list(&context.output);
    }
    for wanted in &args.only {
        known(wanted, args)?;
    }
    let host = context.open()?;
    let mut report = doctor::examine(&*host, Options { storpool: args.storpool }).map_err(Failure::failed)?;
    if report.not_visible.is_some() {
        left_out(args);
    }
    if args.write && report.not_visible.is_none() {
        let found = write_tests(context, &*host)?;
        if found.is_empty() {
            eprintln!("flyball: --write has no tests here: amd-pstate does not drive this machine");
        }
        // Behind the tests of the same group that only read.
        let place = report.findings.iter().rposition(|finding| finding.group == Group::AmdPstate);
        let place = place.map_or(report.findings.len(), |place| place + 1);
        report.findings.splice(place..place, found);
    }
    if let Some(file) = &args.trace
        && report.not_visible.is_none()
    {
        let found = trace::findings(&*host, file)?;
        // Before what a page recommends.
        let place = report.findings.iter().position(|finding| finding.group == Group::Recommended);
        let place = place.unwrap_or(report.findings.len());
        report.findings.splice(place..place, found);
    }
    if !args.only.is_empty() {
        report
            .findings
            .retain(|finding| args.only.iter().any(|wanted| finding.id.starts_with(wanted.as_str())));
    }
    if args.fix && report.not_visible.is_none() {
        return fix(context, &*host, &report, args.dry_run);
    }
    context
        .output
        .about(&*host)
        .object(|| &report, || render::for_stdout(&render::render(&report, args.verbose)))?;
    Ok(if report.not_visible.is_some() {
        Exit::NotHere
    } else {
        match report.worst() {
            Verdict::Fault => Exit::Fault,
            Verdict::Warning => Exit::Warning,
            _ => Exit::Done,
        }
    })
}

/// What was asked for and cannot be, where the processor's control is not to be seen.
fn left_out(args: &Args) {
    if let Some(file) = &args.trace {
        eprintln!(
            "flyball: --trace tells what the trace says beside the machine's files, which are not here; the trace alone is \
             read by: flyball trace diagnose {}",
            file.display()
        );
    }
    for (asked, option) in [(args.write, "--write"), (args.fix, "--fix"), (args.storpool, "--storpool")] {
        if asked {
            eprintln!("flyball: {option} does nothing here: there is no driver to look at");
        }
    }
}

/// Refuses a name that no check has, and one whose checks have not been asked for.
fn known(wanted: &str, args: &Args) -> Result<(), Failure> {
    let starts = |id: &str| id.starts_with(wanted);
    let usage = |message: String| Err(Failure::usage(message));
    let mut checks = doctor::CHECKS.iter().copied().flatten().filter(|check| starts(check.id)).peekable();
    if checks.peek().is_some() {
        return if !args.storpool && checks.all(|check| check.group == Group::Recommended) {
            usage(format!("{wanted} is of StorPool's recommendations: give --storpool too"))
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
    if trace::CHECKS.iter().any(|check| starts(check.id)) {
        return if args.trace.is_some() {
            Ok(())
        } else {
            usage(format!("{wanted} looks at a trace: give --trace FILE too"))
        };
    }
    usage(format!("no check starts with '{wanted}'; flyball doctor --list names them all"))
}

/// Runs the tests that write, inside a transaction that is put back whatever happens.
fn write_tests(context: &Context, host: &dyn flyball_host::Host) -> Result<Vec<Finding>, Failure> {
    change::must_be_writable(host)?;
    let state = context.state()?;
    let interrupted = change::interrupts()?;
    // A simulated machine ends with this process: there is nothing that a guardian could put back.
    let guardian = match host.kind() {
        flyball_host::Kind::Simulated => None,
        _ => Some(context.guardian(&state)?),
    };
    let mut hold = Hold::begin(host, &state, &change::command_line(), guardian)?;
    for note in hold.notes() {
        eprintln!("note: {note}");
    }
    let found = doctor::amd_pstate_write::examine(host, &mut hold, &|| interrupted.load(Ordering::Relaxed));
    let restoration = hold.end();
    if !restoration.is_exact() {
        return Err(Failure::new(Exit::HalfDone, restoration.to_string()));
    }
    Ok(found?)
}

/// Plans what the findings ask for, shows it, and applies it.
fn fix(
    context: &Context,
    host: &dyn flyball_host::Host,
    report: &Report,
    dry_run: bool,
) -> Result<Exit, Failure> {
    let settings = report.settings();
    if settings.is_empty() {
        eprintln!(
            "flyball: no setting of flyball's fixes what was found; see the firmware and kernel advice above"
        );
        return Ok(Exit::Done);
    }
    let settings = settings
        .iter()
        .map(|KnobValue { knob, value }| {
            Setting::new(knob.knob().name, value, None, format!("{knob}={value}"))
        })
        .collect::<Result<_, _>>()
        .map_err(Failure::failed)?;
    let intent = Intent { settings };
    if dry_run {
        return super::plan::print(context, host, &intent, false);
    }
    if !context.output.is_json() {
        super::plan::print(context, host, &intent, false)?;
    }
    change::apply(context, host, &intent)
}

/// Every check: those that always run, those of --storpool, --trace and --write.
fn list(output: &Reporter) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    for check in doctor::CHECKS.iter().copied().flatten() {
        let option = (check.group == Group::Recommended).then_some("--storpool");
        rows.push((check.id, check.group, check.why, check.looks, option));
    }
    for check in trace::CHECKS {
        rows.push((check.id, Group::Trace, check.why, check.looks, Some("--trace")));
    }
    for (id, why) in doctor::amd_pstate_write::ids() {
        let looks = "what the files read after writes, which are put back";
        rows.push((id, Group::AmdPstate, why, looks, Some("--write")));
    }
    let object = |(id, group, why, looks, option): &render::Row| serde_json::json!({"id": id, "group": group, "why": why, "looks": looks, "option": option});
    output.list(|| rows.iter().map(object).collect(), || render::for_stdout(&render::list(&rows)))?;
    Ok(Exit::Done)
}
