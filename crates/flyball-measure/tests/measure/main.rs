//! Statistics against SciPy, and published measurements made again from their raw samples.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod scipy;
mod selftest;
mod sentences;
