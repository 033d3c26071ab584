//! `flyball sim run`: runs a program on a simulated machine.

use std::{
    ffi::OsString,
    os::{fd::AsRawFd, unix::process::CommandExt},
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};

use flyball_files::Scratch;
use flyball_sim::serve::{self, RealTimeMachine, Supervisor};

use crate::{
    exit::{Exit, Failure},
    machine::MachineOptions,
    process::own_program,
};

fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("cannot {what}: {error}"))
}

/// Boots the machine, serves its files, and runs the program.
pub(super) fn run(options: &MachineOptions, name: &str, program: &[OsString]) -> Result<Exit, Failure> {
    if options.sim_state.is_some() {
        return Err(Failure::usage(
            "--sim-state is for flyball's own commands; a served machine starts from its boot and ends with its program",
        ));
    }
    let choice = options.simulated(name)?;
    let mut machine = choice.boot()?;
    choice.warn_of_idle_faults(&mut machine);
    eprintln!("flyball: simulated: sim:{}, kernel {}", machine.name(), choice.kernel);
    if !serve::has_fuse() {
        return Err(Failure::not_here(
            "there is no /dev/fuse: serving a machine needs the kernel's fuse module (as root: modprobe fuse; a container \
             needs the device). flyball's own commands do not need it: flyball -M sim:NAME ...",
        ));
    }
    // The child mounts in its own namespace and sends the descriptor of /dev/fuse back through this
    // socket.
    let (ours, theirs) = serve::connection().map_err(|error| failed("make a socket", error))?;
    let stage = Scratch::new("flyball-sim").map_err(|error| failed("make a directory", error))?;
    let mut command = Command::new(own_program()?);
    command
        .arg("sim")
        .arg("inside")
        .arg(stage.path())
        .arg(theirs.as_raw_fd().to_string())
        .arg("--")
        .args(program);
    let paced = Arc::new(Mutex::new(RealTimeMachine::new(machine)));
    let supervisor = Supervisor::new(paced.clone());
    let child = command.spawn().map_err(|error| failed("start flyball again", error))?;
    // Only the child may hold this end: the server stops when the last copy is closed.
    drop(theirs);
    let server = std::thread::spawn(move || serve::serve(paced, &ours));
    let code = supervisor.run(child.id() as i32).map_err(|error| failed("wait for the program", error))?;
    if server.is_finished()
        && let Ok(Err(error)) = server.join()
        // If the program failed, it has said why, and the server's error is probably a consequence.
        && code == 0
    {
        return Err(failed("serve the machine", error));
    }
    // Only now: until the child ends, its files are mounted below this directory.
    drop(stage);
    Ok(Exit::Command(u8::try_from(code).unwrap_or(1)))
}

/// Runs in the child: mounts the machine's files, and becomes the program.
pub(super) fn inside(stage: &Path, socket: i32, program: &[OsString]) -> Result<Exit, Failure> {
    let socket =
        serve::inherited(socket).map_err(|error| failed("take over what flyball sim run opened", error))?;
    serve::enter(stage, &socket).map_err(|error| match error.remedy() {
        Some(remedy) => Failure::not_here(format!("{error}; {remedy}")),
        None => Failure::failed(error.to_string()),
    })?;
    drop(socket);
    serve::submit().map_err(|error| failed("be supervised", error))?;
    let Some((first, rest)) = program.split_first() else {
        return Err(Failure::usage("no program was given"));
    };
    let error = Command::new(first).args(rest).env("FLYBALL_SIM", stage.join("machine")).exec();
    // The codes of a shell: 127 not found, 126 found and not executable.
    let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    eprintln!("flyball: cannot run {}: {error}", first.to_string_lossy());
    Ok(Exit::Command(code))
}
