//! Saves the present settings as a profile.
//!
//! The most common value of each knob is at the top; other values get a section by CPU list.
//! Applying a saved profile to the same machine changes nothing.

use std::{collections::BTreeMap, fmt::Write};

use flyball_host::CpuList;
use serde::{Deserialize, Serialize};

use crate::{Id, Knob, Place, ReadError, Scope, Snapshot, TABLE, Value, knob::Saved};

/// Returns the knobs that a saved profile contains.
pub fn saved() -> Vec<Id> {
    let is_saved = |knob: &&Knob| knob.control().is_some_and(|control| control.saved != Saved::Never);
    TABLE.iter().filter(is_saved).map(|knob| knob.id).collect()
}

/// A setting of a saved profile.
#[derive(Debug, Clone, PartialEq, Eq, schemars::JsonSchema, Serialize, Deserialize)]
pub struct SavedSetting {
    /// The knob, optionally with an instance (`idle-state:C6`).
    pub knob: String,
    /// The value as a profile spells it.
    pub value: String,
    /// The CPUs that have it; if `None`, all except the CPUs of the knob's other settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuList>,
}

/// Returns the settings of a snapshot of the [`saved`] knobs. Settings for all CPUs come first.
///
/// # Errors
/// A file that should be readable is not.
pub fn settings(snapshot: &Snapshot) -> Result<Vec<SavedSetting>, ReadError> {
    let mut settings = Vec::new();
    for knob in saved().into_iter().map(Id::knob) {
        for (name, values) in values(snapshot, knob)? {
            let name = if name.is_empty() { knob.name.to_owned() } else { format!("{}:{name}", knob.name) };
            // The most common value is for all CPUs, and only differing values name CPUs, so that
            // the profile also fits a larger machine.
            let Some((most, _)) = values.iter().max_by_key(|(_, cpus)| cpus.len()) else { continue };
            let most = most.clone();
            for (value, cpus) in values {
                let cpus = (value != most).then_some(cpus);
                settings.push(SavedSetting { knob: name.clone(), value, cpus });
            }
        }
    }
    // The sort is stable: within a list of CPUs, knobs keep the order of the table.
    settings.sort_by(|a, b| a.cpus.cmp(&b.cpus));
    Ok(settings)
}

/// Returns the profile's text, from a snapshot of the [`saved`] knobs.
///
/// # Errors
/// A file that should be readable is not.
pub fn save(snapshot: &Snapshot) -> Result<String, ReadError> {
    let model = snapshot.topology().model_name.clone().unwrap_or_else(|| "this machine".to_owned());
    let description = quoted(&format!("settings of {} as saved by flyball", model.trim()));
    let mut text = format!("description = {description}\n\n");
    let mut section = None;
    for SavedSetting { knob, value, cpus } in settings(snapshot)? {
        if cpus != section {
            if let Some(cpus) = &cpus {
                let _ = write!(text, "\n[cpus.\"{cpus}\"]\n");
            }
            section = cpus;
        }
        let key = if knob.contains(':') { format!("\"{knob}\"") } else { knob };
        let _ = writeln!(text, "{key} = {}", quoted(&value));
    }
    Ok(text)
}

/// Returns the values and the CPUs that have them, by name of the place.
fn values(
    snapshot: &Snapshot,
    knob: &Knob,
) -> Result<BTreeMap<String, BTreeMap<String, CpuList>>, ReadError> {
    let mut found: BTreeMap<String, BTreeMap<String, CpuList>> = BTreeMap::new();
    for place in snapshot.places(knob.id)? {
        let Some(value) = snapshot.value(knob.id, place)? else { continue };
        if !is_setting(snapshot, knob, place, &value)? {
            continue;
        }
        let name = if matches!(
            knob.scope,
            Scope::IdleState | Scope::Uncore | Scope::ProfileDevice | Scope::Socket
        ) {
            place.name.clone()
        } else {
            String::new()
        };
        // Combine equal values of several places into one list of CPUs.
        let cpus = found.entry(name).or_default().entry(text(&value)).or_default();
        *cpus = cpus.union(&place.cpus);
    }
    Ok(found)
}

/// Returns whether a profile can set the value again, as the knob's row says.
fn is_setting(snapshot: &Snapshot, knob: &Knob, place: &Place, value: &Value) -> Result<bool, ReadError> {
    let Some(control) = knob.control() else { return Ok(false) };
    Ok(match control.saved {
        Saved::Always => true,
        Saved::Never => false,
        Saved::WhereWritable => snapshot.target(knob.id, place, value).is_ok(),
        // The platform profile sets a dynamic preference.
        Saved::OwnPreference => {
            snapshot.value(Id::Governor, place)? != Some(Value::Word("performance".to_owned()))
                && !value.word().is_some_and(|word| word.starts_with("dynamic"))
        }
        Saved::UnlessWord(word) => value.word() != Some(word),
        Saved::WithTurbo => snapshot.machine_value(Id::Turbo)? != Some(Value::Switch(false)),
    })
}

/// Formats the value for a profile.
fn text(value: &Value) -> String {
    match value {
        Value::Percent(percent) => percent.0.to_string(),
        Value::Epb(bias) => bias.0.to_string(),
        // `2.6 GHz` is for people. A setting contains no blank.
        Value::Frequency(frequency) => frequency.to_string().replace(' ', ""),
        Value::Time(time) => format!("{}us", time.0),
        other => other.to_string(),
    }
}

/// Formats a TOML basic string.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(character);
            }
            // A TOML basic string may contain no control character except the tab.
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", control as u32);
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
