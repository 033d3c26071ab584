//! `--bus` of a flyball that was built without D-Bus.

use std::{path::Path, time::Duration};

use flyball_control::write::state::StateDir;
use flyball_hold::{Desktop, Moment, Notice, Service};
use flyball_host::{Host, watch::Watch};

use crate::exit::Failure;

pub(super) struct Bus;

impl Bus {
    pub(super) fn new(
        _host: &dyn Host,
        _state: StateDir,
        socket: Option<&Path>,
        _desktop: bool,
        _watch: &mut Watch,
        _open: &dyn Fn() -> Result<Box<dyn Host>, Failure>,
    ) -> Result<Bus, Failure> {
        match socket {
            None => Ok(Bus),
            Some(_) => {
                Err(Failure::usage("this flyball was built without D-Bus (cargo build --features bus)"))
            }
        }
    }

    pub(super) fn begin(&mut self, _service: &Service<'_>, _desktop: &Desktop) {}

    pub(super) fn sleep_for(&self, _now: Duration) -> Duration {
        Duration::MAX
    }

    pub(super) fn tell(&mut self, _notice: &Notice) {}

    pub(super) fn handle(&mut self, _service: &Service<'_>, _moment: Moment) {}

    pub(super) fn stop(&mut self) {}
}
