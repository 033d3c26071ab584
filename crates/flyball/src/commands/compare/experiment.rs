//! `compare --experiment FILE`: a comparison described in a file, so that any tool can start the
//! same one on every machine.
//!
//! Keys are options of `compare`, `command` has the words of the workload, and each `[[arm]]` is an
//! arm with its knobs. Each machine has its own seed: if machines ran the same arms at the same
//! moment, a disturbance of all of them would affect the same arms.

use std::{collections::BTreeMap, path::Path};

use flyball_compare::{digest, user_knobs};
use flyball_host::{Host, Kind};
use flyball_measure::ExperimentNote;
use toml::Value;

use super::args::{Args, OPTIONS};
use crate::exit::Failure;

/// Maximum length of a name, which is used for directories and labels.
const MAX_NAME: usize = 63;

/// Reads the file. Settings for one machine (directory, forms, user) come from `args`.
///
/// # Errors
/// The file is not valid, or other users may change it: its commands run with flyball's privileges.
pub(super) fn read(host: &dyn Host, path: &Path, args: &Args) -> Result<(Args, ExperimentNote), Failure> {
    let wrong = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let text = user_knobs::open(path).map_err(|error| wrong(error.to_string()))?;
    let (name, words) = words(&text).map_err(|fault| wrong(fault.to_string()))?;
    let mut expanded = Args::from_words(&words).map_err(wrong)?;
    let sum = digest(&words.join("\0"));
    let seed = digest(&format!("{name}\0{:?}\0{}", expanded.measuring.seed, machine(host)));
    // Few enough digits to type again.
    expanded.measuring.seed = Some(seed % 1_000_000_000);
    expanded.output.clone_from(&args.output);
    expanded.forms.clone_from(&args.forms);
    expanded.run_as.clone_from(&args.run_as);
    expanded.dry_run = args.dry_run;
    Ok((expanded, ExperimentNote { name, digest: format!("{sum:016x}") }))
}

/// Returns a text that distinguishes this machine from others in the experiment. Copies of a disk
/// have the same machine-id.
fn machine(host: &dyn Host) -> String {
    if host.kind() != Kind::Live {
        return host.name();
    }
    let text = |path| host.read(path).unwrap_or_default();
    format!("{}\0{}", text("/etc/machine-id").trim(), text("/proc/sys/kernel/hostname").trim())
}

#[derive(Debug, thiserror::Error)]
enum ExperimentFault {
    #[error("{}", .0.to_string().trim_end())]
    Toml(#[from] toml::de::Error),
    #[error("it has no name")]
    NoName,
    #[error("name: letters, digits, '-', '_' and '.', at most {MAX_NAME}")]
    Name,
    #[error(
        "'{key}' is not a key; there are name, command, [[arm]] and options of compare that describe the comparison"
    )]
    Key { key: String },
    #[error("{key}: {kind} is not a word or a number")]
    Value { key: String, kind: &'static str },
    #[error("an arm is a table: [[arm]]")]
    ArmKind,
    #[error("each [[arm]] has a name, without a colon and an equals sign")]
    ArmName,
    #[error("arm '{arm}': the value of {knob} is not one word")]
    ArmValue { arm: String, knob: String },
}

/// The experiment's name, and the file as words of a command line.
fn words(text: &str) -> Result<(String, Vec<String>), ExperimentFault> {
    let mut table: BTreeMap<String, Value> = toml::from_str(text)?;
    let name = match table.remove("name") {
        Some(Value::String(name)) if is_name(&name) => name,
        Some(_) => return Err(ExperimentFault::Name),
        None => return Err(ExperimentFault::NoName),
    };
    let command = table.remove("command");
    let mut words = Vec::new();
    for arm in list(table.remove("arm")) {
        words.push(format!("--arm={}", self::arm(arm)?));
    }
    for (key, value) in table {
        if !OPTIONS.contains(&key.replace('-', "_").as_str()) || key.contains('_') {
            return Err(ExperimentFault::Key { key });
        }
        for value in list(Some(value)) {
            match value {
                Value::Boolean(false) => {}
                Value::Boolean(true) => words.push(format!("--{key}")),
                value => words.push(format!("--{key}={}", word(&key, value)?)),
            }
        }
    }
    if let Some(command) = command {
        words.push("--".to_owned());
        for part in list(Some(command)) {
            words.push(word("command", part)?);
        }
    }
    Ok((name, words))
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(plain)
}

fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        None => Vec::new(),
        Some(Value::Array(values)) => values,
        Some(value) => vec![value],
    }
}

fn word(key: &str, value: Value) -> Result<String, ExperimentFault> {
    match value {
        Value::String(text) => Ok(text),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(on) => Ok(if on { "on" } else { "off" }.to_owned()),
        other => Err(ExperimentFault::Value { key: key.to_owned(), kind: other.type_str() }),
    }
}

fn arm(value: Value) -> Result<String, ExperimentFault> {
    let Value::Table(mut table) = value else { return Err(ExperimentFault::ArmKind) };
    let name = match table.remove("name") {
        Some(Value::String(name)) if !name.trim().is_empty() && !name.contains([':', '=']) => name,
        _ => return Err(ExperimentFault::ArmName),
    };
    let mut text = format!("{name}:");
    for (knob, value) in table {
        let value = word(&knob, value)?;
        if value.is_empty() || value.contains(char::is_whitespace) {
            return Err(ExperimentFault::ArmValue { arm: name, knob });
        }
        text += &format!(" {knob}={value}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_command_line() {
        let (name, words) = words(
            "name = 'turbo'\nrounds = 16\ntrace = true\nignore-failure = false\nbeside = ['spin', 'memory']\n\
             command = ['./bench', '-n', 3]\n[[arm]]\nname = 'now'\n[[arm]]\nname = 'off'\nturbo = false\n'max-freq@0-3' = '2GHz'\n",
        )
        .unwrap();
        assert_eq!(name, "turbo");
        assert_eq!(
            words,
            [
                "--arm=now:",
                "--arm=off: max-freq@0-3=2GHz turbo=off",
                "--beside=spin",
                "--beside=memory",
                "--rounds=16",
                "--trace",
                "--",
                "./bench",
                "-n",
                "3"
            ]
        );
    }

    #[test]
    fn other_files_are_refused() {
        for bad in [
            "",
            "rounds = 4",
            "name = 'a b'",
            "name = 'x'\noutput = 'y'",
            "name = 'x'\nmax_rounds = 4",
            "name = 'x'\nresume = 'y'",
            "name = 'x'\narm = ['now']",
            "name = 'x'\n[[arm]]\nturbo = false",
            "name = 'x'\n[[arm]]\nname = 'a:b'",
            "name = 'x'\n[[arm]]\nname = 'a'\nturbo = 'a b'",
            "name = 'x'\nrounds = { a = 1 }",
        ] {
            assert!(words(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_key_is_an_option() {
        let command = <super::super::args::Typed as clap::CommandFactory>::command();
        for id in OPTIONS {
            let argument = command.get_arguments().find(|argument| argument.get_id() == id);
            assert_eq!(
                argument.and_then(|found| found.get_long()),
                Some(id.replace('_', "-").as_str()),
                "{id}"
            );
        }
    }
}
