//! Metrics of a machine's processors for Prometheus.
//!
//! A [`Collector`] turns a machine into text ([`exposition`]). The table in [`catalogue`] lists
//! every metric that it may write. A [`server::Server`] answers scrapes over HTTP, with one thread
//! and one poll(2) for all clients. Nothing here writes to the machine.

pub mod catalogue;
pub mod collect;
pub mod exposition;
pub mod http;
pub mod serve;
pub mod server;
pub mod web_config;

pub use collect::{Collector, Options, covered};
pub use exposition::{Exposition, Format};
