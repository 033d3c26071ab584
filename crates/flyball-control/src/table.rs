//! The table of knobs and facts. This file has their identities and order; the modules below have
//! their rows, by subject. A row states everything about a knob. The test at the end checks the
//! table for errors that the compiler cannot find.

pub(crate) mod auxiliary;
mod cppc;
mod cppc_cpufreq;
pub(crate) mod effects;
mod facts;
mod frequency;
mod idle;
mod lookup;
pub(crate) mod pattern;
mod platform;
mod power;
mod preference;
mod registers;
pub(crate) mod sst;
mod whole;

pub(crate) use self::lookup::is_idle_state;
pub use self::lookup::{UnknownKnob, called};
pub use self::preference::ONLY_PERFORMANCE;
use flyball_host::Vendor;

use crate::{
    Id,
    knob::{Form, Knob, Mechanism, On, rows},
};

macro_rules! table {
    ($($id:ident = $row:path;)*) => {
        /// Every knob, and then every fact, in the order of [`crate::Id`].
        pub static TABLE: &[Knob] = &[$(Knob { id: Id::$id, name: Id::$id.into_str(), row: $row }),*];
    };
}

rows!(table);

/// Describes a read-only file.
const fn ro(path: &'static str, form: Form) -> Mechanism {
    Mechanism::File { path, form, write: false }
}

/// Describes a file that can be written.
const fn rw(path: &'static str, form: Form) -> Mechanism {
    Mechanism::File { path, form, write: true }
}

/// Describes a read-only register field of Intel processors.
const fn intel(register: u32, bits: (u8, u8), form: Form) -> Mechanism {
    intel_on(On::All, register, bits, form)
}

/// Describes a read-only register field of the Intel processors for which it is documented.
const fn intel_on(on: On, register: u32, bits: (u8, u8), form: Form) -> Mechanism {
    Mechanism::Msr { vendor: Vendor::Intel, on, register, bits, form, write: false }
}

/// Describes a read-only register field of AMD processors.
const fn amd(register: u32, bits: (u8, u8), form: Form) -> Mechanism {
    Mechanism::Msr { vendor: Vendor::Amd, on: On::All, register, bits, form, write: false }
}

#[cfg(test)]
mod tests;
