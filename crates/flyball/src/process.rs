//! This process: its program, its command line, and the signals that end it.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::Failure;

/// The path of flyball's own program, to start it again.
pub fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find flyball's own program: {error}")))
}

/// The command line that the user typed, for the lock and the journal.
pub fn command_line() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(first) = words.first_mut() {
        "flyball".clone_into(first);
    }
    words.join(" ")
}

/// A flag that these signals set, instead of ending the process.
pub fn flag_on(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, Arc::clone(&flag))
            .map_err(|error| Failure::failed(format!("cannot catch signal {signal}: {error}")))?;
    }
    Ok(flag)
}

/// A flag that Ctrl-C, SIGTERM and a closed terminal set, instead of ending the process between two writes.
pub fn interrupts() -> Result<Arc<AtomicBool>, Failure> {
    flag_on(&[SIGINT, SIGTERM, SIGHUP])
}
