//! Each CPU's requested and delivered speed, and the reason for the difference.
//!
//! A [`Layout`] lists what can be read on a machine, and a [`Sample`] holds one reading as numbers
//! in the layout's order. Both are plain data that a file can hold, so recordings can be evaluated
//! like a live machine.

pub mod facts;
pub mod file;
pub mod history;
pub mod interval;
pub mod layout;
pub mod limiter;
pub mod missing;
mod places;
mod preference;
pub mod readings;
pub mod sample;
pub mod sampler;
mod sentence;
pub mod shared;
pub mod why;

pub use facts::{Cap, CpuFacts, Facts, PackageFacts};
pub use interval::{CpuInterval, Interval, PackageInterval, State, Waking};
pub use layout::{Cpu, Field, Layout, Machine, Package, Quantity, Scope, Unit};
pub use limiter::{Certainty, Evidence, Limiter, Proof, Reason};
pub use missing::Missing;
pub use places::ValueOffsets;
pub use preference::{Preference, PreferenceWord};
pub use sample::{ABSENT, Cost, Sample};
pub use sampler::{
    IdleReads, KeptAttribute, Options, RaplZone, Reads, Sampler, Touch, answers_at_once, rapl_zones,
};
pub use why::{Account, Explanation, Step, explain};
