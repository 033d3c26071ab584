//! `flyball hold check`: reads a configuration like the service, without changing anything.

use std::{fmt::Write as _, path::PathBuf};

use flyball_control::{Intent, Snapshot, plan::plan};
use flyball_hold::{Hold, MachineFacts};
use schemars::JsonSchema;
use serde::Serialize;

use super::run::{CONFIG, read_config, settings_of};
use crate::{
    context::Context,
    exit::{Exit, Failure},
};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Reads the file and the profiles that it names, as 'flyball hold run' does. Says which entries match this machine, and whether \
it accepts their settings. Nothing is written. Use it in CI, before 'systemctl reload flyball-hold', or as Ansible's validate:.

Examples:
  flyball hold check
  flyball hold check hold.toml
  flyball -M sim:epyc-512 hold check hold.toml      check for another machine

Exit codes: 0 the file is good, 2 the file or a profile is wrong, 4 with --strict: the machine rejects the settings of an entry.")]
pub(super) struct Args {
    /// The configuration [default: /etc/flyball/hold.toml].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Fail if an entry matches this machine and the machine rejects its settings.
    #[arg(long)]
    strict: bool,
}

/// The result for one entry.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "CheckedEntry")]
struct Entry {
    /// The line of its [[when]].
    line: usize,
    profile: String,
    /// Why the entry makes no hold on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_here: Option<String>,
    /// Why this machine rejects its settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

/// The output of a check.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Checked {
    /// The configuration.
    file: PathBuf,
    /// Its entries, in the order of the file.
    entries: Vec<Entry>,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Failure> {
    let file = args.file.clone().unwrap_or_else(|| PathBuf::from(CONFIG));
    let config = read_config(Some(&file), true, |_| Ok(()))?.map_err(Failure::usage)?;
    let host = context.open()?;
    let machine = MachineFacts::look(&*host);
    // Every profile must be valid, even those for other machines.
    let holds = config.holds(&machine, &settings_of, 0).map_err(Failure::usage)?;
    let refusal = |hold: &Hold| {
        let intent = Intent { settings: hold.settings.clone() };
        let snapshot = match Snapshot::for_intent(&*host, &intent) {
            Ok(snapshot) => snapshot,
            Err(error) => return Some(error.to_string()),
        };
        plan(&snapshot, &intent).err().map(|error| error.to_string())
    };
    let check = |(index, when): (usize, &flyball_hold::When)| {
        let name = config.hold(index, when, 0).ok().map(|hold| hold.name);
        let hold = holds.iter().find(|hold| Some(&hold.name) == name.as_ref());
        Entry {
            line: when.line,
            profile: when.profile.clone(),
            not_here: when.machine.unmet(&machine),
            refused: hold.and_then(refusal),
        }
    };
    let entries = config.when.iter().enumerate().map(check).collect();
    let checked = Checked { file, entries };
    context.output.about(&*host).object(|| &checked, || render(&checked))?;
    let is_refused = checked.entries.iter().any(|one| one.refused.is_some());
    Ok(if args.strict && is_refused { Exit::NotHere } else { Exit::Done })
}

fn render(Checked { file, entries }: &Checked) -> String {
    let count = if entries.len() == 1 { "1 entry".to_owned() } else { format!("{} entries", entries.len()) };
    let mut out = format!("{}: good, {count}\n", file.display());
    for Entry { line, profile, not_here, refused } in entries {
        let state = match (not_here, refused) {
            (Some(why), _) => format!("not for this machine: {why}"),
            (None, Some(why)) => format!("refused by this machine: {why}"),
            (None, None) => "for this machine".to_owned(),
        };
        let _ = writeln!(out, "  line {line}: {profile}: {state}");
    }
    out
}
