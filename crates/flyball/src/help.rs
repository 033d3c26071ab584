//! Help on a terminal. `-h` is short, with a sentence per option and a few examples. `--help` has
//! everything. Both are made from the doc comments of the arguments and from the text after them.
//! This module fits the examples in that text to the terminal, because lines that clap breaks at
//! blanks cannot be pasted.

use clap::{Arg, Command};

use flyball_text::{
    help::{after, blocks},
    wrap,
};

/// The commands by purpose. A test compares them with the command line.
const GROUPS: &[(&str, &[&str])] = &[
    ("Look", &["show", "top", "get", "explain", "why", "wake", "doctor", "exporter"]),
    ("Set and undo", &["plan", "set", "profiles", "apply", "verify", "restore", "hold", "save", "import"]),
    ("Measure", &["compare", "tune", "run", "report", "results", "quiet"]),
    ("Speed Select", &["sst", "intel-speed-select"]),
    ("Driver traces", &["trace", "amd_pstate_trace.py", "intel_pstate_tracer.py"]),
    ("Machines", &["sim", "guest", "record"]),
    ("About flyball", &["man", "completions", "schema", "help"]),
];

const FIRST: &str = "\
Examples:
  flyball show                             the machine on one screen
  sudo flyball set governor=performance    until reboot, or `flyball restore`
  flyball compare -M sim:ryzen-5750g --matrix epp=performance,power --workload sched-pipe";

/// Commands without a machine, or with a machine as an argument, and the global options that they
/// ignore.
const WITHOUT: &[(&str, &[&str])] = &[
    ("man", &["machine", "kernel", "sim_state", "sim_fault", "state_dir", "json"]),
    ("completions", &["machine", "kernel", "sim_state", "sim_fault", "state_dir", "json"]),
    ("schema", &["machine", "kernel", "sim_state", "sim_fault", "state_dir", "json"]),
    ("explain", &["machine", "kernel", "sim_state", "sim_fault", "state_dir"]),
    ("import", &["machine", "kernel", "sim_state", "sim_fault", "state_dir", "json"]),
    ("report", &["machine", "kernel", "sim_state", "sim_fault", "state_dir"]),
    ("results", &["machine", "kernel", "sim_state", "sim_fault", "state_dir"]),
    ("sim", &["machine", "state_dir"]),
    ("guest", &["machine", "sim_state", "sim_fault", "state_dir"]),
];

/// Lines of a screen, without the prompt.
const SCREEN: usize = 23;

/// The options in -h of commands that have dozens.
const SHORT: &[(&str, &[&str])] = &[
    (
        "compare",
        &["arm", "matrix", "rounds", "until", "fail_if", "quiet", "workload", "metric", "output", "dry_run"],
    ),
    (
        "tune",
        &[
            "over",
            "preset",
            "minimize",
            "maximize",
            "subject_to",
            "max_runs",
            "workload",
            "metric",
            "output",
            "dry_run",
        ],
    ),
];

/// Returns the command line `top` with help that fits `width` columns; `short` for the help of -h.
/// Fits only commands that the command line may have: all of them take longer than many commands
/// run.
pub(crate) fn command(top: Command, width: usize, short: bool, may_be: impl Fn(&str) -> bool) -> Command {
    let mut top = without_machine(top);
    let names = top.get_subcommands().map(Command::get_name).filter(|name| may_be(name));
    let names: Vec<String> = names.map(str::to_owned).collect();
    if short {
        top = main_options(top, &names);
    }
    top = top.term_width(width);
    let commands = list(&top, width);
    let options = options(&top, width);
    for name in names {
        top = top.mut_subcommand(&name, |command| fitted(command, width, &format!("flyball {name}"), ""));
        if short {
            top =
                top.mut_subcommand(&name, |command| on_a_screen(command, width, &format!("flyball {name}")));
        }
    }
    let first = first_screen(width);
    let about = top.get_about().map(ToString::to_string).unwrap_or_default();
    top.help_template("{after-help}\n").after_help(first).after_long_help(format!(
        "{about}.\n\nUsage: flyball [OPTIONS] COMMAND ...\n\n{commands}\n{options}\n{}",
        after(&blocks(FIRST), true, width)
    ))
}

/// Returns the screen of `flyball` without arguments and of `flyball -h`.
pub(crate) fn first_screen(width: usize) -> String {
    let groups: Vec<String> =
        GROUPS.iter().map(|(name, commands)| format!("  {name:<15}{}", commands.join("  "))).collect();
    format!(
        "Explain, change, hold and measure CPU settings, and restore what was there\n\nUsage: flyball [-M MACHINE] \
         COMMAND ...\n\n{}\n\n{}\n\n`flyball COMMAND -h` shows how, `flyball help` what each command does, and\n`flyball man` \
         is the manual. -M names another machine: sim:NAME, or a recording.",
        groups.join("\n"),
        after(&blocks(FIRST), false, width)
    )
}

/// Lists every command with its description, by group.
fn list(top: &Command, width: usize) -> String {
    let mut out = String::new();
    for (group, names) in GROUPS {
        out += &format!("{group}:\n");
        for name in *names {
            let about = top.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            // clap adds `help` itself, but only when it builds the command line.
            let about = about.unwrap_or_else(|| "Print this, or the help of a command".to_owned());
            for (index, line) in wrap(&about, width - 22).iter().enumerate() {
                out += &format!("  {:<18}  {line}\n", if index == 0 { *name } else { "" });
            }
        }
        out.push('\n');
    }
    out.pop();
    out
}

fn options(top: &Command, width: usize) -> String {
    let mut out = String::from("Common options:\n");
    for arg in top.get_arguments().filter(|arg| arg.is_global_set() && !arg.is_hide_set()) {
        let short = arg.get_short().map_or_else(|| "    ".to_owned(), |short| format!("-{short}, "));
        let values: Vec<String> =
            arg.get_value_names().unwrap_or_default().iter().map(|name| format!(" <{name}>")).collect();
        let values = if arg.get_action().takes_values() { values.concat() } else { String::new() };
        out += &format!("  {short}--{}{values}\n", arg.get_long().unwrap_or_default());
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        for line in wrap(&help, width - 10) {
            out += &format!("          {line}\n");
        }
    }
    out
}

/// Hides the global options that a command ignores.
pub(crate) fn without_machine(mut top: Command) -> Command {
    let globals: Vec<Arg> = top.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    for (name, ignored) in WITHOUT {
        let hidden: Vec<Arg> = globals
            .iter()
            .filter(|arg| ignored.contains(&arg.get_id().as_str()))
            .map(|arg| arg.clone().hide(true))
            .collect();
        // A command that has an option with the same id does not inherit the global one.
        if top.find_subcommand(name).is_some() {
            top = top.mut_subcommand(name, |command| command.args(hidden));
        }
    }
    top
}

/// Hides the global options and, in commands with dozens, all but the main options.
fn main_options(mut top: Command, names: &[String]) -> Command {
    let globals: Vec<Arg> = top.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    for name in names {
        let shown = SHORT.iter().find(|(command, _)| *command == name.as_str()).map(|(_, shown)| shown);
        top = top.mut_subcommand(name, |command| {
            without_globals(command, &globals).mut_args(|arg| match shown {
                Some(shown) if !shown.contains(&arg.get_id().as_str()) => arg.hide_short_help(true),
                _ => arg,
            })
        });
    }
    top
}

/// Hides the global options in a command and its subcommands, because conflicts may refer to them.
fn without_globals(mut command: Command, globals: &[Arg]) -> Command {
    let own: Vec<_> = command.get_arguments().map(|arg| arg.get_id().clone()).collect();
    let hidden = globals.iter().filter(|arg| !own.contains(arg.get_id()));
    command = command.args(hidden.map(|arg| arg.clone().hide(true)));
    for name in command.get_subcommands().map(|one| one.get_name().to_owned()).collect::<Vec<_>>() {
        command = command.mut_subcommand(&name, |one| without_globals(one, globals));
    }
    command
}

/// Makes -h of a command and its subcommands fit on a screen, with all options under one heading.
/// Hides the last declared options if there are too many, and then also the examples. Next to a
/// list of subcommands, options are more useful than examples.
fn on_a_screen(mut command: Command, width: usize, path: &str) -> Command {
    command = command.disable_version_flag(true).mut_args(|arg| {
        let values = arg.get_action().takes_values();
        arg.help_heading(None).hide_possible_values(values)
    });
    let more = format!("`{path} --help` has more.");
    let excess = |command: &Command| {
        let lines = command.clone().term_width(width).render_help().to_string().lines().count();
        lines.checked_sub(SCREEN).filter(|excess| *excess > 0)
    };
    if command.has_subcommands() && excess(&command).is_some() {
        command = command.after_help(more.clone());
    }
    while let Some(excess) = excess(&command) {
        let is_shown =
            |arg: &&Arg| !(arg.is_positional() || arg.is_hide_set() || arg.is_hide_short_help_set());
        let shown: Vec<_> =
            command.get_arguments().filter(is_shown).map(|arg| arg.get_id().clone()).collect();
        if shown.is_empty() {
            command = command.after_help(more);
            break;
        }
        // Hide half as many options as there are excess lines, because each may take one or two
        // lines.
        for id in shown.iter().rev().take(excess.div_ceil(2)) {
            command = command.mut_arg(id, |arg| arg.hide_short_help(true));
        }
    }
    for name in command.get_subcommands().map(|one| one.get_name().to_owned()).collect::<Vec<_>>() {
        command = command.mut_subcommand(&name, |one| on_a_screen(one, width, &format!("{path} {name}")));
    }
    command
}

/// Fits the help of a command and its subcommands to `width` columns. `above` is the nearest parent
/// with examples, for commands without their own.
fn fitted(mut command: Command, width: usize, path: &str, above: &str) -> Command {
    let text = command.get_after_help().map(ToString::to_string);
    let parts = text.as_deref().map(blocks).unwrap_or_default();
    let more = format!("`{path} --help` has more.");
    let short = after(&parts, false, width);
    let short = if short.is_empty() { more } else { format!("{short}\n\n{more}") };
    // Without a long help text, clap prints the short one.
    let (above, long) = match (parts.is_empty(), above) {
        (true, "") => ("", String::new()),
        (true, _) => (above, format!("Examples and exit codes: `{above} --help`")),
        (false, _) => (path, after(&parts, true, width)),
    };
    command = command.after_help(short).after_long_help(long);
    let below: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    for name in below {
        command = command.mut_subcommand(&name, |one| fitted(one, width, &format!("{path} {name}"), above));
    }
    command.mut_args(|arg| {
        let Some(help) = arg.get_help().map(ToString::to_string) else { return arg };
        let first = first_sentence(&help);
        // clap prints the long help only for --help, so use the first sentence for -h and the whole
        // text for --help.
        if arg.get_long_help().is_some() || first.len() == help.len() {
            return arg;
        }
        let first = first.to_owned();
        arg.help(first).long_help(help)
    })
}

/// The first sentence of an option's help.
pub(crate) fn first_sentence(help: &str) -> &str {
    help.find(". ").map_or(help, |end| &help[..end])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    /// Returns every short option, with its long names and their commands.
    fn letters() -> BTreeMap<char, BTreeMap<String, Vec<String>>> {
        let mut letters: BTreeMap<char, BTreeMap<String, Vec<String>>> = BTreeMap::new();
        let mut all = vec![(String::new(), Cli::command())];
        while let Some((path, command)) = all.pop() {
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let (Some(short), Some(long)) = (arg.get_short(), arg.get_long()) else { continue };
                letters.entry(short).or_default().entry(format!("--{long}")).or_default().push(path.clone());
            }
            for below in command.get_subcommands().filter(|one| !one.is_hide_set()) {
                // The kernel's tools define the options of their replacements.
                if below.get_name() != "intel-speed-select" && !below.get_name().ends_with(".py") {
                    all.push((format!("{path} {}", below.get_name()).trim().to_owned(), below.clone()));
                }
            }
        }
        letters
    }

    #[test]
    fn a_letter_has_one_meaning() {
        for (letter, options) in letters() {
            // Several names for a list of CPUs count as one meaning.
            let names = options.keys().filter(|name| *name != "--cpu").count();
            assert_eq!(names, 1, "-{letter} is {options:?}");
        }
    }

    #[test]
    fn every_command_is_in_one_group() {
        let mut named: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let top = Cli::command();
        let mut known: Vec<&str> = top
            .get_subcommands()
            .filter(|one| !one.is_hide_set())
            .map(Command::get_name)
            .chain(["help"])
            .collect();
        // Only in builds with guest support.
        if !known.contains(&"guest") {
            known.push("guest");
        }
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
    }

    #[test]
    fn the_first_screen_fits_a_small_terminal() {
        let screen = first_screen(80);
        // One line is for the prompt, and one for the command.
        assert!(screen.lines().count() <= 22, "{screen}");
        assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    }

    #[test]
    fn short_help_fits_a_small_terminal() {
        let mut top = command(Cli::command(), 80, true, |_| true);
        top.build();
        for (name, shown) in SHORT {
            let text = top.find_subcommand_mut(name).unwrap().render_help().to_string();
            for option in *shown {
                let option = option.replace('_', "-");
                assert!(text.contains(&format!("--{option}")), "{name} -h has no --{option}");
            }
        }
        // The list of all commands may be longer.
        let mut all: Vec<Command> = vec![top];
        while let Some(mut one) = all.pop() {
            all.extend(one.get_subcommands().filter(|one| one.get_name() != "help").cloned());
            let text = one.render_help().to_string();
            assert!(text.lines().count() <= SCREEN, "{text}");
        }
    }

    #[test]
    fn help_fits_its_width() {
        for width in [80, 100] {
            let mut top = command(Cli::command(), width, false, |_| true);
            // Propagates the width to subcommands.
            top.build();
            let mut all = vec![top];
            while let Some(mut one) = all.pop() {
                all.extend(one.get_subcommands().filter(|one| one.get_name() != "help").cloned());
                for text in [one.render_help(), one.render_long_help()] {
                    let text = text.to_string();
                    let wide = text.lines().find(|line| line.chars().count() > width);
                    assert!(wide.is_none(), "{} at {width}: {wide:?}", one.get_name());
                }
                let long = one.render_long_help().to_string();
                assert!(!long.contains("--help` has more"), "{long}");
            }
        }
    }
}
