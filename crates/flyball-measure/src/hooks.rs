//! Shell commands around rounds, run as the workload's user.

use std::{path::PathBuf, time::Duration};

use flyball_host::Host;
use flyball_process::User;

use crate::{
    arm::Arm,
    program::{Hook, Hooks},
    workload::{Command, Outcome, Stop, Workload, WorkloadError},
};

/// How long the cleanup of one arm may take.
const MAX_CLEANUP: Duration = Duration::from_secs(300);

/// Runs the hooks of a comparison.
#[derive(Debug, Clone)]
pub struct HookRunner {
    /// Hooks of arms that have none of their own.
    pub hooks: Hooks,
    /// Where they run, for arms without a directory of their own.
    pub directory: Option<PathBuf>,
    /// The workload's user: hooks build or clean what the workload uses.
    pub user: Option<User>,
}

impl HookRunner {
    /// The shell command of an arm's hook.
    pub(crate) fn script<'a>(&'a self, hook: Hook, arm: &'a Arm) -> Option<&'a str> {
        let own = arm.program.as_ref().and_then(|program| program.hooks.get(hook));
        own.or_else(|| self.hooks.get(hook))
    }

    /// Runs one hook of an arm; `None` if there is none. A build finds `seed` in FLYBALL_SEED.
    pub fn run(
        &self,
        hook: Hook,
        arm: &Arm,
        host: &dyn Host,
        interval: Duration,
        seed: Option<u32>,
        stop: &Stop,
    ) -> Result<Option<Outcome>, WorkloadError> {
        let program = arm.program.as_ref();
        let Some(script) = self.script(hook, arm) else { return Ok(None) };
        let mut command = Command::new(["/bin/sh", "-c", script].map(str::to_owned).to_vec());
        command.directory =
            program.and_then(|program| program.directory.clone()).or_else(|| self.directory.clone());
        command.user.clone_from(&self.user);
        command.environment =
            seed.map(|seed| ("FLYBALL_SEED".to_owned(), seed.to_string())).into_iter().collect();
        // Keeps a database that --setup starts.
        command.keeps_daemons = true;
        // Nobody may be there to stop it.
        command.limit = (hook == Hook::Cleanup).then_some(MAX_CLEANUP);
        command.run(host, interval, &mut || (), stop).map(Some)
    }
}
