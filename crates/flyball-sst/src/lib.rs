//! Intel Speed Select Technology: what a machine offers of it, setting it, following it.
//!
//! [`access`] makes one interface of the two that kernels have; [`apart`] sets CPUs apart in a
//! partition; [`cpus`] knows which CPU belongs to which power
//! domain and core; [`setting`] is one setting that can be written, remembered and put back; [`model`] reads a whole
//! machine; [`cost`] says in words what a setting gives and takes; [`recommend`] says which setting serves given CPUs;
//! [`follow`] keeps CPUs online as the level in force wants. [`dropin`] is the command line, the output and the exit
//! codes of intel-speed-select v1.26, for scripts that were written for it.

pub mod access;
pub mod apart;
pub mod cost;
pub mod cpus;
pub mod dropin;
pub mod follow;
pub mod model;
#[cfg(any(test, feature = "player"))]
pub mod player;
pub mod recommend;
pub mod setting;
