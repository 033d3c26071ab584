//! Files with the user's own knobs: `--knob FILE`. Their commands run with flyball's rights.

use std::{
    collections::BTreeMap,
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use flyball_control::KnobName;
use flyball_files::{open_input, read_bounded};
use flyball_host::{CommandKnob, Host};

/// Maximum size of a file in bytes: a thousand knobs.
const MAX: u64 = 1 << 20;

/// A knob of the user with its values.
#[derive(Debug, Clone)]
pub struct UserKnob {
    pub values: Vec<String>,
    /// Whether neighbouring values behave similarly.
    pub ordered: bool,
    pub commands: CommandKnob,
}

/// A table of the file. Its name is the knob's name.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    values: Vec<TableValue>,
    #[serde(default)]
    ordered: bool,
    read: Option<String>,
    write: String,
    restore: Option<String>,
}

/// A value as a word or, for convenience, as a number.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "a value is a word in quotes or a number")]
enum TableValue {
    Whole(i64),
    Fraction(f64),
    Word(String),
}

/// Why a file with knobs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UserKnobsError {
    /// The commands would run on this machine instead of the one that is compared.
    #[error("--knob: its commands would run on this machine, and {machine} is a model")]
    Model { machine: String },
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("{}: {}", path.display(), cause.to_string().trim_end())]
    Toml { path: PathBuf, cause: Box<toml::de::Error> },
    #[error("{}: the knob {knob} is there twice", path.display())]
    Twice { path: PathBuf, knob: String },
    #[error("{}: knob {knob}: {fault}", path.display())]
    Knob { path: PathBuf, knob: String, fault: KnobFault },
}

/// The fault in a knob of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KnobFault {
    /// A fault in its name or its commands.
    #[error("{0}")]
    Commands(&'static str),
    #[error("flyball has a knob of this name; choose another")]
    NameTaken,
    #[error("the value '{0}' is not one word of letters, digits and -_./:+@%=")]
    Value(String),
    #[error("'values' has fewer than two values")]
    FewValues,
}

/// Reads the knobs of these files.
///
/// # Errors
/// A file that other users may change, a machine on which no commands run, a name of one of
/// flyball's knobs, or a fault in a table.
pub fn read(host: &dyn Host, paths: &[PathBuf]) -> Result<Vec<UserKnob>, UserKnobsError> {
    if !paths.is_empty() && host.software().is_some() {
        return Err(UserKnobsError::Model { machine: host.name() });
    }
    let mut all: Vec<UserKnob> = Vec::new();
    for path in paths {
        let text = open(path).map_err(|cause| UserKnobsError::File { path: path.clone(), cause })?;
        let tables: BTreeMap<String, Table> = toml::from_str(&text)
            .map_err(|cause| UserKnobsError::Toml { path: path.clone(), cause: Box::new(cause) })?;
        for (name, table) in tables {
            let knob = knob(&name, table).map_err(|fault| UserKnobsError::Knob {
                path: path.clone(),
                knob: name.clone(),
                fault,
            })?;
            if all.iter().any(|other| other.commands.name == name) {
                return Err(UserKnobsError::Twice { path: path.clone(), knob: name });
            }
            all.push(knob);
        }
    }
    Ok(all)
}

/// The commands of the knobs, for the manifest.
pub fn commands(knobs: &[UserKnob]) -> Vec<CommandKnob> {
    knobs.iter().map(|knob| knob.commands.clone()).collect()
}

fn knob(name: &str, table: Table) -> Result<UserKnob, KnobFault> {
    let values: Vec<String> = table
        .values
        .into_iter()
        .map(|value| match value {
            TableValue::Whole(number) => number.to_string(),
            TableValue::Fraction(number) => number.to_string(),
            TableValue::Word(word) => word,
        })
        .collect();
    let Table { ordered, read, write, restore, .. } = table;
    let commands = CommandKnob { name: name.to_owned(), read, write, restore };
    if let Some(fault) = commands.fault() {
        return Err(KnobFault::Commands(fault));
    }
    if name.parse::<KnobName>().is_ok() || matches!(name, "driver" | "boot" | "now") {
        return Err(KnobFault::NameTaken);
    }
    // An arm's settings are words, and --over separates values by commas.
    if let Some(value) = values.iter().find(|value| !CommandKnob::is_value(value) || value.contains(',')) {
        return Err(KnobFault::Value(value.clone()));
    }
    if values.len() < 2 {
        return Err(KnobFault::FewValues);
    }
    Ok(UserKnob { values, ordered, commands })
}

/// Reads a file whose commands are about to run. As root, fails unless no other user can have
/// written them.
///
/// # Errors
/// The system's error, or why the file is not trusted.
pub fn open(path: &Path) -> io::Result<String> {
    let file = open_input(path)?;
    // From the open file, so that no other file can replace it after the check.
    let status = file.metadata()?;
    if !status.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if flyball_process::is_root() {
        if ![0, flyball_process::caller()].contains(&status.uid()) {
            return refused(format!("it belongs to user {}; its commands would run as root", status.uid()));
        }
        if status.mode() & 0o022 != 0 {
            return refused(
                "other users can write to it, and its commands would run as root; chmod go-w it".to_owned(),
            );
        }
    }
    let bytes = read_bounded(file, MAX)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Vec<UserKnob>> {
        let tables: BTreeMap<String, Table> = toml::from_str(text).ok()?;
        tables.into_iter().map(|(name, table)| knob(&name, table).ok()).collect()
    }

    #[test]
    fn tables_are_knobs() {
        let knobs = parse(
            "[pool]\nvalues = [4, \"8\", 1.5]\nordered = true\nread = 'cat p'\nwrite = 'echo {value} > p'\n",
        )
        .unwrap();
        assert_eq!(knobs[0].values, ["4", "8", "1.5"]);
        assert!(knobs[0].ordered);
        assert_eq!(knobs[0].commands.name, "pool");
    }

    #[test]
    fn other_tables_are_refused() {
        for bad in [
            "[pool]\nvalues = [4, 8]\nwrite = 'echo {value}'",
            "[pool]\nvalues = [4]\nread = 'cat p'\nwrite = 'echo {value}'",
            "[pool]\nvalues = ['a b', 'c']\nread = 'cat p'\nwrite = 'echo {value}'",
            "[pool]\nvalues = ['a,b', 'c']\nread = 'cat p'\nwrite = 'echo {value}'",
            "[epp]\nvalues = [1, 2]\nread = 'cat p'\nwrite = 'echo {value}'",
            "[driver]\nvalues = [1, 2]\nread = 'cat p'\nwrite = 'echo {value}'",
            "[pool]\nvalues = [1, 2]\nread = 'cat p'\nwrite = 'echo {value}'\nunit = 'x'",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
