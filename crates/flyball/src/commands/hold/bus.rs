//! `--bus`: the service's side of D-Bus. flyball-bus implements it.

use std::path::Path;

use flyball_bus::BusOptions;
use flyball_host::{Host, watch::Watch};

use crate::{context::Context, exit::Failure, output, process::own_program};

pub(super) use flyball_bus::{Bus, BusNotice};

/// Opens the bus of `--bus`. `None` without a socket.
pub(super) fn open<'a>(
    context: &Context,
    host: &'a dyn Host,
    socket: Option<&Path>,
    desktop: bool,
    watch: &mut Watch,
) -> Result<Option<Bus<'a>>, Failure> {
    let Some(socket) = socket else { return Ok(None) };
    let options = BusOptions {
        socket: socket.to_owned(),
        desktop,
        program: own_program()?,
        // systemd sets it for units with StateDirectory=.
        kept: std::env::var_os("STATE_DIRECTORY").map(Into::into),
    };
    Bus::new(host, context.open()?, options, watch)
        .map(Some)
        .map_err(|error| Failure::failed(format!("cannot serve D-Bus: {error}")))
}

/// Prints what happened on the bus.
pub(super) fn report(bus: &mut Bus<'_>) {
    for notice in bus.notices() {
        match notice {
            // Ignore errors: do not stop because a log cannot be written.
            BusNotice::Serves(_) => _ = output::line(notice),
            _ => eprintln!("{notice}"),
        }
    }
}
