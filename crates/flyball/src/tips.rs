//! Tips for a rejected command line: the words of other tools, and `run` without `--`.

use clap::{
    Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Names of commands in other tools, and flyball's.
const COMMANDS: &[(&str, &str)] = &[
    ("bench", "compare"),
    ("benchmark", "compare"),
    ("diff", "verify"),
    ("frequency-info", "show"),
    ("frequency-set", "set"),
    ("idle-info", "show"),
    ("idle-set", "set"),
    ("info", "show"),
    ("list", "explain"),
    ("ls", "explain"),
    ("monitor", "top"),
    ("reset", "restore"),
    ("status", "show"),
    ("undo", "restore"),
];

/// Options of hyperfine that `compare` lacks, or whose letters have another meaning in flyball,
/// with their replacements.
const HYPERFINE: [(&str, &str); 16] = [
    ("--max-runs", "--max-rounds, with --until"),
    ("-c", "--cleanup"),
    ("--dry-run", "--command-name, if it was -n"),
    ("-i", "--ignore-failure"),
    ("-m", "--min-runs"),
    ("-p", "--prepare"),
    ("-r", "--runs"),
    ("-w", "--warmup"),
    ("--debug-mode", NONE),
    ("--export-csv", "--export-json or --export-markdown"),
    ("--reference", "the first program"),
    ("--show-output", NONE),
    ("--sort", NONE),
    ("--style", NONE),
    ("--time-unit", NONE),
    ("-u", NONE),
];

const NONE: &str = "not needed";

pub(crate) fn with_tip(mut error: Error, words: &[String]) -> Error {
    let text = |error: &Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let typed = text(&error, ContextKind::InvalidSubcommand).unwrap_or_default();
            if let Some((_, ours)) = COMMANDS.iter().find(|(other, _)| *other == typed) {
                let ours = ContextValue::Strings(vec![(*ours).to_owned()]);
                error.insert(ContextKind::SuggestedSubcommand, ours);
            } else if let Some(ContextValue::Strings(similar)) =
                error.remove(ContextKind::SuggestedSubcommand)
            {
                // clap also suggests hidden commands.
                let top = <crate::cli::Cli as clap::CommandFactory>::command();
                let is_hidden =
                    |name: &String| top.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
                let similar: Vec<String> = similar.into_iter().filter(|name| !is_hidden(name)).collect();
                if !similar.is_empty() {
                    error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(similar));
                }
            }
        }
        ErrorKind::MissingRequiredArgument if words.windows(2).any(|pair| pair == ["sim", "run"]) => {}
        ErrorKind::MissingRequiredArgument if words.iter().any(|word| word == "run") => {
            // `run governor=performance make`: without --, the command looks like a setting.
            let at = words.iter().position(|word| word == "run").unwrap_or(0);
            let is_setting = |word: &String| word.contains('=') || word.starts_with('-');
            let command = words[at + 1..].iter().position(|word| !is_setting(word));
            if let Some(first) = command {
                let (settings, command) = words[at + 1..].split_at(first);
                let line = format!("flyball run {} -- {}", settings.join(" "), command.join(" "));
                tip(&mut error, format!("the command stands after --: {line}"));
            }
        }
        ErrorKind::UnknownArgument if words.iter().any(|word| word == "set-config-level") => {
            if let Some(level) =
                text(&error, ContextKind::InvalidArg).filter(|level| level.parse::<u8>().is_ok())
            {
                tip(&mut error, format!("the level is an option: -l {level}"));
            }
        }
        ErrorKind::UnknownArgument if words.get(1).is_some_and(|word| word == "why") => {
            if let Some(at) = words.iter().position(|word| word == "--") {
                let command = words[at + 1..].join(" ");
                tip(&mut error, format!("to explain a command: flyball run --why -- {command}"));
            }
        }
        ErrorKind::UnknownArgument
            if words.get(1).is_some_and(|word| ["record", "trace"].contains(&word.as_str()))
                && text(&error, ContextKind::InvalidArg).as_deref() == Some("-o") =>
        {
            let how = if words[1] == "record" {
                "the archive needs no option: flyball record FILE.tar.zst"
            } else {
                "--html FILE writes the page"
            };
            tip(&mut error, how.to_owned());
        }
        ErrorKind::UnknownArgument | ErrorKind::ArgumentConflict
            if words.iter().any(|word| word == "compare" || word == "tune") =>
        {
            let typed = text(&error, ContextKind::InvalidArg).unwrap_or_default();
            let is_compare = words.iter().any(|word| word == "compare");
            if let Some((_, ours)) = HYPERFINE.iter().find(|(theirs, _)| is_compare && *theirs == typed) {
                tip(&mut error, format!("{typed} of hyperfine is {ours} here"));
            } else if error.kind() == ErrorKind::UnknownArgument
                && !typed.starts_with('-')
                && !typed.is_empty()
            {
                // The user passed a command like in hyperfine.
                tip(&mut error, format!("the command stands last, after --: -- {typed} ..."));
            }
        }
        _ => {}
    }
    // clap suggests how to pass an option as a value, which nobody wants here.
    if let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested)
        && tips.iter().any(|tip| tip.to_string().contains("as a value, use"))
    {
        error.remove(ContextKind::Suggested);
    }
    error
}

fn tip(error: &mut Error, words: String) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![words.into()]));
}
