//! Rows as lines of knob, value and CPUs, and as JSON objects.

use flyball_control::{Outcome, Plain, Row, Scope, Snapshot, Value};
use serde::Serialize;

use crate::paint::{Cell, Columns, Paint, Style, cpus_within};

#[derive(Debug, schemars::JsonSchema, Serialize)]
#[schemars(rename = "ShownRow")]
pub(crate) struct Object<'a> {
    /// The knob or fact, as `flyball explain` names it.
    knob: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    instance: String,
    /// The CPUs, as a list (0-3,7).
    cpus: String,
    places: usize,
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

impl<'a> From<&'a Row> for Object<'a> {
    fn from(row: &'a Row) -> Object<'a> {
        let knob = row.knob.knob();
        Object {
            knob: knob.name.to_owned(),
            instance: row.name.clone(),
            cpus: row.cpus.to_string(),
            places: row.places,
            value: row.outcome.value().map(Value::plain),
            unit: knob.unit().symbol(),
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

pub(crate) fn objects(rows: &[Row]) -> Vec<Object<'_>> {
    rows.iter().map(Object::from).collect()
}

/// One line per row: knob, value, CPUs, source.
pub(crate) fn render(rows: &[Row], snapshot: &Snapshot, paint: Paint) -> String {
    let mut columns = Columns::new();
    let mut last = String::new();
    for row in rows {
        let name = match row.name.as_str() {
            "" => row.knob.to_string(),
            instance => format!("{}:{instance}", row.knob),
        };
        // Print a name once, above all its values.
        let shown = if name == last { String::new() } else { name.clone() };
        last = name;
        // A list of all CPUs for what the machine has once would look like a choice.
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

/// A row's value as a cell.
pub(crate) fn value(row: &Row) -> Cell {
    match &row.outcome {
        Outcome::Value(value) => {
            let text = value.to_string();
            // A file that is empty is a value: no isolated CPUs, no available governors.
            Cell::from(if text.is_empty() { "(none)".to_owned() } else { text })
        }
        Outcome::Absent(why) => Cell::styled(Style::Faint, format!("absent: {why}")),
        Outcome::Unreadable { permission: true, .. } => Cell::styled(Style::Notice, "root only"),
        Outcome::Unreadable { .. } => Cell::styled(Style::Alert, "unreadable"),
    }
}
