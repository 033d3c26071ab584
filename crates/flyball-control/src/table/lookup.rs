//! From an identity, a name or a location to its row: what the command line, the journal and the footprints of writes ask.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    TABLE,
    auxiliary::{AUXILIARIES, Auxiliary},
    pattern::captures,
};
use crate::{
    Id, Knob, Location, Mechanism,
    knob::{
        SpeedSelect, Writing,
        spelling::Handling,
        subject::{AuxiliaryId, Subject},
    },
};

impl Knob {
    /// The knob called `name`.
    ///
    /// # Errors
    /// With the nearest name that exists.
    pub fn named(name: &str) -> Result<&'static Knob, UnknownKnob> {
        TABLE.iter().find(|knob| knob.name == name).ok_or_else(|| UnknownKnob::new(name))
    }
}

impl Id {
    pub fn knob(self) -> &'static Knob {
        &TABLE[self as usize]
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.knob().name)
    }
}

impl Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.knob().name)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        let name = String::deserialize(deserializer)?;
        Knob::named(&name).map(|knob| knob.id).map_err(serde::de::Error::custom)
    }
}

/// No knob has this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKnob {
    /// The name as given.
    pub name: String,
    /// The nearest name that exists, if one is near.
    pub nearest: Option<&'static str>,
}

/// Names that other tools and the kernel use, and what they are called here.
const ALIASES: &[(&str, &str)] = &[
    ("boost-enabled", "turbo"),
    ("cpb", "boost"),
    ("energy_perf_bias", "epb"),
    ("energy_performance_preference", "epp"),
    ("freq", "cur-freq"),
    ("frequency", "cur-freq"),
    ("max", "max-freq"),
    ("min", "min-freq"),
    ("no_turbo", "turbo"),
    ("perf-bias", "epb"),
    ("pl1", "power-limit"),
    ("pl2", "power-limit"),
    ("pm_qos_resume_latency_us", "latency-limit"),
    ("scaling_governor", "governor"),
    ("scaling_max_freq", "max-freq"),
    ("scaling_min_freq", "min-freq"),
    ("scaling_setspeed", "setspeed"),
    ("status", "driver-mode"),
    ("turbo-boost", "turbo"),
];

impl UnknownKnob {
    fn new(name: &str) -> UnknownKnob {
        let lower = name.to_ascii_lowercase();
        let alias = ALIASES.iter().find(|(other, _)| *other == lower).map(|(_, ours)| *ours);
        let nearest = alias.or_else(|| {
            let dashed = lower.replace('_', "-");
            TABLE
                .iter()
                .map(|knob| (strsim::damerau_levenshtein(&dashed, knob.name), knob.name))
                .min()
                .filter(|(distance, near)| *distance <= 1 + near.len() / 4)
                .map(|(_, near)| near)
                .or_else(|| {
                    TABLE
                        .iter()
                        .map(|knob| knob.name)
                        .find(|near| !dashed.is_empty() && (near.contains(&dashed) || dashed.contains(near)))
                })
        });
        UnknownKnob { name: name.to_owned(), nearest }
    }
}

impl fmt::Display for UnknownKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nearest {
            Some(near) => write!(f, "no knob '{}'; did you mean '{near}'?", self.name),
            None => write!(f, "no knob '{}'; `flyball explain` lists them all", self.name),
        }
    }
}

impl std::error::Error for UnknownKnob {}

impl Subject {
    /// What `location` holds, by the patterns of the table; `None` where flyball has no reason to write there.
    pub fn of(location: &Location) -> Option<Subject> {
        let knob = |is: &dyn Fn(&Mechanism) -> bool| {
            let mut rows = TABLE.iter();
            rows.find(|knob| knob.mechanisms.iter().any(|mechanism| mechanism.writes() && is(mechanism)))
                .map(|knob| Subject::Knob(knob.id))
        };
        match location {
            Location::File(path) => knob(&|mechanism| match mechanism {
                Mechanism::File { path: pattern, .. } => captures(pattern, path).is_some(),
                _ => false,
            })
            .or_else(|| {
                let known = AUXILIARIES
                    .iter()
                    .find(|known| known.files.iter().any(|file| captures(file, path).is_some()));
                known.map(|known| Subject::Auxiliary(known.id))
            }),
            Location::SpeedSelect(setting) => knob(
                &|mechanism| matches!(mechanism, Mechanism::SpeedSelect { field, .. } if *field == SpeedSelect::of(setting.field)),
            ),
            Location::Msr { register, mask, .. } => knob(&|mechanism| {
                matches!(mechanism, Mechanism::Msr { register: known, bits, .. }
                    if known == register && crate::knob::mask(*bits) == *mask)
            }),
            Location::Partition(_) => Some(Subject::Auxiliary(AuxiliaryId::Partition)),
        }
    }

    /// How it is written; `None` for a fact.
    pub fn writing(self) -> Option<&'static Writing> {
        match self {
            Subject::Knob(id) => id.knob().control().map(|control| &control.writing),
            Subject::Auxiliary(id) => Some(&id.row().writing),
        }
    }

    /// How a location that gets the content `new` is written, as the journal stores it; `None` for a fact.
    pub fn handling(self, new: &str) -> Option<Handling> {
        let writing = self.writing()?;
        Some(Handling { step: writing.turn.step(new), spelling: writing.spelling, bound: writing.bound })
    }

    /// The patterns of the files that hold it and can be written.
    pub fn files(self) -> impl Iterator<Item = &'static str> {
        let (mechanisms, files): (&'static [Mechanism], &'static [&'static str]) = match self {
            Subject::Knob(id) => (id.knob().mechanisms, &[]),
            Subject::Auxiliary(id) => (&[], id.row().files),
        };
        let of_knob = mechanisms.iter().filter_map(|mechanism| match mechanism {
            Mechanism::File { path, write: true, .. } => Some(*path),
            _ => None,
        });
        of_knob.chain(files.iter().copied())
    }
}

impl AuxiliaryId {
    pub fn row(self) -> &'static Auxiliary {
        &AUXILIARIES[self as usize]
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Knob(id) => id.fmt(f),
            Subject::Auxiliary(id) => f.write_str(id.row().title),
        }
    }
}
