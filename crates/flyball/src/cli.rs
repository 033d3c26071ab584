//! What the user may type. Every command's own arguments are in its module under `commands`.

use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};

use crate::{
    commands,
    machine::{EVERYWHERE, MachineOptions},
};

/// Put a machine's processors into the state a workload needs, prove what it is worth, put everything back.
#[derive(Debug, Parser)]
#[command(name = "flyball", version, propagate_version = true, max_term_width = WIDEST)]
pub struct Cli {
    #[command(flatten)]
    pub machine: MachineOptions,

    /// Print data as JSON on stdout.
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,

    /// Where the lock and the journal are kept, if not in /run/flyball (also: FLYBALL_STATE). Two flyballs with directories
    /// of their own do not know of each other.
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,

    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The whole machine on one screen.
    Show(commands::show::Args),

    /// Values of knobs, for people and scripts.
    Get(commands::get::Args),

    /// What a knob does, takes, interacts with, and where it lives.
    Explain(commands::explain::Args),

    /// Is this machine set up as it should be, and what should change?
    Doctor(commands::doctor::Args),

    /// Change settings, to stay: governor=performance turbo=off and so on.
    Set(commands::set::Args),

    /// Say every write that settings would take, and why; write nothing.
    Plan(commands::plan::Args),

    /// Apply a profile, to stay.
    Apply(commands::apply::Args),

    /// Do settings hold? If not, who may have changed them?
    Verify(commands::verify::Args),

    /// Bring back what was before flyball changed it, also after a crash.
    Restore(commands::restore::Args),

    /// Write the present settings as a profile.
    Save(commands::save::Args),

    /// Run one workload under several settings, and say what differs and how surely.
    Compare(commands::compare::Args),

    /// Run one command under settings, then put them back.
    Run(commands::run::Args),

    /// Make the report of a comparison again, or read a selftest's CSV.
    Report(commands::report::Args),

    /// A steady machine for benchmarks, and where a series of runs shifted.
    Quiet(commands::quiet::Args),

    /// Intel Speed Select: levels, base-freq, turbo-freq, core-power, with plan and undo.
    Sst(commands::sst::Args),

    /// Every decision of the P-state driver: record, report, diagnose.
    Trace(commands::trace::Args),

    /// Machines that are not here: list them, run any tool on one, check them against measurements.
    Sim(commands::sim::Args),

    /// Real kernels on virtual silicon: boot one, run a command in it, see what its driver does.
    Guest(commands::guest::Args),

    /// Record this machine into one file, for -M on another.
    Record(commands::record::Args),

    /// The drop-in for intel-speed-select: its command lines, output and exit codes.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    IntelSpeedSelect(commands::intel_speed_select::Args),

    /// Print the manual.
    Man(commands::man::Args),

    /// Print completions for a shell.
    Completions(commands::completions::Args),

    /// Do a built-in workload once and print its result.
    #[command(hide = true)]
    Task(commands::task::Args),

    /// The process that restores when flyball dies.
    #[command(hide = true)]
    Guardian(commands::guardian::Args),
}

/// The whole command line, for parsing, the manual and completions, its texts ready to be wrapped to any terminal.
pub fn command() -> clap::Command {
    flowing(Cli::command(), &unbroken)
}

/// The same for the terminal at hand: examples that are too long for it are parted where they can still be read and copied.
pub fn command_here() -> clap::Command {
    // As clap finds its width.
    let told = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let columns = crate::paint::terminal_columns().or_else(told).unwrap_or(100).min(WIDEST);
    flowing(Cli::command(), &|text| fitting(&unbroken(text), columns))
}

/// Help is no wider than this.
const WIDEST: usize = 120;

/// Paragraphs behind the options are written in lines of source; to wrap well they must be one line each.
fn flowing(command: clap::Command, change: &dyn Fn(&str) -> String) -> clap::Command {
    let names: Vec<String> = command.get_subcommands().map(|each| each.get_name().to_owned()).collect();
    let text = command.get_after_help().map(|text| change(&text.to_string()));
    let command = match text {
        Some(text) => command.after_help(text),
        None => command,
    };
    names
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, |subcommand| flowing(subcommand, change)))
}

/// Joins lines that only the width of the source has parted: those behind a long line, neither indented nor empty.
fn unbroken(text: &str) -> String {
    const LONG: usize = 80;
    let mut joined = String::with_capacity(text.len());
    // The parser takes the spaces before the first line away, and so its place among the examples.
    if text.starts_with("  ") {
        joined.push_str("Examples:\n");
    }
    let mut before: Option<&str> = None;
    for line in text.lines() {
        let is_flowing = |line: &str| !line.is_empty() && !line.starts_with(' ');
        match before {
            Some(last) if last.len() >= LONG && is_flowing(last) && is_flowing(line) => joined.push(' '),
            Some(_) => joined.push('\n'),
            None => {}
        }
        joined.push_str(line);
        before = Some(line);
    }
    joined
}

/// Parts indented lines that are longer than `columns`: what is said of an example goes below it, and what is left of a long
/// command line goes on behind a backslash.
fn fitting(text: &str, columns: usize) -> String {
    const DEEPER: &str = "      ";
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let indented = line.starts_with("  ") && !line.trim_start().is_empty();
        if !indented || line.len() <= columns {
            lines.push(line.to_owned());
            continue;
        }
        let content = line.trim_start();
        let (command, said) = content.split_once("  ").unwrap_or((content, ""));
        let mut part = format!("  {command}");
        // Not inside quotes, where a backslash would be taken for itself.
        while part.len() > columns {
            let room = columns.saturating_sub(2).min(part.len());
            let gaps: Vec<usize> = part
                .match_indices(' ')
                .map(|(at, _)| at)
                .filter(|&at| at > DEEPER.len() && at <= room && part[..at].matches('\'').count() % 2 == 0)
                .collect();
            // An option stays with its value.
            let before_option = gaps.iter().rfind(|&&at| part[at..].starts_with(" -"));
            let gap = before_option.or(gaps.last()).copied();
            let Some(gap) = gap else { break };
            lines.push(format!("{} \\", &part[..gap]));
            part = format!("{DEEPER}{}", part[gap..].trim_start());
        }
        lines.push(part);
        let mut below = String::new();
        for word in said.split_whitespace() {
            if !below.is_empty() && DEEPER.len() + below.len() + 1 + word.len() > columns {
                lines.push(format!("{DEEPER}{}", std::mem::take(&mut below)));
            }
            if !below.is_empty() {
                below.push(' ');
            }
            below.push_str(word);
        }
        if !below.is_empty() {
            lines.push(format!("{DEEPER}{below}"));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn examples_fit_the_terminal() {
        let text = "Examples:\n  flyball x --a 'one two' -- b    what it does and why\n  short    and clear\na paragraph that clap wraps";
        assert_eq!(fitting(text, 200), text);
        assert_eq!(
            fitting(text, 24),
            "Examples:\n  flyball x \\\n      --a 'one two' -- b\n      what it does and\n      why\n  short    and clear\n\
             a paragraph that clap wraps"
        );
        // A quoted text longer than the terminal is left for it to wrap.
        assert_eq!(fitting("  c 'a b c d e f g h'", 10), "  c 'a b c d e f g h'");
    }

    #[test]
    fn only_paragraphs_are_joined() {
        let long = "x".repeat(90);
        assert_eq!(
            unbroken(&format!("{long}\nend.\n\n  {long}\n  two\nshort\nlines")),
            format!("{long} end.\n\n  {long}\n  two\nshort\nlines")
        );
    }
}
