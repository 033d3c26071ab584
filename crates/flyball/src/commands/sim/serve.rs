//! `flyball sim run`: a program on a simulated machine.

use std::{
    ffi::OsString,
    fs::File,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};

use flyball_sim::serve::{self, Paced};

use super::choose;
use crate::{
    cli::Cli,
    exit::{Exit, Failure},
};

fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, format!("cannot {what}: {error}"))
}

/// Boots the machine, serves it, and runs the program in front of it.
pub(super) fn run(cli: &Cli, name: &str, program: &[OsString]) -> Result<Exit, Failure> {
    if cli.sim_state.is_some() {
        return Err(Failure::new(
            Exit::Usage,
            "--sim-state is for flyball's own commands; a served machine starts afresh and ends with its program",
        ));
    }
    let choice = choose(cli, name)?;
    let machine = choice.boot()?;
    eprintln!(
        "flyball: sim:{} is simulated (kernel {}): nothing here was measured",
        machine.name(),
        choice.kernel
    );
    let device = File::options().read(true).write(true).open("/dev/fuse").map_err(|error| {
        Failure::new(
            Exit::NotHere,
            format!("cannot open /dev/fuse: {error}; serving a machine needs the fuse module and access to its device"),
        )
    })?;
    let (ready, tell) = std::io::pipe().map_err(|error| failed("make a pipe", error))?;
    let stage = tempfile::Builder::new()
        .prefix("flyball-sim.")
        .tempdir()
        .map_err(|error| failed("make a directory", error))?;
    let itself = std::env::current_exe().map_err(|error| failed("find flyball itself", error))?;
    // Both go to the child under their numbers.
    let (device, tell): (OwnedFd, OwnedFd) = (device.into(), tell.into());
    let mut command = Command::new(itself);
    command.arg("sim").arg("inside").arg(stage.path());
    command.arg(device.as_raw_fd().to_string()).arg(tell.as_raw_fd().to_string()).arg("--").args(program);
    flyball_sim::serve::inherit(&device).map_err(|error| failed("hand on /dev/fuse", error))?;
    flyball_sim::serve::inherit(&tell).map_err(|error| failed("hand on the pipe", error))?;
    let paced = Arc::new(Mutex::new(Paced::new(machine)));
    let mut child = command.spawn().map_err(|error| failed("start flyball again", error))?;
    drop(tell);
    let server = std::thread::spawn(move || serve::serve(paced, device, ready.into()));
    let status = child.wait().map_err(|error| failed("wait for the program", error))?;
    // A program that went to the background still has its machine; the server ends with the last user.
    drop(stage);
    if server.is_finished()
        && let Ok(Err(error)) = server.join()
        && status.success()
    {
        return Err(failed("serve the machine", error));
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(Exit::Command(u8::try_from(code).unwrap_or(1)))
}

/// In the child: puts the machine in place and becomes the program.
pub(super) fn inside(stage: &Path, device: i32, ready: i32, program: &[OsString]) -> Result<Exit, Failure> {
    let (device, ready) =
        serve::inherited(device, ready).map_err(|error| failed("take over what flyball sim run opened", error))?;
    serve::enter(stage, &device, ready).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    drop(device);
    let Some((first, rest)) = program.split_first() else {
        return Err(Failure::new(Exit::Usage, "no program was given"));
    };
    let error = Command::new(first).args(rest).env("FLYBALL_SIM", "1").exec();
    let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    eprintln!("flyball: cannot run {}: {error}", first.to_string_lossy());
    Ok(Exit::Command(code))
}
