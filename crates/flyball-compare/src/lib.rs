//! A comparison on a machine: the machine's side of [`flyball_measure`].
//!
//! [`arms`] applies the settings of arms and restores them: [`HeldArms`] on a real machine inside
//! one transaction, [`BootedArms`] on a simulated machine. [`user_knobs`] reads the files with the
//! user's own knobs, [`RoundTraces`] records the driver's decisions in each round, and
//! [`SpeedWatch`] explains how fast the CPUs ran. [`workloads`] are what runs, and [`programs`]
//! makes arms of programs. [`bisect`] looks for the commit that made a program slower. [`RunSeeds`]
//! are the random numbers of simulated machines.

pub mod arms;
pub mod bisect;
mod pin;
pub mod programs;
mod seeds;
mod speed;
mod tracer;
pub mod user_knobs;
pub mod workloads;

pub use arms::{BootedArms, HeldArms};
pub use pin::{Pin, PinError};
pub use seeds::{RunSeeds, digest};
pub use speed::SpeedWatch;
pub use tracer::{NotTraceable, RoundTraces};
pub use user_knobs::{UserKnob, UserKnobsError};
