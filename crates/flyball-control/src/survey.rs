//! Many knobs read at once, with alike places made one row: what `show` prints.
//!
//! The rows are data. Text and JSON are both made from them, so that they cannot differ.

use flyball_host::CpuList;
use serde::{Deserialize, Serialize};

use crate::{Id, KnobName, Location, Machine, Place, ReadError, Reading, Scope, Value, Why};

/// What a row's places have in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// They all hold this value.
    Value(Value),
    /// None of them has the knob, for this reason (the path in it is that of the first).
    Absent(Why),
    /// None of them can be read; the message of the first.
    Unreadable {
        /// What happened, with path and errno.
        message: String,
        /// Whether more rights would help.
        permission: bool,
    },
}

impl Outcome {
    /// The value, where there is one.
    pub fn value(&self) -> Option<&Value> {
        match self {
            Outcome::Value(value) => Some(value),
            _ => None,
        }
    }

    fn of(reading: Result<Reading, ReadError>) -> (Outcome, Option<Location>) {
        match reading {
            Ok(Reading::Value { value, source }) => (Outcome::Value(value), Some(source)),
            Ok(Reading::Absent(why)) => (Outcome::Absent(why), None),
            Err(error) => {
                let permission = error.is_permission();
                (Outcome::Unreadable { message: error.to_string(), permission }, None)
            }
        }
    }

    /// Whether two places may share a row: equal values, or the same reason for having none whatever the path.
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

/// Places of one knob that are alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The knob.
    pub knob: Id,
    /// The instance's name (`C6`, `package-0 long_term`), empty for numbered scopes.
    pub name: String,
    /// The CPUs that the places govern.
    pub cpus: CpuList,
    /// How many places.
    pub places: usize,
    /// What they hold.
    pub outcome: Outcome,
    /// Where the first of them was read.
    pub source: Option<Location>,
}

/// What limits a survey.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// Only places that govern one of these CPUs; all where `None`.
    pub cpus: Option<CpuList>,
    /// Believe that what the first and the last place and one of each core type lack, all lack. The kernel gives every
    /// policy of a driver the same attributes, and every CPU of a machine; not looking for what is not there saves
    /// a thousand failed calls on a large machine.
    pub sample_absence: bool,
    /// One row for each place, alike or not.
    pub apart: bool,
}

/// Rows of `knobs` on `machine`, in the order of `knobs`, then of the places.
pub fn survey(machine: &Machine<'_>, knobs: &[KnobName], wish: &Wish) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for name in knobs {
        one(machine, name, wish, &mut rows);
    }
    rows
}

fn one(machine: &Machine<'_>, name: &KnobName, wish: &Wish, rows: &mut Vec<Row>) {
    let knob = name.knob;
    let start = rows.len();
    let all = machine.places_of(knob.knob().scope);
    let on = |place: &&Place| match &wish.cpus {
        Some(cpus) => place.cpus.intersects(cpus),
        None => true,
    };
    let wanted: Vec<&Place> = all.iter().filter(on).filter(|place| name.matches(place)).collect();
    if wanted.is_empty() {
        let outcome = Outcome::Absent(if all.is_empty() {
            machine.why_nowhere(knob)
        } else {
            Why::NotNow(format!("no {} of that name on these CPUs", knob.knob().scope))
        });
        let cpus = wish.cpus.clone().unwrap_or_else(|| machine.topology().present.clone());
        rows.push(Row { knob, name: String::new(), cpus, places: 0, outcome, source: None });
        return;
    }
    if wish.sample_absence && wanted.len() > 8 {
        if let Some(row) = absent_everywhere(machine, knob, &wanted) {
            rows.push(row);
            return;
        }
    }
    let online = (knob == Id::Online && !wish.apart).then(|| &machine.topology().online);
    for place in wanted {
        // The list of online CPUs was read with the topology: no need to ask each CPU.
        let reading = match online {
            Some(online) => Ok(Reading::Value {
                value: Value::Switch(place.cpus.intersects(online)),
                source: Location::File("/sys/devices/system/cpu/online".to_owned()),
            }),
            None => machine.read(knob, place),
        };
        let (outcome, source) = Outcome::of(reading);
        let alike = |row: &&mut Row| row.name == place.name && row.outcome.alike(&outcome);
        match rows[start..].iter_mut().rev().find(alike) {
            Some(row) if !wish.apart => {
                row.cpus.add(&place.cpus);
                row.places += 1;
            }
            _ => rows.push(Row {
                knob,
                name: place.name.clone(),
                cpus: place.cpus.clone(),
                places: 1,
                outcome,
                source,
            }),
        }
    }
    order(knob.knob().scope, &mut rows[start..]);
}

/// One row that says that `knob` is absent, where a sample of its places lacks the file.
fn absent_everywhere(machine: &Machine<'_>, knob: Id, places: &[&Place]) -> Option<Row> {
    let mut sample = vec![*places.first()?, *places.last()?];
    for cpus in machine.topology().core_kinds().values() {
        sample.extend(places.iter().find(|place| place.cpus.first().is_some_and(|cpu| cpus.contains(cpu))));
    }
    let mut first = None;
    for place in sample {
        match machine.read(knob, place) {
            Ok(Reading::Absent(
                why @ (Why::NoFile(_) | Why::NoRegister { .. } | Why::OtherVendor(_) | Why::NoCpufreq),
            )) => {
                first.get_or_insert(why);
            }
            _ => return None,
        }
    }
    let mut cpus = CpuList::new();
    for place in places {
        cpus.add(&place.cpus);
    }
    let outcome = Outcome::Absent(first?);
    Some(Row { knob, name: String::new(), cpus, places: places.len(), outcome, source: None })
}

/// Puts rows of named instances side by side: all of C1, then all of C6, as the machine lists them.
fn order(scope: Scope, rows: &mut [Row]) {
    if scope == Scope::IdleState {
        let mut names: Vec<String> = Vec::new();
        for row in rows.iter() {
            if !names.contains(&row.name) {
                names.push(row.name.clone());
            }
        }
        rows.sort_by_key(|row| names.iter().position(|name| *name == row.name));
    }
}
