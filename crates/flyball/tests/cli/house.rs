//! ARCHITECTURE.md against the code: what it names exists, the crates depend on each other as it draws, and the
//! invariants that a program can check hold.

mod graph;
mod invariants;
mod names;
mod sources;
