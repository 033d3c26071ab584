//! Finds a row by identity, name or location, for the command line, the journal and the footprints
//! of writes.

use std::{fmt, mem::discriminant};

use serde::{Deserialize, Serialize};

use super::{
    TABLE,
    auxiliary::{AUXILIARIES, Auxiliary},
    pattern::captures,
};
use crate::{
    Id, Knob, Location, Mechanism,
    knob::{
        Writing,
        spelling::Handling,
        subject::{AuxiliaryId, Subject},
    },
};

impl Knob {
    /// Returns the knob called `name`.
    ///
    /// # Errors
    /// The nearest existing name.
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

/// An unknown knob name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKnob {
    /// The name as given.
    pub name: String,
    /// The nearest existing name, if one is near.
    pub nearest: Option<&'static str>,
}

/// Names that other tools, manuals and the kernel use, with flyball's names for them. If two fit,
/// the first wins. A name that can be set must lead to a knob.
const ALIASES: &[(&str, &str)] = &[
    ("boost-enabled", "turbo"),
    ("c-state", "idle-state"),
    ("c-states", "idle-state"),
    ("cpb", "boost"),
    ("cpu-max", "max-freq"),
    ("cpu-min", "min-freq"),
    ("cstate", "idle-state"),
    ("cstates", "idle-state"),
    ("energy_perf_bias", "epb"),
    ("energy_performance_preference", "epp"),
    ("freq", "cur-freq"),
    ("freq", "max-freq"),
    ("frequency", "cur-freq"),
    ("frequency", "max-freq"),
    ("ht", "smt"),
    ("hyper-threading", "smt"),
    ("hyperthreading", "smt"),
    ("max", "max-freq"),
    ("min", "min-freq"),
    ("no_turbo", "turbo"),
    ("perf-bias", "epb"),
    ("pl1", "power-limit"),
    ("pl2", "power-limit"),
    ("pm_qos_resume_latency_us", "latency-limit"),
    ("rapl", "power-limit"),
    ("scaling_governor", "governor"),
    ("scaling_max_freq", "max-freq"),
    ("scaling_min_freq", "min-freq"),
    ("scaling_setspeed", "setspeed"),
    ("status", "driver-mode"),
    ("tdp", "power-limit"),
    ("turbo-boost", "turbo"),
];

/// Returns the knob or fact that other tools call `name`.
pub fn called(name: &str) -> Option<&'static Knob> {
    let lower = name.to_ascii_lowercase();
    let ours = ALIASES.iter().find_map(|(other, ours)| (*other == lower).then_some(*ours));
    ours.or_else(|| is_idle_state(&lower).then_some("idle-state"))
        .and_then(|name| Knob::named(name).ok())
        .or_else(|| knob_of_file(name))
}

/// Returns the first row with a file of this name, as kernel documents spell it:
/// `amd_pstate_max_freq`. One-word names (`name`, `time`, `latency`) do not count, because they
/// have other meanings.
fn knob_of_file(name: &str) -> Option<&'static Knob> {
    if !name.contains('_') {
        return None;
    }
    let is_named = |mechanism: &Mechanism| match mechanism {
        Mechanism::File { path, .. } => path.rsplit('/').next() == Some(name),
        _ => false,
    };
    TABLE.iter().find(|knob| knob.mechanisms.iter().any(is_named))
}

/// Returns whether `lower` is the lower-case name of an idle state, such as C6, C1E or C1_ACPI.
pub(crate) fn is_idle_state(lower: &str) -> bool {
    let lower = lower.strip_suffix("_acpi").unwrap_or(lower);
    lower.len() <= 5
        && lower.strip_prefix('c').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

impl UnknownKnob {
    pub(crate) fn new(name: &str) -> UnknownKnob {
        UnknownKnob { name: name.to_owned(), nearest: nearest(name, |_| true) }
    }

    /// Suggests the nearest knob, for a name that the user wanted to set. A fact would not help.
    #[must_use]
    pub fn to_set(self) -> UnknownKnob {
        UnknownKnob { nearest: nearest(&self.name, |knob| knob.control().is_some()), ..self }
    }
}

/// Returns the row's name that `name` was probably meant to be.
fn nearest(name: &str, fits: impl Fn(&Knob) -> bool) -> Option<&'static str> {
    // Ignore the instance.
    let lower = name.split(':').next().unwrap_or(name).to_ascii_lowercase();
    let known = || TABLE.iter().filter(|knob| fits(knob));
    let named = |wanted: &str| known().find(|knob| knob.name == wanted).map(|knob| knob.name);
    // Try aliases first: another tool's name may be spelled unlike ours.
    let alias = ALIASES.iter().filter(|(other, _)| *other == lower).find_map(|(_, ours)| named(ours));
    let dashed = lower.replace('_', "-");
    alias
        .or_else(|| knob_of_file(&lower).filter(|knob| fits(knob)).map(|knob| knob.name))
        .or_else(|| named("idle-state").filter(|_| is_idle_state(&lower)))
        .or_else(|| {
            known()
                .map(|knob| (strsim::damerau_levenshtein(&dashed, knob.name), knob.name))
                .min()
                // A two-letter word is near every short name.
                .filter(|(distance, near)| *distance <= 1 + near.len() / 4 && *distance < dashed.len())
                .map(|(_, near)| near)
        })
        .or_else(|| {
            let holds = |knob: &&Knob| knob.name.contains(&dashed) || dashed.contains(knob.name);
            known().filter(|_| dashed.len() > 1).find(holds).map(|knob| knob.name)
        })
}

impl fmt::Display for UnknownKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nearest {
            Some("idle-state") if is_idle_state(&self.name.to_ascii_lowercase()) => {
                let state = self.name.to_ascii_uppercase();
                write!(f, "no knob '{}'; did you mean 'idle-state:{state}'?", self.name)
            }
            Some(near) => write!(f, "no knob '{}'; did you mean '{near}'?", self.name),
            None => write!(f, "no knob '{}'; `flyball explain` lists them all", self.name),
        }
    }
}

impl std::error::Error for UnknownKnob {}

impl Subject {
    /// Returns the subject that `location` holds, by the patterns of the table; `None` if flyball
    /// never writes there.
    pub fn from_location(location: &Location) -> Option<Subject> {
        let knob = |is: &dyn Fn(&Mechanism) -> bool| {
            let mut rows = TABLE.iter();
            // Only locations that flyball writes count: a journal line about any other file is
            // foreign and ignored.
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
                &|mechanism| matches!(mechanism, Mechanism::SpeedSelect { field, .. } if discriminant(field) == discriminant(&setting.field)),
            ),
            Location::Msr { register, mask, .. } => knob(&|mechanism| {
                matches!(mechanism, Mechanism::Msr { register: known, bits, .. }
                    if known == register && crate::knob::mask(*bits) == *mask)
            }),
            Location::Partition(_) => Some(Subject::Auxiliary(AuxiliaryId::Partition)),
            Location::Command(knob) => Some(Subject::Auxiliary(match knob.read {
                Some(_) => AuxiliaryId::Command,
                None => AuxiliaryId::UnreadCommand,
            })),
        }
    }

    /// Returns how flyball writes it; `None` for a fact.
    pub fn writing(self) -> Option<&'static Writing> {
        match self {
            Subject::Knob(id) => id.knob().control().map(|control| &control.writing),
            Subject::Auxiliary(id) => Some(&id.row().writing),
        }
    }

    /// Returns how flyball writes the content `new` to its location, as the journal stores it;
    /// `None` for a fact.
    pub fn handling(self, new: &str) -> Option<Handling> {
        let writing = self.writing()?;
        Some(Handling { step: writing.turn.step(new), spelling: writing.spelling, bound: writing.bound })
    }

    /// Returns the patterns of the writable files that hold it.
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
