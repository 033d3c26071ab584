//! `flyball quiet -- COMMAND`: runs one command on a quiet machine.

use std::sync::atomic::Ordering;

use flyball_control::{Snapshot, write::journal::Purpose};
use flyball_host::{Host, Kind, Launch};
use flyball_process::User;

use crate::{
    context::Context,
    exit::{Exit, Failure},
    process::{interrupts, run_in_foreground},
    quiet_machine::{self, Quiet, QuietSession},
    run_as::RunAs,
};

pub(super) fn run(
    context: &Context,
    options: &Quiet,
    run_as: &RunAs,
    command: &[String],
) -> Result<Exit, Failure> {
    let host = context.open()?;
    // The command would run on this computer, whose settings are unchanged.
    if host.kind() != Kind::Live {
        return Err(Failure::usage(
            "a command can only run on this machine, without -M; 'flyball quiet -n -M ...' prints the plan for another machine",
        ));
    }
    let user = run_as.user(&*host)?;
    let stop = interrupts()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let session = QuietSession::begin(context, &*host, options, Purpose::Quiet, true, &stopped)?;
    let launch = launch(&*host, options, command, user.as_ref(), session.group.as_deref());
    let ended = launch.and_then(|launch| run_in_foreground(launch, &command[0], &stop, &mut || ()));
    // Restore the machine whatever the command's result is, before looking at its exit code.
    session.end()?;
    ended
}

fn launch(
    host: &dyn Host,
    options: &Quiet,
    command: &[String],
    user: Option<&User>,
    group: Option<&str>,
) -> Result<Launch, Failure> {
    // Level fixed takes CPUs offline, so choose the command's CPUs on the quiet machine.
    let cpus = options.options().cpus(&Snapshot::begin(host)?)?;
    Ok(quiet_machine::launch(command, &cpus, options, group).as_user(user))
}
