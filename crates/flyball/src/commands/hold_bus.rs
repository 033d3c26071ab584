//! `flyball hold-bus`: speaks D-Bus for `flyball hold run`, in a process of its own. Only flyball
//! itself starts it. Stdin is the socket to the service.

use std::{
    os::{fd::AsFd as _, unix::net::UnixStream},
    path::PathBuf,
};

use flyball_bus::{Options, serve};
use flyball_process::{
    confine::{Confinement, become_user},
    connect_at_once,
};

use crate::exit::{Exit, Failure};

/// The process runs as this user, which flyball-service's sysusers.d creates. dist/dbus and
/// dist/polkit name it too.
const USER: &str = "flyball-bus";

/// Arguments of `hold-bus`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The bus's socket.
    bus: PathBuf,
    /// Serve the desktop's power profiles too.
    #[arg(long)]
    desktop: bool,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let failed = |what: String| Failure::failed(format!("D-Bus is not served: {what}"));
    let service = std::io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    let service = service.map_err(|error| failed(format!("cannot use the service's socket: {error}")))?;
    // Drop privileges before reading anything, and while there is only one thread.
    let service_user = flyball_process::user();
    become_user(USER).map_err(|error| failed(format!("cannot become {USER}: {error}")))?;
    // Connect at once: until this process reads from the service, it does not notice that the
    // service has ended.
    let bus = connect_at_once(&args.bus)
        .map_err(|error| failed(format!("cannot connect to {}: {error}", args.bus.display())))?;
    let confined = Confinement::without_files().enter();
    if !confined.calls {
        // Without the filter, a vulnerability here would reach whatever this user may access.
        return Err(failed("this kernel has no filters of system calls".to_owned()));
    }
    let own_user = flyball_process::user();
    let options = Options { desktop: args.desktop, service_user, own_user };
    serve(bus, service, options).map_err(Failure::failed)?;
    Ok(Exit::Done)
}
