//! Finds, reads and changes the settings of a machine's processors.
//!
//! The core is one table, [`TABLE`]: every knob and every read-only fact has a row with its name,
//! unit, scope, place in the order of writes, and the files and registers that hold it. A
//! [`Snapshot`] is a machine at one moment: its parts ([`Topology`]), the places where a knob
//! exists ([`Snapshot::places`]), the value there ([`Snapshot::read`]), the meaning of a wanted
//! value (`min`, `2.6GHz`, `balance_power`) there ([`Snapshot::resolve`]), and the location and
//! content to write ([`Snapshot::target`]).
//!
//! An [`Intent`] states the wanted settings. [`plan::plan`] determines the necessary writes on a
//! machine as a snapshot shows it. Only [`write`] makes them, in a transaction that can always be
//! undone.

mod cppc;
pub mod doctor;
mod firmware_turbo;
pub mod fold;
pub mod import;
pub mod intent;
mod kernel;
pub mod knob;
mod knob_name;
mod limit_reasons;
mod limit_source;
mod location;
pub mod owners;
mod parse;
pub mod partition;
mod place;
pub mod plan;
pub mod profile;
mod programs;
pub mod quiet;
pub mod save;
mod select;
mod snapshot;
mod survey;
mod table;
mod target_error;
mod topology;
mod value;
pub mod verify;
mod wanted;
pub mod write;

pub use cppc::cppc_khz;
pub use firmware_turbo::FirmwareTurbo;
pub use flyball_host::Vendor;
pub use intent::{Intent, IntentError, Setting};
pub use kernel::kernel_release;
pub use knob::{Access, Form, Id, Knob, Mechanism, Scope, Unit};
pub use knob_name::KnobName;
pub use limit_reasons::{LimitReason, LimitReasons, ThermStatus};
pub use limit_source::LimitSource;
pub use location::{Content, Location};
pub use place::{At, Belongs, Place};
pub use select::{SelectError, select};
pub use snapshot::{Entry, KnobFile, Request, Slot, Snapshot};
pub use survey::{Outcome, Row, SurveyOptions, survey};
pub use table::{ONLY_PERFORMANCE, TABLE, UnknownKnob, called};
pub use target_error::TargetError;
pub use topology::{CoreType, Cpu, KindEvidence, LastCache, Policy, Topology};
pub use value::{Evidence, Plain, ReadError, Reading, Value, Why};
pub use wanted::{ResolveError, Wanted, WantedError};
