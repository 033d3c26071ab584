//! The present settings as a profile.
//!
//! What most places of a knob share stands at the top; what differs gets a section by CPU list. Applied again to the
//! same machine, a saved profile changes nothing.

use std::{collections::BTreeMap, fmt::Write};

use flyball_host::CpuList;

use crate::{Id, Knob, Place, ReadError, Scope, Snapshot, Value, knob::TABLE};

/// Knobs that a profile has from a save. Power limits and the parts of the uncore belong to the machine's firmware and
/// are left out; so is what is a fact of the moment (SMT's control word beside the CPUs that are online).
pub const SAVED: &[Id] = &[
    Id::DriverMode,
    Id::Online,
    Id::Turbo,
    Id::Boost,
    Id::Governor,
    Id::Epp,
    Id::Epb,
    Id::EnergyEfficiency,
    Id::HwpDynamicBoost,
    Id::MinPerfPct,
    Id::MaxPerfPct,
    Id::MinFreq,
    Id::MaxFreq,
    Id::Setspeed,
    Id::IdleState,
    Id::IdleGovernor,
    Id::LatencyLimit,
    Id::UncoreMinFreq,
    Id::UncoreMaxFreq,
];

/// The profile's text, from a snapshot of the knobs in [`SAVED`].
///
/// # Errors
/// A file that should be readable is not.
pub fn save(snapshot: &Snapshot) -> Result<String, ReadError> {
    let mut top = String::new();
    let mut sections: BTreeMap<CpuList, String> = BTreeMap::new();
    for knob in TABLE.iter().filter(|knob| SAVED.contains(&knob.id)) {
        for (name, values) in values(snapshot, knob)? {
            let key =
                if name.is_empty() { knob.name.to_owned() } else { format!("\"{}:{name}\"", knob.name) };
            let Some((most, _)) = values.iter().max_by_key(|(_, cpus)| cpus.len()) else { continue };
            let most = most.clone();
            for (value, cpus) in values {
                let line = format!("{key} = {}\n", quoted(&value));
                if value == most {
                    top.push_str(&line);
                } else {
                    sections.entry(cpus).or_default().push_str(&line);
                }
            }
        }
    }
    let mut text = String::new();
    let model = snapshot.topology().model_name.clone().unwrap_or_else(|| "this machine".to_owned());
    let _ = writeln!(
        text,
        "description = {}\n",
        quoted(&format!("settings of {} as saved by flyball", model.trim()))
    );
    text.push_str(&top);
    for (cpus, lines) in sections {
        let _ = write!(text, "\n[cpus.\"{cpus}\"]\n{lines}");
    }
    Ok(text)
}

/// By name of place, the values that there are and the CPUs that have them.
fn values(
    snapshot: &Snapshot,
    knob: &Knob,
) -> Result<BTreeMap<String, BTreeMap<String, CpuList>>, ReadError> {
    let mut found: BTreeMap<String, BTreeMap<String, CpuList>> = BTreeMap::new();
    for place in snapshot.places(knob.id)? {
        let Some(value) = snapshot.value(knob.id, place)? else { continue };
        if !is_setting(snapshot, knob.id, place, &value)? {
            continue;
        }
        let name = if matches!(knob.scope, Scope::IdleState | Scope::Uncore) {
            place.name.clone()
        } else {
            String::new()
        };
        let cpus = found.entry(name).or_default().entry(text(knob.id, &value)).or_default();
        *cpus = cpus.union(&place.cpus);
    }
    Ok(found)
}

/// Whether the value is a choice that can be made again.
fn is_setting(snapshot: &Snapshot, knob: Id, place: &Place, value: &Value) -> Result<bool, ReadError> {
    Ok(match knob {
        // Under `performance` the preference is the governor's, and a number cannot be written on older kernels.
        Id::Epp => {
            snapshot.value(Id::Governor, place)? != Some(Value::Word("performance".to_owned()))
                && !value.word().is_some_and(|word| word.starts_with("dynamic"))
        }
        // What no file takes (CPU 0, a register that is only read) is no setting.
        Id::Online | Id::EnergyEfficiency => snapshot.target(knob, place, value).is_ok(),
        Id::Boost => snapshot.machine_value(Id::Turbo)? != Some(Value::Switch(false)),
        _ => true,
    })
}

/// The value as a profile spells it.
fn text(knob: Id, value: &Value) -> String {
    match value {
        Value::Percent(percent) => percent.0.to_string(),
        Value::Epb(bias) => bias.0.to_string(),
        Value::Frequency(frequency) => frequency.to_string().replace(' ', ""),
        Value::Time(time) => format!("{}us", time.0),
        Value::Word(word) if knob == Id::LatencyLimit => word.clone(),
        other => other.to_string(),
    }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(character);
            }
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", control as u32);
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
