//! All tests that boot a guest, one trial per boot. Select them by name: `cargo test -p
//! flyball-guest-cli --test guests -- doctor`.
//!
//! Kernels and the emulator come from the cache of `flyball guest fetch`. Missing ones are skipped
//! and counted. By default a few guests are booted; `FLYBALL_GUEST_TESTS=all` boots all of them.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod against_kernels;
mod arm;
mod closed_speed_select;
mod command;
mod compare;
mod doctor;
mod governors;
mod guest;
mod hold;
#[path = "../program/mod.rs"]
mod program;
mod recorded_speed_select;
mod settings;
mod speed_select;
mod top;
mod trace;
mod twin;
mod wake;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    // Three suites carry this program into the guest, where it does the part of the test that runs
    // there.
    if let Some("--inside") = words.get(1).map(String::as_str) {
        match words[2].as_str() {
            "against_kernels" => against_kernels::inside(&words[3..]),
            "governors" => governors::inside(&words[3..]),
            "wake" => wake::inside(),
            other => panic!("no suite '{other}' runs inside a guest"),
        }
        return ExitCode::SUCCESS;
    }
    guest::run_suites(vec![
        ("settings", settings::suite()),
        ("against_kernels", against_kernels::suite()),
        ("arm", arm::suite()),
        ("closed_speed_select", closed_speed_select::suite()),
        ("command", command::suite()),
        ("compare", compare::suite()),
        ("doctor", doctor::suite()),
        ("governors", governors::suite()),
        ("hold", hold::suite()),
        ("recorded_speed_select", recorded_speed_select::suite()),
        ("speed_select", speed_select::suite()),
        ("top", top::suite()),
        ("trace", trace::suite()),
        ("wake", wake::suite()),
    ])
}
