//! Workloads as models: what a piece of work costs in cycles, in time that no clock speeds up, and
//! in idle gaps, and how it spreads over CPUs. A [`Workload`] is read from TOML (model.rs); an
//! [`Engine`] runs it on a simulated machine as a [`Load`](crate::Load) (engine.rs). The built-in
//! models are the files under workloads/; each number there names its source.

mod engine;
mod model;
mod noise;
mod several;

pub use engine::{Engine, Progress, Shared};
pub use model::{Group, Placement, Variation, Workload, WorkloadError};
pub use noise::Noise;
pub use several::Several;
