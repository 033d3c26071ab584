//! Prints rows as lines of knob, value and CPUs, and as JSON objects.

use flyball_control::{KnobName, Outcome, Plain, Row, Scope, Snapshot, Value};
use serde::Serialize;

use crate::paint::{Cell, Columns, Paint, Style, cpus_within};

/// One value at one location.
#[derive(Debug, schemars::JsonSchema, Serialize)]
#[schemars(rename = "Object")]
pub(crate) struct Single<'a> {
    /// The knob or fact, as `flyball explain` names it.
    knob: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    instance: String,
    /// The CPUs, as a list (0-3,7).
    cpus: String,
    /// `null` if there is none.
    value: Option<Plain<'a>>,
    /// The unit of numbers; empty if they have none.
    unit: &'static str,
    source: Option<String>,
    /// Why there is no value here.
    #[serde(skip_serializing_if = "Option::is_none")]
    absent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl<'a> From<&'a Row> for Single<'a> {
    fn from(row: &'a Row) -> Single<'a> {
        Single {
            knob: row.knob.to_string(),
            instance: row.name.clone(),
            cpus: row.cpus.to_string(),
            value: row.outcome.value().map(Value::plain),
            unit: row.knob.knob().unit().symbol(),
            source: row.source.as_ref().map(ToString::to_string),
            absent: match &row.outcome {
                Outcome::Absent(why) => Some(why.to_string()),
                _ => None,
            },
            error: match &row.outcome {
                Outcome::Unreadable { message, .. } => Some(message.clone()),
                _ => None,
            },
        }
    }
}

#[derive(Debug, schemars::JsonSchema, Serialize)]
#[schemars(rename = "ShownRow")]
pub(crate) struct Object<'a> {
    #[serde(flatten)]
    row: Single<'a>,
    /// Number of locations with this value.
    places: usize,
}

pub(crate) fn objects(rows: &[Row]) -> Vec<Object<'_>> {
    rows.iter().map(|row| Object { row: row.into(), places: row.places }).collect()
}

/// Returns one line per row: knob, value, CPUs, source.
pub(crate) fn render(rows: &[Row], snapshot: &Snapshot, paint: Paint) -> String {
    let mut columns = Columns::new();
    let mut last = String::new();
    for row in rows {
        let name = name(row);
        // Print a name once, above all its values.
        let shown = if name == last { String::new() } else { name.clone() };
        last = name;
        // For a machine-wide value, a list of all CPUs would look like a selection.
        let everywhere = row.knob.knob().scope == Scope::Machine && row.cpus == snapshot.topology().present;
        let cpus = if everywhere { "machine".to_owned() } else { cpus_within(&row.cpus, 32) };
        let more = if row.places > 1 { format!(" and {} more", row.places - 1) } else { String::new() };
        columns.row(vec![
            Cell::styled(Style::Heading, shown),
            value(row),
            Cell::from(cpus),
            Cell::styled(Style::Faint, super::source(row) + &more),
        ]);
    }
    columns.render(paint)
}

/// The knob or fact, with its instance.
pub(crate) fn name(row: &Row) -> String {
    let instance = Some(row.name.clone()).filter(|name| !name.is_empty());
    KnobName { knob: row.knob, instance }.to_string()
}

pub(crate) fn value(row: &Row) -> Cell {
    match &row.outcome {
        Outcome::Value(value) => {
            let text = value.to_string();
            // An empty file is a valid value: no isolated CPUs, no available governors.
            Cell::from(if text.is_empty() { "(none)".to_owned() } else { text })
        }
        Outcome::Absent(why) => Cell::styled(Style::Faint, format!("absent: {why}")),
        Outcome::Unreadable { permission: true, .. } => Cell::styled(Style::Notice, "root only"),
        Outcome::Unreadable { .. } => Cell::styled(Style::Alert, "unreadable"),
    }
}
