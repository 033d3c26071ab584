//! Compares ARCHITECTURE.md with the code: what it names exists, crates depend on each other as in
//! its diagram, modules form layers, and the invariants that a program can check are true. Also
//! checks the packages that flyball is built from.

mod dependencies;
mod graph;
mod invariants;
mod modules;
mod names;
mod sources;
