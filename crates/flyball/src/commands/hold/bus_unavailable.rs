//! `--bus` in builds without D-Bus.

use std::{path::Path, time::Duration};

use flyball_hold::{Desktop, Moment, Notice, Profiles, Service};
use flyball_host::{Host, watch::Watch};

use crate::{context::Context, exit::Failure};

/// Cannot be created in this build.
pub(super) enum Bus {}

pub(super) fn open(
    _context: &Context,
    _host: &dyn Host,
    socket: Option<&Path>,
    _desktop: bool,
    _watch: &mut Watch,
) -> Result<Option<Bus>, Failure> {
    match socket {
        None => Ok(None),
        Some(_) => Err(Failure::usage("this flyball was built without D-Bus (cargo build --features bus)")),
    }
}

pub(super) fn report(bus: &mut Bus) {
    match *bus {}
}

impl Bus {
    pub(super) fn begin(&mut self, _: &mut Service<'_>, _: &Desktop, _: Profiles<'_>, _: Moment) {
        match *self {}
    }

    pub(super) fn sleep_for(&self, _now: Duration) -> Duration {
        match *self {}
    }

    pub(super) fn tell(&mut self, _notice: &Notice) {
        match *self {}
    }

    pub(super) fn handle(&mut self, _service: &mut Service<'_>, _moment: Moment) {
        match *self {}
    }

    pub(super) fn stop(&mut self) {
        match *self {}
    }
}
