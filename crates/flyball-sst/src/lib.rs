//! Intel Speed Select Technology: reads what a machine offers, sets it, and follows changes.
//!
//! [`access`] is a common form of both kernel interfaces; [`cpus`] maps CPUs to power domains and
//! cores; [`layout`] describes Speed Select on a machine; [`setting`] is a setting that can be
//! written, remembered and restored; [`partition`] keeps ordinary tasks off CPUs with a cgroup
//! partition; [`model`] reads a whole machine; [`cost`] describes gains and costs of a setting;
//! [`recommend`] finds the best level and feature for given CPUs; [`follow`] keeps the CPUs of the
//! current level online.

pub mod access;
pub mod cost;
pub mod cpus;
pub mod follow;
pub mod layout;
pub mod model;
pub mod partition;
pub mod recommend;
pub mod setting;
