//! Collects the knobs of a snapshot into rows for `show`, with equal places in one row.
//!
//! Text and JSON are both made from these rows, so they cannot differ.

use flyball_host::CpuList;
use serde::{Deserialize, Serialize};

use crate::{Id, KnobName, Location, Place, ReadError, Reading, Request, Scope, Snapshot, Value, Why};

/// The common result of a row's places.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All of them hold this value.
    Value(Value),
    /// None of them has the knob, for this reason. A path in it belongs to the first place.
    Absent(Why),
    /// None of them can be read. This is the error at the first place.
    Unreadable {
        /// The error, with path and errno.
        message: String,
        /// True if root rights would help.
        permission: bool,
    },
}

impl Outcome {
    pub fn value(&self) -> Option<&Value> {
        match self {
            Outcome::Value(value) => Some(value),
            _ => None,
        }
    }

    fn new(reading: &Result<Reading, ReadError>) -> (Outcome, Option<&Location>) {
        match reading {
            Ok(Reading::Value { value, source }) => (Outcome::Value(value.clone()), Some(source)),
            Ok(Reading::Absent(why)) => (Outcome::Absent(why.clone()), None),
            Err(error) => {
                let permission = error.is_permission();
                (Outcome::Unreadable { message: error.to_string(), permission }, None)
            }
        }
    }

    /// Returns whether two places may share a row: they have equal values, or lack one for the same
    /// reason, ignoring paths.
    fn alike(&self, other: &Outcome) -> bool {
        match (self, other) {
            (Outcome::Absent(why), Outcome::Absent(other)) => why.is_like(other),
            (Outcome::Unreadable { permission: true, .. }, Outcome::Unreadable { permission: true, .. }) => {
                true
            }
            _ => self == other,
        }
    }
}

/// Places of one knob with equal values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub knob: Id,
    /// The instance's name (`C6`, `package-0 long_term`), empty for numbered scopes.
    pub name: String,
    /// The CPUs that the places govern.
    pub cpus: CpuList,
    /// Number of places.
    pub places: usize,
    /// The value, or why there is none.
    pub outcome: Outcome,
    /// The location from which the first place was read.
    pub source: Option<Location>,
}

/// Limits of a survey.
#[derive(Debug, Clone, Default)]
pub struct SurveyOptions {
    /// Only places that govern one of these CPUs; all if `None`.
    pub cpus: Option<CpuList>,
    /// See [`Request::sample_absence`].
    pub sample_absence: bool,
    /// One row for each place, even if values are equal.
    pub apart: bool,
}

impl SurveyOptions {
    /// Returns the request for a snapshot to survey `knobs`.
    pub fn request<'a>(&'a self, knobs: &'a [Id]) -> Request<'a> {
        Request {
            knobs,
            cpus: self.cpus.as_ref(),
            sample_absence: self.sample_absence,
            online_by_list: !self.apart,
            ..Request::default()
        }
    }
}

/// Returns the rows of `knobs`, in the order of `knobs`, then of the places.
///
/// # Errors
/// A knob was not taken; see [`SurveyOptions::request`].
pub fn survey(
    snapshot: &Snapshot,
    knobs: &[KnobName],
    options: &SurveyOptions,
) -> Result<Vec<Row>, ReadError> {
    let mut rows: Vec<Row> = Vec::new();
    for name in knobs {
        one(snapshot, name, options, &mut rows)?;
    }
    Ok(rows)
}

fn one(
    snapshot: &Snapshot,
    name: &KnobName,
    options: &SurveyOptions,
    rows: &mut Vec<Row>,
) -> Result<(), ReadError> {
    let knob = name.knob;
    let start = rows.len();
    let on = |place: &Place| options.cpus.as_ref().is_none_or(|cpus| place.is_on(cpus));
    let is_meant = |place: &Place| on(place) && name.matches(place);
    // All places share one row, because a sample decided for them.
    if let Some(why) = snapshot.absent_everywhere(knob) {
        let mut row = Row {
            knob,
            name: String::new(),
            cpus: CpuList::new(),
            places: 0,
            outcome: Outcome::Absent(why.clone()),
            source: None,
        };
        for place in snapshot.places(knob)?.iter().filter(|place| is_meant(place)) {
            row.cpus.add(place.own_cpus());
            row.places += 1;
        }
        rows.push(row);
        return Ok(());
    }
    for (place, entry) in snapshot.entries(knob)?.filter(|(place, _)| is_meant(place)) {
        let (outcome, source) = Outcome::new(&entry.ok_or(ReadError::NotTaken(knob))?.reading);
        let alike = |row: &&mut Row| row.name == place.name && row.outcome.alike(&outcome);
        // Search from the back: neighbouring places usually have the same value, and a machine has
        // hundreds of places.
        match rows[start..].iter_mut().rev().find(alike) {
            Some(row) if !options.apart => {
                row.cpus.add(place.own_cpus());
                row.places += 1;
            }
            _ => rows.push(Row {
                knob,
                name: place.name.clone(),
                cpus: place.own_cpus().clone(),
                places: 1,
                outcome,
                source: source.cloned(),
            }),
        }
    }
    // The entry above the dies of a package lacks knobs that only dies have. Skip its row if the
    // dies have values.
    if name.instance.is_none() && rows[start..].iter().any(|row| !matches!(row.outcome, Outcome::Absent(_))) {
        let above = |row: &Row| knob.knob().scope == Scope::Uncore && row.name.starts_with("package_");
        let mut kept = rows.split_off(start);
        kept.retain(|row| !(above(row) && matches!(row.outcome, Outcome::Absent(_))));
        rows.append(&mut kept);
    }
    // A requested knob always has a row. Without a value, the row says why.
    if rows.len() == start {
        let outcome = Outcome::Absent(if snapshot.places(knob)?.is_empty() {
            snapshot.why_nowhere(knob)
        } else {
            Why::NotNow(format!("no {} of that name on these CPUs", knob.knob().scope))
        });
        let cpus = options.cpus.clone().unwrap_or_else(|| snapshot.topology().present.clone());
        rows.push(Row { knob, name: String::new(), cpus, places: 0, outcome, source: None });
    }
    order(knob.knob().scope, &mut rows[start..]);
    Ok(())
}

/// Groups rows of named instances: all of C1, then all of C6, in the machine's order.
fn order(scope: Scope, rows: &mut [Row]) {
    if scope == Scope::IdleState {
        let mut names: Vec<String> = Vec::new();
        for row in rows.iter() {
            if !names.contains(&row.name) {
                names.push(row.name.clone());
            }
        }
        // The sort is stable: within a name the rows stay in the order of CPUs.
        rows.sort_by_key(|row| names.iter().position(|name| *name == row.name));
    }
}
