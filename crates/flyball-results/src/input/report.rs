//! Facts about a machine from flyball: the doctor's report, `show --json`, profiles of `save`,
//! facts files.

use std::collections::BTreeMap;

use flyball_table::Cell;
use serde_json::Value;

use super::{About, InputError, ParsedInput, Row, flatten};
use crate::schema::Kind;

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

/// A value as text: strings without quotes, other values as JSON.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Whether the report is about a simulated machine.
fn simulated(value: &Value) -> bool {
    value.get("simulated").and_then(Value::as_bool) == Some(true) || value.get("emulated").is_some()
}

fn about(value: &Value, facts: Vec<(&'static str, Option<String>)>) -> About {
    About {
        simulated: Some(simulated(value)),
        tool: Some("flyball".to_owned()),
        facts: facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
        ..About::default()
    }
}

pub(super) fn doctor(value: &Value, whole: &str) -> Result<ParsedInput, InputError> {
    let facts = vec![("processor", text(value, "processor")), ("kernel", text(value, "kernel"))];
    let findings = value.get("findings").and_then(Value::as_array);
    let findings = findings.ok_or(InputError::Unusable("the doctor's report has no findings"))?;
    let row = |finding: &Value| -> Option<Row> {
        let (check, verdict) = (text(finding, "id")?, text(finding, "verdict")?);
        let cells = vec![
            check.into(),
            verdict.into(),
            text(finding, "what").into(),
            finding.get("evidence").map(Value::to_string).into(),
            text(finding, "group").into(),
        ];
        Some(Row { time: None, cells })
    };
    let rows: Option<Vec<Row>> = findings.iter().map(row).collect();
    let rows = rows.ok_or(InputError::Unusable("a finding of the doctor has no id or verdict"))?;
    Ok(ParsedInput {
        kind: Kind::Findings,
        about: about(value, facts),
        identity: whole.as_bytes().to_vec(),
        rows,
        warnings: Vec::new(),
    })
}

/// The output of `show --json`.
pub(super) fn show(value: &Value, whole: &str) -> Result<ParsedInput, InputError> {
    let machine = value.get("machine").ok_or(InputError::Unusable("it says nothing of its machine"))?;
    let mut facts = vec![
        ("processor", text(machine, "model_name")),
        ("microcode", text(machine, "microcode")),
        ("kernel", text(machine, "kernel")),
    ];
    let rows = value.get("rows").and_then(Value::as_array);
    let rows = rows.ok_or(InputError::Unusable("it has no rows"))?;
    let mut found = Vec::new();
    for row in rows {
        let Some(knob) = text(row, "knob") else { continue };
        let instance = text(row, "instance").filter(|instance| !instance.is_empty());
        let knob = instance.map_or(knob.clone(), |instance| format!("{knob}:{instance}"));
        let value = row.get("value").and_then(plain);
        if knob == "driver" && facts.iter().all(|(name, _)| *name != "driver") {
            facts.push(("driver", value.clone()));
        }
        // An absent knob has no value.
        let Some(value) = value else { continue };
        found.push(setting(knob, text(row, "cpus").unwrap_or_default(), value, text(row, "unit")));
    }
    let mut about = about(value, facts);
    about.settings = summary(&found);
    let identity = whole.as_bytes().to_vec();
    Ok(ParsedInput { kind: Kind::Settings, about, identity, rows: found, warnings: Vec::new() })
}

fn setting(knob: String, cpus: String, value: String, unit: Option<String>) -> Row {
    let unit = unit.filter(|unit| !unit.is_empty());
    Row { time: None, cells: vec![knob.into(), cpus.into(), value.into(), unit.into()] }
}

/// The settings as facts of the host: values by knob, with their CPUs if there are several values.
fn summary(rows: &[Row]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for row in rows {
        if let [Cell::Text(knob), Cell::Text(cpus), Cell::Text(value), _] = row.cells.as_slice() {
            all.entry(knob.clone()).or_default().push((cpus.clone(), value.clone()));
        }
    }
    let one = |values: Vec<(String, String)>| match values.as_slice() {
        [(_, value)] => value.clone(),
        many => {
            let parts = many.iter().map(|(cpus, value)| format!("{value} ({cpus})"));
            parts.collect::<Vec<_>>().join(", ")
        }
    };
    // Frequencies of the moment differ each time.
    let is_setting = |knob: &String| !knob.starts_with("cur-") && !knob.contains("current");
    all.into_iter().filter(|(knob, _)| is_setting(knob)).map(|(knob, values)| (knob, one(values))).collect()
}

/// A profile, as `flyball save` writes it.
pub(super) fn profile(text: &str) -> Result<ParsedInput, InputError> {
    const WHAT: &str = "it is neither a run directory, JSON of doctor, show, hyperfine, pyperf, Google Benchmark or fio, \
                        nor a profile";
    let table: toml::Table = text.parse().map_err(|_| InputError::Unusable(WHAT))?;
    let mut rows = Vec::new();
    let mut add = |cpus: &str, table: &toml::Table| {
        let mut flat = BTreeMap::new();
        flatten("", &toml::Value::Table(table.clone()), &mut flat);
        flat.remove("description");
        rows.extend(flat.into_iter().map(|(knob, value)| setting(knob, cpus.to_owned(), value, None)));
    };
    let mut top = table.clone();
    let sections = top.remove("cpus");
    add("", &top);
    for (cpus, section) in sections.as_ref().and_then(toml::Value::as_table).into_iter().flatten() {
        let section = section.as_table().ok_or(InputError::Unusable(WHAT))?;
        add(cpus, section);
    }
    let about = About { tool: Some("flyball".to_owned()), settings: summary(&rows), ..About::default() };
    Ok(ParsedInput {
        kind: Kind::Settings,
        about,
        identity: text.as_bytes().to_vec(),
        rows,
        warnings: Vec::new(),
    })
}
