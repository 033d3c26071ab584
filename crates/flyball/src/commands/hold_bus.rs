//! `flyball hold-bus`: the process that speaks D-Bus for `flyball hold run`. Started only by
//! flyball itself. Stdin is the socket to the service, stdout the connected bus.

use std::os::{
    fd::{AsFd as _, BorrowedFd},
    unix::net::UnixStream,
};

use flyball_bus::{Options, serve};
use flyball_control::{Setting, profile::Profile};
use flyball_process::confine::{Confinement, become_user};

use crate::exit::{Exit, Failure};

/// The user of the process, which flyball-service's sysusers.d makes.
const USER: &str = "flyball-bus";

/// Arguments of `hold-bus`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Serve the desktop's power profiles too.
    #[arg(long)]
    desktop: bool,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let socket = |descriptor: BorrowedFd<'_>| {
        descriptor
            .try_clone_to_owned()
            .map(UnixStream::from)
            .map_err(|error| Failure::failed(format!("cannot use the service's socket: {error}")))
    };
    let (service, bus) = (socket(std::io::stdin().as_fd())?, socket(std::io::stdout().as_fd())?);
    // Before anything is read, and before there is a second thread.
    let service_user = flyball_process::user();
    become_user(USER)
        .map_err(|error| Failure::failed(format!("D-Bus is not served: cannot become {USER}: {error}")))?;
    let confined = Confinement::without_files().enter();
    if !confined.calls {
        // Without it a hole here would reach whatever its user reaches.
        return Err(Failure::failed("D-Bus is not served: this kernel has no filters of system calls"));
    }
    serve(bus, service, Options { desktop: args.desktop, service_user, read }).map_err(Failure::failed)?;
    Ok(Exit::Done)
}

fn read(text: &str) -> Result<Vec<Setting>, String> {
    let profile = Profile::parse(text.as_bytes(), "profile").map_err(|error| error.to_string())?;
    Ok(profile.intent.settings)
}
