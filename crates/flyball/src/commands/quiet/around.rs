//! `flyball quiet -- COMMAND`: one command on a quiet machine.

use std::sync::atomic::{AtomicBool, Ordering};

use flyball_control::{Snapshot, write::journal::Purpose};
use flyball_host::{Host, Kind};

use crate::{
    context::Context,
    exit::{Exit, Failure},
    process::{interrupts, run_in_foreground},
    quiet::{self, Quiet, QuietSession},
};

/// Runs one command on the quiet machine.
pub fn run(context: &Context, options: &Quiet, command: &[String]) -> Result<Exit, Failure> {
    let host = context.open()?;
    if host.kind() != Kind::Live {
        return Err(Failure::usage(
            "a command can only run on this machine, without -M; 'flyball quiet -n -M ...' prints the plan for another machine",
        ));
    }
    let stop = interrupts()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let session = QuietSession::begin(context, &*host, options, Purpose::Quiet, true, &stopped)?;
    let ended = run_command(&*host, options, command, session.group.as_deref(), &stop);
    // The machine is restored whatever became of the command; only then its exit code is looked at.
    session.end()?;
    ended
}

fn run_command(
    host: &dyn Host,
    options: &Quiet,
    command: &[String],
    group: Option<&str>,
    stop: &AtomicBool,
) -> Result<Exit, Failure> {
    // Level fixed takes CPUs offline: those that the command may use are looked up on the quiet machine.
    let snapshot = Snapshot::begin(host).map_err(Failure::failed)?;
    let cpus = quiet::cpus(&snapshot, options)?;
    run_in_foreground(quiet::launch(command, &cpus, options, group), &command[0], stop)
}
