//! This process: its program, its command line, and the signals that end it. And the command that
//! it runs for the user.

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

/// The path of flyball's own program, to start it again.
pub(crate) fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find flyball's own program: {error}")))
}

/// The command line that the user typed, for the lock and the journal.
pub(crate) fn command_line() -> String {
    // An argument need not be UTF-8, and `args` panics where one is not.
    let mut words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(first) = words.first_mut() {
        // Without the path: the line is compared and shown, and where the program lies says
        // nothing.
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

/// Runs a command in the foreground of the terminal until it ends, or until `stop` is set. Its exit
/// code is that of the command; 128 + N if signal N ended it, as in a shell. `tick` is called a few
/// times per second meanwhile.
pub(crate) fn run_in_foreground(
    launch: Launch,
    program: &str,
    stop: &AtomicBool,
    tick: &mut dyn FnMut(),
) -> Result<Exit, Failure> {
    let fail = |error: std::io::Error| {
        // As in a shell: 127 if there is no such program, 126 if it cannot be run.
        let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
        Failure::new(Exit::Command(code), format!("cannot run {program}: {error}"))
    };
    // On this machine, whatever machine the settings are for: a simulated one runs models only.
    let mut running: Box<dyn Process> = Box::new(launch.in_foreground().start().map_err(fail)?);
    let ended = loop {
        // The wait is cut short so that a signal, which only sets the flag, is noticed.
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
    // 255: neither ended nor killed by a signal, which wait() does not report for a process that is
    // gone.
    let code = ended.status.code().or_else(|| Some(128 + ended.status.signal()?)).unwrap_or(255);
    // Also 0: what the command answered stands, whatever flyball could or could not say about it.
    Ok(Exit::Command(code as u8))
}
