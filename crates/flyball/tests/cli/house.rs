//! ARCHITECTURE.md against the code: what it names exists, crates depend on each other as it draws, modules form layers, and the
//! invariants that a program can check hold.

mod graph;
mod invariants;
mod modules;
mod names;
mod sources;
