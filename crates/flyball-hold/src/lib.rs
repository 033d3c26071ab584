//! Holds: settings that flyball keeps in place.
//!
//! A [`Hold`] is a name, an owner, a priority and settings, perhaps with a condition and an end.
//! The overlay of all holds is in force, per knob and per place ([`Effective`]). Below it is the
//! state before the first hold, which the journal stores. [`apply_holds`] applies the overlay to
//! the machine, as one transaction. The [`Store`] keeps the holds of this boot in a file of the
//! state directory, next to the journal. The [`Service`] reacts to reports of the kernel: it
//! corrects, reports or yields, and names the process that caused the change.

mod active;
mod apply;
mod change;
mod condition;
mod config;
mod drift;
mod hold;
mod journald;
mod machine;
mod moment;
mod overlay;
mod rehearse;
mod service;
mod status;
mod store;

pub use self::{
    active::{ACTIVE, Active, ConfigError},
    apply::{ApplyOutcome, BringError, Preview, apply_holds, preview},
    change::{ChangeError, Changed, change_holds},
    condition::{Condition, ConditionError, Facts, Heat, Limit, Power, Pressure, Window},
    config::{Config, Desktop, Profiles, When},
    drift::{Action, Cause, Drift, Exemption, LeftBecause, MAX_CORRECTIONS},
    hold::{End, Hold, HoldName, NameError, OnDrift, OnExit, Owner, ProcessId, size},
    journald::Journald,
    machine::{MachineFacts, Requirement},
    moment::Moment,
    overlay::Effective,
    rehearse::{Rehearsal, TimedEvent, TimedNotice, events},
    service::{Notice, Priority, Service, VERIFY_EVERY, Watched, concerns_processors},
    status::{HeldKnob, HoldStatus, OverruledHold, Status, status},
    store::{MAX_SETTINGS_PER_USER, Presence, Refused, ServiceState, Store, StoreError},
};
