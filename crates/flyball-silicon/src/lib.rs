//! Processors in software: what their registers mean, what their firmware decides, how fast they
//! then run, how much power that takes and how warm they get. Pure: no input, no output, no clock
//! but the one passed in, no randomness but the seed. What a register means is written here once;
//! flyball-sim puts kernel-like drivers on it and flyball-guest puts real kernels on it.
//!
//! ```
//! use flyball_silicon::{Activity, MachineSpec, Silicon, msr};
//!
//! let spec = MachineSpec::builtin("sst-guide").unwrap();
//! let mut chip = Silicon::new(spec, 0).unwrap();
//! chip.write_msr(0, msr::PM_ENABLE, 1).unwrap();
//! let load = vec![Activity::busy(); chip.cpus()];
//! for _ in 0..100 {
//!     chip.advance(1_000_000, &load); // one millisecond
//! }
//! assert!(chip.frequency(0).mhz() >= 2600);
//! assert!(chip.power(0).0 > 50.0);
//! ```
//!
//! # Time
//!
//! [`Silicon::advance`] moves the machine by whole nanoseconds. What the processors did in that
//! time is passed in, one [`Activity`] for each CPU; how fast they did it is the frequency that the
//! firmware had chosen at its start. A register write acts at the start of the next step, or at
//! once with [`Silicon::settle`]. The firmware decides again once per
//! [period](spec::FirmwareSpec::period_us); longer steps are cut into periods.
//!
//! # Numbers
//!
//! Time, cycles and energy are integers. Power and temperature are `f64` and use only the four
//! operations and square roots, which IEEE 754 rounds the same way everywhere, so that the same
//! seed gives the same bytes on every host.

mod cpuid;
mod curve;
mod energy;
mod fault;
mod feedback;
mod firmware;
mod latched;
mod limits;
mod machines;
pub mod msr;
mod registers;
mod silicon;
pub mod spec;
pub mod sst;
mod sst_state;
mod thermal;
mod topology;
mod units;

#[cfg(test)]
mod tests;

pub use cpuid::CpuidRegisters;
pub use curve::Curve;
pub use energy::EnergyUnit;
pub use fault::Fault;
pub use firmware::{Interface, SharedCppc};
pub use silicon::{Activity, License, Silicon};
pub use spec::{MachineSpec, SpecError, SpecFault};
pub use topology::{CorePlace, CpuPlace, Topology};
pub use units::{Celsius, KiloHertz, Watts};
