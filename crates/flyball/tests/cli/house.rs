//! ARCHITECTURE.md against the code: what it names exists, crates depend on each other as it draws,
//! modules form layers, and the invariants that a program can check hold. Also the packages that
//! flyball is built from.

mod dependencies;
mod graph;
mod invariants;
mod modules;
mod names;
mod sources;
