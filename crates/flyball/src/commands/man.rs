//! `flyball man`: the manual, from the tables of `--help` and `explain`. Every command and
//! subcommand has its own page, such as flyball-trace-record(1).

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command as Process, Stdio},
};

use clap::{Arg, Command};
use flyball_control::{Access, TABLE};
use flyball_text::help::{Block, blocks};
use roff::{Roff, bold, italic, line_break, roman};

use crate::{
    exit::{Exit, Failure},
    help, output, terminal,
};

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flyball man
  flyball man compare
  flyball man trace record
  flyball man --dir /usr/local/share/man/man1")]
pub(crate) struct Args {
    /// The command whose page to open [default: flyball's own page]. If stdout is not a terminal,
    /// the page's source is printed.
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,

    /// Write the pages of all commands to this directory instead.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
}

/// The date in the pages.
const WRITTEN: &str = "2026-11-22";

/// Files that commands use without being named in arguments.
const FILES: &[(&str, &str)] = &[
    ("/run/flyball/journal", "What settings were before flyball changed them; `flyball restore` reads it."),
    ("/run/flyball/lock", "Locked by the command that is changing the machine."),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("FLYBALL_STATE", "Directory of the lock and the journal, as --state-dir."),
    ("NO_COLOR", "If set and not empty, no colours."),
    ("CLICOLOR_FORCE", "If set and not 0, colours also where stdout is not a terminal."),
];

pub(crate) fn run(top: Command, args: &Args) -> Result<Exit, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("cannot write the manual: {error}"));
    // clap propagates global options to subcommands only when built.
    let mut top = help::without_machine(top);
    top.build();
    if let Some(dir) = &args.dir {
        flyball_files::make_dirs(dir).map_err(failed)?;
        for (path, command) in pages(&top) {
            let page = breakable(&page(&top, &path, command).render());
            flyball_files::replace(&dir.join(format!("{}.1", path.join("-"))), page.as_bytes())
                .map_err(failed)?;
        }
        return Ok(Exit::Done);
    }
    let wanted: Vec<&str> =
        std::iter::once("flyball").chain(args.command.iter().map(String::as_str)).collect();
    let all = pages(&top);
    // Accept `trace record` and the names `trace-record` and `flyball-trace-record`.
    let name = wanted.join("-").replacen("flyball-flyball", "flyball", 1);
    let Some((path, command)) = all.iter().find(|(path, _)| path.join("-") == name) else {
        let command = args.command.join(" ");
        return Err(Failure::usage(format!("unknown command '{command}'\nhint: 'flyball help' lists them")));
    };
    let page = breakable(&page(&top, path, command).render());
    if terminal::is_terminal() && opened(&page) {
        return Ok(Exit::Done);
    }
    output::raw(&page)?;
    Ok(Exit::Done)
}

/// Shows a page with the program man, like `git help`. Returns false if there is no such program.
fn opened(page: &str) -> bool {
    let man = Process::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn();
    let Ok(mut man) = man else { return false };
    if let Some(mut pipe) = man.stdin.take() {
        // A reader who quits early closes the pipe.
        let _ = pipe.write_all(page.as_bytes());
    }
    man.wait().is_ok_and(|status| status.success())
}

/// Allows line breaks after the slashes of long paths.
fn breakable(page: &str) -> String {
    const LONG: usize = 40;
    // In groff, `\:` allows a break without a hyphen.
    let word = |word: &str| if word.len() > LONG { word.replace('/', "/\\:") } else { word.to_owned() };
    let line = |line: &str| match line.strip_prefix('.') {
        // A request (.TH, .SH): its arguments are not filled, and the escape would appear in a
        // heading.
        Some(_) => line.to_owned(),
        None => line.split(' ').map(word).collect::<Vec<_>>().join(" "),
    };
    page.lines().map(|text| line(text) + "\n").collect()
}

/// The subcommands that have a page.
fn below(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help")
}

/// Returns every command in help, with the names that lead to it.
fn pages(top: &Command) -> Vec<(Vec<&str>, &Command)> {
    let mut pages = vec![(vec!["flyball"], top)];
    let mut at = 0;
    // The list grows during the walk: breadth first, so parents come before their subcommands.
    while let Some((path, command)) = pages.get(at).cloned() {
        pages.extend(below(command).map(|one| ([&path[..], &[one.get_name()]].concat(), one)));
        at += 1;
    }
    pages
}

fn page(top: &Command, path: &[&str], command: &Command) -> Roff {
    let mut roff = Roff::new();
    let version = format!("flyball {}", env!("CARGO_PKG_VERSION"));
    // A fixed date, so that the same source gives the same page.
    roff.control("TH", [path.join("-").to_uppercase().as_str(), "1", WRITTEN, &version, "User Commands"]);
    // Left-aligned without hyphenation, so that paths and commands can be copied and no line is
    // stretched.
    roff.control("ad", ["l"]);
    roff.control("nh", []);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{} - {about}", path.join("-")))]);
    synopsis(&mut roff, path, command);
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let blocks = blocks(&text);
    description(&mut roff, command, &blocks);
    commands(&mut roff, path, command);
    options(&mut roff, path, command);
    if path.len() == 1 {
        knobs(&mut roff);
    }
    examples(&mut roff, &blocks);
    list(&mut roff, "FILES", FILES);
    list(&mut roff, "ENVIRONMENT", ENVIRONMENT);
    exit_status(&mut roff, top, path);
    see_also(&mut roff, top, path);
    roff
}

fn synopsis(roff: &mut Roff, path: &[&str], command: &Command) {
    roff.control("SH", ["SYNOPSIS"]);
    let mut line = vec![bold(path.join(" ")), roman(" [OPTIONS]")];
    if command.has_subcommands() {
        line.extend([roman(" "), italic("COMMAND"), roman(" ...")]);
    }
    for arg in command.get_positionals().filter(|arg| !arg.is_hide_set()) {
        let many = if arg.get_num_args().is_some_and(|range| range.max_values() > 1) { "..." } else { "" };
        let name = value_name(arg);
        // Another program's command line follows.
        let before = if arg.is_last_set() { "-- " } else { "" };
        line.push(roman(" "));
        if arg.is_required_set() {
            line.extend([roman(before), italic(name), roman(many)]);
        } else {
            line.extend([roman(format!("[{before}")), italic(name), roman(format!("{many}]"))]);
        }
    }
    roff.text(line);
}

fn value_name(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(clap::builder::Str::as_str).collect();
    // The name that clap uses in help.
    if names.is_empty() { arg.get_id().as_str().to_uppercase() } else { names.join(" ") }
}

fn description(roff: &mut Roff, command: &Command, blocks: &[Block]) {
    roff.control("SH", ["DESCRIPTION"]);
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
    for (at, paragraph) in about.unwrap_or_default().split("\n\n").enumerate() {
        if at > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(paragraph.replace('\n', " "))]);
    }
    for block in blocks {
        match block {
            Block::Prose(text) => {
                roff.control("PP", []);
                roff.text([roman(text.as_str())]);
            }
            Block::Lines(lines) => verbatim(roff, lines),
            Block::Examples(_) | Block::ExitCodes(_) => {}
        }
    }
}

/// Writes lines that are not filled.
fn verbatim(roff: &mut Roff, lines: &[String]) {
    roff.control("PP", []);
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            roff.control("br", []);
        }
        // A leading blank would cause another break.
        roff.text([roman(line.trim_start())]);
    }
}

fn commands(roff: &mut Roff, path: &[&str], command: &Command) {
    if below(command).next().is_none() {
        return;
    }
    roff.control("SH", ["COMMANDS"]);
    for one in below(command) {
        roff.control("TP", []);
        roff.text([bold(format!("{}-{}", path.join("-"), one.get_name())), roman("(1)")]);
        roff.text([roman(one.get_about().map(ToString::to_string).unwrap_or_default())]);
    }
}

/// Writes positional arguments and options. Options of every command are described on the first
/// page only.
fn options(roff: &mut Roff, path: &[&str], command: &Command) {
    let own = |arg: &&Arg| !arg.is_hide_set() && (path.len() == 1 || !arg.is_global_set());
    let all: Vec<&Arg> = command.get_arguments().filter(own).collect();
    if !all.is_empty() {
        roff.control("SH", ["OPTIONS"]);
    }
    for arg in &all {
        roff.control("TP", []);
        let mut head = Vec::new();
        if let Some(short) = arg.get_short() {
            // Every option of flyball has a long name, which comes next.
            head.extend([bold(format!("-{short}")), roman(", ")]);
        }
        let takes = arg.get_action().takes_values();
        match arg.get_long() {
            Some(long) => {
                head.push(bold(format!("--{long}")));
                if takes {
                    let (open, close) = if arg.is_require_equals_set() { ("[=", "]") } else { (" ", "") };
                    head.extend([roman(open), italic(value_name(arg)), roman(close)]);
                }
            }
            None => head.push(italic(value_name(arg))),
        }
        roff.text(head);
        let text = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let default: Vec<String> =
            arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
        // Flags have the default `false`, which is not shown.
        let default = if takes && !default.is_empty() {
            format!(" [default: {}]", default.join(", "))
        } else {
            String::new()
        };
        roff.text([roman(format!("{}{default}", text.replace('\n', " ")))]);
    }
    if path.len() > 1 {
        roff.control("PP", []);
        roff.text([roman("Common options, such as -M and --json, are in "), bold("flyball"), roman("(1).")]);
    }
}

fn knobs(roff: &mut Roff) {
    for (access, heading) in [(Access::ReadWrite, "KNOBS"), (Access::ReadOnly, "FACTS")] {
        roff.control("SH", [heading]);
        for knob in TABLE.iter().filter(|knob| knob.access() == access) {
            roff.control("TP", []);
            roff.text([bold(knob.name), roman(format!(" ({}, one per {})", knob.title, knob.scope))]);
            roff.text([roman(knob.about)]);
            if !knob.accepts().is_empty() {
                roff.text([line_break(), roman(format!("Takes {}.", knob.accepts()))]);
            }
            for mechanism in knob.mechanisms {
                roff.text([line_break(), roman(mechanism.to_string())]);
            }
        }
    }
}

fn examples(roff: &mut Roff, blocks: &[Block]) {
    let all: Vec<_> = blocks
        .iter()
        .filter_map(|block| match block {
            Block::Examples(all) => Some(all),
            _ => None,
        })
        .flatten()
        .collect();
    if all.is_empty() {
        return;
    }
    roff.control("SH", ["EXAMPLES"]);
    for (at, example) in all.into_iter().enumerate() {
        match &example.note {
            Some(note) => {
                roff.control("TP", []);
                roff.text([bold(example.command.as_str())]);
                roff.text([roman(note.as_str())]);
            }
            None => {
                if at > 0 {
                    roff.control("PP", []);
                }
                roff.text([bold(example.command.as_str())]);
            }
        }
    }
}

/// Writes a section that lists names with descriptions.
fn list(roff: &mut Roff, heading: &str, items: &[(&str, &str)]) {
    roff.control("SH", [heading]);
    for (name, text) in items {
        roff.control("TP", []);
        roff.text([bold(*name)]);
        roff.text([roman(*text)]);
    }
}

/// Writes the exit codes explained by this command or by one above it. If there are none, writes
/// all codes.
fn exit_status(roff: &mut Roff, top: &Command, path: &[&str]) {
    roff.control("SH", ["EXIT STATUS"]);
    let mut own = None;
    let mut command = Some(top);
    for name in path.iter().skip(1) {
        command = command.and_then(|above| above.find_subcommand(name));
        let text = command.and_then(Command::get_after_help).map(ToString::to_string).unwrap_or_default();
        let codes = blocks(&text).into_iter().find_map(|block| match block {
            Block::ExitCodes(text) => Some(text),
            _ => None,
        });
        own = codes.or(own);
    }
    if let Some(own) = own {
        roff.text([roman(own.strip_prefix("Exit codes: ").unwrap_or(&own))]);
        return;
    }
    for (code, meaning) in Exit::TABLE {
        roff.control("TP", []);
        roff.text([bold(code.to_string())]);
        roff.text([roman(meaning.trim())]);
    }
}

/// Writes the section that refers to related pages.
fn see_also(roff: &mut Roff, top: &Command, path: &[&str]) {
    roff.control("SH", ["SEE ALSO"]);
    let (_, above) = path.split_last().unwrap_or((&"", &[]));
    let names: Vec<String> = pages(top)
        .into_iter()
        .map(|(other, _)| other)
        .filter(|other| other != path && (other.len() == 1 || other[..other.len() - 1] == *above))
        .map(|other| other.join("-"))
        .collect();
    let mut line = Vec::new();
    for (at, name) in names.iter().enumerate() {
        if at > 0 {
            line.push(roman(", "));
        }
        line.extend([bold(name.as_str()), roman("(1)")]);
    }
    if path.len() == 1 {
        line = vec![
            roman("The pages of the commands above; "),
            bold("cpupower"),
            roman("(1), "),
            bold("turbostat"),
            roman("(8)"),
        ];
    }
    roff.text(line);
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_subcommand_has_a_page_with_all_sections() {
        let mut top = help::without_machine(crate::cli::Cli::command());
        top.build();
        let all = pages(&top);
        assert!(all.iter().any(|(path, _)| path.join("-") == "flyball-trace-record"));
        for (path, command) in &all {
            let text = page(&top, path, command).render();
            for section in
                ["NAME", "SYNOPSIS", "DESCRIPTION", "FILES", "ENVIRONMENT", "\"EXIT STATUS\"", "\"SEE ALSO\""]
            {
                assert!(text.contains(&format!(".SH {section}\n")), "{path:?} lacks {section}");
            }
        }
    }
}
