//! What every command gets besides its own arguments: the machine, its state directory, and the
//! reporter.

use std::{cell::OnceCell, path::PathBuf, time::Duration};

use flyball_control::write::{
    state::{LockError, LockTimeout, StateDir},
    transaction::TransactionError,
};
use flyball_files::Scratch;
use flyball_host::Host;
use flyball_simhost::{STATE_HELD, SimHost};

use crate::{exit::Failure, machine::MachineArg, output::Reporter, process::own_program};

/// How long a change waits for the machine's lock.
const PATIENCE: Duration = Duration::from_secs(2);

/// The machine, its state and the output of one command.
#[derive(Debug)]
pub(crate) struct Context {
    pub machine: MachineArg,
    /// Directory of the lock and the journal, if the user chose one.
    pub state_dir: Option<PathBuf>,
    pub output: Reporter,
    scratch: OnceCell<Scratch>,
}

impl Context {
    pub(crate) fn new(machine: MachineArg, state_dir: Option<PathBuf>, output: Reporter) -> Context {
        Context { machine, state_dir, output, scratch: OnceCell::new() }
    }

    pub(crate) fn open(&self) -> Result<Box<dyn Host>, Failure> {
        self.machine.open()
    }

    pub(crate) fn open_simulated(&self) -> Result<Option<SimHost>, Failure> {
        self.machine.open_simulated()
    }

    /// Returns the directory of the lock and the journal: the chosen one, or the default for this
    /// kind of machine.
    pub(crate) fn state(&self) -> Result<StateDir, Failure> {
        // An empty variable counts as unset: services empty variables to unset them.
        let from_environment = || std::env::var_os("FLYBALL_STATE").filter(|path| !path.is_empty());
        let given = self.state_dir.clone().or_else(|| from_environment().map(PathBuf::from));
        // The machine's own directory, whose lock is always taken. That of a tree is within the
        // tree, so that changing test files never touches this machine's journal. A simulated
        // machine is locked by its state file.
        let home = match &self.machine {
            MachineArg::Live => Some(PathBuf::from(StateDir::LIVE)),
            MachineArg::Tree(root) => Some(root.join("run/flyball")),
            _ => None,
        };
        let state = match (given, home, &self.machine) {
            // Lock both directories: otherwise, two flyballs with different directories could
            // change the machine at the same time.
            (Some(given), Some(home), _) => StateDir::new(given).on_machine(home),
            (Some(path), None, _) | (None, Some(path), _) => StateDir::new(path),
            (None, None, MachineArg::Simulated(setup)) => match setup.journal() {
                Some(journal) => StateDir::new(journal),
                // The machine and its journal end with this process.
                None => StateDir::new(self.scratch()?.path().join("state")),
            },
            (None, None, other) => {
                return Err(Failure::usage(format!(
                    "changing '{other}' needs a place for its journal: give --state-dir DIR"
                )));
            }
        };
        state.check().map_err(TransactionError::Lock)?;
        Ok(state)
    }

    /// Like [`Context::state`], but the change waits for the lock, which the service holds while it
    /// corrects, and other commands while they set.
    pub(crate) fn state_waiting_for_lock(&self) -> Result<StateDir, Failure> {
        let waits = |error: &LockError| eprintln!("flyball: waiting up to {} s: {error}", PATIENCE.as_secs());
        Ok(self.state()?.waiting(LockTimeout { time: PATIENCE, waits }))
    }

    /// Returns a directory of this process. Other users cannot access it, and it is removed at the
    /// end.
    fn scratch(&self) -> Result<&Scratch, Failure> {
        if let Some(made) = self.scratch.get() {
            return Ok(made);
        }
        let made = Scratch::new("flyball-sim-journal")
            .map_err(|error| Failure::failed(format!("cannot make a directory for the journal: {error}")))?;
        Ok(self.scratch.get_or_init(|| made))
    }

    /// Returns the command that starts a guardian for this machine, for commands that run a
    /// workload under settings.
    pub(crate) fn guardian(&self, state: &StateDir) -> Result<std::process::Command, Failure> {
        if std::process::id() == 1 {
            // When the first process of a PID namespace ends, the kernel kills all others
            // (pid_namespaces(7)).
            eprintln!(
                "note: flyball is process 1, perhaps of a container: if it is killed, its guardian is killed with it, and \
                 nothing is restored until 'flyball restore' with the journal in {}; start it under an init (docker run --init)",
                state.path().display()
            );
        }
        let mut command = std::process::Command::new(own_program()?);
        // Set the name: if the file is called intel-speed-select, it would take other arguments.
        std::os::unix::process::CommandExt::arg0(&mut command, "flyball");
        command.args(self.machine.arguments()).arg("--state-dir").arg(state.path()).arg("guardian");
        // The guardian acts for this process, which holds the state file of a simulated machine.
        command.env(STATE_HELD, "1");
        Ok(command)
    }
}
