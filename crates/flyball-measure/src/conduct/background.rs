//! Loads that run while the workload of a round runs, for example to keep other CPUs busy as in a
//! published experiment.

use std::time::Duration;

use flyball_host::{Host, Process};

use super::MeasureError;
use crate::workload::{Command, Workload as _, WorkloadError};

/// Time between the start of the loads and that of the workload, in which tasks spread over their
/// CPUs and frequencies follow.
const SETTLE: Duration = Duration::from_millis(200);

/// Running loads. Dropping this ends them, whatever ended the round.
#[derive(Default)]
pub(super) struct Background(Vec<(String, Box<dyn Process>)>);

impl Background {
    pub(super) fn start(host: &dyn Host, commands: &[Command]) -> Result<Background, WorkloadError> {
        let mut running = Background::default();
        for command in commands {
            running.0.push((command.name(), command.start_silently(host)?));
        }
        if !commands.is_empty() {
            host.sleep(SETTLE);
        }
        Ok(running)
    }

    /// Fails if a load ended before the workload did: the round was not what its arm specifies.
    pub(super) fn check(&mut self, arm: &str) -> Result<(), MeasureError> {
        for (name, process) in &mut self.0 {
            let ended = process.wait(Duration::ZERO).map_err(|cause| WorkloadError::Io {
                what: "wait for the background load".to_owned(),
                cause,
            })?;
            if let Some(ended) = ended {
                let failure = format!("its background load '{name}' ended early: {}", ended.status);
                return Err(MeasureError::Failed { arm: arm.to_owned(), failure, output: String::new() });
            }
        }
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        for (_, process) in self.0.drain(..) {
            // By force: a load has nothing to save, and the next round waits. It cannot outlive
            // this process either.
            let _ = process.stop(Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use flyball_host::Live;

    use super::*;

    #[test]
    fn a_load_ends_with_the_round_and_must_not_end_before() {
        let host = Live::new();
        let load = |script: &str| Command::new(["/bin/sh", "-c", script].map(str::to_owned).to_vec());
        let mut running = Background::start(&host, &[load("exec sleep 100")]).expect("sh runs");
        running.check("arm").expect("it runs");
        drop(running);
        let mut ended = Background::start(&host, &[load("exit 3")]).expect("sh runs");
        let error = ended.check("arm").expect_err("it has ended").to_string();
        assert!(error.contains("ended early") && error.contains("exit 3"), "{error}");
    }
}
