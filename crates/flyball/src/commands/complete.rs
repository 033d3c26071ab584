//! `flyball complete WORDS...`: prints what a shell can offer at the cursor, for the scripts of
//! `flyball completions`. The last word is being typed. Commands and options come from the command
//! line definition, values from their names in help: knobs, their values on the machine of -M,
//! machines, CPUs.

mod values;

use clap::{Arg, Command};
use flyball_control::Knob;

use crate::{
    exit::{Exit, Failure},
    help,
    machine::MachineArg,
    output,
};

/// Arguments of `complete`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The words of the command line up to the cursor, without the program's.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// A completion: the word, and its description.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Offer {
    word: String,
    about: String,
}

impl Args {
    /// Returns whether values come from a machine that somebody else may have written.
    pub(crate) fn names_machine(&self) -> bool {
        self.words.iter().any(|word| word.starts_with("-M") || word.starts_with("--machine"))
    }
}

impl Offer {
    fn new(word: impl Into<String>, about: impl Into<String>) -> Offer {
        Offer { word: word.into(), about: about.into() }
    }
}

/// Returns the values of a knob on the machine, if it has a list of them.
pub(crate) fn values_of(knob: &Knob, machine: &MachineArg) -> Vec<String> {
    values::values(knob, machine)
}

/// Prints the completions, one per line: the word, a tab, the description. A line `:files` says
/// that file names fit too.
pub(crate) fn run(top: Command, args: &Args) -> Result<Exit, Failure> {
    let (words, current) = match args.words.split_last() {
        Some((last, words)) => (words, last.as_str()),
        None => (&[][..], ""),
    };
    let (offers, files) = Cursor::new(top, words).offers(current);
    let mut out = String::new();
    let fits = |offer: &&Offer| offer.word.starts_with(current) && is_plain(&offer.word);
    for offer in offers.iter().filter(fits) {
        // A tab would end the word, and a newline the completion.
        let about: String = offer.about.chars().take_while(|char| !matches!(char, '\n' | '\t')).collect();
        out += &format!("{}\t{about}\n", offer.word);
    }
    if files {
        out += ":files\n";
    }
    output::raw(&out)?;
    Ok(Exit::Done)
}

/// Returns whether a shell can take the word without quotes. Words may come from files of a
/// machine, and bash puts them on the command line unquoted.
fn is_plain(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.,:=%+-/@".contains(&byte))
}

/// The position of the cursor on the command line.
struct Cursor {
    /// The whole command line.
    top: Command,
    /// The command that is being typed.
    command: Command,
    /// The names of the commands up to `command`.
    path: Vec<String>,
    /// The option that expects a value next.
    pending: Option<Arg>,
    /// Number of positional arguments so far.
    positional: usize,
    /// The cursor is after `--`, in another command.
    foreign: bool,
    machine: MachineArg,
}

impl Cursor {
    fn new(top: Command, words: &[String]) -> Cursor {
        let mut command = help::without_machine(top);
        // Propagates global options to subcommands, and adds --help.
        command.build();
        let top = command.clone();
        // Until -M is found, which may be anywhere on the line.
        let machine = MachineArg::Live;
        let mut place =
            Cursor { top, command, path: Vec::new(), pending: None, positional: 0, foreign: false, machine };
        for word in words {
            place.take(word);
        }
        place
    }

    fn take(&mut self, word: &str) {
        if self.foreign {
            return;
        }
        if let Some(arg) = self.pending.take() {
            self.value(&arg, word);
        } else if word == "--" {
            self.foreign = true;
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            if let Some(arg) = self.option(|arg| names(arg).contains(&name)) {
                match value {
                    Some(value) => self.value(&arg, value),
                    None => self.pending = Some(arg).filter(needs_value),
                }
            }
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            // Letters may be combined (-nv). The rest after a letter that takes a value is its
            // value (-c0-3).
            for (at, letter) in letters.char_indices() {
                let is =
                    |arg: &Arg| arg.get_short_and_visible_aliases().is_some_and(|all| all.contains(&letter));
                let Some(arg) = self.option(is).filter(needs_value) else { continue };
                let rest = &letters[at + letter.len_utf8()..];
                if rest.is_empty() {
                    self.pending = Some(arg);
                } else {
                    self.value(&arg, rest);
                }
                break;
            }
        } else if let Some(below) = self.command.find_subcommand(word).cloned() {
            self.command = below;
            self.path.push(word.to_owned());
            self.positional = 0;
        } else if self.path.first().is_some_and(|first| first == "man") {
            // The arguments of `man` are the path of a command.
            self.path.push(word.to_owned());
        } else {
            self.positional += 1;
        }
    }

    fn option(&self, is: impl Fn(&Arg) -> bool) -> Option<Arg> {
        self.command.get_arguments().find(|arg| !arg.is_positional() && is(arg)).cloned()
    }

    fn value(&mut self, arg: &Arg, value: &str) {
        if arg.get_id() == "machine"
            && let Ok(machine) = value.parse()
        {
            self.machine = machine;
        }
    }

    /// Returns the words that fit at the cursor, and whether files fit.
    fn offers(&self, current: &str) -> (Vec<Offer>, bool) {
        if self.foreign {
            // Another program's arguments are not known. Files fit most often.
            return (Vec::new(), true);
        }
        if let Some(arg) = &self.pending {
            return self.offers_for(arg, current);
        }
        if let Some((name, value)) = current.strip_prefix("--").and_then(|rest| rest.split_once('=')) {
            let Some(arg) = self.option(|arg| names(arg).contains(&name)) else {
                return (Vec::new(), false);
            };
            let (mut offers, files) = self.offers_for(&arg, value);
            // The shell replaces the whole word, so each completion must include the option.
            for offer in &mut offers {
                offer.word = format!("--{name}={}", offer.word);
            }
            return (offers, files);
        }
        if current.starts_with('-') {
            return (self.options(), false);
        }
        let mut offers: Vec<Offer> = self
            .command
            .get_subcommands()
            .filter(|one| !one.is_hide_set())
            .map(|one| {
                Offer::new(one.get_name(), one.get_about().map(ToString::to_string).unwrap_or_default())
            })
            .collect();
        let mut files = false;
        let positionals: Vec<&Arg> =
            self.command.get_positionals().filter(|arg| !arg.is_last_set()).collect();
        // The last positional argument may accept all that follow.
        if let Some(arg) = positionals.get(self.positional).or(positionals.last()) {
            let (more, of_files) = self.offers_for(arg, current);
            offers.extend(more);
            files = of_files;
        }
        (offers, files)
    }

    fn options(&self) -> Vec<Offer> {
        self.command
            .get_arguments()
            .filter(|arg| !arg.is_hide_set())
            .filter_map(|arg| {
                let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
                Some(Offer::new(format!("--{}", arg.get_long()?), help::first_sentence(&about)))
            })
            .collect()
    }

    fn offers_for(&self, arg: &Arg, current: &str) -> (Vec<Offer>, bool) {
        values::offers(arg, &self.top, &self.path, &self.machine, current)
    }
}

/// Returns the long names of an option, including hidden ones.
fn names(arg: &Arg) -> Vec<&str> {
    arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default()).collect()
}

fn needs_value(arg: &Arg) -> bool {
    // `--quiet=LEVEL` takes its value after `=` only; the next word is another argument.
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the completions for a line, whose last word is being typed.
    fn offered(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (current, before) = words.split_last().unwrap();
        let (offers, files) =
            Cursor::new(<crate::cli::Cli as clap::CommandFactory>::command(), before).offers(current);
        let files = files.then(|| ":files".to_owned());
        offers
            .into_iter()
            .map(|offer| offer.word)
            .filter(|word| word.starts_with(current))
            .chain(files)
            .collect()
    }

    #[test]
    fn commands_and_options_are_offered_and_hidden_ones_not() {
        assert_eq!(offered("co"), ["compare", "completions"]);
        assert_eq!(offered("gu"), ["guest"]);
        assert!(!offered("").iter().any(|word| word == "guardian" || word == "task" || word == "complete"));
        assert_eq!(offered("sst perf-profile set-"), ["set-config-level"]);
        assert_eq!(offered("compare --dry"), ["--dry-run"]);
        assert_eq!(offered("completions -"), ["--color", "--help", "--version"]);
    }

    #[test]
    fn knobs_and_their_values_are_offered() {
        assert_eq!(offered("get gov"), ["governor"]);
        assert_eq!(offered("set gov"), ["governor="]);
        assert_eq!(offered("set cur-f"), Vec::<String>::new());
        assert_eq!(offered("-M sim:gold-6138 set governor="), ["governor=performance", "governor=powersave"]);
        assert_eq!(offered("-M sim:gold-6138 set governor=perf"), ["governor=performance"]);
        assert_eq!(offered("set turbo=o"), ["turbo=on", "turbo=off"]);
        assert_eq!(offered("-M sim:hybrid-laptop set epp@type:E=po"), ["epp@type:E=power"]);
        assert_eq!(
            offered("-Msim:gold-6138 compare --matrix governor=performance,p"),
            ["governor=performance,performance", "governor=performance,powersave"]
        );
    }

    #[test]
    fn machines_cpus_and_files_are_offered() {
        assert_eq!(offered("-M sim:ryzen-5"), ["sim:ryzen-5750g", ":files"]);
        assert_eq!(offered("show --machine=sim:ryzen-5"), ["--machine=sim:ryzen-5750g", ":files"]);
        assert_eq!(offered("sim run epyc-5"), ["epyc-512", ":files"]);
        assert_eq!(offered("-M sim:hybrid-laptop get epp -c type:"), ["type:P", "type:E"]);
        assert_eq!(offered("apply stor"), ["storage", ":files"]);
        assert_eq!(offered("apply my-pro"), [":files"]);
        assert_eq!(offered("quiet --level s"), ["steady"]);
        assert_eq!(offered("show --kernel 6.1"), ["6.1", "6.12", "6.18", ":files"]);
        assert_eq!(offered("man comp"), ["compare", "completions"]);
        assert_eq!(offered("man trace re"), ["record", "report"]);
        assert_eq!(offered("tune --over hwp-dyn"), ["hwp-dynamic-boost="]);
        assert_eq!(offered("tune --minimize en"), ["energy", "energy-per-work"]);
        assert_eq!(offered("tune --preset l"), ["latency"]);
        assert_eq!(offered("doctor --only conflict.nohz"), ["conflict.nohz-full"]);
        assert_eq!(offered("run turbo=off -- ma"), [":files"]);
        assert_eq!(offered("-M sim:sst-guide sst perf-profile info --level "), ["0", "1", "2", "3", "4"]);
    }
}
