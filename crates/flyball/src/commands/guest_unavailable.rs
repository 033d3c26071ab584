//! `flyball guest` and `-M guest:NAME` in a build without the feature `guest`: they say how to
//! build with it.

use std::ffi::OsString;

use crate::{
    commands::compare,
    exit::{Exit, Failure},
    machine::GuestArg,
    output::Reporter,
};

/// Arguments of `guest`.
#[derive(Debug, clap::Args)]
// Also for --help the answer is that this build has none.
#[command(disable_help_flag = true)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<OsString>,
}

fn absent() -> Result<Exit, Failure> {
    Err(Failure::not_here(
        "this build has no guests: build with cargo build --release --workspace --features lab",
    ))
}

/// Fails for every action.
pub fn run(_kernel: Option<&str>, _output: &Reporter, _args: &Args) -> Result<Exit, Failure> {
    absent()
}

/// Fails for every guest.
pub fn inside(_choice: GuestArg) -> Result<Exit, Failure> {
    absent()
}

/// Fails for every guest.
pub fn compare_inside(_choice: GuestArg, _args: &compare::Args, _json: bool) -> Result<Exit, Failure> {
    absent()
}
