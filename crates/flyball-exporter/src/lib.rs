//! Metrics of a machine's processors for Prometheus.
//!
//! A [`Collector`] turns a machine into text ([`exposition`]): what it may write is the table
//! [`catalogue`]. A [`server::Server`] answers scrapes over HTTP, one thread and one poll(2) for
//! all of them. Nothing here writes to the machine.

pub mod catalogue;
pub mod collect;
pub mod exposition;
pub mod http;
pub mod serve;
pub mod server;
pub mod web_config;

pub use collect::{Collector, Options, covered};
pub use exposition::{Exposition, Format};
