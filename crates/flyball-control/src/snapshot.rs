//! A machine's knobs at one moment, as data: what plan, verify and compare work on.

use flyball_host::CpuList;
use serde::{Deserialize, Serialize};

use crate::{At, Id, Machine, Place, ReadError, Reading, Value};

/// One knob at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The knob.
    pub knob: Id,
    /// Where.
    pub place: Place,
    /// What was read.
    pub reading: Reading,
}

/// Knobs at places, in the order of the table and of the places.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The entries.
    pub entries: Vec<Entry>,
}

impl Snapshot {
    /// Reads `knobs` at every place of theirs. Files that should be there and cannot be read are returned beside
    /// the snapshot, so that one broken file does not hide the rest.
    pub fn take(machine: &Machine<'_>, knobs: &[Id]) -> (Snapshot, Vec<(Id, Place, ReadError)>) {
        let mut snapshot = Snapshot::default();
        let mut errors = Vec::new();
        for &knob in knobs {
            for place in machine.places(knob) {
                match machine.read(knob, &place) {
                    Ok(reading) => snapshot.entries.push(Entry { knob, place, reading }),
                    Err(error) => errors.push((knob, place, error)),
                }
            }
        }
        (snapshot, errors)
    }

    /// The reading of `knob` at `at`.
    pub fn get(&self, knob: Id, at: &At) -> Option<&Reading> {
        self.entries
            .iter()
            .find(|entry| entry.knob == knob && entry.place.at == *at)
            .map(|entry| &entry.reading)
    }

    /// The value of `knob` at `at`, where it was read and has one.
    pub fn value(&self, knob: Id, at: &At) -> Option<&Value> {
        self.get(knob, at).and_then(Reading::value)
    }

    /// All entries of one knob.
    pub fn of(&self, knob: Id) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.knob == knob)
    }

    /// The entries whose places touch `cpus`.
    pub fn on<'a>(&'a self, cpus: &'a CpuList) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(|entry| entry.place.cpus.iter().any(|cpu| cpus.contains(cpu)))
    }
}
