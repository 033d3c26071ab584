//! What a location holds: a knob of the table, or one of the auxiliary settings. Both state how they are
//! written, so that everything that writes finds it here.

use std::fmt;

use crate::{
    Id, Location, Mechanism,
    knob::{SpeedSelect, Writing},
    table::auxiliary::{AUXILIARIES, Auxiliary, AuxiliaryId},
    write::{pattern::captures, spelling::Handling},
};

/// What a location holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A knob.
    Knob(Id),
    /// A setting that is not a knob and that a change of the machine writes or disturbs.
    Auxiliary(AuxiliaryId),
}

impl Subject {
    /// What `location` holds, by the patterns of the table; `None` where flyball has no reason to write there.
    pub fn of(location: &Location) -> Option<Subject> {
        let knob = |is: &dyn Fn(&Mechanism) -> bool| {
            let mut rows = crate::knob::TABLE.iter();
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
                    if known == register && crate::parse::mask(*bits) == *mask)
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
    /// The row.
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
