//! Prints the doctor's report as text: findings first, the worst first. Checks that are ok share
//! one line per group.

use std::fmt::Write as _;

use flyball_control::doctor::{Finding, Fix, Group, KnobValue, Report, Verdict};

use crate::{
    paint::one_line,
    terminal::{self, Mark},
};

fn style(verdict: Verdict) -> Mark {
    match verdict {
        Verdict::Ok => Mark::Green,
        Verdict::Unknown => Mark::Grey,
        Verdict::Note => Mark::Cyan,
        Verdict::Warning => Mark::BoldYellow,
        Verdict::Fault => Mark::BoldRed,
    }
}

const BOLD: Mark = Mark::Bold;
const DIM: Mark = Mark::Faint;

pub(super) fn render(report: &Report, verbose: bool) -> String {
    let mut out = String::new();
    let kind = match report.kind {
        flyball_host::Kind::Live if report.machine == flyball_host::Live::NAME => String::new(),
        // A guest, or a simulated machine that is served to this process.
        flyball_host::Kind::Live => format!(" · {}", report.machine),
        // The kernel release, which is next to it, already says that it is simulated.
        flyball_host::Kind::Recorded
            if report.kernel.as_deref().is_some_and(|release| release.ends_with("-flyball-sim")) =>
        {
            format!(" · simulated, recorded: {}", report.machine)
        }
        flyball_host::Kind::Recorded => format!(" · recorded: {}", report.machine),
        flyball_host::Kind::Simulated => format!(" · simulated: {}", report.machine),
    };
    let kernel = report.kernel.as_ref().map(|release| format!(" · Linux {release}")).unwrap_or_default();
    let _ = write!(out, "{BOLD}{}{BOLD:#}", one_line(report.processor.clone()));
    let beside = one_line(format!("{kernel}{kind}"));
    // If the line is too long for the terminal, the details go below the processor's name.
    let long = report.processor.chars().count() + beside.chars().count() > width();
    if long && terminal::is_terminal() {
        let _ = write!(out, "\n{}", beside.trim_start_matches(" · "));
    } else {
        out.push_str(&beside);
    }
    out.push('\n');
    if let Some(hidden) = &report.not_visible {
        out.push('\n');
        for text in [&hidden.what, &hidden.remedy] {
            folded(&mut out, &Label::NONE, &format!("{}.", sentence(text)), |_| Mark::Plain);
        }
        for seen in &hidden.evidence {
            let _ = writeln!(out, "  {DIM}{}{DIM:#}  {}", seen.place, one_line(seen.value.clone()));
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
        // Separate findings and summary with an empty line.
        if report.worst() >= Verdict::Note {
            out.push('\n');
        }
        brief(&mut out, report);
    }
    let settings = report.settings();
    if !settings.is_empty() {
        let _ = writeln!(out, "\nWhat flyball can set: {BOLD}flyball plan {}{BOLD:#}", words(&settings));
    }
    let differs = |finding: &Finding| finding.id.starts_with("storpool.") && finding.verdict >= Verdict::Note;
    if report.findings.iter().any(differs) {
        let _ = writeln!(
            out,
            "The page's settings are a profile, which saves power for some latency: {BOLD}flyball plan storage{BOLD:#}"
        );
    }
    out
}

/// Groups unknown checks by reason. All files that a recording lacks count as one reason.
fn not_seen(report: &Report) -> Vec<(String, Vec<&str>)> {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for finding in report.findings.iter().filter(|finding| finding.verdict == Verdict::Unknown) {
        let what =
            if finding.not_recorded { "not in this recording".to_owned() } else { finding.what.clone() };
        match reasons.iter_mut().find(|(known, _)| *known == what) {
            Some((_, ids)) => ids.push(finding.id),
            None => reasons.push((what, vec![finding.id])),
        }
    }
    reasons
}

/// Capitalizes `text`, unless it starts with the name of a program, driver or file.
fn sentence(text: &str) -> String {
    let first = text.split_whitespace().next().unwrap_or_default();
    // `intel_pstate` with a capital letter would be another name.
    if first.contains(['-', '_', '.', '/', '=']) {
        return text.to_owned();
    }
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Formats settings as arguments of `flyball set`.
fn words(settings: &[KnobValue]) -> String {
    settings.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
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
    let plain = |_: &str| Mark::Plain;
    let label = |text| Label { text, style: DIM, indent: 9 };
    folded(out, &label("why"), finding.why, plain);
    for seen in &finding.evidence {
        folded(out, &label("seen"), &format!("{} = {}", seen.place, seen.value), plain);
    }
    if let Some(fix) = &finding.fix {
        let text = match fix {
            Fix::Settings(settings) => format!("flyball set {}", words(settings)),
            Fix::KernelParameter(action) => format!("kernel command line: {action}"),
            Fix::Firmware(entry) => format!("firmware setup: {entry}"),
            Fix::Person(action) => action.clone(),
        };
        folded(out, &label("do"), &text, plain);
    }
}

/// The label before a paragraph.
struct Label<'a> {
    text: &'a str,
    style: Mark,
    /// Indentation before the label.
    indent: usize,
}

impl Label<'_> {
    /// A paragraph without a label.
    const NONE: Label<'static> = Label { text: "", style: Mark::Plain, indent: 0 };
}

/// Writes a paragraph after its label, wrapped to the terminal's width, each word in its style.
fn folded(out: &mut String, label: &Label<'_>, text: &str, of_word: impl Fn(&str) -> Mark) {
    // The longest verdicts (warning, unknown) have 7 letters and two blanks after them, the longest
    // label below has 5.
    let room = match (label.text, label.indent) {
        ("", _) => 0,
        (_, 0) => 9,
        _ => 6,
    };
    let (start, style) = (label.indent + room, label.style);
    let _ = write!(out, "{:indent$}{style}{}{style:#}", "", label.text, indent = label.indent);
    let _ = write!(out, "{:blanks$}", "", blanks = start - label.indent - label.text.len());
    let mut column = start;
    for (number, word) in text.split_whitespace().enumerate() {
        let length = word.chars().count();
        // Never move the first word: a path cannot be broken, and has no more room on the next
        // line.
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

/// The width of the terminal, between 60 and 110 columns; 100 if stdout is not a terminal.
fn width() -> usize {
    crate::paint::terminal_columns().map_or(100, |columns| columns.clamp(60, 110))
}

/// A check in the list.
#[derive(schemars::JsonSchema, serde::Serialize)]
pub(crate) struct Row {
    /// The stable name of the check.
    pub(super) id: &'static str,
    pub(super) group: Group,
    /// Why it matters.
    pub(super) why: &'static str,
    /// What it reads.
    pub(super) looks: &'static str,
    /// The option that enables it.
    pub(super) option: Option<&'static str>,
}

/// Lists the checks by group.
pub(super) fn list(rows: &[Row]) -> String {
    let mut out = String::new();
    let mut groups: Vec<Group> = rows.iter().map(|row| row.group).collect();
    groups.sort();
    groups.dedup();
    for group in groups {
        let _ = writeln!(out, "{BOLD}{}{BOLD:#}", group.title());
        for Row { id, why, looks, option, .. } in rows.iter().filter(|row| row.group == group) {
            let option = option.map_or_else(String::new, |option| format!("  ({option})"));
            let _ = writeln!(out, "  {id}{DIM}{option}{DIM:#}");
            let plain = |_: &str| Mark::Plain;
            folded(&mut out, &Label { text: "why", style: DIM, indent: 4 }, why, plain);
            folded(&mut out, &Label { text: "looks", style: DIM, indent: 4 }, looks, plain);
        }
        out.push('\n');
    }
    out.pop();
    out
}

/// Writes one line per group for checks that are ok, and the reasons for unknown checks.
fn brief(out: &mut String, report: &Report) {
    for group in [
        Group::Driver,
        Group::AmdPstate,
        Group::Firmware,
        Group::Conflicts,
        Group::Now,
        Group::Trace,
        Group::Recommended,
    ] {
        let fine: Vec<&str> = report
            .findings
            .iter()
            .filter(|finding| finding.group == group && finding.verdict == Verdict::Ok)
            // Do not repeat the group's name in front of each check.
            .map(|finding| finding.id.split_once('.').map_or(finding.id, |(_, question)| question))
            .collect();
        if !fine.is_empty() {
            let label = Label { text: "ok", style: style(Verdict::Ok), indent: 0 };
            folded(out, &label, &format!("{}: {}", group.title(), fine.join(", ")), |_| Mark::Plain);
        }
    }
    for (what, ids) in not_seen(report) {
        let style = style(Verdict::Unknown);
        let label = Label { text: "unknown", style, indent: 0 };
        folded(out, &label, &format!("{what}: {}", ids.join(", ")), |_| style);
    }
}
