//! Intel Speed Select Technology: reading what a machine offers, setting it, following it.
//!
//! [`access`] gives both kernel interfaces one form; [`cpus`] knows which CPU belongs to which
//! power domain and core; [`layout`] where Speed Select is on a machine; [`setting`] is one setting
//! that can be written, remembered and restored; [`partition`] keeps CPUs from ordinary work in a
//! cgroup partition; [`model`] reads a whole machine; [`cost`] says what a setting gives and takes;
//! [`recommend`] finds the level and feature that serve given CPUs; [`follow`] keeps CPUs online as
//! the current level has them.

pub mod access;
pub mod cost;
pub mod cpus;
pub mod follow;
pub mod layout;
pub mod model;
pub mod partition;
pub mod recommend;
pub mod setting;
