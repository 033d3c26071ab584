//! `flyball doctor`: is this machine set up as it should be, and what should change?

use std::{fmt::Write as _, io::IsTerminal as _, sync::atomic::Ordering};

use anstyle::{AnsiColor, Style};
use flyball_control::{
    Intent,
    doctor::{self, Finding, Fix, Group, Options, Report, Verdict},
    write::hold::Hold,
};

use crate::{
    change,
    cli::Cli,
    exit::{Exit, Failure},
    machine,
};

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every check has a stable id, a verdict (ok, note, warning, fault, unknown), the evidence with its path, why it
matters and what to do. No check says ok where it could not look.

Exit: 0 nothing worse than a note, 8 a warning, 9 a fault, 4 the machine hides its processors (a virtual machine).

  flyball doctor                      this machine, the worst first
  flyball doctor -v                   with evidence for everything, the good included
  flyball doctor --only driver.hwp    one check
  flyball doctor --storpool           also hold a Xeon Scalable against StorPool's page
  flyball doctor -M DIR --json        a recorded machine, as data
  flyball doctor --fix -n             the writes that would mend what flyball can set
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

    /// List the checks and what each is for.
    #[arg(long)]
    list: bool,
}

/// Examines the machine and prints what was found.
pub fn run(cli: &Cli, args: &Args) -> Result<Exit, Failure> {
    if args.list {
        return list(cli);
    }
    for wanted in &args.only {
        let starts = |id: &str| id.starts_with(wanted.as_str());
        let reads = doctor::CHECKS.iter().copied().flatten().any(|check| starts(check.id));
        if !reads && !args.write && doctor::amd_write::ids().any(|(id, _)| starts(id)) {
            return Err(Failure::new(
                Exit::Usage,
                format!("{wanted} writes to the machine: give --write too"),
            ));
        }
        if !reads && !doctor::amd_write::ids().any(|(id, _)| starts(id)) {
            return Err(Failure::new(
                Exit::Usage,
                format!("no check starts with '{wanted}'; flyball doctor --list names them all"),
            ));
        }
    }
    let host = machine::open(&cli.machine)?;
    let mut report = doctor::examine(&*host, Options { storpool: args.storpool })
        .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    if args.write && report.not_visible.is_none() {
        let found = write_tests(cli, &*host)?;
        if found.is_empty() {
            eprintln!("flyball: --write has no tests here: amd-pstate does not drive this machine");
        }
        // Behind the tests of the same group that only read.
        let place = report.findings.iter().rposition(|finding| finding.group == Group::AmdPstate);
        let place = place.map_or(report.findings.len(), |place| place + 1);
        report.findings.splice(place..place, found);
    }
    if !args.only.is_empty() {
        report
            .findings
            .retain(|finding| args.only.iter().any(|wanted| finding.id.starts_with(wanted.as_str())));
    }
    if args.fix && report.not_visible.is_none() {
        return fix(cli, &*host, &report, args.dry_run);
    }
    if cli.json {
        change::print_json(&report)?;
    } else {
        anstream::print!("{}", render(&report, args.verbose));
    }
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

/// Runs the tests that write, inside a transaction that is put back whatever happens.
fn write_tests(cli: &Cli, host: &dyn flyball_host::Host) -> Result<Vec<Finding>, Failure> {
    change::must_be_writable(host)?;
    let state = change::state(cli)?;
    let interrupted = change::interrupts()?;
    // A simulated machine ends with this process: there is nothing that a guardian could put back.
    let guardian = match host.kind() {
        flyball_host::Kind::Simulated => None,
        _ => Some(change::guardian(cli, &state)?),
    };
    let mut hold = Hold::begin(host, &state, &change::command_line(), guardian)?;
    for note in hold.notes() {
        eprintln!("note: {note}");
    }
    let found = doctor::amd_write::examine(host, &mut hold, &|| interrupted.load(Ordering::Relaxed));
    let restoration = hold.end();
    if !restoration.is_exact() {
        return Err(Failure::new(Exit::HalfDone, restoration.to_string()));
    }
    Ok(found?)
}

/// Plans what the findings ask for, shows it, and applies it.
fn fix(cli: &Cli, host: &dyn flyball_host::Host, report: &Report, dry_run: bool) -> Result<Exit, Failure> {
    let settings = report.settings();
    if settings.is_empty() {
        eprintln!(
            "flyball: nothing that was found can be set from here; see the firmware and kernel advice above"
        );
        return Ok(Exit::Done);
    }
    let intent =
        Intent::from_arguments(&settings, None).map_err(|e| Failure::new(Exit::Failed, e.to_string()))?;
    if dry_run {
        return super::plan::print(cli, host, &intent, false);
    }
    if !cli.json {
        super::plan::print(cli, host, &intent, false)?;
    }
    change::apply(cli, host, &intent)
}

fn list(cli: &Cli) -> Result<Exit, Failure> {
    let checks = doctor::CHECKS.iter().copied().flatten();
    if cli.json {
        let rows: Vec<_> = checks
            .map(|check| serde_json::json!({"id": check.id, "group": check.group, "why": check.why}))
            .collect();
        let writes = doctor::amd_write::ids().map(
            |(id, why)| serde_json::json!({"id": id, "group": Group::AmdPstate, "why": why, "writes": true}),
        );
        change::print_json(&rows.into_iter().chain(writes).collect::<Vec<_>>())?;
    } else {
        for check in checks {
            println!("{:<28} {}", check.id, check.why);
        }
        for (id, why) in doctor::amd_write::ids() {
            println!("{id:<28} (--write) {why}");
        }
    }
    Ok(Exit::Done)
}

fn style(verdict: Verdict) -> Style {
    let color = match verdict {
        Verdict::Ok => AnsiColor::Green,
        Verdict::Unknown => AnsiColor::BrightBlack,
        Verdict::Note => AnsiColor::Cyan,
        Verdict::Warning => AnsiColor::Yellow,
        Verdict::Fault => AnsiColor::Red,
    };
    let style = Style::new().fg_color(Some(color.into()));
    if verdict >= Verdict::Warning { style.bold() } else { style }
}

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// The report for people: what is wrong first, worst first; what is fine in a line a group.
fn render(report: &Report, verbose: bool) -> String {
    let mut out = String::new();
    let kind = match report.kind {
        flyball_host::Kind::Live => String::new(),
        flyball_host::Kind::Recorded => format!(" · recorded: {}", report.machine),
        flyball_host::Kind::Simulated => format!(" · simulated: {}", report.machine),
    };
    let kernel = report.kernel.as_ref().map(|release| format!(" · Linux {release}")).unwrap_or_default();
    let _ = writeln!(out, "{BOLD}{}{BOLD:#}{kernel}{kind}", report.processor);
    if let Some(hidden) = &report.not_visible {
        let _ = writeln!(out, "\n{}.\n{}.", sentence(&hidden.what), sentence(&hidden.remedy));
        for seen in &hidden.evidence {
            let _ = writeln!(out, "  {DIM}{}{DIM:#}  {}", seen.place, seen.value);
        }
        return out;
    }
    let _ = writeln!(out, "{}\n", tally(report));
    for finding in report.from(Verdict::Note) {
        detailed(&mut out, finding);
    }
    if verbose {
        for verdict in [Verdict::Unknown, Verdict::Ok] {
            for finding in report.findings.iter().filter(|finding| finding.verdict == verdict) {
                detailed(&mut out, finding);
            }
        }
    } else {
        brief(&mut out, report);
    }
    let settings = report.settings();
    if !settings.is_empty() {
        let _ = writeln!(out, "\nWhat flyball can set: {BOLD}flyball plan {}{BOLD:#}", settings.join(" "));
    }
    out
}

/// What could not be looked at, each reason once: what a recording lacks is one reason.
fn not_seen(report: &Report) -> Vec<(String, Vec<&str>)> {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for finding in report.findings.iter().filter(|finding| finding.verdict == Verdict::Unknown) {
        let left_out = finding.what.ends_with("was not recorded");
        let what = if left_out { "not in this recording".to_owned() } else { finding.what.clone() };
        match reasons.iter_mut().find(|(known, _)| *known == what) {
            Some((_, ids)) => ids.push(finding.id),
            None => reasons.push((what, vec![finding.id])),
        }
    }
    reasons
}

/// The names of programs, drivers and files keep their spelling.
fn sentence(text: &str) -> String {
    let first = text.split_whitespace().next().unwrap_or_default();
    if first.contains(['-', '_', '.', '/', '=']) {
        return text.to_owned();
    }
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn tally(report: &Report) -> String {
    let count = |verdict| report.findings.iter().filter(|finding| finding.verdict == verdict).count();
    let mut parts = Vec::new();
    for (verdict, one, many) in [
        (Verdict::Fault, "fault", "faults"),
        (Verdict::Warning, "warning", "warnings"),
        (Verdict::Note, "note", "notes"),
        (Verdict::Ok, "ok", "ok"),
        (Verdict::Unknown, "not visible", "not visible"),
    ] {
        let number = count(verdict);
        if number > 0 {
            let style = style(verdict);
            parts.push(format!("{style}{number} {}{style:#}", if number == 1 { one } else { many }));
        }
    }
    parts.join(", ")
}

fn detailed(out: &mut String, finding: &Finding) {
    let verdict = style(finding.verdict);
    let head = Label { text: finding.verdict.word(), style: verdict, indent: 0 };
    let id = format!("[{}]", finding.id);
    folded(
        out,
        &head,
        &format!("{} {id}", sentence(&finding.what)),
        |word| {
            if word == id { DIM } else { BOLD }
        },
    );
    let plain = |_: &str| Style::new();
    let label = |text| Label { text, style: DIM, indent: 9 };
    folded(out, &label("why"), finding.why, plain);
    for seen in &finding.evidence {
        folded(out, &label("seen"), &format!("{} = {}", seen.place, seen.value), plain);
    }
    if let Some(fix) = &finding.fix {
        let text = match fix {
            Fix::Settings(settings) => format!("flyball set {}", settings.join(" ")),
            Fix::KernelParameter(action) => format!("kernel command line: {action}"),
            Fix::Firmware(entry) => format!("firmware setup: {entry}"),
            Fix::Person(action) => action.clone(),
        };
        folded(out, &label("do"), &text, plain);
    }
}

/// What stands in front of a paragraph.
struct Label<'a> {
    text: &'a str,
    style: Style,
    /// Blanks before it.
    indent: usize,
}

/// A paragraph beside its label, folded to the terminal's width, each word in its style.
fn folded(out: &mut String, label: &Label<'_>, text: &str, of_word: impl Fn(&str) -> Style) {
    let (start, style) = (label.indent + if label.indent > 0 { 6 } else { 9 }, label.style);
    let _ = write!(out, "{:indent$}{style}{}{style:#}", "", label.text, indent = label.indent);
    let _ = write!(out, "{:blanks$}", "", blanks = start - label.indent - label.text.len());
    let mut column = start;
    for (number, word) in text.split_whitespace().enumerate() {
        let length = word.chars().count();
        if number > 0 && column + 1 + length > width() {
            let _ = write!(out, "\n{:start$}", "");
            column = start;
        } else if number > 0 {
            out.push(' ');
            column += 1;
        }
        let style = of_word(word);
        let _ = write!(out, "{style}{word}{style:#}");
        column += length;
    }
    out.push('\n');
}

/// The columns of the terminal, within what reads well; 100 where it is none.
fn width() -> usize {
    if std::io::stdout().is_terminal() {
        usize::from(flyball_guest::run::terminal_size().1).clamp(60, 110)
    } else {
        100
    }
}

/// One line a group for what is fine, and the reasons for what could not be seen.
fn brief(out: &mut String, report: &Report) {
    for group in
        [Group::Driver, Group::AmdPstate, Group::Firmware, Group::Conflicts, Group::Now, Group::Recommended]
    {
        let fine: Vec<&str> = report
            .findings
            .iter()
            .filter(|finding| finding.group == group && finding.verdict == Verdict::Ok)
            .map(|finding| finding.id.split_once('.').map_or(finding.id, |(_, question)| question))
            .collect();
        if !fine.is_empty() {
            let label = Label { text: "ok", style: style(Verdict::Ok), indent: 0 };
            folded(out, &label, &format!("{}: {}", group.title(), fine.join(", ")), |_| Style::new());
        }
    }
    for (what, ids) in not_seen(report) {
        let style = style(Verdict::Unknown);
        let label = Label { text: "unknown", style, indent: 0 };
        folded(out, &label, &format!("{what}: {}", ids.join(", ")), |_| style);
    }
}
