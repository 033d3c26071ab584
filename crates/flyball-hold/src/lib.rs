//! Settings that are kept.
//!
//! A [`Hold`] is a name, an owner, a priority and settings, perhaps with a condition and an end.
//! What is in force is the overlay of all holds, per knob and per place ([`Effective`]); below it
//! is what the journal says was there before the first hold. [`bring_about`] makes the machine so,
//! as one transaction. The [`Store`] keeps the holds of this boot in a file of the state directory,
//! next to the journal. The [`Service`] reacts to what the kernel reports: it corrects, reports or
//! yields, and says which process caused it.

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
    apply::{BringError, Brought, Preview, bring_about, preview},
    change::{ChangeError, Changed, change_holds},
    condition::{Condition, ConditionError, Facts, Heat, Limit, Power, Pressure, Window},
    config::{Config, Desktop, Profiles, When},
    drift::{Action, Cause, Drift, Exemption, LeftBecause, MAX_CORRECTIONS},
    hold::{End, Hold, HoldName, NameError, OnDrift, OnExit, Owner, ProcessId, size},
    journald::Journald,
    machine::{MachineFacts, Requirement},
    moment::Moment,
    overlay::Effective,
    rehearse::{Played, Rehearsal, ServiceNotice, events},
    service::{Notice, Priority, Service, VERIFY_EVERY, Watched, concerns_processors},
    status::{HeldKnob, HoldStatus, OverruledHold, Status, status},
    store::{MAX_SETTINGS_PER_USER, Presence, Refused, ServiceState, Store, StoreError},
};
