//! The command line: the options of all commands. The commands are in `commands`.

use std::path::PathBuf;

use clap::Parser;

use crate::{
    commands::Command,
    machine::{EVERYWHERE, MachineOptions},
};

/// Explain, change, hold and measure CPU performance settings, and restore what was there.
#[derive(Debug, Parser)]
#[command(name = "flyball", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub machine: MachineOptions,

    /// Print data as JSON on stdout.
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,

    /// Directory of the journal (the saved original values) and the lock [default: FLYBALL_STATE,
    /// or /run/flyball]. flyball also takes the lock in /run/flyball, so only one command changes
    /// a machine at a time.
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "DIR", hide_short_help = true)]
    pub state_dir: Option<PathBuf>,

    /// Use colours: auto (if stdout is a terminal and NO_COLOR is not set), always or never.
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "WHEN", default_value = "auto", hide_short_help = true)]
    pub color: ColorWhen,

    #[command(subcommand)]
    pub command: Command,
}

/// When text is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorWhen {
    Auto,
    Always,
    Never,
}

impl ColorWhen {
    /// Reads --color before clap parses the command line, because clap's own help and errors are
    /// coloured too.
    pub(crate) fn from_process() -> ColorWhen {
        let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        // Options after `--` belong to another program (`flyball run -- ls --color`).
        let words: Vec<String> = words.take_while(|word| word != "--").collect();
        let mut given =
            words.iter().enumerate().filter_map(|(at, word)| match word.strip_prefix("--color")? {
                "" => words.get(at + 1).map(String::as_str),
                value => value.strip_prefix('='),
            });
        // Leave an invalid value to clap, whose error lists the valid ones.
        match given.next_back() {
            Some("always") => ColorWhen::Always,
            Some("never") => ColorWhen::Never,
            _ => ColorWhen::Auto,
        }
    }

    pub(crate) fn choice(self) -> clap::ColorChoice {
        match self {
            ColorWhen::Auto => clap::ColorChoice::Auto,
            ColorWhen::Always => clap::ColorChoice::Always,
            ColorWhen::Never => clap::ColorChoice::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// Every option and rule that takes a time span accepts the same spellings.
    #[test]
    fn a_time_span_has_the_same_spellings_everywhere() {
        const SPELLINGS: [&str; 12] = [
            "30",
            "30s",
            "30 s",
            "30sec",
            "30.0s",
            "0.5m",
            "0.5min",
            "0.5 min",
            "30000ms",
            "30000000us",
            "20s10s",
            "29s 1000ms",
        ];
        const OPTIONS: [&[&str]; 9] = [
            &["compare", "--cool-down", "30", "--", "true"],
            &["compare", "--interval", "30", "--", "true"],
            &["exporter", "--textfile", "x", "--every", "30"],
            &["hold", "add", "a", "governor=performance", "--for", "30"],
            &["sst", "watch", "--poll", "30"],
            &["top", "--interval", "30"],
            &["top", "--record", "x", "--keep", "30"],
            &["trace", "record", "--time", "30"],
            &["why", "--time", "30"],
        ];
        for text in SPELLINGS {
            for option in OPTIONS {
                let words = option.iter().map(|word| if *word == "30" { text } else { word });
                let parsed = Cli::try_parse_from(std::iter::once("flyball").chain(words));
                assert!(parsed.is_ok(), "{option:?} with '{text}': {}", parsed.unwrap_err());
            }
            let mut condition = flyball_hold::Condition::default();
            assert_eq!(condition.add("for", text), Ok(()), "{text}");
            // Words of one line: a span there has no blanks.
            let word = text.replace(' ', "");
            assert!(format!("fan blocked after {word}").parse::<flyball_sim::Fault>().is_ok(), "{word}");
            let back = flyball_top::state::time(&format!("-{word}"));
            assert_eq!(back, Some(flyball_top::state::Jump::Back(30)), "{word}");
            let events = flyball_hold::events(format!("{word} power battery\n").as_bytes(), "events");
            assert!(events.is_ok(), "{word}: {}", events.unwrap_err());
        }
    }
}
