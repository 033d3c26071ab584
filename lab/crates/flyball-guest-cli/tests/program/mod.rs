//! The flyball that these tests run and copy into guests: `$FLYBALL`, or the one that the product's
//! workspace has built next to `flyball-guest`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Returns flyball's path.
///
/// # Panics
/// If it is not built: a skipped test would look like one that passed.
pub(crate) fn flyball() -> String {
    let beside = || Path::new(env!("CARGO_BIN_EXE_flyball-guest")).with_file_name("flyball");
    let program = std::env::var_os("FLYBALL").map_or_else(beside, PathBuf::from);
    assert!(
        program.is_file(),
        "{} is not built: run cargo build --features full,parquet in the product's workspace first",
        program.display()
    );
    program.display().to_string()
}

/// Returns a command that runs flyball.
pub(crate) fn command() -> Command {
    flyball_testing::command(&flyball())
}
