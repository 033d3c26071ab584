//! Whom a command runs as. Under sudo that is the user who called it: only flyball itself needs
//! root, and what a build or a benchmark leaves behind should not belong to root.

use flyball_host::Host;
use flyball_process::User;

use crate::exit::Failure;

/// The options of commands that run a command.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct RunAs {
    /// Run the command as this user [default: under sudo, the user who called sudo].
    #[arg(long, value_name = "NAME", help_heading = "Workload", hide_short_help = true)]
    pub user: Option<String>,

    /// Under sudo, run the command as root.
    #[arg(long, conflicts_with = "user", help_heading = "Workload", hide_short_help = true)]
    pub as_root: bool,
}

impl RunAs {
    /// The user that a command on `host` is to run as; `None` for the one that flyball runs as.
    /// Says which if sudo started flyball or an option names a user.
    pub(crate) fn user(&self, host: &dyn Host) -> Result<Option<User>, Failure> {
        // A machine in software runs models; only the files that they leave behind are somebody's.
        self.choose(host.software().is_none())
    }

    /// The same for a command that always is a program of this computer.
    pub(crate) fn user_of_program(&self) -> Result<Option<User>, Failure> {
        self.choose(true)
    }

    fn choose(&self, runs_program: bool) -> Result<Option<User>, Failure> {
        let caller = User::from_sudo()
            .map_err(|error| Failure::usage(format!("cannot tell who called sudo: {error}")))?;
        let user = match &self.user {
            Some(name) => Some(named(name)?),
            // Root's own session has no caller either, and stays root.
            None if self.as_root => None,
            None => caller.clone(),
        };
        match &user {
            _ if !runs_program => {}
            Some(user) => eprintln!("note: the command runs as {} (user {})", user.name, user.uid),
            None if caller.is_some() => eprintln!("note: the command runs as root"),
            None => {}
        }
        // Nothing to change then, and an ordinary user could not.
        Ok(user.filter(|user| !user.is_self()))
    }
}

fn named(name: &str) -> Result<User, Failure> {
    let found = User::by_name(name)
        .map_err(|error| Failure::failed(format!("cannot look up user {name}: {error}")))?;
    // Asked before anything is set: setuid() would fail only when the command starts.
    let user = found.ok_or_else(|| Failure::usage(format!("no user '{name}' on this machine")))?;
    if !flyball_process::is_root() && !user.is_self() {
        return Err(Failure::usage(format!("only root can run a command as {name}")));
    }
    Ok(user)
}
