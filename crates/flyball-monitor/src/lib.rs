//! Each CPU's requested and delivered speed, and the reason for the difference.
//!
//! A [`Layout`] says what is counted on a machine, and a [`Sample`] holds one reading of it, as numbers in the layout's
//! order. Both are plain data that a file can hold, so that what follows from two samples follows from a recording too.

pub mod layout;
pub mod sample;

pub use layout::{Cpu, Field, Layout, Machine, Package, Quantity, Scope, Unit};
pub use sample::{ABSENT, Cost, Sample};
