//! This process: its program, its command line, and signals that end it. Also runs the user's
//! command.

use std::{
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flyball_host::{Launch, Process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Exit, Failure};

pub(crate) fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find flyball's own program: {error}")))
}

/// The command line that the user typed, for the lock and the journal.
pub(crate) fn command_line() -> String {
    // Arguments may not be UTF-8, and `args` would panic.
    let mut words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(first) = words.first_mut() {
        // Without the path: the line is compared and shown, and the program's location is
        // irrelevant.
        "flyball".clone_into(first);
    }
    words.join(" ")
}

/// A flag that these signals set, instead of ending the process.
pub(crate) fn flag_on(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, Arc::clone(&flag))
            .map_err(|error| Failure::failed(format!("cannot catch signal {signal}: {error}")))?;
    }
    Ok(flag)
}

/// A flag that Ctrl-C, SIGTERM and a closed terminal set, instead of ending the process between two
/// writes.
pub(crate) fn interrupts() -> Result<Arc<AtomicBool>, Failure> {
    flag_on(&[SIGINT, SIGTERM, SIGHUP])
}

/// Runs a command in the foreground of the terminal until it ends or `stop` is set. Calls `tick` a
/// few times per second. Returns the command's exit code, or 128 + N like a shell if signal N ended
/// it.
pub(crate) fn run_in_foreground(
    launch: Launch,
    program: &str,
    stop: &AtomicBool,
    tick: &mut dyn FnMut(),
) -> Result<Exit, Failure> {
    let fail = |error: std::io::Error| {
        // Like a shell: 127 if the program does not exist, 126 if it cannot be run.
        let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
        Failure::new(Exit::Command(code), format!("cannot run {program}: {error}"))
    };
    // Always on this computer, whatever machine the settings are for: simulated machines only run
    // models.
    let mut running: Box<dyn Process> = Box::new(launch.in_foreground().start().map_err(fail)?);
    let ended = loop {
        // Wait briefly, so that a signal, which only sets the flag, is noticed.
        if let Some(ended) = running.wait(Duration::from_millis(200)).map_err(fail)? {
            break ended;
        }
        if stop.load(Ordering::Relaxed) {
            // SIGTERM first, SIGKILL after two seconds: a command that ignores the signal must not
            // keep the settings in effect.
            break running.stop(Duration::from_secs(2)).map_err(fail)?;
        }
        tick();
    };
    // 255 if the process neither exited nor was killed, which wait() never reports for a process
    // that has ended.
    let code = ended.status.code().or_else(|| Some(128 + ended.status.signal()?)).unwrap_or(255);
    // Even if 0: return the command's result, whatever flyball could or could not print about it.
    Ok(Exit::Command(code as u8))
}
